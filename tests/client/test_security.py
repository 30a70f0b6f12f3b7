"""Users and rules, and TLS that is enforced, with certificates on both sides, at RockMQ's servers and at Apache's."""

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
from rockmq.client import Client, ClientError, Key, Message
from rockmq.client.admin import Rule, User
from tests.client.conftest import NewTopic
from tests.support import apache, cluster, server
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
    "authorizationEnabled": "true",
    "authorizationProvider": "org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider",
}


@dataclass
class Secured:
    namesrv: str
    broker: str

    @property
    def tls(self) -> ssl.SSLContext:
        return trusting()


def keys(directory: Path) -> dict[str, str]:
    """Options, of Java or of ours, that make a server speak TLS with a certificate of ours, also to its name server, and ask
    clients for theirs."""
    directory.mkdir(parents=True)
    issued = AUTHORITY.issue_cert("127.0.0.1")
    private = load_pem_private_key(issued.private_key_pem.bytes(), None)
    # Netty reads PKCS #8 alone.
    (directory / "key.pem").write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    (directory / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    AUTHORITY.cert_pem.write_to_path(str(directory / "ca.pem"))
    named = {
        "test.mode.enable": "false",
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
    return {f"tls.{name}": value for name, value in named.items()}


def jvm(directory: Path, mode: str) -> list[str]:
    settings = keys(directory) | {"tls.config.file": str(directory / "none.properties"), "tls.server.mode": mode}
    return [f"-D{name}={value}" for name, value in settings.items()]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A name server that takes plain connections too, by which the fixture sees it, and a broker that takes none."""
    cluster.require("apache")
    directory = tmp_path_factory.mktemp("secured")
    permissive, enforcing = jvm(directory / "tls1", "permissive"), jvm(directory / "tls2", "enforcing")
    settings = AUTHENTICATION | {"authConfigPath": str(directory / "auth")}
    with (
        apache.name_server(directory / "namesrv", free_port(), jvm=permissive) as names,
        apache.broker(directory / "broker", free_broker_port(), names.address, properties=settings, jvm=enforcing) as broker,
    ):
        cluster.wait_for_route(names.address, "TBW102")
        yield Secured(names.address, broker.address)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("ours")
    settings = AUTHENTICATION | keys(directory / "tls") | {"tls.server.mode": "enforcing"}
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    with server.serve(directory, *words) as started:
        yield Secured(started.namesrv, started.broker)


@pytest.fixture(params=["ours", "secured"])
def asking(request: pytest.FixtureRequest) -> Secured:
    """A broker of either kind that asks for users."""
    found: Secured = request.getfixturevalue(request.param)
    return found


def trusting(*, certificate: bool = True) -> ssl.SSLContext:
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    if certificate:
        AUTHORITY.issue_cert("client@rockmq").configure_cert(context)
    return context


async def test_there_and_back(asking: Secured, unique: Callable[[str], str]) -> None:
    async with Client(asking.namesrv, tls=asking.tls, auth=KEY) as mq:
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


async def test_binary_headers(asking: Secured, unique: Callable[[str], str]) -> None:
    async with Client(asking.namesrv, tls=asking.tls, auth=KEY, serializer="binary", namespace="n") as mq:
        (queue,) = await mq.create_topic(unique("orders"), 1)
        async with mq.producer("pg") as producer:
            assert (await producer.send(Message(queue.topic, b"x"))).queue == queue


@pytest.mark.parametrize("key", [Key("rockmq", "wrong"), Key("nobody", "12345678"), None], ids=["secret", "user", "none"])
async def test_who_may_not(asking: Secured, key: Key | None) -> None:
    async with Client(asking.namesrv, tls=asking.tls, auth=key) as mq:
        with pytest.raises(ResponseError, match=r"code 16: .*(?i:signature|user|username)") as caught:
            await mq.create_topic("never", 1)
        assert caught.value.address == asking.broker


async def test_users_and_what_they_may(asking: Secured, unique: Callable[[str], str]) -> None:
    name, kept, other = unique("clerk"), unique("orders"), unique("others")
    subject, broker = f"User:{name}", asking.broker
    message, elsewhere = Message(kept, b"x"), Message(other, b"x")
    async with Client(asking.namesrv, tls=asking.tls, auth=KEY) as mq:
        access = mq.admin.access
        for topic in (kept, other):
            await mq.create_topic(topic, 1)
        await access.create_user(name, "first-secret")
        with pytest.raises(ResponseError, match="The user is existed"):
            await access.create_user(name, "x")
        made = await access.user(broker, name)
        assert made == User(name, "Normal", True, "first-secret")
        assert "first-secret" not in repr(made)
        assert [each.name for each in await access.users(broker, name)] == [name]
        assert {"rockmq", name} <= {each.name for each in await access.users(broker)}
        assert await access.acl(broker, subject) is None
        rules = (
            Rule(f"Topic:{kept}", ("Pub", "Sub"), source_ips=("127.0.0.1", "10.0.0.0/8")),
            Rule("Group:*", ("Sub",)),
            Rule("Topic:secret*", ("Pub",), allowed=False),
        )
        await access.create_acl(subject, rules)
        found = await access.acl(broker, subject)
        assert found is not None
        assert (found.subject, set(found.rules)) == (subject, set(rules))

        async with (
            Client(asking.namesrv, tls=asking.tls, auth=Key(name, "first-secret")) as clerk,
            clerk.producer("pg", retries=0) as producer,
        ):
            await producer.send(message)
            with pytest.raises(ResponseError, match="code 16"):
                await producer.send(elsewhere)
            with pytest.raises(ResponseError, match="code 16"):
                await clerk.admin.access.create_user("me-too", "x")
            await access.update_acl(subject, [Rule(f"Topic:{other}", ("Pub",)), Rule(f"Topic:{kept}", ("Sub",))])
            await producer.send(elsewhere)
            with pytest.raises(ResponseError, match="code 16"):
                await producer.send(message)
            await access.update_user(name, enabled=False)
            with pytest.raises(ResponseError, match="code 16"):
                await producer.send(elsewhere)

        await access.update_user(name, password="second-secret", enabled=True)
        assert await access.user(broker, name) == User(name, "Normal", True, "second-secret")
        listed = await access.acls(broker, subject=name, resource=other)
        assert [each.subject for each in listed] == [subject]
        await access.delete_acl(subject, f"Topic:{other}")
        left = await access.acl(broker, subject)
        assert left is not None
        assert f"Topic:{other}" not in {each.resource for each in left.rules}
        await access.delete_acl(subject)
        assert await access.acl(broker, subject) is None
        for rule in (Rule("Nothing:x", ("Pub",)), Rule("Topic:x", ("Any",)), Rule("Topic:x", ("Pub",), source_ips=("x",))):
            with pytest.raises(ResponseError):
                await access.create_acl(subject, [rule])
        with pytest.raises(ClientError, match="expected a tuple"):
            await access.create_acl(subject, [Rule("Topic:x", "Pub")])  # type: ignore[arg-type]
        await access.delete_user(name, broker=broker)
        assert await access.user(broker, name) is None
        with pytest.raises(ResponseError, match="not exist"):
            await access.update_user(name, kind="Super")
        with pytest.raises(ResponseError, match="not exist"):
            await access.create_acl(subject, rules)


async def test_without_tls(asking: Secured) -> None:
    async with Client(asking.namesrv, auth=KEY) as mq:
        with pytest.raises(RemotingError, match="without any answer: is it a RocketMQ server, and does it want TLS"):
            await mq.create_topic("never", 1)


async def test_without_a_certificate(asking: Secured) -> None:
    async with Client(asking.namesrv, tls=trusting(certificate=False), auth=KEY) as mq:
        with pytest.raises(ConnectError, match=r"(?i)certificate|was lost|closed"):
            await mq.queues("TBW102")


async def test_an_authority_that_is_not_trusted(asking: Secured) -> None:
    async with Client(asking.namesrv, tls=True, auth=KEY) as mq:
        with pytest.raises(ConnectError, match="its certificate isn't accepted"):
            await mq.queues("TBW102")


async def test_servers_that_nobody_has_told_of_tls(
    peer: cluster.Cluster, new_topic: NewTopic, unique: Callable[[str], str]
) -> None:
    """They speak it besides, with a certificate that they sign themselves (test mode)."""
    (queue,) = await new_topic(1)
    async with Client(peer.namesrv, tls=True) as mq:
        with pytest.raises(ConnectError, match="its certificate isn't accepted"):
            await mq.queues(queue.topic)
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    async with Client(peer.namesrv, tls=unchecked) as mq, mq.producer(unique("pg")) as producer:
        assert (await producer.send(Message(queue.topic, b"x"))).queue == queue
