"""Frames made by hand, also such as no client would send."""

import asyncio
import json
import struct
from collections.abc import Mapping

from rockmq.base import address


def frame(
    header: bytes, body: bytes = b"", *, serializer: int = 0, length: int | None = None, head: int | None = None
) -> bytes:
    """A frame of raw header bytes; `length` and `head` replace the true frame and header lengths."""
    size = 4 + len(header) + len(body) if length is None else length
    return struct.pack(">iI", size, serializer << 24 | (len(header) if head is None else head) & 0xFFFFFF) + header + body


def request(
    code: int, fields: Mapping[str, object] | None = None, body: bytes = b"", *, opaque: int = 1, flag: int = 0
) -> bytes:
    """A well-formed JSON request; fields may hold anything JSON can say."""
    header = {"code": code, "language": "JAVA", "version": 479, "opaque": opaque, "flag": flag, "extFields": fields or {}}
    return frame(json.dumps(header).encode(), body)


def send_fields(topic: str = "T", **changes: object) -> dict[str, object]:
    """Fields of SEND_MESSAGE_V2; a change to None leaves the field out."""
    fields: dict[str, object] = {
        "a": "group",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "UNIQ_KEY\x010A0000010000000000000000000000AA\x02",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    fields.update(changes)
    return {key: value for key, value in fields.items() if value is not None}


class RawClient:
    """A socket without a client library behind it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, to: str) -> "RawClient":
        host, port = address.split(to)
        return cls(*await asyncio.open_connection(host, port))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def response(self) -> tuple[dict[str, object], bytes]:
        """(header, body) of the next frame; IncompleteReadError when the other end closed."""
        async with asyncio.timeout(30):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            data = await self.reader.readexactly(size)
        head = struct.unpack(">I", data[:4])[0] & 0xFFFFFF
        return json.loads(data[4 : 4 + head]), data[4 + head :]

    async def ask(self, data: bytes) -> dict[str, object]:
        await self.send(data)
        header, _ = await self.response()
        return header

    async def closed(self) -> bool:
        """Whether the other end closes without another byte."""
        try:
            async with asyncio.timeout(30):
                return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.writer.close()
