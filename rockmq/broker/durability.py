"""The durability gate: holds replies until their position is as durable as configured.

One comparison serves every policy. `advance` tells how far the log is durable (async flush: as soon as appended; sync
flush: when forced; with replication, when the slaves have it); everything waiting for a position up to there is let go, in
order. What consumers may see passes the same gate, so nobody reads what a crash could still take away.

Replies of ordinary sends that wake nobody wait in the core (`_core.Reactor`), which is told how far to let them go.
"""

from collections import deque
from collections.abc import Callable
from math import ceil
from typing import NamedTuple

from rockmq.base.clock import Clock
from rockmq.protocol import codec
from rockmq.protocol.codes import ResponseCode
from rockmq.remoting.connection import Connection

HELD_BYTES_MAX = 1 << 20
"""Bytes of replies one connection may have waiting; over it nothing more is read from it until some are let go."""

SWEEP_SECONDS = 0.5
TIMEOUT_REMARK = "the message is stored, but was not flushed to disk in time"


class _Held(NamedTuple):
    position: int
    since: float
    deliver: "Callable[[bool], None]"
    """Called with whether the position became durable in time."""


class DurabilityGate:
    """Lets through what waits for a position, in order of positions.

    `wake` is called for each watched queue whose new messages have become durable, however late. After `timeout_seconds` a
    held reply is let go with FLUSH_DISK_TIMEOUT: the message is stored, and clients treat it as sent.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        immediate: bool,
        timeout_seconds: float,
        request_flush: Callable[[], None],
        wake: Callable[[str, int], None],
        release: Callable[[int], None],
        overdue: Callable[[int], list[tuple[Connection, bytes]]],
    ) -> None:
        self._clock = clock
        self._immediate = immediate
        self._timeout = timeout_seconds
        self._request_flush = request_flush
        self._wake = wake
        self._release = release
        self._overdue = overdue
        self._durable = 0
        self._held: deque[_Held] = deque()
        self._arrivals: deque[tuple[int, tuple[str, int]]] = deque()
        self._expected: dict[tuple[str, int], int] = {}
        """The last position of each queue in `_arrivals`; a queue is there once for a position, however many wait."""

    @property
    def waiting(self) -> int:
        """What waits to be durable, here."""
        return len(self._held)

    def appended(self, connection: Connection, replies: bytes, position: int, arrivals: list[tuple[str, int]]) -> None:
        """Take what a lane appended: its replies, and the watched queues that got messages."""
        if replies and self._immediate:
            connection.write(replies)
        elif replies:
            self._hold(connection, replies, position)
        for topic, queue_id in arrivals:
            self.wake_when_durable(topic, queue_id, position)

    def _hold(self, connection: Connection, replies: bytes, position: int) -> None:
        size = len(replies)
        held = connection.held_bytes
        connection.held_bytes = held + size
        if held <= HELD_BYTES_MAX < held + size:
            connection.hold_reading()

        def deliver(durable: bool) -> None:
            before = connection.held_bytes
            connection.held_bytes = before - size
            if before - size <= HELD_BYTES_MAX < before:
                connection.release_reading()
            connection.write(replies if durable else _timed_out(replies))

        self.when_durable(position, deliver)

    def wake_when_durable(self, topic: str, queue_id: int, position: int) -> None:
        """Wake who waits for a queue when everything below `position` is durable, at once if it is."""
        if not self.wake_later(topic, queue_id, position):
            self._wake(topic, queue_id)

    def wake_later(self, topic: str, queue_id: int, position: int) -> bool:
        """As `wake_when_durable`, but when it is durable already nobody is woken, and this is False."""
        if self._immediate or position <= self._durable:
            return False
        queue = (topic, queue_id)
        if self._expected.get(queue, 0) < position:
            self._expected[queue] = position
            self._arrivals.append((position, queue))
            self._request_flush()
        return True

    def when_durable(self, position: int, deliver: Callable[[bool], None]) -> None:
        """Call `deliver(True)` when everything below `position` is durable, or `deliver(False)` when that takes too long."""
        if self._immediate or position <= self._durable:
            deliver(True)
            return
        self._held.append(_Held(position, self._clock.monotonic(), deliver))
        self._request_flush()

    def advance(self, position: int) -> None:
        """Everything below `position` is durable now."""
        self._durable = max(self._durable, position)
        self._release(position)
        held = self._held
        while held and held[0].position <= position:
            held.popleft().deliver(True)
        arrivals = self._arrivals
        while arrivals and arrivals[0][0] <= position:
            reached, queue = arrivals.popleft()
            if self._expected.get(queue) == reached:
                del self._expected[queue]
            self._wake(*queue)

    def sweep(self) -> None:
        """Let go what has waited too long; called every `SWEEP_SECONDS`."""
        for connection, replies in self._overdue(ceil(self._timeout / SWEEP_SECONDS)):
            connection.write(_timed_out(replies))
        bound = self._clock.monotonic() - self._timeout
        while self._held and self._held[0].since < bound:
            self._held.popleft().deliver(False)


def _timed_out(replies: bytes) -> bytes:
    # Answers to decisions about transactions have no fields, and stay what they are: see `handlers/transactions.py`.
    return codec.recode(replies, ResponseCode.FLUSH_DISK_TIMEOUT, TIMEOUT_REMARK)
