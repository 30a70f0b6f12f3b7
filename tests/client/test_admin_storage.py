"""What administrators ask of how a broker stores, and where a static topic's queues are."""

from collections.abc import Callable

import pytest

from rockmq.client import Client, ClientError, Message, ResponseError
from rockmq.client.admin import QueueMapping, Segment, TopicQueues, TopicSettings
from rockmq.protocol.codes import ResponseCode
from tests.client.conftest import NewTopic, eventually, not_built
from tests.support import cluster

Unique = Callable[[str], str]


async def test_timers_and_delay_levels(mq: Client, peer: cluster.Cluster, new_topic: NewTopic) -> None:
    (queue,) = await new_topic(1)
    storage, broker = mq.admin.storage, queue.broker_name
    async with mq.producer("timed") as producer:
        await producer.send(Message(queue.topic, b"x"), delay=3600)
        await producer.send(Message(queue.topic, b"y", delay_level=1))

    async def counted() -> bool:
        counts = await storage.timer_counts(broker)
        return queue.topic in counts and counts[queue.topic].count == 1

    async def delivered() -> bool:
        return (await storage.delay_offsets(broker)).get(1, 0) > 0

    await eventually(delivered)
    await eventually(counted)

    async def saved() -> bool:
        return (await storage.timer_checkpoint(broker)).version.timestamp > 0

    await eventually(saved)
    assert (await storage.timer_checkpoint(broker)).queue_offset >= 0


async def test_cold_reads_are_bounded(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    storage, broker, group = mq.admin.storage, peer.broker, unique("cold")
    with not_built(peer):
        await storage.limit_cold_reads(broker, {group: 4096, "other": 1})
        found = await storage.cold_reads(broker)
        assert (found.limits[group], found.groups) == (4096, {})
        assert 0 < found.default_limit < found.limit
        await storage.unlimit_cold_reads(broker, group)
        assert group not in (await storage.cold_reads(broker)).limits
    await storage.set_read_ahead(broker, True)
    assert (await mq.admin.brokers.config(broker))["dataReadAheadEnable"] == "true"
    await storage.set_read_ahead(broker, False)
    assert (await mq.admin.brokers.config(broker))["dataReadAheadEnable"] == "false"
    await storage.set_read_ahead(broker, True)


async def test_a_broker_without_rocksdb(mq: Client, peer: cluster.Cluster) -> None:
    """What one that has it answers is in test_controllers.py."""
    storage, lite, broker = mq.admin.storage, mq.admin.lite, peer.broker
    code = {"rockmq": ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "apache": ResponseCode.INVALID_PARAMETER}[peer.kind]
    with pytest.raises(ResponseError) as refused:
        await storage.switch_timer_engine(broker, "rocksdb")
    assert refused.value.code == code
    for call in (
        storage.check_rocksdb_queues(broker),
        storage.export_rocksdb_tables(broker),
        storage.move_pops_to_files(broker),
        lite.broker(broker),
    ):
        with not_built(peer):
            await call
    for call in (lite.parent(broker, "TBW102"), lite.topic(broker, "TBW102", "x"), lite.client(broker, "TBW102", "g", "c"),
                 lite.group(broker, "none"), lite.dispatch(broker, "none")):  # fmt: skip
        with pytest.raises(ResponseError):
            await call


async def test_static_topics(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    static, topic, name = mq.admin.static_topics, unique("static"), cluster.broker_name(peer)
    assert await static.mappings(topic) == {}
    with not_built(peer):
        made = await static.create(topic, 3)
        assert made == await static.mappings(topic)
        assert made[name].queues == 3
        assert made[name].hosted[2] == [Segment(queue_id=2, broker_name=name)]

        async def placed() -> bool:
            try:
                return name in await static.placements(topic)
            except ResponseError as error:
                assert error.code == ResponseCode.TOPIC_NOT_EXIST
                return False

        await eventually(placed)
        placement = (await static.placements(topic))[name]
        assert (placement.queues, placement.current) == (3, {0: 0, 1: 1, 2: 2})
        with pytest.raises(ClientError, match=f"is a static topic of {name} already"):
            await static.create(topic, 4)
        older = QueueMapping(topic=topic, queues=3, broker_name=name, epoch=1)
        with pytest.raises(ResponseError, match="small epoch"):
            await static.put(TopicSettings(topic, 3, 3), older)
        await static.put(TopicSettings(topic, 3, 3), older, force=True)
        assert (await static.mappings(topic))[name].epoch == 1
        await mq.admin.topics.delete(topic)
        assert await static.mappings(topic) == {}
    with pytest.raises(ClientError, match="expected 1 or more"):
        await static.create(topic, 0)


async def test_what_replication_needs(mq: Client, peer: cluster.Cluster) -> None:
    """Of a master that no controller has made one; the others are in test_controllers.py."""
    brokers = mq.admin.brokers
    with not_built(peer):
        await brokers.set_master_flush_offset(peer.broker, 0)
    with pytest.raises(ResponseError) as refused:
        await brokers.epochs(peer.broker)
    code = {"rockmq": ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "apache": ResponseCode.SYSTEM_ERROR}
    assert refused.value.code == code[peer.kind]


async def test_name_servers_know_brokers_and_topics_to_come(mq: Client, peer: cluster.Cluster, unique: Unique) -> None:
    names, topic, name = mq.admin.name_servers, unique("to-come"), cluster.broker_name(peer)
    members = await names.broker_members(cluster.cluster_name(peer), name)
    assert (members.name, members.cluster, members.addresses) == (name, cluster.cluster_name(peer), {0: peer.broker})
    assert (await names.broker_members("moon", "nobody")).addresses == {}
    await names.register_topic(topic, [TopicQueues(name, 2, 2, 6)])
    assert (await mq.admin.topics.route(topic)).queues == [TopicQueues(name, 2, 2, 6)]
