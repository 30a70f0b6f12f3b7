"""How late the event loop comes to what is due: all that it does waits as long."""

import asyncio
from time import monotonic

from rockmq.metrics.histogram import Histogram

PERIOD_SECONDS = 0.1
BOUNDS_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)


class LoopLag:
    """Notes it every `PERIOD_SECONDS` from `start` to `close`, by the machine's own time."""

    def __init__(self) -> None:
        self.histogram = Histogram(BOUNDS_SECONDS)
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._due = monotonic() + PERIOD_SECONDS
        self._timer = asyncio.get_running_loop().call_later(PERIOD_SECONDS, self._look)

    def _look(self) -> None:
        self.histogram.note(max(0.0, monotonic() - self._due))
        self.start()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
