"""The demo's end at Spark: the topic to Parquet files, and what these say, read back."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rockmq.cli.demo.orders import TOPIC
from rockmq.cli.demo.reconcile import Queue, Row
from rockmq.pipeline.archive import Archive, archive
from rockmq.spark import session as start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Archived:
    """Rows as Spark reads them from the files, and what it took to write them."""

    rows: list[Row]
    files: int
    size: int
    directory: Path
    seconds: float


@contextmanager
def session(log: Path) -> Iterator["SparkSession"]:
    """A local Spark whose chatter goes to a file instead of the terminal."""
    with _stderr_to(log):
        spark = start_session("rockmq demo", {"spark.log.level": "WARN"})
        try:
            yield spark
        finally:
            spark.stop()


def to_parquet(spark: "SparkSession", namesrv: str, directory: Path) -> Archived:
    """Archive the topic, and read the files back."""
    started = time.monotonic()
    # Whatever the environment says of other servers: the demo's own speaks plainly.
    written: Archive = archive(spark, namesrv, TOPIC, directory, options={"tls": "false"})
    seconds = time.monotonic() - started
    return Archived(_read(spark, written.root), len(written.files), written.bytes, written.root, seconds)


def _read(spark: "SparkSession", root: Path) -> list[Row]:
    frame = spark.read.parquet(str(root)).selectExpr(
        "broker", "queueId", "queueOffset", "cast(get_json_object(cast(body as string), '$.order') as int) as `order`"
    )
    columns = frame.toArrow().to_pydict()
    rows = zip(columns["broker"], columns["queueId"], columns["queueOffset"], columns["order"], strict=True)
    return [Row(Queue(broker, queue_id), offset, order) for broker, queue_id, offset, order in rows]


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    # The descriptor itself: the JVM inherits it, `sys.stderr` it doesn't know.
    before = os.dup(2)
    try:
        with log.open("a") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
