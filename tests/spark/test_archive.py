"""A topic as Parquet: what is in the files, what the manifest says, and runs that follow each other or break off."""

import asyncio
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rockmq.base.errors import ConfigError
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codec import decode_columns
from rockmq.spark import archive as archives
from rockmq.spark.archive import ArchivedFile, archive, manifest, write_range
from rockmq.spark.options import ReadOptions, parse
from rockmq.spark.ranges import Range
from rockmq.spark.schema import ARROW, Records
from tests.spark.conftest import create, fill
from tests.spark.records import DAY_MS, Record, encode
from tests.spark.test_batch_read import Read, Topic, numbered
from tests.support.cluster import Cluster

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

        monkeypatch.setattr(archives, "read_range", read_range)

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
    monkeypatch.setattr(archives, "ROW_GROUP_ROWS", 100)
    crcs = set()
    for step in (7, 33, 250):
        stored(*(records(at, min(at + step, 1_000)) for at in range(0, 1_000, step)))
        (entry,) = write_range(READ, Range(QUEUE, 0, 1_000), tmp_path)
        crcs.add(entry.crc)

    assert len(crcs) == 1
    assert pq.ParquetFile(tmp_path / entry.path).num_row_groups == 10


def test_nothing_is_left_of_a_file_that_broke_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(options: ReadOptions, wanted: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        yield Records(decode_columns(encode(*records(0, 5))), QUEUE.broker_name).batch(schema)
        raise OSError("broken")

    monkeypatch.setattr(archives, "read_range", breaks)

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
