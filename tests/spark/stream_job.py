"""A streaming query that may be killed at any time, and what its output must be.

Each batch is written to a directory of its own, named by the batch's id and overwritten when the batch is run again. As a
program it runs until it is killed, and prints the process id of its JVM:

    python -m tests.spark.stream_job NAMESRV TOPIC DIRECTORY MAX_OFFSETS_PER_TRIGGER
"""

import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.jars import QUICK_START


def start(spark: SparkSession, namesrv: str, topic: str, directory: Path, batch_size: int, **trigger: Any) -> StreamingQuery:
    def save(frame: DataFrame, batch: int) -> None:
        frame.select("queueId", "queueOffset", "body").write.mode("overwrite").parquet(
            str(directory / "out" / f"{batch:08}")
        )

    frame = (
        spark.readStream.format("rockmq")
        .options(nameServer=namesrv, topic=topic, startingOffsets="earliest", maxOffsetsPerTrigger=batch_size)
        .load()
    )
    writer = frame.writeStream.foreachBatch(save).option("checkpointLocation", str(directory / "checkpoint"))
    return writer.trigger(**trigger or {"processingTime": "0 seconds"}).start()


def batches(directory: Path) -> list[Path]:
    """The directories of batches, in order."""
    return sorted(directory.joinpath("out").glob("*"))


def check(directory: Path, expected: dict[int, list[bytes]]) -> None:
    """Every message of every queue is there once, in order over batches and within them. Knows nothing of the source."""
    found: dict[int, list[tuple[int, bytes]]] = {queue: [] for queue in expected}
    written = batches(directory)
    assert [int(each.name) for each in written] == list(range(len(written))), "a batch is missing"
    for batch in written:
        for file in sorted(batch.glob("part-*.parquet")):
            table = pq.read_table(file)
            for queue, offset, body in zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True):
                found[queue].append((offset, body))
    for queue, bodies in expected.items():
        assert found[queue] == list(enumerate(bodies)), f"queue {queue}: {_difference(found[queue], bodies)}"


def _difference(found: list[tuple[int, bytes]], bodies: list[bytes]) -> str:
    offsets = [offset for offset, _ in found]
    lost = sorted(set(range(len(bodies))) - set(offsets))
    twice = len(offsets) - len(set(offsets))
    return f"{len(lost)} lost {lost[:5]}, {twice} twice, in order: {offsets == sorted(offsets)}, {len(found)} in all"


def main() -> None:
    from rockmq.spark import session

    namesrv, topic, directory, batch_size = sys.argv[1:]
    conf = {"spark.master": "local[2]", "spark.log.level": "OFF", "spark.driver.extraJavaOptions": " ".join(QUICK_START)}
    spark = session("killed", conf)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    print(jvm.java.lang.ProcessHandle.current().pid(), flush=True)
    start(spark, namesrv, topic, Path(directory), int(batch_size)).awaitTermination()


if __name__ == "__main__":
    main()
