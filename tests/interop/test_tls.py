"""Apache's clients and tools at servers that take nobody without TLS, and nobody without a certificate."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from tests.support import apache, server
from tests.support.events import events, wait_for_keys
from tests.support.messages import content

AUTHORITY = trustme.CA()
MODES = ("sync", "async", "oneway", "batch", "large")
PER_MODE = 10


def written(directory: Path) -> dict[str, str]:
    """The keys of a server and its broker, and of a Java client, that have a certificate of ours."""
    directory.mkdir()
    issued = AUTHORITY.issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA)
    key = directory / "key.pem"
    key.write_bytes(pkcs8(issued.private_key_pem.bytes()))
    (directory / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    AUTHORITY.cert_pem.write_to_path(str(directory / "ca.pem"))
    keys = {"tls.test.mode.enable": "false", "tls.client.authServer": "true", "tls.server.authClient": "true"}
    for role in ("server", "client"):
        keys |= {
            f"tls.{role}.certPath": str(directory / "cert.pem"),
            f"tls.{role}.keyPath": str(key),
            f"tls.{role}.trustCertPath": str(directory / "ca.pem"),
        }
    return keys | {"tls.server.need.client.auth": "require"}


def pkcs8(pem: bytes) -> bytes:
    """The only form that Netty reads."""
    key = serialization.load_pem_private_key(pem, None)
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return written(tmp_path_factory.mktemp("tls") / "files")


@pytest.fixture(scope="module")
def enforcing(keys: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.Server]:
    directory = tmp_path_factory.mktemp("enforcing")
    path = directory / "tls.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    words = "--set", "tls.server.mode=enforcing", "--set", f"tls.config.file={path}"
    with server.serve(directory, *words) as started:
        yield started


@pytest.mark.parametrize("client", apache.CLIENTS)
def test_java_clients_there_and_back(
    enforcing: server.Server, keys: dict[str, str], unique: Callable[[str], str], tmp_path: Path, client: str
) -> None:
    topic, prefix = unique("tls"), unique("m")
    system = keys | {"tls.enable": "true"}
    where = f"namesrv={enforcing.namesrv}", f"topic={topic}"
    what = f"prefix={prefix}", f"modes={','.join(MODES)}", f"count={PER_MODE}", "size=1000000"
    with apache.program(client, "Producer", *where, *what, directory=tmp_path, system=system) as producer:
        assert producer.wait(120) == 0, producer.tail()
        assert events(producer, "failed") == []
    group = f"group={unique('tls-group')}"
    with apache.program(client, "PushConsumer", *where, group, directory=tmp_path, system=system) as consumer:
        wait_for_keys(consumer, {content(f"{prefix}-{mode}", i).key for mode in MODES for i in range(PER_MODE)})


def test_mqadmin(enforcing: server.Server, keys: dict[str, str], tmp_path: Path) -> None:
    def printed(system: dict[str, str]) -> str:
        done = apache.mqadmin("clusterList", namesrv=enforcing.namesrv, directory=tmp_path, system=system)
        return done.stdout + done.stderr

    assert enforcing.broker in printed(keys | {"tls.enable": "true"})
    # As by default: in test mode, without a certificate of its own.
    assert enforcing.broker not in printed({"tls.enable": "true"})
    assert enforcing.broker not in printed({})


def test_java_clients_that_check_nothing_and_show_nothing(
    by_default: server.Server, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """`tls.enable=true` and no more, at servers that nobody has told of TLS."""
    where = f"namesrv={by_default.namesrv}", f"topic={unique('tls')}"
    with apache.program(
        "5.5.0", "Producer", *where, "count=3", directory=tmp_path, system={"tls.enable": "true"}
    ) as producer:
        assert producer.wait(60) == 0, producer.tail()
        assert len(events(producer, "sent")) == 3


@pytest.fixture
def by_default(tmp_path: Path) -> Iterator[server.Server]:
    with server.serve(tmp_path / "default") as started:
        yield started
