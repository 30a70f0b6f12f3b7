"""Streams into topics of a real server with Spark, and batches that come again."""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.spark.written import NONE, bodies, faults
from tests.support.cluster import Cluster

Topic = Callable[..., str]
QUEUES = 4
KEYS = 5


def write_files(directory: Path, batches: int, rows: int) -> list[str]:
    """Two files for each batch, with keys of their own: all bodies, in order."""
    directory.mkdir()
    numbers, written = dict.fromkeys((f"f{file}k{key}" for file in range(2) for key in range(KEYS)), 0), []
    for batch in range(batches):
        for file in range(2):
            keys = [f"f{file}k{row % KEYS}" for row in range(rows)]
            texts = []
            for key in keys:
                texts.append(f"{key}:{numbers[key]}")
                numbers[key] += 1
            path = directory / f"{batch:04}-{file}.parquet"
            pq.write_table(pa.table({"body": texts, "shardingKey": keys}), path)
            os.utime(path, (1_700_000_000 + 10 * batch + file,) * 2)  # by which Spark orders them
            written += texts
    return written


def run(spark: SparkSession, server: Cluster, source: Path, checkpoint: Path, **options: str) -> None:
    """Write what is there, two files a batch."""
    rows = spark.readStream.schema("body string, shardingKey string").option("maxFilesPerTrigger", 2).parquet(str(source))
    writer = rows.writeStream.format("rockmq").option("nameServer", server.namesrv).options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def test_each_row_of_a_stream_is_there_once(spark: SparkSession, topic: Topic, server: Cluster, tmp_path: Path) -> None:
    """Also when Spark, or both, have lost that the last batch is done, and when the query is started again."""
    name, checkpoint = topic(queues=QUEUES), tmp_path / "checkpoint"
    rows = write_files(tmp_path / "in", 2, 2_000)

    run(spark, server, tmp_path / "in", checkpoint, topic=name)
    assert faults(server, name, QUEUES, rows) == NONE

    (query,) = [path for path in (checkpoint / "rockmq-ledger").iterdir() if path.is_dir()]
    assert [path.name for path in query.iterdir()] == ["1"]
    lost = [checkpoint / "commits" / "1", checkpoint / "commits" / ".1.crc"]
    for more in ([], [query / "1" / "done.json"]):
        for path in (*lost, *more):
            path.unlink(missing_ok=True)
        run(spark, server, tmp_path / "in", checkpoint, topic=name)
        assert faults(server, name, QUEUES, rows) == NONE


def test_a_stream_in_transactions(spark: SparkSession, topic: Topic, server: Cluster, tmp_path: Path) -> None:
    name, checkpoint = topic(queues=QUEUES), tmp_path / "checkpoint"
    rows = write_files(tmp_path / "in", 1, 40)

    run(spark, server, tmp_path / "in", checkpoint, topic=name, delivery="transactional")

    assert bodies(server, name, QUEUES) == dict.fromkeys(rows, 1)


def test_a_stream_cannot_replace_a_topic(spark: SparkSession, server: Cluster, tmp_path: Path) -> None:
    counts = spark.readStream.format("rate").load().groupBy("value").count().selectExpr("string(count) body")
    writer = counts.writeStream.format("rockmq").option("nameServer", server.namesrv).option("topic", "replaced")
    query = writer.outputMode("complete").option("checkpointLocation", str(tmp_path)).start()

    with pytest.raises(PySparkException, match="a topic can only be appended to"):
        query.awaitTermination(60)
