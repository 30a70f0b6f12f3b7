"""A topic's profile: what it counts, and what it advises."""

import json
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rockmq.base.errors import ConfigError
from rockmq.cli.main import app
from rockmq.client import Message
from rockmq.client.queues import java_hash
from rockmq.pipeline.archive import archive
from rockmq.pipeline.profile import COLUMNS, HEADROOM, layouts, profile
from tests.spark.test_batch_read import Topic
from tests.support.cluster import Cluster

START_US = 1_800_000_000_000_000
MINUTE_US = 60_000_000
Row = tuple[int, int, str | None, str | None, int]  # minute, queue, tag, key, size


@pytest.fixture
def stored(spark: SparkSession) -> Callable[[list[Row]], Any]:
    def give(rows: list[Row]) -> Any:
        minutes, queues, tags, keys, sizes = (list(column) for column in zip(*rows, strict=True))
        return spark.createDataFrame(
            pa.table(
                {
                    "broker": ["b"] * len(rows),
                    "queueId": pa.array(queues, pa.int32()),
                    "tags": pa.array(tags, pa.string()),
                    "keys": pa.array([None if key is None else f"{key} more" for key in keys], pa.string()),
                    "shardingKey": pa.array(keys, pa.string()),
                    "body": pa.array([b"x" * size for size in sizes], pa.binary()),
                    "storeTimestamp": pa.array(
                        [START_US + minute * MINUTE_US for minute in minutes], pa.timestamp("us", tz="UTC")
                    ),
                }
            )
        )

    return give


def table(directory: Path, name: str, by: str) -> list[dict[str, Any]]:
    return sorted(pq.read_table(directory / name).to_pylist(), key=lambda row: str(row[by]))


def test_a_sharding_key_is_taken_whole(spark: SparkSession, stored: Callable[[list[Row]], Any], tmp_path: Path) -> None:
    profile(spark, stored([(0, 0, None, "two words", 1)]), tmp_path)
    assert [row["key"] for row in table(tmp_path, "keys", "key")] == ["two words"]


def test_tables(spark: SparkSession, stored: Callable[[list[Row]], Any], tmp_path: Path) -> None:
    rows: list[Row] = [(0, 0, "paid", "busy", 100)] * 60
    rows += [(1, 1, "paid", f"k{number % 10}", 1_000) for number in range(30)]
    rows += [(9, 2, None, None, 0)] * 10

    found = profile(spark, stored(rows), tmp_path, name="orders")

    assert (found.messages, found.bytes, found.keys, found.without_key, found.queues) == (100, 36_000, 11, 10, 3)
    assert (found.size_quantiles[0.5], found.size_quantiles[0.999], found.size_max) == (100, 1_000, 1_000)
    assert (found.peak_rate, found.mean_rate) == (1.0, 100 / 600)
    assert [(row["size_from"], row["messages"]) for row in table(tmp_path, "sizes", "size_from")] == [
        (0, 10),
        (512, 30),
        (64, 60),
    ]
    assert [(row["tag"], row["messages"], row["share"]) for row in table(tmp_path, "tags", "tag")] == [
        (None, 10, 0.1), ("paid", 90, 0.9)
    ]  # fmt: skip
    keys = table(tmp_path, "keys", "key")
    assert [(row["key"], row["messages"]) for row in keys] == [("busy", 60), *((f"k{number}", 3) for number in range(10))]
    minutes = table(tmp_path, "minutes", "minute")
    assert [(row["messages"], row["bytes"]) for row in minutes] == [(60, 6_000), (30, 30_000), (10, 0)]
    assert minutes[0]["time"].replace(tzinfo=UTC).timestamp() * 1e6 == START_US
    assert [row["queue"] for row in table(tmp_path, "queues", "queue")] == ["b/0", "b/1", "b/2"]
    text = found.report.read_text()
    assert all(line.partition("'")[0] in text for line in found.advice)

    by_keys = profile(spark, stored(rows), tmp_path, key="keys")
    assert table(tmp_path, "keys", "key") == keys
    assert by_keys.keys == 11


def test_what_a_number_of_queues_means() -> None:
    """Against each key's queue, counted one by one."""
    keys = {f"key-{number}": number + 1 for number in range(50)}
    total = sum(keys.values()) + 800
    for layout in layouts(keys, total, peak_rate=1_000):
        loads = [800 / layout.queues] * layout.queues
        for key, count in keys.items():
            loads[abs(java_hash(key)) % layout.queues] += count
        assert layout.share == pytest.approx(max(loads) / total)
        assert layout.rate == pytest.approx(1_000 * layout.share)
        assert layout.handler_ms == pytest.approx(HEADROOM * 1_000 / layout.rate)


def test_advice(spark: SparkSession, stored: Callable[[list[Row]], Any], tmp_path: Path) -> None:
    """100 messages a second at the peak."""
    even = stored([(0, number % 4, None, f"k{number}", 1) for number in range(6_000)])
    easy = profile(spark, even, tmp_path, handler_ms=1)
    hard = profile(spark, even, tmp_path, handler_ms=20)
    skewed = profile(spark, stored([(0, 0, None, "one", 1)] * 6_000), tmp_path, handler_ms=20)

    assert easy.queues_advised == 1
    assert hard.queues_advised in (8, 16)  # 4 would do if keys were spread evenly, with nothing to spare
    assert skewed.queues_advised is None
    assert "'one', has 100.0%" in " ".join(skewed.advice)
    assert "No number of queues" in skewed.advice[-1]


def test_the_command_reads_brokers_and_archives(spark: SparkSession, server: Cluster, topic: Topic, tmp_path: Path) -> None:
    messages = [Message("", b"x" * 10, tag="paid", properties={"__SHARDINGKEY": f"k{number % 3}"}) for number in range(90)]
    name = topic({0: messages})
    archive(spark, server.namesrv, name, tmp_path / "archive")
    found = []
    for source in ("broker", f"archive:{tmp_path}/archive"):
        words = [name, str(tmp_path / "out"), "--from", source, "--namesrv", server.namesrv, "--since", "2020-01-01"]
        done = CliRunner().invoke(app, ["pipeline", "profile", *words, "--ledger", str(tmp_path / "runs"), "--json"])
        assert done.exit_code == 0, done.output
        row = json.loads(done.stdout)
        assert row["counts"] == {"messages": 90, "bytes": 900}
        assert "1 queue will do" in row["results"]["advice"]
        found.append(table(tmp_path / "out", "keys", "key"))
    assert found[0] == found[1]
    assert [(row["key"], row["messages"]) for row in found[0]] == [("k0", 30), ("k1", 30), ("k2", 30)]


def test_what_is_wrong_is_named(spark: SparkSession, stored: Callable[[list[Row]], Any], tmp_path: Path) -> None:
    some = stored([(0, 0, None, None, 1)])
    with pytest.raises(ConfigError, match="key is 'body', expected shardingKey or keys"):
        profile(spark, some, tmp_path, key="body")
    with pytest.raises(ConfigError, match="handler_ms is 0, expected more than 0"):
        profile(spark, some, tmp_path, handler_ms=0)
    with pytest.raises(ConfigError, match="orders has no messages to be looked at"):
        profile(spark, some.where("tags = 'none'"), tmp_path, name="orders")
    assert set(some.columns) == set(COLUMNS)
    done = CliRunner().invoke(
        app, ["pipeline", "profile", "orders", str(tmp_path), "--since", "soon", "--ledger", str(tmp_path)]
    )
    assert done.exit_code == 1
    assert "--since 'soon': expected a time such as 2026-11-23T03:00" in done.output
