"""One store and one broker.conf, served by Apache's broker, then by ours, then by Apache's again."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.message import decode_stored
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
        """Ours, by the same broker.conf."""
        with server.broker(self.directory / "rockmq", self.configuration) as broker:
            eventually(lambda: apache.is_registered(self.namesrv, broker.broker), 60, "our broker registered")
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

    def pulled(self, tag: str) -> set[str]:
        """Keys of what the broker gives to somebody who wants a tag."""
        found: set[str] = set()
        for queue_id in range(4):
            offset, end = 0, 1
            while offset < end:
                fields = {"consumerGroup": "puller", "topic": "moving", "queueId": str(queue_id), "queueOffset": str(offset)}
                rest = {"maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0"}
                subscription = {"subscription": tag, "subVersion": "0", "expressionType": "TAG"}
                answer = apache.invoke(f"127.0.0.1:{self.port}", RequestCode.PULL_MESSAGE, fields | rest | subscription)
                found |= {key for message in decode_stored(answer.body) for key in message.keys}
                offset, end = int(answer.fields["nextBeginOffset"]), int(answer.fields["maxOffset"])
        return found

    def consume(self, group: str, keys: set[str], *wanted: str) -> list[Event]:
        """All a group is given until it has `keys`; `wanted` says what it subscribes to, otherwise to everything."""
        where = f"namesrv={self.namesrv}", "topic=moving", f"group={group}", *wanted
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
        with moving.apaches(killed=True):
            wait_for_route(moving.namesrv, "moving")
            third = moving.send("third")
            judge(moving.consume("follower", third), {"third"})
            judge(moving.consume("late", third), {"third"})
            judge(moving.consume("last", first | second | third), {"first", "second", "third"})


def test_batch_queues_move_to_our_broker_and_back(tmp_path: Path) -> None:
    """A topic with queue.type=BatchCQ, in which a batch is one record that clients take apart; each broker is killed."""
    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        moving = Moving("5.5.0", "5.5.0", tmp_path, names.address)
        with moving.apaches(killed=True):
            made = apache.invoke(f"127.0.0.1:{moving.port}", RequestCode.UPDATE_AND_CREATE_TOPIC, BATCH_TOPIC)
            assert made.code == 0, made
            wait_for_route(moving.namesrv, "moving")
            first = moving.send("first")
            judge(moving.consume("follower", first), {"first"})
        with moving.ours(killed=True):
            wait_for_route(moving.namesrv, "moving")
            second = moving.send("second")
            judge(moving.consume("follower", second), {"first", "second"})
            judge(moving.consume("late", first | second), {"first", "second"})
        assert not (tmp_path / "broker" / "store" / "consumequeue" / "moving").exists()
        with moving.apaches(killed=True):
            wait_for_route(moving.namesrv, "moving")
            third = moving.send("third")
            judge(moving.consume("last", first | second | third), {"first", "second", "third"})
        with moving.ours():
            wait_for_route(moving.namesrv, "moving")
            judge(moving.consume("end", first | second | third), {"first", "second", "third"})


def test_batch_queues_among_many_topics_move_to_apaches_broker_after_a_kill(tmp_path: Path) -> None:
    """Row 1.7: of a large table the last changes are in a journal, which Apache's broker doesn't read; it doesn't start when
    the document says nothing of batch queues that it finds."""
    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        moving = Moving("5.5.0", "5.5.0", tmp_path, names.address)
        address = f"127.0.0.1:{moving.port}"
        with moving.apaches():
            pass
        with moving.ours(killed=True):
            others = {"topicConfigList": [{"topicName": f"other-{number}"} for number in range(20_000)]}
            made = apache.invoke(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=json.dumps(others).encode())
            assert made.code == 0, made
            # Saving these took some time, so a change that nobody hurries with is saved some seconds later.
            four = {"readQueueNums": "4", "writeQueueNums": "4"}
            made = apache.invoke(address, RequestCode.UPDATE_AND_CREATE_TOPIC, BATCH_TOPIC | four)
            assert made.code == 0, made
            send = {"producerGroup": "p", "topic": "moving", "defaultTopic": "TBW102", "defaultTopicQueueNums": "2"}
            rest = {"queueId": "0", "sysFlag": "0", "bornTimestamp": "0", "flag": "0", "properties": "KEYS\x01first\x02"}
            assert apache.invoke(address, RequestCode.SEND_MESSAGE, send | rest, b"first").code == 0
            queue = tmp_path / "broker" / "store" / "batchconsumequeue" / "moving" / "0"
            eventually(queue.exists, 30, "a queue's directory")
        with moving.apaches():
            assert moving.pulled("*") == {"first"}


@pytest.mark.flaky(reruns=0)
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


def test_queues_with_an_extension_move_to_our_broker_and_back(tmp_path: Path) -> None:
    """Row 3.2: what Apache has put into `consumequeue_ext` hides no message, and lets through none that isn't wanted."""
    sql = "sql=index IN ('3', '5')"
    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        extended = {
            "enableConsumeQueueExt": "true",
            "enableCalcFilterBitMap": "true",
            "enablePropertyFilter": "true",
            "mappedFileSizeConsumeQueueExt": "400",
        }
        moving = Moving("5.5.0", "5.5.0", tmp_path, names.address, **extended)
        extension = tmp_path / "broker" / "store" / "consumequeue_ext"

        def files() -> dict[Path, bytes]:
            return {path: path.read_bytes() for path in sorted(extension.rglob("0*")) if path.is_file()}

        def check(new: set[str], old: set[str]) -> None:
            """Somebody new wants a tag of all there is, and a group that was there before filters what is new."""
            tagged = {key for key in old | new if int(key.rpartition("-")[2]) % 3 == 1}
            eventually(lambda: moving.pulled("tag1") == tagged, 60, "messages with the tag in queues")
            assert moving.pulled("tag9") == set()
            assert {message["keys"] for message in moving.consume(f"tags-{len(old)}", tagged, "tags=tag1")} == tagged
            filtered = {key for key in old | new if int(key.rpartition("-")[2]) in (3, 5)}
            # A broker that is killed may have forgotten how far the group was.
            assert {message["keys"] for message in moving.consume("filtering", filtered & new, sql)} <= filtered

        with moving.apaches(killed=True):
            first = moving.send("first")
            check(first, set())
            second = moving.send("second")  # with bits for the group that is known by now
            check(second, first)
        before = files()
        assert len(before) > 4
        with moving.ours(killed=True):
            wait_for_route(moving.namesrv, "moving")
            third = moving.send("third")
            check(third, first | second)
        assert files() == before
        with moving.apaches():
            wait_for_route(moving.namesrv, "moving")
            fourth = moving.send("fourth")
            check(fourth, first | second | third)
        assert len(files()) > len(before)
        with moving.ours():
            wait_for_route(moving.namesrv, "moving")
            fifth = moving.send("fifth")
            check(fifth, first | second | third | fourth)


def test_a_store_has_one_owner_of_either_kind(tmp_path: Path) -> None:
    """Row 1.1, pitfall 9.20."""
    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        moving = Moving(apache.SERVER, apache.SERVER, tmp_path, names.address)
        with (
            moving.apaches(killed=True),
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
