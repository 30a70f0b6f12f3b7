"""What administrators ask for (AdminBrokerProcessor.java; protocol spec, 5): topics, groups, statistics, runtime figures."""

from itertools import islice

from rockmq.base.errors import ConfigError
from rockmq.broker import quotas
from rockmq.broker.delays import Delays
from rockmq.broker.groups import GroupTable
from rockmq.broker.long_polling import LongPolling
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.pop import Pops
from rockmq.broker.runtime_info import RuntimeInfo
from rockmq.broker.topics import QUEUES_MAX, TopicTable
from rockmq.config import properties
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import dump
from rockmq.protocol import codec, json, pop, topics
from rockmq.protocol.bodies.common import DataVersion, GroupConfig, KVTable, MessageQueue, TopicConfig
from rockmq.protocol.bodies.route import TopicTable as TopicTableBody
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.headers.admin import (
    AllTopicConfigResponse,
    CreateTopic,
    DeleteTopic,
    GetAllDelayOffset,
    GetAllTopicConfig,
    GetBrokerConfig,
    GetBrokerRuntimeInfo,
    GetConsumeStats,
    GetTopicConfig,
    GetTopicStats,
    UpdateGroup,
)
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal
from rockmq.store.message_store import MessageStore

PAGE_MAX = 2000
"""Topics in one answer to a client that asks for pages (splitMetadataSize); older ones get all, if a frame holds them."""

QUOTA_END = 10**9
_ATTRIBUTES: dict[str, frozenset[str] | None] = {
    "message.type": frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}),
    "queue.type": frozenset({"SimpleCQ", "BatchCQ"}),
    "cleanup.policy": frozenset({"DELETE"}),
    "reserve.time": None,
    quotas.ATTRIBUTE: None,
}
"""Attributes a topic may have, with the values that are built (TopicAttributes.java), and our own."""


class AdminHandlers:
    def __init__(
        self,
        options: BrokerOptions,
        topic_table: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        store: MessageStore,
        long_polling: LongPolling,
        pops: Pops,
        runtime: RuntimeInfo,
        delays: Delays,
    ) -> None:
        self._options = options
        self._topics = topic_table
        self._groups = groups
        self._offsets = offsets
        self._store = store
        self._long_polling = long_polling
        self._pops = pops
        self._runtime = runtime
        self._delays = delays

    async def create_topic(self, header: CreateTopic, request: Command, connection: Connection) -> Answer:
        fault = topics.topic_fault(header.topic)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        identity = self._options.identity
        own = (identity.broker_name, identity.broker_cluster_name)
        if topics.is_system(header.topic) or header.topic in own:
            remark = f"the topic {header.topic} belongs to the system and can't be changed"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        for name, value in (("readQueueNums", header.read_queue_nums), ("writeQueueNums", header.write_queue_nums)):
            if not 0 <= value <= QUEUES_MAX:
                raise Refusal(ResponseCode.INVALID_PARAMETER, f"{name} is {value}, the bounds are 0 and {QUEUES_MAX}")
        if not 0 <= header.perm <= 15:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"perm is {header.perm}, the bounds are 0 and 15")
        if header.topic_filter_type not in ("SINGLE_TAG", "MULTI_TAG"):
            remark = f"topicFilterType {header.topic_filter_type!r} is neither SINGLE_TAG nor MULTI_TAG"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        held = self._topics.get(header.topic)
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=_changed_attributes(held.attributes if held else {}, header.attributes or ""),
        )
        if held is not None and config.has_batch_queues != held.has_batch_queues:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"queue.type of the topic {header.topic} can't be changed")
        try:
            saved = self._topics.put(config)
        except ConfigError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if saved is not None:
            await saved
        return codec.reply(request)

    async def update_group(self, header: UpdateGroup, request: Command, connection: Connection) -> Answer:
        config = json.decode(request.body, GroupConfig, "settings of a group")
        fault = topics.group_fault(config.group_name)
        if fault is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if not 0 <= config.retry_queue_nums <= QUEUES_MAX:
            remark = f"retryQueueNums is {config.retry_queue_nums}, the bounds are 0 and {QUEUES_MAX}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if config.attributes:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "attributes of groups aren't built")
        held = self._groups.all().get(config.group_name)
        if held is not None:
            config.attributes = held.attributes
        await self._groups.put(config)
        return codec.reply(request)

    async def delete_topic(self, header: DeleteTopic, request: Command, connection: Connection) -> Answer:
        fault = topics.topic_fault(header.topic)
        if fault is not None and self._topics.get(header.topic) is None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, fault)
        if topics.is_system(header.topic):
            remark = f"the topic {header.topic} belongs to the system and can't be deleted"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        # Messages that groups have popped and will get again are in topics of their own.
        retries = [pop.retry_topic(header.topic, group) for group in self._offsets.groups(header.topic)]
        for topic in (header.topic, *(retry for retry in retries if self._topics.get(retry) is not None)):
            await self._delete(topic)
        return codec.reply(request)

    async def _delete(self, topic: str) -> None:
        saved = self._topics.delete(topic)
        # The queues go with what watches them: if the topic is made anew, nothing would wake whoever waits for this one.
        self._long_polling.answer_topic(topic)
        self._offsets.delete_topic(topic)
        self._pops.forget_topic(topic)
        await self._store.delete_queues(topic)
        if saved is not None:
            await saved

    def all_topics(self, header: GetAllTopicConfig, request: Command, connection: Connection) -> Command:
        table, version = self._topics.all(), self._topics.version
        if header.topic_seq is None:
            page = table
        else:
            # A table that changed since the last page is told from its beginning.
            asked = json.decode(header.data_version.encode(), DataVersion, "dataVersion") if header.data_version else None
            begin = max(header.topic_seq, 0) if asked == version else 0
            size = min(max(header.max_topic_num or PAGE_MAX, 0), PAGE_MAX)
            page = dict(islice(table.items(), begin, begin + size))
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
            queue = MessageQueue(header.topic, self._options.identity.broker_name, queue_id)
            table[queue.key()] = {"lastUpdateTimestamp": max(updated, 0), "maxOffset": high, "minOffset": low}
        return codec.reply(request, body=b'{"offsetTable":' + json.object_map(table) + b',"topicPutTps":0}')

    def consume_stats(self, header: GetConsumeStats, request: Command, connection: Connection) -> Command:
        name = self._options.identity.broker_name
        wanted = [each for each in (header.topic_list or "").split(";") if each] or ([header.topic] if header.topic else [])
        table = {}
        for topic, queues in self._offsets.by_group(header.consumer_group).items():
            config = self._topics.get(topic)
            if config is None or (wanted and topic not in wanted):
                continue
            for queue_id in range(config.read_queue_nums):
                low, high = self._store.bounds(topic, queue_id)
                consumed = max(queues.get(queue_id, -1), 0)
                stored = self._store.store_timestamp(topic, queue_id, consumed - 1) if consumed > low else 0
                table[MessageQueue(topic, name, queue_id).key()] = {
                    "brokerOffset": high,
                    "consumerOffset": consumed,
                    "lastTimestamp": max(stored, 0),
                    "pullOffset": consumed,
                }
        return codec.reply(request, body=b'{"consumeTps":0,"offsetTable":' + json.object_map(table) + b"}")

    def all_delay_offsets(self, header: GetAllDelayOffset, request: Command, connection: Connection) -> Command:
        return codec.reply(request, body=b"".join(self._delays.pieces()))

    def runtime_info(self, header: GetBrokerRuntimeInfo, request: Command, connection: Connection) -> Command:
        return codec.reply(request, body=json.encode(KVTable(table=self._runtime.table())))

    def config(self, header: GetBrokerConfig, request: Command, connection: Connection) -> Command:
        return codec.reply(request, body=properties.write(dump(self._options)).encode())

    def _existing(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config


def _changed_attributes(held: dict[str, str], changes: str) -> dict[str, str]:
    """`+key=value` sets, `-key` removes, apart by commas (AttributeParser.java). Raises Refusal."""
    attributes = dict(held)
    for change in filter(None, (part.strip() for part in changes.split(","))):
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
        if key == quotas.ATTRIBUTE and not (value.isascii() and value.isdigit() and 0 < int(value) < QUOTA_END):
            remark = f"{key}={value[:40]}: expected messages a second, 1 to {QUOTA_END - 1}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        attributes[key] = value
    return attributes
