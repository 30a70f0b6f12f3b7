"""What administrators do."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.client import (
    Client,
    ClientError,
    Decision,
    Message,
    MessageQueue,
    ResponseError,
    RouteNotFound,
    SendReceipt,
    StoredMessage,
)
from rockmq.client.admin import GroupSettings, QueueBounds, QueueProgress, Rule, Subscription, TopicSettings
from rockmq.protocol.codes import ResponseCode
from tests.client.conftest import NewTopic, eventually, until_held
from tests.support import apache, cluster
from tests.support.process import free_port

Unique = Callable[[str], str]


async def send(mq: Client, queue: MessageQueue, count: int) -> None:
    """The first messages of a queue, which has them when this returns."""
    async with mq.producer("admin-pg") as producer:
        for number in range(count):
            await producer.send(Message(queue.topic, b"%d" % number, keys=[f"{queue.topic}-{number}"]), queue=queue)
    await until_held(mq, queue, count)


# Topics


async def test_a_topic_is_made_changed_and_deleted(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    topics, topic, name = mq.admin.topics, unique("managed"), cluster.broker_name(peer)
    made = TopicSettings(topic, 3, 4, attributes={"message.type": "NORMAL"})
    await topics.put(made)
    assert await topics.get(topic) == {name: made}
    await topics.put(TopicSettings(topic, 5, 5), broker=name, remove_attributes=["message.type"])
    changed = TopicSettings(topic, 5, 5)
    assert (await topics.of_broker(name))[topic] == (await topics.of_broker(peer.broker))[topic] == changed
    assert topic in await topics.names()
    assert topic in await topics.names(cluster.cluster_name(peer))
    assert await topics.names("moon") == []
    assert name in await topics.system_names()
    route = await topics.route(topic)
    assert [(each.name, each.addresses) for each in route.brokers] == [(name, {0: peer.broker})]
    assert [(each.broker_name, each.read_queues, each.permission) for each in route.queues] == [(name, 5, 6)]
    await topics.delete(topic)
    with pytest.raises(RouteNotFound):
        await topics.route(topic)
    with pytest.raises(ResponseError) as refused:
        await topics.put(TopicSettings("not a name"))
    assert refused.value.code == ResponseCode.INVALID_PARAMETER
    with pytest.raises(RouteNotFound, match="moon"):
        await topics.put(made, cluster="moon")


async def test_several_topics_at_once(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    topics, broker = mq.admin.topics, cluster.broker_name(peer)
    made = [TopicSettings(unique("one"), 2, 3), TopicSettings(unique("two"), 4, 4, attributes={"message.type": "FIFO"})]
    await topics.put_many(made)
    kept = await topics.of_broker(broker)
    assert [kept[each.name] for each in made] == made
    with pytest.raises(ResponseError) as refused:
        await topics.put_many([TopicSettings(unique("never")), TopicSettings("not a name")], broker=broker)
    assert refused.value.code == ResponseCode.INVALID_PARAMETER


async def test_topics_of_units_and_the_brokers_own(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    topics = mq.admin.topics
    of_unit, subscribed, both = unique("unit"), unique("subscribed"), unique("both")
    for flags, topic in ((1, of_unit), (2, subscribed), (3, both)):
        await topics.put(TopicSettings(topic, 1, 1, unit_flags=flags))
        await eventually(lambda topic=topic: _has(topic, topics.names()))  # type: ignore[misc]
    assert {of_unit, both} <= set(await topics.unit_names())
    assert subscribed not in await topics.unit_names()
    assert {subscribed, both} <= set(await topics.unit_names("unit subscription"))
    assert subscribed in await topics.unit_names("unit subscription only")
    assert both not in await topics.unit_names("unit subscription only")
    assert {"TBW102", "RMQ_SYS_TRANS_HALF_TOPIC"} <= set(await mq.admin.brokers.system_topics(peer.broker))


async def test_what_is_in_a_topic(mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique) -> None:
    one, other = await new_topic(2)
    await send(mq, one, 3)
    stats = await mq.admin.topics.stats(one.topic)
    stored = stats.queues[one].last_stored
    assert stored is not None
    assert stats.queues == {one: QueueBounds(0, 3, stored), other: QueueBounds(0, 0, None)}
    assert stats.queues[one].messages == 3
    first = await mq.earliest_stored(one)
    assert first is not None
    assert 0 < first <= stored
    assert await mq.earliest_stored(other) is None
    group = unique("reader")
    async with mq.consumer(group, [one.topic], from_where="first"):
        await eventually(lambda: _has(group, mq.admin.topics.groups(one.topic)))


async def _has(name: str, asked: Awaitable[list[str]]) -> bool:
    return name in await asked


# Groups


async def test_a_group_is_made_changed_and_deleted(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    groups, name = mq.admin.groups, unique("managed")
    broker = cluster.broker_name(peer)
    made = GroupSettings(name, max_reconsume_times=3, orderly=True)
    await groups.put(made)
    assert await groups.get(name) == {broker: made}
    assert (await groups.of_broker(broker))[name] == made
    await groups.delete(name, offsets=True)
    assert name not in await groups.of_broker(broker)
    with pytest.raises(ResponseError):
        await groups.put(GroupSettings("not a name"))


async def test_a_groups_attributes(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    groups, broker = mq.admin.groups, cluster.broker_name(peer)
    made = GroupSettings(unique("attributed"), attributes={"priority.factor": "5"})
    if peer.kind == "rockmq":
        with pytest.raises(ResponseError, match="attributes of groups aren't built"):
            await groups.put(made)
        return
    await groups.put(made)
    assert await groups.get(made.name) == {broker: made}
    await groups.put(GroupSettings(made.name, max_reconsume_times=2))
    assert (await groups.get(made.name))[broker].attributes == made.attributes
    await groups.put(GroupSettings(made.name), remove_attributes=["priority.factor"])
    assert await groups.get(made.name) == {broker: GroupSettings(made.name)}


async def test_several_groups_at_once(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    groups, broker = mq.admin.groups, cluster.broker_name(peer)
    made = [GroupSettings(unique("one"), max_reconsume_times=1), GroupSettings(unique("two"), orderly=True)]
    await groups.put_many(made)
    assert [(await groups.of_broker(broker))[each.name] for each in made] == made
    with pytest.raises(ResponseError):
        await groups.put_many([GroupSettings("not a name")], broker=broker)


async def test_a_group_may_not_read_a_topic(mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique) -> None:
    (queue,) = await new_topic(1)
    group, name = unique("barred"), queue.broker_name
    groups = mq.admin.groups
    assert await groups.readable(group, queue.topic) == {name: True}
    await groups.set_readable(group, queue.topic, False)
    assert await groups.readable(group, queue.topic) == {name: False}
    await groups.set_readable(group, queue.topic, True)
    assert await groups.readable(group, queue.topic) == {name: True}


async def test_where_the_slowest_group_is(mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique) -> None:
    queues = await new_topic(2)
    slow, quick = unique("slow"), unique("quick")
    for group in (slow, quick):
        await mq.admin.groups.put(GroupSettings(group))
    for queue in queues:
        await send(mq, queue, 5)
        for group, offset in ((slow, 2), (quick, 4)):
            await mq.commit(group, queue, offset)
    assert await mq.admin.groups.lowest_offsets(queues[0].topic, quick) == dict.fromkeys(queues, 2)


async def test_who_consumes_and_how_far(mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique) -> None:
    (queue,) = await new_topic(1)
    group, broker = unique("seen"), cluster.broker_name(peer)
    groups = mq.admin.groups
    await send(mq, queue, 5)
    with pytest.raises(ResponseError) as offline:
        await groups.connections(group)
    assert offline.value.code == ResponseCode.CONSUMER_NOT_ONLINE
    async with mq.consumer(group, {queue.topic: "*"}, from_where="first") as consumer:
        for _ in range(3):
            await (await anext(consumer)).ack()
        await consumer.commit()
        connected = await groups.connections(group)
        assert [each.client_id for each in connected.clients] == [mq.client_id]
        assert connected.subscriptions[queue.topic] == Subscription(queue.topic, "*", "TAG")
        assert (connected.consume_type, connected.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
        progress = await groups.progress(group, queue.topic)
        found = progress.queues[queue]
        assert found == QueueProgress(5, 3, found.pull_offset, found.last_consumed)
        assert progress.lag == found.lag == 2
        assert found.last_consumed is not None
        assert queue in (await groups.progress(group)).queues
        assert (await mq.admin.members.positions(group, queue.topic))[mq.client_id] == {queue: 3}
        info = await mq.admin.members.running_info(group, mq.client_id)
        assert info.queues[queue].commit_offset == 3
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        with pytest.raises(ResponseError):
            await mq.admin.members.running_info(group, "nobody")
        assert queue.topic in await groups.topics(group)
        assert await groups.subscription(group, queue.topic) == Subscription(queue.topic, "*", "TAG")
        assert (await groups.times(group, queue.topic))[queue].delay >= 0
        assert (await groups.progress_of_all(broker))[group].lag == 2
        offsets = await mq.admin.brokers.offsets(broker)
        assert offsets[queue.topic, group] == {0: 3}


async def test_who_produces(mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique) -> None:
    (queue,) = await new_topic(1)
    group = unique("producers")
    assert await mq.admin.groups.producers(group, queue.topic) == []
    async with mq.producer(group) as producer:
        await producer.send(Message(queue.topic, b"x"))
        await eventually(lambda: _known(mq, group, queue.topic))
        known = await mq.admin.groups.all_producers(queue.broker_name)
        assert [each.client_id for each in known[group]] == [mq.client_id]


async def _known(mq: Client, group: str, topic: str) -> bool:
    return [each.client_id for each in await mq.admin.groups.producers(group, topic)] == [mq.client_id]


async def test_where_a_group_goes_on(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    queues = await new_topic(2)
    topic, group, twin = queues[0].topic, unique("moved"), unique("twin")
    groups = mq.admin.groups
    for queue in queues:
        await send(mq, queue, 4)
    for name in (group, twin):
        await groups.put(GroupSettings(name))
        for queue in queues:
            await mq.commit(name, queue, 4)
    assert await groups.reset(group, topic, "begin") == dict.fromkeys(queues, 0)
    assert await groups.reset(group, topic, datetime(2100, 1, 1, tzinfo=UTC)) == dict.fromkeys(queues, 4)
    assert await groups.reset(group, topic, "end") == dict.fromkeys(queues, 4)
    await groups.reset_queue(group, queues[1], 1)
    assert await mq.committed_offsets(group, topic) == {queues[0]: 4, queues[1]: 1}
    with pytest.raises(ClientError, match="time zone"):
        await groups.reset(group, topic, datetime(2100, 1, 1))  # noqa: DTZ001
    await groups.clone_offsets(group, twin, topic)
    assert await mq.committed_offsets(twin, topic) == {queues[0]: 4, queues[1]: 1}
    async with mq.consumer(group, [topic]) as consumer:
        found = [await anext(consumer) for _ in range(3)]
        assert [(each.queue, each.queue_offset) for each in found] == [(queues[1], offset) for offset in (1, 2, 3)]
        for each in found:
            await each.ack()


async def test_a_member_is_handed_a_message(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    (queue,) = await new_topic(1)
    group = unique("handed")
    async with mq.producer("admin-pg") as producer:
        receipt = await producer.send(Message(queue.topic, b"old"))
    async with mq.consumer(group, [queue.topic], from_where="first") as consumer:
        await (await anext(consumer)).ack()
        handed = asyncio.create_task(mq.admin.members.consume(group, mq.client_id, receipt.offset_id))
        again = await anext(consumer)
        assert again.body == b"old"
        await again.ack()
        assert (await handed).result == "CR_SUCCESS"
        with pytest.raises(ClientError, match="offset message id"):
            await mq.admin.members.consume(group, mq.client_id, "no id")


# Messages


async def test_messages_are_found_by_ids_and_keys(mq: Client, new_topic: NewTopic) -> None:
    (queue,) = await new_topic(1)
    topic, messages = queue.topic, mq.admin.messages
    async with mq.producer("admin-pg") as producer:
        receipts = [await producer.send(Message(topic, b"%d" % number, keys=["same", f"k{number}"])) for number in range(3)]
    assert (await messages.by_offset_id(receipts[1].offset_id)).body == b"1"
    with pytest.raises(ClientError, match="not an offset message id"):
        await messages.by_offset_id("x")

    async def indexed() -> bool:
        return len(await messages.by_key(topic, "same")) == 3 and len(await messages.by_key(topic, "k2")) == 1

    await eventually(indexed)
    assert [message.body for message in await messages.by_key(topic, "same")] == [b"0", b"1", b"2"]
    assert [message.body for message in await messages.by_key(topic, "k2")] == [b"2"]
    assert await messages.by_key(topic, "none") == []
    assert await messages.by_key(topic, "same", end=datetime(2020, 1, 1, tzinfo=UTC)) == []
    assert [message.body for message in await messages.by_unique_key(topic, receipts[2].msg_id)] == [b"2"]


async def test_what_became_of_a_message(
    mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique, tmp_path: Path
) -> None:
    (queue,) = await new_topic(1)
    reads, waits, filters, shares, pulls, gone = (
        unique(name) for name in ("read", "wait", "filter", "share", "pull", "gone")
    )
    async with mq.producer("admin-pg") as producer:
        receipt = await producer.send(Message(queue.topic, b"x", tag="red"))
    message = await mq.admin.messages.by_offset_id(receipt.offset_id)
    for group in (gone, filters):
        await mq.admin.groups.put(GroupSettings(group))
        await mq.commit(group, queue, 1)
    async with (
        mq.consumer(reads, {queue.topic: "red || blue"}, from_where="first") as consumer,
        mq.consumer(waits, [queue.topic], from_where="first"),
        mq.consumer(filters, {queue.topic: "blue"}, from_where="first"),
        mq.consumer(shares, [queue.topic], broadcast=True, offsets_directory=tmp_path),
        mq.lite_pull_consumer(pulls, [queue.topic], from_where="first") as puller,
    ):
        await (await anext(consumer)).ack()
        await consumer.commit()
        await puller.poll(10)
        wanted = {reads: "consumed", waits: "not yet", filters: "filtered", shares: "broadcast", pulls: "pulled"}

        async def told() -> bool:
            return await mq.admin.messages.consumption(message) == wanted | {gone: "not online"}

        await eventually(told)


async def test_a_broker_asks_again_for_a_transaction(
    mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique
) -> None:
    (queue,) = await new_topic(1)

    async def checker(message: StoredMessage) -> Decision:
        return Decision.UNKNOWN

    async def execute(receipt: SendReceipt) -> Decision:
        return Decision.UNKNOWN

    async with mq.transaction_producer(unique("tpg"), checker) as producer:
        made = await producer.send_in_transaction(Message(queue.topic, b"half"), execute)
        offset_id = made.sent.offset_id
        await mq.admin.messages.resume_checks(offset_id)
        with pytest.raises(ResponseError):
            await mq.admin.messages.resume_checks(offset_id[:-4] + "FFFF")  # where no message is
        with pytest.raises(ClientError, match="not an offset message id"):
            await mq.admin.messages.resume_checks("x")


# Brokers


async def test_brokers(mq: Client, peer: cluster.Cluster, new_topic: NewTopic) -> None:
    (queue,) = await new_topic(1)
    await send(mq, queue, 1)
    brokers, name = mq.admin.brokers, queue.broker_name
    known = await brokers.clusters()
    assert known.clusters == {cluster.cluster_name(peer): [name]}
    assert known.brokers[name].addresses == {0: peer.broker}

    async def answers() -> bool:
        """Apache's broker fails to in its first second, and has no rates in its first ten."""
        with contextlib.suppress(ResponseError):
            return bool((await brokers.runtime_info(name)).table)
        return False

    await eventually(answers)
    info = await brokers.runtime_info(name)
    assert info.version is not None
    assert info.version.startswith("V5_")
    assert info.log_max_offset is not None
    assert info.log_max_offset > 0
    assert info.booted is not None
    if peer.kind == "rockmq":
        assert info.puts_per_second is not None
        assert info.gets_per_second is not None
    assert info.disk_ratio is not None
    assert 0 < info.disk_ratio < 1
    assert info.puts_today is not None
    assert info.gets_today is not None
    assert info.earliest_message is not None
    with pytest.raises(RouteNotFound, match="moon"):
        await brokers.runtime_info("moon")
    assert (await brokers.config(name))["brokerName"] == name
    await brokers.update_config(name, {"longPollingEnable": "true"})
    assert (await brokers.config(peer.broker))["longPollingEnable"] == "true"
    assert (await brokers.stats(name, "TOPIC_PUT_NUMS", queue.topic)).day.sum >= 0
    entries = await brokers.queue_entries(queue, 0)
    assert (entries.first, entries.end, len(entries.entries)) == (0, 1, 1)
    replication = await brokers.replication(name)
    assert (replication.master, replication.slaves) == (True, [])
    for tidy_up in (brokers.clean_expired_queues, brokers.clean_unused_topics, brokers.delete_expired_log):
        await tidy_up(name)


# Users


async def test_a_broker_that_keeps_no_users(mq: Client, peer: cluster.Cluster) -> None:
    """What one that does answers is in test_security.py."""
    access = mq.admin.access
    calls = [
        access.create_user("u", "p"),
        access.update_user("u", enabled=False),
        access.delete_user("u"),
        access.user(peer.broker, "u"),
        access.users(peer.broker),
        access.create_acl("User:u", [Rule("Topic:x", ("Pub",))]),
        access.update_acl("User:u", [Rule("Topic:x", ("Pub",))]),
        access.delete_acl("User:u"),
        access.acl(peer.broker, "User:u"),
        access.acls(peer.broker),
    ]
    for call in calls:
        with pytest.raises(ResponseError) as refused:
            await call
        assert refused.value.code == ResponseCode.SYSTEM_ERROR


# Name servers


async def test_name_servers_keep_keys_and_are_configured(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    names, space = mq.admin.name_servers, unique("space")
    assert await names.get_kv(space, "a") is None
    assert await names.list_kv(space) == {}
    await names.put_kv(space, "a", "1")
    await names.put_kv(space, "b", "ä;2")
    assert await names.get_kv(space, "b") == "ä;2"
    assert await names.list_kv(space) == {"a": "1", "b": "ä;2"}
    await names.delete_kv(space, "a")
    assert await names.list_kv(space) == {"b": "ä;2"}
    for said in ("false", "true"):
        await names.update_config({"orderMessageEnable": said})
        assert (await names.config())[peer.namesrv]["orderMessageEnable"] == said
    with pytest.raises(ResponseError):
        await names.update_config({"kvConfigPath": "/elsewhere"})


async def test_write_permission_is_taken_and_given(tmp_path: Path) -> None:
    """At RockMQ's name server and Apache's at once, by which a broker of ours is known that has no other users."""
    if missing := apache.available():
        pytest.skip(missing)
    with apache.name_server(tmp_path, free_port()) as names:
        async with (
            embedded.serve(flush="ASYNC_FLUSH", properties={"namesrvAddr": names.address}) as served,
            Client([served.namesrv, names.address]) as mq,
        ):
            broker_name = (await mq.create_topic("orders", 2))[0].broker_name
            admin = mq.admin.name_servers
            assert set(await admin.config()) == {served.namesrv, names.address}
            assert await admin.wipe_write_permission(broker_name) > 0
            for each in (served.namesrv, names.address):
                async with Client(each) as one:
                    assert (await one.admin.topics.route("orders")).queues[0].permission == 4
                    assert await one.admin.name_servers.add_write_permission(broker_name) > 0
                    assert (await one.admin.topics.route("orders")).queues[0].permission == 6
            assert await admin.wipe_write_permission("moon") == 0
