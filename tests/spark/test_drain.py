"""A backed-up topic onto one with more queues: each message once, in order for each key, and the group handed over."""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rockmq.base.errors import ConfigError, ConnectError, RouteNotFound
from rockmq.cli.main import app
from rockmq.client import Client, Message, MessageQueue
from rockmq.pipeline import moving
from rockmq.pipeline.drain import KEY, Drained, _begin, _decided, _Drain, drain
from rockmq.pipeline.moving import Given, Work, asked
from rockmq.pipeline.runs import Progress
from rockmq.spark import cluster, tries
from rockmq.spark.cluster import Brokers
from rockmq.spark.ledger import Done
from rockmq.spark.options import ReadOptions
from rockmq.spark.ranges import Bounds, from_tree, offset_tree
from tests.spark import pages
from tests.spark.conftest import create
from tests.spark.written import NONE, bodies, faults, stored
from tests.support.cluster import Cluster, broker_name, committed_offset
from tests.support.process import Process, eventually

Topic = Callable[..., str]
NEW = 6
KEYS = 5
PATIENCE_S = 120


def orders(queue: int, start: int, end: int) -> list[Message]:
    """Bodies `key:number`, of keys that are of one queue."""
    keys = [f"q{queue}k{number % KEYS}" for number in range(start, end)]
    numbered = zip(range(start, end), keys, strict=True)
    return [Message("", f"{key}:{number}".encode(), properties={"__SHARDINGKEY": key}) for number, key in numbered]


def texts(messages: Mapping[int, list[Message]]) -> list[str]:
    return [message.body.decode() for each in messages.values() for message in each]


def consumed(server: Cluster, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """The group has consumed so much of each queue."""

    async def commit() -> None:
        async with Client(server.namesrv) as mq:
            for queue, offset in offsets.items():
                await mq.commit(group, MessageQueue(topic, broker_name(server), queue), offset)

    asyncio.run(commit())


def offsets(server: Cluster, group: str, topic: str, queues: int) -> list[int | None]:
    return [committed_offset(server, group, topic, queue) for queue in range(queues)]


class Backlog:
    """A topic of two queues, of which the group has consumed ten messages and none; and one with six, not empty."""

    def __init__(self, spark: SparkSession, server: Cluster, topic: Topic, group: str, work: Path) -> None:
        self.spark, self.server, self.group, self.work = spark, server, group, work
        self.send = topic.send  # type: ignore[attr-defined]
        self.left = {0: orders(0, 10, 300), 1: orders(1, 0, 200)}
        self.source = topic({0: orders(0, 0, 300), 1: orders(1, 0, 200)})
        self.target = topic({2: [Message("", b"old:0", properties={"__SHARDINGKEY": "old"})]}, queues=NEW)
        consumed(server, group, self.source, {0: 10})

    def drain(self, **more: Any) -> Drained:
        names = {"source": self.source, "target": self.target, "group": self.group} | more
        return drain(self.spark, self.server.namesrv, work=self.work, **names)  # type: ignore[arg-type]

    def faults(self, *later: Mapping[int, list[Message]]) -> dict[str, list[str]]:
        return faults(
            self.server, self.target, NEW, ["old:0", *(text for each in (self.left, *later) for text in texts(each))]
        )


@pytest.fixture
def backlog(spark: SparkSession, server: Cluster, topic: Topic, unique: Callable[[str], str], tmp_path: Path) -> Backlog:
    return Backlog(spark, server, topic, unique("group"), tmp_path / "work")


def test_what_the_group_has_not_consumed_is_moved_and_the_group_with_it(backlog: Backlog) -> None:
    done = backlog.drain(rows_per_step=150)

    assert backlog.faults() == NONE
    assert done.done == Done(rows=490, sent=490, found=0, bad=0)
    assert {queue.queue_id: offset for queue, offset in done.fence.items()} == {0: 0, 1: 0, 2: 1, 3: 0, 4: 0, 5: 0}
    assert {queue.queue_id: offset for queue, offset in done.drained.items()} == {0: 300, 1: 200}
    assert offsets(backlog.server, backlog.group, backlog.source, 2) == [300, 200]
    assert offsets(backlog.server, backlog.group, backlog.target, NEW) == [0, 0, 1, 0, 0, 0]
    assert len({queue for queue, found in enumerate(stored(backlog.server, backlog.target, NEW)) if found}) > 2

    # Producers have gone on meanwhile, and stop now.
    later = {0: orders(0, 300, 320)}
    backlog.send(backlog.source, later)
    consumed(backlog.server, backlog.group, backlog.target, {4: 3})
    again = backlog.drain(rows_per_step=150)

    assert backlog.faults(later) == NONE
    assert (again.done.rows, again.fence) == (510, done.fence)
    assert offsets(backlog.server, backlog.group, backlog.source, 2) == [320, 200]
    assert offsets(backlog.server, backlog.group, backlog.target, NEW) == [0, 0, 1, 0, 3, 0]


def test_more_tasks_than_queues_keep_the_order(backlog: Backlog) -> None:
    backlog.drain(tasks=3)

    assert backlog.faults() == NONE


def test_a_message_without_a_key_goes_anywhere_and_one_with_keys_by_these(
    spark: SparkSession, server: Cluster, topic: Topic, unique: Callable[[str], str], tmp_path: Path
) -> None:
    keyed = [Message("", f"k{n % 3}:{n}".encode(), keys=[f"k{n % 3}"]) for n in range(60)]
    source = topic({0: [message for n in range(2_000) for message in (Message("", b"plain:%d" % n), *keyed[n : n + 1])]})
    target, group = topic(queues=NEW), unique("group")
    consumed(server, group, source, {0: 0})

    drain(spark, server.namesrv, source, target, group, tmp_path)

    found = stored(server, target, NEW)
    assert bodies(server, target, NEW) == bodies(server, source, 1)
    for key in ("k0", "k1", "k2"):
        wanted = [message.body for message in keyed if message.keys == [key]]
        assert [
            each for each in ([m.body for m in queue if m.properties.get("KEYS") == key] for queue in found) if each
        ] == [wanted]
    assert sum(any(message.body.startswith(b"plain") for message in queue) for queue in found) > 1


def test_what_was_sent_before_a_crash_is_not_sent_again(backlog: Backlog, monkeypatch: pytest.MonkeyPatch) -> None:
    real = moving.Work.save

    def save(self: moving.Work, name: str, document: Any) -> None:
        if name.startswith("done/") and name.endswith("1"):
            raise KeyboardInterrupt
        real(self, name, document)

    monkeypatch.setattr(moving.Work, "save", save)
    with pytest.raises(KeyboardInterrupt):
        backlog.drain(rows_per_step=150)
    monkeypatch.undo()
    (notes,) = backlog.work.glob("ledger/*/job/done.json")
    notes.unlink()

    done = backlog.drain(rows_per_step=150)

    assert backlog.faults() == NONE
    assert done.done == Done(rows=490, sent=340, found=150, bad=0)


def test_it_goes_on_until_it_is_told(backlog: Backlog) -> None:
    until, later = threading.Event(), {1: orders(1, 200, 260)}

    def tell() -> None:
        try:
            wait(lambda: offsets(backlog.server, backlog.group, backlog.source, 2) == [300, 200])
            backlog.send(backlog.source, later)
            wait(lambda: offsets(backlog.server, backlog.group, backlog.source, 2) == [300, 260])
        finally:
            until.set()

    thread = threading.Thread(target=tell)
    thread.start()
    try:
        done = backlog.drain(until=until)
    finally:
        thread.join()

    assert done.done.rows == 550
    assert backlog.faults(later) == NONE


def wait(condition: Callable[[], bool]) -> None:
    eventually(condition, PATIENCE_S, "the drain")


def test_consumers_on_the_old_topic_are_named(backlog: Backlog) -> None:
    async def consuming() -> None:
        async with Client(backlog.server.namesrv) as mq, mq.consumer(backlog.group, backlog.source):
            with pytest.raises(ConfigError, match=f"group {backlog.group} has consumers on {backlog.source} .*; stop them"):
                await asyncio.to_thread(backlog.drain)

    asyncio.run(consuming())
    assert bodies(backlog.server, backlog.target, NEW) == {"old:0": 1}
    assert not (backlog.work / "plan.json").exists()  # they go on, and what they consume isn't to be moved


def test_a_fence_that_was_set_half_way_is_set_at_all_queues(
    server: Cluster, topic: Topic, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, group = topic(queues=1), topic(queues=3), unique("group")
    consumed(server, group, source, {0: 0})
    connection = Given(server.namesrv, {}).connection
    plan = asked(connection, lambda client: _decided(client, "new", source, target, group, KEY))
    commit, away = Brokers.commit, [ConnectError("it is away for a moment")]

    async def failing(client: Brokers, group: str, queue: MessageQueue, offset: int) -> None:
        if queue.queue_id == 1 and away:
            raise away.pop()
        await commit(client, group, queue, offset)

    monkeypatch.setattr(Brokers, "commit", failing)
    asked(connection, lambda client: _begin(client, plan))

    assert offsets(server, group, target, 3) == [0, 0, 0]


def test_a_queue_that_comes_later_is_drained_from_where_the_group_is(
    server: Cluster, topic: Topic, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Its broker was in no route when the drain was planned."""
    source, target, group = topic({queue: orders(queue, 0, 20) for queue in range(3)}), topic(queues=1), unique("group")
    consumed(server, group, source, {0: 5, 1: 15})
    given = Given(server.namesrv, {})
    plan = asked(given.connection, lambda client: _decided(client, "new", source, target, group, KEY))
    first = {queue: at for queue, at in from_tree(plan.start).items() if queue.queue_id == 0}
    plan = msgspec.structs.replace(plan, start=offset_tree(first))

    with Work(tmp_path) as place:
        going = _Drain(cast("SparkSession", None), given, place, plan, 0, Progress())
        ends = asked(given.connection, going._ends)

    assert {queue.queue_id: at for queue, at in going._reached.items()} == {0: 5, 1: 15, 2: 0}
    assert {queue.queue_id: end for queue, end in ends.items()} == {0: 20, 1: 20, 2: 20}


def test_a_queue_that_comes_within_a_step_waits_for_the_next(backlog: Backlog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step reads the queues that it names, and no others."""
    later = {2: orders(2, 0, 20)}
    real = moving.Work.save

    def save(self: moving.Work, name: str, document: Any) -> None:
        real(self, name, document)
        if name == "step.json":
            monkeypatch.undo()
            asyncio.run(create(backlog.server.namesrv, backlog.source, 3))
            backlog.send(backlog.source, later)

    monkeypatch.setattr(moving.Work, "save", save)

    assert backlog.drain().done == Done(rows=490, sent=490, found=0, bad=0)
    assert backlog.faults() == NONE
    assert offsets(backlog.server, backlog.group, backlog.source, 3) == [300, 200, None]
    assert backlog.drain().done == Done(rows=510, sent=510, found=0, bad=0)
    assert backlog.faults(later) == NONE
    assert offsets(backlog.server, backlog.group, backlog.source, 3) == [300, 200, 20]


def test_what_is_in_no_route_for_a_moment_is_waited_for(
    server: Cluster, topic: Topic, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name server comes back, and hears of the brokers one after the other."""
    monkeypatch.setattr(tries, "ROUTE_SECONDS", 0.1)
    source, target, group = topic({queue: orders(queue, 0, 20) for queue in range(2)}), topic(queues=1), unique("group")
    consumed(server, group, source, {0: 0})
    given = Given(server.namesrv, {})
    plan = asked(given.connection, lambda client: _decided(client, "new", source, target, group, KEY))
    bounds_of, told = cluster.bounds_of, iter([0, 0, 1])

    async def routed(origin: cluster.Origin, options: ReadOptions) -> dict[MessageQueue, Bounds]:
        found = await bounds_of(origin, options)
        known = next(told, 2)
        if not known:
            raise RouteNotFound(f"no route for {source}")
        return {queue: ends for queue, ends in found.items() if queue.queue_id < known}

    monkeypatch.setattr(cluster, "bounds_of", routed)
    with Work(tmp_path) as place:
        going = _Drain(cast("SparkSession", None), given, place, plan, 0, Progress())
        ends = going._ask(going._ends)

    assert {queue.queue_id: end for queue, end in ends.items()} == {0: 20, 1: 20}


def test_a_group_that_consumes_the_target_already_stays_where_it_is(backlog: Backlog) -> None:
    consumed(backlog.server, backlog.group, backlog.target, {2: 0})

    backlog.drain()

    assert offsets(backlog.server, backlog.group, backlog.target, NEW) == [None, None, 0, None, None, None]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"group": "nobody"}, "group nobody has no offset in topic"),
        ({"group": "no body"}, "the group 'no body' has characters"),
        ({"target": "a b"}, "target: the topic 'a b' has characters"),
        ({"key": "shardingKy"}, "^key: .*shardingKy"),
        ({"tasks": -1}, "tasks is -1"),
        ({"options": {"minPartitions": "9"}}, "option 'minPartitions' can't be given"),
    ],
)
def test_a_wrong_drain_says_what_is_wrong(backlog: Backlog, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        backlog.drain(**options)
    assert not (backlog.work / "plan.json").exists()


def test_a_topic_is_not_drained_to_itself(backlog: Backlog) -> None:
    with pytest.raises(ConfigError, match="can't be drained to itself"):
        backlog.drain(target=backlog.source)


def test_the_command_ends_when_it_is_told(backlog: Backlog, tmp_path: Path) -> None:
    words = ["pipeline", "drain", backlog.source, backlog.target, "--group", backlog.group, "--work", str(backlog.work)]
    more = ["--namesrv", backlog.server.namesrv, "--ledger", str(tmp_path / "runs"), "--json"]
    program = [sys.executable, "-m", "rockmq.cli", *words, *more, "--follow", "--spark-conf", "spark.master=local[2]"]
    path = os.pathsep.join(each for each in sys.path if each)
    with Process("drain", program, tmp_path, {"PYTHONPATH": path}) as process:
        process.wait_until(
            lambda: offsets(backlog.server, backlog.group, backlog.source, 2) == [300, 200], PATIENCE_S, "the end"
        )
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, process.tail()
        said = process.err.read_text()
    assert f"consumers of {backlog.group} may" in said
    assert "Ctrl-C" in said
    row = json.loads(process.lines()[-1])
    assert (row["state"], row["counts"]) == ("done", {"rows": 490, "sent": 490})
    assert json.loads(row["results"]["fence"])[backlog.target][broker_name(backlog.server)]["2"] == 1
    assert backlog.faults() == NONE

    failed = CliRunner().invoke(app, [*words[:4], "--group", "nobody", *words[6:], *more])
    assert (failed.exit_code, "belongs to a job whose group is" in failed.stderr) == (1, True), failed.output


def test_the_page_tells_what_is_so(backlog: Backlog) -> None:
    shown = {
        '"127.0.0.1:9876", "orders", "orders-wide", "billing"': (
            f'"{backlog.server.namesrv}", "{backlog.source}", "{backlog.target}", "{backlog.group}"'
        ),
        "/mnt/shared/drain-of-orders": str(backlog.work),
    }

    assert pages.run("drain", shown).startswith("490 {MessageQueue(")
    assert backlog.faults() == NONE
    assert not pages.not_named("drain")
