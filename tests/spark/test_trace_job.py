"""Message trace as tables: what groups and topics did, from records that are known, and from a real client's."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rockmq.base.errors import ConfigError
from rockmq.cli.main import app
from rockmq.client import Client, Message
from rockmq.client.trace import record
from rockmq.pipeline.trace import NEVER_ENDED_MS, consumptions_of, records, sends, trace
from tests.spark.test_batch_read import Topic
from tests.support.cluster import Cluster

MINUTE = 60_000
START = 1_800_000_000_000


def pub(id: str, at: int, cost: int = 5, topic: str = "orders", kind: int = 0, ok: bool = True) -> str:
    return record("Pub", START + at, "r", "shop", topic, id, None, None, "host", 9, cost, kind, "offset id", ok)


def taken(id: str, at: int, cost: int, group: str = "billing", retries: int = 0, code: int = 0, request: str = "") -> str:
    request = request or f"{id}-{retries}"
    before = record("SubBefore", START + at, "r", group, request, id, retries, None)
    return before + record("SubAfter", request, id, cost, code == 0, None, code, START + at + cost, group)


@pytest.fixture
def bodies(spark: SparkSession) -> Callable[..., Any]:
    return lambda *texts: spark.createDataFrame([(text.encode(),) for text in texts], "body binary")


def table(directory: Path, name: str, *order: str) -> list[dict[str, Any]]:
    rows = [
        {column: value.replace(tzinfo=UTC) if isinstance(value, datetime) else value for column, value in row.items()}
        for row in pq.read_table(directory / name).to_pylist()
    ]
    return sorted(rows, key=lambda row: [str(row[column]) for column in order])


def test_tables(spark: SparkSession, bodies: Callable[..., Any], tmp_path: Path) -> None:
    texts = []
    for number in range(100):  # in the first minute, each consumed by two groups, one of which is slow
        texts += [pub(f"m{number}", number), taken(f"m{number}", 105 + number, number + 1)]
        texts += [taken(f"m{number}", 1_000, 5_000, "reports", request=f"r{number}")]
    texts.append(pub("a,b,c", MINUTE, 30, "bills"))  # a batch of Java's
    texts.append(pub("late", MINUTE, kind=3) + taken("late", 5 * MINUTE, 1))  # delayed by wish
    texts.append(pub("bad", MINUTE, ok=False))
    for number in range(30):  # a storm of three minutes, among them one of another one's calm
        for at, retries in enumerate((1, 2, 3)):
            texts.append(taken(f"s{number}", (10 + at) * MINUTE + number, 3, retries=retries, code=2))
    texts.append(taken("s0", 20 * MINUTE, 3, retries=4))
    texts.append(record("SubBefore", START + 21 * MINUTE, "r", "billing", "q", "open", 0, None))
    texts.append(record("SubBefore", START + 21 * MINUTE + NEVER_ENDED_MS + 1, "r", "billing", "q2", "running", 0, None))
    texts += ["no record", "\x02" + texts[0]]

    done = trace(spark, bodies(*texts, *texts[:50]), tmp_path)  # some were stored twice

    assert (done.sends, done.consumptions, done.bad_rows) == (105, 200 + 1 + 91 + 2, 1)
    assert done.slow == ["reports"]
    (first,) = (row for row in table(tmp_path, "latency") if row["what"] == "send" and row["minute_ms"] == START)
    assert (first["topic"], first["group"], first["count"], first["p50_ms"], first["failed"]) == (
        "orders",
        "shop",
        100,
        5,
        0,
    )
    assert first["minute"].timestamp() * 1_000 == START
    (waits,) = (row for row in table(tmp_path, "latency") if row["what"] == "wait" and row["group"] == "billing")
    assert (waits["count"], waits["p50_ms"], waits["max_ms"]) == (100, 100, 100)
    (handled,) = (
        row for row in table(tmp_path, "latency")
        if (row["what"], row["group"], row["minute_ms"]) == ("handle", "billing", START)
    )  # fmt: skip
    assert (handled["p50_ms"], handled["p90_ms"], handled["p99_ms"], handled["max_ms"]) == (50, 90, 99, 100)
    bills = [row for row in table(tmp_path, "latency") if row["topic"] == "bills"]
    assert [(row["count"], row["p99_ms"]) for row in bills] == [(3, 30)]
    consumers = table(tmp_path, "consumers", "group", "topic")
    assert [(row["group"], row["topic"], row["consumptions"], row["failed"], row["slow"]) for row in consumers] == [
        ("billing", "(unknown)", 93, 91, 0),
        ("billing", "orders", 101, 0, 0),
        ("reports", "orders", 100, 0, 100),
    ]
    failures = table(tmp_path, "failures", "cause")
    assert [(row["cause"], row["count"], row["example"]) for row in failures] == [
        ("exception", 90, "s0"),
        ("never ended", 1, "open"),
        ("stored, but not as it should be", 1, "bad"),
    ]
    (storm,) = table(tmp_path, "retry_storms")
    assert (storm["group"], storm["minutes"], storm["retries"], storm["most_retries"]) == ("billing", 3, 90, 3)
    assert storm["from"].timestamp() * 1_000 == START + 10 * MINUTE
    assert storm["to"].timestamp() * 1_000 == START + 13 * MINUTE
    assert [row["text"] for row in table(tmp_path, "bad_rows")] == ["no record"]
    assert "reports" in done.report.read_text()

    again = trace(spark, bodies(*texts), tmp_path)
    assert (again.sends, again.consumptions, again.failures) == (done.sends, done.consumptions, done.failures)
    assert table(tmp_path, "consumers", "group", "topic") == consumers


OLD = record("SubBefore", START, "r", "billing", "q", "a", 0, None) + record("SubAfter", "q", "a", 2_000, True, None, 0)
"""Of a client that tells group and time only at the beginning."""


def test_an_end_without_its_beginning(spark: SparkSession, bodies: Callable[..., Any], tmp_path: Path) -> None:
    done = trace(spark, bodies(pub("a", 0), OLD.partition("\x02")[2]), tmp_path)

    assert (done.consumptions, done.slow) == (1, ["(unknown)"])
    assert [row["what"] for row in table(tmp_path, "latency")] == ["send"]


def test_consumptions_of_a_client_that_tells_its_group_at_the_beginning(
    spark: SparkSession, bodies: Callable[..., Any]
) -> None:
    found = records(bodies(OLD, OLD, taken("b", 7, 5), taken("c", 0, 5, "another"), taken("d", 0, 5, code=2)))

    rows = consumptions_of(found, "billing").selectExpr("id", "unix_millis(time)").orderBy("id").collect()

    assert [tuple(row) for row in rows] == [("a", START + 2_000), ("b", START + 12)]


def test_what_counts_as_a_send(spark: SparkSession, bodies: Callable[..., Any]) -> None:
    """No half messages but those that are committed, and none that was recalled."""
    ends = [
        record("EndTransaction", START + 900, "r", "shop", "orders", id, None, None, "host", 2, id, state, False)
        for id, state in (("committed", "COMMIT_MESSAGE"), ("rolled back", "ROLLBACK_MESSAGE"))
    ]
    halves = [pub(id, 0, kind=1) for id in ("committed", "rolled back", "open")]
    recalls = [record("Recall", START, "r", "shop", "orders", id, id == "recalled") for id in ("recalled", "due")]
    texts = [pub("plain", 0), *halves, *ends, pub("due", 0, kind=3), pub("recalled", 0, kind=3), *recalls]

    rows = sends(records(bodies(*texts)), "orders").selectExpr("id", "unix_millis(time)", "delayed").orderBy("id").collect()

    assert [tuple(row) for row in rows] == [
        ("committed", START + 900, False),
        ("due", START + 5, True),
        ("plain", START + 5, False),
    ]


def test_a_real_clients_trace_by_the_command(
    spark: SparkSession, server: Cluster, topic: Topic, unique: Callable[[str], str], tmp_path: Path
) -> None:
    name, traces, group = topic(queues=1), topic(), unique("traced")

    async def work() -> None:
        async with Client(server.namesrv, trace=traces) as mq:
            async with mq.producer("pg") as producer:
                await producer.send_batch([Message(name, b"%d" % number) for number in range(12)])
            async with mq.consumer(group, [name], from_where="first") as consumer:
                for number in range(12):
                    message = await anext(consumer)
                    await (message.nack() if number == 3 else message.ack())

    asyncio.run(work())
    words = ["pipeline", "trace", str(tmp_path / "out"), "--trace-topic", traces, "--namesrv", server.namesrv]
    done = CliRunner().invoke(app, [*words, "--ledger", str(tmp_path / "runs"), "--json"])

    assert done.exit_code == 0, done.output
    row = json.loads(done.stdout)
    assert row["counts"] == {"records": 36, "sends": 12, "consumptions": 12, "failures": 1, "storms": 0}
    (consumer,) = table(tmp_path / "out", "consumers")
    assert (consumer["group"], consumer["topic"], consumer["consumptions"], consumer["failed"]) == (group, name, 12, 1)
    assert consumer["wait_p50_ms"] is not None
    (failure,) = table(tmp_path / "out", "failures")
    assert failure["cause"] == "refused"


def test_a_limit_that_is_none_is_refused(spark: SparkSession, bodies: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="slow_ms is 0, expected at least 1"):
        trace(spark, bodies(), tmp_path, slow_ms=0)
