"""What replay, redrive and drain have in common: options, the directory, ids, properties, queues and order."""

import json
import multiprocessing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from rockmq.base.errors import ConfigError, NotSupported
from rockmq.client.queues import java_hash
from rockmq.pipeline.moving import IN_ORDER, Failed, Given, Work, carried, explained, message_id, placed, queue_of, writable
from rockmq.pipeline.redrive import _faults_of
from rockmq.pipeline.replay import Plan
from rockmq.pipeline.runs import Progress
from rockmq.spark import cluster
from tests.spark.test_cluster import make_static
from tests.unit.client.conftest import broker, names
from tests.unit.client.fakes import FakeBroker, FakeNames

__all__ = ["broker", "names"]


def test_options_are_shared_out() -> None:
    given = Given("a:1", {"accessKey": "k", "secretKey": "s", "failOnDataLoss": "false", "maxMessageSize": "2000"})

    both = {"accessKey": "k", "secretKey": "s", "nameServer": "a:1"}
    assert given.read == {**both, "failOnDataLoss": "false"}
    assert given.write == {**both, "maxMessageSize": "2000"}
    assert (given.connection.name_server, given.connection.access_key) == ("a:1", "k")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "option 'startingOffsets' can't be given: the job sets it"),
        ({"minPartitions": "4"}, "option 'minPartitions' can't be given"),
        ({"jobid": "x"}, "option 'jobid' can't be given"),
        ({"timeOut": "soon"}, "option 'timeout' is 'soon'"),
        ({"maxMessageSize": "1"}, "option 'maxMessageSize' is '1'"),
        ({"topik": "x"}, "unknown option 'topik'"),
        ({"accessKey": "k"}, "options 'accessKey' and 'secretKey' go together"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Given("a:1", options)


def locked(directory: Path) -> bool:
    try:
        with Work(directory):
            return False
    except ConfigError as error:
        return "another process works in" in str(error)


def test_one_process_works_in_a_directory(tmp_path: Path) -> None:
    with Work(tmp_path), multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(locked, (tmp_path,))
    assert not locked(tmp_path)


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"name": "package"}')

    with Work(tmp_path) as work, pytest.raises(ConfigError, match=r"plan\.json isn't what this job keeps there"):
        work.load("plan.json", Plan)


async def test_what_cannot_be_written_to_is_told_before_a_job_begins(names: FakeNames, broker: FakeBroker) -> None:
    names.add("closed", broker, perm=4)
    names.add("static", broker)
    make_static(names, "static", "a")
    async with cluster.connected(Given(names.address, {}).connection) as client:
        assert len(await writable(client, "T")) == 4
        with pytest.raises(ConfigError, match="topic closed has no queue that can be written to"):
            await writable(client, "closed")
        with pytest.raises(NotSupported, match="static topics can't be written to: static"):
            await writable(client, "static")
        # A redrive leaves their messages where they are, and sends the others.
        faults = await _faults_of(client, ["T", "closed", "static", "gone"])
    assert faults == {
        "closed": "topic closed has no queue that can be written to",
        "static": "static topics can't be written to: static",
        "gone": "there is no topic gone any more",
    }


@pytest.fixture(scope="module")
def numbers() -> list[str]:
    return ["", "a", "order-17", "grüße", "你好", "polygenelubricants", "x" * 1_000, "\U0001f600"]


@pytest.mark.parametrize("spark_is", ["new", "4.0"])
def test_the_queue_is_the_one_that_java_producers_choose(
    spark: SparkSession, numbers: list[str], spark_is: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if spark_is == "4.0":
        monkeypatch.delattr("pyspark.sql.pandas.functions.arrow_udf")
    frame = spark.createDataFrame([(each,) for each in [*numbers, None]], "key string")

    for queues in (1, 3, 16):
        found = [row.queue for row in frame.select(queue_of(f.col("key"), queues).alias("queue")).collect()]
        assert found == [*(abs(java_hash(each)) % queues for each in numbers), None]


def test_a_message_keeps_what_it_is_and_not_what_became_of_it(spark: SparkSession) -> None:
    life = {
        "UNIQ_KEY": "A1", "CLUSTER": "c", "DELAY": "3", "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "B2", "REAL_QID": "0",
        "TIMER_DELIVER_MS": "5", "TRAN_MSG": "true", "__transactionId__": "t", "1ST_POP_TIME": "1", "WAIT": "false",
        "__RMQ.TRANSIENT.x": "1", "MIN_OFFSET": "0", "POP_CK": "x", "DLQ_ORIGIN_TOPIC": "orders",
    }  # fmt: skip
    own = {"TAGS": "paid", "KEYS": "a b", "__SHARDINGKEY": "s", "region": "eu", "traceparent": "00-1"}
    rows = [("orders", "broker-a", 1, 5, "A1", {**life, **own}), ("orders", "broker-a", 1, 6, "C3", {})]
    frame = spark.createDataFrame(
        rows, "topic string, broker string, queueId int, queueOffset long, msgId string, properties map<string,string>"
    )

    first, second = frame.select(
        message_id().alias("id"), carried({"REPLAY": "r"}, without=("KEYS",)).alias("kept")
    ).collect()

    del own["KEYS"]
    assert (first.id, second.id) == ("orders/broker-a/1/5", "orders/broker-a/1/6")
    assert first.kept == {**own, "ORIGIN_UNIQ_KEY": "A1", "REPLAY": "r"}
    assert second.kept == {"ORIGIN_UNIQ_KEY": "C3", "REPLAY": "r"}
    again = frame.withColumn(
        "properties", f.create_map(f.lit("ORIGIN_UNIQ_KEY"), f.lit("first"), f.lit("REPLAY"), f.lit("p"))
    )
    assert again.select(carried().alias("kept")).first().kept == {"ORIGIN_UNIQ_KEY": "first", "REPLAY": "p"}  # type: ignore[union-attr]


def test_a_clock_that_was_set_back_breaks_no_order(spark: SparkSession) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    stored = {0: [0, 10, 4, 5, 20], 1: [1, 11, 12]}  # seconds after noon, by queue
    rows = [
        ("orders", "broker-a", queue, offset, noon + timedelta(seconds=second))
        for queue, seconds in stored.items()
        for offset, second in enumerate(seconds)
    ]
    frame = spark.createDataFrame(
        rows[::-1], "topic string, broker string, queueId int, queueOffset long, storeTimestamp timestamp"
    )

    found = [(row.queueId, row.queueOffset) for row in placed(frame).orderBy(*IN_ORDER).collect()]

    assert found == [(0, 0), (1, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (0, 4)]


def test_errors_of_spark_are_short(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match=r"^filter: .*UNRESOLVED_COLUMN"), explained("filter"):
        spark.range(1).where("regin = 'eu'").collect()
    reader = spark.read.format("rockmq").option("nameServer", "a:1").option("topik", "orders")
    with pytest.raises(Failed, match=r"^unknown option 'topik'; did you mean 'topic'"), explained():
        reader.load()


def test_a_directory_that_is_not_shared_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write of which nothing is noted here."""
    monkeypatch.setattr("pyspark.sql.readwriter.DataFrameWriter.save", lambda *_: None)
    with Work(tmp_path) as work:
        with pytest.raises(ConfigError, match="isn't the same directory here and where Spark's driver and workers run"):
            work.send("1", spark.range(1), {}, Progress())
        assert work.send("2", spark.range(0), {}, Progress()).rows == 0
    assert json.loads((tmp_path / "done" / "2").read_text())["rows"] == 0


def test_nothing_is_sent_where_spark_sees_another_directory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = spark.createDataFrame([('{"id":"another"}',)], "value string")
    monkeypatch.setattr("pyspark.sql.readwriter.DataFrameReader.text", lambda *_: seen)
    monkeypatch.setattr("pyspark.sql.readwriter.DataFrameWriter.save", lambda *_: pytest.fail("something was sent"))

    with Work(tmp_path) as work, pytest.raises(ConfigError, match="isn't the same directory here and where Spark's"):
        work.send("1", spark.range(1), {}, Progress())
