"""Light queues: messages that are in queues of other names, too, which nobody has to create."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from rockmq.client import Client, ClientError, InvalidMessage, LitePullConsumer, Message, MessageQueue, StoredMessage
from tests.client.conftest import NewTopic, until_held

Unique = Callable[[str], str]


async def send(mq: Client, queue: MessageQueue, *names: str, count: int, tag: str | None = None) -> None:
    """Messages with bodies 0 to count - 1, in these light queues, too."""
    async with mq.producer("light-pg") as producer:
        for number in range(count):
            message = Message(queue.topic, b"%d" % number, tag=tag).also_in(*names)
            assert (await producer.send(message, queue=queue)).queue == queue


async def polled(consumer: LitePullConsumer, count: int) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await consumer.poll(max_messages=count - len(found))
    return found


async def test_a_message_is_read_from_each_queue_it_names(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    first, second = await new_topic(2)
    alice, bob = unique("alice"), unique("bob@home")
    await send(mq, first, alice, count=2)
    await send(mq, second, alice, bob, count=2)
    await send(mq, second, count=1)
    (of_alice,), (of_bob,) = await mq.light_queues(first.topic, alice), await mq.light_queues(first.topic, f"%LMQ%{bob}")
    assert of_alice == MessageQueue(f"%LMQ%{alice}", first.broker_name, 0)
    await until_held(mq, of_alice, 4)
    await until_held(mq, of_bob, 2)
    await until_held(mq, second, 3)
    found = (await mq.pull(of_alice, 0)).messages
    assert [(each.topic, each.queue_id, each.queue_offset, each.body) for each in found] == [
        (first.topic, 0, offset, body) for offset, body in enumerate((b"0", b"1", b"0", b"1"))
    ]
    assert [each.light_queues for each in found] == [{alice: 0}, {alice: 1}, {alice: 2, bob: 0}, {alice: 3, bob: 1}]
    assert [each.queue_offset for each in (await mq.pull(of_bob, 1)).messages] == [1]
    own = (await mq.pull(second, 0)).messages
    assert [(each.queue_id, each.queue_offset) for each in own] == [(1, 0), (1, 1), (1, 2)], "in their topic as ever"
    assert (await mq.min_offset(of_bob), await mq.max_offset(of_bob)) == (0, 2)


async def test_a_group_reads_light_queues_by_lite_pull(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    (carrier,) = await new_topic(1)
    names = [unique("alice"), unique("bob")]
    await send(mq, carrier, names[0], count=5, tag="chat")  # so that offsets differ from the topic's
    await send(mq, carrier, names[1], count=3, tag="call")
    (alice,), (bob,) = [await mq.light_queues(carrier.topic, name) for name in names]
    group = unique("readers")
    async with mq.lite_pull_consumer(group, from_where="first", auto_commit=False) as consumer:
        await consumer.assign([alice, bob, carrier])
        found = await polled(consumer, 16)
        for queue, count in ((alice, 5), (bob, 3), (carrier, 8)):
            assert consumer.position(queue) == count
        assert sorted((each.body, each.queue_offset) for each in found if list(each.light_queues) == [names[1]]) == sorted(
            [(b"%d" % number, number) for number in range(3)] + [(b"%d" % number, number + 5) for number in range(3)]
        )
        await consumer.commit({bob: 2})
        await consumer.seek(alice, 4)
        assert [each.queue_offset for each in await polled(consumer, 1)] == [4]
        first = min(each.store_timestamp for each in found)
        await consumer.seek_to_time(datetime.fromtimestamp(first / 1000, UTC), alice)
        assert consumer.position(alice) == 0
        await consumer.assign([alice], tags="call")
        await consumer.seek_to_begin(alice)
        await send(mq, carrier, names[0], count=1, tag="call")
        assert [each.queue_offset for each in await polled(consumer, 1)] == [5]
    async with mq.lite_pull_consumer(group, from_where="first") as consumer:
        await consumer.assign([bob])
        assert await consumer.committed(bob) == 2
        assert [each.queue_offset for each in await polled(consumer, 1)] == [2], "it goes on where the group was"
    assert await mq.committed_offsets(group, bob.topic) == {bob: 3}


async def test_a_consumer_waits_at_a_light_queue_that_nothing_is_in(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    (carrier,) = await new_topic(1)
    name = unique("later")
    async with mq.lite_pull_consumer(unique("readers"), from_where="first") as consumer:
        await consumer.assign(await mq.light_queues(carrier.topic, name))
        assert await consumer.poll(timeout=0.2) == []
        await send(mq, carrier, name, count=1)
        assert [each.body for each in await polled(consumer, 1)] == [b"0"]


async def test_what_cant_be_is_said(mq: Client, new_topic: NewTopic) -> None:
    (carrier,) = await new_topic(1)
    for name in ("a/b", "a,b", "", "x" * 251, "a\0"):
        with pytest.raises(InvalidMessage, match="light queue"):
            Message(carrier.topic, b"x").also_in(name)
        with pytest.raises(ClientError, match="light queue"):
            await mq.light_queues(carrier.topic, name)
    with pytest.raises(ClientError, match="no file name has"):
        await mq.light_queues(carrier.topic, "a/b")
    async with mq.producer("light-pg") as producer:
        with pytest.raises(InvalidMessage, match="batch can't have the property INNER_MULTI_DISPATCH"):
            await producer.send_batch([Message(carrier.topic, b"x").also_in("a")])
