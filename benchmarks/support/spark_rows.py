"""What is measured of Spark's sources and sinks: each row, and how each contestant does it.

Both have the same rows in as many queues as partitions: a body, a key by which they are shared out, and on RockMQ's side a
tag that one in a hundred has. RockMQ's read has the six columns that Kafka's gives (key, value, topic, partition, offset,
timestamp), unless the row says that it has all of its sixteen.
"""

import asyncio
import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rockmq.pipeline.archive import archive
from rockmq.spark import cluster
from rockmq.spark.batch_reader import BatchReader
from rockmq.spark.options import parse
from rockmq.spark.pulling import RangePuller
from rockmq.spark.ranges import Range
from rockmq.spark.schema import ARROW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming import DataStreamReader, StreamingQueryProgress

QUEUES = 4
LIKE_KAFKA = "shardingKey,body,topic,queueId,queueOffset,storeTimestamp"
RARE = "rare"
STREAM_TIMEOUT_S = 120
FIRST_BATCHES = 5
"""Of a query that runs many small batches, before what is measured."""


@dataclass(frozen=True)
class Amounts:
    """Rows that are read by body size, rows that are written, and micro-batches that are counted."""

    read: Mapping[int, int]
    written: Mapping[int, int]
    batch: int
    """Rows of a micro-batch of a stream that catches up."""
    batches: int


FULL = Amounts({128: 4_000_000, 1024: 1_000_000}, {128: 1_000_000, 1024: 400_000}, 500_000, 40)
QUICK = Amounts({128: 400_000, 1024: 100_000}, {128: 200_000, 1024: 50_000}, 100_000, 15)


class Measured(NamedTuple):
    """What a run came to: rows in seconds, or the seconds of one micro-batch where `rows` is 1."""

    rows: int
    seconds: float


@dataclass
class Rig:
    """One Spark session and the two servers, with topics that hold the rows to read."""

    spark: "SparkSession"
    directory: Path
    amounts: Amounts
    namesrv: str
    kafka: str
    store: Path

    def __post_init__(self) -> None:
        self._names = map("bench-{}".format, itertools.count(1))
        self.topics: dict[int, str] = {}

    def fill(self) -> None:
        """A topic of each size on both servers."""
        for size, rows in self.amounts.read.items():
            topic = self.topics[size] = self.new_topic()
            self.write_rockmq(topic, size, rows)
            self.write_kafka(topic, size, rows)

    def new_topic(self) -> str:
        """One that both servers have."""
        topic = next(self._names)
        asyncio.run(_create(self.namesrv, topic))
        jvm: Any = self.spark._jvm  # type: ignore[attr-defined]
        settings = jvm.java.util.HashMap()
        settings.put("bootstrap.servers", self.kafka)
        admin = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        new = jvm.org.apache.kafka.clients.admin.NewTopic(topic, QUEUES, 1)
        admin.createTopics(jvm.java.util.Collections.singleton(new)).all().get()
        admin.close()
        return topic

    def new_directory(self) -> Path:
        return self.directory / next(self._names)

    def rows(self, size: int, count: int) -> "DataFrame":
        frame = self.spark.range(0, count, 1, QUEUES)
        return frame.selectExpr(f"rpad(string(id), {size}, 'x') body", "concat('key-', id) key", "id")

    # Writing

    def write_rockmq(self, topic: str, size: int, count: int, **options: str) -> Measured:
        rows = self.rows(size, count).selectExpr(
            "body", "key shardingKey", f"if(id % 100 = 0, '{RARE}', 'common') tags"
        )  # fmt: skip
        writer = rows.write.format("rockmq").options(nameServer=self.namesrv, topic=topic, **options)
        return timed(count, writer.mode("append").save)

    def write_kafka(self, topic: str, size: int, count: int) -> Measured:
        rows = self.rows(size, count).selectExpr("body value", "key")
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", self.kafka).option("topic", topic)
        return timed(count, writer.save)

    # Reading

    def rockmq(self, size: int, *, columns: str = LIKE_KAFKA, **options: str) -> "DataFrame":
        return self.of_rockmq(self.spark.read, size).options(columns=columns, **options).load()

    def stored(self, size: int, *, columns: str = LIKE_KAFKA) -> "DataFrame":
        reader = self.spark.read.format("rockmq").option("readFrom", f"store:{self.store}")
        return reader.options(topic=self.topics[size], columns=columns).load()

    def kafka_frame(self, size: int) -> "DataFrame":
        return self.of_kafka(self.spark.read, size).load()

    def of_rockmq(self, reader: Any, size: int) -> "DataFrameReader | DataStreamReader":
        return reader.format("rockmq").options(nameServer=self.namesrv, topic=self.topics[size])

    def of_kafka(self, reader: Any, size: int) -> "DataFrameReader | DataStreamReader":
        return reader.format("kafka").options(**{"kafka.bootstrap.servers": self.kafka, "subscribe": self.topics[size]})

    def noop(self, frame: "DataFrame", size: int) -> Measured:
        return timed(self.amounts.read[size], frame.write.format("noop").mode("overwrite").save)

    def parquet(self, frame: "DataFrame", size: int) -> Measured:
        writer = frame.write.mode("overwrite")
        path = str(self.directory / "parquet")
        return timed(self.amounts.read[size], lambda: writer.parquet(path))

    def archive(self, size: int) -> Measured:
        rows = self.amounts.read[size]

        def work() -> None:
            written = archive(self.spark, self.namesrv, self.topics[size], self.new_directory())
            assert written.rows == rows, written.rows

        return timed(rows, work)

    def pulled(self, size: int, tags: str) -> Measured:
        """Bytes of messages that brokers send for the whole topic, as "rows"."""
        options = parse({"nameServer": self.namesrv, "topic": self.topics[size], "tags": tags})
        reader = BatchReader(options, ARROW)
        started = time.perf_counter()
        size_pulled = asyncio.run(_pulled(options, [each for each in reader.partitions() if isinstance(each, Range)]))
        return Measured(size_pulled, time.perf_counter() - started)

    # Streams

    def idle(self, frame: "DataFrame") -> Measured:
        """A trigger that finds nothing new."""
        return _per_batch(self._batches(frame, self.amounts.batches * 5), lambda each: each.numInputRows == 0)

    def small_batches(self, frame: "DataFrame") -> Measured:
        """A micro-batch of a thousand rows."""
        return _per_batch(self._batches(frame, self.amounts.batches), lambda each: each.numInputRows > 0)

    def catching_up(self, frame: "DataFrame", size: int) -> Measured:
        """All that is there in large batches, after the first of them."""
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(self.new_directory()))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(STREAM_TIMEOUT_S)
        done = [each for each in query.recentProgress if each.numInputRows]
        assert sum(each.numInputRows for each in done) == self.amounts.read[size], query.exception()
        rest = done[1:]
        return Measured(sum(each.numInputRows for each in rest), sum(_seconds(each) for each in rest))

    def _batches(self, frame: "DataFrame", count: int) -> "list[StreamingQueryProgress]":
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(self.new_directory()))
        query = writer.trigger(processingTime="0 seconds").start()
        deadline = time.monotonic() + STREAM_TIMEOUT_S
        try:
            while len(found := query.recentProgress) < count + FIRST_BATCHES:
                assert query.isActive and time.monotonic() < deadline, query.exception()  # noqa: PT018
                time.sleep(0.5)  # asking costs, too
        finally:
            query.stop()
        return found[FIRST_BATCHES:]


def timed(rows: int, work: Callable[[], object]) -> Measured:
    started = time.perf_counter()
    work()
    return Measured(rows, time.perf_counter() - started)


def _seconds(progress: "StreamingQueryProgress") -> float:
    return progress.durationMs["triggerExecution"] / 1_000


def _per_batch(batches: "list[StreamingQueryProgress]", is_meant: "Callable[[StreamingQueryProgress], bool]") -> Measured:
    """The mean without its slowest tenth, as milliseconds are whole and the machine does other things too."""
    seconds = sorted(_seconds(each) for each in batches if is_meant(each))
    return Measured(1, statistics.fmean(seconds[: -(-len(seconds) * 9 // 10)]))


async def _create(namesrv: str, topic: str) -> None:
    async with cluster.Brokers(namesrv) as mq:
        await mq.create_topic(topic, QUEUES)


async def _pulled(options: Any, ranges: list[Range]) -> int:
    size = 0
    async with cluster.connected(options) as client:
        for each in ranges:
            puller = RangePuller(
                cluster.pull_from(client, each.queue, options),
                each,
                batch_size=options.pull_batch_size,
                timeout=options.timeout,
                fail_on_data_loss=True,
                filtered=options.filtered,
            )
            async for part in puller.parts():
                size += len(part.records)
    return size


# Rows

Way = Callable[[Rig], Measured]
OURS, KAFKA = "RockMQ", "Kafka"


class Goal(NamedTuple):
    """What is asked of the row's first way against its last one, and of itself."""

    ratio: float | None = None
    ratio_max: float | None = None
    """Where less is better."""
    rows_per_second: float | None = None


class Row(NamedTuple):
    title: str
    ways: Mapping[str, Way]
    goal: Goal
    unit: str = "rows/s"
    needs_store: bool = False
    """Whether RockMQ's server has to be closed before, so that its store is whole on disk."""


def _reads(size: int) -> dict[str, Row]:
    body = "128 bytes" if size == 128 else "1 KiB"
    kafka: dict[str, Way] = {KAFKA: lambda rig: rig.noop(rig.kafka_frame(size), size)}
    ours: dict[str, Way] = {
        OURS: lambda rig: rig.noop(rig.rockmq(size), size),
        f"{OURS}, all columns": lambda rig: rig.noop(rig.rockmq(size, columns=""), size),
    }
    return {
        f"read-{size}": Row(f"batch read to noop, {body}", ours | kafka, Goal(ratio=1)),
        f"parquet-{size}": Row(
            f"batch read to Parquet, {body}",
            {
                OURS: lambda rig: rig.parquet(rig.rockmq(size), size),
                KAFKA: lambda rig: rig.parquet(rig.kafka_frame(size), size),
            },
            Goal(ratio=1),
        ),
        f"sink-{size}": Row(
            f"sink, {body}",
            {
                OURS: lambda rig: rig.write_rockmq(rig.new_topic(), size, rig.amounts.written[size]),
                f"{OURS}, fenced": lambda rig: rig.write_rockmq(
                    rig.new_topic(), size, rig.amounts.written[size], ledger=str(rig.new_directory())
                ),
                KAFKA: lambda rig: rig.write_kafka(rig.new_topic(), size, rig.amounts.written[size]),
            },
            Goal(ratio=1),
        ),
    }


def _from_store(size: int) -> dict[str, Row]:
    body = "128 bytes" if size == 128 else "1 KiB"
    ways: dict[str, Way] = {
        f"{OURS}, store:": lambda rig: rig.noop(rig.stored(size), size),
        f"{OURS}, store:, all columns": lambda rig: rig.noop(rig.stored(size, columns=""), size),
        KAFKA: lambda rig: rig.noop(rig.kafka_frame(size), size),
    }
    goal = Goal(ratio=2, rows_per_second=1_500_000 if size == 128 else None)
    return {f"store-{size}": Row(f"batch read of the store to noop, {body}", ways, goal, needs_store=True)}


def _limited(rig: Rig, reader: Callable[[Any, int], Any], rows: int) -> "DataFrame":
    chosen = {"columns": LIKE_KAFKA} if reader == rig.of_rockmq else {}
    stream = reader(rig.spark.readStream, 128).options(startingOffsets="earliest", maxOffsetsPerTrigger=rows, **chosen)
    return stream.load()


_STREAMS: dict[str, Row] = {
    "idle": Row(
        "a trigger without data",
        {
            OURS: lambda rig: rig.idle(rig.of_rockmq(rig.spark.readStream, 128).load()),
            KAFKA: lambda rig: rig.idle(rig.of_kafka(rig.spark.readStream, 128).load()),
        },
        Goal(ratio_max=1.3),
        "ms",
    ),
    "small-batches": Row(
        "a micro-batch of 1,000 rows to noop",
        {
            OURS: lambda rig: rig.small_batches(_limited(rig, rig.of_rockmq, 1_000)),
            KAFKA: lambda rig: rig.small_batches(_limited(rig, rig.of_kafka, 1_000)),
        },
        Goal(ratio_max=1.3),
        "ms",
    ),
    "sustained": Row(
        "a stream that catches up to noop, 128 bytes",
        {
            OURS: lambda rig: rig.catching_up(_limited(rig, rig.of_rockmq, rig.amounts.batch), 128),
            KAFKA: lambda rig: rig.catching_up(_limited(rig, rig.of_kafka, rig.amounts.batch), 128),
        },
        Goal(ratio=1),
    ),
}
_OTHERS: dict[str, Row] = {
    "tag": Row(
        "bytes pulled with a tag that 1 % have",
        {f"{OURS}, tags={RARE}": lambda rig: rig.pulled(128, RARE), f"{OURS}, all": lambda rig: rig.pulled(128, "*")},
        Goal(ratio_max=0.1),
        "bytes",
    ),
    "archive": Row("archive, all columns, 128 bytes", {OURS: lambda rig: rig.archive(128)}, Goal(rows_per_second=800_000)),
}
ROWS = _reads(128) | _reads(1024) | _STREAMS | _OTHERS | _from_store(128) | _from_store(1024)
