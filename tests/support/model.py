"""What the native core should do, said again in plain Python: frames, headers, records, a log and its queues as lists.

Slow, small and without a file: the judge of the property tests in `tests/unit/core`.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

LANGUAGES = [
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
]
V1, V2, BLANK = -626843481, -626843477, -875286124
FOUND, NO_MATCHED, REMOVING, FOUND_NULL, OVERFLOW_BADLY, OVERFLOW_ONE, TOO_SMALL, NO_QUEUE, NO_MESSAGE = range(9)


# Frames and headers


@dataclass(frozen=True)
class Header:
    """A request or response as a peer means it."""

    code: int = 0
    language: str = "JAVA"
    version: int = 479
    opaque: int = 0
    flag: int = 0
    remark: str | None = None
    fields: dict[str, str] = field(default_factory=dict)


def frame(header: bytes, body: bytes = b"", serializer: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), serializer << 24 | len(header)) + header + body


def json_header(header: Header, *, ascii_only: bool = True, spaces: bool = False) -> bytes:
    document = {
        "code": header.code,
        "extFields": header.fields,
        "flag": header.flag,
        "language": header.language,
        "opaque": header.opaque,
        "remark": header.remark,
        "serializeTypeCurrentRPC": "JSON",
        "version": header.version,
    }
    separators = (" , ", " : ") if spaces else (",", ":")
    return json.dumps(document, ensure_ascii=ascii_only, separators=separators).encode()


def binary_header(header: Header) -> bytes:
    remark = (header.remark or "").encode()
    entries = b"".join(
        struct.pack(">h", len(key.encode())) + key.encode() + struct.pack(">i", len(value.encode())) + value.encode()
        for key, value in header.fields.items()
    )
    language = LANGUAGES.index(header.language)
    fixed = struct.pack(">hbhii", header.code, language, header.version, header.opaque, header.flag)
    return fixed + struct.pack(">i", len(remark)) + remark + struct.pack(">i", len(entries)) + entries


def encode(header: Header, body: bytes = b"", serializer: int = 0) -> bytes:
    return frame((json_header, binary_header)[serializer](header), body, serializer)


def decode(data: bytes) -> list[tuple[Header, bytes, int]]:
    """All frames of `data`: (header, body, serializer)."""
    frames = []
    while data:
        length, second = struct.unpack_from(">iI", data)
        head, body = data[8 : 8 + (second & 0xFFFFFF)], data[8 + (second & 0xFFFFFF) : 4 + length]
        frames.append(((_read_json, _read_binary)[second >> 24](head), body, second >> 24))
        data = data[4 + length :]
    return frames


def _read_json(data: bytes) -> Header:
    document = json.loads(data)
    names = ("code", "language", "version", "opaque", "flag")
    return Header(**{name: document[name] for name in names}, remark=document.get("remark"), fields=document["extFields"])


def _read_binary(data: bytes) -> Header:
    code, language, version, opaque, flag, length = struct.unpack_from(">hbhiii", data)
    remark, rest = data[17 : 17 + length].decode() or None, data[17 + length :]
    (size,) = struct.unpack_from(">i", rest)
    rest, fields = rest[4:], {}
    assert size == len(rest)
    while rest:
        (length,) = struct.unpack_from(">h", rest)
        key, rest = rest[2 : 2 + length].decode(), rest[2 + length :]
        (length,) = struct.unpack_from(">i", rest)
        fields[key], rest = rest[4 : 4 + length].decode(), rest[4 + length :]
    return Header(code, LANGUAGES[language], version, opaque, flag, remark, fields)


# Records


@dataclass(frozen=True)
class Record:
    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = bytes(8)
    store_timestamp: int = 0
    store_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    queue_offset: int = 0
    position: int = 0

    def encode(self) -> bytes:
        topic = self.topic.encode()
        flags = self.sys_flag & ~0x30 | 0x10 * (len(self.born_host) > 8) | 0x20 * (len(self.store_host) > 8)
        rest = b"".join(
            (
                struct.pack(">i", V1 if len(topic) < 128 else V2),
                struct.pack(">iii", zlib.crc32(self.body) & 0x7FFFFFFF, self.queue_id, self.flag),
                struct.pack(">qqi", self.queue_offset, self.position, flags),
                struct.pack(">q", self.born_timestamp) + self.born_host,
                struct.pack(">q", self.store_timestamp) + self.store_host,
                struct.pack(">iq", self.reconsume_times, self.prepared_transaction_offset),
                struct.pack(">i", len(self.body)) + self.body,
                struct.pack(">b" if len(topic) < 128 else ">h", len(topic)) + topic,
                struct.pack(">h", len(self.properties)) + self.properties,
            )
        )
        return struct.pack(">i", 4 + len(rest)) + rest

    @property
    def size(self) -> int:
        return len(self.encode())

    @property
    def end(self) -> int:
        return self.position + self.size

    @property
    def is_queued(self) -> bool:
        return self.sys_flag & 0xC not in (4, 12)

    @property
    def tags_code(self) -> int:
        return java_hash(parse(self.properties).get("TAGS", ""))

    @property
    def entry(self) -> bytes:
        """Its unit in the consume queue."""
        return struct.pack(">qiq", self.position, self.size, self.tags_code)


def parse(properties: bytes) -> dict[str, str]:
    """A properties text by Java's rules."""
    items = (segment.partition("\x01") for segment in properties.decode().split("\x02"))
    return {key: value for key, _, value in items if key and value}


def text(properties: dict[str, str]) -> bytes:
    return "".join(f"{key}\x01{value}\x02" for key, value in properties.items()).encode()


def java_hash(value: str) -> int:
    """String.hashCode."""
    result = 0
    units = value.encode("utf-16-be")
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        result = (31 * result + unit) & 0xFFFFFFFF
    return result - (result >> 31 << 32)


def batch(messages: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """The body of a batch of (flag, body, properties)."""
    return b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
        for flag, body, properties in messages
    )


# The store


@dataclass
class Log:
    """A commit log of files of `file_size` bytes, and the queues that follow it."""

    file_size: int
    records: list[Record] = field(default_factory=list)
    end: int = 0
    deleted_below: int = 0

    def append(self, *records: Record) -> list[Record]:
        """Append records that have to be in one file; they come back with offset and position."""
        if sum(record.size for record in records) + 8 > self.file_size - self.end % self.file_size:
            self.end += self.file_size - self.end % self.file_size
        placed = []
        for record in records:
            offset = len(self.queue(record.topic, record.queue_id)) if record.is_queued else 0
            placed.append(replace(record, queue_offset=offset, position=self.end))
            self.end = placed[-1].end
            self.records.append(placed[-1])
        return placed

    def queue(self, topic: str, queue_id: int) -> list[Record]:
        return [
            record for record in self.records if record.is_queued and (record.topic, record.queue_id) == (topic, queue_id)
        ]

    def queues(self) -> Iterator[tuple[str, int]]:
        yield from dict.fromkeys((record.topic, record.queue_id) for record in self.records if record.is_queued)

    def truncated(self, count: int) -> "Log":
        """The log with its first `count` records only."""
        records = self.records[:count]
        return Log(self.file_size, records, records[-1].end if records else 0)

    def get(
        self, topic: str, queue_id: int, offset: int, count_max: int, bytes_max: int, limit: int, tags: list[int] | None
    ) -> tuple[int, int, int, int, int, bytes]:
        """As `Store.get`, with the buffers joined."""
        queue = self.queue(topic, queue_id)
        if not queue:
            return NO_QUEUE, 0, 0, 0, 0, b""
        low = next((record.queue_offset for record in queue if record.position >= self.deleted_below), len(queue))
        high = max(low, next((record.queue_offset for record in queue if record.end > limit), len(queue)))
        if offset < low:
            return TOO_SMALL, low, low, high, 0, b""
        if offset >= high:
            return (OVERFLOW_ONE if offset == high else OVERFLOW_BADLY), high, low, high, 0, b""
        found: list[Record] = []
        index = offset
        for record in queue[offset : min(high, offset + max(800, count_max))]:
            size = sum(one.size for one in found) + record.size
            if found and (len(found) >= count_max or size > bytes_max):
                break
            index += 1
            if tags is None or record.tags_code in tags:
                found.append(record)
        status = FOUND if found else NO_MATCHED
        return status, index, low, high, len(found), b"".join(record.encode() for record in found)
