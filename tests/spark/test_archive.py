"""A topic as Parquet: what is in the files, what the manifest says, and runs that follow each other or break off."""

import asyncio
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rockmq.base.errors import ConfigError, ProtocolError
from rockmq.cli.main import app
from rockmq.client import Client
from rockmq.pipeline import archive_files
from rockmq.pipeline.archive import ArchivedFile, archive, archive_topics, manifest, paths
from rockmq.pipeline.archive_files import write_range
from rockmq.pipeline.manifest import ArchivedTopic, Plan, Task
from rockmq.pipeline.runs import Progress
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codec import decode_columns
from rockmq.spark.batch_reader import read_range
from rockmq.spark.options import ReadOptions, parse
from rockmq.spark.ranges import DataLoss, Range
from rockmq.spark.schema import ARROW, Records
from tests.spark.conftest import create, fill
from tests.spark.records import DAY_MS, Record, encode
from tests.spark.test_batch_read import Read, Topic, numbered
from tests.spark.test_store import COUNT, closed, copy
from tests.support import cluster
from tests.support.cluster import Cluster
from tests.support.process import eventually

__all__ = ["closed", "copy"]

NOON_MS = 1_700_000_000_000 // DAY_MS * DAY_MS + DAY_MS // 2
QUEUE = MessageQueue("orders", "broker-a", 3)
READ = parse({"nameServer": "a:1", "topic": "orders"})

Stored = Callable[..., None]


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Stored:
    """What the queue holds, given in batches as they come."""

    def give(*batches: list[Record]) -> None:
        def read_range(options: ReadOptions, wanted: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield Records(decode_columns(encode(*batch)), QUEUE.broker_name).batch(schema)

        monkeypatch.setattr(archive_files, "read_range", read_range)

    return give


def records(start: int, end: int, store_ms: int = NOON_MS) -> list[Record]:
    return [Record(queue_offset=at, queue_id=3, store_timestamp=store_ms + at, body=b"%d" % at) for at in range(start, end)]


def test_a_file_is_named_by_day_queue_and_offsets(stored: Stored, tmp_path: Path) -> None:
    stored(records(5, 10), records(10, 12))

    (entry,) = write_range(READ, Range(QUEUE, 5, 12), tmp_path)

    content = (tmp_path / entry.path).read_bytes()
    assert entry == ArchivedFile(
        path="dt=2023-11-14/broker-a-3-5-12.parquet",
        broker="broker-a",
        queue_id=3,
        start=5,
        end=12,
        rows=7,
        bytes=len(content),
        min_store_timestamp=NOON_MS + 5,
        max_store_timestamp=NOON_MS + 11,
        crc=zlib.crc32(content),
    )
    table = pq.read_table(pa.BufferReader(content))
    assert table.schema.equals(ARROW)
    assert table.column("body").to_pylist() == [b"%d" % at for at in range(5, 12)]


def test_a_day_has_its_own_file(stored: Stored, tmp_path: Path) -> None:
    midnight = NOON_MS + DAY_MS // 2
    stored(records(0, 10, midnight - 5), records(10, 12, midnight))

    entries = list(write_range(READ, Range(QUEUE, 0, 12), tmp_path))

    assert [entry.path for entry in entries] == [
        "dt=2023-11-14/broker-a-3-0-5.parquet",
        "dt=2023-11-15/broker-a-3-5-12.parquet",
    ]
    assert [entry.rows for entry in entries] == [5, 7]


def test_the_same_range_gives_the_same_bytes_however_it_comes(
    stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_files, "ROW_GROUP_ROWS", 100)
    crcs = set()
    for step in (7, 33, 250):
        stored(*(records(at, min(at + step, 1_000)) for at in range(0, 1_000, step)))
        (entry,) = write_range(READ, Range(QUEUE, 0, 1_000), tmp_path)
        crcs.add(entry.crc)

    assert len(crcs) == 1
    assert pq.ParquetFile(tmp_path / entry.path).num_row_groups == 10


def test_large_rows_give_the_same_bytes_however_they_come(
    stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_files, "ROW_GROUP_BYTES", 50_000)
    every = [
        Record(
            queue_offset=at,
            body=b"x" * (at * 37 % 2_000),
            store_timestamp=NOON_MS + at,
            properties={"k": "v" * (at % 50)} if at % 3 else {},
        )
        for at in range(500)
    ]
    crcs = set()
    for step in (1, 7, 33, 499, 500):
        stored(*(every[at : at + step] for at in range(0, 500, step)))
        (entry,) = write_range(READ, Range(QUEUE, 0, 500), tmp_path)
        crcs.add(entry.crc)

    assert len(crcs) == 1
    assert 5 < pq.ParquetFile(tmp_path / entry.path).num_row_groups < 20


def test_a_batch_of_which_nothing_is_left_is_a_gap(stored: Stored, tmp_path: Path) -> None:
    gaps: list[tuple[int, int]] = []
    stored([], records(3, 5), [])

    (entry,) = write_range(READ, Range(QUEUE, 0, 8), tmp_path, gaps)

    assert (entry.start, entry.end) == (3, 5)
    assert gaps == [(0, 3), (5, 8)]


def test_nothing_is_left_of_a_file_that_broke_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(options: ReadOptions, wanted: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield Records(decode_columns(encode(*records(0, 5))), QUEUE.broker_name).batch(schema)
        raise OSError("broken")

    monkeypatch.setattr(archive_files, "read_range", breaks)

    with pytest.raises(OSError, match="broken"):
        list(write_range(READ, Range(QUEUE, 0, 10), tmp_path))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("option", ["tags", "StartingOffsets", "maxRecordsPerPartition"])
def test_an_archive_is_of_everything(option: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="an archive holds all of a topic"):
        archive(None, "a:1", "orders", tmp_path, options={option: "1"})  # type: ignore[arg-type]


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*.parquet"))


def test_an_archive_holds_what_the_topic_holds(
    spark: SparkSession, server: Cluster, topic: Topic, read: Read, tmp_path: Path
) -> None:
    name = topic({0: numbered(2_500), 2: numbered(10)})

    done = archive(spark, server.namesrv, name, tmp_path, records_per_file=1_000)

    assert done.rows == 2_510
    assert done.files == manifest(tmp_path, name)
    assert [(entry.queue_id, entry.rows) for entry in done.files] == [(0, 833), (0, 833), (0, 834), (2, 10)]
    archived = spark.read.parquet(str(tmp_path / name))
    same = read(name).selectExpr(
        "*", "date(storeTimestamp) dt", "map_entries(properties) entries", "hash(body) digest"
    ).drop("properties")  # fmt: skip
    other = archived.selectExpr("*", "map_entries(properties) entries", "hash(body) digest").drop("properties")
    assert other.select(same.columns).exceptAll(same).count() == 0
    assert other.count() == 2_510


def test_the_next_run_archives_what_came_since(spark: SparkSession, server: Cluster, topic: Topic, tmp_path: Path) -> None:
    name = topic({0: numbered(100)}, queues=2)
    first = archive(spark, server.namesrv, name, tmp_path)
    asyncio.run(fill(server.namesrv, name, {0: numbered(20), 1: numbered(5)}))

    second = archive(spark, server.namesrv, name, tmp_path)
    third = archive(spark, server.namesrv, name, tmp_path)

    assert [(entry.queue_id, entry.start, entry.end) for entry in second.files] == [(0, 100, 120), (1, 0, 5)]
    assert third.files == []
    assert manifest(tmp_path, name) == first.files + second.files
    assert spark.read.parquet(str(tmp_path / name)).count() == 125


def test_a_run_that_broke_off_is_done_over(spark: SparkSession, server: Cluster, topic: Topic, tmp_path: Path) -> None:
    name = topic({0: numbered(100), 1: numbered(50)})
    first = archive(spark, server.namesrv, name, tmp_path)
    # As after a crash with one file written and one half-written, before the manifest.
    folder = tmp_path / name
    (folder / "_manifest" / "00000001.jsonl").unlink()
    (folder / first.files[1].path).unlink()
    (folder / first.files[1].path).with_name(".apache-a-1-0.tmp").write_bytes(b"PAR1 half")
    asyncio.run(fill(server.namesrv, name, {0: numbered(7)}))

    again = archive(spark, server.namesrv, name, tmp_path)

    assert again.files[:2] == first.files
    assert [(entry.start, entry.end) for entry in again.files[2:]] == [(100, 107)]
    assert spark.read.parquet(str(folder)).count() == 157


def test_a_dead_letter_topic_can_be_archived(
    spark: SparkSession, server: Cluster, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """Its name has a character that means something in a URI."""
    name = f"%DLQ%{unique('group')}"

    asyncio.run(create(server.namesrv, name, 1))
    asyncio.run(fill(server.namesrv, name, {0: numbered(3)}))

    assert archive(spark, server.namesrv, name, tmp_path).rows == 3
    assert spark.read.parquet(str(tmp_path / name)).count() == 3


# Several topics, and from a store


def archived(directory: Path, topic: str) -> list[tuple[int, int]]:
    """(queue id, offset) of every row that counts, in the manifest's order."""
    tables = [pq.read_table(path, columns=["queueId", "queueOffset"]) for path in paths(directory, topic)]
    return [(row["queueId"], row["queueOffset"]) for table in tables for row in table.to_pylist()]


def test_a_store_s_topics_are_archived_in_one_run(spark: SparkSession, closed: Path, tmp_path: Path) -> None:
    read_store = {"readFrom": f"store:{closed}", "brokerName": "broker-a"}
    told = Progress()

    done = archive_topics(spark, "", None, tmp_path, options=read_store, records_per_file=1_000, progress=told)
    again = archive_topics(spark, "", ["few", "orders"], tmp_path, options=read_store)

    assert {each.topic: each.rows for each in done if each.rows} == {
        "orders": COUNT + 7, "few": 30, "large": 20, "batches": 294,
    }  # fmt: skip
    assert [(each.topic, each.rows) for each in again] == [("few", 0), ("orders", 0)]
    assert sorted(archived(tmp_path, "orders")) == [*((0, at) for at in range(COUNT)), *((1, at) for at in range(7))]
    assert sorted(archived(tmp_path, "batches")) == [(0, at) for at in range(294)]
    assert told.counts["rows"] == told.totals["rows"] == COUNT + 7 + 30 + 20 + 294
    assert not (tmp_path / "empty").exists()


def test_what_keeps_one_topic_from_being_archived_keeps_no_other(spark: SparkSession, closed: Path, tmp_path: Path) -> None:
    read_store = {"readFrom": f"store:{closed}", "brokerName": "broker-a"}
    shelf = ArchivedTopic(tmp_path / "few")
    # As if the topic were made anew since: it had more messages.
    shelf.begin(1, Plan([], {"broker-a": {0: 31}}))
    shelf.finish(1, Plan([], {}), [])

    with pytest.raises(DataLoss, match=r"few/broker-a/0 ends at 30"):
        archive_topics(spark, "", ["orders", "few"], tmp_path, options=read_store)

    assert len(archived(tmp_path, "orders")) == COUNT + 7
    assert archived(tmp_path, "few") == []


def test_what_fails_in_a_task_is_raised_by_name(spark: SparkSession, copy: Path, tmp_path: Path) -> None:
    read_store = {"readFrom": f"store:{copy}", "brokerName": "broker-a"}
    ranges = {"few": [Task("broker-a", 0, 0, 30)], "orders": [Task("broker-a", 0, 5, 10), Task("broker-a", 1, 5, 10)]}
    for topic, tasks in ranges.items():
        assert ArchivedTopic(tmp_path / topic).begin(1, Plan(tasks, {"broker-a": {0: 30}}))

    with pytest.raises(DataLoss, match=r"orders/broker-a/1 \[7, 10\) is lost"):
        archive_topics(spark, "", ["few", "orders"], tmp_path, options=read_store)

    assert archived(tmp_path, "few") == [(0, at) for at in range(30)]
    assert archived(tmp_path, "orders") == []
    assert ArchivedTopic(tmp_path / "orders").parts(1) == {0}, "what is done isn't done again"


def test_what_cant_be_archived_is_told_in_a_table(spark: SparkSession, copy: Path, tmp_path: Path) -> None:
    position = read_positions(copy)[11]
    with (copy / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(position + 500)
        log.write(b"???")
    read_store = {"readFrom": f"store:{copy}", "brokerName": "broker-a"}
    with pytest.raises(ProtocolError, match="the body fails its CRC"):
        archive(spark, "", "orders", tmp_path, options=read_store)

    told = Progress()
    archive(spark, "", "orders", tmp_path, options=read_store | {"failOnDataLoss": "false"}, progress=told)

    assert told.counts["lost"] == 1
    (lost,) = ArchivedTopic(tmp_path / "orders").lost()
    assert (lost.broker, lost.queue_id, lost.start, lost.end) == ("broker-a", 0, 11, 12)
    assert "the body fails its CRC" in lost.reason
    assert len(archived(tmp_path, "orders")) == COUNT + 6


def read_positions(store: Path) -> list[int]:
    wanted = Range(MessageQueue("orders", "store", 0), 0, 20)
    (batch,) = read_range(parse({"readFrom": f"store:{store}", "topic": "orders"}), wanted, ARROW)
    return [*batch.column("commitLogOffset").to_pylist()]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"topics": ["a"], "options": {"readFrom": "store:/s"}}, "'brokerName' is required"),
        ({"topics": ["a"], "group": "no group"}, "no group"),
        (
            {"topics": ["a"], "name_server": "", "group": "g", "options": {"readFrom": "store:/s", "brokerName": "b"}},
            "g needs",
        ),
        ({"topics": ["a"], "records_per_file": 0}, "records_per_file is 0"),
        ({"topics": ["a b"]}, "option 'topic'"),
    ],
)
def test_what_cant_be_is_refused(arguments: dict[str, Any], told: str, tmp_path: Path) -> None:
    server = arguments.pop("name_server", "a:1")
    with pytest.raises(ConfigError, match=told):
        archive_topics(None, server, arguments.pop("topics"), tmp_path, **arguments)  # type: ignore[arg-type]


def test_the_whole_log_is_what_users_have_sent(spark: SparkSession, tmp_path: Path) -> None:
    """With its lag as a group's, and deletion that waits for it: one server of its own for all of that."""
    keys = {
        "mappedFileSizeCommitLog": str(1 << 20), "retentionGroups": "archiver", "fileReservedTime": "0",
        "cleanResourceInterval": "50", "deleteCommitLogFilesInterval": "0",
        "deleteWhen": ";".join(map(str, range(24))), "retentionGroupsDiskRatio": "100",
    }  # fmt: skip
    with cluster.started("rockmq", tmp_path / "server", keys) as server:
        for name, queues in (("orders", 2), ("payments", 1), ("%DLQ%billing", 1)):
            asyncio.run(create(server.namesrv, name, queues))
            asyncio.run(fill(server.namesrv, name, {0: numbered(10)}))
        shelf = tmp_path / "archive"

        first = archive_topics(spark, server.namesrv, None, shelf, group="archiver")

        assert {each.topic: each.rows for each in first if each.rows} == {"orders": 10, "payments": 10}
        assert lag(server, "orders") == 0
        asyncio.run(fill(server.namesrv, "orders", {0: numbered(2_000, size=1_000), 1: numbered(1)}))
        assert lag(server, "orders") == 2_001
        # Everything has expired, and 30 rounds go by in which nothing may be deleted but what is archived.
        asyncio.run(asyncio.sleep(1.5))
        second = archive_topics(spark, server.namesrv, None, shelf, retries=True, group="archiver")
        assert {each.topic: each.rows for each in second if each.rows} == {"orders": 2_001, "%DLQ%billing": 10}
        assert sorted(archived(shelf, "orders")) == [*((0, at) for at in range(2_010)), (1, 0)]
        eventually(lambda: first_offset(server, "orders") > 500, 60, "deletion of what is archived")


def lag(server: Cluster, topic: str) -> int:
    async def ask() -> int:
        async with Client(server.namesrv) as mq:
            return (await mq.admin.groups.progress("archiver", topic)).lag

    return asyncio.run(ask())


def first_offset(server: Cluster, topic: str) -> int:
    async def ask() -> int:
        async with Client(server.namesrv) as mq:
            return await mq.min_offset((await mq.queues(topic))[0])

    return asyncio.run(ask())


# The command


def test_the_command_archives_and_compacts(closed: Path, spark: SparkSession, tmp_path: Path) -> None:
    store = ["-o", f"readFrom=store:{closed}", "-o", "brokerName=broker-a", "--ledger", str(tmp_path / "runs"), "--json"]
    shelf = str(tmp_path / "archive")

    done = CliRunner().invoke(app, ["pipeline", "archive", "few", "large", shelf, "--records-per-file", "7", *store])
    compacted = CliRunner().invoke(
        app, ["pipeline", "compact", shelf, "--keep", "0", "--json", "--ledger", str(tmp_path / "runs")]
    )

    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout.splitlines()[-1])
    assert (row["counts"]["rows"], row["counts"]["files"]) == (50, 8)
    assert (row["options"]["topics"], row["results"]["directory"]) == ("few,large", shelf)
    assert compacted.exit_code == 0, compacted.output
    assert json.loads(compacted.stdout.splitlines()[-1])["counts"] == {"rows": 50, "bytes": ANY, "files": 2, "removed": 8}
    assert archived(Path(shelf), "few") == [(0, at) for at in range(30)]
    assert len(files(Path(shelf))) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["DIR"], "say which topics to archive, or --all"),
        (["a", "DIR", "--all"], "say which topics to archive, or --all"),
        (["a", "DIR", "--retries"], "--retries goes with --all"),
        (["a", "DIR", "-o", "tags"], "--option 'tags': expected KEY=VALUE"),
    ],
)
def test_bad_words_are_told(words: list[str], told: str, tmp_path: Path, spark: SparkSession) -> None:
    ran = CliRunner().invoke(app, ["pipeline", "archive", *words, "--ledger", str(tmp_path)])

    assert ran.exit_code == 1
    assert told in ran.stderr
