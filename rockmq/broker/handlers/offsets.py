"""Offsets of queues and of groups (ConsumerManageProcessor.java, AdminBrokerProcessor.java; protocol spec, 4.3 and 4.5)."""

from rockmq.broker.groups import GroupTable
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.topics import TopicTable
from rockmq.protocol import codec
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
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
from rockmq.remoting.dispatch import Refusal
from rockmq.store.message_store import MessageStore


class OffsetHandlers:
    def __init__(self, offsets: ConsumerOffsets, topics: TopicTable, groups: GroupTable, store: MessageStore) -> None:
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._store = store

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
        if header.queue_id < 0:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"queueId {header.queue_id} is below 0")
        self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
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
