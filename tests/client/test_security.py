"""Apache's broker with TLS enforced, certificates on both sides, and authentication on. RockMQ's broker has neither yet."""

import os
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from rockmq.base.errors import ConnectError, RemotingError, ResponseError
from rockmq.client import Client, Key, Message
from tests.client.conftest import NewTopic
from tests.support import apache, cluster
from tests.support.process import free_broker_port, free_port

AUTHORITY = trustme.CA()
KEY = Key("rockmq", "12345678")
SUPER = '{"username":"rockmq","password":"12345678"}'
AUTHENTICATION = {
    "authenticationEnabled": "true",
    "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": SUPER,
    "innerClientAuthenticationCredentials": '{"accessKey":"rockmq","secretKey":"12345678"}',
}


@dataclass
class Secured:
    namesrv: str
    broker: str


def jvm(directory: Path, mode: str) -> list[str]:
    """Options that make a Java server speak TLS with a certificate of ours, also to its name server, and ask clients for
    theirs."""
    directory.mkdir(parents=True)
    issued = AUTHORITY.issue_cert("127.0.0.1")
    private = load_pem_private_key(issued.private_key_pem.bytes(), None)
    # Netty reads PKCS #8 alone.
    (directory / "key.pem").write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (directory / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    AUTHORITY.cert_pem.write_to_path(str(directory / "ca.pem"))
    settings = {
        "test.mode.enable": "false",
        "config.file": str(directory / "none.properties"),
        "server.mode": mode,
        "server.keyPath": str(directory / "key.pem"),
        "server.certPath": str(directory / "cert.pem"),
        "server.trustCertPath": str(directory / "ca.pem"),
        "server.need.client.auth": "require",
        "server.authClient": "true",
        "client.keyPath": str(directory / "key.pem"),
        "client.certPath": str(directory / "cert.pem"),
        "client.trustCertPath": str(directory / "ca.pem"),
        "client.authServer": "true",
    }
    return [f"-Dtls.{name}={value}" for name, value in settings.items()]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A name server that takes plain connections too, by which the fixture sees it, and a broker that takes none."""
    if missing := apache.available():
        if os.environ.get("CI") == "true":
            pytest.fail(f"tests against Apache's broker can't run: {missing}", pytrace=False)
        pytest.skip(missing)
    directory = tmp_path_factory.mktemp("secured")
    permissive, enforcing = jvm(directory / "tls1", "permissive"), jvm(directory / "tls2", "enforcing")
    settings = AUTHENTICATION | {"authConfigPath": str(directory / "auth")}
    with (
        apache.name_server(directory / "namesrv", free_port(), jvm=permissive) as names,
        apache.broker(directory / "broker", free_broker_port(), names.address, properties=settings, jvm=enforcing) as broker,
    ):
        cluster.wait_for_route(names.address, "TBW102")
        yield Secured(names.address, broker.address)


def trusting(*, certificate: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if certificate:
        AUTHORITY.issue_cert("client@rockmq").configure_cert(context)
    return context


async def test_there_and_back(secured: Secured, unique: Callable[[str], str]) -> None:
    async with Client(secured.namesrv, tls=trusting(), auth=KEY) as mq:
        (queue,) = await mq.create_topic(unique("orders"), 1)
        async with mq.producer("pg") as producer:
            await producer.send(Message(queue.topic, b"one", tag="ä", properties={"who": "ß"}))
            await producer.send_batch([Message(queue.topic, b"two"), Message(queue.topic, b"three")])
            await producer.send_oneway(Message(queue.topic, b"four"))
        async with mq.consumer(unique("cg"), [queue.topic], from_where="first") as consumer:
            bodies: set[bytes] = set()
            while len(bodies) < 4:
                async with (await anext(consumer)).process() as message:
                    bodies.add(message.body)
    assert bodies == {b"one", b"two", b"three", b"four"}


async def test_binary_headers(secured: Secured, unique: Callable[[str], str]) -> None:
    async with Client(secured.namesrv, tls=trusting(), auth=KEY, serializer="binary", namespace="n") as mq:
        (queue,) = await mq.create_topic(unique("orders"), 1)
        async with mq.producer("pg") as producer:
            assert (await producer.send(Message(queue.topic, b"x"))).queue == queue


@pytest.mark.parametrize("key", [Key("rockmq", "wrong"), Key("nobody", "12345678"), None], ids=["secret", "user", "none"])
async def test_who_may_not(secured: Secured, key: Key | None) -> None:
    async with Client(secured.namesrv, tls=trusting(), auth=key) as mq:
        with pytest.raises(ResponseError, match=r"code 16: .*(?i:signature|user|username)") as caught:
            await mq.create_topic("never", 1)
        assert caught.value.address == secured.broker


async def test_without_tls(secured: Secured) -> None:
    async with Client(secured.namesrv, auth=KEY) as mq:
        with pytest.raises(RemotingError, match="without any answer: is it a RocketMQ server, and does it want TLS"):
            await mq.create_topic("never", 1)


async def test_without_a_certificate(secured: Secured) -> None:
    async with Client(secured.namesrv, tls=trusting(certificate=False), auth=KEY) as mq:
        with pytest.raises(ConnectError, match=r"(?i)certificate|was lost|closed"):
            await mq.queues("TBW102")


async def test_an_authority_that_is_not_trusted(secured: Secured) -> None:
    async with Client(secured.namesrv, tls=True, auth=KEY) as mq:
        with pytest.raises(ConnectError, match="its certificate isn't accepted"):
            await mq.queues("TBW102")


async def test_servers_that_nobody_has_told_of_tls(
    peer: cluster.Cluster, new_topic: NewTopic, unique: Callable[[str], str]
) -> None:
    """RockMQ's have none yet; Apache's speak it besides, with a certificate that they sign themselves (test mode)."""
    (queue,) = await new_topic(1)
    async with Client(peer.namesrv, tls=True) as mq:
        refused = {"rockmq": "does it speak TLS", "apache": "its certificate isn't accepted"}
        with pytest.raises(ConnectError, match=refused[peer.kind]):
            await mq.queues(queue.topic)
    if peer.kind == "apache":
        unchecked = ssl.create_default_context()
        unchecked.check_hostname = False
        unchecked.verify_mode = ssl.CERT_NONE
        async with Client(peer.namesrv, tls=unchecked) as mq, mq.producer(unique("pg")) as producer:
            assert (await producer.send(Message(queue.topic, b"x"))).queue == queue
