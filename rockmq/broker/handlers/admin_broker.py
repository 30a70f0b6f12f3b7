"""What administrators ask about a broker as a whole (AdminBrokerProcessor.java; protocol spec, 5): figures, configuration,
clean-up, entries of queues, timers."""

import logging

from rockmq.base.errors import ConfigError
from rockmq.broker.clients import ClientTables
from rockmq.broker.configuration import BLACK_LIST, Configuration
from rockmq.broker.consumer_filters import ConsumerFilters
from rockmq.broker.delays import Delays
from rockmq.broker.runtime_info import RuntimeInfo
from rockmq.broker.stats import DAY, HOUR, MINUTE, STATS_NAMES, BrokerStats, Series, Unit, Window
from rockmq.config import properties
from rockmq.config.key import dump
from rockmq.filter import is_tag, tags
from rockmq.protocol import codec, json
from rockmq.protocol.bodies.admin import BrokerStatsData, QueueEntries, QueueEntry, Replication, StatsItem
from rockmq.protocol.bodies.common import DataVersion, KVTable, SubscriptionData
from rockmq.protocol.bodies.storage import TimerCheckpoint
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.headers.admin import (
    CleanExpiredQueues,
    DeleteExpiredLog,
    GetAllDelayOffset,
    GetBrokerConfig,
    GetBrokerRuntimeInfo,
    GetBrokerStats,
    GetQueueEntries,
    GetReplication,
    UpdateBrokerConfig,
)
from rockmq.protocol.headers.storage import GetTimerCheckpoint, GetTimerCounts, SetReadAhead
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal
from rockmq.store.message_store import MessageStore
from rockmq.store.timers import TimerStore

log = logging.getLogger(__name__)

ENTRIES_MAX = 4096
"""Entries of a queue in one answer."""
REMARK_SIZE_MAX = 4096
"""Characters that say why a change of the configuration is refused, which may be of any size."""
READ_AHEAD = {"0": "true", "1": "false"}
"""What the modes of madvise say of dataReadAheadEnable."""


class BrokerAdminHandlers:
    def __init__(
        self,
        configuration: Configuration,
        runtime: RuntimeInfo,
        stats: BrokerStats,
        clients: ClientTables,
        filters: ConsumerFilters | None,
        store: MessageStore,
        delays: Delays,
        timers: TimerStore | None,
    ) -> None:
        self._configuration = configuration
        self._runtime = runtime
        self._stats = stats
        self._clients = clients
        self._filters = filters
        self._store = store
        self._delays = delays
        self._timers = timers

    # Figures

    def runtime_info(self, header: GetBrokerRuntimeInfo, request: Command, connection: Connection) -> Command:
        return codec.reply(request, body=json.encode(KVTable(table=self._runtime.table())))

    async def stats(self, header: GetBrokerStats, request: Command, connection: Connection) -> Answer:
        name, key = header.stats_name, header.stats_key
        if name not in STATS_NAMES:
            remark = f"The stats <{name[:100]}> <{key[:300]}> not exist: {', '.join(STATS_NAMES)} are counted"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        await self._stats.refresh()
        found = self._stats.find(name, key)
        if found is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key[:300]}> not exist: nothing was counted")
        minute, hour, day = (self._item(*found, window) for window in (MINUTE, HOUR, DAY))
        return codec.reply(request, body=json.encode(BrokerStatsData(stats_minute=minute, stats_hour=hour, stats_day=day)))

    def _item(self, series: Series, unit: Unit, window: Window) -> StatsItem:
        grown = self._stats.grown(series, unit, window)
        return StatsItem(sum=grown.sum, tps=grown.per_second, average=grown.average)

    def replication(self, header: GetReplication, request: Command, connection: Connection) -> Command:
        """A master without slaves, which there aren't yet."""
        body = Replication(master=True, end=self._store.core.max_position)
        return codec.reply(request, body=json.encode(body))

    # Configuration

    def config(self, header: GetBrokerConfig, request: Command, connection: Connection) -> Command:
        return codec.reply(request, body=properties.write(dump(self._configuration.options)).encode())

    async def update_config(self, header: UpdateBrokerConfig, request: Command, connection: Connection) -> Answer:
        try:
            changes = properties.read_changes(request.body)
            if black := BLACK_LIST & changes.keys():
                raise Refusal(ResponseCode.NO_PERMISSION, f"these keys can't be changed: {', '.join(sorted(black))}")
            return codec.reply(request, remark=await self._update(changes, connection))
        except ConfigError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)[:REMARK_SIZE_MAX]) from None

    async def _update(self, changes: dict[str, str], connection: Connection) -> str:
        told = await self._configuration.update(changes)
        log.info("%s changed the configuration: %s", connection.peer, told)
        return told

    async def set_read_ahead(self, header: SetReadAhead, request: Command, connection: Connection) -> Answer:
        wanted = READ_AHEAD.get(header.mode)
        if wanted is None:
            remark = f"READ_AHEAD_MODE is {header.mode[:40]!r}: expected 0, to read ahead, or 1"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        await self._update({"dataReadAheadEnable": wanted}, connection)
        return codec.reply(request, remark=f"set commitlog readahead mode success, mode: {header.mode}")

    # Clean-up

    async def clean_expired_queues(self, header: CleanExpiredQueues, request: Command, connection: Connection) -> Answer:
        """Delete queue files whose messages are gone. Apache's broker also forgets queues all of whose messages are gone,
        with the offset that they go on at; here that is kept."""
        await self._store.delete_expired_queues()
        return codec.reply(request)

    def delete_expired_log(self, header: DeleteExpiredLog, request: Command, connection: Connection) -> Command:
        """The next rounds of deletion don't ask for the hour."""
        self._store.delete_expired_files()
        log.info("%s has log files that have expired deleted now", connection.peer)
        return codec.reply(request)

    # Queues

    def queue_entries(self, header: GetQueueEntries, request: Command, connection: Connection) -> Command:
        topic, queue_id, core = header.topic, header.queue_id, self._store.core
        bounds = core.queue_bounds(topic, queue_id)
        if bounds is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic[:300]} is not exist!")
        begin, count = max(header.index, 0), min(max(header.count, 0), ENTRIES_MAX)
        subscription, told = self._subscription(header.consumer_group, topic)
        body = QueueEntries(
            first=bounds[0],
            end=bounds[1],
            entries=[
                QueueEntry(position=position, size=size, tags_code=code, matches=_wants(subscription, code))
                for _, position, size, code in core.entries(topic, queue_id, begin, count, self._store.readable_limit)
            ],
            subscription_data=subscription,
            filter_data=told,
        )
        return codec.reply(request, body=json.encode(body))

    def _subscription(self, group: str | None, topic: str) -> tuple[SubscriptionData | None, str | None]:
        """What a group subscribes to, and what there is to say of it."""
        if group is None:
            return None, None
        members = self._clients.consumers.get(group)
        found = members.subscriptions.get(topic) if members is not None else None
        if found is None:
            return None, f"{group}@{topic} is not online!"
        data = self._filters.find(group, topic) if self._filters is not None else None
        return found, json.encode(data).decode()

    # Delays and timers

    def all_delay_offsets(self, header: GetAllDelayOffset, request: Command, connection: Connection) -> Command:
        return codec.reply(request, body=b"".join(self._delays.pieces()))

    def timer_checkpoint(self, header: GetTimerCheckpoint, request: Command, connection: Connection) -> Command:
        held = self._with_timers().checkpoint
        body = TimerCheckpoint(
            read_until=held.read_time,
            flushed=held.forced,
            queue_offset=held.offset,
            master_queue_offset=held.master_offset,
            version=DataVersion(state_version=held.state_version, timestamp=held.timestamp, counter=held.counter),
        )
        return codec.reply(request, body=body.encode())

    def timer_counts(self, header: GetTimerCounts, request: Command, connection: Connection) -> Command:
        return codec.reply(request, body=self._with_timers().counts())

    def _with_timers(self) -> TimerStore:
        if self._timers is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "there are no timers: timerWheelEnable is false")
        return self._timers


def _wants(subscription: SubscriptionData | None, code: int) -> bool:
    """Whether a subscription to tags takes messages with this code."""
    if subscription is None or not is_tag(subscription.expression_type):
        return False
    return subscription.sub_string in ("", tags.ALL) or code in subscription.code_set
