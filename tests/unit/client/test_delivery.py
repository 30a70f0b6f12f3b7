"""Messages between pulls and application: bounds, turns, and what a `process` block makes of its outcome."""

import asyncio

import pytest

from rockmq.base.errors import ClientError
from rockmq.client.delivery import ConsumedMessage, Inbox, consumed
from rockmq.client.process_queue import ProcessQueue
from rockmq.client.received import State
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import decode_stored
from tests.unit.client.fakes import record


class Outcomes:
    """Writes down what was decided."""

    def __init__(self, inbox: Inbox) -> None:
        self.inbox = inbox
        self.told: list[tuple[str, int]] = []

    def acknowledged(self, message: ConsumedMessage) -> None:
        self.told.append(("ack", message.queue_offset))
        self.inbox.ended(message.process_queue)

    async def refused(self, message: ConsumedMessage, delay_level: int, delay: float | None = None) -> None:
        wish = f"nack {delay_level}" if delay is None else f"retry {delay_level} {delay:g}"
        self.told.append((wish, message.queue_offset))
        self.inbox.ended(message.process_queue)

    def returned(self, message: ConsumedMessage) -> None:
        self.told.append(("again", message.queue_offset))
        self.inbox.ended(message.process_queue)
        self.inbox.put_first(message)


class Box:
    def __init__(self, max_in_flight: int = 10) -> None:
        self.inbox = Inbox(max_in_flight)
        self.outcomes = Outcomes(self.inbox)
        self.process_queue = ProcessQueue(MessageQueue("T", "a", 0), 0)

    def put(self, *offsets: int, process_queue: ProcessQueue | None = None) -> None:
        stored = [each for offset in offsets for each in decode_stored(record("T", 0, offset, b"x"), "a")]
        self.inbox.put(consumed(stored, process_queue or self.process_queue, self.outcomes))

    async def take(self) -> ConsumedMessage:
        async with asyncio.timeout(5):
            message = await self.inbox.take()
        assert message is not None
        return message


@pytest.fixture
def box() -> Box:
    return Box()


async def test_in_order(box: Box) -> None:
    box.put(0, 1, 2)
    assert [(await box.take()).queue_offset for _ in range(3)] == [0, 1, 2]


async def test_who_waits_gets_what_comes(box: Box) -> None:
    takers = [asyncio.create_task(box.take()) for _ in range(3)]
    await asyncio.sleep(0)
    box.put(0, 1, 2)
    assert sorted(message.queue_offset for message in await asyncio.gather(*takers)) == [0, 1, 2]


async def test_no_more_than_may_be_in_flight() -> None:
    box = Box(max_in_flight=2)
    box.put(0, 1, 2)
    first, _ = await box.take(), await box.take()
    third = asyncio.create_task(box.take())
    await asyncio.sleep(0.01)
    assert not third.done()
    await first.ack()
    assert (await third).queue_offset == 2
    assert box.inbox.in_flight == 2


async def test_a_cancelled_taker_takes_nothing(box: Box) -> None:
    first, second = asyncio.create_task(box.take()), asyncio.create_task(box.take())
    await asyncio.sleep(0.01)
    box.put(0)
    first.cancel()
    assert (await second).queue_offset == 0


async def test_takers_of_a_closed_inbox_get_nothing(box: Box) -> None:
    waiting = asyncio.create_task(box.inbox.take())
    await asyncio.sleep(0)
    box.put()
    box.inbox.close()
    assert await waiting is None
    box.put(0)
    assert await box.inbox.take() is None


async def test_a_lost_queue_takes_its_messages_along(box: Box) -> None:
    other = ProcessQueue(MessageQueue("T", "a", 1), 0)
    box.put(0, 1, 2)
    box.put(5, process_queue=other)
    held = await box.take()
    box.inbox.lost(box.process_queue)
    assert box.inbox.in_flight == 0
    assert (await box.take()).queue_offset == 5
    await held.ack()  # a handler that ends late disturbs nothing
    assert box.inbox.in_flight == 1


async def test_a_message_is_ended_once(box: Box) -> None:
    box.put(0)
    message = await box.take()
    await message.ack()
    for again in (message.ack, message.nack):
        with pytest.raises(ClientError, match="before"):
            await again()
    assert box.outcomes.told == [("ack", 0)]


async def test_process_acknowledges(box: Box) -> None:
    box.put(0)
    message = await box.take()
    async with message.process() as same:
        assert same is message
        assert len(box.process_queue.blocks) == 1
    assert not box.process_queue.blocks
    assert box.outcomes.told == [("ack", 0)]


async def test_process_refuses_and_raises(box: Box) -> None:
    box.put(0)
    message = await box.take()
    with pytest.raises(KeyError):
        async with message.process():
            raise KeyError("x")
    assert box.outcomes.told == [("nack 0", 0)]
    assert not box.process_queue.blocks


async def test_process_may_swallow(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    box.put(0)
    async with (await box.take()).process(suppress=True):
        raise KeyError("x")
    assert box.outcomes.told == [("nack 0", 0)]
    assert "delivered again" in caplog.text


async def test_process_leaves_alone_what_was_ended_inside(box: Box) -> None:
    box.put(0)
    message = await box.take()
    async with message.process():
        await message.nack(delay_level=5)
    assert box.outcomes.told == [("nack 5", 0)]


async def test_an_interrupted_message_comes_again_at_once(box: Box) -> None:
    box.put(0, 1)
    entered = asyncio.Event()

    async def work() -> None:
        async with (await box.take()).process(suppress=True):
            entered.set()
            await asyncio.sleep(10)

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert box.outcomes.told == [("again", 0)]
    message = await box.take()
    assert (message.queue_offset, message.state) == (0, State.DELIVERED)


async def test_takers_that_never_wait_leave_room_for_others(box: Box) -> None:
    box.put(*range(200))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    for _ in range(200):
        message = await box.inbox.take()
        assert message is not None
        await message.ack()
    counting.cancel()
    assert turns >= 2


def test_messages_of_the_retry_topic_get_their_own_topic_back(box: Box) -> None:
    stored = decode_stored(record("%RETRY%g", 0, 0, b"x", {"RETRY_TOPIC": "T", "TAGS": "t", "UNIQ_KEY": "id"}), "a")
    process_queue = ProcessQueue(MessageQueue("%RETRY%g", "a", 0), 0)
    (message,) = consumed(stored, process_queue, box.outcomes)
    assert (message.topic, message.tag, message.msg_id) == ("T", "t", "id")
    assert message.stored.broker_name == "a"
