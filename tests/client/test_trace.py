"""Message trace: the records of our client are those of Apache's."""

import asyncio
from collections.abc import Callable

from rockmq.client import Client, ConsumedMessage, Decision, Message, SendReceipt, StoredMessage
from rockmq.client.trace import RECORD_END
from tests.client.conftest import NewTopic
from tests.golden import traces
from tests.support.cluster import Cluster


async def commit(receipt: SendReceipt) -> Decision:
    return Decision.COMMIT


async def roll_back(receipt: SendReceipt) -> Decision:
    return Decision.ROLLBACK


async def unknown(message: StoredMessage) -> Decision:
    return Decision.UNKNOWN


async def test_records_are_those_of_javas_client(
    peer: Cluster, mq: Client, new_topic: NewTopic, unique: Callable[[str], str]
) -> None:
    (trace,) = await new_topic(1, "trace")
    (queue,) = await new_topic(1)
    topic, group, consumer_group = queue.topic, unique("pg"), unique("cg")
    async with Client(peer.namesrv, trace=trace.topic) as traced:
        async with traced.transaction_producer(group, unknown) as producer:
            await producer.send(Message(topic, b"tagged", "paid", ["k1", "k2"]))
            await producer.send(Message(topic, b"bare"))
            await producer.send(Message(topic, b"refused", "paid", "k3"))
            await producer.send(Message(topic, b"thrown", "paid", "k4"))
            await producer.send(Message(topic, b"delayed", "paid", "k5", delay_level=5))
            await producer.send_in_transaction(Message(topic, b"committed", "paid", "k6"), commit)
            await producer.send_in_transaction(Message(topic, b"rolled back", "paid", "k7"), roll_back)
        async with traced.consumer(consumer_group, [topic], from_where="first") as consumer:
            for _ in range(5):
                await consumed(await anext(consumer))
    messages: list[StoredMessage] = []
    async with asyncio.timeout(20):
        while sum(message.body.count(RECORD_END.encode()) for message in messages) < traces.RECORDS.count("\n"):
            messages += (await mq.pull(trace, len(messages), 32, wait=1.0)).messages
    assert traces.records(messages, topic, group, consumer_group) == traces.RECORDS
    keys = {key for message in messages for key in message.keys}
    assert keys >= {f"k{number}" for number in range(1, 8)}
    assert len(keys) == 7 + 7  # and the ids


async def consumed(message: ConsumedMessage) -> None:
    if message.body == b"refused":
        await message.nack()
        return
    try:
        async with message.process():
            if message.body == b"thrown":
                raise ArithmeticError("as asked for")
    except ArithmeticError:
        assert message.body == b"thrown"
