"""Filters that Spark hands over, and the ranges that are left."""

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from rockmq.spark import cluster
from rockmq.spark.options import parse
from rockmq.spark.pushdown import PushdownReader
from rockmq.spark.ranges import uncut
from rockmq.spark.schema import ARROW
from tests.spark.test_cluster import EVERY, Topics

OPTIONS = parse({"nameServer": "a:1", "topic": "t,u", "pushFilters": "true"})
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(offset: float) -> datetime:
    """When that offset was stored."""
    return EPOCH + timedelta(milliseconds=offset * EVERY)


async def left(*filters: Filter) -> tuple[list[tuple[str, int, int, int]], list[Filter]]:
    """(topic, queue id, start, end) of the ranges that are read, and the filters that Spark applies itself."""
    reader = PushdownReader(OPTIONS, ARROW)
    rest = list(reader.pushFilters(list(filters)))
    origin = Topics(t=[(0, 50), (20, 60)], u=[(0, 30)])
    ranges = await reader._narrowed(origin, uncut(await cluster.bounds_of(origin, OPTIONS), OPTIONS))
    return [(each.queue.topic, each.queue.queue_id, each.start, each.end) for each in ranges], rest


@pytest.mark.parametrize(
    ("filters", "ranges"),
    [
        ([], [("t", 0, 0, 50), ("t", 1, 20, 60), ("u", 0, 0, 30)]),
        ([EqualTo(("queueId",), 1)], [("t", 1, 20, 60)]),
        ([In(("queueId",), (0, 2))], [("t", 0, 0, 50), ("u", 0, 0, 30)]),
        ([In(("queueId",), (0, 1)), EqualTo(("queueId",), 0), EqualTo(("topic",), "t")], [("t", 0, 0, 50)]),
        ([EqualTo(("broker",), "b")], []),
        ([EqualTo(("queueOffset",), 25)], [("t", 0, 25, 26), ("t", 1, 25, 26), ("u", 0, 25, 26)]),
        ([GreaterThanOrEqual(("queueOffset",), 40)], [("t", 0, 40, 50), ("t", 1, 40, 60)]),
        ([GreaterThan(("queueOffset",), 40), LessThanOrEqual(("queueOffset",), 45)], [("t", 0, 41, 46), ("t", 1, 41, 46)]),
        ([LessThan(("queueOffset",), 20)], [("t", 0, 0, 20), ("u", 0, 0, 20)]),
        ([LessThan(("queueOffset",), -5)], []),
    ],
)
async def test_what_names_queues_and_offsets_is_taken(
    filters: list[Filter], ranges: list[tuple[str, int, int, int]]
) -> None:
    assert await left(*filters) == (ranges, [])


@pytest.mark.parametrize(
    ("time", "span"),
    [
        (GreaterThanOrEqual(("storeTimestamp",), at(40)), (40, 50)),
        (GreaterThanOrEqual(("storeTimestamp",), at(40) - timedelta(microseconds=1)), (40, 50)),
        (GreaterThan(("storeTimestamp",), at(40)), (41, 50)),
        (LessThan(("storeTimestamp",), at(40)), (0, 40)),
        (LessThan(("storeTimestamp",), at(40) + timedelta(microseconds=1)), (0, 41)),
        (LessThanOrEqual(("storeTimestamp",), at(40)), (0, 41)),
        (EqualTo(("storeTimestamp",), at(40)), (40, 41)),
    ],
)
async def test_times_narrow_the_ranges_and_stay_spark_s(time: Filter, span: tuple[int, int]) -> None:
    ranges, rest = await left(time, EqualTo(("topic",), "t"), EqualTo(("queueId",), 0))

    assert ranges == [("t", 0, *span)]
    assert rest == [time]


async def test_all_else_is_spark_s() -> None:
    others: list[Filter] = [
        EqualTo(("tags",), "a"),
        Not(EqualTo(("queueId",), 1)),
        StringStartsWith(("topic",), "t"),
        EqualTo(("properties", "queueId"), "1"),
        GreaterThan(("queueId",), 0),
        GreaterThan(("storeTimestamp",), datetime(2026, 1, 1)),  # noqa: DTZ001  (one that says no zone)
    ]

    ranges, rest = await left(*others)

    assert len(ranges) == 3
    assert rest == others
