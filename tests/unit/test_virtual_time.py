"""What takes hours takes a moment: the tests a user would write with `rockmq_time`."""

import asyncio
import time
from datetime import timedelta

import pytest

from rockmq.base.clock import SystemClock
from rockmq.base.virtual_time import VirtualTime
from rockmq.client import Client, Decision, Message, SendReceipt, StoredMessage
from rockmq.protocol import topics

PATIENCE = 20.0
"""Seconds of real time for what takes milliseconds, on a machine that is busy."""


async def test_a_delay_of_36_hours(rockmq_time: VirtualTime, rockmq_client: Client) -> None:
    await rockmq_client.create_topic("orders", 1)
    async with (
        rockmq_client.producer() as producer,
        rockmq_client.consumer("cg", ["orders"], from_where="first") as consumer,
    ):
        await producer.send(Message("orders", b"later"), delay=timedelta(hours=36))
        await rockmq_time.advance(timedelta(hours=35, minutes=59))
        assert await consumer.fetch(timeout=0.2) == []
        await rockmq_time.advance(timedelta(minutes=1, seconds=1))
        (message,) = await consumer.fetch(timeout=PATIENCE)
        await message.ack()
    assert message.body == b"later"
    assert message.store_timestamp - time.time() * 1000 > timedelta(hours=35).total_seconds() * 1000


async def test_levels_in_order(rockmq_time: VirtualTime, rockmq_client: Client) -> None:
    await rockmq_client.create_topic("orders", 1)
    async with (
        rockmq_client.producer() as producer,
        rockmq_client.consumer("cg", ["orders"], from_where="first") as consumer,
    ):
        for level in range(9, 3, -1):
            await producer.send(Message("orders", b"%d" % level, delay_level=level))
        found = []
        while len(found) < 6:
            await rockmq_time.advance(60)
            found += await consumer.fetch(timeout=0.01)
        assert [int(each.body) for each in found] == list(range(4, 10))
        for each in found:
            await each.ack()


async def test_16_retries_and_a_dead_letter(rockmq_time: VirtualTime, rockmq_client: Client) -> None:
    await rockmq_client.create_topic("orders", 1)
    async with (
        rockmq_client.producer() as producer,
        rockmq_client.consumer("cg", ["orders"], from_where="first") as consumer,
    ):
        sent = await producer.send(Message("orders", b"poison"))
        for tries in range(17):
            (message,) = await consumer.fetch(timeout=PATIENCE)
            assert message.reconsume_times == tries
            await message.nack()
            await rockmq_time.advance(timedelta(hours=2))
    (queue,) = await rockmq_client.queues(topics.DLQ_PREFIX + "cg")
    (letter,) = (await rockmq_client.pull(queue, 0)).messages
    assert (letter.msg_id, letter.body) == (sent.msg_id, b"poison")


async def test_a_transaction_that_nobody_ends_is_asked_for(rockmq_time: VirtualTime, rockmq_client: Client) -> None:
    await rockmq_client.create_topic("orders", 1)
    asked = asyncio.Event()

    async def unsure(receipt: SendReceipt) -> Decision:
        return Decision.UNKNOWN

    async def check(message: StoredMessage) -> Decision:
        asked.set()
        return Decision.COMMIT

    async with (
        rockmq_client.transaction_producer("pg", check) as producer,
        rockmq_client.consumer("cg", ["orders"], from_where="first") as consumer,
    ):
        await producer.send_in_transaction(Message("orders", b"paid"), unsure)
        await rockmq_time.advance(60)
        async with asyncio.timeout(PATIENCE):
            await asked.wait()
        (message,) = await consumer.fetch(timeout=PATIENCE)
        await message.ack()
    assert message.body == b"paid"


async def test_what_sleeps_by_it_wakes_in_order() -> None:
    virtual = VirtualTime()
    woken = []

    async def wake(seconds: float) -> None:
        await virtual.sleep(seconds)
        woken.append(seconds)

    async with asyncio.TaskGroup() as group:
        for seconds in (7200, 3600, 10800):
            group.create_task(wake(seconds))
        await asyncio.sleep(0)
        await virtual.advance(7200)
        assert woken == [3600, 7200]
        await virtual.advance(timedelta(hours=1))
        assert woken == [3600, 7200, 10800]


async def test_it_goes_by_itself_and_never_back() -> None:
    virtual = VirtualTime()
    await asyncio.wait_for(virtual.sleep(0.01), PATIENCE)
    assert abs(virtual.now_ms() - SystemClock().now_ms()) < 60_000
    with pytest.raises(ValueError, match="back by 1 s"):
        await virtual.advance(-1)
