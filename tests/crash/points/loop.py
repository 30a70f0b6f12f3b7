"""An event loop that a seed decides: one thing at a time, and the same again for the same seed.

What would go to a thread is done by the loop itself when nothing else is left to do, in an order the seed chooses. Time
stands still but for what such work takes, which the seed chooses too, and for waiting when there is no work. The core's
flusher alone has a thread; the loop waits for it while `forcing` says that it was asked.
"""

import asyncio
import random
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

DURATIONS_S = (0.0, 0.0, 0.002, 0.05, 0.4)


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.idle: Callable[[float | None], bool] = lambda timeout: True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0 or not self.idle(timeout):
            return ready
        return super().select(None)


class SeededLoop(asyncio.SelectorEventLoop):
    def __init__(self, choice: random.Random) -> None:
        selector = _Selector()
        super().__init__(selector)
        selector.idle = self._idle
        self._choice = choice
        self._now = 0.0
        self._jobs: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []
        self.forcing = False

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        self._jobs.append((future, partial(func, *args)))
        return future

    def _idle(self, timeout: float | None) -> bool:
        """Go on somehow; True when there is nothing to do but to wait for the flusher."""
        if self.forcing:
            return True
        if self._jobs:
            self._do(*self._jobs.pop(self._choice.randrange(len(self._jobs))))
            return False
        if timeout is None:
            raise RuntimeError("everything waits, and for nothing")
        self._now += timeout
        return False

    def _do(self, future: asyncio.Future[Any], job: Callable[[], Any]) -> None:
        try:
            result = job()
        except Exception as error:  # who waits gets it  # noqa: BLE001
            if not future.cancelled():
                future.set_exception(error)
        else:
            if not future.cancelled():
                future.set_result(result)
        self._now += self._choice.choice(DURATIONS_S)


class LoopClock:
    """The loop's time, from a moment on (ms since the epoch)."""

    def __init__(self, loop: SeededLoop, begin: int) -> None:
        self._loop = loop
        self._begin = begin

    def now_ms(self) -> int:
        return self._begin + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, callback)
