"""Rates, from samples of counters that only grow."""

from collections import deque

from rockmq.base.clock import Clock

SAMPLE_SECONDS = 10.0
_WINDOWS = (10.0, 60.0, 600.0)


class Rate:
    """A counter and how fast it grew of late."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.total = 0
        self._samples = deque([(clock.monotonic(), 0)], maxlen=int(_WINDOWS[-1] / SAMPLE_SECONDS) + 1)

    def sample(self) -> None:
        """Called every `SAMPLE_SECONDS`."""
        self._samples.append((self._clock.monotonic(), self.total))

    def per_second(self) -> tuple[float, ...]:
        """Growth per second over the last 10 s, minute and 10 minutes, as far as there are samples."""
        now = self._clock.monotonic()
        rates = []
        for window in _WINDOWS:
            at, total = next((s for s in self._samples if now - s[0] <= window + SAMPLE_SECONDS / 2), self._samples[-1])
            rates.append((self.total - total) / (now - at) if now > at else 0.0)
        return tuple(rates)

    def __str__(self) -> str:
        """As RocketMQ's runtime info has it: three numbers apart by spaces."""
        return " ".join(f"{rate:.6f}" for rate in self.per_second())
