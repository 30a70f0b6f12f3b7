"""Time that stands still until a test moves it."""

import asyncio
from collections.abc import Callable

from rockmq.base.clock import SystemClock


class FakeClock:
    def __init__(self) -> None:
        self.seconds = 1_700_000_000.0

    def now_ms(self) -> int:
        return round(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def pass_ms(self, ms: float) -> None:
        self.seconds += ms / 1000

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """By the loop's time: what waits looks at the clock then."""
        return asyncio.get_running_loop().call_later(seconds, callback)


class SteppingClock(SystemClock):
    """The machine's, whose wall clock a test sets forward and back. What goes by intervals doesn't notice."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms
