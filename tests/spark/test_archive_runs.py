"""Runs of an archive that overtake each other, go on with another's plan, or find the topic changed: in this process,
without Spark."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rockmq.base.errors import ConfigError, RouteNotFound
from rockmq.client import MessageQueue
from rockmq.pipeline import archive as archiving
from rockmq.pipeline.archive import archive_topics, manifest, paths
from rockmq.pipeline.archive_tasks import Item, _done
from rockmq.pipeline.compact import _planned
from rockmq.pipeline.manifest import ArchivedTopic, LostRange, Plan, Task
from rockmq.pipeline.runs import Progress
from rockmq.spark import cluster
from rockmq.spark.options import ReadOptions, parse
from rockmq.spark.ranges import Bounds, DataLoss
from tests.spark.test_compact import COUNT, TOPIC, archived, compacted, offsets
from tests.spark.test_compact import _one_process as _one_process
from tests.spark.test_store import closed

__all__ = ["closed"]


def run(store: Path, directory: Path, *topics: str, broker: str = "broker-a", **more: Any) -> None:
    options = {"readFrom": f"store:{store}", "brokerName": broker} | more.pop("options", {})
    archive_topics(None, "a:1", topics or [TOPIC], directory, options=options, **more)  # type: ignore[arg-type]


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> dict[MessageQueue, int]:
    """What brokers are told."""
    told: dict[MessageQueue, int] = {}

    async def commit(options: object, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        told.update(offsets)

    monkeypatch.setattr(archiving, "commit_once", commit)
    return told


def test_a_plan_isnt_finished_from_another_broker_s_store(closed: Path, tmp_path: Path) -> None:
    shelf = ArchivedTopic(tmp_path / TOPIC)
    task = Task("broker-a", 0, 0, 5)
    assert shelf.begin(1, Plan([task], {"broker-a": {0: 5}}))

    with pytest.raises(ConfigError, match=r"its plan is of broker broker-a, and .* is the store of broker-b"):
        run(closed, tmp_path, TOPIC, "orders", broker="broker-b")

    assert manifest(tmp_path, TOPIC) == []
    assert {each.broker for each in manifest(tmp_path, "orders")} == {"broker-b"}
    other = parse({"readFrom": f"store:{closed}", "brokerName": "broker-b", "topic": TOPIC})
    lines, kind, _ = _done(Item(0, 0, TOPIC, str(shelf.root), 1, task), other)
    assert (lines, kind) == (None, "ConfigError")
    run(closed, tmp_path)
    assert offsets(paths(tmp_path, TOPIC)) == list(range(COUNT))


def test_who_finishes_a_compaction_late_lists_no_file_twice(closed: Path, tmp_path: Path) -> None:
    archived(closed, tmp_path, 12)
    shelf = ArchivedTopic(tmp_path / TOPIC)
    ((_, _, number, plan),) = _planned(TOPIC, shelf, 1_000)
    archived(closed, tmp_path)  # finishes that run, and is the next
    (line,) = [each for each in manifest(tmp_path, TOPIC) if each.start == 0]

    shelf.finish(number, plan, [[line]])

    assert offsets(paths(tmp_path, TOPIC)) == list(range(COUNT))
    # Nor does who looked for the other's manifest before it was there.
    (shelf.folder / f"{number:08}.all.jsonl").unlink()
    shelf.finish(number, plan, [[line]])
    assert offsets(paths(tmp_path, TOPIC)) == list(range(COUNT))


def test_brokers_are_told_of_plans_that_are_done(closed: Path, tmp_path: Path, committed: dict[MessageQueue, int]) -> None:
    def meanwhile(progress: Progress) -> None:
        if progress.stage.startswith("telling"):
            assert ArchivedTopic(tmp_path / TOPIC).begin(2, Plan([Task("broker-a", 0, 30, 99)], {"broker-a": {0: 99}}))

    run(closed, tmp_path, group="archiver", progress=Progress(meanwhile))

    assert committed == {MessageQueue(TOPIC, "broker-a", 0): COUNT}


def test_a_table_that_cant_be_kept_keeps_nothing_else(
    closed: Path, tmp_path: Path, committed: dict[MessageQueue, int]
) -> None:
    run(closed, tmp_path, TOPIC, "large", delta=True)
    for log in (tmp_path / TOPIC / "_delta_log").glob("*.json"):
        log.write_text("{")

    with pytest.raises(ConfigError, match=f"{TOPIC}/_delta_log is no log"):
        run(closed, tmp_path, TOPIC, "large", "orders", delta=True, group="archiver")
    with pytest.raises(ConfigError, match=f"{TOPIC}/_delta_log is no log"):
        compacted(tmp_path)

    assert {queue.topic for queue in committed} == {TOPIC, "large", "orders"}
    assert (tmp_path / "orders" / "_delta_log").is_dir()


def test_a_topic_that_was_made_anew_is_told_always(closed: Path, tmp_path: Path) -> None:
    shelf = ArchivedTopic(tmp_path / TOPIC)
    assert shelf.begin(1, Plan([], {"broker-a": {0: 100}}))

    with pytest.raises(DataLoss, match=r"few/broker-a/0 ends at 30 and is archived up to 100"):
        run(closed, tmp_path, options={"failOnDataLoss": "false"})


def test_what_came_and_expired_between_runs_is_noted(closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, shelf = MessageQueue(TOPIC, "broker-a", 0), ArchivedTopic(tmp_path / TOPIC)

    async def bounds_of(origin: object, options: object) -> dict[MessageQueue, Bounds]:
        return {queue: bounds}

    monkeypatch.setattr(cluster, "bounds_of", bounds_of)
    bounds = Bounds(0, 0)
    run(closed, tmp_path)
    run(closed, tmp_path)
    assert [number for number, _, _ in shelf.runs(0)] == [1], "nothing has changed"
    bounds = Bounds(5, 5)
    with pytest.raises(DataLoss, match=r"\[0, 5\) has expired"):
        run(closed, tmp_path, options={"endingOffsets": '{"few": {"broker-a": {"0": 9}}}'})
    for _ in range(2):
        run(closed, tmp_path, options={"failOnDataLoss": "false"})
    bounds = Bounds(7, 30)
    run(closed, tmp_path, options={"failOnDataLoss": "false"})

    assert [(lost.start, lost.end) for lost in shelf.lost()] == [(0, 5), (5, 7)]
    assert offsets(paths(tmp_path, TOPIC)) == list(range(7, 30))


def test_a_kill_leaves_the_note_of_what_expired(closed: Path, tmp_path: Path) -> None:
    shelf = ArchivedTopic(tmp_path / TOPIC)
    lost = LostRange("broker-a", 0, 1, 3, "expired before it was archived")
    assert shelf.begin(1, Plan([Task("broker-a", 0, 3, 30)], {"broker-a": {0: 30}}, [lost]))

    run(closed, tmp_path)

    assert shelf.lost() == [lost]


def test_a_topic_without_a_route_keeps_no_other(closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds_of = cluster.bounds_of

    async def routed(origin: cluster.Origin, options: ReadOptions) -> dict[MessageQueue, Bounds]:
        if options.topic == "orders":
            raise RouteNotFound("no name server knows orders")
        return await bounds_of(origin, options)

    monkeypatch.setattr(cluster, "bounds_of", routed)

    with pytest.raises(RouteNotFound, match="no name server knows orders"):
        run(closed, tmp_path, "orders", TOPIC)

    assert offsets(paths(tmp_path, TOPIC)) == list(range(COUNT))


def test_no_plan_is_made_behind_another_s_that_isnt_done(closed: Path, tmp_path: Path) -> None:
    """Begun after this run has looked for one that broke off."""
    shelf = ArchivedTopic(tmp_path / TOPIC)

    def meanwhile(progress: Progress) -> None:
        if progress.stage == "archiving large" and not shelf.last()[0]:
            assert shelf.begin(1, Plan([Task("broker-a", 0, 0, 5)], {"broker-a": {0: 5}}))

    assert ArchivedTopic(tmp_path / "large").begin(1, Plan([Task("broker-a", 0, 0, 5)], {"broker-a": {0: 5}}))
    with pytest.raises(ConfigError, match="another run archives few"):
        run(closed, tmp_path, TOPIC, "large", progress=Progress(meanwhile))

    assert shelf.last()[0] == 1
