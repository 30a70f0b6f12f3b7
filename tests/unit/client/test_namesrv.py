"""Addresses of name servers."""

import pytest

from rockmq.base.errors import ConfigError
from rockmq.client.namesrv import parse


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
    ],
)
def test_forms(given: str | list[str], expected: list[str]) -> None:
    assert parse(given) == expected


@pytest.mark.parametrize("given", ["", "mq://", [], "a:b", "a:70000"])
def test_nonsense(given: str | list[str]) -> None:
    with pytest.raises(ConfigError):
        parse(given)


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "x:1;y:2")
    assert parse(None) == ["x:1", "y:2"]
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ConfigError, match="NAMESRV_ADDR"):
        parse(None)
