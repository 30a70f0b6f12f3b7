"""Encrypted connections; the servers' end of TLS is a proxy's."""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trustme

from rockmq.base.errors import ConnectError
from rockmq.client import Client, Message
from rockmq.protocol.bodies.route import BrokerData
from tests.support.certificates import PAST, revoking
from tests.support.proxy import Proxy
from tests.unit.client.fakes import FakeBroker, FakeNames

AUTHORITY = trustme.CA()


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    return context


@asynccontextmanager
async def encrypted(
    names: FakeNames, broker: FakeBroker, shown: str | trustme.LeafCert, *, mutual: bool = False
) -> AsyncIterator[str]:
    """The name server behind TLS, with a route to the broker behind TLS; they show this certificate, or one for a name."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    (AUTHORITY.issue_cert(shown) if isinstance(shown, str) else shown).configure_cert(context)
    if mutual:
        context.verify_mode = ssl.CERT_REQUIRED
        AUTHORITY.configure_trust(context)
    async with AsyncExitStack() as stack:
        fronts = [await stack.enter_async_context(Proxy(each.address, tls=context)) for each in (names, broker)]
        names.routes["T"].broker_datas = [BrokerData(broker_name="a", cluster="c", broker_addrs={"0": fronts[1].address})]
        yield fronts[0].address


async def there_and_back(mq: Client, body: bytes) -> None:
    async with mq.producer("pg") as producer:
        await producer.send(Message("T", body))
    async with mq.consumer("cg", "T", from_where="first") as consumer, (await anext(consumer)).process() as message:
        assert bytes(message.body) == body, "not the same bytes"


async def test_there_and_back(names: FakeNames, broker: FakeBroker) -> None:
    async with encrypted(names, broker, "127.0.0.1") as address, Client(address, tls=trusting()) as mq:
        await there_and_back(mq, random.Random(1).randbytes(300_000))


async def test_mutual(names: FakeNames, broker: FakeBroker) -> None:
    async with encrypted(names, broker, "127.0.0.1", mutual=True) as address:
        context = trusting()
        AUTHORITY.issue_cert("client@example").configure_cert(context)
        async with Client(address, tls=context) as mq:
            await there_and_back(mq, b"x")
        async with Client(address, tls=trusting()) as mq:
            with pytest.raises(ConnectError, match=r"certificate.required|lost|closed"):
                await mq.queues("T")


async def test_an_authority_that_is_not_trusted(names: FakeNames, broker: FakeBroker) -> None:
    async with encrypted(names, broker, "127.0.0.1") as address, Client(address, tls=True) as mq:
        with pytest.raises(ConnectError, match=r"its certificate isn't accepted: .*local issuer"):
            await mq.queues("T")


async def test_names_are_checked_unless_told_otherwise(names: FakeNames, broker: FakeBroker) -> None:
    async with encrypted(names, broker, "mq.example") as address:
        async with Client(address, tls=trusting()) as mq:
            with pytest.raises(ConnectError, match="its certificate isn't accepted: IP address mismatch"):
                await mq.queues("T")
        lenient = trusting()
        lenient.check_hostname = False
        async with Client(address, tls=lenient) as mq:
            await there_and_back(mq, b"x")


async def test_a_certificate_whose_time_is_over(names: FakeNames, broker: FakeBroker) -> None:
    over = AUTHORITY.issue_cert("127.0.0.1", not_after=PAST)
    async with encrypted(names, broker, over) as address, Client(address, tls=trusting()) as mq:
        with pytest.raises(ConnectError, match="its certificate isn't accepted: certificate has expired"):
            await mq.queues("T")


async def test_a_certificate_that_was_revoked(names: FakeNames, broker: FakeBroker, tmp_path: Path) -> None:
    """Of which a context knows that has its authority's list."""
    shown, other = AUTHORITY.issue_cert("127.0.0.1"), AUTHORITY.issue_cert("127.0.0.1")
    (tmp_path / "revoked.pem").write_bytes(revoking(AUTHORITY, shown))

    def checking() -> ssl.SSLContext:
        context = trusting()
        context.load_verify_locations(tmp_path / "revoked.pem")
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
        return context

    async with encrypted(names, broker, shown) as address, Client(address, tls=checking()) as mq:
        with pytest.raises(ConnectError, match="its certificate isn't accepted: certificate revoked"):
            await mq.queues("T")
    async with encrypted(names, broker, other) as address, Client(address, tls=checking()) as mq:
        await there_and_back(mq, b"x")


async def test_host_names_are_the_names_to_check(names: FakeNames, broker: FakeBroker) -> None:
    async with encrypted(names, broker, "localhost") as address, Client(f"localhost:{address[-5:]}", tls=trusting()) as mq:
        assert await mq.queues("T")


async def test_a_server_without_tls(names: FakeNames, broker: FakeBroker) -> None:
    async with Client(names.address, tls=trusting()) as mq:
        with pytest.raises(ConnectError, match=r"TLS handshake.*: does it speak TLS"):
            await mq.queues("T")


async def test_a_client_without_tls(names: FakeNames, broker: FakeBroker) -> None:
    async with encrypted(names, broker, "127.0.0.1") as address, Client(address) as mq:
        with pytest.raises(ConnectError, match=r"does it want TLS|was lost"):
            await mq.queues("T")


async def test_the_end_waits_for_no_peer(names: FakeNames, broker: FakeBroker) -> None:
    """A TLS session ends with a word from either side, which a peer that hangs never says."""
    async with encrypted(names, broker, "127.0.0.1") as address:
        mq = Client(address, tls=trusting())
        await mq.start()
        await mq.queues("T")
        before = asyncio.all_tasks()
        await mq.close()
        assert not asyncio.all_tasks() - before
