"""The older kind of namespace: the same names twice at a broker that knows nothing of it."""

import asyncio
from collections.abc import Callable

import pytest

from rockmq.base.errors import RouteNotFound
from rockmq.client import Client, Decision, Message, SendReceipt, StoredMessage
from tests.support import cluster


async def test_two_tenants(peer: cluster.Cluster, mq: Client, unique: Callable[[str], str]) -> None:
    topic, group, first, second = unique("orders"), unique("billing"), unique("a"), unique("b")
    async with Client(peer.namesrv, namespace_v1=first) as one, Client(peer.namesrv, namespace_v1=second) as two:
        for tenant in (one, two):
            (queue,) = await tenant.create_topic(topic, 1)
            assert queue.topic == topic
        async with one.producer("pg") as ones, two.producer("pg") as twos:
            receipt = await ones.send(Message(topic, b"of one", tag="paid"))
            assert receipt.queue == queue
            await twos.send_batch([Message(topic, b"of two", tag="paid")])
        async with one.consumer(group, {topic: "paid"}, from_where="first") as consumer:
            message = await anext(consumer)
            assert (message.topic, message.queue, message.body) == (topic, queue, b"of one")
            await message.nack(1)
            again = await anext(consumer)
            assert (again.topic, again.body, again.reconsume_times) == (topic, b"of one", 1)
            assert again.queue.topic == f"%RETRY%{group}"
            await again.ack()
        assert await one.committed_offsets(group, topic) == {queue: 1}
        assert [each.topic for each in (await two.pull(queue, 0)).messages] == [topic]
    with pytest.raises(RouteNotFound):
        await mq.queues(topic)
    (named,) = (await mq.pull((await mq.queues(f"{second}%{topic}"))[0], 0)).messages
    assert (named.topic, named.body) == (f"{second}%{topic}", b"of two")


async def test_transactions_and_requests(peer: cluster.Cluster, unique: Callable[[str], str]) -> None:
    asked: list[str] = []

    async def checker(message: StoredMessage) -> Decision:
        asked.append(message.topic)
        return Decision.COMMIT

    async def execute(receipt: SendReceipt) -> Decision:
        return Decision.UNKNOWN

    async with Client(peer.namesrv, namespace_v1=unique("tenant")) as mq:
        (queue,) = await mq.create_topic(unique("orders"), 1)
        async with (
            mq.transaction_producer(unique("tpg"), checker) as transactions,
            mq.producer("pg") as producer,
            mq.consumer(unique("cg"), [queue.topic], from_where="first") as consumer,
        ):
            await transactions.send_in_transaction(Message(queue.topic, b"in a transaction"), execute)
            async with (await anext(consumer)).process() as message:
                assert message.body == b"in a transaction"
            assert asked[0] == queue.topic, "the broker has found out who is to be asked"
            asking = asyncio.create_task(producer.request(Message(queue.topic, b"how much?"), timeout=20))
            async with (await anext(consumer)).process() as message:
                await producer.reply(message, b"42")
            assert (await asking).body == b"42"
