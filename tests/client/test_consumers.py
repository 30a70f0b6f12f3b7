"""What push consumers do besides consuming: broadcasts, refused messages, subscriptions that change, sharing otherwise."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.client import Client, ConsumedMessage, Consumer, Message, Sql, allocate
from tests.client.conftest import NewTopic
from tests.support import apache, cluster
from tests.support.events import events
from tests.support.jars import CLIENTS

Unique = Callable[[str], str]
PATIENCE = 60


async def send(mq: Client, topic: str, *bodies: bytes, tag: str | None = None) -> None:
    async with mq.producer("pg") as producer:
        properties = {"amount": "7"} if tag == "rich" else {}
        for body in bodies:
            await producer.send(Message(topic, body, tag=tag, properties=properties))


async def take(consumer: Consumer, count: int) -> list[bytes]:
    """The bodies of so many messages, acknowledged."""
    bodies = []
    async with asyncio.timeout(PATIENCE):
        while len(bodies) < count:
            message = await anext(consumer)
            bodies.append(message.body)
            await message.ack()
    return sorted(bodies)


async def test_every_member_of_a_broadcast_has_every_message(
    mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique, tmp_path: Path
) -> None:
    topic = (await new_topic())[0].topic
    group = unique("broadcast")
    async with Client(peer.namesrv, instance_name="one") as one, Client(peer.namesrv, instance_name="two") as two:
        members = [client.consumer(group, topic, broadcast=True, from_where="first", offsets_directory=tmp_path)
                   for client in (one, two)]  # fmt: skip
        for member in members:
            await member.start()
        await send(mq, topic, b"1", b"2", b"3", b"4", b"5")
        assert [await take(member, 5) for member in members] == [[b"1", b"2", b"3", b"4", b"5"]] * 2
        for member in members:
            await member.close()
        await send(mq, topic, b"6")
        again = one.consumer(group, topic, broadcast=True, offsets_directory=tmp_path)
        async with again:
            assert await take(again, 1) == [b"6"], "it goes on where its file says"
    assert set((await mq.committed_offsets(group, topic)).values()) == {None}, "brokers keep nothing of a broadcast"


async def test_java_goes_on_in_the_file_of_a_broadcast_and_we_in_javas(tmp_path: Path) -> None:
    if missing := apache.available():
        pytest.skip(missing)
    async with embedded.serve(flush="ASYNC_FLUSH") as served, Client(served.namesrv, instance_name="red") as mq:
        await mq.create_topic("orders", 2)
        await send(mq, "orders", b"1", b"2")
        async with mq.consumer("g", "orders", broadcast=True, from_where="first", offsets_directory=tmp_path) as consumer:
            assert await take(consumer, 2) == [b"1", b"2"]
        await send(mq, "orders", b"3", b"4", b"5")
        ip, _, name = mq.client_id.partition("@")
        where = f"namesrv={served.namesrv}", "topic=orders", "group=g", "broadcast=true", f"ip={ip}", f"instance={name}"
        java = await asyncio.to_thread(
            apache.program, CLIENTS[-1], "PushConsumer", *where, "count=3", "timeoutMs=60000",
            directory=tmp_path, system={"rocketmq.client.localOffsetStoreDir": str(tmp_path)},
        )  # fmt: skip
        assert await asyncio.to_thread(java.wait, PATIENCE) == 0, java.tail()
        assert len(events(java, "message")) == 3, "what we have done isn't given to it"
        await send(mq, "orders", b"6")
        async with mq.consumer("g", "orders", broadcast=True, offsets_directory=tmp_path) as consumer:
            assert await take(consumer, 1) == [b"6"]


async def test_refused_messages_come_again_when_they_are_wanted(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    (queue,) = await new_topic(1)
    group = unique("retrying")
    await send(mq, queue.topic, b"later", b"dead", b"fails")
    store_times: dict[bytes, list[int]] = {b"later": [], b"dead": [], b"fails": []}
    async with mq.consumer(group, queue.topic, from_where="first") as consumer:

        async def handle(message: ConsumedMessage) -> None:
            store_times[message.body].append(message.store_timestamp)
            if message.reconsume_times == 0:
                if message.body == b"later":
                    await message.retry(0.5)
                elif message.body == b"dead":
                    await message.dead_letter()
                else:
                    raise ValueError("the first time")

        run = asyncio.create_task(consumer.run(handle, retry=lambda times: 1.0))
        async with asyncio.timeout(PATIENCE):
            while len(store_times[b"later"]) < 2 or len(store_times[b"fails"]) < 2:
                await asyncio.sleep(0.02)
        async with mq.consumer(unique("undertaker"), f"%DLQ%{group}", from_where="first") as undertaker:
            assert await take(undertaker, 1) == [b"dead"]
    await run
    for body in (b"later", b"fails"):
        first, second = store_times[body]
        assert second - first >= 900, "a second is the shortest that brokers can wait"
    assert len(store_times[b"dead"]) == 1
    assert list((await mq.committed_offsets(group, queue.topic)).values()) == [3]


async def test_no_more_tries_than_said(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    (queue,) = await new_topic(1)
    group = unique("retrying")
    await send(mq, queue.topic, b"x")
    async with mq.consumer(group, queue.topic, from_where="first", max_reconsume_times=0) as consumer:
        await (await asyncio.wait_for(anext(consumer), PATIENCE)).nack()
    async with mq.consumer(unique("undertaker"), f"%DLQ%{group}", from_where="first") as undertaker:
        assert await take(undertaker, 1) == [b"x"]


async def test_subscriptions_change(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    first, second = [(await new_topic(2))[0].topic for _ in range(2)]
    async with mq.consumer(unique("changing"), first, from_where="first") as consumer:
        await send(mq, first, b"1")
        assert await take(consumer, 1) == [b"1"]
        await consumer.subscribe(second, "red")
        await send(mq, second, b"red 1", tag="red")
        assert await take(consumer, 1) == [b"red 1"]
        await consumer.subscribe(second, "blue")
        await send(mq, second, b"red 2", tag="red")
        await send(mq, second, b"blue", tag="blue")
        assert await take(consumer, 1) == [b"blue"]
        await consumer.subscribe(second, Sql("amount > 5"))
        await send(mq, second, b"poor", tag="blue")
        await send(mq, second, b"rich", tag="rich")
        assert await take(consumer, 1) == [b"rich"]
        await consumer.unsubscribe(second)
        assert {queue.topic for queue in consumer.queues} <= {first, f"%RETRY%{consumer.group}"}
        await send(mq, second, b"rich", tag="rich")
        await send(mq, first, b"2")
        assert await take(consumer, 1) == [b"2"]
        assert await consumer.fetch(timeout=0.1) == []


async def test_members_share_in_a_circle(mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique) -> None:
    topic = (await new_topic(4))[0].topic
    group = unique("circle")
    async with Client(peer.namesrv) as other:
        members = [client.consumer(group, topic, allocate=allocate.in_a_circle) for client in (mq, other)]
        for member in members:
            await member.start()
        async with asyncio.timeout(PATIENCE):
            while sorted(
                sorted(queue.queue_id for queue in member.queues if queue.topic == topic) for member in members
            ) != [
                [0, 2],
                [1, 3],
            ]:
                await asyncio.sleep(0.02)
        for member in members:
            await member.close()


async def test_from_a_time(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    (queue,) = await new_topic(1)
    group = unique("from-a-time")
    await send(mq, queue.topic, b"before")
    await asyncio.sleep(0.05)
    then = datetime.now(UTC)
    await asyncio.sleep(0.05)
    await send(mq, queue.topic, b"after")
    # Young queues are begun at their first message whatever a consumer says, so the time is asked for by hand.
    assert await mq.offset_by_time(queue, int(then.timestamp() * 1000)) == 1
    async with mq.consumer(group, queue.topic, from_where=then) as consumer:
        assert await take(consumer, 2) == [b"after", b"before"]


async def test_functions_and_batches(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    topic = (await new_topic(2))[0].topic
    await send(mq, topic, *(b"%d" % number for number in range(40)))
    got: Counter[bytes] = Counter()
    sizes: list[int] = []

    def handle(batch: list[ConsumedMessage]) -> None:
        sizes.append(len(batch))
        got.update(message.body for message in batch)

    group = unique("batches")
    async with mq.consumer(group, topic, from_where="first") as consumer:
        run = asyncio.create_task(consumer.run_batches(handle, 8, 1))
        async with asyncio.timeout(PATIENCE):
            while got.total() < 40:
                await asyncio.sleep(0.02)
    await run
    assert set(got.values()) == {1}
    assert max(sizes) > 1
    assert sum(offset or 0 for offset in (await mq.committed_offsets(group, topic)).values()) == 40


async def test_what_apaches_mqadmin_sees_of_a_consumer(tmp_path: Path) -> None:
    if missing := apache.available():
        pytest.skip(missing)
    async with embedded.serve(flush="ASYNC_FLUSH") as served, Client(served.namesrv) as mq:
        (queue,) = await mq.create_topic("orders", 1)
        async with mq.consumer("g", {"orders": "a || b"}, from_where="first", order=True):
            shown = await asyncio.to_thread(
                apache.mqadmin, "consumerStatus", "-g", "g", "-i", mq.client_id, "-s", "true",
                namesrv=served.namesrv, directory=tmp_path,
            )  # fmt: skip
    lines = [" ".join(line.split()) for line in shown.stdout.splitlines()]
    assert "PROP_CONSUMEORDERLY : true" in lines, shown
    assert "001 Topic: orders ClassFilter: false SubExpression: a || b" in [line.replace("002 ", "001 ") for line in lines]
    assert any(line.startswith(f"orders {queue.broker_name} 0 ProcessQueueInfo") and "locked=true" in line for line in lines)
    assert "orders 0.00 0.00 0.00 0.00 0.00 0" in lines
    assert any("Rebalancer.run" in line for line in lines), "what tasks are doing"
