"""Copies a topic to another by Spark's source and sink, as the driver of a cluster and as a client of Spark Connect.

    python -m tests.spark.cluster_program driver MASTER CONNECT_PORT NAMESRV FROM TO LEDGER     and then serves Connect
    python -m tests.spark.cluster_program client CONNECT_PORT NAMESRV FROM TO LEDGER

Prints `copied EXECUTORS`: how many executors read rows.
"""

import os
import signal
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from rockmq.spark import session


def copy(spark: SparkSession, namesrv: str, source: str, target: str, ledger: str) -> int:
    """How many processes had a part of the rows: each executor has a daemon whose children are its Python workers."""
    frame = spark.read.format("rockmq").options(nameServer=namesrv, topic=source).load().select("body", "shardingKey")
    frame.write.format("rockmq").options(nameServer=namesrv, topic=target, ledger=ledger).mode("append").save()

    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"executor": [os.getppid()], "rows": [rows]})

    found = frame.mapInArrow(where, "executor long, rows long").collect()
    return len({row.executor for row in found if row.rows})


def drive(master: str, port: str, *words: str) -> None:
    spark = session(
        "cluster",
        {
            "spark.master": master,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            # Both executors are there before the first task is given away.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.cores.max": "2",
            "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "spark.connect.grpc.binding.port": port,
            "spark.log.level": "ERROR",
        },
    )
    print("copied", copy(spark, *words), flush=True)
    signal.pause()


def ask(port: str, *words: str) -> None:
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    print("copied", copy(spark, *words), flush=True)
    spark.stop()


if __name__ == "__main__":
    {"driver": drive, "client": ask}[sys.argv[1]](*sys.argv[2:])
