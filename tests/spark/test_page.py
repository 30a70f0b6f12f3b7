"""docs/spark-source.md tells what is so: its programs run as they stand, but for addresses, and it names every option."""

import contextlib
import io
import re
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession

from rockmq.spark.kafka_names import hint
from rockmq.spark.options import ReadOptions
from rockmq.spark.schema import COLUMNS
from rockmq.spark.stream_options import StreamOptions
from rockmq.spark.write_options import WriteOptions
from tests.spark.test_store import COUNT, closed
from tests.support.cluster import Cluster

__all__ = ["closed"]

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "spark-source.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PRINTED = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)

KAFKAS = """assign subscribe subscribePattern topic includeHeaders groupIdPrefix failOnDataLoss
    startingOffsets startingTimestamp startingOffsetsByTimestamp startingOffsetsByTimestampStrategy
    endingOffsets endingTimestamp endingOffsetsByTimestamp
    minPartitions maxRecordsPerPartition maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay
    kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs
    kafka.bootstrap.servers kafka.group.id kafka.isolation.level kafka.max.poll.records"""
"""Options of Spark's Kafka connector (its guide, and KafkaSourceProvider), and some of its clients'."""


def run(code: str, shown: str, used: str, spark: SparkSession) -> tuple[str, dict[str, object]]:
    """What a program prints, and its names."""
    assert shown in code
    names: dict[str, object] = {"__name__": "__main__", "spark": spark}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code.replace(shown, used), "<page>", "exec"), names)
    return out.getvalue(), names


def test_the_program_prints_what_the_page_says(spark: SparkSession, server: Cluster) -> None:
    program = BLOCKS[0].replace('"orders"', '"orders-of-the-source"')  # other pages write of that topic too
    printed, _ = run(program, "127.0.0.1:9876", server.namesrv, spark)

    assert printed == PRINTED[0]


def test_the_program_for_a_store_reads_it(spark: SparkSession, closed: Path) -> None:
    _, names = run(BLOCKS[1], "/var/rockmq/store", str(closed), spark)

    assert names["store"].count() == COUNT + 7  # type: ignore[attr-defined]


def test_there_is_no_other_block() -> None:
    assert (len(BLOCKS), len(PRINTED)) == (2, 1)


def test_every_option_and_column_is_on_the_page() -> None:
    options = PAGE[PAGE.index("## Options") : PAGE.index("## Filters of the query")]
    declared = {field.encode_name for field in msgspec.structs.fields(ReadOptions)}
    listed = {name for row in re.findall(r"^\| (`.*?) \|", options, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}

    assert listed == declared
    assert all(f"`{column}`" in PAGE for column in COLUMNS)


def test_every_option_of_kafkas_connector_is_on_the_pages_and_here_or_explained() -> None:
    pages = "".join((DOCS / f"spark-{name}.md").read_text(encoding="utf-8") for name in ("source", "streaming", "sink"))
    ours = {field.encode_name for kind in (StreamOptions, WriteOptions) for field in msgspec.structs.fields(kind)}

    assert [name for name in KAFKAS.split() if f"`{name}`" not in pages] == []
    assert [name for name in KAFKAS.split() if name not in ours and hint(name, ours) is None] == []
