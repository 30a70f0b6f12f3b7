"""A process of its own with three jobs in one Spark, to be killed and followed by another: name server, directory, number.

It has Spark ready and waits for a file `go-` with its number: the processor starts a JVM while the one before still works.
Then a stream of files is written to topic `orders`, which is archived and whose archive is put together, and topic `old` is
drained to topic `new`, all of it until a file `stop` is in the directory, and then to the end. A job that ends with an error
is begun again; each beginning is a line in the file `begun-` with the job's name.
"""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from rockmq.base.errors import RockMQError
from rockmq.pipeline.archive import archive
from rockmq.pipeline.compact import compact
from rockmq.pipeline.drain import drain
from rockmq.spark import session
from tests.support.jars import QUICK_START

GROUP = "readers"
ARCHIVER = "archiver"
STEP = 600
"""Rows of a step of the drain."""
ROWS_PER_SECOND = 400
"""Of each task of the stream. Tasks that take their time cost little, and are hit by most kills in their midst."""
RECORDS_PER_FILE = 200
TIMEOUT = "120"
PAUSE_S = 1.0
"""Before a job that has failed is begun again."""
LOOK_S = 0.05


def main(namesrv: str, directory: str, number: str) -> None:
    root = Path(directory)
    conf = {
        "spark.master": "local[4,4]",  # so that each job has tasks at work
        "spark.local.dir": str(root / "scratch"),  # which nobody tidies up who is killed
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",  # compiling takes longer than it saves for so few rows
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": " ".join(QUICK_START),
    }
    spark = session("jobs to be killed", conf)
    spark.range(1).mapInArrow(lambda batches: batches, "id long").collect()
    while not (root / f"go-{number}").exists():
        time.sleep(LOOK_S)
    stopping, streamed = threading.Event(), threading.Event()

    def work_off() -> None:
        spark.createDataFrame([], "nothing int")  # which makes the session this thread's
        drain(
            spark,
            namesrv,
            "old",
            "new",
            GROUP,
            root / "drain",
            until=stopping,
            rows_per_step=STEP,
            options={"timeout": TIMEOUT},
        )

    def keep() -> None:
        is_last = False
        while not is_last:
            is_last = streamed.is_set()
            archive(spark, namesrv, "orders", root / "archive", records_per_file=RECORDS_PER_FILE, group=ARCHIVER)
            compact(spark, root / "archive", ["orders"], records_per_file=4 * RECORDS_PER_FILE, keep_seconds=0)

    jobs = {"drain": work_off, "archive": keep}
    others = [threading.Thread(target=to_its_end, args=(root / f"begun-{name}", job)) for name, job in jobs.items()]
    for each in others:
        each.start()
    to_its_end(root / "begun-stream", lambda: stream(spark, namesrv, root, stopping))
    streamed.set()
    for each in others:
        each.join()
    spark.stop()


def stream(spark: SparkSession, namesrv: str, root: Path, stopping: threading.Event) -> None:
    rows = spark.readStream.schema("body string, shardingKey string, keys string").option("maxFilesPerTrigger", 2)
    writer = rows.parquet(str(root / "in")).writeStream.format("rockmq")
    writer = writer.options(timeout=TIMEOUT, rowsPerSecond=ROWS_PER_SECOND)
    writer = writer.options(nameServer=namesrv, topic="orders", checkpointLocation=str(root / "checkpoint"))
    query = writer.start()
    try:
        while not (root / "stop").exists():
            query.awaitTermination(0.2)
        stopping.set()
        query.processAllAvailable()
    finally:
        query.stop()


def to_its_end(begun: Path, job: Callable[[], None]) -> None:
    while True:
        with begun.open("a") as lines:
            lines.write(f"{time.strftime('%X')}\n")
        try:
            job()
        except (PySparkException, Py4JError, RockMQError) as error:
            print(f"{time.strftime('%X')} {type(error).__name__}: {str(error)[:500]}", flush=True)
            time.sleep(PAUSE_S)
        else:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
