"""Name servers: their addresses, which one is asked, and what is said when none answers."""

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from rockmq import embedded
from rockmq.base.errors import ConfigError, ConnectError, RouteNotFound
from rockmq.client import Client, Message, namesrv, rebalance
from rockmq.client.namesrv import is_url, parse
from tests.support.process import free_port
from tests.support.proxy import Proxy
from tests.unit.client.fakes import FakeBroker, FakeNames


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("127.0.0.1:9876", ["127.0.0.1:9876"]),
        ("a:1;b:2", ["a:1", "b:2"]),
        ("a:1,b:2;a:1", ["a:1", "b:2"]),
        ("mq://host:1;host2", ["host:1", "host2:9876"]),
        ("mq://localhost/", ["localhost:9876"]),
        (["a:1", "mq://b"], ["a:1", "b:9876"]),
        ("[::1]:9876", ["[::1]:9876"]),
        ("[::1]", ["[::1]:9876"]),
        ("http://instance.example:80", ["instance.example:80"]),
        ("http://jmenv.example:8080/rocketmq/nsaddr", ["http://jmenv.example:8080/rocketmq/nsaddr"]),
    ],
)
def test_forms(given: str | list[str], expected: list[str]) -> None:
    assert parse(given) == expected


@pytest.mark.parametrize("given", ["", "mq://", [], "a:b", "a:70000", ["http://a:1/list", "b:1"], "http://[bad"])
def test_nonsense(given: str | list[str]) -> None:
    with pytest.raises(ConfigError):
        parse(given)


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "x:1;y:2")
    assert parse(None) == ["x:1", "y:2"]
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ConfigError, match="NAMESRV_ADDR"):
        parse(None)


# Which one is asked


@pytest.fixture
async def second(names: FakeNames, broker: FakeBroker) -> AsyncIterator[FakeNames]:
    fake = FakeNames()
    fake.routes = names.routes
    await fake.start()
    yield fake
    await fake.stop()


async def test_one_is_kept_while_it_answers_and_left_when_it_is_lost(
    names: FakeNames, second: FakeNames, broker: FakeBroker
) -> None:
    async with Client([names.address, second.address]) as mq:
        for _ in range(5):
            await mq.queues("T")
        (used,) = [each for each in (names, second) if each.asked]
        assert len(used.asked) == 5
        await used.stop()
        for _ in range(5):
            await mq.queues("T")
        assert len(names.asked + second.asked) == 10
        await used.start()
        await mq.queues("T")
        assert len(used.asked) == 5, "the one that answers is kept"


async def test_a_silent_one_does_not_take_all_the_time(names: FakeNames, broker: FakeBroker) -> None:
    async with Proxy(names.address) as silent:
        silent.passing.clear()
        async with Client([silent.address, names.address]) as mq:
            mq._instance.names._index = 0  # which one is first is drawn by lot
            assert await mq.queues("T")
            assert mq._instance.names.current == names.address


async def test_all_that_were_asked_are_told_with_their_answers(names: FakeNames) -> None:
    gone = f"127.0.0.1:{free_port()}"
    nowhere = "no-such-host.invalid:9876"
    async with Client([gone, nowhere]) as mq:
        with pytest.raises(ConnectError) as caught:
            await mq.queues("T")
    text = str(caught.value)
    assert re.search(rf"{gone}: .*Connect call failed", text)
    assert re.search(rf"{nowhere}: .*doesn't resolve", text)
    async with Client(names.address) as mq:
        with pytest.raises(RouteNotFound, match=rf"no route for topic 'T': name server {names.address} says"):
            await mq.queues("T")


async def test_one_that_is_down_at_the_start_is_there_later(names: FakeNames, broker: FakeBroker) -> None:
    await names.stop()
    async with Client(names.address) as mq, mq.producer("pg") as producer:
        with pytest.raises(ConnectError, match="no name server answers"):
            await producer.send(Message("T", b"x"), timeout=0.3)
        sending = producer.send_nowait(Message("T", b"y"), timeout=10)
        await names.start()
        await sending
        await names.stop()
        assert (await producer.send(Message("T", b"z"))).queue.topic == "T", "what is known is enough to go on"


async def test_a_consumer_that_starts_before_the_name_server(
    names: FakeNames, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rockmq.client.member.START_TIMEOUT", 0.1)
    monkeypatch.setattr(rebalance, "UNSETTLED_SECONDS", 0.1)
    broker.stored["T", 0] = [b"x"]
    await names.stop()
    async with Client(names.address) as mq, mq.consumer("cg", "T", from_where="first") as consumer:
        assert consumer.queues == []
        await names.start()
        assert (await anext(consumer)).body == b"x"


# Host names


async def test_every_ip_of_a_host_name_is_tried_and_asked_for_anew(
    names: FakeNames, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resolver stands in for DNS: at first the name has no server behind it, then a dead one and a living one."""
    answers = {"mq.example": ["127.0.0.2"]}
    resolve = socket.getaddrinfo

    def resolved(host: Any, *rest: Any, **more: Any) -> Any:
        return [entry for ip in answers.get(host, [host]) for entry in resolve(ip, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    async with Client(f"mq.example:{names.port}") as mq:
        with pytest.raises(ConnectError, match="Connect call failed"):
            await mq.queues("T")
        answers["mq.example"] = ["::1", "127.0.0.2", "127.0.0.1"]
        assert await mq.queues("T")
        mq._instance.remoting.disconnect(f"mq.example:{names.port}")
        answers["mq.example"] = ["::1", "127.0.0.3"]
        with pytest.raises(ConnectError, match=r"::1: .*; 127.0.0.3: "):
            await mq.queues("T")


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_ipv6() -> None:
    async with embedded.serve(flush="ASYNC_FLUSH", host="::1") as served:
        assert served.namesrv.startswith("[::1]:")
        async with Client(served.namesrv, client_ip="2001:db8::7") as mq, mq.producer("pg") as producer:
            (queue,) = await mq.create_topic("T", 1)
            receipt = await producer.send(Message("T", b"x"))
            assert (len(receipt.msg_id), len(receipt.offset_id)) == (56, 56)
            (message,) = (await mq.pull(queue, 0)).messages
            assert (message.body, message.born_address[:6]) == (b"x", "[::1]:")


# The list behind a URL


class Page:
    """A web page, served by a thread."""

    def __init__(self) -> None:
        self.text = ""
        self.asked: list[str] = []
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page.asked.append(self.path)
                self.send_response(200 if page.text else 503)
                self.end_headers()
                self.wfile.write(page.text.encode())

            def log_message(self, *_: object) -> None:
                """Tests need no access log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/rocketmq/nsaddr"
        self._thread = Thread(target=self._server.serve_forever, args=[0.05])
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    yield made
    made.close()


async def test_a_page_that_is_none() -> None:
    async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    server = await asyncio.start_server(chatter, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(f"http://127.0.0.1:{port}/list") as mq:
        with pytest.raises(ConnectError, match="gives no list of them: it speaks no HTTP"):
            await mq.queues("T")


async def test_a_list_behind_a_url(page: Page, names: FakeNames, second: FakeNames) -> None:
    assert is_url(page.url)
    async with Client(page.url) as mq:
        with pytest.raises(ConnectError, match=rf"{page.url} gives no list of them: HTTP Error 503"):
            await mq.queues("T")
        page.text = "\n"
        with pytest.raises(ConnectError, match="the page is empty"):
            await mq.queues("T")
        page.text = "<html>"
        with pytest.raises(ConnectError, match="<html>"):
            await mq.queues("T")
        page.text = f"{names.address}\nanything else\n"
        assert await mq.queues("T")
        page.text = f"{second.address};{names.address}"
        await mq._instance.names.read()
        await mq.queues("T")
        assert len(names.asked) == 2, "the present one is kept"
        page.text = second.address
        await mq._instance.names.read()
        await mq.queues("T")
        assert len(second.asked) == 1
        page.text = ""
        with pytest.raises(OSError, match="503"):
            await mq._instance.names.read()
        await mq.queues("T")
        assert len(second.asked) == 2, "a list that can't be read changes nothing"


async def test_clients_of_a_unit_have_a_list_of_their_own(page: Page, names: FakeNames, broker: FakeBroker) -> None:
    page.text = names.address
    for url, asked in (
        (page.url, "/rocketmq/nsaddr-west?nofix=1"),
        (page.url + "?zone=z&x=1", "/rocketmq/nsaddr-west?nofix=1&zone=z&x=1"),
    ):
        async with Client(url, unit_name="west") as mq:
            assert await mq.queues("T")
        assert page.asked.pop() == asked
    async with Client(page.url) as mq:
        assert await mq.queues("T")
    assert page.asked == ["/rocketmq/nsaddr"]


async def test_a_page_that_is_gone_is_told_in_one_line(
    page: Page, names: FakeNames, broker: FakeBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(namesrv, "LOOKUP_SECONDS", 0.05)
    page.text = names.address
    async with Client(page.url) as mq:
        assert await mq.queues("T")
        page.text = ""
        async with asyncio.timeout(20):
            while "the list of name servers stays as it is" not in caplog.text:
                await asyncio.sleep(0.01)
        assert "Traceback" not in caplog.text
        assert await mq.queues("T")


# Not a name server


@pytest.mark.parametrize(
    ("greeting", "answer", "told"),
    [
        (b"", b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "is not RocketMQ's protocol: .*length"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", b"", "is not RocketMQ's protocol: .*length"),
        (b"220 mail.example ESMTP\r\n", b"", "is not RocketMQ's protocol: .*length"),
        (b"", b"\x15\x03\x03\x00\x02\x02\x46", "is not RocketMQ's protocol: .*length"),
        (b"", b"", "without any answer: is it a RocketMQ server"),
    ],
    ids=["http", "ssh", "smtp", "tls", "mute"],
)
async def test_servers_of_other_kinds(greeting: bytes, answer: bytes, told: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        if await reader.read(1):
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(f"127.0.0.1:{port}") as mq, mq.producer("pg") as producer:
        with pytest.raises(ConnectError, match=rf"127.0.0.1:{port}.*{told}"):
            await mq.queues("T")
        with pytest.raises(ConnectError, match=told):
            await producer.send(Message("T", b"x"), timeout=0.5)
