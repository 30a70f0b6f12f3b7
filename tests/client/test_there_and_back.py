"""What every producer and consumer does."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rockmq.client import Client, Message
from tests.client.conftest import NewTopic


async def test_what_is_sent_is_consumed(mq: Client, new_topic: NewTopic, unique: Callable[[str], str]) -> None:
    topic = (await new_topic())[0].topic
    async with mq.producer(unique("pg")) as producer:
        receipts = await asyncio.gather(*(producer.send(Message(topic, b"%d" % number)) for number in range(100)))
    found = {}
    async with mq.consumer(unique("cg"), [topic], from_where="first") as consumer:
        while len(found) < len(receipts):
            async with (await anext(consumer)).process() as message:
                found[message.msg_id] = message.queue
    assert found == {receipt.msg_id: receipt.queue for receipt in receipts}


@dataclass
class Order:
    number: int


async def test_objects(mq: Client, new_topic: NewTopic, unique: Callable[[str], str]) -> None:
    topic = (await new_topic())[0].topic
    async with mq.producer(unique("pg"), compression="zstd", compress_from=1) as producer:
        for number in range(10):
            await producer.send(Message.json(topic, Order(number)))
    group = unique("cg")
    async with mq.consumer(group, [topic], from_where="first", decode=Order) as consumer:
        found: list[Order] = []
        while len(found) < 10:
            async with (await anext(consumer)).process() as message:
                found.append(message.body)
    assert sorted(order.number for order in found) == list(range(10))
