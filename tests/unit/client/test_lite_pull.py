"""Lite pull consumers, with a broker that does as told, and with a real one."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

import pytest

from rockmq import embedded
from rockmq.base.clock import SystemClock
from rockmq.client import Client, ClientClosed, ClientError, Message, MessageQueue, StoredMessage
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.flags import PullFlag
from rockmq.protocol.headers.pull import Pull
from rockmq.remoting.connection import Connection
from tests.unit.client.fakes import FakeBroker, FakeNames, empty

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
