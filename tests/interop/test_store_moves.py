"""One store and one broker.conf, served by Apache's broker, then by ours, then by Apache's again."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rockmq.protocol.codes import RequestCode
from tests.support import apache, server
from tests.support.cluster import wait_for_route
from tests.support.events import Event, events, wait_for_keys
from tests.support.messages import content
from tests.support.process import ProcessError, eventually, free_broker_port, free_port

MODES = ("sync", "batch", "large")
PER_MODE = 12
PAIRS = [("4.9.8", "4.9.7"), *((client, "5.5.0") for client in apache.CLIENTS)]
"""Clients, and brokers that know them."""

BATCH_TOPIC = {
    "topic": "moving",
    "defaultTopic": "TBW102",
    "readQueueNums": "2",
    "writeQueueNums": "2",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
    "attributes": "+queue.type=BatchCQ",
}


class Moving:
    """A store under changing brokers, and clients that know nothing of it."""

    def __init__(self, client: str, version: str, directory: Path, namesrv: str, **properties: str) -> None:
        self.client, self.version, self.directory, self.namesrv = client, version, directory, namesrv
        self.properties = properties
        self.port = free_broker_port()
        self.configuration = directory / "broker" / "broker.conf"

    @contextmanager
    def apaches(self, *, killed: bool = False) -> Iterator[None]:
        with apache.broker(
            self.directory / "broker", self.port, self.namesrv, properties=self.properties, version=self.version
        ) as broker:
            yield
            broker.kill() if killed else broker.terminate()

    @contextmanager
    def ours(self, *, killed: bool = False) -> Iterator[None]:
        with server.broker(self.directory / "rockmq", self.configuration) as broker:
            eventually(lambda: apache.is_registered(self.namesrv, broker.broker), 30, "our broker registered")
            yield
            broker.kill() if killed else broker.terminate()

    def send(self, prefix: str) -> set[str]:
        arguments = f"prefix={prefix}", f"modes={','.join(MODES)}", f"count={PER_MODE}"
        where = f"namesrv={self.namesrv}", "topic=moving"
        name = f"Producer-{prefix}"
        with apache.program(self.client, "Producer", *where, *arguments, directory=self.directory, name=name) as producer:
            assert producer.wait(90) == 0, producer.tail()
            assert not events(producer, "failed")
        return {content(f"{prefix}-{mode}", i).key for mode in MODES for i in range(PER_MODE)}

    def consume(self, group: str, keys: set[str]) -> list[Event]:
        """All a group is given until it has `keys`."""
        where = f"namesrv={self.namesrv}", "topic=moving", f"group={group}"
        name = f"PushConsumer-{len(list(self.directory.glob('*.out')))}"
        with apache.program(self.client, "PushConsumer", *where, directory=self.directory, name=name) as consumer:
            wait_for_keys(consumer, keys, 90)
            consumer.terminate()
            return events(consumer, "message")


def judge(received: list[Event], prefixes: set[str]) -> None:
    """Content and order of what a group got: nothing but messages with these prefixes, each as it was sent."""
    for message in received:
        prefix, _, index = message["keys"].rpartition("-key-")
        assert prefix.split("-")[0] in prefixes
        assert message["sha256"] == content(prefix, int(index), 6_000 if prefix.endswith("-large") else 0).sha256
    places = {(message["queueId"], message["queueOffset"]) for message in received}
    assert len(places) == len({message["msgId"] for message in received})


@pytest.mark.parametrize(("client", "version"), [PAIRS[0], PAIRS[-1]])
def test_store_moves_to_our_broker_and_back(client: str, version: str, tmp_path: Path) -> None:
    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        moving = Moving(client, version, tmp_path, names.address)
        with moving.apaches():
            first = moving.send("first")
            judge(moving.consume("follower", first), {"first"})
        with moving.ours():
            wait_for_route(moving.namesrv, "moving")
            second = moving.send("second")
            judge(moving.consume("follower", second), {"second"})
            judge(moving.consume("late", first | second), {"first", "second"})
        with moving.apaches():
            wait_for_route(moving.namesrv, "moving")
            third = moving.send("third")
            judge(moving.consume("follower", third), {"third"})
            judge(moving.consume("late", third), {"third"})
            judge(moving.consume("last", first | second | third), {"first", "second", "third"})


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_batch_queues_move_to_our_broker_and_back(killed: bool, tmp_path: Path) -> None:
    """A topic with queue.type=BatchCQ, in which a batch is one record that clients take apart."""
    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        moving = Moving("5.5.0", "5.5.0", tmp_path, names.address)
        with moving.apaches(killed=killed):
            made = apache.invoke(f"127.0.0.1:{moving.port}", RequestCode.UPDATE_AND_CREATE_TOPIC, BATCH_TOPIC)
            assert made.code == 0, made
            wait_for_route(moving.namesrv, "moving")
            first = moving.send("first")
            judge(moving.consume("follower", first), {"first"})
        with moving.ours(killed=killed):
            wait_for_route(moving.namesrv, "moving")
            second = moving.send("second")
            judge(moving.consume("follower", second), {"first", "second"} if killed else {"second"})
            judge(moving.consume("late", first | second), {"first", "second"})
        assert not (tmp_path / "broker" / "store" / "consumequeue" / "moving").exists()
        with moving.apaches(killed=killed):
            wait_for_route(moving.namesrv, "moving")
            third = moving.send("third")
            judge(moving.consume("last", first | second | third), {"first", "second", "third"})
        with moving.ours():
            wait_for_route(moving.namesrv, "moving")
            judge(moving.consume("end", first | second | third), {"first", "second", "third"})


@pytest.mark.parametrize(("client", "version"), PAIRS[:2])
def test_store_of_a_killed_broker_moves_with_every_message(client: str, version: str, tmp_path: Path) -> None:
    """Whoever was killed, and whoever opens the store then."""
    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        moving = Moving(client, version, tmp_path, names.address)
        with moving.apaches(killed=True):
            first = moving.send("first")
        with moving.ours(killed=True):
            wait_for_route(moving.namesrv, "moving")
            judge(moving.consume("early", first), {"first"})
            second = moving.send("second")
        with moving.apaches(killed=True):
            wait_for_route(moving.namesrv, "moving")
            third = moving.send("third")
        with moving.ours():
            wait_for_route(moving.namesrv, "moving")
            judge(moving.consume("late", first | second | third), {"first", "second", "third"})


def test_crc_of_whole_records_is_the_same_for_both(tmp_path: Path) -> None:
    """Row 2.1: whoever was killed, the other one believes only the records that have the property `__CRC32#`."""
    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        checked = {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}
        moving = Moving("5.5.0", "5.5.0", tmp_path, names.address, **checked)
        with moving.apaches(killed=True):
            first = moving.send("first")
        with moving.ours(killed=True):
            wait_for_route(moving.namesrv, "moving")
            second = moving.send("second")
        with moving.apaches(killed=True):
            wait_for_route(moving.namesrv, "moving")
            judge(moving.consume("late", first | second), {"first", "second"})


def test_a_store_has_one_owner_of_either_kind(tmp_path: Path) -> None:
    """Row 1.1, pitfall 9.20."""
    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        moving = Moving(apache.SERVER, apache.SERVER, tmp_path, names.address)
        with (
            moving.apaches(),
            pytest.raises(ProcessError, match="in use by another broker"),
            server.broker(tmp_path / "second", moving.configuration, "--set", f"listenPort={free_broker_port()}"),
        ):
            pass
        with moving.ours():
            store = tmp_path / "broker" / "store"
            paths = {"storePathRootDir": str(store), "storePathCommitLog": str(store / "commitlog")}
            with (
                pytest.raises(ProcessError, match="Lock failed"),
                apache.broker(tmp_path / "third", free_broker_port(), names.address, properties=paths),
            ):
                pass
