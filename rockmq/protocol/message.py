"""Messages as clients see them, and the two body layouts that carry them (MessageDecoder.java; spec 4.1, 7.5).

Stored record (V1): size, magic, body CRC, queue id, flag (i32 each), queue offset, position (i64), sysFlag (i32), born
timestamp (i64), born host, store timestamp (i64), store host, reconsume times (i32), prepared transaction offset (i64),
body (i32 length), topic (i8 length; i16 in V2), properties (i16 length). Decoding is the core's.
Client batch: for each message size, magic 0, CRC 0, flag (i32 each), body (i32 length), properties (i16 length).
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Self

import msgspec
from msgspec.structs import replace

from rockmq.base import address
from rockmq.base.errors import InvalidMessage, ProtocolError
from rockmq.protocol import ids, properties, topics
from rockmq.protocol.codec import decode_messages, decode_records
from rockmq.protocol.compression import decompress
from rockmq.protocol.flags import MessageFlag

INNER = MessageFlag.NEED_UNWRAP | MessageFlag.INNER_BATCH
"""The flags of a record that is a whole batch; its messages have the queue offsets from the record's on."""
_MAGIC, _MAGIC_V2 = 0xDAA320A7, 0xDAA320AB
_TOPIC_V1_MAX = 127
_BEFORE_BODY = 72
"""Bytes of a stored record before its body, less its two hosts."""


class Message(msgspec.Struct):
    """A message to send. `keys` are indexed words, `tag` is what consumers filter by, `properties` are the user's own.

    With a `delay_level` consumers get it later: after what the broker's `messageDelayLevel` says, by default 1 s for level 1
    up to 2 h for level 18, which higher ones are too. 0 is no delay.
    """

    topic: str
    body: bytes
    tag: str | None = None
    keys: Sequence[str] | str = ()
    properties: dict[str, str] = {}  # each message has its own, made by msgspec
    flag: int = 0
    delay_level: int = 0

    @classmethod
    def json(
        cls,
        topic: str,
        value: object,
        *,
        tag: str | None = None,
        keys: Sequence[str] | str = (),
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
    ) -> "Message":
        """A message whose body is an object as JSON: a dataclass, a `msgspec.Struct`, a dict, whatever msgspec knows.

        Consumers get it back by `decode`. Raises InvalidMessage for what can't be JSON.
        """
        try:
            body = msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidMessage(f"{type(value).__name__} can't be sent as JSON: {error}") from error
        return cls(topic, body, tag, keys, dict(properties or {}), delay_level=delay_level)

    def also_in(self, *light_queues: str) -> Self:
        """This message, which is then in these light queues, too (INNER_MULTI_DISPATCH, LmqDispatch.java):
        `Message("chat", b"...").also_in("alice", "bob")`. `Client.light_queues` says where they are read.

        Its broker must have them (`enableLmq`, `enableMultiDispatch`); nobody has to create one. They are in addition to
        those of an earlier call. Raises InvalidMessage for a name that none can have.
        """
        named = [topics.light_queue(name) for name in light_queues]
        for queue in named:
            fault = topics.light_queue_fault(queue)
            if fault is not None:
                raise InvalidMessage(f"light queue: {fault}")
        held = self.properties.get(properties.INNER_MULTI_DISPATCH, "").split(",")
        # One that comes twice would count twice in Apache's broker.
        named = list(dict.fromkeys([*filter(None, held), *named]))
        if named:
            self.properties = self.properties | {properties.INNER_MULTI_DISPATCH: ",".join(named)}
        return self

    def all_properties(self) -> dict[str, str]:
        """The user's properties with tag, keys and delay level as the properties they travel in."""
        found = dict(self.properties)
        if self.tag:
            found[properties.TAGS] = self.tag
        if self.keys:
            found[properties.KEYS] = self.keys if isinstance(self.keys, str) else " ".join(self.keys)
        if self.delay_level:
            found[properties.DELAY] = str(self.delay_level)
        return found


class StoredMessage(msgspec.Struct, gc=False):
    """A message that a broker stored (MessageExt.java). Times are milliseconds since the epoch; `position` is its
    physical offset in the commit log of the broker at `store_host`; the body is decompressed, or, if there is a `fault`
    that names the message and says why it can't be, as it was stored."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    position: int
    body: bytes
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    size: int
    fault: str | None = None

    @property
    def msg_id(self) -> str:
        """The producer's unique id, else the offset id."""
        return self.properties.get(properties.UNIQ_KEY) or self.offset_id

    @property
    def offset_id(self) -> str:
        return ids.offset_id(self.store_host, self.position)

    @property
    def tag(self) -> str | None:
        return self.properties.get(properties.TAGS)

    @property
    def keys(self) -> list[str]:
        return self.properties.get(properties.KEYS, "").split()

    @property
    def light_queues(self) -> dict[str, int]:
        """The light queues that the message is in, by their names without prefix, and its offset in each."""
        queues = self.properties.get(properties.INNER_MULTI_DISPATCH, "").rstrip(",").split(",")
        offsets = self.properties.get(properties.INNER_MULTI_QUEUE_OFFSET, "").rstrip(",").split(",")
        if len(queues) != len(offsets):
            return {}
        return {
            queue.removeprefix(topics.LIGHT_PREFIX): int(offset)
            for queue, offset in zip(queues, offsets, strict=True)
            if topics.is_light(queue) and offset.isdecimal() and offset.isascii() and len(offset) < 20
        }

    @property
    def born_address(self) -> str:
        return address.join(*address.from_bytes(self.born_host))


def decode_stored(
    data: bytes, broker_name: str = "", *, check_crc: bool = False, keep_faulty: bool = False
) -> list[StoredMessage]:
    """The messages in a pull response's body, those of inner batches each by itself. Raises ProtocolError.

    With `keep_faulty` messages whose bodies can't be decompressed are among them, with their `fault`.
    """
    try:
        messages, flags = decode_messages(data, broker_name, StoredMessage, check_crc)
    except ValueError as error:
        raise ProtocolError(f"stored messages: {error}") from None
    if not flags & (MessageFlag.COMPRESSED | INNER):
        return messages
    return [each for message in messages for each in _unpacked(message, keep_faulty)]


def _unpacked(message: StoredMessage, keep_faulty: bool) -> list[StoredMessage]:
    """A message with its body decompressed, or those of an inner batch."""
    try:
        body = decompress(message.sys_flag, message.body)
        if message.sys_flag & INNER != INNER:
            message.body = body
            return [message]
        return [
            replace(message, flag=flag, body=body, properties=properties.decode(text), queue_offset=offset)
            for offset, (flag, body, text) in enumerate(_inner(body, message.properties), message.queue_offset)
        ]
    except ProtocolError as error:
        where = f"offset {message.queue_offset} of queue {message.queue_id} of {message.topic}"
        message.fault = f"message {message.msg_id} ({where}): {error}"
        if not keep_faulty:
            raise ProtocolError(message.fault) from error
        return [message]


def _inner(body: bytes, carried: Mapping[str, str]) -> list[tuple[int, bytes, bytes]]:
    """The messages of an inner batch, as `decode_batch`. Raises ProtocolError also when there are more than the record
    counts: their offsets are those of others, and a consumer would wait for offsets to rise."""
    messages = decode_batch(body)
    said = carried.get(properties.INNER_NUM, "")
    if said.isascii() and said.isdigit() and len(said) < 6 and len(messages) > int(said):
        raise ProtocolError(f"batch: there are {len(messages)} messages, the property {properties.INNER_NUM} says {said}")
    return messages


def unwrap(data: bytes, *, strict: bool) -> bytes:
    """Stored records with each message of an inner batch as a record of its own (V1 or V2 as the batch), decompressed.

    A batch that can't be read raises ProtocolError when `strict`, else it stays as it is. ValueError as decode_records.
    """
    records = []
    at = 0
    for record in decode_records(data):
        size, queue_offset, sys_flag = record[0], record[4], record[6]
        stored = data[at : at + size]
        at += size
        if sys_flag & INNER != INNER:
            records.append(stored)
            continue
        body_at, body, text = _BEFORE_BODY + len(record[8]) + len(record[10]), record[13], record[15]
        topic = stored[body_at + len(body) : size - 2 - len(text)]
        try:
            messages = _inner(decompress(sys_flag, body), properties.decode(text))
        except ProtocolError as error:
            if strict:
                raise ProtocolError(f"inner batch at offset {queue_offset}: {error}") from None
            records.append(stored)
            continue
        plain = sys_flag & ~(INNER | MessageFlag.COMPRESSED | MessageFlag.COMPRESSION_TYPE)
        for number, (flag, body, text) in enumerate(messages):
            records += [
                struct.pack(">i", body_at + len(body) + len(topic) + 2 + len(text)),
                stored[4:8],
                struct.pack(">i", zlib.crc32(body) & 0x7FFF_FFFF),
                stored[12:16],
                struct.pack(">iq", flag, queue_offset + number),
                stored[28:36],
                struct.pack(">i", plain),
                stored[40 : body_at - 4],
                struct.pack(">i", len(body)),
                body,
                topic,
                struct.pack(">h", len(text)),
                text,
            ]
    return b"".join(records)


def readdressed(record: bytes, topic: str, queue_id: int) -> bytes:
    """A stored record with another topic and queue id and all else as it is. ValueError as decode_records."""
    (found,) = decode_records(record)
    body_end = _BEFORE_BODY + len(found[8]) + len(found[10]) + len(found[13])
    name, text = topic.encode(), found[15]
    is_long = len(name) > _TOPIC_V1_MAX
    head = struct.pack(">I", _MAGIC_V2 if is_long else _MAGIC) + record[8:12] + struct.pack(">i", queue_id)
    length = struct.pack(">h" if is_long else ">b", len(name))
    rest = head + record[16:body_end] + length + name + struct.pack(">h", len(text)) + text
    return struct.pack(">i", 4 + len(rest)) + rest


def decode_batch(data: bytes) -> list[tuple[int, bytes, bytes]]:
    """(flag, body, properties text) of each message in a batch body. Raises ProtocolError naming the bad field."""
    messages: list[tuple[int, bytes, bytes]] = []
    at = 0
    while at < len(data):
        if len(data) - at < 20:
            raise ProtocolError(f"batch: message {len(messages)} is cut off in its head")
        size, _magic, _crc, flag, body_size = struct.unpack_from(">iiiii", data, at)
        body_at = at + 20
        if body_size < 0 or body_at + body_size + 2 > len(data):
            raise ProtocolError(
                f"batch: message {len(messages)} has body length {body_size}, {len(data) - body_at} bytes follow"
            )
        (text_size,) = struct.unpack_from(">h", data, body_at + body_size)
        text_at = body_at + body_size + 2
        if text_size < 0 or text_at + text_size > len(data):
            raise ProtocolError(f"batch: message {len(messages)} has properties length {text_size}")
        end = text_at + text_size
        if size != end - at:
            raise ProtocolError(f"batch: message {len(messages)} has total size {size}, its parts have {end - at}")
        messages.append((flag, data[body_at : body_at + body_size], data[text_at:end]))
        at = end
    return messages
