"""Commands at servers that take nobody without TLS, a certificate and a signature: what the environment says is enough."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from rockmq.client.environment import KEY_VARIABLES, TLS_FILES
from rockmq.embedded import Server, serve
from tests.unit.cli.conftest import Command

AUTHORITY = trustme.CA()
NAMES = [*KEY_VARIABLES, "ROCKMQ_TLS", *TLS_FILES, "ROCKMQ_TLS_CHECK_HOSTNAME"]


def identity(directory: Path, name: str) -> tuple[str, str]:
    """Files of a certificate and its key."""
    issued = AUTHORITY.issue_cert(name)
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key))
    return str(certificate), str(key)


@pytest.fixture
def authority(tmp_path: Path) -> str:
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return str(tmp_path / "ca.pem")


@pytest.fixture
async def secured(tmp_path: Path, authority: str) -> AsyncIterator[Server]:
    certificate, key = identity(tmp_path, "127.0.0.1")
    properties = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"of-root"}',
        "tls.server.mode": "enforcing",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": certificate,
        "tls.server.keyPath": key,
        "tls.server.trustCertPath": authority,
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.client.certPath": certificate,
        "tls.client.keyPath": key,
    }
    async with serve(properties=properties) as server:
        yield server


@pytest.fixture
def environment(tmp_path: Path, authority: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Of a client that is let in."""
    certificate, key = identity(tmp_path, "client@rockmq")
    values = ["root", "of-root", "", "true", authority, certificate, key, ""]
    environment = dict(zip(NAMES, values, strict=True))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment


async def test_there_and_back(rockmq: Command, secured: Server, environment: dict[str, str]) -> None:
    where = "-n", secured.namesrv
    sent = await rockmq("send", "orders", "hello", *where)
    assert (sent.code, sent.err) == (0, "")
    consumed = await rockmq("consume", "orders", "--group", "billing", "--count", "1", *where)
    assert (consumed.code, consumed.err) == (0, "")
    assert consumed.out.endswith("hello\n")
    explained = await rockmq("acl", "explain", "root", "Pub", "Topic:orders", "-b", secured.broker)
    assert (explained.code, explained.err) == (0, "")
    assert explained.out.startswith("allowed: root is a super user")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"ROCKMQ_SECRET_KEY": "wrong"}, "signature"),
        ({"ROCKMQ_ACCESS_KEY": "", "ROCKMQ_SECRET_KEY": ""}, "username cannot be null"),
        ({"ROCKMQ_TLS_CERTIFICATE": "", "ROCKMQ_TLS_KEY": ""}, "closed|certificate required"),
        ({"ROCKMQ_TLS_CA": ""}, "its certificate isn't accepted"),
        (dict.fromkeys(NAMES[3:], ""), r"does it want TLS\?"),
        ({"ROCKMQ_TLS": "false"}, "need ROCKMQ_TLS to be true"),
    ],
    ids=["secret", "unsigned", "no certificate", "authority", "plain", "half"],
)
async def test_who_is_not_let_in_is_told_in_a_line(
    rockmq: Command,
    secured: Server,
    environment: dict[str, str],
    changed: dict[str, str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in changed.items():
        monkeypatch.setenv(name, value)
    ended = await rockmq("send", "orders", "hello", "-n", secured.namesrv)
    assert ended.code == 1
    # A client that isn't let in has also warned that its heartbeat wasn't taken.
    assert [line for line in ended.err.splitlines() if "takes no heartbeat" not in line] == [ended.err.splitlines()[-1]]
    assert ended.err.splitlines()[-1].startswith("rockmq: ")
    assert re.search(words, ended.err)


async def test_a_name_that_a_certificate_is_not_for(
    rockmq: Command, tmp_path: Path, authority: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = identity(tmp_path, "mq.example")
    properties = {
        "tls.server.mode": "enforcing", "tls.test.mode.enable": "false",
        "tls.server.certPath": certificate, "tls.server.keyPath": key,
    }  # fmt: skip
    monkeypatch.setenv("ROCKMQ_TLS", "true")
    monkeypatch.setenv("ROCKMQ_TLS_CA", authority)
    async with serve(properties=properties) as server:
        refused = await rockmq("send", "orders", "hello", "-n", server.namesrv)
        assert refused.code == 1
        assert "127.0.0.1" in refused.err
        monkeypatch.setenv("ROCKMQ_TLS_CHECK_HOSTNAME", "false")
        assert (await rockmq("send", "orders", "hello", "-n", server.namesrv)).code == 0
