"""The older kind of namespace: the same names twice at a broker that knows nothing of it."""

import asyncio
from collections.abc import Callable

import pytest

from rockmq.base.errors import RouteNotFound
from rockmq.client import Client, Decision, Message, SendReceipt, StoredMessage
from rockmq.client.admin import GroupSettings, Subscription
from tests.client.conftest import until_held
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


async def test_administrators_see_the_names_of_their_tenant(peer: cluster.Cluster, unique: Callable[[str], str]) -> None:
    tenant, topic, group, twin = unique("tenant"), unique("orders"), unique("billing"), unique("twin")
    broker = cluster.broker_name(peer)
    async with Client(peer.namesrv, namespace_v1=tenant) as mq:
        (queue,) = await mq.create_topic(topic, 1)
        admin = mq.admin
        async with mq.producer("pg") as producer:
            receipts = [await producer.send(Message(topic, b"%d" % number, keys=["k"])) for number in range(3)]
        await until_held(mq, queue, 3)
        for name in (group, twin):
            await admin.groups.put(GroupSettings(name))
        async with mq.consumer(group, [topic], from_where="first") as consumer:
            async with (await anext(consumer)).process():
                pass
            await consumer.commit()
            connected = await admin.groups.connections(group)
            assert set(connected.subscriptions) == {topic, f"%RETRY%{group}"}
            assert (await admin.members.positions(group, topic))[mq.client_id] == {queue: 1}
            info = await admin.members.running_info(group, mq.client_id)
            assert queue in info.queues
            assert {each.topic for each in info.subscriptions} == {topic, f"%RETRY%{group}"}
            if peer.kind == "apache":
                assert topic in await admin.groups.topics(group)
                assert await admin.groups.subscription(group, topic) == Subscription(topic, "*", "TAG")
                assert group in await admin.topics.groups(topic)
        assert topic in await admin.topics.names()
        assert list(await admin.topics.get(topic)) == [broker]
        assert (await admin.topics.get(topic))[broker].name == topic
        assert (await admin.topics.of_broker(broker))[topic].name == topic
        assert (await admin.topics.stats(topic)).queues[queue].messages == 3
        assert (await admin.groups.progress(group, topic)).queues[queue].lag == 2
        await admin.groups.clone_offsets(group, twin, topic)
        assert await mq.committed_offsets(twin, topic) == {queue: 1}
        assert await admin.groups.reset(group, topic, "begin") == {queue: 0}
        assert (await admin.messages.by_offset_id(receipts[0].offset_id)).topic == topic
        if peer.kind == "apache":
            assert (await admin.groups.get(group))[broker].name == group
            assert (await admin.groups.of_broker(broker))[group].name == group
            assert (topic, twin) in await admin.brokers.offsets(broker)
            assert (await admin.groups.times(twin, topic))[queue].delay >= 0
            assert await admin.groups.lowest_offsets(topic, twin) == {queue: 0}
        async with asyncio.timeout(60):
            while len(await admin.messages.by_key(topic, "k")) < 3:
                await asyncio.sleep(0.05)
        await admin.topics.delete(topic)
        with pytest.raises(RouteNotFound):
            await admin.topics.route(topic)


async def test_two_tenants_pop(peer: cluster.Cluster, unique: Callable[[str], str]) -> None:
    """A retry topic has the names of group and topic in its own, each with its namespace."""
    topic, group, names = unique("orders"), unique("billing"), [unique("a"), unique("b")]
    async with Client(peer.namesrv, namespace_v1=names[0]) as one, Client(peer.namesrv, namespace_v1=names[1]) as two:
        for tenant, body in ((one, b"of one"), (two, b"of two")):
            await tenant.create_topic(topic, 1)
            async with tenant.producer("pg") as producer:
                await producer.send_batch([Message(topic, body)])
                await producer.send(Message(topic, body))
        async with (
            one.pop_consumer(group, [topic], from_where="first") as ones,
            two.pop_consumer(group, [topic], from_where="first", max_reconsume_times=0) as twos,
        ):
            first, second = await anext(ones), await anext(ones)
            assert [(each.topic, each.body) for each in (first, second)] == [(topic, b"of one")] * 2
            await first.extend(30)
            await first.ack()
            await second.retry(0.1)
            again = await anext(ones)
            assert (again.topic, again.msg_id, again.reconsume_times) == (topic, second.msg_id, 1)
            assert again.handle.retry_flag != "0"
            await again.extend(30)
            await again.ack()
            for _ in range(2):
                dead = await anext(twos)
                assert (dead.topic, dead.body) == (topic, b"of two")
                await dead.nack()
            async with two.pop_consumer(unique("undertaker"), [f"%DLQ%{group}"], from_where="first") as undertaker:
                assert [(await anext(undertaker)).body for _ in range(2)] == [b"of two"] * 2
        async with one.pop_consumer(group, [topic], from_where="first") as ones:
            assert await ones.fetch(timeout=0.5) == [], "all is acknowledged"
