"""Taking back a message before its time (RecallMessageProcessor.java; protocol spec, 4.1).

A message that deletes goes into the slot of the one to be deleted; when that slot is read the two meet. So the answer says
that the wish is stored, not that the message was still there.
"""

from collections.abc import Awaitable

from rockmq.base.clock import Clock
from rockmq.base.errors import ProtocolError
from rockmq.broker.drafts import Draft, DraftWriter
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.replies import after
from rockmq.broker.topics import TopicTable
from rockmq.config.broker import BrokerOptions
from rockmq.protocol import codec, properties
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.flags import Permission
from rockmq.protocol.headers.recall import RecallHandle, RecallMessage, RecallResponse
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Refusal
from rockmq.store.message_store import MessageStore

TAG = "_RECALL_TAG_"


class RecallHandler:
    """Answers RECALL_MESSAGE."""

    def __init__(
        self,
        options: BrokerOptions,
        topic_table: TopicTable,
        store: MessageStore,
        gate: DurabilityGate,
        writer: DraftWriter,
        clock: Clock,
    ) -> None:
        self._options = options
        self._topics = topic_table
        self._store = store
        self._gate = gate
        self._writer = writer
        self._clock = clock
        self._extra = {properties.MSG_REGION: options.identity.region_id}

    def __call__(self, header: RecallMessage, request: Command, connection: Connection) -> Awaitable[Answer]:
        self._check_allowed(header)
        handle = self._handle(header)
        now = self._clock.now_ms()
        with_topic = self._options.timers.append_topic_for_timer_delete_key
        found = {
            properties.TAGS: TAG,
            properties.TIMER_DEL_UNIQKEY: f"{handle.topic}+{handle.unique_key}" if with_topic else handle.unique_key,
            properties.UNIQ_KEY: handle.unique_key,
            properties.TIMER_DELIVER_MS: str(handle.timestamp),
            properties.BORN_TIMESTAMP: str(now),
        }
        if header.producer_group:
            found[properties.PGROUP] = header.producer_group
        draft = Draft(
            topic=handle.topic,
            queue_id=0,
            body=b"0",
            properties=found,
            born_host=connection.peer_host,
            born_timestamp=now,
        )
        try:
            put = self._writer.put(draft)
        except ProtocolError as error:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, str(error)) from None
        answer = RecallResponse(msg_id=handle.unique_key)
        # What isn't on disk in time is stored all the same, as for a send that is told FLUSH_DISK_TIMEOUT.
        return after(self._gate, put.end, lambda durable: codec.reply(request, header=answer, extra=self._extra))

    def _check_allowed(self, header: RecallMessage) -> None:
        timers = self._options.timers
        if not timers.recall_message_enable:
            raise Refusal(ResponseCode.NO_PERMISSION, "recall failed: it needs recallMessageEnable=true at the broker")
        refusal = self._store.refusal
        if refusal is not None:
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"recall failed: {refusal}")
        is_writable = self._options.topics.broker_permission & Permission.WRITE
        if not is_writable and not timers.allow_recall_when_broker_not_writeable:
            remark = f"recall failed: the broker {self._options.identity.broker_name} is not writable"
            raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
        if self._topics.get(header.topic) is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")

    def _handle(self, header: RecallMessage) -> RecallHandle:
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except ProtocolError as error:
            raise Refusal(ResponseCode.ILLEGAL_OPERATION, f"recall failed: {error}") from None
        own = self._options.identity.broker_name
        if handle.topic != header.topic:
            fault = f"the handle is of topic {handle.topic}, the request of {header.topic}"
        elif handle.broker_name != own:
            fault = f"the handle is of broker {handle.broker_name}, this is {own}"
        elif handle.timestamp <= self._clock.now_ms():
            fault = "the message's time has come"
        elif handle.timestamp - self._clock.now_ms() >= self._options.timers.timer_max_delay_sec * 1000:
            fault = f"the handle's time is further ahead than timerMaxDelaySec={self._options.timers.timer_max_delay_sec}"
        else:
            return handle
        raise Refusal(ResponseCode.ILLEGAL_OPERATION, f"recall failed: {fault}")
