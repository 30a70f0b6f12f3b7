"""Orderly consumption: turns within a queue, and the brokers' locks."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any, Unpack

import pytest

from rockmq.client import Client, ClientError, ConsumedMessage, Consumer, ConsumerOptions, Decision, locks, rebalance, share
from rockmq.client.orderly import OrderlyInbox
from rockmq.client.process_queue import ProcessQueue
from rockmq.protocol import codec, json
from rockmq.protocol.bodies.client import DirectResult
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.flags import PullFlag
from rockmq.protocol.headers.admin import ConsumeDirectly
from rockmq.protocol.headers.pull import Pull
from rockmq.protocol.message import decode_stored
from tests.unit.client.fakes import FakeBroker, FakeNames, record
from tests.unit.client.test_consumer import tell_members, until

QUEUES = [MessageQueue("T", "a", number) for number in range(4)]


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that only cost time here."""
    monkeypatch.setattr(rebalance, "UNSETTLED_SECONDS", 0.1)
    monkeypatch.setattr(rebalance, "UNLOCKED_SECONDS", 0.05)
    monkeypatch.setattr(rebalance, "GAP_SECONDS", 0.02)
    monkeypatch.setattr(share, "GIVE_UP_SECONDS", 0.05)
    monkeypatch.setattr("rockmq.client.member.START_TIMEOUT", 0.5)


class Outcomes:
    """Lets each message be ended; what was refused comes again at once."""

    def __init__(self, inbox: OrderlyInbox) -> None:
        self._inbox = inbox

    def acknowledged(self, message: ConsumedMessage) -> None:
        self._inbox.ended(message.process_queue)

    async def refused(self, message: ConsumedMessage, delay_level: int, delay: float | None = None) -> None:
        self.returned(message)

    def returned(self, message: ConsumedMessage) -> None:
        self._inbox.ended(message.process_queue)
        self._inbox.put_first(message)


class Box:
    def __init__(self, max_in_flight: int = 100) -> None:
        self.inbox = OrderlyInbox(max_in_flight)
        self.outcomes = Outcomes(self.inbox)

    def queue(self, number: int, *offsets: int) -> ProcessQueue:
        process_queue = ProcessQueue(QUEUES[number], 0)
        self.put(process_queue, *offsets)
        return process_queue

    def put(self, process_queue: ProcessQueue, *offsets: int) -> None:
        stored = [decode_stored(record("T", process_queue.queue.queue_id, offset, b"x"))[0] for offset in offsets]
        self.inbox.put([ConsumedMessage(each, process_queue, self.outcomes) for each in stored])

    def take(self) -> ConsumedMessage | None:
        return self.inbox.take_nowait()

    def all(self) -> list[tuple[int, int]]:
        """Whatever may be taken now."""
        return [(message.queue.queue_id, message.queue_offset) for message in iter(self.take, None)]


@pytest.fixture
async def box() -> Box:
    return Box()


async def test_one_message_of_each_queue(box: Box) -> None:
    box.queue(0, 0, 1, 2)
    box.queue(1, 0, 1)
    first = box.take()
    assert first is not None
    assert box.all() == [(1, 0)]
    await first.ack()
    assert box.all() == [(0, 1)]


async def test_what_is_put_back_comes_first(box: Box) -> None:
    box.queue(0, 0, 1)
    first = box.take()
    assert first is not None
    first.put_back()
    assert box.all() == [(0, 0)]


async def test_a_batch_is_one_turn_and_goes_back_in_order(box: Box) -> None:
    box.queue(0, 0, 1, 2, 3)
    batch = await box.inbox.take_batch(3)
    assert [message.queue_offset for message in batch] == [0, 1, 2]
    assert box.take() is None
    await batch[1].ack()
    assert box.take() is None
    batch[2].put_back()
    batch[0].put_back()
    assert [message.queue_offset for message in await box.inbox.take_batch(10)] == [0, 2, 3]


async def test_a_pause_holds_up_just_its_queue(box: Box) -> None:
    paused = box.queue(0, 0)
    box.queue(1, 0)
    box.inbox.pause(paused, 0.05)
    assert box.all() == [(1, 0)]
    message = await asyncio.wait_for(box.inbox.take(), 5)
    assert message is not None
    assert message.process_queue is paused


async def test_nothing_without_a_lock(box: Box) -> None:
    unlocked = ProcessQueue(QUEUES[0], 0)
    unlocked.locked_until = 0
    box.put(unlocked, 0)
    assert box.take() is None
    unlocked.locked_until = asyncio.get_running_loop().time() + 60
    box.inbox.offer(unlocked)
    unlocked.locked_until = 0
    assert box.take() is None, "it was lost after it was offered"
    unlocked.locked_until = asyncio.get_running_loop().time() + 60
    box.inbox.offer(unlocked)
    assert box.all() == [(0, 0)]


async def test_a_queue_that_comes_back_waits_for_its_old_message(box: Box) -> None:
    old = box.queue(0, 0, 1)
    held = box.take()
    assert held is not None
    box.inbox.withhold(old)
    box.inbox.lost(old)
    box.queue(0, 0, 1)
    assert box.take() is None
    assert box.inbox.in_flight == 0
    await held.ack()
    assert box.all() == [(0, 0)]
    assert box.inbox.in_flight == 1


async def test_bounds_and_close() -> None:
    box = Box(max_in_flight=2)
    for number in range(4):
        box.queue(number, 0, 1)
    assert len(box.all()) == 2
    waiting = asyncio.create_task(box.inbox.take())
    await asyncio.sleep(0)
    box.inbox.close()
    assert await waiting is None
    assert box.take() is None


# With a broker


def made(mq: Client, **options: Unpack[ConsumerOptions]) -> Consumer:
    return mq.consumer("g", "T", from_where="first", order=True, **options)


async def started(mq: Client) -> Consumer:
    member = made(mq)
    await member.start()
    return member


async def test_in_order_and_queues_side_by_side(mq: Client, broker: FakeBroker) -> None:
    for number in range(4):
        broker.stored["T", number] = [b"%d" % index for index in range(20)]
    done: dict[int, list[int]] = {number: [] for number in range(4)}
    running: set[int] = set()
    together = 0

    async def handle(message: ConsumedMessage) -> None:
        nonlocal together
        number = message.queue.queue_id
        assert number not in running, "one message of a queue at a time"
        running.add(number)
        together = max(together, len(running))
        await asyncio.sleep(0.001)
        running.discard(number)
        if message.queue_offset == 7 and message.reconsume_times == 0:
            raise ValueError("once")
        done[number].append(message.queue_offset)

    async with made(mq, suspend=0.01) as member:
        assert {queue for queue in broker.locks if queue.topic == "T"} == set(QUEUES)
        run = asyncio.create_task(member.run(handle, 8))
        await until(lambda: all(len(each) == 20 for each in done.values()))
    await run
    assert done == {number: list(range(20)) for number in range(4)}
    assert together == 4
    assert {broker.offsets["g", "T", number] for number in range(4)} == {20}
    assert not broker.locks, "leaving unlocks"


async def test_a_stalled_handler_holds_up_just_its_queue(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = broker.stored["T", 1] = [b"x"] * 5
    done: list[int] = []

    async def handle(message: ConsumedMessage) -> None:
        if message.queue.queue_id == 0:
            await asyncio.sleep(100)
        done.append(message.queue_offset)

    async with made(mq, drain_timeout=0) as member:
        run = asyncio.create_task(member.run(handle))
        await until(lambda: done == [0, 1, 2, 3, 4])
    run.cancel()
    await asyncio.wait([run])
    assert broker.offsets["g", "T", 0] == 0


async def test_after_the_last_try_the_retry_topic_has_it(mq: Client, broker: FakeBroker, names: FakeNames) -> None:
    names.add("%RETRY%g", broker, queues=1)
    broker.stored["T", 0] = [b"bad", b"good"]
    tries: list[tuple[bytes, int]] = []

    async def handle(message: ConsumedMessage) -> None:
        if message.topic == "T":
            tries.append((message.body, message.reconsume_times))
            if message.body == b"bad":
                raise ValueError("always")

    async with made(mq, max_reconsume_times=2, suspend=0.01) as member:
        run = asyncio.create_task(member.run(handle))
        await until(lambda: (b"good", 0) in tries)
        await member.commit()
        assert broker.offsets["g", "T", 0] == 2
    await run
    assert tries == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
    (header,) = (each for each in broker.headers if each.topic == "%RETRY%g")
    assert (header.reconsume_times, header.max_reconsume_times) == (3, 2), "over the limit: a dead letter"


async def test_retry_says_how_long_the_queue_waits(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"]
    loop = asyncio.get_running_loop()
    async with made(mq, suspend=30.0) as member:
        message = await anext(member)
        begun = loop.time()
        await message.retry(0.1)
        again = await asyncio.wait_for(anext(member), 5)
        assert loop.time() - begun >= 0.1
        assert (again.queue_offset, again.reconsume_times) == (0, 1)
        await again.ack()
    assert broker.count(RequestCode.CONSUMER_SEND_MSG_BACK) == 0


async def test_dead_letter(mq: Client, broker: FakeBroker, names: FakeNames) -> None:
    names.add("%RETRY%g", broker, queues=1)
    broker.stored["T", 0] = [b"bad", b"good"]
    async with made(mq) as member:
        await (await anext(member)).dead_letter()
        (good,) = [message async for message in first(member, 1)]
        assert good.body == b"good"
    (header,) = (each for each in broker.headers if each.topic == "%RETRY%g")
    assert (header.reconsume_times, header.max_reconsume_times) == (1, 0)


async def first(member: Consumer, count: int) -> AsyncIterator[ConsumedMessage]:
    """So many messages of topic T, acknowledged."""
    while count:
        message = await anext(member)
        await message.ack()
        if message.topic == "T" and not message.queue.topic.startswith("%"):
            count -= 1
            yield message


async def test_queues_that_others_have_locked_are_taken_when_they_are_free(mq: Client, broker: FakeBroker) -> None:
    broker.locks[QUEUES[1]] = "somebody"
    broker.stored["T", 1] = [b"x"]
    member = await started(mq)
    assert QUEUES[1] not in member.queues
    assert {QUEUES[0], QUEUES[2], QUEUES[3]} <= set(member.queues)
    del broker.locks[QUEUES[1]]
    await until(lambda: QUEUES[1] in member.queues)
    assert broker.locks[QUEUES[1]] == mq.client_id
    assert (await asyncio.wait_for(anext(member), 5)).queue == QUEUES[1]


async def test_locks_are_renewed_and_a_lost_one_ends_its_queue(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "RENEW_SECONDS", 0.1)
    broker.stored["T", 0] = [b"x"] * 3
    member = await started(mq)
    message = await anext(member)
    before = broker.count(RequestCode.LOCK_BATCH_MQ)
    await until(lambda: broker.count(RequestCode.LOCK_BATCH_MQ) >= before + 3)
    broker.locks[QUEUES[0]] = "somebody"
    await until(lambda: QUEUES[0] not in member.queues)
    await message.ack()
    broker.offsets["g", "T", 0] = 2  # how far the other one came
    del broker.locks[QUEUES[0]]
    again = await asyncio.wait_for(anext(member), 5)
    assert (again.queue, again.queue_offset) == (QUEUES[0], 2), "what was done here meanwhile isn't stored"


async def test_a_lock_that_can_not_be_renewed_runs_out(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "RENEW_SECONDS", 0.1)
    monkeypatch.setattr(locks, "AGAIN_SECONDS", 0.1)
    monkeypatch.setattr(locks, "VALID_SECONDS", 0.3)
    monkeypatch.setattr(locks, "TIMEOUT", 0.1)
    broker.stored["T", 0] = [b"x"] * 3
    member = await started(mq)
    message = await anext(member)
    answer = broker._dispatch._handlers[RequestCode.LOCK_BATCH_MQ]
    broker._dispatch._handlers[RequestCode.LOCK_BATCH_MQ] = (answer[0], lambda *_: None)
    (process_queue,) = (each for queue, each in member._share.rebalancer.queues.items() if queue == QUEUES[0])
    await until(lambda: process_queue.locked_until < asyncio.get_running_loop().time())
    await message.ack()
    assert await member.fetch(timeout=0.2) == [], "nothing of a queue that others may have"
    broker._dispatch._handlers[RequestCode.LOCK_BATCH_MQ] = answer
    assert (await asyncio.wait_for(anext(member), 5)).queue_offset == 1


async def test_a_queue_is_given_up_when_its_handler_has_ended(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 3] = [b"x"] * 3
    go_on = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        await go_on.wait()

    member = await started(mq)
    run = asyncio.create_task(member.run(handle))
    await until(lambda: member._inbox.in_flight == 1)
    broker.members = sorted([mq.client_id, "zzz"])  # it gets queues 2 and 3
    await tell_members(broker)
    await until(lambda: QUEUES[2] not in broker.locks)
    await asyncio.sleep(0.3)
    assert broker.locks[QUEUES[3]] == mq.client_id, "locked as long as it is worked on"
    assert QUEUES[3] in member.queues
    go_on.set()
    await until(lambda: QUEUES[3] not in broker.locks)
    assert broker.offsets["g", "T", 3] == 1
    await until(lambda: QUEUES[3] not in member.queues)  # when the broker's answer is here
    await member.close()
    await run


async def test_a_handler_that_does_not_end_is_broken_off(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(share, "GIVE_UP_ORDERLY_SECONDS", 0.3)
    broker.stored["T", 3] = [b"x"] * 3
    told: list[BaseException] = []
    member = await started(mq)

    async def work() -> None:
        try:
            async with (await anext(member)).process():
                await asyncio.sleep(100)
        except TimeoutError as error:
            told.append(error)

    working = asyncio.create_task(work())
    await until(lambda: member._inbox.in_flight == 1)
    broker.members = sorted([mq.client_id, "zzz"])
    await tell_members(broker)
    await working
    assert len(told) == 1
    await until(lambda: QUEUES[3] not in broker.locks)
    assert broker.offsets["g", "T", 3] == 0


async def test_queues_come_back_while_they_leave(mq: Client, broker: FakeBroker) -> None:
    """The old message is still worked on when the queue is ours again: the new one waits for it."""
    broker.stored["T", 3] = [b"x"] * 3
    go_on = asyncio.Event()
    begun: list[int] = []
    running = 0

    async def handle(message: ConsumedMessage) -> None:
        nonlocal running
        running += 1
        assert running == 1
        begun.append(message.queue_offset)
        await go_on.wait()
        running -= 1

    member = await started(mq)
    run = asyncio.create_task(member.run(handle))
    await until(lambda: begun == [0])
    broker.members = sorted([mq.client_id, "zzz"])
    await tell_members(broker)
    await until(lambda: QUEUES[2] not in broker.locks)
    broker.members = [mq.client_id]
    await tell_members(broker)
    await until(lambda: QUEUES[2] in broker.locks)
    assert begun == [0]
    go_on.set()
    await until(lambda: begun == [0, 1, 2])
    await member.close()
    await run
    assert broker.offsets["g", "T", 3] == 3


async def test_a_lock_whose_answer_was_lost_is_given_up(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker may have granted it: others would wait for a minute."""
    monkeypatch.setattr(locks, "TIMEOUT", 0.1)
    handler = broker._handlers[RequestCode.LOCK_BATCH_MQ]

    def silent(*request: Any) -> None:
        handler(*request)

    broker.handle(RequestCode.LOCK_BATCH_MQ, silent)
    member = await started(mq)
    assert (member.queues, len(broker.locks)) == ([], 4)
    broker.members = sorted([mq.client_id, "zzz"])
    await tell_members(broker)
    await until(lambda: set(broker.locks) == set(QUEUES[:2]))
    await member.close()
    assert not broker.locks, "those that it still asked for, too"


# Commits by hand


async def test_only_a_commit_moves_the_offset(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"%d" % number for number in range(6)]
    async with made(mq, auto_commit=False) as member:
        for number in range(4):
            message = await anext(member)
            if number == 2:
                await message.commit()
            else:
                await message.ack()
        assert positions(member) == 3
        await member.commit()
        assert broker.offsets["g", "T", 0] == 3
    assert broker.offsets["g", "T", 0] == 3, "closing commits nothing"
    async with made(mq, auto_commit=False) as member:
        assert (await anext(member)).queue_offset == 3


def positions(member: Consumer) -> int:
    return member.status("T")[QUEUES[0]]


async def test_a_rollback_begins_again_behind_the_last_commit(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = broker.stored["T", 1] = [b"%d" % number for number in range(5)]
    done: list[int] = []
    others: list[int] = []
    rolled_back = False

    async def handle(message: ConsumedMessage) -> None:
        nonlocal rolled_back
        if message.queue.queue_id:
            others.append(message.queue_offset)
            return
        done.append(message.queue_offset)
        if message.queue_offset == 1:
            await message.commit()
        elif message.queue_offset == 3 and not rolled_back:
            rolled_back = True
            await message.rollback(0.05)
        elif message.queue_offset == 4:
            await message.commit()

    async with made(mq, auto_commit=False) as member:
        run = asyncio.create_task(member.run(handle))
        await until(lambda: done == [0, 1, 2, 3, 2, 3, 4] and len(others) == 5)
        assert positions(member) == 5
    await run
    assert (broker.offsets["g", "T", 0], broker.offsets["g", "T", 1]) == (5, 0)


async def test_one_that_fails_comes_again_alone(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"] * 3
    got: list[tuple[int, int]] = []

    async def handle(message: ConsumedMessage) -> None:
        got.append((message.queue_offset, message.reconsume_times))
        if got == [(0, 0), (1, 0)]:
            raise ValueError("once")

    async with made(mq, auto_commit=False, suspend=0.01) as member:
        run = asyncio.create_task(member.run(handle))
        await until(lambda: len(got) == 4)
    await run
    assert got == [(0, 0), (1, 0), (1, 1), (2, 0)]
    assert broker.offsets["g", "T", 0] == 0


async def test_batches_are_committed_and_rolled_back_as_a_whole(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"] * 6
    batches: list[list[int]] = []

    async def handle(batch: list[ConsumedMessage]) -> None:
        batches.append([message.queue_offset for message in batch])
        match len(batches):
            case 1:
                await batch[1].commit()  # the third is only acknowledged
            case 2:
                await batch[0].rollback(0.01)
            case 4:
                await batch[-1].commit()

    async with made(mq, auto_commit=False) as member:
        await until(lambda: member._cache.messages == 6)
        run = asyncio.create_task(member.run_batches(handle, 3, 1))
        await until(lambda: len(batches) == 4 and member._cache.messages == 0)
        assert positions(member) == 6
    await run
    assert batches == [[0, 1, 2], [3, 4, 5], [2, 3, 4], [5]]


async def test_what_is_not_committed_is_bounded_and_told(
    mq: Client, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.stored["T", 0] = [b"%d" % number for number in range(20)]
    async with made(mq, auto_commit=False, queue_messages_max=5, pull_batch=5) as member:
        for number in range(5):
            assert "until some of what is acknowledged" not in caplog.text
            message = await anext(member)
            assert message.queue_offset == number
            await message.ack()
        assert "until some of what is acknowledged" in caplog.text
        assert await member.fetch(timeout=0.1) == []
        with pytest.raises(ClientError, match="before"):
            await message.commit()
    assert broker.offsets["g", "T", 0] == 0


async def test_a_queue_that_is_lost_takes_its_uncommitted_messages_along(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 3] = [b"x"] * 3
    member = made(mq, auto_commit=False)
    await member.start()
    await (await anext(member)).ack()
    held = await anext(member)
    broker.members = sorted([mq.client_id, "zzz"])
    await tell_members(broker)
    await until(lambda: QUEUES[3] not in broker.locks)
    await held.commit()
    assert member._outcome._uncommitted == {}  # type: ignore[attr-defined]
    await member.close()
    assert broker.offsets["g", "T", 3] == 0


async def test_others_have_nothing_to_commit(mq: Client, broker: FakeBroker) -> None:
    with pytest.raises(ClientError, match="order=True"):
        mq.consumer("g", "T", auto_commit=False)
    broker.stored["T", 0] = [b"x"]
    async with made(mq) as member:
        message = await anext(member)
        for end in (message.commit, message.rollback):
            with pytest.raises(ClientError, match="auto_commit=False"):
                await end()
        await message.ack()


async def test_who_has_an_older_delivery_cannot_end_the_next(mq: Client, broker: FakeBroker) -> None:
    """A handler refuses its message and goes on; meanwhile it comes again."""
    broker.stored["T", 0] = [b"x"]
    async with made(mq) as member:
        first = await anext(member)
        async with first.process():
            await first.retry(0.01)
            again = await anext(member)
        with pytest.raises(ClientError, match="before"):
            await first.ack()
        assert positions(member) == 0
        await again.ack()
        assert positions(member) == 1


async def test_a_pull_that_a_broker_is_slow_about_takes_no_offset_back(mq: Client, broker: FakeBroker) -> None:
    """Apache's stores what pulls tell on other threads than what is told by itself."""
    broker.stored["T", 0] = [b"x"] * 3
    slow: list[Pull] = []
    broker.on_pull = lambda header, request, connection: slow.append(header)
    async with made(mq, pull_batch=1) as member:
        for _ in range(3):
            await (await anext(member)).ack()
    for header in slow:
        if header.sys_flag & PullFlag.COMMIT_OFFSET:
            broker.offsets["g", header.topic, header.queue_id] = header.commit_offset
    assert broker.offsets["g", "T", 0] == 3


@pytest.mark.parametrize("result", ["COMMIT", "ROLLBACK"])
async def test_an_administrator_is_told_what_was_done_by_hand(mq: Client, broker: FakeBroker, result: str) -> None:
    async def handle(message: ConsumedMessage) -> None:
        await (message.commit() if result == "COMMIT" else message.rollback())

    async with made(mq, auto_commit=False) as member:
        run = asyncio.create_task(member.run(handle, 1))
        (connection,) = broker.connections
        header = ConsumeDirectly(consumer_group="g", client_id=mq.client_id, msg_id="1", broker_name="a")
        request = codec.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, record("T", 0, 9, b"x"))
        found = json.decode((await connection.invoke(request, 3)).body, DirectResult, "result")
    await run
    assert (found.consume_result, found.order, found.auto_commit) == (f"CR_{result}", True, False)
    assert broker.offsets["g", "T", 0] == 0


async def test_a_fault_does_not_end_the_renewing_of_locks(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(locks, "RENEW_SECONDS", 0.05)
    faults = [ValueError("ours"), ValueError("ours again")]
    offer = OrderlyInbox.offer

    def faulty(inbox: OrderlyInbox, process_queue: ProcessQueue) -> None:
        if faults:
            raise faults.pop()
        offer(inbox, process_queue)

    member = await started(mq)
    monkeypatch.setattr(OrderlyInbox, "offer", faulty)
    await until(lambda: not faults)
    renewed = broker.count(RequestCode.LOCK_BATCH_MQ)
    await until(lambda: broker.count(RequestCode.LOCK_BATCH_MQ) > renewed)
    assert caplog.text.count("renewing the locks of group g failed") == 2
    await member.close()


# Commits by what handlers return


async def test_functions_decide_by_what_they_return(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"%d" % number for number in range(5)]
    done: list[int] = []

    def handle(message: ConsumedMessage) -> Decision | None:
        assert threading.current_thread() is not threading.main_thread()
        done.append(message.queue_offset)
        if done == [0, 1, 2]:
            return Decision.ROLLBACK
        return Decision.COMMIT if message.queue_offset in (0, 3) else Decision.UNKNOWN if message.queue_offset == 4 else None

    async with made(mq, auto_commit=False, suspend=0.01) as member:
        run = asyncio.create_task(member.run(handle))
        await until(lambda: done == [0, 1, 2, 1, 2, 3, 4] and positions(member) == 4)
    await run
    assert broker.offsets["g", "T", 0] == 4


async def test_coroutines_and_batches_decide_by_what_they_return(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"] * 4
    batches: list[list[int]] = []

    async def handle(batch: list[ConsumedMessage]) -> Decision:
        batches.append([message.queue_offset for message in batch])
        return Decision.ROLLBACK if len(batches) == 1 else Decision.COMMIT

    async with made(mq, auto_commit=False, suspend=0.01) as member:
        await until(lambda: member._cache.messages == 4)
        run = asyncio.create_task(member.run_batches(handle, 2, 1))
        await until(lambda: len(batches) == 3 and positions(member) == 4)
    await run
    assert batches == [[0, 1], [0, 1], [2, 3]]


async def test_a_function_that_is_cancelled_has_decided(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"]
    begun, go_on = threading.Event(), threading.Event()

    def handle(message: ConsumedMessage) -> Decision:
        begun.set()
        go_on.wait(10)
        return Decision.COMMIT

    async with made(mq, auto_commit=False) as member:
        run = asyncio.create_task(member.run(handle, 1))
        await until(begun.is_set)
        run.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert positions(member) == 1


def in_a_process(message: ConsumedMessage) -> Decision | None:
    with pytest.raises(ClientError, match="copy of the message"):
        asyncio.run(message.commit())
    return Decision.COMMIT if message.body == b"2" else None


async def test_processes_decide_by_what_they_return(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"%d" % number for number in range(4)]
    async with made(mq, auto_commit=False) as member:
        run = asyncio.create_task(member.run(in_a_process, 1, workers="processes"))
        await until(lambda: positions(member) == 3, 60)
    await run
