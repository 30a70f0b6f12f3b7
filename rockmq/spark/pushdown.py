"""Filters of a query that say which offsets are wanted, so that the others aren't read (Spark 4.1+).

Taken off Spark's hands are comparisons of `topic`, `broker`, `queueId` and `queueOffset`. Those of `storeTimestamp` narrow
the ranges, too, but Spark compares again. Whatever else a query says is Spark's.

A reader that has `pushFilters` fails every query while `spark.sql.python.filterPushdown.enabled` isn't on, which it isn't by
default; hence it is a reader of its own, for those who ask for it.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from rockmq.protocol.bodies.common import MessageQueue
from rockmq.spark import cluster
from rockmq.spark.batch_reader import BatchReader
from rockmq.spark.options import ReadOptions
from rockmq.spark.ranges import Range

_PARTS: Mapping[str, Callable[[MessageQueue], object]] = {
    "topic": lambda queue: queue.topic,
    "broker": lambda queue: queue.broker_name,
    "queueId": lambda queue: queue.queue_id,
}
_END = 2**63 - 1


@dataclass(frozen=True)
class Span:
    """From `low` to before `high`."""

    low: int = 0
    high: int = _END

    def within(self, filter: Any) -> "Span | None":
        """What a comparison leaves of it; None for one that can't be told as a span."""
        match filter:
            case EqualTo(_, int(value)):
                other = Span(value, value + 1)
            case GreaterThanOrEqual(_, int(value)):
                other = Span(low=value)
            case GreaterThan(_, int(value)):
                other = Span(low=value + 1)
            case LessThan(_, int(value)):
                other = Span(high=value)
            case LessThanOrEqual(_, int(value)):
                other = Span(high=value + 1)
            case _:
                return None
        return Span(max(self.low, other.low), min(self.high, other.high))


class PushdownReader(BatchReader):
    """Reads no more than the filters want."""

    def __init__(self, options: ReadOptions, schema: pa.Schema) -> None:
        super().__init__(options, schema)
        self._named: dict[str, set[object]] = {}
        self._offsets = Span()
        self._times_ms = Span()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        return [each for each in filters if not self._take(each)]

    def _take(self, filter: Filter) -> bool:
        """Note what a filter says; whether there is nothing left of it for Spark."""
        path: tuple[str, ...] = getattr(filter, "attribute", ())
        if len(path) != 1:
            return False
        (column,) = path
        if column in _PARTS and isinstance(filter, EqualTo | In):
            values = {filter.value} if isinstance(filter, EqualTo) else set(filter.value)
            self._named[column] = self._named.get(column, values) & values
            return True
        if column == "queueOffset" and (offsets := self._offsets.within(filter)) is not None:
            self._offsets = offsets
            return True
        if column == "storeTimestamp" and (times := self._times_ms.within(_in_ms(filter))) is not None:
            self._times_ms = times
        return False

    async def _narrowed(self, origin: cluster.Origin, ranges: list[Range]) -> list[Range]:
        wanted = [
            Range(each.queue, max(each.start, self._offsets.low), min(each.end, self._offsets.high))
            for each in ranges
            if all(_PARTS[column](each.queue) in values for column, values in self._named.items())
        ]
        wanted = [each for each in wanted if each.size > 0]
        if self._times_ms != Span():
            wanted = [await self._narrowed_by_time(origin, each) for each in wanted]
        return [each for each in wanted if each.size > 0]

    async def _narrowed_by_time(self, origin: cluster.Origin, whole: Range) -> Range:
        start, end = whole.start, whole.end
        if self._times_ms.low > 0:
            start = max(start, await origin.offset_by_time(whole.queue, self._times_ms.low))
        if self._times_ms.high < _END:
            end = min(end, await origin.offset_by_time(whole.queue, max(0, self._times_ms.high)))
        return Range(whole.queue, start, end)


def _in_ms(filter: Any) -> Any:
    """A comparison with a time as one with milliseconds, of which a message's store time is a whole number: one that
    lets through all that it did."""
    value = getattr(filter, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return filter
    ms, rest = divmod(round(value.timestamp() * 1_000_000), 1_000)
    # Of x < 5.3 ms the milliseconds are x < 6.
    return dataclasses.replace(filter, value=ms + 1 if rest and isinstance(filter, LessThan) else ms)
