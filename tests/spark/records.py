"""Stored records, made by hand: a judge of the decoding that shares no code with it (protocol spec, 7.5)."""

import struct
import zlib
from dataclasses import dataclass, field

MAGIC_V1 = 0xDAA320A7
DAY_MS = 24 * 3600 * 1000


@dataclass(kw_only=True)
class Record:
    """One record as a broker stores it."""

    queue_offset: int
    body: bytes = b"body"
    topic: str = "orders"
    queue_id: int = 0
    position: int = 0
    sys_flag: int = 0
    born_timestamp: int = 1_700_000_000_123
    store_timestamp: int = 1_700_000_000_456
    reconsume_times: int = 0
    properties: dict[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        text = "".join(f"{key}\x01{value}\x02" for key, value in self.properties.items()).encode()
        topic = self.topic.encode()
        host = bytes([127, 0, 0, 1])
        rest = (
            struct.pack(">IIii", MAGIC_V1, zlib.crc32(self.body) & 0x7FFFFFFF, self.queue_id, 0)
            + struct.pack(">qqiq", self.queue_offset, self.position, self.sys_flag, self.born_timestamp)
            + host
            + struct.pack(">iq", 4321, self.store_timestamp)
            + host
            + struct.pack(">iiq", 10911, self.reconsume_times, 0)
            + struct.pack(">i", len(self.body))
            + self.body
            + struct.pack(">B", len(topic))
            + topic
            + struct.pack(">h", len(text))
            + text
        )
        return struct.pack(">i", 4 + len(rest)) + rest


def encode(*records: Record) -> bytes:
    return b"".join(record.encode() for record in records)
