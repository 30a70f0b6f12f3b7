"""Messages by key and by id (QueryMessageProcessor.java; protocol spec, 4.5)."""

from rockmq.config.broker import BrokerOptions
from rockmq.protocol import codec
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.headers.query import QueryMessage, QueryMessageResponse, ViewMessage
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal
from rockmq.store.message_store import MessageStore

TAGS_INDEX = "T"
"""The index type of tags (MessageConst.java); unique keys (U) and keys (K) are one and the same in index files."""


class QueryHandlers:
    def __init__(self, options: BrokerOptions, store: MessageStore) -> None:
        self._options = options.store
        self._is_guarded = options.access.is_on
        self._store = store

    async def by_key(self, header: QueryMessage, request: Command, connection: Connection) -> Answer:
        """Messages whose key has the hash of the one that is asked for, oldest first; the client looks which are meant."""
        count = header.max_num
        is_unique = (header.unique_key_query or "").lower() == "true"
        if is_unique:
            count = self._options.default_query_max_num
        if count < 0:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"maxNum is {count}, below 0")
        found = await self._store.query(
            header.topic,
            header.key,
            min(count, self._options.max_msgs_num_batch),
            header.begin_timestamp,
            header.end_timestamp,
            is_tag=header.index_type == TAGS_INDEX and not is_unique,
        )
        records = found.records
        if self._is_guarded:  # hashes of other topics' keys may be the same
            records = [record for record in records if _topic(record) == header.topic]
        reached = QueryMessageResponse(found.indexed_timestamp, found.indexed_position)
        if not records:
            remark = "can not find message, maybe time range not correct"
            if not self._options.message_index_enable:
                remark = "messageIndexEnable=false: this broker keeps no index to find messages in"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, remark, reached)
        return codec.reply(request, header=reached, body=b"".join(records))

    def by_id(self, header: ViewMessage, request: Command, connection: Connection) -> Command:
        record = self._store.read(header.offset)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {header.offset}")
        # Whoever asks was let through for the topic that they named.
        if self._is_guarded and header.topic is not None and _topic(record) != header.topic:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the message at {header.offset} isn't one of {header.topic}")
        return codec.reply(request, body=record)


def _topic(record: bytes) -> str:
    return codec.decode_records(record)[0][14]
