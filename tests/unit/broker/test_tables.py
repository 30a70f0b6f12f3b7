"""The broker's tables: what they keep, what they write, and what of Apache's they read."""

import asyncio
import json
from pathlib import Path

import pytest
from msgspec import to_builtins

from rockmq.base.errors import ConfigError, StoreUnavailable
from rockmq.broker import documents
from rockmq.broker.clients import ClientTables, ConsumerGroup
from rockmq.broker.groups import GroupTable
from rockmq.broker.long_polling import LongPolling, Parked
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.queue_locks import EXPIRY_SECONDS, QueueLocks
from rockmq.broker.stats import SAMPLE_SECONDS, Rate
from rockmq.broker.topics import TopicTable
from rockmq.protocol.bodies.client import ConsumerData, HeartbeatData, ProducerData
from rockmq.protocol.bodies.common import GroupConfig, MessageQueue, SubscriptionData, TopicConfig
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.remoting.client import RemotingClient
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import options, running
from tests.unit.broker.test_messages import create_request, send_request
from tests.unit.broker.test_pop import INVISIBLE, Group


async def test_topics_are_saved_in_apaches_shape_and_read_again(tmp_path: Path) -> None:
    """Row 1.7."""
    table = TopicTable(tmp_path, options(tmp_path), FakeClock())
    table.create_system_topics()
    fifo = {"message.type": "FIFO"}
    saved = table.put(TopicConfig(topic_name="orders", read_queue_nums=8, write_queue_nums=4, attributes=fifo))
    assert saved is not None
    await saved
    assert (
        table.put(
            TopicConfig(topic_name="orders", read_queue_nums=8, write_queue_nums=4, attributes={"message.type": "FIFO"})
        )
        is None
    )
    document = json.loads((tmp_path / "topics.json").read_text())
    assert document["topicConfigTable"]["orders"] == {
        "attributes": {"message.type": "FIFO"},
        "order": False,
        "perm": 6,
        "readQueueNums": 8,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "orders",
        "topicSysFlag": 0,
        "writeQueueNums": 4,
    }
    assert set(document["dataVersion"]) == {"counter", "stateVersion", "timestamp"}
    again = TopicTable(tmp_path, options(tmp_path), FakeClock())
    assert again.all() == table.all()
    assert again.version.counter == table.version.counter
    await table.close()


async def test_changes_that_come_together_are_saved_together(tmp_path: Path) -> None:
    table = TopicTable(tmp_path, options(tmp_path), FakeClock())
    changes: list[str] = []
    table.on_change.append(changes.append)
    waits = [table.put(TopicConfig(topic_name=f"t{number}")) for number in range(200)]
    await asyncio.gather(*(wait for wait in waits if wait is not None))
    assert len(changes) == 200
    assert len(TopicTable(tmp_path, options(tmp_path), FakeClock()).all()) == 200


async def test_the_same_change_again_is_done_when_the_first_is_on_disk(tmp_path: Path) -> None:
    """Whoever asks again, after a failure or in a hurry, is answered no sooner than the topic is safe."""
    table = TopicTable(tmp_path, options(tmp_path), FakeClock())
    config = TopicConfig(topic_name="Orders", read_queue_nums=4, write_queue_nums=4, perm=6)
    document = tmp_path / "topics.json"
    document.with_name("topics.json.tmp").mkdir()  # where the new text is written before it takes the document's place
    first = table.put(config)
    again = table.put(config)
    assert first is not None
    assert again is not None
    for saved in (first, again):
        with pytest.raises(StoreUnavailable, match="can't be saved"):
            await saved
    document.with_name("topics.json.tmp").rmdir()
    retried = table.put(config)
    assert retried is not None
    await retried
    assert table.put(config) is None
    assert "Orders" in document.read_text()
    await table.close()


def test_document_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    """Row 1.7."""
    (tmp_path / "topics.json").write_text("{ broken")
    with pytest.raises(ConfigError, match=r"topics\.json"):
        TopicTable(tmp_path, options(tmp_path), FakeClock())
    (tmp_path / "topics.json.bak").write_text('{"topicConfigTable":{"kept":{"topicName":"kept"}}}')
    assert list(TopicTable(tmp_path, options(tmp_path), FakeClock()).all()) == ["kept"]


def test_offsets_of_an_apache_broker_are_read(tmp_path: Path) -> None:
    """Row 1.7, pitfall 9.15: integer keys without quotes."""
    version = '"dataVersion":{"counter":5,"stateVersion":0,"timestamp":1}'
    text = f'{{\n\t{version},\n\t"offsetTable":{{"T@g":{{0:10,1:7\n\t\t}},"T@h":{{3:-1}}\n\t}}\n}}'
    (tmp_path / "consumerOffset.json").write_text(text)
    offsets = ConsumerOffsets(tmp_path, FakeClock())
    assert offsets.query("g", "T", 1) == 7
    assert offsets.query("g", "T", 2) is None
    assert offsets.query("h", "T", 3) is None, "a negative offset is none"


async def test_offsets_survive(tmp_path: Path) -> None:
    offsets = ConsumerOffsets(tmp_path, FakeClock())
    offsets.commit("g", "T", 0, 10)
    offsets.commit("g", "%RETRY%g", 0, 4)
    offsets.commit("g", "T", 0, 8)
    await offsets.close()
    again = ConsumerOffsets(tmp_path, FakeClock())
    assert again.by_group("g") == {"T": {0: 8}, "%RETRY%g": {0: 4}}


async def test_offsets_that_do_not_change_are_not_written_again(tmp_path: Path) -> None:
    """Each pull and each consumer tells where it is, also when that is where it was."""
    offsets = ConsumerOffsets(tmp_path, FakeClock())
    offsets.commit("g", "T", 0, 10)
    await offsets.close()
    document = tmp_path / "consumerOffset.json"
    document.unlink()
    offsets.commit("g", "T", 0, 10)
    await offsets.close()
    assert not document.exists()
    offsets.commit("g", "T", 0, 11)
    await offsets.close()
    assert ConsumerOffsets(tmp_path, FakeClock()).by_group("g") == {"T": {0: 11}}


async def test_offsets_committed_while_they_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The document is made while commits go on: it is whole, and what came too late is in the next."""
    offsets = ConsumerOffsets(tmp_path, FakeClock())
    for number in range(5000):
        offsets.commit("g", f"T{number}", 0, 1)
    monkeypatch.setattr(documents, "PAUSE_PER_COST", 0)
    offsets.flush()
    for number in range(5000):
        offsets.commit("g", f"T{number}", 0, 2)
        offsets.commit(f"other-{number}", f"T{number}", 0, 3)
        if number % 100 == 0:
            offsets.delete_topic(f"T{number - 50}")
            await asyncio.sleep(0)
    await offsets.close()
    again = ConsumerOffsets(tmp_path, FakeClock())
    assert again.by_group("g") == offsets.by_group("g")
    assert len(again.by_group("g")) == 4951
    assert again.by_group("other-7") == {"T7": {0: 3}}


async def test_groups_are_created_when_that_is_allowed(tmp_path: Path) -> None:
    closed = GroupTable(tmp_path / "a", auto_create=False, clock=FakeClock())
    assert closed.find("new") is None
    assert closed.find("TOOLS_CONSUMER") is not None
    table = GroupTable(tmp_path / "b", auto_create=True, clock=FakeClock())
    assert table.find("no good") is None
    created = table.find("new")
    assert created is not None
    await table.close()
    assert GroupTable(tmp_path / "b", auto_create=False, clock=FakeClock()).find("new") == created


async def test_groups_that_create_themselves_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = GroupTable(tmp_path, auto_create=True, clock=FakeClock())
    monkeypatch.setattr("rockmq.broker.groups.CREATED_MAX", len(table.all()) + 1)
    assert table.find("one") is not None
    assert [table.find(name) for name in ("two", "three")] == [None, None]
    assert len([record for record in caplog.records if "no more are created" in record.getMessage()]) == 1
    assert table.find("one") is not None
    await table.put(GroupConfig(group_name="two"))
    assert table.find("two") is not None
    await table.close()


async def test_topics_are_bounded(
    tmp_path: Path,
    clock: FakeClock,
    remote: RemotingClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(tmp_path, clock) as broker:
        group = Group(broker, remote)
        await group.send(b"x")
        monkeypatch.setattr("rockmq.broker.topics.TOPICS_MAX", 1)
        await group.send(b"y")
        beat = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name="g")])
        for request in (
            send_request(b"x", topic="U"),
            create_request("U"),
            Command(RequestCode.HEART_BEAT, 0, body=json.dumps(to_builtins(beat)).encode()),
        ):
            answer = await remote.invoke(broker.address, request, 5)
            assert (answer.code, "the bound" in (answer.remark or "")) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
        assert await group.bodies() == [b"x", b"y"], "pops do without a retry topic as long as all is acknowledged"
        clock.seconds += INVISIBLE / 1000 + 1
        async with asyncio.timeout(30):
            while "the bound" not in caplog.text:
                await asyncio.sleep(0.02)
        monkeypatch.undo()
        found: set[bytes] = set()
        async with asyncio.timeout(30):
            while found != {b"x", b"y"}:
                clock.seconds += 1  # it is tried again each second, and the topic has to be made first
                await asyncio.sleep(0.02)
                found |= set(await group.bodies())


def queues(*ids: int) -> list[MessageQueue]:
    return [MessageQueue("T", "b", queue_id) for queue_id in ids]


def test_a_queue_is_locked_for_one_client_at_a_time() -> None:
    clock = FakeClock()
    locks = QueueLocks(clock)
    assert locks.lock("g", "one", queues(0, 1)) == queues(0, 1)
    assert locks.lock("g", "two", queues(0, 1, 2)) == queues(2)
    assert locks.lock("other group", "two", queues(0)) == queues(0)
    clock.seconds += EXPIRY_SECONDS - 1
    assert locks.lock("g", "one", queues(0)) == queues(0), "its owner renews it"
    clock.seconds += 2
    assert locks.lock("g", "two", queues(0, 1)) == queues(1), "what isn't renewed is anybody's"
    locks.unlock("g", "two", queues(0, 1))
    assert locks.lock("g", "three", queues(0, 1)) == queues(1), "nobody gives up another's lock"


def test_locks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rockmq.broker.queue_locks.LOCKS_MAX", 4)
    clock = FakeClock()
    locks = QueueLocks(clock)
    assert locks.fault("g", queues(0, 1, 2)) is None
    locks.lock("g", "one", queues(0, 1, 2))
    assert locks.fault("g", queues(0, 1, 2, 3)) is None, "three of them are renewed"
    assert "the bound is 4" in (locks.fault("h", queues(0, 1)) or "")
    clock.seconds += 61
    locks.expire()
    assert locks.fault("h", queues(0, 1)) is None


class Peer:
    """Stands for a connection where only what is told to it matters."""

    def __init__(self) -> None:
        self.on_close: list[object] = []
        self.closed = False
        self.peer = "127.0.0.1:4711"

    def close(self) -> None:
        self.closed = True


def subscription(topic: str, version: int, expression: str = "*") -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_version=version, sub_string=expression)


class Members:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.changes: list[tuple[str, list[str]]] = []
        self.tables = ClientTables(self.clock, 120, self._changed)

    def _changed(self, group: ConsumerGroup) -> None:
        self.changes.append((group.name, group.client_ids()))

    def beat(self, client: str, peer: Peer, *wanted: SubscriptionData, fingerprint: int = 0, bare: bool = False) -> bool:
        data = ConsumerData(group_name="g", subscription_data_set=list(wanted))
        return self.tables.beat_consumer(
            data,
            client,
            peer,  # type: ignore[arg-type]
            "JAVA",
            479,
            fingerprint=fingerprint,
            without_subscriptions=bare,
        )


def test_members_are_told_of_changes_and_only_of_changes() -> None:
    members, one, two = Members(), Peer(), Peer()
    members.beat("one", one, subscription("T", 1))
    members.beat("one", one, subscription("T", 1))
    assert members.changes == [("g", ["one"])]
    members.beat("two", two, subscription("T", 1))
    members.beat("one", one, subscription("T", 1), subscription("U", 1))
    assert members.changes[1:] == [("g", ["one", "two"]), ("g", ["one", "two"])]
    for callback in two.on_close:
        callback(two)  # type: ignore[operator]
    assert members.changes[-1] == ("g", ["one"])
    members.tables.unregister_consumer("g", one)  # type: ignore[arg-type]
    assert members.tables.consumers == {}


def test_heartbeat_without_subscriptions_takes_none_away() -> None:
    members, one = Members(), Peer()
    assert members.beat("one", one, subscription("T", 1), fingerprint=42)
    assert not members.beat("one", one, fingerprint=42, bare=True)
    assert list(members.tables.consumers["g"].subscriptions) == ["T"]
    assert members.beat("one", one, fingerprint=43, bare=True), "another fingerprint asks for the whole"


def test_only_newer_subscriptions_replace() -> None:
    members, one = Members(), Peer()
    members.beat("one", one, subscription("T", 5, "a"))
    members.beat("one", one, subscription("T", 4, "b"))
    assert members.tables.consumers["g"].subscriptions["T"].sub_string == "a"
    members.beat("one", one, subscription("T", 6, "b"))
    assert members.tables.consumers["g"].subscriptions["T"].sub_string == "b"


def test_client_without_heartbeats_is_closed() -> None:
    members, one, two = Members(), Peer(), Peer()
    members.beat("one", one, subscription("T", 1))
    members.clock.seconds += 100
    members.beat("two", two, subscription("T", 1))
    members.clock.seconds += 50
    members.tables.expire()
    assert (one.closed, two.closed) == (True, False)


def test_a_producer_is_found_by_the_ids_it_has_now() -> None:
    tables, one, two = Members().tables, Peer(), Peer()

    def beat(group: str, client: str, peer: Peer) -> None:
        tables.beat_producer(group, client, peer, "JAVA", 479)  # type: ignore[arg-type]

    for number in range(3):
        beat("g", f"c{number}", one)
    assert [tables.producer(f"c{number}") for number in range(3)] == [None, None, one]
    beat("h", "c2", one)
    beat("h", "c2", one)
    tables.unregister_producer("g", one)  # type: ignore[arg-type]
    assert tables.producer("c2") is one
    beat("g", "c2", two)
    for callback in one.on_close:
        callback(one)  # type: ignore[operator]
    assert tables.producer("c2") is two, "it has come back by another connection"
    tables.unregister_producer("g", two)  # type: ignore[arg-type]
    assert (tables.producer("c2"), tables.producers) == (None, {})


def test_a_connection_with_many_groups_is_lost_quickly() -> None:
    class Counted(Peer):
        looks = 0

        def __hash__(self) -> int:
            Counted.looks += 1
            return id(self)

    tables, peer, groups = Members().tables, Counted(), 500
    for name, each in (("other", Peer()), ("g", peer)):
        for number in range(groups):
            tables.beat_producer(f"{name}{number}", name, each, "JAVA", 479)  # type: ignore[arg-type]
    Counted.looks = 0
    for callback in peer.on_close:
        callback(peer)  # type: ignore[operator]
    assert len(tables.producers) == groups
    assert Counted.looks < 20 * groups


def test_what_a_connection_may_bind_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    tables, peer, bound = Members().tables, Peer(), 50
    monkeypatch.setattr("rockmq.broker.clients.BINDINGS_MAX", bound)

    def heartbeat(consumers: dict[str, int], *producers: str) -> HeartbeatData:
        data = [
            ConsumerData(group_name=name, subscription_data_set=[subscription(f"T{number}", 1) for number in range(count)])
            for name, count in consumers.items()
        ]
        return HeartbeatData(
            client_id="c", consumer_data_set=data, producer_data_set=[ProducerData(group_name=name) for name in producers]
        )

    def beat(data: HeartbeatData) -> str | None:
        fault = tables.fault(peer, data)  # type: ignore[arg-type]
        if fault is None:
            for each in data.consumer_data_set:
                tables.beat_consumer(each, "c", peer, "JAVA", 479, fingerprint=0, without_subscriptions=False)  # type: ignore[arg-type]
            for producer in data.producer_data_set:
                tables.beat_producer(producer.group_name, "c", peer, "JAVA", 479)  # type: ignore[arg-type]
        return fault

    assert beat(heartbeat({"g": bound - 2}, "p")) is None
    assert beat(heartbeat({"g": bound - 2}, "p")) is None, "the same once more"
    for more in (heartbeat({"h": 0}), heartbeat({}, "q"), heartbeat({"g": bound - 1})):
        assert f"the bound is {bound}" in (beat(more) or "")
    assert beat(heartbeat({"g": 1})) is None
    assert beat(heartbeat({"h": 0}, "q")) is None
    tables.unregister_consumer("h", peer)  # type: ignore[arg-type]
    tables.unregister_producer("q", peer)  # type: ignore[arg-type]
    for callback in peer.on_close:
        callback(peer)  # type: ignore[operator]
    assert (tables.consumers, tables.producers, tables._bindings) == ({}, {}, {})
    assert beat(heartbeat({"g": bound - 2}, "p")) is None


def test_parked_pulls_are_bounded_woken_and_swept() -> None:
    clock = FakeClock()
    watched: list[tuple[str, int]] = []
    polling = LongPolling(clock, 3, lambda topic, queue_id: watched.append((topic, queue_id)))
    attempts: list[tuple[str, bool]] = []

    def parked(name: str, answers: bool, seconds: float, gone: bool = False) -> Parked:
        def attempt(last: bool) -> bool:
            attempts.append((name, last))
            return answers or last

        return Parked(clock.seconds + seconds, attempt, lambda: gone)

    assert polling.park([("T", 0)], parked("answered", True, 30))
    assert polling.park([("T", 0)], parked("kept", False, 15))
    assert polling.park([("T", 1)], parked("gone", True, 30, gone=True))
    assert not polling.park([("T", 2)], parked("too many", True, 30))
    polling.wake("T", 0)
    assert attempts == [("answered", False), ("kept", False)]
    assert polling.count == 2
    assert watched[-1] == ("T", 0), "who still waits is watched for again"
    clock.seconds += 10
    polling.sweep()
    assert polling.count == 1, "pulls of lost connections are forgotten"
    clock.seconds += 10
    polling.sweep()
    assert attempts[-1] == ("kept", True)
    assert polling.count == 0


def test_a_deleted_topic_answers_its_own_parked_pulls_and_looks_at_no_others() -> None:
    class Counted(str):
        looks = 0

        def __eq__(self, other: object) -> bool:
            Counted.looks += 1
            return str.__eq__(self, other)  # type: ignore[arg-type]

        __hash__ = str.__hash__

    polling = LongPolling(FakeClock(), 5000, lambda topic, queue_id: None)
    answered: list[str] = []

    def parked(name: str) -> Parked:
        def attempt(last: bool) -> bool:
            answered.append(name)
            return last

        return Parked(1.0, attempt, lambda: False)

    for number in range(2000):
        assert polling.park([(Counted(f"other-{number}"), 0)], parked("another's"))
    assert polling.park([("T", 0)], parked("first"))
    assert polling.park([("T", 3), ("U", 0)], parked("a pop"))
    assert polling.park([("U", 0)], parked("kept"))
    Counted.looks = 0
    for _ in range(2):
        polling.answer_topic("T")
    assert sorted(answered) == ["a pop", "first"]
    assert polling.count == 2001
    assert Counted.looks < 100
    polling.answer_topic("U")
    assert answered[2:] == ["kept"]


def test_rates_come_from_samples() -> None:
    clock = FakeClock()
    rate = Rate(clock)
    for _ in range(12):
        clock.seconds += SAMPLE_SECONDS
        rate.total += 1000
        rate.sample()
    assert rate.per_second() == pytest.approx((100, 100, 100), rel=0.2)
    clock.seconds += SAMPLE_SECONDS
    assert rate.per_second()[0] < 100


def test_numbers_over_javas_make_a_document_unreadable(tmp_path: Path) -> None:
    """Clients and the core couldn't hold them."""
    (tmp_path / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{"0":9223372036854775808}}}')
    with pytest.raises(ConfigError, match="<= 9223372036854775807"):
        ConsumerOffsets(tmp_path, FakeClock())
    (tmp_path / "topics.json").write_text('{"topicConfigTable":{"T":{"topicName":"T","writeQueueNums":2147483648}}}')
    with pytest.raises(ConfigError, match="<= 2147483647"):
        TopicTable(tmp_path, options(tmp_path), FakeClock())
