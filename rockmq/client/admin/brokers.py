"""Brokers: which there are, how they do, how they are configured."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from rockmq.base.errors import ProtocolError
from rockmq.client.admin.cluster import Cluster
from rockmq.client.admin.topics import BrokerAddresses, addresses
from rockmq.config import properties
from rockmq.protocol import json
from rockmq.protocol.bodies.admin import BrokerStatsData, ConsumerOffsets, QueueEntries, Replication, StatsItem
from rockmq.protocol.bodies.common import KVTable, MessageQueue
from rockmq.protocol.bodies.controller import Epochs
from rockmq.protocol.bodies.pop import RequestMode, RequestModes
from rockmq.protocol.bodies.route import TopicList
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.admin import (
    CleanExpiredQueues,
    CleanUnusedTopics,
    DeleteExpiredLog,
    GetAllConsumerOffsets,
    GetBrokerConfig,
    GetBrokerRuntimeInfo,
    GetBrokersSystemTopics,
    GetBrokerStats,
    GetEpochs,
    GetQueueEntries,
    GetReplication,
    SetMasterFlushOffset,
    UpdateBrokerConfig,
)
from rockmq.protocol.headers.pop import GetAllRequestModes

T = TypeVar("T", int, float)


@dataclass(frozen=True)
class Clusters:
    """`clusters` has the broker names of each cluster, `brokers` the addresses of each broker name."""

    clusters: dict[str, list[str]]
    brokers: dict[str, BrokerAddresses]


@dataclass(frozen=True)
class RuntimeInfo:
    """How a broker does. Figures that it doesn't tell are None, and those that it tells as what is no number raise
    ProtocolError; `table` is all that it told, as text."""

    table: dict[str, str]

    @property
    def version(self) -> str | None:
        return self.table.get("brokerVersionDesc")

    @property
    def booted(self) -> int | None:
        return self._whole("bootTimestamp")

    @property
    def puts_per_second(self) -> float | None:
        """Messages stored, over the last 10 s."""
        return self._rate("putTps")

    @property
    def gets_per_second(self) -> float | None:
        """Messages handed out, over the last 10 s."""
        return self._rate("getTransferredTps") if "getTransferredTps" in self.table else self._rate("getTransferedTps")

    @property
    def puts_today(self) -> int | None:
        return self._difference("msgPutTotalTodayNow", "msgPutTotalTodayMorning")

    @property
    def gets_today(self) -> int | None:
        return self._difference("msgGetTotalTodayNow", "msgGetTotalTodayMorning")

    @property
    def log_min_offset(self) -> int | None:
        return self._whole("commitLogMinOffset")

    @property
    def log_max_offset(self) -> int | None:
        return self._whole("commitLogMaxOffset")

    @property
    def disk_ratio(self) -> float | None:
        """How full the commit log's disk is, 0 to 1."""
        return self._number("commitLogDiskRatio", float)

    @property
    def earliest_message(self) -> int | None:
        """When the oldest message that is kept was stored."""
        found = self._whole("earliestMessageTimeStamp")
        return found if found is not None and found >= 0 else None

    def _whole(self, key: str) -> int | None:
        return self._number(key, int)

    def _rate(self, key: str) -> float | None:
        return self._number(key, lambda text: float(text.split()[0]))

    def _number(self, key: str, read: Callable[[str], T]) -> T | None:
        text = self.table.get(key, "").strip()
        try:
            return read(text) if text else None
        except ValueError:
            raise ProtocolError(f"runtime info: {key} is {text[:100]!r}, expected a number") from None

    def _difference(self, now: str, before: str) -> int | None:
        high, low = self._whole(now), self._whole(before)
        return high - low if high is not None and low is not None else None


@dataclass(frozen=True)
class Measured:
    """Over a time: how much, how much a second, and how much at once on average."""

    sum: int
    per_second: float
    average: float


@dataclass(frozen=True)
class BrokerStats:
    """Of the last minute, hour and day."""

    minute: Measured
    hour: Measured
    day: Measured


class BrokerAdmin:
    """`broker` is the name of one, which means its master, or `host:port`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def clusters(self) -> Clusters:
        """All that the name server knows."""
        info = await self._cluster.info()
        return Clusters(
            {name: sorted(brokers) for name, brokers in sorted(info.cluster_addr_table.items())},
            {name: addresses(data) for name, data in sorted(info.broker_addr_table.items())},
        )

    async def runtime_info(self, broker: str) -> RuntimeInfo:
        answer = await self._cluster.ask(broker, RequestCode.GET_BROKER_RUNTIME_INFO, GetBrokerRuntimeInfo())
        return RuntimeInfo(json.decode(answer.body, KVTable, "runtime info").table)

    async def config(self, broker: str) -> dict[str, str]:
        """The keys of its broker.conf, with the values in effect."""
        answer = await self._cluster.ask(broker, RequestCode.GET_BROKER_CONFIG, GetBrokerConfig())
        return properties.read_bytes(answer.body)

    async def system_topics(self, broker: str) -> list[str]:
        """Topics that are the broker's own."""
        answer = await self._cluster.ask(broker, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, GetBrokersSystemTopics())
        return sorted(json.decode(answer.body, TopicList, "system topics").topic_list)

    async def update_config(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change keys while it runs. Raises ResponseError for one that can't be changed."""
        body = properties.write(changes).encode()
        await self._cluster.ask(broker, RequestCode.UPDATE_BROKER_CONFIG, UpdateBrokerConfig(), body)

    async def stats(self, broker: str, name: str, key: str) -> BrokerStats:
        """What the broker counts under a name, such as TOPIC_PUT_NUMS of a topic, or GROUP_GET_NUMS of `topic@group`.

        Raises ResponseError for what it doesn't count.
        """
        header = GetBrokerStats(stats_name=name, stats_key=key)
        answer = await self._cluster.ask(broker, RequestCode.VIEW_BROKER_STATS_DATA, header)
        data = json.decode(answer.body, BrokerStatsData, "broker stats")
        return BrokerStats(_measured(data.stats_minute), _measured(data.stats_hour), _measured(data.stats_day))

    async def offsets(self, broker: str) -> dict[tuple[str, str], dict[int, int]]:
        """All offsets that a broker keeps: by topic and group, then by queue id."""
        answer = await self._cluster.ask(broker, RequestCode.GET_ALL_CONSUMER_OFFSET, GetAllConsumerOffsets())
        table = json.decode(answer.body, ConsumerOffsets, "consumer offsets").offset_table
        found = {}
        for key, queues in table.items():
            topic, _, group = key.partition("@")
            found[topic, group] = queues
        return found

    async def queue_entries(
        self, queue: MessageQueue, offset: int, count: int = 16, group: str | None = None
    ) -> QueueEntries:
        """Entries of a queue from an offset on, and, for a group with members, which of them it subscribes to."""
        header = GetQueueEntries(topic=queue.topic, queue_id=queue.queue_id, index=offset, count=count, consumer_group=group)
        answer = await self._cluster.ask(queue.broker_name, RequestCode.QUERY_CONSUME_QUEUE, header)
        return json.decode(answer.body, QueueEntries, "queue entries")

    async def replication(self, broker: str) -> Replication:
        """How the broker's slaves keep up."""
        answer = await self._cluster.ask(broker, RequestCode.GET_BROKER_HA_STATUS, GetReplication())
        return json.decode(answer.body, Replication, "replication")

    async def set_master_flush_offset(self, broker: str, offset: int) -> None:
        """Tell a slave, by its address, up to where its master's log is on disk. A master takes no notice."""
        header = SetMasterFlushOffset(master_flush_offset=offset)
        await self._cluster.ask(broker, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)

    async def epochs(self, broker: str) -> Epochs:
        """Under which masters the broker's log was written. Raises ResponseError when no controller chooses its master."""
        answer = await self._cluster.ask(broker, RequestCode.GET_BROKER_EPOCH_CACHE, GetEpochs())
        return json.decode(answer.body, Epochs, "epochs of a broker")

    async def request_modes(self, broker: str) -> list[RequestMode]:
        """Groups and topics for which a mode was set, see `GroupAdmin.set_request_mode`."""
        answer = await self._cluster.ask(broker, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, GetAllRequestModes())
        table = json.decode(answer.body, RequestModes, "request modes").message_request_mode_map
        return [mode for groups in table.values() for mode in groups.values()]

    async def clean_expired_queues(self, broker: str) -> None:
        """Delete queue files whose messages are gone."""
        await self._cluster.ask(broker, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, CleanExpiredQueues())

    async def clean_unused_topics(self, broker: str) -> None:
        """Delete the queues of topics that are deleted."""
        await self._cluster.ask(broker, RequestCode.CLEAN_UNUSED_TOPIC, CleanUnusedTopics())

    async def delete_expired_log(self, broker: str) -> None:
        """Delete log files that are older than they have to be kept, now instead of at the hour for it."""
        await self._cluster.ask(broker, RequestCode.DELETE_EXPIRED_COMMITLOG, DeleteExpiredLog())


def _measured(item: StatsItem) -> Measured:
    return Measured(item.sum, item.tps, item.average)
