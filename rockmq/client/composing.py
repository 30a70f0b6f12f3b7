"""The requests in which messages travel, checked and encoded (DefaultMQProducerImpl.sendKernelImpl, Validators.java;
clients' spec, 2.1 and 2.3)."""

from collections.abc import Sequence
from typing import cast

from rockmq.base.errors import InvalidMessage, ProtocolError
from rockmq.client.accumulator import Kind
from rockmq.client.batching import Part
from rockmq.client.faults import Faults
from rockmq.client.instance import Instance
from rockmq.client.options import ProducerOptions, Retries
from rockmq.client.queues import Choice, RoundRobin
from rockmq.client.sending import WIRE, Sender, Sending
from rockmq.protocol import properties as names
from rockmq.protocol import topics
from rockmq.protocol.codec import encode_batch, encode_bodies
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.compression import compress
from rockmq.protocol.flags import TransactionState
from rockmq.protocol.header import encode
from rockmq.protocol.headers.send import SendMessageV2
from rockmq.protocol.message import Message

TEMPLATE_QUEUES = 4
REPLY = "reply"
"""The message type of a reply, which brokers push to who asked."""
DELAYS = (names.DELAY, *names.TIMER_WISHES)
"""Properties that put a delivery off."""
ALONE = (*DELAYS, names.INNER_MULTI_DISPATCH)
"""Those that no message of a batch may have."""
_ID_HEAD = names.UNIQ_KEY + names.NAME_END
_SYS_FLAG, _BORN, _FLAG, _PROPERTIES = (WIRE[name] for name in ("sys_flag", "born_timestamp", "flag", "properties"))
_RECONSUME_TIMES, _MAX_RECONSUME_TIMES, _BATCH = WIRE["reconsume_times"], WIRE["max_reconsume_times"], WIRE["batch"]


class Topic:
    """What all sends of a producer to one topic have in common: header fields, whose turn it is, the kind of its batches."""

    __slots__ = ("fields", "is_retry", "kind", "turns")

    def __init__(self, fields: dict[str, str], turns: RoundRobin, name: str) -> None:
        self.fields = fields
        self.turns = turns
        self.is_retry = topics.is_retry(name)
        self.kind = Kind(name, None, None, None)


class Composer:
    """Makes the sendings of one producer. Raises InvalidMessage for what no broker would take."""

    def __init__(self, instance: Instance, group: str, options: ProducerOptions, faults: Faults | None) -> None:
        self._instance = instance
        self._group = group
        self._options = options
        self._faults = faults
        self._topics: dict[str, Topic] = {}
        self.text_in_batch = self.text if instance.hooks is None else self._text_with_hooks
        """As `text`, with what hooks add."""

    def sending(
        self,
        sender: Sender,
        topic: Topic,
        message: Message,
        choose: Choice,
        key: str | None,
        deadline: float,
        retries: Retries,
        *,
        in_transaction: bool = False,
    ) -> Sending:
        """One message to that topic, which is its own."""
        body = self._checked(message)
        fields = topic.fields.copy()
        fields[_BORN] = str(self._instance.clock.now_ms())
        code = RequestCode.SEND_MESSAGE_V2
        if in_transaction or topic.is_retry or names.MSG_TYPE in message.properties:
            carried, msg_id = self._properties(message, key)
            # The broker wants these in the header, not among the properties.
            if topic.is_retry:
                if (times := carried.pop(names.RECONSUME_TIME, None)) is not None:
                    fields[_RECONSUME_TIMES] = times
                if (most := carried.pop(names.MAX_RECONSUME_TIMES, None)) is not None:
                    fields[_MAX_RECONSUME_TIMES] = most
            if in_transaction:
                carried |= {names.TRAN_MSG: "true", names.PGROUP: self._group}
                fields[_SYS_FLAG] = str(int(TransactionState.PREPARED))
            if carried.get(names.MSG_TYPE) == REPLY:
                code = RequestCode.SEND_REPLY_MESSAGE_V2
            text = _text(carried)
        else:
            text, msg_id = self.text(message, key)
        fields[_PROPERTIES] = text
        if (kind := self._options.compression) is not None and len(body) >= self._options.compress_from:
            smaller = compress(kind, body, self._options.compression_level)
            if len(smaller) < len(body):
                body = smaller
                fields[_SYS_FLAG] = str(int(fields[_SYS_FLAG]) | kind.flags)
        if message.flag:
            fields[_FLAG] = str(message.flag)
        return Sending(sender, code, message.topic, fields, body, msg_id, choose, deadline, retries)

    def _checked(self, message: Message) -> bytes:
        """The body, of a message that can be sent."""
        body, flag = message.body, message.flag
        if type(flag) is not int or not -(2**31) <= flag < 2**31:
            raise InvalidMessage(f"flag is {flag!r}: expected an integer of 32 bits")
        if not isinstance(body, bytes):
            raise InvalidMessage(f"the body must be bytes, not {type(body).__name__}")
        if not body:
            raise InvalidMessage("the body is empty")
        if len(body) > self._options.message_size_max:
            raise InvalidMessage(f"the body has {len(body)} bytes, the bound is {self._options.message_size_max}")
        return body

    def part_of(self, kind: Kind, message: Message, key: str | None) -> Part:
        """A message as a part of a batch of that kind. Raises InvalidMessage when it can't be one."""
        if message.topic != kind.topic:
            raise InvalidMessage(f"a batch goes to one topic, not to {kind.topic!r} and {message.topic!r}")
        if self.topic(message.topic).is_retry:
            raise InvalidMessage("a batch can't go to a retry topic")
        if message.delay_level:
            raise InvalidMessage(f"a message in a batch can't have the property {names.DELAY}")
        for name in ALONE:
            if name in message.properties:
                raise InvalidMessage(f"a message in a batch can't have the property {name}")
        if message.properties.get(names.WAIT) != kind.wait:
            raise InvalidMessage(f"messages of a batch must agree on the property {names.WAIT}")
        body = self._checked(message)
        text, msg_id = self.text_in_batch(message, key)
        return Part(msg_id, message.flag, body, text.encode())

    def batch(
        self,
        sender: Sender,
        kind: Kind,
        messages: Sequence[Part | bytes],
        choose: Choice,
        deadline: float,
        retries: Retries,
    ) -> tuple[Sending, list[str]]:
        """Several messages of one kind, and their ids. Those of which only the body is given get one."""
        count = len(messages)
        if {*map(type, messages)} == {bytes}:  # most are like that: no turn of Python's each
            body, msg_ids = encode_bodies(cast("Sequence[bytes]", messages), *self._instance.unique_ids.reserve(count))
        else:
            msg_ids = self._instance.unique_ids.take(count)
            entries: list[tuple[int, bytes, bytes | str]] = []
            for at, each in enumerate(messages):
                if isinstance(each, bytes):
                    entries.append((0, each, msg_ids[at]))
                else:
                    entries.append((each.flag, each.body, each.properties))
                    msg_ids[at] = each.msg_id
            body = encode_batch(entries)
        return self.encoded(sender, kind, body, ",".join(msg_ids), count, choose, deadline, retries), msg_ids

    def encoded(
        self,
        sender: Sender,
        kind: Kind,
        body: bytes,
        msg_ids: str,
        count: int,
        choose: Choice,
        deadline: float,
        retries: Retries,
    ) -> Sending:
        """As `batch`, of what is encoded already: so many messages."""
        fields = self.topic(kind.topic).fields.copy()
        fields[_BORN] = str(self._instance.clock.now_ms())
        fields[_BATCH] = "true"
        shared = {names.WAIT: kind.wait, names.TAGS: kind.tag}
        fields[_PROPERTIES] = _text({name: value for name, value in shared.items() if value is not None})
        code = RequestCode.SEND_BATCH_MESSAGE
        return Sending(sender, code, kind.topic, fields, body, msg_ids, choose, deadline, retries, messages=count)

    def topic(self, topic: str) -> Topic:
        """What sends to the topic have in common. Raises InvalidMessage for what is no topic to send to."""
        found = self._topics.get(topic)
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
            found = self._topics[topic] = Topic(encode(header), RoundRobin(self._faults), topic)
        return found

    def text(self, message: Message, key: str | None) -> tuple[str, str]:
        """What travels with the message in its wire text, and its unique id, which is among it."""
        if message.properties or message.keys or message.tag or message.delay_level or key is not None:
            carried, msg_id = self._properties(message, key)
            return _text(carried), msg_id
        msg_id = self._instance.unique_ids.make()
        return _ID_HEAD + msg_id + names.PAIR_END, msg_id

    def _text_with_hooks(self, message: Message, key: str | None) -> tuple[str, str]:
        text, msg_id = self.text(message, key)
        assert self._instance.hooks is not None
        carried = names.decode(text.encode())
        self._instance.hooks.batching(message.topic, carried)
        return _text(carried), msg_id

    def _properties(self, message: Message, key: str | None) -> tuple[dict[str, str], str]:
        """What travels with the message, and its unique id, which is among it."""
        if not 0 <= message.delay_level < 2**31:
            raise InvalidMessage(f"delay_level is {message.delay_level}: expected 0, for no delay, or more")
        try:
            carried = message.all_properties()
        except TypeError:
            raise InvalidMessage(f"keys are {message.keys!r}: expected texts") from None
        if key is not None:
            carried[names.SHARDING_KEY] = key
        msg_id = carried.get(names.UNIQ_KEY)
        if msg_id is None:
            msg_id = carried[names.UNIQ_KEY] = self._instance.unique_ids.make()
        if carried.get(names.TRAN_MSG) == "true":
            raise InvalidMessage("TRAN_MSG is for transactions, which TransactionProducer.send_in_transaction sends")
        return carried, msg_id


def _text(carried: dict[str, str]) -> str:
    try:
        return names.encode(carried).decode()
    except ProtocolError as error:
        raise InvalidMessage(str(error)) from None
    except TypeError:
        name, value = next(each for each in carried.items() if not isinstance(each[0], str) or not isinstance(each[1], str))
        raise InvalidMessage(f"property {name!r} is {value!r}: expected text") from None
