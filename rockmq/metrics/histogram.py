"""A histogram that is counted in Python."""

from bisect import bisect_left
from collections.abc import Sequence

from rockmq.metrics.samples import Ranges


class Histogram:
    """`bounds` are what its ranges end at, inclusive; the last one has no bound."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def note(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @property
    def ranges(self) -> Ranges:
        return Ranges(self._counts, self._sum)
