"""Topics: their settings, where they are, what is in them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from rockmq.base.errors import ProtocolError
from rockmq.client.admin.cluster import Cluster
from rockmq.protocol import json, topics
from rockmq.protocol.bodies.admin import GroupList, TopicConfigs, TopicStatsTable
from rockmq.protocol.bodies.common import DataVersion, MessageQueue, TopicConfig
from rockmq.protocol.bodies.route import BrokerData, BrokerMemberGroup, TopicList, TopicTable
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.flags import Permission
from rockmq.protocol.header import Header, decode
from rockmq.protocol.headers.admin import (
    AllTopicConfigResponse,
    CreateTopic,
    CreateTopics,
    DeleteTopic,
    GetAllTopicConfig,
    GetGroupsOfTopic,
    GetTopicConfig,
    GetTopicStats,
)
from rockmq.protocol.headers.route import (
    DeleteKV,
    DeleteTopicInNamesrv,
    GetAllTopics,
    GetSystemTopics,
    GetTopicsByCluster,
    GetUnitSubTopics,
    GetUnitSubWithoutUnitTopics,
    GetUnitTopics,
)

PAGE_SIZE = 2000
ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
"""KV namespace in which name servers have the queues of order topics."""


@dataclass(frozen=True)
class TopicSettings:
    """A topic as a broker keeps it. `permission` is of `rockmq.protocol.flags.Permission`; `attributes` such as
    `message.type` are those of Apache's TopicAttributes."""

    name: str
    read_queues: int = 8
    write_queues: int = 8
    permission: int = Permission.READ | Permission.WRITE
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)
    unit_flags: int = 0


@dataclass(frozen=True)
class QueueBounds:
    """`max_offset` is the one that the next message gets; `last_stored` is None when nothing is there."""

    min_offset: int
    max_offset: int
    last_stored: int | None

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset


@dataclass(frozen=True)
class TopicStats:
    """`puts_per_second` is what brokers that measure it say, else 0."""

    queues: dict[MessageQueue, QueueBounds]
    puts_per_second: float


@dataclass(frozen=True)
class BrokerAddresses:
    """A broker name's addresses by broker id; 0 is the master."""

    name: str
    cluster: str
    addresses: dict[int, str]


@dataclass(frozen=True)
class TopicQueues:
    """How many queues of a topic a broker has."""

    broker_name: str
    read_queues: int
    write_queues: int
    permission: int


@dataclass(frozen=True)
class TopicRoute:
    """Where a topic is, as the name server says. `order` is the text of an order topic's queues."""

    brokers: list[BrokerAddresses]
    queues: list[TopicQueues]
    order: str | None


class TopicAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def put(
        self,
        settings: TopicSettings,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        remove_attributes: Iterable[str] = (),
    ) -> None:
        """Create the topic, or change it, on every master, those of one cluster, or one broker. Attributes that aren't named
        stay as they are. Name servers hear of it a moment later; `Client.create_topic` waits for that."""
        changes = [f"+{key}={value}" for key, value in settings.attributes.items()] + [
            f"-{key}" for key in remove_attributes
        ]
        header = CreateTopic(
            topic=settings.name,
            default_topic=topics.TEMPLATE,
            read_queue_nums=settings.read_queues,
            write_queue_nums=settings.write_queues,
            perm=int(settings.permission),
            topic_sys_flag=settings.unit_flags,
            order=settings.order,
            attributes=",".join(changes) or None,
        )
        await self._cluster.ask_all(await self._cluster.chosen(cluster, broker), RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def put_many(
        self, settings: Iterable[TopicSettings], *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """As `put`, for several topics in one request. Raises ResponseError and changes nothing when one of them can't be.
        Apache's broker does nothing either, and says nothing, when one of them is there already just so."""
        configs = [
            TopicConfig(
                topic_name=each.name,
                read_queue_nums=each.read_queues,
                write_queue_nums=each.write_queues,
                perm=int(each.permission),
                topic_sys_flag=each.unit_flags,
                order=each.order,
                attributes={f"+{key}": value for key, value in each.attributes.items()},
            )
            for each in settings
        ]
        to = await self._cluster.chosen(cluster, broker)
        body = json.encode(TopicConfigs(topic_config_list=configs))
        await self._cluster.ask_all(to, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, CreateTopics(), body)

    async def delete(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete the topic with its messages from every master (of the cluster), then from every name server."""
        masters = await self._cluster.masters(cluster)
        await self._cluster.ask_all(masters, RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopic(topic=topic))
        header = DeleteTopicInNamesrv(topic=topic, cluster_name=cluster)
        await self._cluster.tell_name_servers(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
        order = DeleteKV(namespace=ORDER_NAMESPACE, key=self._cluster.at_servers(topic))
        await self._cluster.tell_name_servers(RequestCode.DELETE_KV_CONFIG, order)

    async def names(self, cluster: str | None = None) -> list[str]:
        """All topics that the name server knows, retry and dead-letter topics among them; those of one cluster if named."""
        if cluster is None:
            answer = await self._cluster.ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, GetAllTopics())
        else:
            asked = GetTopicsByCluster(cluster=cluster)
            answer = await self._cluster.ask_name_server(RequestCode.GET_TOPICS_BY_CLUSTER, asked)
        return sorted(json.decode(answer.body, TopicList, "topics").topic_list)

    async def system_names(self) -> list[str]:
        """Topics that are named like a cluster or a broker, as the name server knows them."""
        answer = await self._cluster.ask_name_server(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, GetSystemTopics())
        return sorted(json.decode(answer.body, TopicList, "system topics").topic_list)

    async def unit_names(self, having: Literal["unit", "unit subscription", "unit subscription only"] = "unit") -> list[str]:
        """Topics whose `unit_flags` say that they belong to a unit, that groups of units subscribe to them, or the latter
        and not the former."""
        code, header = _OF_UNITS[having]
        answer = await self._cluster.ask_name_server(code, header())
        return sorted(json.decode(answer.body, TopicList, "topics of units").topic_list)

    async def get(self, topic: str) -> dict[str, TopicSettings]:
        """The topic's settings, by broker name. Raises RouteNotFound when there is no such topic."""
        masters = await self._cluster.masters_of(topic)
        answers = await self._cluster.ask_all(masters, RequestCode.GET_TOPIC_CONFIG, GetTopicConfig(topic=topic))
        return {name: _settings(json.decode(each.body, TopicConfig, "topic")) for name, each in answers.items()}

    async def of_broker(self, broker: str) -> dict[str, TopicSettings]:
        """All topics of a broker, by name."""
        found: dict[str, TopicConfig] = {}
        version: DataVersion | None = None
        while True:
            header = GetAllTopicConfig(
                topic_seq=len(found),
                data_version=json.encode(version).decode() if version is not None else None,
                max_topic_num=PAGE_SIZE,
            )
            answer = await self._cluster.ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG, header)
            page = json.decode(answer.body, TopicTable, "topics of a broker")
            if version is not None and page.data_version != version:
                found.clear()  # it changed meanwhile, and the broker begins anew
            version = page.data_version
            known = len(found)
            found |= page.topic_config_table
            total = decode(AllTopicConfigResponse, answer.fields).total_topic_num
            if total is None or len(found) >= total or not page.topic_config_table:
                return {name: _settings(config) for name, config in sorted(found.items())}
            if len(found) == known:
                raise ProtocolError(
                    f"topics of broker {broker}: it says that there are {total}, and gives the same {known} again"
                )

    async def route(self, topic: str) -> TopicRoute:
        """Raises RouteNotFound."""
        data = (await self._cluster.instance.routes.fetch(topic)).data
        queues = [
            TopicQueues(each.broker_name, each.read_queue_nums, each.write_queue_nums, each.perm)
            for each in data.queue_datas
        ]
        order = data.order_topic_conf if isinstance(data.order_topic_conf, str) else None
        return TopicRoute([addresses(each) for each in data.broker_datas], queues, order)

    async def stats(self, topic: str) -> TopicStats:
        """What is in the topic's queues, those that can only be written or read included."""
        masters = await self._cluster.masters_of(topic)
        answers = await self._cluster.ask_all(masters, RequestCode.GET_TOPIC_STATS_INFO, GetTopicStats(topic=topic))
        tables = [json.decode(each.body, TopicStatsTable, "topic stats") for each in answers.values()]
        queues = {
            MessageQueue.parse(key): QueueBounds(each.min_offset, each.max_offset, each.last_update_timestamp or None)
            for table in tables
            for key, each in table.offset_table.items()
        }
        return TopicStats(dict(sorted(queues.items())), sum(table.topic_put_tps for table in tables))

    async def groups(self, topic: str) -> list[str]:
        """Groups that consume the topic now, or have offsets in it."""
        masters = await self._cluster.masters_of(topic)
        header = GetGroupsOfTopic(topic=topic)
        answers = await self._cluster.ask_all(masters, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        return sorted({name for each in answers.values() for name in json.decode(each.body, GroupList, "groups").group_list})


_OF_UNITS: dict[str, tuple[RequestCode, type[Header]]] = {
    "unit": (RequestCode.GET_UNIT_TOPIC_LIST, GetUnitTopics),
    "unit subscription": (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, GetUnitSubTopics),
    "unit subscription only": (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, GetUnitSubWithoutUnitTopics),
}


def addresses(data: BrokerData | BrokerMemberGroup) -> BrokerAddresses:
    """Raises ProtocolError for a broker id that isn't a number."""
    try:
        by_id = {int(key): each for key, each in data.broker_addrs.items()}
    except ValueError as error:
        raise ProtocolError(f"ids of brokers named {data.broker_name!r}: {error}") from None
    return BrokerAddresses(data.broker_name, data.cluster, by_id)


def _settings(config: TopicConfig) -> TopicSettings:
    return TopicSettings(
        config.topic_name,
        config.read_queue_nums,
        config.write_queue_nums,
        config.perm,
        config.order,
        dict(config.attributes),
        config.topic_sys_flag,
    )
