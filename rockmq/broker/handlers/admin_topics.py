"""What administrators do with topics (AdminBrokerProcessor.java; protocol spec, 5)."""

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from msgspec import structs

from rockmq.base.errors import ConfigError
from rockmq.broker import quotas
from rockmq.broker.clients import ClientTables
from rockmq.broker.long_polling import LongPolling
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.pop import Pops
from rockmq.broker.stats import BrokerStats
from rockmq.broker.topics import QUEUES_MAX, TopicTable
from rockmq.broker.traffic import Traffic
from rockmq.config.broker import Identity
from rockmq.protocol import codec, json, pop, properties, topics
from rockmq.protocol.bodies.admin import GroupList, TopicConfigs
from rockmq.protocol.bodies.common import DataVersion, MessageQueue, TopicConfig
from rockmq.protocol.bodies.route import TopicList
from rockmq.protocol.bodies.route import TopicTable as TopicTableBody
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.headers.admin import (
    AllTopicConfigResponse,
    CleanUnusedTopics,
    CreateTopic,
    CreateTopics,
    DeleteTopic,
    GetAllTopicConfig,
    GetBrokersSystemTopics,
    GetGroupsOfTopic,
    GetTopicConfig,
    GetTopicStats,
)
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal
from rockmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

T = TypeVar("T")

PAGE_MAX = 2000
"""Topics, or groups, in one answer to a client that asks for pages (splitMetadataSize); older ones get all, if a frame holds
them."""

QUOTA_END = 10**9
_ATTRIBUTES: dict[str, frozenset[str] | None] = {
    "message.type": frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}),
    "queue.type": frozenset({"SimpleCQ", "BatchCQ"}),
    "cleanup.policy": frozenset({"DELETE"}),
    "reserve.time": None,
    quotas.ATTRIBUTE: None,
}
"""Attributes a topic may have, with the values that are built (TopicAttributes.java), and our own."""


class TopicAdminHandlers:
    def __init__(
        self,
        identity: Identity,
        topic_table: TopicTable,
        offsets: ConsumerOffsets,
        clients: ClientTables,
        store: MessageStore,
        long_polling: LongPolling,
        pops: Pops,
        stats: BrokerStats,
        traffic: Traffic,
    ) -> None:
        self._identity = identity
        self._topics = topic_table
        self._offsets = offsets
        self._clients = clients
        self._store = store
        self._long_polling = long_polling
        self._pops = pops
        self._stats = stats
        self._traffic = traffic

    async def create_topic(self, header: CreateTopic, request: Command, connection: Connection) -> Answer:
        wanted = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
        )
        changes = [part.strip() for part in (header.attributes or "").split(",")]
        await self._put([self._checked(wanted, changes)])
        return codec.reply(request)

    async def create_topics(self, header: CreateTopics, request: Command, connection: Connection) -> Answer:
        """All of them, or none if one can't be."""
        wanted = json.decode(request.body, TopicConfigs, "topics").topic_config_list
        await self._put([self._checked(each, _changes(each.attributes)) for each in wanted])
        return codec.reply(request)

    def _checked(self, wanted: TopicConfig, changes: Iterable[str]) -> TopicConfig:
        """The topic as it will be with these changes of its attributes. Raises Refusal."""
        name = wanted.topic_name
        fault = topics.topic_fault(name)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if topics.is_system(name) or name in (self._identity.broker_name, self._identity.broker_cluster_name):
            remark = f"the topic {name} belongs to the system and can't be changed"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        for key, value in (("readQueueNums", wanted.read_queue_nums), ("writeQueueNums", wanted.write_queue_nums)):
            if not 0 <= value <= QUEUES_MAX:
                raise Refusal(ResponseCode.INVALID_PARAMETER, f"{key} is {value}, the bounds are 0 and {QUEUES_MAX}")
        if not 0 <= wanted.perm <= 15:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"perm is {wanted.perm}, the bounds are 0 and 15")
        if wanted.topic_filter_type not in ("SINGLE_TAG", "MULTI_TAG"):
            remark = f"topicFilterType {wanted.topic_filter_type!r} is neither SINGLE_TAG nor MULTI_TAG"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        held = self._topics.get(name)
        config = structs.replace(wanted, attributes=_changed_attributes(held.attributes if held else {}, changes))
        if held is not None and config.has_batch_queues != held.has_batch_queues:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"queue.type of the topic {name} can't be changed")
        return config

    async def _put(self, configs: list[TopicConfig]) -> None:
        saving: list[Awaitable[None]] = []
        try:
            for config in configs:
                saved = self._topics.put(config)
                if saved is not None:
                    saving.append(saved)
        except ConfigError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        finally:
            await asyncio.gather(*saving)

    async def delete_topic(self, header: DeleteTopic, request: Command, connection: Connection) -> Answer:
        fault = topics.topic_fault(header.topic)
        if fault is not None and self._topics.get(header.topic) is None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if topics.is_system(header.topic):
            remark = f"the topic {header.topic} belongs to the system and can't be deleted"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        # Messages that groups have popped and will get again are in topics of their own.
        groups = self._offsets.groups(header.topic)
        retries = [pop.retry_topic(header.topic, group) for group in groups]
        for topic in (header.topic, *(retry for retry in retries if self._topics.get(retry) is not None)):
            await self._delete(topic)
        self._stats.forget_topic(header.topic, groups)
        return codec.reply(request)

    async def _delete(self, topic: str) -> None:
        saved = self._topics.delete(topic)
        # The queues go with what watches them: if the topic is made anew, nothing would wake whoever waits for this one.
        self._long_polling.answer_topic(topic)
        self._offsets.delete_topic(topic)
        self._pops.forget_topic(topic)
        self._traffic.forget_topic(topic)
        await self._store.delete_queues(topic)
        if saved is not None:
            await saved

    def all_topics(self, header: GetAllTopicConfig, request: Command, connection: Connection) -> Command:
        table, version = self._topics.all(), self._topics.version
        page = page_of(table, version, header.topic_seq, header.data_version, header.max_topic_num)
        body = json.encode(TopicTableBody(topic_config_table=page, data_version=version))
        return codec.reply(request, header=AllTopicConfigResponse(len(table)), body=body)

    def topic(self, header: GetTopicConfig, request: Command, connection: Connection) -> Command:
        return codec.reply(request, body=json.encode(self._existing(header.topic)))

    def topic_stats(self, header: GetTopicStats, request: Command, connection: Connection) -> Command:
        config = self._existing(header.topic)
        table = {}
        for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
            low, high = self._store.bounds(header.topic, queue_id)
            updated = self._store.store_timestamp(header.topic, queue_id, high - 1) if high > low else 0
            queue = MessageQueue(header.topic, self._identity.broker_name, queue_id)
            table[queue.key()] = {"lastUpdateTimestamp": max(updated, 0), "maxOffset": high, "minOffset": low}
        tps = self._stats.per_second("TOPIC_PUT_NUMS", header.topic)
        return codec.reply(request, body=b'{"offsetTable":' + json.object_map(table) + b',"topicPutTps":%f}' % tps)

    def groups_of_topic(self, header: GetGroupsOfTopic, request: Command, connection: Connection) -> Command:
        """Those whose members subscribe to it, and those that have offsets in it."""
        online = (name for name, group in self._clients.consumers.items() if header.topic in group.subscriptions)
        groups = sorted({*online, *self._offsets.groups(header.topic)})
        return codec.reply(request, body=json.encode(GroupList(group_list=groups)))

    def system_topics(self, header: GetBrokersSystemTopics, request: Command, connection: Connection) -> Command:
        identity = self._identity
        cluster = identity.broker_cluster_name
        own = {cluster, identity.broker_name, topics.reply_topic(cluster), topics.REVIVE_PREFIX + cluster, topics.TIMER}
        return codec.reply(request, body=json.encode(TopicList(topic_list=sorted(topics.SYSTEM | own))))

    async def clean_unused(self, header: CleanUnusedTopics, request: Command, connection: Connection) -> Answer:
        """Delete queues that no topic has any more (DefaultMessageStore.cleanUnusedTopic)."""
        for topic in sorted({topic for topic, _, _, _ in self._store.core.queues()}):
            if self._topics.get(topic) is None and not topics.is_system(topic) and not topics.is_light(topic):
                log.info("the queues of %s are deleted: there is no such topic", topic)
                await self._store.delete_queues(topic)
        return codec.reply(request)

    def _existing(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config


def page_of(
    table: dict[str, T], version: DataVersion, begin: int | None, asked: str | None, count_max: int | None
) -> dict[str, T]:
    """The rows that a client asked for; all for one that doesn't say where its page begins. A table that changed since its
    last page, which it knows by the version, is told from the beginning."""
    if begin is None:
        return table
    known = json.decode(asked.encode(), DataVersion, "dataVersion") if asked else None
    begin = max(begin, 0) if known == version else 0
    size = min(max(count_max or PAGE_MAX, 0), PAGE_MAX)
    return dict(islice(table.items(), begin, begin + size))


def _changes(attributes: Mapping[str, str]) -> Iterator[str]:
    """Attributes as a map has them, by keys with their signs."""
    return (f"{key}={value}" if value else key for key, value in attributes.items())


def _changed_attributes(held: Mapping[str, str], changes: Iterable[str]) -> dict[str, str]:
    """`+key=value` sets, `-key` removes (AttributeParser.java). Raises Refusal."""
    attributes = dict(held)
    for change in filter(None, changes):
        sign, (key, _, value) = change[0], change[1:].partition("=")
        if sign not in "+-" or key not in _ATTRIBUTES or (sign == "+") != bool(value):
            known = ", ".join(_ATTRIBUTES)
            remark = f"attribute {change!r} is not understood: expected +key=value or -key with key one of {known}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if sign == "-":
            attributes.pop(key, None)
            continue
        values = _ATTRIBUTES[key]
        if values is not None and value not in values:
            remark = f"{key}={value} is not built; values are {', '.join(sorted(values))}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if key == quotas.ATTRIBUTE and not 0 < (properties.number(value) or 0) < QUOTA_END:
            remark = f"{key}={value[:40]}: expected messages a second, 1 to {QUOTA_END - 1}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        attributes[key] = value
    return attributes
