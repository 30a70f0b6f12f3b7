"""Messages as clients see them, and the two body layouts that carry them (MessageDecoder.java; spec 4.1, 7.5).

Stored record (V1): size, magic, body CRC, queue id, flag (i32 each), queue offset, position (i64), sysFlag (i32), born
timestamp (i64), born host, store timestamp (i64), store host, reconsume times (i32), prepared transaction offset (i64),
body (i32 length), topic (i8 length; i16 in V2), properties (i16 length). Decoding is the core's.
Client batch: for each message size, magic 0, CRC 0, flag (i32 each), body (i32 length), properties (i16 length).
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from rockmq.base import address
from rockmq.base.errors import ProtocolError
from rockmq.protocol import ids, properties
from rockmq.protocol.codec import decode_records
from rockmq.protocol.compression import decompress
from rockmq.protocol.flags import MessageFlag

INNER = MessageFlag.NEED_UNWRAP | MessageFlag.INNER_BATCH
"""The flags of a record that is a whole batch; its messages have the queue offsets from the record's on."""
_MAGIC, _MAGIC_V2 = 0xDAA320A7, 0xDAA320AB
_TOPIC_V1_MAX = 127
_BATCH_HEAD = struct.Struct(">iiiii").pack
_LENGTH = struct.Struct(">h").pack
_BEFORE_BODY = 72
"""Bytes of a stored record before its body, less its two hosts."""


@dataclass(slots=True)
class Message:
    """A message to send. `keys` are indexed words, `tag` is what consumers filter by, `properties` are the user's own.

    With a `delay_level` consumers get it later: after what the broker's `messageDelayLevel` says, by default 1 s for level 1
    up to 2 h for level 18, which higher ones are too. 0 is no delay.
    """

    topic: str
    body: bytes
    tag: str | None = None
    keys: Sequence[str] | str = ()
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    delay_level: int = 0

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


class StoredMessage(msgspec.Struct, kw_only=True):
    """A message that a broker stored (MessageExt.java). Times are milliseconds since the epoch; `position` is its
    physical offset in the commit log of the broker at `store_host`; the body is decompressed."""

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
    def born_address(self) -> str:
        return address.join(*address.from_bytes(self.born_host))


def decode_stored(data: bytes, broker_name: str = "", *, check_crc: bool = False) -> list[StoredMessage]:
    """The messages in a pull response's body, those of inner batches each by itself. Raises ProtocolError."""
    try:
        records = decode_records(data)
    except ValueError as error:
        raise ProtocolError(f"stored messages: {error}") from None
    messages: list[StoredMessage] = []
    for record in records:
        (size, crc, queue_id, flag, queue_offset, position, sys_flag, born_timestamp, born_host, store_timestamp) = record[
            :10
        ]
        store_host, reconsume_times, prepared, body, topic, text = record[10:]
        if check_crc and zlib.crc32(body) & 0x7FFF_FFFF != crc:
            raise ProtocolError(f"body of the message at position {position} fails its CRC")
        parts = [(flag, decompress(sys_flag, body), text)]
        if sys_flag & INNER == INNER:
            parts = decode_batch(parts[0][1])
        messages += [
            StoredMessage(
                topic=topic,
                broker_name=broker_name,
                queue_id=queue_id,
                queue_offset=queue_offset + number,
                position=position,
                body=body,
                properties=properties.decode(text),
                flag=flag,
                sys_flag=sys_flag,
                born_timestamp=born_timestamp,
                born_host=born_host,
                store_timestamp=store_timestamp,
                store_host=store_host,
                reconsume_times=reconsume_times,
                prepared_transaction_offset=prepared,
                size=size,
            )
            for number, (flag, body, text) in enumerate(parts)
        ]
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
            messages = decode_batch(decompress(sys_flag, body))
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


def encode_batch(messages: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """A batch body from (flag, body, properties text) of each message."""
    parts: list[bytes] = []
    for flag, body, text in messages:
        parts += (_BATCH_HEAD(22 + len(body) + len(text), 0, 0, flag, len(body)), body, _LENGTH(len(text)), text)
    return b"".join(parts)


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
