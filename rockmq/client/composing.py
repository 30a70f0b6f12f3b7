"""The requests in which messages travel, checked and encoded (DefaultMQProducerImpl.sendKernelImpl, Validators.java;
clients' spec, 2.1 and 2.3)."""

from rockmq.base.errors import InvalidMessage, ProtocolError
from rockmq.client.accumulator import Kind
from rockmq.client.batching import Part
from rockmq.client.instance import Instance
from rockmq.client.options import ProducerOptions
from rockmq.client.queues import Choice
from rockmq.client.sending import WIRE, Retries, Sender, Sending
from rockmq.protocol import properties as names
from rockmq.protocol import topics
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.compression import compress
from rockmq.protocol.flags import TransactionState
from rockmq.protocol.header import encode
from rockmq.protocol.headers.send import SendMessageV2
from rockmq.protocol.message import Message, encode_batch

COMPRESSION_LEVEL = 5
TEMPLATE_QUEUES = 4
REPLY = "reply"
"""The message type of a reply, which brokers push to who asked."""
DELAYS = (names.DELAY, *names.TIMER_WISHES)
"""Properties that put a delivery off."""
_SYS_FLAG, _BORN, _FLAG, _PROPERTIES = (WIRE[name] for name in ("sys_flag", "born_timestamp", "flag", "properties"))
_RECONSUME_TIMES, _MAX_RECONSUME_TIMES, _BATCH = WIRE["reconsume_times"], WIRE["max_reconsume_times"], WIRE["batch"]


class Composer:
    """Makes the sendings of one producer. Raises InvalidMessage for what no broker would take."""

    def __init__(self, instance: Instance, group: str, options: ProducerOptions) -> None:
        self._instance = instance
        self._group = group
        self._options = options
        self._headers: dict[str, dict[str, str]] = {}

    def sending(
        self,
        sender: Sender,
        message: Message,
        choose: Choice,
        key: str | None,
        deadline: float,
        retries: Retries,
        *,
        in_transaction: bool = False,
    ) -> Sending:
        """One message."""
        self.check(message)
        body = message.body
        fields = self._header(message.topic)
        carried, msg_id = self._properties(message, key)
        if topics.is_retry(message.topic):
            # The broker wants these in the header, not among the properties.
            if (times := carried.pop(names.RECONSUME_TIME, None)) is not None:
                fields[_RECONSUME_TIMES] = times
            if (most := carried.pop(names.MAX_RECONSUME_TIMES, None)) is not None:
                fields[_MAX_RECONSUME_TIMES] = most
        if (kind := self._options.compression) is not None and self.compresses(body):
            smaller = compress(kind, body, COMPRESSION_LEVEL)
            if len(smaller) < len(body):
                body = smaller
                fields[_SYS_FLAG] = str(int(kind.flags))
        if in_transaction:
            carried |= {names.TRAN_MSG: "true", names.PGROUP: self._group}
            fields[_SYS_FLAG] = str(int(fields[_SYS_FLAG]) | TransactionState.PREPARED)
        if message.flag:
            fields[_FLAG] = str(message.flag)
        fields[_PROPERTIES] = _text(carried).decode()
        code = RequestCode.SEND_REPLY_MESSAGE_V2 if carried.get(names.MSG_TYPE) == REPLY else RequestCode.SEND_MESSAGE_V2
        return Sending(sender, code, message.topic, fields, body, msg_id, choose, deadline, retries)

    def check(self, message: Message) -> None:
        """Raises InvalidMessage unless topic and body can be sent."""
        self._template(message.topic)
        body = message.body
        if not isinstance(body, bytes):
            raise InvalidMessage(f"the body must be bytes, not {type(body).__name__}")
        if not body:
            raise InvalidMessage("the body is empty")
        if len(body) > self._options.message_size_max:
            raise InvalidMessage(f"the body has {len(body)} bytes, the bound is {self._options.message_size_max}")

    def compresses(self, body: bytes) -> bool:
        """Whether it is tried to make the body smaller."""
        return self._options.compression is not None and len(body) >= self._options.compress_from

    def part(self, message: Message, key: str | None) -> Part:
        """A message that was checked as a part of a batch."""
        carried, msg_id = self._properties(message, key)
        return Part(msg_id, message.flag, message.body, _text(carried))

    def part_of(self, kind: Kind, message: Message, key: str | None) -> Part:
        """A message as a part of a batch of that kind. Raises InvalidMessage when it can't be one."""
        if message.topic != kind.topic:
            raise InvalidMessage(f"a batch goes to one topic, not to {kind.topic!r} and {message.topic!r}")
        if topics.is_retry(message.topic):
            raise InvalidMessage("a batch can't go to a retry topic")
        if message.delay_level:
            raise InvalidMessage(f"a message in a batch can't have the property {names.DELAY}")
        for name in DELAYS:
            if name in message.properties:
                raise InvalidMessage(f"a message in a batch can't have the property {name}")
        if message.properties.get(names.WAIT) != kind.wait:
            raise InvalidMessage(f"messages of a batch must agree on the property {names.WAIT}")
        self.check(message)
        return self.part(message, key)

    def batch(
        self, sender: Sender, kind: Kind, parts: list[Part], choose: Choice, deadline: float, retries: Retries
    ) -> Sending:
        """Several messages of one kind."""
        fields = self._header(kind.topic)
        fields[_BATCH] = "true"
        shared = {names.WAIT: kind.wait, names.TAGS: kind.tag}
        fields[_PROPERTIES] = _text({name: value for name, value in shared.items() if value is not None}).decode()
        body = encode_batch((part.flag, part.body, part.properties) for part in parts)
        msg_ids = ",".join(part.msg_id for part in parts)
        return Sending(sender, RequestCode.SEND_BATCH_MESSAGE, kind.topic, fields, body, msg_ids, choose, deadline, retries)

    def _header(self, topic: str) -> dict[str, str]:
        """The fields of a send to the topic that is born now."""
        fields = self._template(topic).copy()
        fields[_BORN] = str(self._instance.clock.now_ms())
        return fields

    def _template(self, topic: str) -> dict[str, str]:
        found = self._headers.get(topic)
        if found is None:
            fault = topics.topic_fault(topic)
            if fault is None and topic in topics.SEND_FORBIDDEN:
                fault = f"{topic} is the broker's own topic"
            if fault is not None:
                raise InvalidMessage(fault)
            header = SendMessageV2(
                producer_group=self._group,
                topic=topic,
                default_topic=topics.TEMPLATE,
                default_topic_queue_nums=TEMPLATE_QUEUES,
                queue_id=0,
                sys_flag=0,
                born_timestamp=0,
                flag=0,
                properties="",
                reconsume_times=0,
                unit_mode=False,
                batch=False,
                bname="",
            )
            found = self._headers[topic] = encode(header)
        return found

    def _properties(self, message: Message, key: str | None) -> tuple[dict[str, str], str]:
        """What travels with the message, and its unique id, which is among it."""
        if not 0 <= message.delay_level < 2**31:
            raise InvalidMessage(f"delay_level is {message.delay_level}: expected 0, for no delay, or more")
        carried = message.all_properties()
        if key is not None:
            carried[names.SHARDING_KEY] = key
        msg_id = carried.get(names.UNIQ_KEY)
        if msg_id is None:
            msg_id = carried[names.UNIQ_KEY] = self._instance.unique_ids.make()
        if carried.get(names.TRAN_MSG) == "true":
            raise InvalidMessage("TRAN_MSG is for transactions, which TransactionProducer.send_in_transaction sends")
        return carried, msg_id


def _text(carried: dict[str, str]) -> bytes:
    try:
        return names.encode(carried)
    except ProtocolError as error:
        raise InvalidMessage(str(error)) from None
