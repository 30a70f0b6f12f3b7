"""Messages by id and by key (MQAdminImpl.java)."""

import asyncio
from collections.abc import Set
from datetime import datetime
from typing import Literal

from rockmq.base.errors import ProtocolError, ResponseError
from rockmq.client.admin.cluster import Cluster, place_of
from rockmq.client.admin.groups import GroupAdmin, GroupConnections
from rockmq.client.admin.topics import TopicAdmin
from rockmq.filter import TAG, tags
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.admin import ResumeChecks
from rockmq.protocol.headers.query import QueryMessage, ViewMessage
from rockmq.protocol.message import StoredMessage

QUERY_TIMEOUT = 18.0
"""Looking into an index may mean reading it from disk (6 s, thrice, in Apache's tools)."""
FOREVER_MS = 2**63 - 1
Consumption = Literal["consumed", "filtered", "not yet", "pulled", "broadcast", "not online"]
"""What a group has made of a message (TrackType.java). A group that pulls by hand, or gets all as a broadcast, has no offset
that would tell; of one that has no member now nobody knows how it would be subscribed."""


class MessageAdmin:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def by_offset_id(self, message_id: str, topic: str | None = None) -> StoredMessage:
        """The message with the id that its broker gave it, which tells the broker's address. Raises ClientError for what is
        no such id, ResponseError when the broker has no message there."""
        to, position = place_of(message_id)
        header = ViewMessage(topic=topic, offset=position)
        answer = await self._cluster.instance.ask(to, RequestCode.VIEW_MESSAGE_BY_ID, header)
        messages = self._cluster.instance.stored(answer.body, "")
        if len(messages) != 1:
            raise ProtocolError(f"{to} has {len(messages)} messages with the id {message_id}, expected one")
        return messages[0]

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

    async def resume_checks(self, message_id: str) -> None:
        """Have the broker ask again what came of a transaction, though it has asked as often as it may. `message_id` is the
        id that the broker gave the half message. Raises ClientError for what is no such id, ResponseError for what was
        committed or rolled back, or is too old (`fileReservedTime`)."""
        to, _ = place_of(message_id)
        await self._cluster.instance.ask(to, RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeChecks(msg_id=message_id))

    async def consumption(self, message: StoredMessage) -> dict[str, Consumption]:
        """What became of a message, at each group that consumes its topic or has offsets in it."""
        stored_at, _ = place_of(message.offset_id)
        here = {name for name, master in (await self._cluster.masters()).items() if master == stored_at}
        groups = await TopicAdmin(self._cluster).groups(message.topic)
        states = await asyncio.gather(*(self._at(group, message, here) for group in groups))
        return dict(zip(groups, states, strict=True))

    async def _at(self, group: str, message: StoredMessage, here: Set[str]) -> Consumption:
        """At one group; `here` is who has the message."""
        groups = GroupAdmin(self._cluster)
        try:
            members = await groups.connections(group)
        except ResponseError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            return "not online"
        if members.message_model == "BROADCASTING":
            return "broadcast"
        if members.consume_type == "CONSUME_ACTIVELY":
            return "pulled"
        for queue, progress in (await groups.progress(group, message.topic)).queues.items():
            is_its = queue.queue_id == message.queue_id and queue.broker_name in here
            if is_its and progress.consumer_offset > message.queue_offset:
                return "consumed" if _wanted(members, message) else "filtered"
        return "not yet"

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
        return self._cluster.instance.stored(answer.body, broker_name)


def _wanted(members: GroupConnections, message: StoredMessage) -> bool:
    """Whether the group's subscription, if it is one to tags, names the message's."""
    subscription = members.subscriptions.get(message.topic)
    if subscription is None or subscription.kind != TAG:
        return True
    wanted = tags.split(subscription.expression)
    return not wanted or message.tag in wanted
