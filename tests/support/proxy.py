"""A proxy before a server that does to connections what networks and broken peers do.

async with Proxy(broker.address) as proxy:   # clients go to proxy.address
    proxy.on_reply = lambda frame: with_opaque(frame, 4711)
    proxy.bytes_left = 10                    # of what the server sends, then the connection is cut, or silent
    proxy.passing.clear()                    # nothing comes back until it is set
    proxy.cut()                              # every connection, now
"""

import asyncio
import contextlib
import json
import ssl
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rockmq.base import address
from tests.support.wire import frame


class Proxy:
    """Passes on what clients send, and what the server sends frame by frame. With `tls` clients have to speak TLS."""

    def __init__(self, target: str, *, tls: ssl.SSLContext | None = None) -> None:
        self.target = target
        self.on_reply: Callable[[bytes], bytes] | None = None
        """Takes each frame from the server and gives the bytes that go on in its place."""
        self.bytes_left: int | None = None
        self.silent = False
        """What becomes of a connection when no bytes are left: silent, else cut."""
        self.passing = asyncio.Event()
        self.passing.set()
        self.accepted = 0
        self.port = 0
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen; again on the same port after a `stop`."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections, and cut those there are."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        for serving in self._serving:
            serving.cancel()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        ways: list[asyncio.Task[None]] = []
        try:
            host, port = address.split(self.target)
            server_reader, server_writer = await asyncio.open_connection(host, port)
            self._writers.add(server_writer)
            ways = [
                asyncio.create_task(self._up(reader, server_writer)),
                asyncio.create_task(self._down(server_reader, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            pass  # the server isn't there: the client's connection ends, which is all it would see
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for each in (writer, *((server_writer,) if ways else ())):
                self._writers.discard(each)
                each.transport.abort()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(4)
                data = size + await reader.readexactly(struct.unpack(">i", size)[0])
                await self.passing.wait()
                if self.on_reply is not None:
                    data = self.on_reply(data)
                if self.bytes_left is not None:
                    data = data[: self.bytes_left]
                    self.bytes_left -= len(data)
                writer.write(data)
                await writer.drain()
                if self.bytes_left == 0:
                    self.bytes_left = None
                    if not self.silent:
                        return
                    await asyncio.Event().wait()


def with_opaque(data: bytes, opaque: int) -> bytes:
    """A JSON frame with another opaque."""
    header, body = _parts(data)
    return frame(json.dumps(json.loads(header) | {"opaque": opaque}).encode(), body)


def with_body(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """A frame with its body changed."""
    header, body = _parts(data)
    return frame(header, change(body))


def once(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Changes the first frame alone."""
    changes = iter((change,))
    return lambda data: next(changes, lambda same: same)(data)


def _parts(data: bytes) -> tuple[bytes, bytes]:
    head = struct.unpack_from(">I", data, 4)[0] & 0xFFFFFF
    return data[8 : 8 + head], data[8 + head :]
