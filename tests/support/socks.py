"""A SOCKS5 proxy as a peer of tests: it carries bytes, asks for passwords, resolves names of its own, or refuses."""

import asyncio
import contextlib
import ipaddress
import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Self

SUCCEEDED = 0


class SocksServer:
    """Listens on the loopback address for the length of an `async with`.

    With `users` it wants one of these and its password; with `refusal` it answers each request with that error. `hosts` are
    names that it knows beside IP addresses.
    """

    def __init__(
        self, *, users: Mapping[str, str] | None = None, hosts: Mapping[str, str] | None = None, refusal: int = SUCCEEDED
    ) -> None:
        self._users, self._hosts, self._refusal = users, hosts or {}, refusal
        self._tasks: set[asyncio.Task[None]] = set()
        self.asked: list[str] = []
        """The addresses it was asked for, as `host:port`."""
        self.address = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._handshake(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _handshake(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        wanted = 0 if self._users is None else 2
        writer.write(bytes([5, wanted if wanted in methods else 0xFF]))
        if wanted not in methods or (self._users is not None and not await self._known(reader, writer)):
            return
        host, port = await self._address(reader)
        self.asked.append(f"{host}:{port}")
        if self._refusal:
            writer.write(bytes([5, self._refusal, 0, 1]) + bytes(6))
            return
        far_reader, far_writer = await asyncio.open_connection(self._hosts.get(host, host), port)
        try:
            writer.write(bytes([5, SUCCEEDED, 0, 3, 4]) + b"here" + bytes(2))
            await asyncio.gather(_carry(reader, far_writer), _carry(far_reader, writer))
        finally:
            far_writer.close()

    async def _known(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        assert self._users is not None
        await reader.readexactly(1)
        name = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        password = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        good = self._users.get(name) == password
        writer.write(bytes([1, not good]))
        return good

    async def _address(self, reader: asyncio.StreamReader) -> tuple[str, int]:
        *_, kind = await reader.readexactly(4)
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode("idna")
        else:
            host = str(ipaddress.ip_address(await reader.readexactly(4 if kind == 1 else 16)))
        (port,) = struct.unpack(">H", await reader.readexactly(2))
        return host, port


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()
