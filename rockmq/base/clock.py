"""Time, as something that is handed in: code that waits or stamps takes a Clock, so that tests can own the time."""

import asyncio
from collections.abc import Callable
from time import monotonic, time_ns
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None:
        """Don't call it any more."""


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch: for stamps that leave the process."""

    def monotonic(self) -> float:
        """Seconds that never go backwards: for deadlines and ages."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back in the event loop when so much time of `now_ms` has passed: for what messages wait for."""


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time_ns() // 1_000_000

    monotonic = staticmethod(monotonic)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


async def sleep(clock: Clock, seconds: float) -> None:
    """Wait by a clock."""
    if seconds <= 0:
        await asyncio.sleep(0)
        return
    over = asyncio.Event()
    timer = clock.call_later(seconds, over.set)
    try:
        await over.wait()
    finally:
        timer.cancel()
