"""Writing DataFrames to topics of a real server with Spark."""

import contextlib
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from rockmq.spark.write_columns import COLUMNS
from rockmq.spark.write_options import WriteOptions
from tests.spark.written import NONE, bodies, faults, stored
from tests.support.cluster import Cluster

Topic = Callable[..., str]
Write = Callable[..., None]
QUEUES = 4


@pytest.fixture
def write(server: Cluster) -> Write:
    """`write(frame, topic=…)`."""

    def save(frame: DataFrame, **options: str) -> None:
        frame.write.format("rockmq").option("nameServer", server.namesrv).options(**options).mode("append").save()

    return save


def orders(spark: SparkSession, count: int) -> DataFrame:
    """Rows of 10 keys, each in one partition of three, in order."""
    rows = spark.range(0, count, 1, 3).selectExpr("concat('p', spark_partition_id(), 'k', id % 10) key", "id")
    return rows.selectExpr("concat(key, ':', id) body", "key shardingKey")


def texts(frame: DataFrame) -> list[str]:
    return [row.body for row in frame.select("body").collect()]


def test_rows_become_messages_and_rows_again(
    spark: SparkSession, topic: Topic, server: Cluster, write: Write, read: Callable[..., DataFrame]
) -> None:
    name = topic(queues=QUEUES)
    frame = spark.sql(
        "select unhex('00FF') body, 'paid' tags, array('a', 'b') keys, 's1' shardingKey, 3 queue, "
        "map('grüße', 'dich 你好') properties union all select encode('b', 'utf-8'), null, null, null, 1, null"
    )

    write(frame, topic=name)

    first, second = read(name).orderBy("queueId", ascending=False).collect()
    assert (bytes(first.body), first.tags, first["keys"], first.shardingKey) == (b"\x00\xff", "paid", "a b", "s1")
    assert (first.queueId, first.properties["grüße"]) == (3, "dich 你好")
    assert (bytes(second.body), second.tags, second["keys"], second.shardingKey, second.queueId) == (
        b"b",
        None,
        None,
        None,
        1,
    )
    # What was read can be written as it is.
    again = topic(queues=QUEUES)
    columns = ["body", "tags", "keys", "shardingKey", "properties", "queueId queue", "msgId"]
    write(read(name).selectExpr(*columns), topic=again, dedupKey="msgId")
    for before, after in zip(stored(server, name, QUEUES), stored(server, again, QUEUES), strict=True):
        assert [(m.body, m.properties) for m in before] == [(m.body, m.properties) for m in after]


def test_each_row_is_there_once_and_keys_are_in_order(
    spark: SparkSession, topic: Topic, server: Cluster, write: Write
) -> None:
    name, frame = topic(queues=QUEUES), orders(spark, 30_000)

    write(frame, topic=name)

    assert faults(server, name, QUEUES, texts(frame)) == NONE


def test_a_job_that_is_done_again_sends_nothing_twice(
    spark: SparkSession, topic: Topic, server: Cluster, write: Write, tmp_path: Path
) -> None:
    name, frame = topic(queues=QUEUES), orders(spark, 3_000)
    job = {"topic": name, "ledger": str(tmp_path), "jobId": "load"}
    with pytest.raises(PySparkException, match="can't be sent: the body is null"):
        write(frame.selectExpr("if(body like '%:1500', null, body) body", "shardingKey"), **job)
    before = bodies(server, name, QUEUES).total()
    assert before > 0

    write(frame, **job)
    write(frame, **job)

    assert faults(server, name, QUEUES, texts(frame)) == NONE


def test_a_ledger_keeps_nothing_of_a_job_without_a_name(
    spark: SparkSession, topic: Topic, server: Cluster, write: Write, tmp_path: Path
) -> None:
    name = topic(queues=1)

    for _ in range(2):
        write(spark.sql("select 'a' body"), topic=name, ledger=str(tmp_path))

    assert bodies(server, name, 1) == {"a": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.json"]


def test_rows_that_cannot_be_sent_are_a_table(
    spark: SparkSession, topic: Topic, server: Cluster, write: Write, tmp_path: Path
) -> None:
    name = topic(queues=1)
    frame = spark.sql(f"select '{name}' topic, 'a' body union all select null, 'b' union all select '{name}', ''")

    write(frame, badRows=str(tmp_path / "bad"))

    assert bodies(server, name, 1) == {"a": 1}
    bad = spark.read.parquet(str(tmp_path / "bad")).orderBy("body")
    assert [(row.body, row.reason) for row in bad.collect()] == [("", "the body is empty"), ("b", "it has no topic")]


def test_rows_in_transactions_are_seen_when_all_are_stored(
    spark: SparkSession, topic: Topic, server: Cluster, write: Write, tmp_path: Path
) -> None:
    name, frame = topic(queues=QUEUES), orders(spark, 60)
    job = {"topic": name, "ledger": str(tmp_path), "delivery": "transactional", "jobId": "load"}
    with pytest.raises(PySparkException, match="the body is null"):
        write(frame.selectExpr("if(body like '%:50', null, body) body", "shardingKey"), **job)
    assert bodies(server, name, QUEUES).total() == 0

    write(frame, **job)

    assert bodies(server, name, QUEUES) == dict.fromkeys(texts(frame), 1)


def test_the_page_tells_what_is_so(spark: SparkSession, server: Cluster, tmp_path: Path) -> None:
    """docs/spark-sink.md: its program prints what it says, and it names every option and column."""
    page = (Path(__file__).parents[2] / "docs" / "spark-sink.md").read_text(encoding="utf-8")
    ((code, printed),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    code = code.replace("127.0.0.1:9876", server.namesrv).replace("/mnt/shared", str(tmp_path))
    code = code.replace('"orders"', '"orders-of-the-sink"')  # other pages write of that topic too
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "<page>", "exec"), {"__name__": "__main__"})

    assert out.getvalue() == printed
    names = {field.encode_name for field in msgspec.structs.fields(WriteOptions)} | COLUMNS.keys()
    assert {name for name in names if f"`{name}`" not in page} == set()


@pytest.mark.parametrize(
    ("frame", "options", "mode", "words"),
    [
        ("select 1 body", {}, "append", "column 'body' is int: expected binary or string"),
        ("select 'a' value", {}, "append", "a write has no column 'value'"),
        ("select 'a' body", {"topik": "x"}, "append", "unknown option 'topik'; did you mean 'topic'?"),
        ("select 'a' body", {}, "overwrite", "a topic can only be appended to"),
    ],
)
def test_what_cannot_be_written_fails_on_planning(
    spark: SparkSession, server: Cluster, frame: str, options: dict[str, Any], mode: str, words: str
) -> None:
    writer = spark.sql(frame).write.format("rockmq").option("nameServer", server.namesrv).option("topic", "orders")

    with pytest.raises(PySparkException) as raised:
        writer.options(**options).mode(mode).save()

    assert words in str(raised.value)
