"""A TCP proxy that keeps the frames it forwards."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from tests.support import frames

# Linux routes all of 127/8 to itself: a server on .1 that advertises .2 is reached through the proxy only.
PROXY_HOST = "127.0.0.2"
SERVER_HOST = "127.0.0.1"


@dataclass
class Recorded:
    """A frame with where it travelled; `phase` is what the capture script was doing when the connection came."""

    frame: frames.Frame
    phase: str
    server: str
    connection: int
    from_server: bool


@dataclass
class Recorder:
    phase: str = ""
    recorded: list[Recorded] = field(default_factory=list)
    _connections: int = 0

    @asynccontextmanager
    async def proxy(self, server: str, port: int) -> AsyncIterator[None]:
        """Forward PROXY_HOST:port to SERVER_HOST:port; `server` names what is there."""

        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._connections += 1
            connection, phase = self._connections, self.phase
            try:
                upstream_reader, upstream_writer = await asyncio.open_connection(SERVER_HOST, port)
            except OSError:
                writer.close()
                return
            async with asyncio.TaskGroup() as both:
                both.create_task(self._forward(reader, upstream_writer, phase, server, connection, from_server=False))
                both.create_task(self._forward(upstream_reader, writer, phase, server, connection, from_server=True))

        listening = await asyncio.start_server(accepted, PROXY_HOST, port)
        try:
            yield
        finally:
            listening.close()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        phase: str,
        server: str,
        connection: int,
        *,
        from_server: bool,
    ) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(4)
                data = head + await reader.readexactly(struct.unpack(">I", head)[0])
                self.recorded.append(Recorded(frames.read(data), phase, server, connection, from_server))
                writer.write(data)
                await writer.drain()
        writer.close()
