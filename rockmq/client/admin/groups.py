"""Consumer groups: their settings, who is in them, how far they are, and where they go on."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from rockmq.base.errors import ClientError, ProtocolError, ResponseError
from rockmq.client.admin.cluster import Cluster
from rockmq.protocol import json
from rockmq.protocol.bodies.admin import (
    ConsumeStats,
    ConsumeStatsList,
    GroupConfigs,
    GroupForbidden,
    GroupSubscription,
    GroupTableBody,
    LowestOffsets,
    ProducerTable,
    TimeSpans,
)
from rockmq.protocol.bodies.client import ConsumerConnections, ProducerConnections, ResetOffsets
from rockmq.protocol.bodies.common import Connection, DataVersion, GroupConfig, MessageQueue, SubscriptionData
from rockmq.protocol.bodies.pop import Mode, RequestMode
from rockmq.protocol.bodies.route import TopicList
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import Header, decode
from rockmq.protocol.headers.admin import (
    AllGroupConfigResponse,
    CloneGroupOffset,
    DeleteGroup,
    GetAllGroups,
    GetAllProducers,
    GetBrokerConsumeStats,
    GetConsumerConnections,
    GetConsumeStats,
    GetGroup,
    GetLowestOffsets,
    GetProducerConnections,
    GetSubscription,
    GetTimeSpans,
    GetTopicsOfGroup,
    ResetOffset,
    UpdateForbidden,
    UpdateGroup,
    UpdateGroups,
)
from rockmq.protocol.headers.pop import SetRequestMode

PAGE_SIZE = 2000
TO_END = -1
TO_BEGIN = 0
"""Timestamps by which brokers understand all of a queue."""
BEHIND = 2**63 - 1
"""In place of an offset that the group hasn't reached."""


@dataclass(frozen=True)
class GroupSettings:
    """A group as a broker keeps it. `retry_policy` is Apache's GroupRetryPolicy as a JSON object, for proxies; `attributes`
    such as `lite.bind.topic` are those of Apache's SubscriptionGroupAttributes."""

    name: str
    consume_enabled: bool = True
    from_min_enabled: bool = True
    broadcast_enabled: bool = True
    orderly: bool = False
    retry_queues: int = 1
    max_reconsume_times: int = 16
    broker_id: int = 0
    slow_broker_id: int = 1
    """Where a group is sent that reads far behind the log's end."""
    notify_members: bool = True
    """Whether members are told when others come and go."""
    consume_timeout_minutes: int = 15
    retry_policy: dict[str, Any] = field(default_factory=lambda: {"type": "CUSTOMIZED"})
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ClientConnection:
    """A client as brokers know it; `version` is Apache's number of the client's release."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True)
class Subscription:
    """What a group wants of a topic: an expression, and its kind (TAG, SQL92)."""

    topic: str
    expression: str
    kind: str


@dataclass(frozen=True)
class GroupConnections:
    """Members of a group that are connected. `consume_type` is CONSUME_PASSIVELY for push, CONSUME_ACTIVELY for pull."""

    clients: list[ClientConnection]
    subscriptions: dict[str, Subscription]
    consume_type: str
    message_model: str
    consume_from: str


@dataclass(frozen=True)
class QueueProgress:
    """`last_consumed` is when the last message that was consumed had been stored, None when it isn't known."""

    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_consumed: int | None

    @property
    def lag(self) -> int:
        """Messages that aren't consumed."""
        return max(self.broker_offset - self.consumer_offset, 0)

    @property
    def in_flight(self) -> int:
        """Messages that were pulled and aren't consumed."""
        return max(self.pull_offset - self.consumer_offset, 0)


@dataclass(frozen=True)
class GroupProgress:
    """How far a group is; of queues in which it has an offset."""

    queues: dict[MessageQueue, QueueProgress]
    consumes_per_second: float

    @property
    def lag(self) -> int:
        return sum(each.lag for each in self.queues.values())

    @property
    def in_flight(self) -> int:
        return sum(each.in_flight for each in self.queues.values())


@dataclass(frozen=True)
class QueueTimes:
    """When messages of a queue were stored: the first, the last, the next to consume; `delay` is how far that is behind."""

    first: int
    last: int
    next: int
    delay: int


class GroupAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # Settings

    async def put(
        self,
        settings: GroupSettings,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        remove_attributes: Iterable[str] = (),
    ) -> None:
        """Create the group, or change it, on every master, those of one cluster, or one broker. Attributes that aren't named
        stay as they are."""
        to = await self._cluster.chosen(cluster, broker)
        config = _config(settings)
        config.attributes |= {f"-{key}": "" for key in remove_attributes}
        body = json.encode(config)
        await self._cluster.ask_all(to, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, UpdateGroup(), body)

    async def put_many(
        self, settings: Iterable[GroupSettings], *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """As `put`, for several groups in one request."""
        to = await self._cluster.chosen(cluster, broker)
        body = json.encode(GroupConfigs(group_config_list=[_config(each) for each in settings]))
        await self._cluster.ask_all(to, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, UpdateGroups(), body)

    async def delete(self, group: str, *, cluster: str | None = None, offsets: bool = False) -> None:
        """Delete the group on every master, with its offsets if wanted. Where groups are made as they come (the brokers'
        default), a member that is still there makes it anew."""
        header = DeleteGroup(group_name=group, clean_offset=offsets, remove_offset=offsets)
        await self._cluster.ask_all(await self._cluster.masters(cluster), RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def get(self, group: str, *, cluster: str | None = None) -> dict[str, GroupSettings]:
        """The group's settings, by broker name; of those brokers that have it. Where groups are made as they come, that is
        every one: asking makes the group."""
        masters = await self._cluster.masters(cluster)
        answers = await self._ask_each(
            masters,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
            GetGroup(group=group),
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        )
        return {name: _settings(json.decode(each.body, GroupConfig, "group")) for name, each in answers.items()}

    async def of_broker(self, broker: str) -> dict[str, GroupSettings]:
        """All groups of a broker, by name."""
        found: dict[str, GroupConfig] = {}
        version: DataVersion | None = None
        while True:
            header = GetAllGroups(
                group_seq=len(found),
                data_version=json.encode(version).decode() if version is not None else None,
                max_group_num=PAGE_SIZE,
            )
            answer = await self._cluster.ask(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
            page = json.decode(answer.body, GroupTableBody, "groups of a broker")
            if version is not None and page.data_version != version:
                found.clear()  # it changed meanwhile, and the broker begins anew
            version = page.data_version
            known = len(found)
            found |= page.subscription_group_table
            total = decode(AllGroupConfigResponse, answer.fields).total_group_num
            if total is None or len(found) >= total or not page.subscription_group_table:
                return {name: _settings(config) for name, config in sorted(found.items())}
            if len(found) == known:
                raise ProtocolError(
                    f"groups of broker {broker}: it says that there are {total}, and gives the same {known} again"
                )

    async def set_readable(self, group: str, topic: str, readable: bool) -> None:
        """Let the group's members read the topic, or have brokers refuse their pulls."""
        await self._forbidden(group, topic, readable)

    async def readable(self, group: str, topic: str) -> dict[str, bool]:
        """Whether the group's members may read the topic, by broker name."""
        answers = await self._forbidden(group, topic, None)
        return {name: json.decode(each.body, GroupForbidden, "what a group may").readable for name, each in answers.items()}

    async def _forbidden(self, group: str, topic: str, readable: bool | None) -> dict[str, Command]:
        header = UpdateForbidden(group=group, topic=topic, readable=readable)
        masters = await self._cluster.masters_of(topic)
        return await self._cluster.ask_all(masters, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)

    async def set_request_mode(self, group: str, topic: str, mode: Mode, *, share_queues: int = 0) -> None:
        """Have the group's members pull or pop the topic, those that leave it to brokers (`pop_consumer(assigned=True)`).

        Of `share_queues` other members each member pops the queues as well; with 0 all pop from all.
        """
        body = json.encode(RequestMode(topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=share_queues))
        masters = await self._cluster.masters_of(topic)
        await self._cluster.ask_all(masters, RequestCode.SET_MESSAGE_REQUEST_MODE, SetRequestMode(), body)

    # Who is there

    async def connections(self, group: str, *, cluster: str | None = None) -> GroupConnections:
        """Raises ResponseError (CONSUMER_NOT_ONLINE) when the group has no member anywhere."""
        header = GetConsumerConnections(consumer_group=group)
        masters = await self._cluster.masters(cluster)
        answers = await self._ask_each(
            masters, RequestCode.GET_CONSUMER_CONNECTION_LIST, header, ResponseCode.CONSUMER_NOT_ONLINE, one=True
        )
        found = [json.decode(each.body, ConsumerConnections, "consumers of a group") for each in answers.values()]
        first = found[0]
        return GroupConnections(
            _clients(connection for each in found for connection in each.connection_set),
            {topic: subscribed(data) for each in found for topic, data in each.subscription_table.items()},
            first.consume_type,
            first.message_model,
            first.consume_from_where,
        )

    async def producers(self, group: str, topic: str) -> list[ClientConnection]:
        """Producers of the group that are connected to brokers of the topic."""
        header = GetProducerConnections(producer_group=group)
        masters = await self._cluster.masters_of(topic)
        # The code by which brokers say that they don't know the group is that of any error.
        answers = await self._ask_each(masters, RequestCode.GET_PRODUCER_CONNECTION_LIST, header, ResponseCode.SYSTEM_ERROR)
        found = [json.decode(each.body, ProducerConnections, "producers of a group") for each in answers.values()]
        return _clients(connection for each in found for connection in each.connection_set)

    async def all_producers(self, broker: str) -> dict[str, list[ClientConnection]]:
        """All producers that a broker knows, by group."""
        answer = await self._cluster.ask(broker, RequestCode.GET_ALL_PRODUCER_INFO, GetAllProducers())
        table = json.decode(answer.body, ProducerTable, "producers").data
        return {
            group: [
                ClientConnection(each.client_id, each.remote_ip.removeprefix("/"), each.language, each.version)
                for each in producers
            ]
            for group, producers in table.items()
        }

    async def topics(self, group: str, *, cluster: str | None = None) -> list[str]:
        """Topics in which the group has offsets or, of its members, subscriptions."""
        masters = await self._cluster.masters(cluster)
        header = GetTopicsOfGroup(group=group)
        answers = await self._cluster.ask_all(masters, RequestCode.QUERY_TOPICS_BY_CONSUMER, header)
        return sorted({name for each in answers.values() for name in json.decode(each.body, TopicList, "topics").topic_list})

    async def subscription(self, group: str, topic: str) -> Subscription | None:
        """What the group's members want of the topic, None when none is there that wants it."""
        header = GetSubscription(group=group, topic=topic)
        masters = await self._cluster.masters_of(topic)
        answers = await self._cluster.ask_all(masters, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header)
        for answer in answers.values():
            data = json.decode(answer.body, GroupSubscription, "subscription").subscription_data
            if data is not None:
                return subscribed(data)
        return None

    # How far it is

    async def progress(self, group: str, topic: str | None = None, *, cluster: str | None = None) -> GroupProgress:
        """How far the group is in all its topics, or in one."""
        masters = await self._cluster.masters(cluster)
        header = GetConsumeStats(consumer_group=group, topic=topic, topic_list=topic)
        answers = await self._cluster.ask_all(masters, RequestCode.GET_CONSUME_STATS, header)
        return _progress(json.decode(each.body, ConsumeStats, "consume stats") for each in answers.values())

    async def progress_of_all(self, broker: str, *, orderly: bool = False) -> dict[str, GroupProgress]:
        """How far groups are at a broker: those whose settings say `orderly`, or the others."""
        header = GetBrokerConsumeStats(is_order=orderly)
        answer = await self._cluster.ask(broker, RequestCode.GET_BROKER_CONSUME_STATS, header)
        found = json.decode(answer.body, ConsumeStatsList, "consume stats of a broker").consume_stats_list
        return {group: _progress(stats) for groups in found for group, stats in groups.items()}

    async def times(self, group: str, topic: str) -> dict[MessageQueue, QueueTimes]:
        """How far the group is in the queues of a topic, in time."""
        masters = await self._cluster.masters_of(topic)
        header = GetTimeSpans(topic=topic, group=group)
        answers = await self._cluster.ask_all(masters, RequestCode.QUERY_CONSUME_TIME_SPAN, header)
        spans = [json.decode(each.body, TimeSpans, "time spans").consume_time_span_set for each in answers.values()]
        return {
            each.message_queue: QueueTimes(
                each.min_time_stamp, each.max_time_stamp, each.consume_time_stamp, max(each.delay_time, 0)
            )
            for part in spans
            for each in part
        }

    async def lowest_offsets(self, topic: str, group: str) -> dict[MessageQueue, int | None]:
        """The lowest offset that any group has in each queue of a topic; None where `group` is behind it."""
        header = GetLowestOffsets(topic=topic, compare_group=group)
        masters = await self._cluster.masters_of(topic)
        answers = await self._cluster.ask_all(masters, RequestCode.QUERY_CORRECTION_OFFSET, header)
        return {
            MessageQueue(topic, name, queue_id): None if offset == BEHIND else offset
            for name, answer in answers.items()
            for queue_id, offset in json.decode(answer.body, LowestOffsets, "lowest offsets").correction_offsets.items()
        }

    # Where it goes on

    async def reset(
        self, group: str, topic: str, to: datetime | Literal["begin", "end"], *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Have the group go on, in all queues of the topic, at the messages stored then or later; the offsets that it gets.

        Members that are running take it up with their next pull. Without `force` older brokers never move it forward.
        """
        if isinstance(to, datetime):
            if to.tzinfo is None:
                raise ClientError(f"{to} has no time zone: which time is meant?")
            timestamp = int(to.timestamp() * 1000)
        else:
            timestamp = TO_BEGIN if to == "begin" else TO_END
        header = ResetOffset(topic=topic, group=group, timestamp=timestamp, is_force=force)
        masters = await self._cluster.masters_of(topic)
        return _offsets(await self._cluster.ask_all(masters, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header))

    async def reset_queue(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Have the group go on at an offset of one queue."""
        header = ResetOffset(
            topic=queue.topic, group=group, timestamp=TO_BEGIN, is_force=True, queue_id=queue.queue_id, offset=offset
        )
        await self._cluster.ask(queue.broker_name, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

    async def clone_offsets(self, source: str, target: str, topic: str) -> None:
        """Have one group go on in a topic where another one is."""
        header = CloneGroupOffset(src_group=source, dest_group=target, topic=topic)
        await self._cluster.ask_all(await self._cluster.masters_of(topic), RequestCode.CLONE_GROUP_OFFSET, header)

    async def _ask_each(
        self, masters: dict[str, str], code: int, header: Header, nothing: ResponseCode, *, one: bool = False
    ) -> dict[str, Command]:
        """The answers of those that don't say `nothing`; with `one` that many at least must answer."""
        answers: dict[str, Command] = {}
        refused: ResponseError | None = None
        for name, to in masters.items():
            try:
                answers |= await self._cluster.ask_all({name: to}, code, header)
            except ResponseError as error:
                if error.code != nothing:
                    raise
                refused = error
        if one and not answers and refused is not None:
            raise refused
        return answers


def subscribed(data: SubscriptionData) -> Subscription:
    return Subscription(data.topic, data.sub_string, data.expression_type or "TAG")


def _clients(connections: Iterable[Connection]) -> list[ClientConnection]:
    """Each client once: it is connected to every broker."""
    found = {each.client_id: ClientConnection(each.client_id, each.client_addr, each.language, each.version)
             for each in connections}  # fmt: skip
    return [found[client_id] for client_id in sorted(found)]


def _progress(tables: Iterable[ConsumeStats]) -> GroupProgress:
    queues: dict[MessageQueue, QueueProgress] = {}
    per_second = 0.0
    for table in tables:
        per_second += table.consume_tps
        for key, each in table.offset_table.items():
            queues[MessageQueue.parse(key)] = QueueProgress(
                each.broker_offset, each.consumer_offset, each.pull_offset, each.last_timestamp or None
            )
    return GroupProgress(dict(sorted(queues.items())), per_second)


def _offsets(answers: dict[str, Command]) -> dict[MessageQueue, int]:
    found = {
        MessageQueue.parse(key): offset
        for answer in answers.values()
        for key, offset in json.decode(answer.body, ResetOffsets, "offsets").offset_table.items()
    }
    return dict(sorted(found.items()))


def _config(settings: GroupSettings) -> GroupConfig:
    return GroupConfig(
        group_name=settings.name,
        consume_enable=settings.consume_enabled,
        consume_from_min_enable=settings.from_min_enabled,
        consume_broadcast_enable=settings.broadcast_enabled,
        consume_message_orderly=settings.orderly,
        retry_queue_nums=settings.retry_queues,
        retry_max_times=settings.max_reconsume_times,
        group_retry_policy=settings.retry_policy,
        broker_id=settings.broker_id,
        which_broker_when_consume_slowly=settings.slow_broker_id,
        notify_consumer_ids_changed_enable=settings.notify_members,
        consume_timeout_minute=settings.consume_timeout_minutes,
        attributes={f"+{key}": value for key, value in settings.attributes.items()},
    )


def _settings(config: GroupConfig) -> GroupSettings:
    return GroupSettings(
        name=config.group_name,
        consume_enabled=config.consume_enable,
        from_min_enabled=config.consume_from_min_enable,
        broadcast_enabled=config.consume_broadcast_enable,
        orderly=config.consume_message_orderly,
        retry_queues=config.retry_queue_nums,
        max_reconsume_times=config.retry_max_times,
        broker_id=config.broker_id,
        slow_broker_id=config.which_broker_when_consume_slowly,
        notify_members=config.notify_consumer_ids_changed_enable,
        consume_timeout_minutes=config.consume_timeout_minute,
        retry_policy=config.group_retry_policy,
        attributes=dict(config.attributes),
    )
