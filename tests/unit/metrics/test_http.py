"""The web server: what it answers, and what it bears."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from rockmq.base.errors import ConfigError
from rockmq.metrics import http
from rockmq.metrics.http import Answer, HttpServer, text
from tests.support.metrics import get


async def _hello(accept: str) -> Answer:
    return text(HTTPStatus.OK, f"accepts {accept}")


async def _large(accept: str) -> Answer:
    return Answer(HTTPStatus.OK, "text/plain", [b"x" * 100_000] * 50)


async def _broken(accept: str) -> Answer:
    raise RuntimeError("no disk")


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    server = HttpServer("127.0.0.1", 0, {"/hello": _hello, "/large": _large, "/broken": _broken}, any_port=False)
    await server.start()
    try:
        yield server.address
    finally:
        await server.close()


async def exchanged(address: str, data: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(data)
    answer = await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return answer


async def test_a_page_is_given_out() -> None:
    async with serving() as address:
        status, fields, body = await get(address, "/hello?a=b", accept="text/html")
        assert (status, body) == (200, "accepts text/html\n")
        assert fields["Content-Length"] == str(len(body))
        status, fields, body = await get(address, "/hello", method="HEAD")
        assert (status, body) == (200, "")
        assert fields["Content-Length"] == str(len("accepts */*\n"))
        assert len((await get(address, "/large"))[2]) == 5_000_000


async def test_what_is_wrong_gets_its_words(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as address:
        assert (await get(address, "/nothing"))[::2] == (404, "there are: /hello /large /broken\n")
        assert (await get(address, "/hello", method="POST"))[0] == 405
        assert (await get(address, "/broken"))[::2] == (500, "RuntimeError: no disk\n")
        assert "the page /broken failed" in caplog.text
        for wrong in (b"\r\n\r\n", b"GET /hello\r\n\r\n", b"GET /hello HTTP/2\r\n\r\n", b"\x16\x03\x01\0\xa5\r\n\r\n"):
            assert (await exchanged(address, wrong)).startswith(b"HTTP/1.1 400 ")
        long = b"GET /hello HTTP/1.1\r\nX: " + b"x" * http.REQUEST_BYTES_MAX + b"\r\n\r\n"
        with contextlib.suppress(ConnectionError):  # what was sent and not read resets the connection
            assert (await exchanged(address, long)).startswith(b"HTTP/1.1 431 ")
        assert (await get(address, "/hello"))[0] == 200


async def test_who_is_slow_is_cut_off_and_too_many_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 2)
    async with serving() as address:
        host, _, port = address.rpartition(":")
        two = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
        with contextlib.suppress(ConnectionError):
            assert await exchanged(address, b"GET /hello HTTP/1.1\r\n\r\n") == b"", "two are open"
        for reader, writer in two:
            writer.write(b"GET /hello HTTP/1.1\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
        with monkeypatch.context() as patch:
            patch.setattr(http, "REQUEST_SECONDS", 0.3)
            slow = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
            for _, writer in slow:
                writer.write(b"GET /hel")
            for reader, writer in slow:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
            # One that doesn't read what it asked for.
            stuck = socket.create_connection((host, int(port)))
            stuck.sendall(b"GET /large HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0.5)
        assert (await get(address, "/hello"))[0] == 200
        stuck.close()


async def test_a_port_that_is_taken_is_told_or_replaced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with serving() as address:
        port = int(address.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"can't listen on 127.0.0.1:{port} for metrics"):
            await HttpServer("127.0.0.1", port, {}, any_port=False).start()
        other = HttpServer("127.0.0.1", port, {"/hello": _hello}, any_port=True)
        await other.start()
        try:
            assert other.port != port
            assert (await get(other.address, "/hello"))[0] == 200
        finally:
            await other.close()
        assert "metrics are at port" in caplog.text
    with pytest.raises(ConfigError, match="can't listen on"):
        await HttpServer("203.0.113.1", 0, {}, any_port=True).start()
