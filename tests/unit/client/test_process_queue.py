"""The offset of a queue whose messages finish in any order."""

import random

from hypothesis import given
from hypothesis import strategies as st

from rockmq.client import process_queue as limits
from rockmq.client.process_queue import Cache, ProcessQueue
from rockmq.protocol.bodies.common import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


def filled(*offsets: int, size: int = 10) -> ProcessQueue:
    process_queue = ProcessQueue(QUEUE, offsets[0])
    for offset in offsets:
        process_queue.add([offset], size)
    process_queue.next_offset = offsets[-1] + 1
    return process_queue


def test_offset_waits_for_the_oldest() -> None:
    process_queue = filled(5, 6, 9)
    process_queue.finish([6], 10)
    process_queue.finish([9], 10)
    assert process_queue.offset == 5
    assert process_queue.count == 1
    process_queue.finish([5], 10)
    assert process_queue.offset == 10
    assert (process_queue.count, process_queue.bytes, process_queue.span) == (0, 0, 0)


def test_gaps_of_filtered_messages_are_passed() -> None:
    process_queue = filled(5, 9)
    process_queue.finish([5], 10)
    assert process_queue.offset == 9


def test_an_empty_queue_stands_where_the_next_pull_begins() -> None:
    process_queue = ProcessQueue(QUEUE, 7)
    assert process_queue.offset == 7
    process_queue.next_offset = 20  # all filtered out
    assert process_queue.offset == 20


@given(st.lists(st.integers(1, 5), min_size=1, max_size=80), st.randoms(use_true_random=False))
def test_the_offset_is_the_smallest_unfinished(steps: list[int], order: random.Random) -> None:
    offsets = [sum(steps[: index + 1]) for index in range(len(steps))]
    process_queue = filled(*offsets)
    left = set(offsets)
    shuffled = offsets.copy()
    order.shuffle(shuffled)
    before = process_queue.offset
    for offset in shuffled:
        process_queue.finish([offset], 10)
        left.remove(offset)
        assert process_queue.offset == (min(left) if left else offsets[-1] + 1)
        assert process_queue.offset >= before
        assert process_queue.count == len(left)
        assert process_queue.bytes == 10 * len(left)
        before = process_queue.offset


def test_bounds_of_one_queue() -> None:
    assert filled(*range(limits.MESSAGES_MAX)).full
    assert not filled(*range(limits.MESSAGES_MAX - 1)).full
    assert filled(0, size=limits.BYTES_MAX).full
    assert filled(0, limits.SPAN_MAX).full
    assert not filled(0, limits.SPAN_MAX - 1).full


async def test_room_comes_when_a_queue_is_worked_off() -> None:
    cache = Cache(10_000, 1 << 30)
    process_queue = ProcessQueue(QUEUE, 0)
    for offset in range(limits.MESSAGES_MAX):
        cache.add(process_queue, [offset], 1)
    room = cache.room(process_queue)
    assert room is not None
    assert not room.done()
    cache.finish(process_queue, [500], 1)
    await room
    assert cache.room(process_queue) is None


async def test_room_over_all_queues() -> None:
    cache = Cache(3, 1 << 30)
    first, second = ProcessQueue(QUEUE, 0), ProcessQueue(MessageQueue("T", "b", 1), 0)
    for offset in range(3):
        cache.add(first, [offset], 1)
    waiting = cache.room(second)
    assert waiting is not None
    cache.finish(first, [1], 1)
    await waiting
    assert cache.messages == 2


async def test_a_dropped_queue_gives_its_room_back_once() -> None:
    cache = Cache(3, 1 << 30)
    process_queue = ProcessQueue(QUEUE, 0)
    for offset in range(3):
        cache.add(process_queue, [offset], 5)
    waiting = cache.room(process_queue)
    assert waiting is not None
    cache.drop(process_queue)
    process_queue.dropped = True
    await waiting
    cache.finish(process_queue, [0], 5)  # a handler that ends late
    assert (cache.messages, cache.bytes) == (0, 0)
