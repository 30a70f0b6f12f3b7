"""Handlers that mostly don't wait."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from rockmq.base.clock import Clock, SystemClock
from rockmq.client.delivery import ConsumedMessage, Inbox, consumed
from rockmq.client.outcomes import Broadcast
from rockmq.client.process_queue import Cache, ProcessQueue
from rockmq.client.runs import RUN_MAX, work
from rockmq.client.stats import BOUNDS
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import decode_stored
from tests.unit.client.fakes import record


class Box:
    """A broadcast's pipeline: what fails is dropped."""

    def __init__(self, max_in_flight: int = 1000, clock: Clock | None = None) -> None:
        self.inbox = Inbox(max_in_flight, clock)
        self.cache = Cache(10_000, 1 << 20)
        self.outcome = Broadcast(self.inbox, self.cache)
        self.queue = ProcessQueue(MessageQueue("T", "a", 0), 0)

    def put(self, count: int, process_queue: ProcessQueue | None = None) -> None:
        queue = process_queue or self.queue
        stored = [each for offset in range(count) for each in decode_stored(record("T", 0, offset, b"%d" % offset), "a")]
        self.cache.add(queue, range(count), sum(each.size for each in stored))
        queue.next_offset = count
        self.inbox.put(consumed(stored, queue, self.outcome))

    async def drained(self) -> None:
        async with asyncio.timeout(10):
            while self.cache.messages:
                await asyncio.sleep(0)

    async def run(self, call: Callable[[ConsumedMessage], Awaitable[object]], workers: int = 2) -> None:
        """Work until all are finished."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(work(self.inbox, self.outcome, call, None))
            await self.drained()
            self.inbox.close()
        assert (self.inbox.in_flight, self.queue.delivered, self.queue.bytes) == (0, 0, 0)
        assert not self.queue.blocks


@pytest.fixture
def box() -> Box:
    return Box()


async def test_all_are_worked_on_in_order_and_done(box: Box) -> None:
    box.put(5 * RUN_MAX + 3)
    seen = []

    async def handle(message: ConsumedMessage) -> None:
        seen.append(message.queue_offset)

    await box.run(handle)
    assert seen == list(range(5 * RUN_MAX + 3))
    assert box.queue.offset == len(seen)
    work_done = box.queue.topic_stats.work
    assert (work_done.done, work_done.failed, sum(work_done.buckets)) == (len(seen), 0, len(seen))


async def test_those_behind_one_that_waits_go_to_others(box: Box) -> None:
    box.put(10)
    began, released = [], asyncio.Event()

    async def handle(message: ConsumedMessage) -> str | None:
        began.append(message.queue_offset)
        if message.queue_offset == 3:
            async with asyncio.timeout(10):
                await released.wait()
            return "a result that nobody wants"
        return None

    running = asyncio.create_task(box.run(handle))
    async with asyncio.timeout(10):
        while len(began) < 10:
            await asyncio.sleep(0)
    assert began == list(range(10))
    assert box.queue.offset == 3, "what is behind it is done, but the offset stays"
    assert (box.inbox.in_flight, len(box.queue.blocks), box.cache.messages) == (1, 1, 1)
    released.set()
    await running
    assert box.queue.offset == 10


async def test_one_worker_goes_on_behind_it(box: Box) -> None:
    """What was put back comes next, and in order."""
    box.put(6)
    ended = []

    async def handle(message: ConsumedMessage) -> None:
        if message.queue_offset % 2:
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
        ended.append(message.queue_offset)

    await box.run(handle, workers=1)
    assert ended == list(range(6))


@pytest.mark.parametrize("waits", [False, True])
async def test_one_that_raises_is_refused_alone(box: Box, waits: bool, caplog: pytest.LogCaptureFixture) -> None:
    box.put(9)

    async def handle(message: ConsumedMessage) -> None:
        if waits:
            await asyncio.sleep(0)
        if message.queue_offset == 4:
            raise ValueError("bad")

    await box.run(handle)
    told = [each.message for each in caplog.records if "will be delivered again" in each.message]
    assert len(told) == 1
    assert "T 0:4>" in told[0]
    assert (box.queue.topic_stats.work.done, box.queue.topic_stats.work.failed) == (8, 1)


async def test_what_can_not_be_called_is_refused(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    """Not lost, as with an error inside."""
    box.put(5)
    loop = asyncio.get_running_loop()

    def handle(message: ConsumedMessage) -> Awaitable[object]:
        if message.queue_offset == 1:
            raise TypeError("takes no argument")
        future = loop.create_future()
        future.set_result(None)
        return None if message.queue_offset == 3 else future  # type: ignore[return-value]

    await box.run(handle)
    assert (box.queue.topic_stats.work.done, box.queue.topic_stats.work.failed) == (3, 2)
    assert "takes no argument" in caplog.text


async def test_a_handler_may_end_its_message(box: Box) -> None:
    box.put(8)

    async def handle(message: ConsumedMessage) -> None:
        if message.queue_offset % 2:
            await message.ack()
        elif message.queue_offset == 2:
            await message.nack()

    await box.run(handle)
    assert (box.queue.topic_stats.work.done, box.queue.topic_stats.work.failed) == (7, 1)
    assert box.queue.offset == 8


async def test_cancelled_while_one_waits_nothing_is_lost(box: Box) -> None:
    box.put(5)
    cancelled = []

    async def handle(message: ConsumedMessage) -> None:
        if message.queue_offset == 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(message.queue_offset)
                raise

    worker = asyncio.create_task(work(box.inbox, box.outcome, handle, None))
    async with asyncio.timeout(10):
        while not box.queue.blocks:
            await asyncio.sleep(0)
    worker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await worker
    assert cancelled == [2]
    assert box.queue.offset == 2
    left = [await box.inbox.take() for _ in range(3)]
    assert [each.queue_offset for each in left if each is not None] == [2, 3, 4]


async def test_interrupted_while_it_waits(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    box.put(3)
    tries = 0

    async def handle(message: ConsumedMessage) -> None:
        nonlocal tries
        if message.queue_offset == 1:
            tries += 1
            if tries == 1:
                await asyncio.Event().wait()

    running = asyncio.create_task(box.run(handle))
    async with asyncio.timeout(10):
        while not box.queue.blocks:
            await asyncio.sleep(0)
        next(iter(box.queue.blocks)).interrupt()
    await running
    assert tries == 2
    assert "took too long" in caplog.text


async def test_other_queues_and_the_bound(box: Box) -> None:
    """A run is of one queue, and no longer than the bound on what the application has."""
    box = Box(max_in_flight=3)
    other = ProcessQueue(MessageQueue("T", "a", 1), 0)
    box.put(7)
    box.put(7, other)
    most = 0

    async def handle(message: ConsumedMessage) -> None:
        nonlocal most
        most = max(most, box.inbox.in_flight)

    await box.run(handle)
    assert (box.queue.offset, other.offset) == (7, 7)
    assert most == 3


async def test_handlers_that_block_let_others_have_turns(box: Box) -> None:
    box.put(20)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def handle(message: ConsumedMessage) -> None:
        time.sleep(0.002)  # noqa: ASYNC251 - it does block

    counting = asyncio.create_task(count())
    await box.run(handle, workers=1)
    counting.cancel()
    assert turns >= 20
    assert box.queue.topic_stats.work.buckets[0] == 0, "each takes over 1 ms"


class SlowClock(SystemClock):
    """A clock of a process that may be held up."""

    held_up = 0.0

    def monotonic(self) -> float:  # type: ignore[override]
        return self.held_up


async def test_how_long_each_has_taken_is_counted() -> None:
    """Also of those in a run, of which only the last may have taken long."""
    clock = SlowClock()
    box = Box(clock=clock)
    box.put(20)

    async def handle(message: ConsumedMessage) -> None:
        clock.held_up += {7: 0.03, 8: 0.0015}.get(message.queue_offset, 0.00001)

    await box.run(handle)
    done = box.queue.topic_stats.work
    counted = {bound: count for bound, count in zip(BOUNDS, done.buckets, strict=False) if count}
    assert counted == {0.001: 18, 0.002: 1, 0.05: 1}
    assert (done.done, done.seconds) == (20, pytest.approx(0.03 + 0.0015 + 18 * 0.00001))


async def test_what_a_run_has_not_come_to_is_left_to_others(box: Box) -> None:
    box = Box(max_in_flight=5)
    box.put(8)
    began, others = [], []

    async def handle(message: ConsumedMessage) -> None:
        began.append((message.queue_offset, box.inbox.in_flight, box.queue.delivered))
        if message.queue_offset == 1:
            await asyncio.Event().wait()

    worker = asyncio.create_task(work(box.inbox, box.outcome, handle, None))
    async with asyncio.timeout(10):
        while not box.queue.blocks:
            await asyncio.sleep(0)
    assert [offset for offset, _, _ in began] == [0, 1]
    assert all(in_flight == delivered <= 5 for _, in_flight, delivered in began)
    assert (box.inbox.in_flight, box.queue.delivered) == (1, 1)
    while (message := box.inbox.take_nowait()) is not None:
        others.append(message.queue_offset)
    assert others == [2, 3, 4, 5], "as many as the bound allows"
    worker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await worker


async def test_a_handler_that_closes_the_inbox(box: Box) -> None:
    """What is behind it stays unfinished."""
    box.put(5)
    seen = []

    async def handle(message: ConsumedMessage) -> None:
        seen.append(message.queue_offset)
        if message.queue_offset == 2:
            box.inbox.close()

    async with asyncio.timeout(10):
        await work(box.inbox, box.outcome, handle, None)
    assert seen == [0, 1, 2]
    assert (box.queue.offset, box.cache.messages, box.inbox.in_flight) == (3, 2, 0)


async def test_a_queue_that_is_lost_while_one_waits(box: Box) -> None:
    box.put(4)
    began, released = [], asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        began.append(message.queue_offset)
        if message.queue_offset == 1:
            await released.wait()

    worker = asyncio.create_task(work(box.inbox, box.outcome, handle, None))
    async with asyncio.timeout(10):
        while not box.queue.blocks:
            await asyncio.sleep(0)
    box.cache.drop(box.queue)
    box.inbox.lost(box.queue)
    released.set()
    async with asyncio.timeout(10):
        while box.queue.blocks:
            await asyncio.sleep(0)
    box.inbox.close()
    await worker
    assert began == [0, 1]
    assert (box.inbox.in_flight, box.cache.messages) == (0, 0)
