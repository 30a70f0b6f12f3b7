"""Lite pull consumers, with a broker that does as told, and with a real one."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import get_type_hints

import pytest

from rockmq import embedded
from rockmq.base.clock import SystemClock
from rockmq.client import Client, ClientClosed, ClientError, Message, MessageQueue, StoredMessage, allocate, offsets
from rockmq.client.lite_pull_options import LitePullOptions, Options
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.flags import PullFlag
from rockmq.protocol.headers.offset import UpdateConsumerOffset
from rockmq.protocol.headers.pull import Pull
from rockmq.remoting.connection import Connection
from tests.unit.client.fakes import FakeBroker, FakeNames, empty, pulled, record

QUEUES = [MessageQueue("T", "a", number) for number in range(4)]


class LaterClock(SystemClock):
    """The real one, some time ahead."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@pytest.fixture
async def later() -> LaterClock:
    return LaterClock()


@pytest.fixture
async def real(later: LaterClock) -> AsyncIterator[Client]:
    """A client of a real broker with a topic `orders` of two queues."""
    async with (
        embedded.serve(flush="ASYNC_FLUSH") as served,
        Client(served.namesrv, clock=later) as client,
    ):
        await client.create_topic("orders", 2)
        yield client


async def fill(mq: Client, counts: list[int]) -> list[MessageQueue]:
    queues = await mq.queues("orders")
    async with mq.producer("pg") as producer:
        for queue, count in zip(queues, counts, strict=True):
            for number in range(count):
                await producer.send(Message("orders", b"%d" % number), queue=queue)
    return queues


async def test_pulls_say_what_they_want_and_commit_nothing(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 1] = [b"x"]
    async with mq.lite_pull_consumer("g", {"T": "a || b"}, from_where="first") as consumer:
        async with asyncio.timeout(10):
            while len(broker.pulls) < 5:
                await asyncio.sleep(0.01)
        assert broker.pulls[0].sys_flag == PullFlag.SUSPEND | PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL
        assert (broker.pulls[0].subscription, broker.pulls[0].expression_type) == ("a || b", "TAG")
        assert await consumer.poll(0.01) == [], "it has no tag"
        ((beat,),) = (beat.consumer_data_set for beat in broker.beats[-1:])
        assert beat.consume_type == "CONSUME_ACTIVELY"
        assert [data.topic for data in beat.subscription_data_set] == ["T"]
    assert not broker.count(RequestCode.PULL_MESSAGE)


async def test_a_queue_goes_on_where_the_broker_says(mq: Client, broker: FakeBroker) -> None:
    def moved(header: Pull, request: Command, connection: Connection) -> object:
        return empty(request, ResponseCode.PULL_OFFSET_MOVED, 5) if header.queue_offset == 0 else None

    broker.on_pull = moved
    broker.stored["T", 0] = [b"%d" % number for number in range(7)]
    async with mq.lite_pull_consumer("g", from_where="first") as consumer:
        await consumer.assign(QUEUES[:1])
        assert [message.body for message in await consumer.poll()] == [b"5", b"6"]


async def test_no_more_is_held_than_said(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = broker.stored["T", 1] = [b"x"] * 100

    def held() -> list[int]:
        return [stats.cached for stats in consumer.queue_stats()]

    bounds = {"queue_messages_max": 5}, {"messages_max": 5}, {"queue_bytes_max": 5 * 100}
    for number, bound in enumerate(bounds):
        broker.pulls.clear()
        consumer = mq.lite_pull_consumer(f"g{number}", from_where="first", **bound)  # type: ignore[arg-type]
        broker.on_pull = some
        async with consumer:
            await consumer.assign(QUEUES[:2])
            async with asyncio.timeout(10):
                while sum(held()) < (5 if "messages_max" in bound else 10):
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            assert max(held()) <= 6
            assert sum(held()) <= (6 if "messages_max" in bound else 12)
            found: list[StoredMessage] = []
            while len(found) < 200:
                found += await consumer.poll()


def some(header: Pull, request: Command, connection: Connection) -> object:
    """A message at a time, of some hundred bytes."""
    if header.queue_id > 1 or header.queue_offset == 100:
        return None
    return pulled(request, header.queue_offset, [record("T", header.queue_id, header.queue_offset, b"x" * 10)], 100)


async def test_a_strategy_shares_the_queues(mq: Client, broker: FakeBroker) -> None:
    broker.members = sorted([mq.client_id, "zzz"])
    async with mq.lite_pull_consumer("g", ["T"], allocate=allocate.in_a_circle) as consumer:
        assert [queue.queue_id for queue in consumer.queues] == [0, 2]


async def test_a_paused_queue_isnt_pulled(mq: Client, broker: FakeBroker) -> None:
    async with mq.lite_pull_consumer("g", from_where="first") as consumer:
        await consumer.assign(QUEUES[:1])
        consumer.pause(QUEUES[0])
        await asyncio.sleep(0.02)
        assert not broker.pulls
        broker.stored["T", 0] = [b"x"]
        consumer.resume(QUEUES[0])
        assert [message.body for message in await consumer.poll()] == [b"x"]
        with pytest.raises(ClientError, match="isn't assigned"):
            consumer.pause(QUEUES[1])


async def test_a_poll_that_is_cancelled_takes_nothing(real: Client) -> None:
    async with real.lite_pull_consumer("g", ["orders"], from_where="first") as consumer:
        found: list[StoredMessage] = []
        sending = asyncio.create_task(fill(real, [50, 50]))
        while len(found) < 100:
            try:
                async with asyncio.timeout(0.001):
                    found += await consumer.poll(max_messages=3)
            except TimeoutError:
                continue
        await sending
    for queue_id in (0, 1):
        assert [message.queue_offset for message in found if message.queue_id == queue_id] == list(range(50))


async def test_an_assignment_that_is_cancelled_gives_up_what_it_was_giving_up(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"0"]
    broker.stored["T", 1] = [b"1"]
    commit = broker._update
    async with mq.lite_pull_consumer("g", from_where="first") as consumer, asyncio.timeout(20):
        await consumer.assign(QUEUES[:2])
        while len([each for each in consumer.queue_stats() if each.cached]) < 2:
            await asyncio.sleep(0.01)
        consumer.pause(QUEUES[1])
        told = asyncio.Event()
        broker.handle(RequestCode.UPDATE_CONSUMER_OFFSET, lambda *asked: told.set())
        assigning = asyncio.create_task(consumer.assign(QUEUES[:1]))
        await told.wait()
        assigning.cancel()
        await asyncio.sleep(0.01)
        assert not assigning.done(), "it waits for what it commits"
        assigning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await assigning
        assert (consumer.queues, consumer.paused) == (QUEUES[:1], [])
        broker.handle(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        await consumer.assign(QUEUES[:2])
        found: list[bytes] = []
        while len(found) < 2:
            found += [message.body for message in await consumer.poll()]
    assert sorted(found) == [b"0", b"1"]


async def test_an_assignment_that_is_cancelled_commits_what_was_polled(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "ASKING_MAX", 1)  # the second queue has its turn behind the first
    broker.stored["T", 0] = broker.stored["T", 1] = [b"0", b"1"]
    commit = broker._update
    async with mq.lite_pull_consumer("g", from_where="first") as consumer, asyncio.timeout(20):
        await consumer.assign(QUEUES[:2])
        while len([each for each in consumer.queue_stats() if each.cached]) < 2:
            await asyncio.sleep(0.01)
        for _ in range(2):
            assert [message.body for message in await consumer.poll(max_messages=1)] == [b"0"]
        await consumer.poll(timeout=0, max_messages=1)
        told: asyncio.Future[tuple[UpdateConsumerOffset, Command, Connection]] = asyncio.get_running_loop().create_future()
        broker.handle(RequestCode.UPDATE_CONSUMER_OFFSET, lambda *asked: told.set_result(asked))
        assigning = asyncio.create_task(consumer.assign([]))
        header, request, connection = await told
        assigning.cancel()
        await asyncio.sleep(0.01)
        broker.handle(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        connection.answer(request, commit(header, request, connection))
        with pytest.raises(asyncio.CancelledError):
            await assigning
        assert {broker.offsets["g", "T", queue_id] for queue_id in (0, 1)} == {1}
        assert consumer.queues == []


async def test_what_a_broker_may_have_lost_is_committed_again(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"]
    async with mq.lite_pull_consumer("g", auto_commit=False, from_where="first") as consumer, asyncio.timeout(20):
        await consumer.assign(QUEUES[:1])
        assert len(await consumer.poll()) == 1
        await consumer.commit()
        assert broker.offsets["g", "T", 0] == 1
        await broker.stop()
        broker.offsets.clear()
        beats = broker.count(RequestCode.HEART_BEAT)
        await broker.start()
        while broker.count(RequestCode.HEART_BEAT) == beats:
            await asyncio.sleep(0.01)
        await consumer.commit()
    assert broker.offsets["g", "T", 0] == 1


async def test_one_task_polls(real: Client) -> None:
    async with real.lite_pull_consumer("g", ["orders"]) as consumer:
        waiting = asyncio.create_task(consumer.poll(None))
        await asyncio.sleep(0.01)
        with pytest.raises(ClientError, match="another task is polling"):
            await consumer.poll()
    assert await waiting == [], "a poll that waits ends with the consumer"
    with pytest.raises(ClientClosed):
        await consumer.poll()


async def test_a_poll_commits_what_the_polls_before_it_returned(real: Client, later: LaterClock) -> None:
    queue, _ = await fill(real, [10, 0])
    async with real.lite_pull_consumer("g", ["orders"], from_where="first") as consumer:
        assert len(await consumer.poll(max_messages=4)) == 4
        assert len(await consumer.poll(max_messages=3)) == 3
        assert await consumer.committed(queue) is None, "it isn't time yet"
        later.ahead = 5.0
        assert len(await consumer.poll(max_messages=2)) == 2
        async with asyncio.timeout(10):
            while await consumer.committed(queue) != 7:
                await asyncio.sleep(0.01)


async def test_a_queue_that_goes_to_another_is_committed_without_the_last_poll(real: Client) -> None:
    await fill(real, [4, 4])
    async with (
        Client(real._instance.names.addresses) as second,
        real.lite_pull_consumer("g", ["orders"], from_where="first") as one,
    ):
        first = [await one.poll(max_messages=4) for _ in range(2)]
        by_queue = {messages[0].queue_id: [each.queue_offset for each in messages] for messages in first}
        assert by_queue == {0: [0, 1, 2, 3], 1: [0, 1, 2, 3]}
        async with second.lite_pull_consumer("g", ["orders"], from_where="first") as other:
            async with asyncio.timeout(30):
                while not other.queues:
                    await asyncio.sleep(0.01)
            (moved,) = other.queues
            last = first[1][0].queue_id
            assert other.position(moved) == (0 if moved.queue_id == last else 4)
            with pytest.raises(ClientError, match="isn't assigned"):
                await one.seek(moved, 0)


async def test_wrong_use_is_told(mq: Client, names: FakeNames) -> None:
    with pytest.raises(ClientError, match="auto_commit_interval"):
        mq.lite_pull_consumer("g", auto_commit_interval=0.1)
    for bound in ("queue_messages_max", "queue_bytes_max", "messages_max"):
        with pytest.raises(ClientError, match=f"{bound}=0 is out of range"):
            mq.lite_pull_consumer("g", **{bound: 0})  # type: ignore[arg-type]
    assert get_type_hints(LitePullOptions) == get_type_hints(Options)
    consumer = mq.lite_pull_consumer("g")
    with pytest.raises(ClientClosed, match="not started"):
        await consumer.poll()
    async with consumer:
        with pytest.raises(ClientError, match="max_messages"):
            await consumer.poll(max_messages=0)
        with pytest.raises(ClientError, match="time zone"):
            await consumer.seek_to_time(datetime(2026, 1, 1))  # noqa: DTZ001
        with pytest.raises(ClientClosed, match="once"):
            await consumer.start()
