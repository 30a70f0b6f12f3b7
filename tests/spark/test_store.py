"""Reading a store's files: of one that was closed, of one in use, of a copy; and of damaged ones."""

import asyncio
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rockmq.base.errors import ConfigError, ProtocolError
from rockmq.client import Client, Message, MessageQueue
from rockmq.pipeline.archive import archive
from rockmq.spark.batch_reader import BatchReader
from rockmq.spark.options import ReadOptions, parse
from rockmq.spark.ranges import DataLoss, Range
from rockmq.spark.schema import ARROW
from rockmq.store.checkpoint import Checkpoint
from tests.spark.conftest import create, fill
from tests.spark.test_batch_read import fill_batch_queue, numbered, places
from tests.support import server
from tests.support.process import eventually

LOG_FILE_SIZE = 1 << 20
SETTINGS = ("--set", f"mappedFileSizeCommitLog={LOG_FILE_SIZE}", "--set", "flushConsumeQueueThoroughInterval=100")
COUNT = 3_000


@dataclass(frozen=True)
class Cluster:
    """What `fill_batch_queue` wants to know."""

    namesrv: str
    broker: str


async def prepare(started: server.Server) -> None:
    await create(started.namesrv, "orders", 2)
    await fill(started.namesrv, "orders", {0: numbered(COUNT, size=1_000), 1: numbered(7)})
    await create(started.namesrv, "few", 1)
    tags = ["Aa", "BB", None]
    few = [Message("", b"%d" % at, tag=tags[at % 3], properties={"size": str(at)}) for at in range(30)]
    await fill(started.namesrv, "few", {0: few})
    await create(started.namesrv, "large", 1)
    await fill(started.namesrv, "large", {0: numbered(20, size=10_000)})
    await create(started.namesrv, "empty", 1)
    await fill_batch_queue(Cluster(started.namesrv, started.broker), "batches", sizes=[3, 1, 250, 40])  # type: ignore[arg-type]
    async with Client(started.namesrv) as mq:
        (queue,) = await mq.queues("few")
        await mq.commit("billing", queue, 12)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a server that was stopped in order."""
    directory = tmp_path_factory.mktemp("store")
    with server.serve(directory, *SETTINGS) as started:
        asyncio.run(prepare(started))
        started.terminate()
    return started.data


@pytest.fixture
def copy(closed: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    target = tmp_path / "copy"
    shutil.copytree(closed, target, ignore=shutil.ignore_patterns("index"))
    return target


def options(root: Path, topic: str = "orders", **more: str) -> ReadOptions:
    return parse({"readFrom": f"store:{root}", "topic": topic, **more})


def read(options: ReadOptions, schema: pa.Schema = ARROW) -> list[pa.RecordBatch]:
    reader = BatchReader(options, schema)
    return [batch for partition in reader.partitions() for batch in reader.read(partition)]


def rows(batches: list[pa.RecordBatch]) -> list[tuple[int, int]]:
    """(queue id, offset), in order of reading."""
    places = [batch.select(["queueId", "queueOffset"]).to_pylist() for batch in batches]
    return [(row["queueId"], row["queueOffset"]) for each in places for row in each]


def every(count: int, queue_id: int = 0, start: int = 0) -> list[tuple[int, int]]:
    return [(queue_id, offset) for offset in range(start, count)]


def test_a_store_is_read_as_its_broker_is(closed: Path) -> None:
    batches = read(options(closed, brokerName="broker-a"))

    assert rows(batches) == every(COUNT) + every(7, queue_id=1)
    assert {batch.schema for batch in batches} == {ARROW}
    first = batches[0].to_pylist()[5]
    assert (first["topic"], first["broker"], first["body"]) == ("orders", "broker-a", b"5 " + b"x" * 1_000)
    assert dict(first["properties"])["UNIQ_KEY"] == first["msgId"]


@pytest.mark.parametrize(("topic", "count", "first"), [("large", 20, b"0 " + b"x" * 10_000), ("batches", 294, b"0")])
def test_compressed_bodies_and_batches_are_read_as_sent(closed: Path, topic: str, count: int, first: bytes) -> None:
    batches = read(options(closed, topic))

    assert rows(batches) == every(count)
    assert batches[0].column("body")[0].as_py() == first


def test_ranges_cut_anywhere_hold_each_message_once(closed: Path) -> None:
    for topic, count in (("orders", COUNT + 7), ("batches", 294)):
        found = rows(read(options(closed, topic, maxRecordsPerPartition="37")))
        assert len(found) == len(set(found)) == count


def test_tags_and_expressions_select(closed: Path) -> None:
    # "Aa" and "BB" have the same Java hash code, by which a queue tells tags.
    assert [at for _, at in rows(read(options(closed, "few", tags="Aa")))] == list(range(0, 30, 3))
    assert [at for _, at in rows(read(options(closed, "few", sql="size BETWEEN 5 AND 7")))] == [5, 6, 7]


def test_a_filter_may_leave_out_all_that_is_looked_at_in_one_go(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rockmq.spark.store.READ_ROWS", 4)

    for lossy in ("true", "false"):
        selected = options(closed, "few", sql="size = 9 OR size = 20", failOnDataLoss=lossy)
        assert [at for _, at in rows(read(selected))] == [9, 20]
    assert rows(read(options(closed, "few", tags="none"))) == []


def test_where_to_begin_and_end_is_said_as_for_brokers(closed: Path) -> None:
    stored = [row["storeTimestamp"] for batch in read(options(closed, "few")) for row in batch.to_pylist()]
    last_ms = str(round(stored[-1].timestamp() * 1000))
    wanted = json.dumps({"few": {"store": {"0": 3}}})

    assert rows(read(options(closed, "few", startingOffsets=wanted, endingOffsets="groupOffsets", group="billing"))) == (
        every(12, start=3)
    )
    assert rows(read(options(closed, "few", startingTimestamp=last_ms)))[-1] == (0, 29)
    assert rows(read(options(closed, "few", endingTimestamp="1"))) == []


def test_an_empty_topic_is_empty_and_an_unknown_one_an_error(closed: Path) -> None:
    assert read(options(closed, "empty")) == []
    with pytest.raises(ConfigError, match=r"has no topic 'nothing'; there are: .*few, .*orders"):
        read(options(closed, "nothing"))


def test_a_pattern_leaves_the_system_s_topics_out(closed: Path) -> None:
    reader = BatchReader(parse({"readFrom": f"store:{closed}", "topicPattern": ".*"}), ARROW)

    assert {partition.queue.topic for partition in reader.partitions() if isinstance(partition, Range)} == {
        "orders", "few", "large", "batches",
    }  # fmt: skip


def test_reading_changes_nothing(closed: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in closed.rglob("*")}

    read(options(closed))

    assert {path: path.stat().st_mtime_ns for path in closed.rglob("*")} == before


def test_a_store_in_use_is_read_up_to_where_it_was_surely_on_disk(tmp_path: Path) -> None:
    with server.serve(tmp_path, *SETTINGS) as started:
        asyncio.run(create(started.namesrv, "orders", 1))
        asyncio.run(fill(started.namesrv, "orders", {0: numbered(500)}))
        eventually(lambda: len(rows(read(options(started.data)))) == 500, 60, "what is on disk is read")
        copied = tmp_path / "copy"
        shutil.copytree(started.data, copied)
        asyncio.run(fill(started.namesrv, "orders", {0: numbered(20_000)}))
        some = rows(read(options(started.data)))
        assert some == every(len(some))
        started.kill()
        end = Checkpoint.load(started.data / "checkpoint").position
        assert end is not None
        batches = read(options(started.data))
    assert rows(batches) == every(sum(batch.num_rows for batch in batches))
    assert 500 <= sum(batch.num_rows for batch in batches) <= 20_500
    assert all(batch.column("commitLogOffset")[-1].as_py() < end for batch in batches)
    assert rows(read(options(copied))) == every(500)


def test_a_checkpoint_of_apache_s_tells_a_time(copy: Path) -> None:
    stored = [row["storeTimestamp"] for batch in read(options(copy, "few")) for row in batch.to_pylist()]
    last_ms = round(stored[-1].timestamp() * 1000)
    (copy / "abort").touch()

    Checkpoint(physic=last_ms, logics=last_ms).save(copy / "checkpoint")
    found = read(options(copy, "few"))
    Checkpoint(physic=last_ms + 1, logics=last_ms).save(copy / "checkpoint")

    assert all(row["storeTimestamp"].timestamp() * 1000 < last_ms for batch in found for row in batch.to_pylist())
    assert rows(read(options(copy, "few"))) == every(30)


def test_a_damaged_record_is_named_by_file_and_byte(copy: Path) -> None:
    position = read(options(copy))[0].column("commitLogOffset")[11].as_py()
    file = copy / "commitlog" / f"{position - position % LOG_FILE_SIZE:020}"
    with file.open("r+b") as log:
        log.seek(position % LOG_FILE_SIZE + 500)
        log.write(b"???")
    where = f"{file}, byte {position % LOG_FILE_SIZE}, where offset 11 should be"
    told = f"orders/store/0 is damaged: {where}: the body fails its CRC"

    with pytest.raises(ProtocolError, match=told):
        read(options(copy))
    assert rows(read(options(copy, failOnDataLoss="false"))) == [
        place for place in every(COUNT) + every(7, queue_id=1) if place != (0, 11)
    ]


def test_what_is_deleted_between_planning_and_reading_is_lost(copy: Path) -> None:
    reader = BatchReader(options(copy), ARROW)
    (wanted, _) = reader.partitions()
    assert isinstance(wanted, Range)
    for file in sorted((copy / "commitlog").iterdir())[:2]:
        file.unlink()

    with pytest.raises(DataLoss, match=r"store/0 \[0, \d+\) is lost: its files are deleted, the queue starts at \d+ now"):
        list(reader.read(wanted))
    left = rows(list(BatchReader(options(copy, failOnDataLoss="false"), ARROW).read(wanted)))
    assert 0 < len(left) < COUNT
    assert left == every(COUNT, start=COUNT - len(left))
    assert rows(read(options(copy)))[: len(left)] == left, "a plan made now begins where the log does"


def test_a_file_that_is_missing_in_between_is_lost(copy: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = BatchReader(options(copy), ARROW)
    (wanted, _) = reader.partitions()
    missing = sorted((copy / "commitlog").iterdir())[1]
    missing.unlink()

    with pytest.raises(DataLoss, match=f"the log file with position {int(missing.name)}"):
        list(reader.read(wanted))
    left = rows(list(BatchReader(options(copy, failOnDataLoss="false"), ARROW).read(wanted)))
    assert left[0] == (0, 0)
    assert left[-1] == (0, COUNT - 1)
    assert COUNT - 1_100 < len(left) < COUNT
    assert caplog.text.count("is lost") == 1


def test_what_is_deleted_while_it_is_read_is_read(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rockmq.spark.store.READ_ROWS", 100)
    reader = BatchReader(options(copy), ARROW)
    (wanted, _) = reader.partitions()
    batches = reader.read(wanted)
    found = [next(batches)]
    shutil.rmtree(copy / "commitlog")

    assert rows(found + list(batches)) == every(COUNT)


def test_a_directory_that_is_no_store_is_told(tmp_path: Path, closed: Path) -> None:
    with pytest.raises(ConfigError, match=f"{tmp_path} is no store"):
        read(options(tmp_path))
    queue = MessageQueue("orders", "store", 0)
    with pytest.raises(ConfigError, match=f"on .*: {tmp_path} is no store.* each executor has to see the store's files"):
        list(BatchReader(options(tmp_path), ARROW).read(Range(queue, 0, 1)))


def test_spark_reads_a_store(spark: SparkSession, closed: Path) -> None:
    def load(topic: str, **more: str) -> DataFrame:
        return spark.read.format("rockmq").options(readFrom=f"store:{closed}", topic=topic, **more).load()

    assert places(load("orders", minPartitions="4")) == every(COUNT) + every(7, queue_id=1)
    with pytest.raises(PySparkException, match="has no topic 'nothing'"):
        load("nothing").count()


def test_a_store_is_archived(spark: SparkSession, closed: Path, tmp_path: Path) -> None:
    read_store = {"readFrom": f"store:{closed}", "brokerName": "broker-a"}

    assert archive(spark, "", "orders", tmp_path, options=read_store).rows == COUNT + 7
    assert archive(spark, "", "orders", tmp_path, options=read_store).rows == 0
