"""A web server for figures and health checks: GET and HEAD of a few pages, a connection each.

Bounds: a request has at most `REQUEST_BYTES_MAX` bytes, and it and its answer take at most `REQUEST_SECONDS`; over
`CONNECTIONS_MAX` connections new ones are closed.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple

from rockmq.base import address
from rockmq.base.errors import ConfigError
from rockmq.base.tasks import Tasks

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8 << 10
REQUEST_SECONDS = 15.0
CONNECTIONS_MAX = 32


class Answer(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: Sequence[bytes]


Page = Callable[[str], Awaitable[Answer]]
"""Takes what the request accepts."""


def text(status: HTTPStatus, words: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", [f"{words}\n".encode()])


class HttpServer:
    """Gives out `pages`, by path, from `start` to `close`.

    With `any_port` another port is taken when the wanted one isn't free; else `start` raises ConfigError then.
    """

    def __init__(self, host: str, port: int, pages: Mapping[str, Page], *, any_port: bool) -> None:
        self._host = host
        self._port = port
        self._pages = pages
        self._any_port = any_port
        self._tasks = Tasks()
        self._server: asyncio.Server | None = None
        self._open = 0

    async def start(self) -> None:
        try:
            self._server = await self._listening(self._port)
        except OSError as error:
            where, reason = address.join(self._host, self._port), os.strerror(error.errno) if error.errno else str(error)
            if not self._any_port:
                raise ConfigError(f"can't listen on {where} for metrics: {reason}") from None
            try:
                self._server = await self._listening(0)
            except OSError:
                raise ConfigError(f"can't listen on {self._host} for metrics: {reason}") from None
            log.info("metrics are at port %d: %s can't be had: %s", self.port, where, reason)

    async def _listening(self, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._accepted, self._host, port, limit=REQUEST_BYTES_MAX)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def address(self) -> str:
        return address.join(self._host, self.port)

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._open += 1
        self._tasks.start(self._serve(reader, writer), "web request")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                await self._exchange(reader, writer)
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            log.debug("a web request came to nothing: %s", error)
        finally:
            self._open -= 1
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method = "GET"
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, path, accept = _parsed(head)
            answer = await self._answer(method, path, accept)
        except asyncio.LimitOverrunError:
            answer = text(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"over {REQUEST_BYTES_MAX} bytes")
        except ValueError as error:
            answer = text(HTTPStatus.BAD_REQUEST, str(error))
        status, content_type, body = answer
        size = sum(map(len, body))
        writer.write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\nContent-Length: {size}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        for piece in body if method != "HEAD" else ():
            writer.write(piece)
            await writer.drain()

    async def _answer(self, method: str, path: str, accept: str) -> Answer:
        if method not in ("GET", "HEAD"):
            return text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD")
        page = self._pages.get(path)
        if page is None:
            return text(HTTPStatus.NOT_FOUND, "there are: " + " ".join(self._pages))
        try:
            return await page(accept)
        except Exception as error:  # the edge where every error becomes an answer
            log.error("the page %s failed", path, exc_info=error)
            return text(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        """Take no more requests, and end those under way."""
        if self._server is not None:
            self._server.close()
        await self._tasks.close()
        if self._server is not None:
            await self._server.wait_closed()


def _parsed(head: str) -> tuple[str, str, str]:
    """(method, path without its query, what is accepted). Raises ValueError."""
    first, *lines = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise ValueError("not a request of HTTP/1")
    fields = (line.partition(":") for line in lines)
    accept = ",".join(value.strip() for name, _, value in fields if name.lower() == "accept")
    return words[0], words[1].partition("?")[0], accept
