"""Patterns of addresses in plain_acl.yml."""

import ipaddress

import pytest

from rockmq.auth.addresses import ip_of, pattern
from rockmq.base import address
from rockmq.base.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("", [], ["127.0.0.1", "::1"]),
        ("*", ["1.2.3.4", "::1"], []),
        ("*.*.*.*", ["1.2.3.4", "::1"], []),
        ("*:*:*:*:*:*:*:*", ["1.2.3.4", "::1"], []),
        ("10.0.0.1", ["10.0.0.1"], ["10.0.0.10", "::a00:1"]),
        ("1050:0:0:0:5:600:300c:326b", ["1050::5:600:300C:326B"], ["1050::5:600:300c:326c"]),
        ("10.0.0.1, 10.0.0.3", ["10.0.0.1", "10.0.0.3"], ["10.0.0.2"]),
        ("10.0.0.{1,3}", ["10.0.0.1", "10.0.0.3"], ["10.0.0.2", "10.0.1.1"]),
        ("1050::5:600:{1,a}", ["1050::5:600:1", "1050::5:600:a"], ["1050::5:600:2"]),
        ("192.168.*.*", ["192.168.0.1", "192.168.255.255"], ["192.169.0.1", "192.16.8.1"]),
        ("192.168.0-10.*", ["192.168.0.1", "192.168.10.9"], ["192.168.11.1", "192.168.100.1"]),
        ("192.168.1.10-20", ["192.168.1.10", "192.168.1.20"], ["192.168.1.9", "192.168.1.21", "192.168.1.1"]),
        ("10.*.*.*", ["10.9.8.7"], ["100.9.8.7", "1.0.9.8"]),
        ("fe80::*", ["fe80::1", "fe80::ffff"], ["fe80::1:1", "fe81::1"]),
        ("2::ac5:78:1-200:*", ["2::ac5:78:1:9", "2::ac5:78:200:ffff"], ["2::ac5:78:201:9", "2::ac5:78:0:9"]),
        ("2::ac5:78:a-ff", ["2::ac5:78:a", "2::ac5:78:ff"], ["2::ac5:78:100", "2::ac5:78:9"]),
    ],
)
def test_whom_a_pattern_matches(text: str, inside: list[str], outside: list[str]) -> None:
    matches = pattern(text)
    assert [each for each in inside if not matches(ipaddress.ip_address(each))] == []
    assert [each for each in outside if matches(ipaddress.ip_address(each))] == []


@pytest.mark.parametrize(
    "text",
    ["x", "10.0.0", "10.0.0.256", "*.1.1.1", "10.*.0.1", "10.0.0.5-1", "10.0.0.1-300", "10.0.0.-5", "10.0.0.a-b",
     "10.0.{1,2}.3", "10.0.0.{1,x}", "10.0.0.1,", "fe80::*:1", "fe80::1-10000", "fe80:*:*:*", "10.0.0.{1,2}}", "-",
     "10.0.*"],
)  # fmt: skip
def test_what_is_no_pattern_is_said(text: str) -> None:
    with pytest.raises(ConfigError, match="is no pattern of addresses"):
        pattern(text)


def test_an_old_address_in_a_new_one_is_the_old_one() -> None:
    assert pattern("10.0.0.1")(ip_of(address.to_bytes("::ffff:10.0.0.1", 1)))
