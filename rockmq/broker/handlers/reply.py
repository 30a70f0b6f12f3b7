"""Replies to requests (ReplyMessageProcessor.java; protocol spec, 4.1 and 4.8): pushed to the client that asked, by its
connection as a producer, and stored in the reply topic as well."""

from rockmq.base import address
from rockmq.base.clock import Clock
from rockmq.base.errors import ConnectionLost, ProtocolError, RequestTimeout
from rockmq.broker.clients import ClientTables
from rockmq.broker.drafts import Draft, DraftWriter
from rockmq.broker.durability import TIMEOUT_REMARK, DurabilityGate
from rockmq.broker.replies import after
from rockmq.broker.topics import TopicTable
from rockmq.broker.traffic import kind_of
from rockmq.config.broker import BrokerOptions
from rockmq.protocol import codec, ids, properties, topics
from rockmq.protocol.bodies.common import TopicConfig
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.flags import Permission
from rockmq.protocol.headers.send import PushReply, SendMessage, SendResponse
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal
from rockmq.store.message_store import MessageStore

PUSH_SECONDS = 10.0


class ReplyHandler:
    """Answers SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2: with success when who asked has the reply."""

    def __init__(
        self,
        options: BrokerOptions,
        clock: Clock,
        topic_table: TopicTable,
        clients: ClientTables,
        store: MessageStore,
        gate: DurabilityGate,
        writer: DraftWriter,
    ) -> None:
        self._stores = options.topics.store_reply_message_enable
        self._size_max = options.store.max_message_size
        self._clock = clock
        self._topics = topic_table
        self._clients = clients
        self._store_host = store.store_host
        self._gate = gate
        self._writer = writer
        self._extra = {
            properties.MSG_REGION: options.identity.region_id,
            properties.TRACE_ON: "true" if options.identity.trace_on else "false",
        }

    async def __call__(self, header: SendMessage, request: Command, connection: Connection) -> Answer:
        config = self._check(header, request)
        queue_id = max(header.queue_id, 0)
        found = properties.decode((header.properties or "").encode())
        fault = await self._push(header, request, connection, found)
        code = ResponseCode.SUCCESS if fault is None else ResponseCode.SYSTEM_ERROR
        # Apache's Go client replies with nothing in it (CreateReplyMessage in 2.1.2), and the log takes nothing empty.
        if not self._stores or not request.body or queue_id >= config.write_queue_nums:
            told = SendResponse(msg_id="0", queue_id=queue_id, queue_offset=0)  # clients can't do without
            return codec.reply(request, code, fault, told, extra=self._extra)
        try:
            put = self._writer.put(
                Draft(
                    topic=header.topic,
                    queue_id=queue_id,
                    body=request.body,
                    properties=found,
                    born_host=connection.peer_host,
                    born_timestamp=header.born_timestamp,
                    flag=header.flag,
                    sys_flag=header.sys_flag,
                    reconsume_times=header.reconsume_times or 0,
                ),
                kind_of(found),
            )
        except ProtocolError as error:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        stored = SendResponse(
            msg_id=ids.offset_id(self._store_host, put.position),
            queue_id=queue_id,
            queue_offset=put.queue_offset,
            transaction_id=found.get(properties.UNIQ_KEY),
        )

        def answer(durable: bool) -> Command:
            late = fault is None and not durable
            return codec.reply(
                request,
                ResponseCode.FLUSH_DISK_TIMEOUT if late else code,
                TIMEOUT_REMARK if late else fault,
                stored,
                extra=self._extra,
            )

        return await after(self._gate, put.end, answer)

    def _check(self, header: SendMessage, request: Command) -> TopicConfig:
        if header.topic in topics.SEND_FORBIDDEN or header.topic.startswith(topics.REVIVE_PREFIX):
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic {header.topic} takes no messages from clients")
        config = self._topics.get(header.topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please!")
        if not config.perm & Permission.WRITE:
            raise Refusal(ResponseCode.NO_PERMISSION, f"the topic {header.topic} is not writable (perm {config.perm})")
        if len(request.body) > self._size_max:
            remark = f"the body is {len(request.body)} bytes, maxMessageSize is {self._size_max}"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        return config

    async def _push(
        self, header: SendMessage, request: Command, connection: Connection, found: dict[str, str]
    ) -> str | None:
        """Give the reply to who asked; why that failed."""
        client_id = found.get(properties.REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{properties.REPLY_TO_CLIENT}] is null"
        asker = self._clients.producer(client_id)
        if asker is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now = self._clock.now_ms()
        found[properties.PUSH_REPLY_TIME] = str(now)
        push = PushReply(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=properties.encode(found).decode(),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode or False,
            born_host=connection.peer,
            store_host=address.join(*address.from_bytes(self._store_host)),
            store_timestamp=now,
        )
        pushed = codec.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, push, request.body)
        try:
            answer = await asker.invoke(pushed, PUSH_SECONDS)
        except (ConnectionLost, RequestTimeout) as error:
            return f"push reply message to {client_id} fail: {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id} fail: {answer.remark}"
        return None
