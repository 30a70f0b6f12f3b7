"""From queues and their ends to the ranges that tasks read. A range holds its start and not its end."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from rockmq.base.errors import ClientError, ConfigError
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.spark.options import EARLIEST, GROUP, LATEST, Offsets, ReadOptions


class DataLoss(ClientError):
    """Messages that should have been read aren't there any more; the text names queue, range and what is left."""


def name(queue: MessageQueue) -> str:
    """A queue as people read it."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


class Bounds(NamedTuple):
    """A queue's first offset, and the next to be written."""

    first: int
    end: int


@dataclass(frozen=True)
class Range(InputPartition):  # pickled on its way to the task, hence plain values only
    """Offsets start … end - 1 of one queue."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{name(self.queue)} [{self.start}, {self.end})"


def plan(bounds: Mapping[MessageQueue, Bounds], options: ReadOptions) -> list[Range]:
    """The ranges of a read, cut into as many as asked for. Raises DataLoss, and ConfigError for offsets of no queue."""
    return cut(uncut(bounds, options), options.min_partitions, options.max_records_per_partition)


def uncut(bounds: Mapping[MessageQueue, Bounds], options: ReadOptions) -> list[Range]:
    """A range for each queue that has messages to be read. Raises as `plan`."""
    starting, ending = options.starting, options.ending
    check_named("startingOffsets", starting, bounds)
    check_named("endingOffsets", ending, bounds)
    whole = []
    for queue, ends in sorted(bounds.items()):
        start = _place(starting, queue, ends, EARLIEST)
        end = _place(ending, queue, ends, LATEST)
        if (found := _within(queue, start, end, ends, options.fail_on_data_loss)) is not None:
            whole.append(found)
    return whole


def starts(bounds: Mapping[MessageQueue, Bounds], options: ReadOptions, otherwise: int) -> dict[MessageQueue, int]:
    """Where a read begins in each queue, `otherwise` where its options don't say. Raises as `plan` does."""
    starting = options.starting
    check_named("startingOffsets", starting, bounds)
    found = {}
    for queue, ends in bounds.items():
        start = _place(starting, queue, ends, otherwise)
        _within(queue, start, ends.end, ends, options.fail_on_data_loss)
        found[queue] = min(max(start, ends.first), ends.end)
    return found


def cut(whole: list[Range], count_min: int, size_max: int) -> list[Range]:
    """The same offsets in at least `count_min` ranges (as far as there are offsets) of at most `size_max`; 0: no bound.

    Larger queues are cut into more pieces, and the pieces of a queue differ by one offset at most.
    """
    total = sum(each.size for each in whole)
    ranges = []
    for each in whole:
        pieces = 1
        if count_min > len(whole):
            pieces = -(-count_min * each.size // total)  # rounded up, so the sum can't fall short
        if size_max:
            pieces = max(pieces, -(-each.size // size_max))
        pieces = min(pieces, each.size)
        edges = [each.start + each.size * i // pieces for i in range(pieces + 1)]
        ranges += [Range(each.queue, low, high) for low, high in pairwise(edges)]
    return ranges


OffsetTree = dict[str, dict[str, dict[str, int]]]
"""topic -> broker -> queue id -> offset, as JSON has it: keys are texts."""


def offset_tree(offsets: Mapping[MessageQueue, int]) -> OffsetTree:
    """Offsets in the form of a stream's checkpoint; equal offsets have equal texts, as keys are in order."""
    tree: OffsetTree = {}
    for queue, offset in sorted(offsets.items()):
        tree.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    return tree


def from_tree(tree: OffsetTree) -> dict[MessageQueue, int]:
    """What `offset_tree` made a tree of."""
    return {
        MessageQueue(topic, broker, int(queue_id)): offset
        for topic, brokers in tree.items()
        for broker, queues in brokers.items()
        for queue_id, offset in queues.items()
    }


def offsets_json(offsets: Mapping[MessageQueue, int]) -> str:
    """Offsets in the form of the options `startingOffsets` and `endingOffsets`."""
    return json.dumps(offset_tree(offsets))


def check_named(option: str, offsets: "int | Offsets | None", bounds: Mapping[MessageQueue, Bounds]) -> None:
    """Raises ConfigError when a queue is named that isn't read."""
    if not isinstance(offsets, dict):
        return
    for topic, brokers in offsets.items():
        for broker, queues in brokers.items():
            for queue_id in queues:
                if MessageQueue(topic, broker, queue_id) not in bounds:
                    there = ", ".join(name(queue) for queue in sorted(bounds) if queue.topic == topic)
                    raise ConfigError(f"option {option!r} names queue {topic}/{broker}/{queue_id}; there are: {there}")


def named(numbers: "int | Offsets", queue: MessageQueue) -> int | None:
    """What is said of a queue; None when that is nothing."""
    if isinstance(numbers, int):
        return numbers
    return numbers.get(queue.topic, {}).get(queue.broker_name, {}).get(queue.queue_id)


def _place(offsets: "int | Offsets", queue: MessageQueue, ends: Bounds, otherwise: int) -> int:
    place = named(offsets, queue)
    if place is None:
        place = otherwise
    assert place != GROUP, "a group's offsets are asked for before"
    return {EARLIEST: ends.first, LATEST: ends.end}.get(place, place)


def _within(queue: MessageQueue, start: int, end: int, ends: Bounds, strict: bool) -> Range | None:
    """The part of [start, end) that exists; None when that is nothing."""
    if strict and start < min(end, ends.first):
        lost = Range(queue, start, min(end, ends.first))
        raise DataLoss(f"{lost} has expired: the queue starts at {ends.first} now. {ADVICE}")
    if strict and max(start, end) > ends.end:
        raise DataLoss(
            f"{name(queue)} ends at {ends.end}, so [{start}, {end}) isn't there: the queue was made anew or the offsets are "
            f"another queue's. {ADVICE}"
        )
    low, high = max(start, ends.first), min(end, ends.end)
    return Range(queue, low, high) if low < high else None


ADVICE = "With option failOnDataLoss=false what is left is read."
