"""A clock that a test moves, so that what waits for hours takes milliseconds.

It goes as the machine's does, and jumps ahead when it is told to, as when a machine's clock is set: all that messages wait
for is due then (delays, timers, retries, checks of transactions, pops that weren't acknowledged). Connections, heartbeats
and timeouts of requests go by the loop's time, which doesn't jump: a leap of days disturbs none of them.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from rockmq.base.clock import SystemClock, sleep

TURNS = 20
"""Turns of the loop that what has come due gets before `advance` returns."""


class VirtualTime(SystemClock):
    """A Clock for `embedded.serve` and `Client`, or the fixture `rockmq_time`."""

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._timers: set[_Timer] = set()

    def now_ms(self) -> int:
        return super().now_ms() + self._ahead_ms

    def call_later(self, seconds: float, callback: Callable[[], object]) -> "_Timer":
        return _Timer(self._timers, self.now_ms() + seconds * 1000, seconds, callback)

    async def sleep(self, seconds: float) -> None:
        """Wait for so much of this time."""
        await sleep(self, seconds)

    async def advance(self, seconds: float | timedelta) -> None:
        """Let so much time be over. What is due is on its way when this returns: a consumer gets it a moment later."""
        if isinstance(seconds, timedelta):
            seconds = seconds.total_seconds()
        if seconds < 0:
            raise ValueError(f"time can't go back by {-seconds:g} s")
        self._ahead_ms += round(seconds * 1000)
        now = self.now_ms()
        for timer in sorted((each for each in self._timers if each.due_ms <= now), key=lambda each: each.due_ms):
            timer.fire()
        for _ in range(TURNS):
            await asyncio.sleep(0)


class _Timer:
    """Comes when the loop's time says so, or before, when the clock jumps."""

    def __init__(self, waiting: "set[_Timer]", due_ms: float, seconds: float, callback: Callable[[], object]) -> None:
        self.due_ms = due_ms
        self._waiting = waiting
        self._callback = callback
        self._handle = asyncio.get_running_loop().call_later(seconds, self.fire)
        waiting.add(self)

    def fire(self) -> None:
        if self in self._waiting:
            self.cancel()
            self._callback()

    def cancel(self) -> None:
        self._waiting.discard(self)
        self._handle.cancel()
