"""Lite pull consumers, and plain pulls."""

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rockmq.client import Client, ClientError, LitePullConsumer, Message, MessageQueue, PullStatus, Sql, StoredMessage
from rockmq.client.admin import GroupSettings
from tests.client.conftest import NewTopic
from tests.support import cluster

Unique = Callable[[str], str]


async def send(mq: Client, queue: MessageQueue, count: int, first: int = 0) -> None:
    async with mq.producer("lite-pg") as producer:
        for number in range(first, first + count):
            message = Message(queue.topic, b"%d" % number, tag="even" if number % 2 == 0 else "odd")
            await producer.send(message, queue=queue)


async def polled(consumer: LitePullConsumer, count: int) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await consumer.poll(max_messages=count - len(found))
    return found


async def test_a_group_goes_on_where_it_was(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    queues = await new_topic(2)
    topic, group = queues[0].topic, unique("lite")
    for queue in queues:
        await send(mq, queue, 5)
    async with mq.lite_pull_consumer(group, [topic], from_where="first") as consumer:
        assert consumer.queues == queues
        found = await polled(consumer, 6)
        assert sum(consumer.position(queue) for queue in queues) == 6
    assert sum(offset or 0 for offset in (await mq.committed_offsets(group, topic)).values()) == 6
    async with mq.lite_pull_consumer(group, [topic], from_where="first") as consumer:
        rest = [await anext(consumer) for _ in range(4)]
    got = sorted((message.queue_id, message.queue_offset) for message in found + rest)
    assert got == [(queue.queue_id, offset) for queue in queues for offset in range(5)]


async def test_what_the_last_poll_returned_comes_again_after_an_exception(
    mq: Client, new_topic: NewTopic, unique: Unique
) -> None:
    (queue,) = await new_topic(1)
    group = unique("lite")
    await send(mq, queue, 5)
    with contextlib.suppress(ValueError):
        async with mq.lite_pull_consumer(group, [queue.topic], from_where="first") as consumer:
            await consumer.poll(max_messages=2)
            await consumer.poll(max_messages=2)
            raise ValueError("the application failed")
    async with mq.lite_pull_consumer(group, [queue.topic], from_where="first", auto_commit=False) as consumer:
        assert [message.body for message in await polled(consumer, 3)] == [b"2", b"3", b"4"]
        with pytest.raises(ClientError, match="shared out"):
            await consumer.assign([queue])
        assert await consumer.committed(queue) == 2
        await consumer.commit({queue: 3})
        assert await consumer.committed(queue) == 3
        await consumer.commit()
        assert await consumer.committed(queue) == 5
        await consumer.commit({queue: 4})
    assert (await mq.committed_offsets(group, queue.topic))[queue] == 4, "closing commits nothing"


async def test_going_anywhere_in_assigned_queues(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    queues = await new_topic(2)
    one, other = queues
    for queue in queues:
        await send(mq, queue, 6)
    async with mq.lite_pull_consumer(unique("lite"), from_where="last", auto_commit=False) as consumer:
        assert await consumer.poll(timeout=0.01) == []
        await consumer.assign(queues)
        assert await consumer.committed(one) is None
        await consumer.seek_to_end()
        assert [consumer.position(queue) for queue in queues] == [6, 6]
        await consumer.seek_to_begin()
        assert len(await polled(consumer, 12)) == 12
        await consumer.seek(one, 4)
        found = await polled(consumer, 2)
        assert [(message.queue_id, message.queue_offset) for message in found] == [(0, 4), (0, 5)]
        for offset in (-1, 7):
            with pytest.raises(ClientError, match="offsets 0 to 6"):
                await consumer.seek(one, offset)
        await consumer.seek_to_time(datetime.fromtimestamp(found[0].store_timestamp / 1000, UTC), one)
        assert (await polled(consumer, 1))[0].store_timestamp == found[0].store_timestamp
        await consumer.seek_to_end(one)
        assert consumer.position(one) == 6

        consumer.pause(other)
        await consumer.seek(other, 0)
        await send(mq, one, 1, first=6)
        assert [message.queue_id for message in await polled(consumer, 1)] == [0]
        assert await consumer.poll(timeout=0.05) == []
        assert consumer.paused == [other]
        consumer.resume(other)
        assert [message.queue_id for message in await polled(consumer, 6)] == [1] * 6

        await consumer.assign([one], tags="odd")
        assert consumer.queues == [one]
        await consumer.seek_to_begin(one)
        assert [message.queue_offset for message in await polled(consumer, 3)] == [1, 3, 5]
        with pytest.raises(ClientError, match="isn't assigned"):
            consumer.position(other)
        await consumer.assign([one], tags=Sql("TAGS = 'even'"))
        await consumer.seek_to_begin(one)
        assert [message.queue_offset for message in await polled(consumer, 4)] == [0, 2, 4, 6]


async def test_members_share_the_queues(mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique) -> None:
    queues = await new_topic(4)
    topic, group = queues[0].topic, unique("lite")
    async with Client(peer.namesrv) as second, mq.lite_pull_consumer(group, [topic], from_where="first") as one:
        assert one.queues == queues
        async with second.lite_pull_consumer(group, [topic], from_where="first") as other:
            async with asyncio.timeout(60):
                while one.queues + other.queues != queues and other.queues + one.queues != queues:
                    await asyncio.sleep(0.05)
            for queue in queues:
                await send(mq, queue, 1)
            assert len(await polled(one, 2)) == len(await polled(other, 2)) == 2
        async with asyncio.timeout(60):
            while one.queues != queues:
                await asyncio.sleep(0.05)
        for queue in queues:
            await send(mq, queue, 1, first=1)
        assert [message.body for message in await polled(one, 4)] == [b"1"] * 4


async def test_subscriptions_change_on_the_way(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    (one,), (other,) = await new_topic(1), await new_topic(1)
    group = unique("lite")
    async with mq.lite_pull_consumer(group, [one.topic], from_where="first") as consumer:
        await consumer.subscribe(other.topic, "even")
        assert consumer.queues == sorted([one, other])
        await send(mq, other, 4)
        assert [message.body for message in await polled(consumer, 2)] == [b"0", b"2"]
        await consumer.subscribe(other.topic, "odd")
        await send(mq, other, 4, first=4)
        await consumer.seek(other, 4)
        assert [message.body for message in await polled(consumer, 2)] == [b"5", b"7"]
        await consumer.unsubscribe(one.topic)
        assert consumer.queues == [other]
        with pytest.raises(ClientError, match="isn't subscribed"):
            await consumer.unsubscribe(one.topic)
    async with mq.lite_pull_consumer(group) as consumer:
        with pytest.raises(ClientError, match="without topics"):
            await consumer.subscribe(one.topic)


async def test_new_queues_of_a_topic_are_told(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    queues = await new_topic(2)
    topic = queues[0].topic
    told: list[tuple[str, int]] = []
    consumer = mq.lite_pull_consumer(unique("lite"), on_queues=lambda name, found: told.append((name, len(found))))
    async with consumer:
        await consumer.assign(queues)
        await mq.create_topic(topic, 3)
        assert told == [(topic, 3)]


async def test_members_are_described_to_administrators(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    (queue,) = await new_topic(1)
    group = unique("lite")
    await send(mq, queue, 3)
    async with mq.lite_pull_consumer(group, [queue.topic], from_where="first") as consumer:
        await polled(consumer, 2)
        assert (await mq.admin.groups.connections(group)).consume_type == "CONSUME_ACTIVELY"
        assert await mq.admin.members.positions(group, queue.topic) == {mq.client_id: {queue: 2}}
        info = await mq.admin.members.running_info(group, mq.client_id)
        assert info.queues[queue].commit_offset == 2


async def test_a_plain_pull_waits_and_a_group_is_moved_by_hand(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    (queue,) = await new_topic(1)
    waiting = asyncio.create_task(mq.pull(queue, 0, wait=20))
    await send(mq, queue, 1)
    result = await waiting
    assert (result.status, [message.body for message in result.messages]) == (PullStatus.FOUND, [b"0"])
    assert (await mq.pull(queue, result.next_offset)).status is PullStatus.NO_NEW
    group = unique("by-hand")
    await mq.admin.groups.put(GroupSettings(group))
    await mq.commit(group, queue, 1)
    assert await mq.committed_offsets(group, queue.topic) == {queue: 1}


async def test_every_member_of_a_broadcast_reads_all(
    mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique, tmp_path: Path
) -> None:
    queues = await new_topic(2)
    topic, group = queues[0].topic, unique("lite")
    async with Client(peer.namesrv, instance_name=unique("one")) as one, Client(peer.namesrv) as two:

        def made(client: Client, topics: list[str] | None = None, **options: Any) -> LitePullConsumer:
            return client.lite_pull_consumer(
                group, topics, from_where="first", broadcast=True, offsets_directory=tmp_path, **options
            )

        async with made(one, [topic]) as first, made(two, [topic], auto_commit=False) as second:
            assert first.queues == second.queues == queues
            for queue in queues:
                await send(mq, queue, 3)
            for member in (first, second):
                assert len(await polled(member, 6)) == 6
            await second.commit({queues[0]: 1})
            assert [await second.committed(queue) for queue in queues] == [1, None]
            with pytest.raises(ClientError, match="another consumer keeps its offsets"):
                async with Client(peer.namesrv) as third, made(third, [topic]):
                    raise AssertionError("it began")
        async with made(one) as again:
            await again.assign(queues)
            assert [again.position(queue) for queue in queues] == [3, 3], "it goes on where its file says"
    assert set((await mq.committed_offsets(group, topic)).values()) == {None}, "brokers keep nothing of a broadcast"
