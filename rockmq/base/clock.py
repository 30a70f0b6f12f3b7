"""Time, as something that is handed in: code that waits or stamps takes a Clock, so that tests can own the time."""

from time import monotonic, time_ns
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch: for stamps that leave the process."""

    def monotonic(self) -> float:
        """Seconds that never go backwards: for deadlines and ages."""


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time_ns() // 1_000_000

    def monotonic(self) -> float:
        return monotonic()
