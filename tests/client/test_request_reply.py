"""Requests between clients, and their replies by way of the broker."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable
from threading import Event

import pytest

from rockmq.base.errors import InvalidMessage, RequestTimeout
from rockmq.client import Client, ConsumedMessage, Message
from tests.client.conftest import NewTopic
from tests.support.cluster import Cluster
from tests.support.process import eventually


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


async def test_a_reply_that_comes_while_the_loop_stands_still(
    mq: Client, peer: Cluster, new_topic: NewTopic, unique: Callable[[str], str]
) -> None:
    """Whoever answers has a loop of its own; ours goes on when both the reply and the end of the timeout are there."""
    topic = (await new_topic(1))[0].topic
    group, ready = unique("cg"), Event()

    async def far() -> None:
        async with (
            Client(peer.namesrv) as client,
            client.producer(group) as answering,
            client.consumer(group, [topic], from_where="first") as consumer,
        ):
            ready.set()
            for number in range(2):
                async with (await anext(consumer)).process() as message:
                    await answering.reply(message, b"answer %d" % number)

    async with mq.producer(unique("pg")) as asking:
        answering = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(far())))
        await asyncio.to_thread(ready.wait, 60)
        assert (await asking.request(Message(topic, b"first"), timeout=20)).body == b"answer 0"
        channel = mq._instance.channel(peer.broker)
        assert channel is not None
        descriptor = channel.connection.transport.get_extra_info("socket").fileno()  # type: ignore[attr-defined]
        request = asyncio.create_task(asking.request(Message(topic, b"second"), timeout=0.3))
        while not mq._instance.in_flight.messages:
            await asyncio.sleep(0)
        await asyncio.sleep(0)  # it is written at the end of the turn
        with socket.socket(fileno=os.dup(descriptor)) as ours:
            eventually(lambda: b"answer 1" in _waiting(ours), 60, "the reply in the socket")
        time.sleep(0.3)  # noqa: ASYNC251 - it is the point
        assert (await request).body == b"answer 1"
        await answering


def _waiting(ours: socket.socket) -> bytes:
    with contextlib.suppress(BlockingIOError):
        return ours.recv(1 << 16, socket.MSG_PEEK)
    return b""


async def test_what_asks_for_nothing_gets_no_reply(mq: Client, new_topic: NewTopic, unique: Callable[[str], str]) -> None:
    (queue,) = await new_topic(1)
    async with mq.producer(unique("pg")) as producer:
        await producer.send(Message(queue.topic, b"x"))
        (message,) = (await mq.pull(queue, 0, wait=10)).messages
        with pytest.raises(InvalidMessage, match="asks for no reply"):
            await producer.reply(message, b"y")
