"""Samples: what metrics say at a time, and how they are read by whoever writes them out.

A sample is (metric, values of its labels, value). Who has samples makes them one by one, and None where it has worked for a
while without one. They are read in slices of the event loop's time, so that this holds up nobody: a thread would need the
interpreter as well, and gives it up only every 5 ms.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Literal, NamedTuple

log = logging.getLogger(__name__)

SLICE_SECONDS = 0.0005
"""How long samples are read before the event loop gets a turn."""
OVERFLOW = ("otel_metric_overflow", "true")
"""The label of what is counted together, as OpenTelemetry has it, and so Apache's broker."""


class Metric(NamedTuple):
    """`name` is as Prometheus shows it, a counter's with `_total`. `source` is the class of Apache's that has it, empty for
    ours. Of a histogram `bounds` are what its ranges end at, inclusive; the last range has no bound."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    doc: str
    labels: tuple[str, ...] = ()
    source: str = ""
    bounds: tuple[float, ...] = ()


class Ranges(NamedTuple):
    """A histogram's value: how many there were in each range, and the sum of all."""

    counts: list[int]
    sum: float


Value = int | float | Ranges
Sample = tuple[Metric, tuple[str, ...], Value]
Samples = Callable[[], Iterable[Sample | None] | None]
"""None as long as there is nothing to tell."""
Add = Callable[[Metric, tuple[str, ...] | None, Value], None]
"""Takes a sample; without values of labels, what is counted together."""


class Reader:
    """Reads the samples of some metrics, `series_max` of each: those over it are added up in one (`OVERFLOW`) if they are of
    a counter or a histogram, and left out if they are gauges. `dropped` is the metric that tells how many these were."""

    def __init__(self, metrics: Iterable[Metric], dropped: Metric, series_max: int) -> None:
        self.metrics = (*metrics, dropped)
        self._dropped = dropped
        self._series_max = series_max
        self._said: set[str] = set()
        self._turn = asyncio.Lock()

    async def read(self, samples: Iterable[Sample | None], add: Add) -> None:
        """Hand each to `add`. Of those who read at the same time one after the other is served."""
        async with self._turn:
            await self._read(samples, add)

    async def _read(self, samples: Iterable[Sample | None], add: Add) -> None:
        series = {metric.name: 0 for metric in self.metrics}
        together: dict[Metric, Value] = {}
        dropped = 0
        began = monotonic()
        for sample in samples:
            if sample is not None:
                metric, _, value = sample
                if series[metric.name] < self._series_max:
                    series[metric.name] += 1
                    add(*sample)
                else:
                    dropped += 1
                    self._say(metric)
                    if metric.kind != "gauge":
                        together[metric] = _sum(together[metric], value) if metric in together else value
            if monotonic() - began > SLICE_SECONDS:
                await asyncio.sleep(0)
                began = monotonic()
        for metric, value in together.items():
            add(metric, None, value)
        add(self._dropped, (), dropped)

    def _say(self, metric: Metric) -> None:
        if metric.name not in self._said:
            self._said.add(metric.name)
            log.warning(
                "%s has more than %d series (metricsOtelCardinalityLimit): the others are %s",
                metric.name,
                self._series_max,
                "left out" if metric.kind == "gauge" else "counted together",
            )


def _sum(one: Value, other: Value) -> Value:
    if isinstance(one, Ranges):
        assert isinstance(other, Ranges)
        return Ranges([each + more for each, more in zip(one.counts, other.counts, strict=True)], one.sum + other.sum)
    assert not isinstance(other, Ranges)
    return one + other


def yes(value: bool) -> str:
    """A label's value."""
    return "true" if value else "false"
