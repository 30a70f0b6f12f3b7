"""Requests between clients, and their replies by way of the broker."""

import asyncio
from collections.abc import Callable

import pytest

from rockmq.base.errors import InvalidMessage, RequestTimeout
from rockmq.client import Client, ConsumedMessage, Message
from tests.client.conftest import NewTopic
from tests.support.cluster import Cluster


async def test_a_reply_comes_to_who_asked(
    mq: Client, peer: Cluster, new_topic: NewTopic, unique: Callable[[str], str]
) -> None:
    topic = (await new_topic())[0].topic
    async with Client(peer.namesrv) as far, far.producer(unique("pg")) as answering:

        async def answer(message: ConsumedMessage) -> None:
            if message.body != b"silence":
                await answering.reply(message, message.body[::-1] * 1000)

        async with mq.producer(unique("pg")) as asking, far.consumer(unique("cg"), [topic], from_where="first") as consumer:
            running = asyncio.create_task(consumer.run(answer))
            bodies = [b"question %d" % number for number in range(10)]
            replies = await asyncio.gather(*(asking.request(Message(topic, body), timeout=20) for body in bodies))
            assert [reply.body for reply in replies] == [body[::-1] * 1000 for body in bodies]
            with pytest.raises(RequestTimeout, match="no reply"):
                await asking.request(Message(topic, b"silence"), timeout=0.3)
            await consumer.close()
            await running


async def test_what_asks_for_nothing_gets_no_reply(mq: Client, new_topic: NewTopic, unique: Callable[[str], str]) -> None:
    (queue,) = await new_topic(1)
    async with mq.producer(unique("pg")) as producer:
        await producer.send(Message(queue.topic, b"x"))
        (message,) = (await mq.pull(queue, 0, wait=10)).messages
        with pytest.raises(InvalidMessage, match="asks for no reply"):
            await producer.reply(message, b"y")
