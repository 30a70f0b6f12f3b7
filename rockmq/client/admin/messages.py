"""Messages by id and by key (MQAdminImpl.java)."""

import asyncio
from datetime import datetime

from rockmq.base import address
from rockmq.base.errors import ClientError, ProtocolError, ResponseError
from rockmq.client.admin.cluster import Cluster
from rockmq.protocol import ids
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.query import QueryMessage, ViewMessage
from rockmq.protocol.message import StoredMessage, decode_stored

QUERY_TIMEOUT = 18.0
"""Looking into an index may mean reading it from disk (6 s, thrice, in Apache's tools)."""
FOREVER_MS = 2**63 - 1


class MessageAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def by_offset_id(self, message_id: str, topic: str | None = None) -> StoredMessage:
        """The message with the id that its broker gave it, which tells the broker's address. Raises ClientError for what is
        no such id, ResponseError when the broker has no message there."""
        try:
            ip, port, position = ids.parse_offset_id(message_id)
        except ProtocolError as error:
            raise ClientError(str(error)) from None
        header = ViewMessage(topic=topic, offset=position)
        to = address.join(ip, port)
        answer = await self._cluster.instance.ask(to, RequestCode.VIEW_MESSAGE_BY_ID, header)
        (message,) = decode_stored(answer.body)
        return message

    async def by_key(
        self,
        topic: str,
        key: str,
        max_messages: int = 64,
        *,
        begin: datetime | None = None,
        end: datetime | None = None,
    ) -> list[StoredMessage]:
        """Messages with that key, the oldest first, of all brokers; at most so many of each."""
        found = await self._query(topic, key, max_messages, begin, end, unique=False)
        return [message for message in found if key in message.keys]

    async def by_unique_key(self, topic: str, message_id: str) -> list[StoredMessage]:
        """Messages with the id that their producer gave them: one, or more when a send was repeated."""
        found = await self._query(topic, message_id, 32, None, None, unique=True)
        return [message for message in found if message.msg_id == message_id]

    async def _query(
        self, topic: str, key: str, max_messages: int, begin: datetime | None, end: datetime | None, *, unique: bool
    ) -> list[StoredMessage]:
        header = QueryMessage(
            topic=topic,
            key=key,
            max_num=max_messages,
            begin_timestamp=0 if begin is None else int(begin.timestamp() * 1000),
            end_timestamp=FOREVER_MS if end is None else int(end.timestamp() * 1000),
            unique_key_query="true" if unique else "false",
        )
        masters = await self._cluster.masters_of(topic)
        parts = await asyncio.gather(*(self._ask(name, to, header) for name, to in masters.items()))
        # Brokers look up hashes: what they find may be of another topic or key.
        found = [message for part in parts for message in part if message.topic == topic]
        return sorted(found, key=lambda message: (message.store_timestamp, message.position))

    async def _ask(self, broker_name: str, to: str, header: QueryMessage) -> list[StoredMessage]:
        try:
            answer = await self._cluster.instance.ask(to, RequestCode.QUERY_MESSAGE, header, timeout=QUERY_TIMEOUT)
        except ResponseError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return []
        return decode_stored(answer.body, broker_name)
