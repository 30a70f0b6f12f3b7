"""Both kinds of message id (MessageDecoder.java, MessageClientIDSetter.java; protocol spec, 7.6).

Offset id, given by the broker: store host (IP and 32-bit port) and 64-bit position, in upper-case hex; 32 digits with IPv4,
56 with IPv6. Unique id, given by the client: IP (4 or 16 bytes), low 16 bits of the process id, 32 bits that tell runtimes
of one process apart, milliseconds since the start of the local month, and a 16-bit counter; same lengths.
"""

import itertools
import os
import secrets
import struct
import time
from datetime import datetime

from rockmq.base.address import from_bytes
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


class UniqueIds:
    """Makes unique ids; one instance per client address."""

    def __init__(self, ip: bytes) -> None:
        self._ip = ip
        self._forks = -1
        self._counter = itertools.count()
        self._month_end = 0.0
        self._month_start = 0.0
        self._prefix = ""

    def make(self) -> str:
        now = time.time()
        if self._forks != _forks:
            self._forks = _forks
            self._prefix = (self._ip + struct.pack(">H", os.getpid() & 0xFFFF) + secrets.token_bytes(4)).hex().upper()
        if not self._month_start <= now < self._month_end:
            self._month_start, self._month_end = _month(now)
        since = int((now - self._month_start) * 1000) & 0xFFFF_FFFF
        return f"{self._prefix}{since:08X}{next(self._counter) & 0xFFFF:04X}"


def _month(now: float) -> tuple[float, float]:
    """The local month that `now` is in, as (start, end) in seconds since the epoch."""
    start = datetime.fromtimestamp(now).astimezone().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    following = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return start.timestamp(), following.timestamp()
