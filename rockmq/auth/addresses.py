"""Addresses of peers, and the patterns of plain_acl.yml for them (RemoteAddressStrategyFactory.java).

    *                           everybody, as *.*.*.* and *:*:*:*:*:*:*:*
    10.0.0.1    fe80::1         one address
    10.0.0.1,10.0.0.2           some
    10.0.0.{1,2}    fe80::{1,2} some that differ at the end
    10.0.*.*    10.0.1-5.*      each part a number, and from some part on ranges or `*`; the first is always a number
    fe80::1-ff    fe80::1-ff:*  the same of the last part, or of the last two, in hexadecimal

An empty pattern matches nobody. Apache reads only the first part that is no number and takes what is behind it for `*`;
here it has to say so, and what is behind `::` is read as what it stands for. No address is let in that Apache wouldn't.
"""

import ipaddress
import re
from collections.abc import Callable
from functools import lru_cache

from rockmq.base.errors import ConfigError

IP = ipaddress.IPv4Address | ipaddress.IPv6Address
Pattern = Callable[[IP], bool]

_EVERYBODY = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_ALTERNATIVES = re.compile(r"([^{}]*[.:])\{([^{}]*)\}")


@lru_cache(maxsize=4096)
def ip_of(peer_host: bytes) -> IP:
    """The address in a connection's host bytes."""
    return ipaddress.ip_address(peer_host[:-4])


def pattern(text: str) -> Pattern:
    """What tells whether an address matches. Raises ConfigError."""
    text = text.strip()
    if not text:
        return lambda ip: False
    if text in _EVERYBODY:
        return lambda ip: True
    if text.endswith("}"):
        found = _ALTERNATIVES.fullmatch(text)
        if found is None:
            raise _fault(text, "alternatives stand in the last part alone, as in 10.0.0.{1,2}")
        return _one_of(text, [found[1] + each for each in found[2].split(",")])
    if "," in text:
        return _one_of(text, text.split(","))
    if "*" in text or "-" in text:
        return _ranges(text, *((":", 16, 0xFFFF) if ":" in text else (".", 10, 255)))
    return _one_of(text, [text])


def _one_of(text: str, addresses: list[str]) -> Pattern:
    try:
        wanted = frozenset(ipaddress.ip_address(each.strip()) for each in addresses)
    except ValueError as error:
        raise _fault(text, str(error)) from None
    return wanted.__contains__


def _ranges(text: str, separator: str, base: int, most: int) -> Pattern:
    parts = text.split(separator)
    ranged = next(number for number, part in enumerate(parts) if "*" in part or "-" in part)
    behind = parts[ranged:]
    if ranged == 0 or any(part != "*" for part in behind[1:]) or (base == 16 and len(behind) > 2):
        raise _fault(text, "behind a range everything is `*`, and the first part is a number")
    low, high = (0, most) if behind[0] == "*" else _range(text, behind[0], base)
    if not low <= high <= most:
        raise _fault(text, f"{behind[0]} is no range within 0 and {most:x}" if base == 16 else f"{behind[0]}: 0 to {most}")
    try:
        start = ipaddress.ip_address(separator.join(parts[:ranged] + ["0"] * len(behind)))
    except ValueError as error:
        raise _fault(text, str(error)) from None
    bits = 16 if base == 16 else 8
    size, fixed = start.max_prefixlen, start.max_prefixlen - bits * len(behind)
    head, kind = int(start) >> (size - fixed), type(start)

    def matches(ip: IP) -> bool:
        if type(ip) is not kind:
            return False
        number = int(ip)
        return number >> (size - fixed) == head and low <= (number >> (size - fixed - bits)) & most <= high

    return matches


def _range(text: str, part: str, base: int) -> tuple[int, int]:
    low, _, high = part.partition("-")
    try:
        return int(low.strip(), base), int(high.strip(), base)
    except ValueError:
        raise _fault(text, f"{part!r} is no range of numbers") from None


def _fault(text: str, why: str) -> ConfigError:
    return ConfigError(f"{text!r} is no pattern of addresses: {why}")
