"""Planning: which offsets are read, by how many tasks."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq.base.errors import ConfigError
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.spark.options import ReadOptions, parse
from rockmq.spark.ranges import Bounds, DataLoss, Range, cut, offsets_json, plan

QUEUES = [MessageQueue("orders", broker, number) for broker in ("broker-a", "broker-b") for number in range(3)]


def options(**more: str) -> ReadOptions:
    return parse({"nameServer": "a:1", "topic": "orders", **more})


def offsets_of(ranges: list[Range]) -> list[tuple[MessageQueue, int]]:
    return [(each.queue, offset) for each in ranges for offset in range(each.start, each.end)]


wholes = st.lists(st.tuples(st.integers(0, 1_000), st.integers(1, 300)), max_size=len(QUEUES)).map(
    lambda drawn: [Range(queue, start, start + size) for queue, (start, size) in zip(QUEUES, drawn, strict=False)]
)


@given(whole=wholes, count_min=st.integers(0, 50), size_max=st.integers(0, 200))
def test_cutting_keeps_every_offset_once_and_in_order(whole: list[Range], count_min: int, size_max: int) -> None:
    ranges = cut(whole, count_min, size_max)

    assert offsets_of(ranges) == offsets_of(whole)
    assert all(each.size > 0 for each in ranges)


@given(whole=wholes, count_min=st.integers(0, 50), size_max=st.integers(0, 200))
def test_cutting_gives_what_was_asked_for(whole: list[Range], count_min: int, size_max: int) -> None:
    ranges = cut(whole, count_min, size_max)

    assert len(ranges) >= min(count_min, len(offsets_of(whole)))
    assert not size_max or all(each.size <= size_max for each in ranges)
    if count_min <= len(whole) and not size_max:
        assert ranges == whole, "queues keep their order unless more tasks are asked for"


@given(
    bounds=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 300)), min_size=1, max_size=len(QUEUES)),
    data=st.data(),
)
def test_a_plan_without_loss_holds_exactly_what_was_named(bounds: list[tuple[int, int]], data: st.DataObject) -> None:
    there = {queue: Bounds(low, low + size) for queue, (low, size) in zip(QUEUES, bounds, strict=False)}
    starts = {queue: data.draw(st.integers(first, end)) for queue, (first, end) in there.items()}
    ends = {queue: data.draw(st.integers(starts[queue], end)) for queue, (_, end) in there.items()}

    ranges = plan(there, options(startingOffsets=offsets_json(starts), endingOffsets=offsets_json(ends)))

    assert offsets_of(ranges) == [(queue, at) for queue in sorted(there) for at in range(starts[queue], ends[queue])]


def test_an_unnamed_queue_has_the_default() -> None:
    there = {QUEUES[0]: Bounds(10, 20), QUEUES[1]: Bounds(5, 9)}

    ranges = plan(there, options(startingOffsets=offsets_json({QUEUES[0]: 15})))

    assert ranges == [Range(QUEUES[0], 15, 20), Range(QUEUES[1], 5, 9)]


def test_special_offsets_in_json() -> None:
    there = {QUEUES[0]: Bounds(10, 20), QUEUES[1]: Bounds(5, 9)}

    ranges = plan(there, options(startingOffsets=offsets_json({QUEUES[0]: -2, QUEUES[1]: -1})))

    assert ranges == [Range(QUEUES[0], 10, 20)]


def test_expired_offsets_are_an_error_that_names_queue_range_and_minimum() -> None:
    with pytest.raises(DataLoss, match=r"orders/broker-a/0 \[3, 10\) has expired: the queue starts at 10 now"):
        plan({QUEUES[0]: Bounds(10, 20)}, options(startingOffsets=offsets_json({QUEUES[0]: 3})))


def test_offsets_behind_the_end_are_an_error() -> None:
    with pytest.raises(DataLoss, match=r"orders/broker-a/0 ends at 20, so \[10, 25\) isn't there"):
        plan({QUEUES[0]: Bounds(10, 20)}, options(endingOffsets=offsets_json({QUEUES[0]: 25})))


def test_loss_may_be_accepted() -> None:
    there = {QUEUES[0]: Bounds(10, 20)}
    named = {"startingOffsets": offsets_json({QUEUES[0]: 3}), "endingOffsets": offsets_json({QUEUES[0]: 25})}

    assert plan(there, options(failOnDataLoss="false", **named)) == [Range(QUEUES[0], 10, 20)]


def test_an_unknown_queue_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="names queue orders/broker-b/2; there are: orders/broker-a/0"):
        plan({QUEUES[0]: Bounds(0, 1)}, options(startingOffsets=offsets_json({QUEUES[5]: 3})))


def test_a_range_travels_to_its_task() -> None:
    wanted = Range(QUEUES[0], 3, 7)

    assert pickle.loads(pickle.dumps(wanted)) == wanted
