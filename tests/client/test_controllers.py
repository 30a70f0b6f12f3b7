"""What RockMQ has no servers for: Apache's controller, its process for several brokers, static topics that go from one of
these to another, and one with RocksDB in place of files."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rockmq.client import Client, ClientError, ConnectError, ConsumedMessage, Message, ResponseError, RouteNotFound
from rockmq.client.admin import GroupSettings, QueueMapping, Segment, TopicSettings
from rockmq.protocol.codes import ResponseCode
from tests.client.conftest import eventually
from tests.support import apache, cluster
from tests.support.process import free_broker_port, free_port

NAME = "twins"
CONTROLLED = {
    "brokerName": NAME,
    "enableControllerMode": "true",
    "syncBrokerMetadataPeriod": "500",
    "checkSyncStateSetPeriod": "500",
}
"""So that brokers learn in tenths of seconds who is who."""
ROCKSDB = {
    "brokerName": "rocks",
    "storeType": "defaultRocksDB",
    "configManagerVersion": "v1",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "timerRocksDBEnable": "true",
    "popConsumerKVServiceEnable": "true",
}


@dataclass
class Contained:
    """Apache's name server, controller, and process for several brokers, without any."""

    namesrv: str
    controller: str
    container: str
    directory: Path

    def broker_file(self, name: str, properties: Mapping[str, str]) -> tuple[str, str]:
        """The path of a configuration for a broker in the container, and the address that it will have."""
        port = free_broker_port()
        file = apache.broker_file(self.directory / name, port, self.namesrv, properties)
        return str(file), f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def contained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contained]:
    cluster.require("apache")
    directory = tmp_path_factory.mktemp("contained")
    with contextlib.ExitStack() as stack:
        names = stack.enter_context(apache.name_server(directory / "names", free_port()))
        controller = stack.enter_context(apache.controller(directory / "controller", free_port()))
        container = stack.enter_context(apache.container(directory / "container", free_port(-2), names.address))
        yield Contained(names.address, controller.address, container.address, directory)


@pytest.fixture
async def mq(contained: Contained) -> AsyncIterator[Client]:
    async with Client(contained.namesrv) as client:
        yield client


async def test_who_leads_and_how_it_is_configured(mq: Client, contained: Contained) -> None:
    controllers, controller = mq.admin.controllers, contained.controller
    found = await controllers.metadata(controller)
    assert (found.group, found.leader_id, found.leader, found.leads) == ("controllers", "n0", controller, True)
    assert found.peers == [f"n0:{controller}"]
    assert (await controllers.config(controller))["electMasterMaxRetryCount"] == "3"
    await controllers.update_config(controller, {"electMasterMaxRetryCount": "4"})
    assert (await controllers.config(controller))["electMasterMaxRetryCount"] == "4"
    with pytest.raises(ResponseError) as refused:
        await controllers.update_config(controller, {"configStorePath": "/elsewhere"})
    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert await controllers.replicas(controller, ["nobody"]) == {}
    with pytest.raises(ResponseError) as unknown:
        await controllers.elect(controller, apache.CLUSTER, "nobody", 1)
    assert unknown.value.code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    with pytest.raises(ResponseError) as nothing:
        await controllers.forget(controller, apache.CLUSTER, "nobody")
    assert nothing.value.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    with pytest.raises(ResponseError) as other:
        await controllers.metadata(contained.namesrv)
    assert other.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_brokers_of_a_container_take_turns_as_master(mq: Client, contained: Contained) -> None:
    controllers, controller, containers = mq.admin.controllers, contained.controller, mq.admin.containers

    async def in_sync(*wanted: int) -> bool:
        found = (await controllers.replicas(controller, [NAME])).get(NAME)
        return found is not None and sorted(each.broker_id for each in found.in_sync) == list(wanted)

    with pytest.raises(ResponseError, match="addBroker properties empty"):
        await containers.add(contained.container, "/no/such/file")
    controlled = CONTROLLED | {"controllerAddr": controller}
    path, first = contained.broker_file("first", controlled)
    await containers.add(contained.container, path)
    await eventually(lambda: in_sync(1))
    with pytest.raises(ResponseError, match="has already been added"):
        await containers.add(contained.container, path)
    path, second = contained.broker_file("second", controlled | {"brokerId": "1", "brokerRole": "SLAVE"})
    await containers.add(contained.container, path)
    assert "listenPort" in await mq.admin.brokers.config(contained.container)

    await eventually(lambda: in_sync(1, 2))
    found = (await controllers.replicas(controller, [NAME]))[NAME]
    assert (found.master_id, found.master_address, found.master_epoch, found.not_in_sync) == (1, first, 1, [])
    assert {(each.broker_id, each.address, each.alive) for each in found.in_sync} == {(1, first, True), (2, second, True)}
    epochs = await mq.admin.brokers.epochs(first)
    assert (epochs.broker_name, [(each.epoch, each.start) for each in epochs.epochs]) == (NAME, [(1, 0)])
    await mq.admin.brokers.set_master_flush_offset(second, 0)

    with pytest.raises(ResponseError) as already:
        await controllers.elect(controller, apache.CLUSTER, NAME, 1)
    assert already.value.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    with pytest.raises(ResponseError) as absent:
        await controllers.elect(controller, apache.CLUSTER, NAME, 7)
    assert absent.value.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    elected = await controllers.elect(controller, apache.CLUSTER, NAME, 2)
    assert (elected.master_id, elected.master_address, elected.master_epoch, elected.in_sync) == (2, second, 2, [2])
    assert elected.brokers is not None
    assert elected.brokers.addresses[2] == second

    with pytest.raises(ResponseError) as alive:
        await controllers.forget(controller, apache.CLUSTER, NAME, [1])
    assert alive.value.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    await controllers.forget(controller, apache.CLUSTER, NAME, living=True)
    assert await controllers.replicas(controller, [NAME]) == {}

    await containers.remove(contained.container, apache.CLUSTER, NAME, 1)
    with pytest.raises(ResponseError) as gone:
        await containers.remove(contained.container, apache.CLUSTER, NAME, 1)
    assert gone.value.code == ResponseCode.BROKER_NOT_EXIST
    await containers.remove(contained.container, apache.CLUSTER, NAME, 0)


async def test_a_static_queue_goes_from_one_broker_to_another(mq: Client, contained: Contained) -> None:
    static, topic = mq.admin.static_topics, "wandering"
    for name in ("left", "right"):
        path, _ = contained.broker_file(name, {"brokerName": name})
        await mq.admin.containers.add(contained.container, path)

    async def made() -> bool:  # and no other is there, as mqadmin asks all of them
        return (await mq.admin.brokers.clusters()).brokers.keys() == {"left", "right"}

    await eventually(made)
    settings = TopicSettings(topic, 1, 1)
    for number, name in enumerate(("left", "right")):
        hosted = {number: [Segment(queue_id=0, broker_name=name)]}
        await static.put(settings, QueueMapping(topic=topic, queues=2, broker_name=name, epoch=1, hosted=hosted))

    async def known() -> bool:
        with contextlib.suppress(RouteNotFound, ConnectError):
            return len([await mq.max_offset(each) for each in await mq.queues(topic)]) == 2
        return False

    await eventually(known)
    queue = (await mq.queues(topic))[0]
    taken: list[ConsumedMessage] = []
    async with mq.producer("pg", timeout=30) as producer:
        for body in (b"0", b"1"):
            await producer.send(Message(topic, body), queue=queue)
        moved = await asyncio.to_thread(
            apache.mqadmin, "remappingStaticTopic", "-t", topic, "-b", "right",
            namesrv=contained.namesrv, directory=contained.directory,
        )  # fmt: skip
        assert (await static.mappings(topic))["right"].hosted.keys() == {0, 1}, moved.stdout + moved.stderr
        later = await producer.send(Message(topic, b"2"), queue=queue)
        assert later.queue == queue
    async with mq.consumer("wg", topic, from_where="first") as consumer, asyncio.timeout(60):
        while len(taken) < 3:
            message = await anext(consumer)
            taken.append(message)
            await message.ack()
        await consumer.commit()
        async with mq.producer("pg") as producer:
            for body in (b"3", b"4"):  # so that there was a pull behind the first, which might tell the group's offset, too
                await producer.send(Message(topic, body), queue=queue)
                last = await anext(consumer)
                await last.ack()
        told = (await mq.committed_offsets("wg", topic))[queue]
        assert told is not None
        assert later.queue_offset + 1 <= told <= last.queue_offset + 1
    assert [(each.queue, each.body) for each in taken] == [(queue, b"0"), (queue, b"1"), (queue, b"2")]
    assert [each.queue_offset for each in taken] == [0, 1, later.queue_offset]
    assert (await mq.committed_offsets("wg", topic))[queue] == last.queue_offset + 1


# RocksDB


@pytest.fixture(scope="module")
def rocks(contained: Contained) -> tuple[str, Path]:
    """A broker's address, and where its tables are."""
    path, address = contained.broker_file("rocks", ROCKSDB)

    async def add() -> None:
        async with Client(contained.namesrv) as mq:
            await mq.admin.containers.add(contained.container, path)

    asyncio.run(add())
    return address, contained.directory / "rocks" / "store" / "config"


async def test_tables_are_written_as_files(mq: Client, rocks: tuple[str, Path]) -> None:
    broker, directory = rocks
    await mq.admin.topics.put(TopicSettings("exported", 3, 3), broker=broker)
    await mq.admin.storage.export_rocksdb_tables(broker, ["topics"])
    kept = json.loads((directory / "topics.json").read_text(encoding="utf-8"))["topicConfigTable"]
    assert kept["exported"]["readQueueNums"] == 3
    assert not (directory / "subscriptionGroup.json").exists()
    await mq.admin.storage.export_rocksdb_tables(broker)
    assert (directory / "subscriptionGroup.json").exists()
    assert await mq.admin.storage.check_rocksdb_queues(broker, "exported") == ("going on", "")
    await mq.admin.storage.move_pops_to_files(broker)


async def test_timers_go_over_to_rocksdb_and_back(mq: Client, rocks: tuple[str, Path]) -> None:
    broker, storage = rocks[0], mq.admin.storage
    await storage.switch_timer_engine(broker, "rocksdb")
    assert (await mq.admin.brokers.config(broker))["timerStopEnqueue"] == "true"
    await storage.switch_timer_engine(broker, "files")
    assert (await mq.admin.brokers.config(broker))["timerStopEnqueue"] == "false"
    with pytest.raises(ClientError, match="expected 'files' or 'rocksdb'"):
        await storage.switch_timer_engine(broker, "paper")  # type: ignore[arg-type]


async def test_lite_topics(mq: Client, rocks: tuple[str, Path]) -> None:
    lite, broker = mq.admin.lite, rocks[0]
    await mq.admin.topics.put(TopicSettings("parent", 1, 1, attributes={"message.type": "LITE"}), broker=broker)
    await mq.admin.groups.put(GroupSettings("lite-group", attributes={"lite.bind.topic": "parent"}), broker=broker)
    found = await lite.broker(broker)
    assert (found.store_type, found.ttls, found.subscriptions) == ("defaultRocksDB", {"parent": -1}, 0)
    assert found.groups == {"parent": ["lite-group"]}
    parent = await lite.parent(broker, "parent")
    assert (parent.topic, parent.groups, parent.lite_topics) == ("parent", ["lite-group"], 0)
    topic = await lite.topic(broker, "parent", "l1")
    assert (topic.parent_topic, topic.lite_topic, topic.subscribers) == ("parent", "l1", [])
    client = await lite.client(broker, "parent", "lite-group", "nobody")
    assert (client.client_id, client.lite_topics, client.names) == ("nobody", -1, [])
    whole = await lite.group(broker, "lite-group")
    assert (whole.group, whole.parent_topic, whole.lag, whole.most_messages) == ("lite-group", "parent", 0, [])
    one = await lite.group(broker, "lite-group", "l1")
    assert (one.lite_topic, one.lag) == ("l1", -1)
    await lite.dispatch(broker, "lite-group")
    await lite.dispatch(broker, "lite-group", "nobody")
    with pytest.raises(ResponseError) as unknown:
        await lite.parent(broker, "none")
    assert unknown.value.code == ResponseCode.TOPIC_NOT_EXIST
