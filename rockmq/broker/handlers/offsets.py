"""Offsets of queues and of groups (ConsumerManageProcessor.java, AdminBrokerProcessor.java; protocol spec, 4.3 and 4.5)."""

import logging

from rockmq.broker.clients import ClientTables
from rockmq.broker.groups import GroupTable
from rockmq.broker.long_polling import LongPolling
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.topics import QUEUES_MAX, TopicTable
from rockmq.config.broker import BrokerOptions
from rockmq.protocol import codec, json
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.headers.admin import CloneGroupOffset, ResetOffset
from rockmq.protocol.headers.offset import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetResponse,
    QueryConsumerOffset,
    SearchOffset,
    TimestampResponse,
    UpdateConsumerOffset,
)
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Refusal, about
from rockmq.store.message_store import MessageStore

log = logging.getLogger(__name__)


class OffsetHandlers:
    def __init__(
        self,
        options: BrokerOptions,
        offsets: ConsumerOffsets,
        topics: TopicTable,
        groups: GroupTable,
        clients: ClientTables,
        store: MessageStore,
        long_polling: LongPolling,
    ) -> None:
        self._broker_name = options.identity.broker_name
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._store = store
        self._long_polling = long_polling

    def query(self, header: QueryConsumerOffset, request: Command, connection: Connection) -> Command:
        """Only QUERY_NOT_FOUND means "none": clients then start where they were told to (protocol spec, pitfall 11)."""
        offset = self._offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset is None and header.set_zero_if_not_found is not False:
            # On a young topic a new group begins at the beginning, whatever it was told (protocol spec, 4.5).
            low, _ = self._store.bounds(header.topic, header.queue_id)
            offset = 0 if low <= 0 else None
        if offset is None:
            raise Refusal(
                ResponseCode.QUERY_NOT_FOUND,
                f"the group {header.consumer_group} has no offset for {header.topic} queue {header.queue_id}",
            )
        return codec.reply(request, header=OffsetResponse(offset))

    def update(self, header: UpdateConsumerOffset, request: Command, connection: Connection) -> Command:
        if self._groups.find(header.consumer_group) is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"no group {header.consumer_group}")
        if self._topics.get(header.topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"no topic {header.topic}")
        if not 0 <= header.queue_id < QUEUES_MAX:
            remark = f"queueId is {header.queue_id}, the bounds are 0 and {QUEUES_MAX - 1}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if not self._offsets.is_reset(header.consumer_group, header.topic, header.queue_id):
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        return codec.reply(request)

    def reset(self, header: ResetOffset, request: Command, connection: Connection) -> Command:
        """Have a group go on elsewhere, online or not (AdminBrokerProcessor.resetOffsetInner): its next pull is answered
        with PULL_OFFSET_MOVED."""
        config = self._topics.get(header.topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if not self._groups.exists(header.group):
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.group} does not exist")
        if header.queue_id >= config.read_queue_nums:
            remark = (
                f"queueId {header.queue_id} is out of range: topic {header.topic} has {config.read_queue_nums} read queues"
            )
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        wanted = [header.queue_id] if header.queue_id >= 0 else range(config.read_queue_nums)
        offsets = {queue_id: self._reset_to(header, queue_id) for queue_id in wanted}
        table = {}
        for queue_id, offset in offsets.items():
            self._offsets.reset(header.group, header.topic, queue_id, offset)
            self._long_polling.wake(header.topic, queue_id)  # a pull that waits is to hear of it
            table[MessageQueue(header.topic, self._broker_name, queue_id).key()] = offset
        goes_on = {"group": header.group, "topic": header.topic, **about(request, connection)}
        log.info("a group goes on elsewhere: %s", offsets, extra=goes_on)
        return codec.reply(request, body=b'{"offsetTable":' + json.object_map(table) + b"}")

    def _reset_to(self, header: ResetOffset, queue_id: int) -> int:
        low, high = self._store.bounds(header.topic, queue_id)
        if header.queue_id >= 0 and header.offset is not None and header.offset != -1:
            if not low <= header.offset <= high:
                remark = f"Target offset {header.offset} not in consume queue range [{low}-{high}]"
                raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
            return header.offset
        if header.timestamp < 0:
            return high
        return self._store.offset_by_time(header.topic, queue_id, header.timestamp, upper=False)

    def clone(self, header: CloneGroupOffset, request: Command, connection: Connection) -> Command:
        """Let a group go on where another one is (AdminBrokerProcessor.cloneGroupOffset), in all its topics or in one."""
        if self._groups.find(header.dest_group) is None:
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {header.dest_group} does not exist")
        source = self._clients.consumers.get(header.src_group)
        for topic in [header.topic] if header.topic else list(self._offsets.by_group(header.src_group)):
            if self._topics.get(topic) is None:
                continue
            if not header.offline and source is not None and source.subscriptions and topic not in source.subscriptions:
                continue  # offsets of a topic that the group left
            self._offsets.clone(header.src_group, header.dest_group, topic)
        return codec.reply(request)

    def by_time(self, header: SearchOffset, request: Command, connection: Connection) -> Command:
        boundary = (header.boundary_type or "LOWER").upper()
        if boundary not in ("LOWER", "UPPER"):
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"boundaryType {boundary!r} is neither LOWER nor UPPER")
        offset = self._store.offset_by_time(header.topic, header.queue_id, header.timestamp, upper=boundary == "UPPER")
        return codec.reply(request, header=OffsetResponse(offset))

    def maximum(self, header: GetMaxOffset, request: Command, connection: Connection) -> Command:
        return codec.reply(request, header=OffsetResponse(self._store.bounds(header.topic, header.queue_id)[1]))

    def minimum(self, header: GetMinOffset, request: Command, connection: Connection) -> Command:
        return codec.reply(request, header=OffsetResponse(self._store.bounds(header.topic, header.queue_id)[0]))

    def earliest(self, header: GetEarliestStoreTime, request: Command, connection: Connection) -> Command:
        low, _ = self._store.bounds(header.topic, header.queue_id)
        stored = self._store.store_timestamp(header.topic, header.queue_id, low)
        return codec.reply(request, header=TimestampResponse(stored))
