"""What the environment says of how to reach servers."""

import ssl
from pathlib import Path

import pytest
import trustme

from rockmq.base.errors import ConfigError
from rockmq.client import Key, environment

AUTHORITY = trustme.CA()


def test_it_says_nothing() -> None:
    assert environment.key() is None
    assert environment.tls() is None


def test_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKMQ_ACCESS_KEY", "me")
    monkeypatch.setenv("ROCKMQ_SECRET_KEY", " of-me\n")  # as from a file of a secret
    assert environment.key() == Key("me", "of-me")
    monkeypatch.setenv("ROCKMQ_SECURITY_TOKEN", "today")
    assert environment.key() == Key("me", "of-me", "today")


def test_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKMQ_TLS", "True")
    found = environment.tls()
    assert found is not None
    assert (found.verify_mode, found.check_hostname) == (ssl.CERT_REQUIRED, True)
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    AUTHORITY.issue_cert("client@example").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    monkeypatch.setenv("ROCKMQ_TLS_CA", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("ROCKMQ_TLS_CERTIFICATE", str(tmp_path / "own.pem"))
    monkeypatch.setenv("ROCKMQ_TLS_CHECK_HOSTNAME", "false")
    found = environment.tls()
    assert found is not None
    assert (found.verify_mode, found.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert len(found.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"ROCKMQ_ACCESS_KEY": "me"}, "ROCKMQ_ACCESS_KEY and ROCKMQ_SECRET_KEY go together"),
        ({"ROCKMQ_SECURITY_TOKEN": "x"}, "and ROCKMQ_SECURITY_TOKEN with both"),
        ({"ROCKMQ_TLS": "yes"}, "ROCKMQ_TLS is 'yes': expected true or false"),
        ({"ROCKMQ_TLS_CA": "ca.pem"}, "need ROCKMQ_TLS to be true"),
        ({"ROCKMQ_TLS": "false", "ROCKMQ_TLS_CHECK_HOSTNAME": "false"}, "need ROCKMQ_TLS to be true"),
        ({"ROCKMQ_TLS": "true", "ROCKMQ_TLS_KEY": "x"}, "ROCKMQ_TLS_KEY needs ROCKMQ_TLS_CERTIFICATE"),
        ({"ROCKMQ_TLS": "true", "ROCKMQ_TLS_CA": "/nowhere.pem"}, r"ROCKMQ_TLS_CA \(/nowhere.pem\)"),
    ],
)
def test_what_can_not_be(given: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=words):
        environment.client("127.0.0.1:1")
