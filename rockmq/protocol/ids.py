"""Both kinds of message id (MessageDecoder.java, MessageClientIDSetter.java; protocol spec, 7.6).

Offset id, given by the broker: store host (IP and 32-bit port) and 64-bit position, in upper-case hex; 32 digits with IPv4,
56 with IPv6. Unique id, given by the client: IP (4 or 16 bytes), low 16 bits of the process id, 32 bits that tell runtimes
of one process apart, milliseconds since the start of the local month, and a 16-bit counter; same lengths.

Time and counter are one number that only grows. A clock that is set back a little stands still in it, so that tools find the
message by the id's time; when it is set back by more, or a month is over, the 32 bits are drawn anew.
"""

import os
import secrets
import struct
from datetime import datetime

from rockmq.base.address import from_bytes
from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ProtocolError


def offset_id(store_host: bytes, position: int) -> str:
    return (store_host + struct.pack(">q", position)).hex().upper()


def parse_offset_id(text: str) -> tuple[str, int, int]:
    """(ip, port, position). Raises ProtocolError."""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) not in (16, 28):
        raise ProtocolError(f"{text!r} is not an offset message id: expected 32 or 56 hex digits")
    ip, port = from_bytes(raw[:-8])
    return ip, port, int.from_bytes(raw[-8:], "big")


_forks = 0
"""How many forks this process is away from the one that began: a child must not repeat its parent's ids."""


def _forked() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_forked)


BACK_MS_MAX = 1000
"""How far ahead of a clock that was set back ids may be."""


class UniqueIds:
    """Makes unique ids; one instance per client address."""

    def __init__(self, ip: bytes, clock: Clock | None = None) -> None:
        self._ip = ip
        self._now_ms = (clock or SystemClock()).now_ms
        self._forks = -1
        self._month_start = 0
        self._month_end = 0
        self._prefix = ""
        self._last = 0

    def make(self) -> str:
        now = self._now_ms()
        since = now - self._month_start
        number = self._last + 1
        if self._forks != _forks or not self._month_start <= now < self._month_end or (number >> 16) - since > BACK_MS_MAX:
            self._begin_anew(now)
            since, number = now - self._month_start, 0
        self._last = number = max(number, since << 16)
        return "%s%012X" % (self._prefix, number)  # the quickest way there is  # noqa: UP031

    def reserve(self, count: int) -> tuple[str, int]:
        """So many at once, one at least: what all begin with, and the number of the first, which are 12 hex digits."""
        self.make()
        first = self._last
        self._last = first + count - 1
        return self._prefix, first

    def take(self, count: int) -> list[str]:
        """So many at once, one at least."""
        prefix, first = self.reserve(count)
        return ["%s%012X" % (prefix, number) for number in range(first, first + count)]  # noqa: UP031

    @property
    def length(self) -> int:
        """Characters of an id."""
        return 2 * (len(self._ip) + 12)

    def _begin_anew(self, now: int) -> None:
        self._forks = _forks
        self._prefix = (self._ip + struct.pack(">H", os.getpid() & 0xFFFF) + secrets.token_bytes(4)).hex().upper()
        self._month_start, self._month_end = _month(now)


def _month(now_ms: int) -> tuple[int, int]:
    """The local month of that time, as (start, end) in milliseconds since the epoch."""
    start = datetime.fromtimestamp(now_ms / 1000).astimezone().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return round(start.timestamp() * 1000), round(following.timestamp() * 1000)
