"""Connections that a SOCKS5 proxy makes for the client."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import trustme

from rockmq import embedded
from rockmq.base.errors import ConfigError, ConnectError
from rockmq.client import Client, Message, SocksProxy
from rockmq.remoting.client import RemotingClient
from rockmq.remoting.socks import EVERYTHING, SocksProxies
from tests.support.process import free_port
from tests.support.proxy import Proxy
from tests.support.socks import SocksServer

SOMEWHERE = "192.0.2.1:9876"
"""Of a network for documentation: nobody is there."""


async def test_there_and_back_with_a_password() -> None:
    async with (
        embedded.serve(flush="ASYNC_FLUSH") as served,
        SocksServer(users={"me": "sécret"}, hosts={"names.test": "127.0.0.1"}) as socks,
    ):
        names = f"names.test:{served.namesrv.rpartition(':')[2]}"
        async with Client(names, socks_proxies={EVERYTHING: SocksProxy(socks.address, "me", "sécret")}) as mq:
            await mq.create_topic("orders", 1)
            async with mq.producer("pg") as producer:
                await producer.send(Message("orders", bytes(300_000)))
            async with (
                mq.consumer("cg", "orders", from_where="first") as consumer,
                (await anext(consumer)).process() as message,
            ):
                assert bytes(message.body) == bytes(300_000), "not the same bytes"
        assert set(socks.asked) == {names, served.broker}


async def test_an_encrypted_connection() -> None:
    """The server's certificate is for the name that the client knows it by."""
    authority = trustme.CA()
    theirs, ours = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), ssl.create_default_context()
    authority.issue_cert("names.test").configure_cert(theirs)
    authority.configure_trust(ours)
    async with (
        embedded.serve(flush="ASYNC_FLUSH") as served,
        Proxy(served.namesrv, tls=theirs) as front,
        SocksServer(hosts={"names.test": "127.0.0.1", "others.test": "127.0.0.1"}) as socks,
    ):
        port = front.address.rpartition(":")[2]
        proxies = {EVERYTHING: SocksProxy(socks.address)}
        async with Client(f"names.test:{port}", tls=ours, socks_proxies=proxies) as mq:
            assert "TBW102" in await mq.admin.topics.names()
        async with Client(f"others.test:{port}", tls=ours, socks_proxies=proxies) as mq:
            with pytest.raises(ConnectError, match="its certificate isn't accepted: Hostname mismatch"):
                await mq.admin.topics.names()


async def test_hosts_of_no_network_are_reached_without() -> None:
    async with embedded.serve(flush="ASYNC_FLUSH") as served, SocksServer() as socks:
        async with Client(served.namesrv, socks_proxies={"10.0.0.0/8": SocksProxy(socks.address)}) as mq:
            assert "TBW102" in await mq.admin.topics.names()
        assert socks.asked == []


def test_the_smallest_network_counts() -> None:
    wide, near, one, six = (SocksProxy(f"{name}:1080") for name in ("wide", "near", "one", "six"))
    found = SocksProxies({"10.0.0.0/8": wide, "10.1.0.0/16": near, "10.1.2.3/32": one, "fd00::/8": six})
    hosts = ("10.9.9.9", "10.1.9.9", "10.1.2.3", "fd00::1", "192.0.2.1", "::1", "gate.test")
    assert [found.of(host) for host in hosts] == [wide, near, one, six, None, None, None]
    every = SocksProxies({"10.0.0.0/8": near, EVERYTHING: wide})
    assert [every.of(host) for host in hosts] == [near, near, near, wide, wide, wide, wide]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Client("a:1", socks_proxies={"10.0.0.0/99": SocksProxy("gate:1080")}), "'10.0.0.0/99' is no network"),
        (lambda: Client("a:1", socks_proxies={"gate.test": SocksProxy("gate:1080")}), "'gate.test' is no network"),
        (lambda: SocksProxy("gate"), "'gate' is not an address"),
        (lambda: SocksProxy("gate:1080", "me"), "go together"),
        (lambda: SocksProxy("gate:1080", "me", ""), "password for SOCKS proxy gate:1080: expected 1 … 255 bytes"),
        (lambda: SocksProxy("gate:1080", "ä" * 128, "x"), "username for SOCKS proxy gate:1080: expected 1 … 255 bytes"),
    ],
)
def test_what_cannot_be(make: Callable[[], object], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make()


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(SocksProxy("gate:1080", "me", "secret"))


# What goes wrong


async def refusal(proxy: SocksProxy, to: str = SOMEWHERE) -> str:
    """What a client says of a connection that can't be made."""
    client = RemotingClient(proxies={EVERYTHING: proxy})
    try:
        with pytest.raises(ConnectError) as refused:
            await client.connect(to)
    finally:
        await client.close()
    text = str(refused.value)
    assert text.startswith(f"can't connect to {to}: ")
    assert proxy.address in text
    return text


async def test_nobody_listens_at_the_proxys_address() -> None:
    assert "can't be reached: Connection refused" in await refusal(SocksProxy(f"127.0.0.1:{free_port()}"))
    assert "name of SOCKS proxy no.invalid:1080 doesn't resolve" in await refusal(SocksProxy("no.invalid:1080"))


async def test_credentials_are_wrong_or_missing() -> None:
    async with SocksServer(users={"me": "secret"}) as socks:
        assert "doesn't take the password of user 'me'" in await refusal(SocksProxy(socks.address, "me", "other"))
        assert "wants a user's name and a password" in await refusal(SocksProxy(socks.address))


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (1, "a failure of its own"),
        (2, "its rules don't allow that"),
        (3, "that network isn't reachable"),
        (4, "that host isn't reachable"),
        (5, "connection refused"),
        (6, "TTL expired"),
        (7, "doesn't make connections"),
        (8, "doesn't know that kind of address"),
        (99, "with error 99"),
    ],
)
async def test_the_proxy_makes_no_connection(code: int, told: str) -> None:
    async with SocksServer(refusal=code) as socks:
        assert told in await refusal(SocksProxy(socks.address))
        assert told in await refusal(SocksProxy(socks.address), "[2001:db8::1]:9876")
        assert socks.asked == [SOMEWHERE, "2001:db8::1:9876"]


async def test_a_name_that_cannot_be_sent() -> None:
    for name in ("a" * 64 + ".test", ".".join(["a" * 60] * 5)):
        async with SocksServer() as socks:
            client = RemotingClient(proxies={EVERYTHING: SocksProxy(socks.address)})
            with pytest.raises(ConnectError, match="too long"):
                await client.connect(f"{name}:9876")
            await client.close()


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """A server that has one answer, whatever it is told, and then ends the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.write_eof()
        while await reader.read(1024):
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


SIGNED_IN = b"\x05\x02\x01\x00"
CONNECTED = b"\x05\x00\x00\x01" + bytes(6)


@pytest.mark.parametrize("size", range(len(SIGNED_IN + CONNECTED)))
async def test_half_an_answer(size: int) -> None:
    async with answering((SIGNED_IN + CONNECTED)[:size]) as address:
        assert "ended the connection" in await refusal(SocksProxy(address, "me", "secret"))


@pytest.mark.parametrize("named", [b"\x05\x00\x00\x03\x04ho", b"\x05\x00\x00\x03", b"\x05\x00\x00\x04" + bytes(16)])
async def test_half_an_address_in_the_answer(named: bytes) -> None:
    async with answering(b"\x05\x00" + named) as address:
        assert "ended the connection before its answer was whole" in await refusal(SocksProxy(address))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers with version 72: is it a SOCKS5 proxy?"),
        (b"\x00\x5a" + bytes(6), "answers with version 0: is it a SOCKS5 proxy?"),
        (b"\x05\x01", "wants other credentials than a user's name and a password"),
        (b"\x05\xff", "wants other credentials than a user's name and a password"),
        (b"\x05\x02\x07\x00", "answers with version 7: is it a SOCKS5 proxy?"),
        (SIGNED_IN + b"\x04\x00\x00\x01" + bytes(6), "answers with version 4: is it a SOCKS5 proxy?"),
        (SIGNED_IN + b"\x05\x00\x00\x02" + bytes(6), "answers with an address of unknown kind 2"),
    ],
)
async def test_another_kind_of_answer(answer: bytes, told: str) -> None:
    async with answering(answer) as address:
        assert told in await refusal(SocksProxy(address, "me", "secret"))


async def test_a_silent_proxy_is_left_in_time() -> None:
    left = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1024):
            pass
        left.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = RemotingClient(proxies={EVERYTHING: SocksProxy(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")})
    with pytest.raises(ConnectError, match=r"can't connect to .* within 0.1 s"):
        await client.connect(SOMEWHERE, timeout=0.1)
    await client.close()
    async with asyncio.timeout(30):
        await left.wait()
    server.close()
