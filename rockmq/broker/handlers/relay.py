"""Requests that a consumer answers and the broker passes through (AdminBrokerProcessor.callConsumer, Broker2Client.java;
protocol spec, 4.8). What the consumer says goes back as it is: not all of it is standard JSON (pitfall 24)."""

import asyncio

from rockmq.auth.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from rockmq.base.errors import ConnectionLost, ProtocolError, RequestTimeout
from rockmq.broker.clients import Client, ClientTables
from rockmq.broker.groups import GroupTable
from rockmq.broker.topics import TopicTable
from rockmq.config.broker import BrokerOptions
from rockmq.protocol import codec, ids, json, topics
from rockmq.protocol.bodies.client import ConsumerStatus
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.admin import ConsumeDirectly, GetConsumerRunningInfo, GetConsumerStatus, GetGroupStatus
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Refusal
from rockmq.store.message_store import MessageStore

CALL_SECONDS = 10.0
STATUS_SECONDS = 5.0
_CREDENTIALS = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN})


class RelayHandlers:
    def __init__(
        self, options: BrokerOptions, clients: ClientTables, topic_table: TopicTable, groups: GroupTable, store: MessageStore
    ) -> None:
        self._is_guarded = options.access.is_on
        self._broker_name = options.identity.broker_name
        self._clients = clients
        self._topics = topic_table
        self._groups = groups
        self._store = store

    async def running_info(self, header: GetConsumerRunningInfo, request: Command, connection: Connection) -> Command:
        consumer = self._member(header.consumer_group, header.client_id)
        return await self._call(consumer, request, request.fields, b"")

    async def consume_directly(self, header: ConsumeDirectly, request: Command, connection: Connection) -> Command:
        """Have one consumer work on one message now; what it makes of it changes no offset."""
        consumer = self._member(header.consumer_group, header.client_id or "")
        try:
            _, _, position = ids.parse_offset_id(header.msg_id or "")
        except ProtocolError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"msgId: {error}") from None
        record = self._store.read(position)
        if record is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no message has the id {header.msg_id}")
        # Whoever asks was let through for the topic that they named, and for the group.
        if self._is_guarded and header.topic:
            theirs = (header.topic, topics.retry_topic(header.consumer_group))
            if codec.decode_records(record)[0][14] not in theirs:
                raise Refusal(ResponseCode.NO_PERMISSION, f"the message {header.msg_id} isn't one of {header.topic}")
        fields = request.fields | {"brokerName": self._broker_name}
        topic = self._topics.get(header.topic) if header.topic else None
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.find(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        return await self._call(consumer, request, fields, record)

    async def group_status(self, header: GetGroupStatus, request: Command, connection: Connection) -> Command:
        """Where the members of a group are; those that don't answer in time are left out."""
        group = self._clients.consumers.get(header.group)
        members = [] if group is None else list(group.members.values())
        if not members:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]")
        wanted = [each for each in members if not header.client_addr or each.client_id == header.client_addr]
        answers = await asyncio.gather(*(self._status(each, header) for each in wanted))
        parts = (json.encode(each.client_id) + b":" + table for each, table in zip(wanted, answers, strict=True) if table)
        return codec.reply(request, body=b'{"consumerTable":{' + b",".join(parts) + b"}}")

    async def _status(self, member: Client, header: GetGroupStatus) -> bytes | None:
        asked = codec.request(
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus(topic=header.topic, group=header.group)
        )
        try:
            answer = await member.connection.invoke(asked, STATUS_SECONDS)
            if answer.code != ResponseCode.SUCCESS or not answer.body:
                return None
            return json.object_map(json.decode(answer.body, ConsumerStatus, "consumer status").message_queue_table)
        except (ConnectionLost, RequestTimeout, ProtocolError):
            return None

    def _member(self, name: str, client_id: str) -> Client:
        group = self._clients.consumers.get(name)
        found = group.find(client_id) if group is not None else None
        if found is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"The Consumer <{name}> <{client_id}> not online")
        return found

    async def _call(self, consumer: Client, request: Command, fields: dict[str, str], body: bytes) -> Command:
        # A consumer could send what was signed as another request.
        fields = {name: value for name, value in fields.items() if name not in _CREDENTIALS}
        asked = Command(request.code, 0, fields=fields, body=body)
        try:
            answer = await consumer.connection.invoke(asked, CALL_SECONDS)
        except RequestTimeout as error:
            raise Refusal(
                ResponseCode.CONSUME_MSG_TIMEOUT, f"the consumer <{consumer.client_id}> is late: {error}"
            ) from None
        except ConnectionLost as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"the consumer <{consumer.client_id}> has left: {error}") from None
        return codec.reply(request, answer.code, answer.remark, body=answer.body, extra=answer.fields)
