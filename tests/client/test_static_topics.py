"""Static topics of Apache's brokers; RockMQ's have none. How a queue goes from one to another is in test_controllers.py."""

import asyncio
from collections.abc import Callable

from rockmq.client import (
    Client,
    ConsumedMessage,
    Decision,
    Message,
    MessageQueue,
    RouteNotFound,
    SendReceipt,
    StoredMessage,
)
from rockmq.client.admin import QueueMapping, Segment, TopicSettings
from tests.client.conftest import eventually, not_built, until_held
from tests.support import cluster

Unique = Callable[[str], str]
NAME = "__syslo__global__"


async def static(mq: Client, topic: str, queues: int) -> list[MessageQueue]:
    """Make one, and wait until the name server knows it."""
    await mq.admin.static_topics.create(topic, queues)
    return await known_queues(mq, topic, queues)


async def known_queues(mq: Client, topic: str, queues: int) -> list[MessageQueue]:
    async def known() -> bool:
        try:
            return len(await mq.writable_queues(topic)) == queues
        except RouteNotFound:
            return False

    await eventually(known)
    return await mq.queues(topic)


async def taken(mq: Client, group: str, topic: str, count: int, *, order: bool = False) -> list[ConsumedMessage]:
    found = []
    async with mq.consumer(group, topic, from_where="first", order=order) as consumer, asyncio.timeout(60):
        while len(found) < count:
            message = await anext(consumer)
            found.append(message)
            await message.ack()
    return found


async def test_there_and_back(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    topic, group = unique("static"), unique("group")
    with not_built(peer):
        queues = await static(mq, topic, 3)
        assert queues == [MessageQueue(topic, NAME, number) for number in range(3)]
        async with mq.producer("pg") as producer:
            receipts = [await producer.send(Message(topic, b"%d" % number)) for number in range(6)]
            assert sorted(receipt.queue for receipt in receipts) == sorted(queues * 2)
            first = await producer.send_batch([Message(topic, b"6"), Message(topic, b"7")], queue=queues[0])
            await until_held(mq, queues[0], 4)
            assert [receipt.queue_offset for receipt in first] == [2, 3]
        assert await mq.min_offset(queues[0]) == 0
        assert await mq.offset_by_time(queues[0], 0) == 0
        found = await taken(mq, group, topic, 8)
        assert sorted(each.body for each in found) == [b"%d" % number for number in range(8)]
        assert [each.queue_offset for each in found if each.queue == queues[0]] == [0, 1, 2, 3]
        assert await mq.committed_offsets(group, topic) == dict(zip(queues, (4, 2, 2), strict=True))
        assert [each.queue_offset for each in (await mq.pull(queues[0], 3)).messages] == [3]


async def test_a_queue_that_has_come_from_another_broker(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    """Its offsets are ahead of those that it has here: neither do pulls make the group's offset one of these, nor is a
    decision about a transaction an error, which the broker doesn't take as it confuses the two."""
    topic, group = unique("static"), unique("group")

    async def commit(receipt: SendReceipt) -> Decision:
        return Decision.COMMIT

    async def check(message: StoredMessage) -> Decision:
        return Decision.COMMIT

    with not_built(peer):
        (name,) = (await mq.admin.brokers.clusters()).brokers
        hosted = {0: [Segment(queue_id=0, broker_name=name, logic_offset=1000)]}
        mapping = QueueMapping(topic=topic, queues=1, broker_name=name, epoch=1, hosted=hosted)
        await mq.admin.static_topics.put(TopicSettings(topic, 1, 1), mapping)
        (queue,) = await known_queues(mq, topic, 1)
        async with (
            mq.transaction_producer(unique("tg"), check) as producer,
            mq.consumer(group, topic, from_where="first") as consumer,
            asyncio.timeout(60),
        ):
            assert not (await producer.send_in_transaction(Message(topic, b"0"), commit)).confirmed
            message = await anext(consumer)
            assert (message.body, message.queue_offset) == (b"0", 1000), "the checker was asked"
            await message.ack()
            await consumer.commit()
            for body in (b"1", b"2"):  # so that there was a pull behind the first
                await producer.send(Message(topic, body))
                message = await anext(consumer)
                assert message.body == body
                await message.ack()
            told = (await mq.committed_offsets(group, topic))[queue]
            assert told is not None
            assert 1001 <= told <= 1003
        assert await mq.committed_offsets(group, topic) == {queue: 1003}


async def test_what_fails_comes_again(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    topic, group = unique("static"), unique("group")
    with not_built(peer):
        (queue,) = await static(mq, topic, 1)
        async with mq.producer("pg") as producer:
            await producer.send(Message(topic, b"x", tag="red"))
        async with mq.consumer(group, topic, from_where="first") as consumer, asyncio.timeout(60):
            message = await anext(consumer)
            await message.retry(1)
            again = await anext(consumer)
            await again.ack()
        assert (again.topic, again.body, again.tag, again.reconsume_times) == (topic, b"x", "red", 1)
        assert again.queue.topic == f"%RETRY%{group}"
        assert await mq.committed_offsets(group, topic) == {queue: 1}


async def test_in_order_and_in_transactions(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    topic, group = unique("static"), unique("group")

    async def commit(receipt: SendReceipt) -> Decision:
        return Decision.COMMIT

    async def never(message: StoredMessage) -> Decision:
        raise AssertionError("this isn't called")

    with not_built(peer):
        await static(mq, topic, 2)
        async with mq.transaction_producer(unique("tg"), never) as producer:
            for number in range(4):
                receipt = await producer.send_in_transaction(Message(topic, b"%d" % number), commit, key="k")
                assert receipt.confirmed
        found = await taken(mq, group, topic, 4, order=True)
        assert [each.body for each in found] == [b"0", b"1", b"2", b"3"]
