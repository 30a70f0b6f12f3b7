"""Streams of a real server through Spark, from offsets to offsets."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rockmq.base.errors import ConfigError
from rockmq.client import Client
from rockmq.spark import commit_offsets
from tests.spark.conftest import create, fill
from tests.spark.test_batch_read import numbered
from tests.support import apache, cluster
from tests.support.cluster import Cluster
from tests.support.process import eventually

PATIENCE_S = 600
PAGE = Path(__file__).parents[2] / "docs" / "spark-streaming.md"

Topic = Callable[..., str]
Stream = Callable[..., DataFrame]
Batches = dict[int, list[tuple[int, int]]]
"""By batch id, (queue id, offset) of its rows as they came."""


def run(frame: DataFrame, checkpoint: Path, **trigger: Any) -> tuple[StreamingQuery, Batches]:
    """The query, and what it has read so far; without a trigger it has ended."""
    batches: Batches = {}

    def keep(batch: DataFrame, number: int) -> None:
        batches[number] = [(row.queueId, row.queueOffset) for row in batch.select("queueId", "queueOffset").collect()]

    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**trigger or {"availableNow": True}).start()
    if not trigger:
        assert query.awaitTermination(PATIENCE_S)
    return query, batches


def rows_of(batches: Batches) -> list[tuple[int, int]]:
    return [row for rows in batches.values() for row in rows]


def lag(query: StreamingQuery) -> int:
    """Messages behind, as the last progress tells."""
    progress = query.lastProgress
    assert progress is not None
    (source,) = progress.sources
    ends, done = (
        sum(offset for brokers in json.loads(text).values() for queues in brokers.values() for offset in queues.values())
        for text in (source.latestOffset, source.endOffset)
    )
    return ends - done


def test_a_restart_goes_on_where_the_checkpoint_says(topic: Topic, stream: Stream, tmp_path: Path) -> None:
    name = topic({0: numbered(500), 1: numbered(300)})

    _, first = run(stream(name, maxOffsetsPerTrigger="300"), tmp_path)
    topic.send(name, {0: numbered(7)})  # type: ignore[attr-defined]
    _, second = run(stream(name, maxOffsetsPerTrigger="300", startingOffsets="latest"), tmp_path)

    assert [len(rows) for rows in first.values()] == [300, 300, 200]
    read = rows_of(first)
    assert [row for row in read if row[0] == 0] == [(0, offset) for offset in range(500)]
    assert [row for row in read if row[0] == 1] == [(1, offset) for offset in range(300)]
    assert second == {3: [(0, offset) for offset in range(500, 507)]}


def test_a_running_query_reads_what_comes_and_tells_its_lag(
    topic: Topic, stream: Stream, server: Cluster, tmp_path: Path
) -> None:
    name = topic({0: numbered(3)})
    query, batches = run(stream(name, startingOffsets="latest"), tmp_path, processingTime="0 seconds")
    try:
        eventually(lambda: query.lastProgress, PATIENCE_S, "a first look")
        topic.send(name, {0: numbered(4)})  # type: ignore[attr-defined]
        asyncio.run(create(server.namesrv, name, 2))
        topic.send(name, {1: numbered(2)})  # type: ignore[attr-defined]
        wanted = [(0, offset) for offset in range(3, 7)] + [(1, 0), (1, 1)]
        eventually(lambda: rows_of(batches) == wanted, PATIENCE_S, "both queues")
        eventually(lambda: lag(query) == 0, PATIENCE_S, "no lag")
    finally:
        query.stop()


def test_brokers_are_told_how_far_a_query_is(
    spark: SparkSession, topic: Topic, stream: Stream, server: Cluster, tmp_path: Path
) -> None:
    name, other = topic({0: numbered(50), 1: numbered(10)}), topic({0: numbered(5)})
    group = f"G-{name}"
    with commit_offsets(spark, group, query="counted", nameServer=server.namesrv):
        frame = stream(name, maxOffsetsPerTrigger="40")
        query = frame.writeStream.queryName("counted").format("noop").option("checkpointLocation", str(tmp_path / "a"))
        assert query.trigger(availableNow=True).start().awaitTermination(PATIENCE_S)
        run(stream(other), tmp_path / "b")
        topic.send(name, {0: numbered(3)})  # type: ignore[attr-defined]

    found = asyncio.run(progress(server.namesrv, group))

    assert found == {(name, 0): (50, 53), (name, 1): (10, 10)}


async def progress(namesrv: str, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    """(offset, end) of the group's queues, as the broker tells administrators."""
    async with Client(namesrv) as mq:
        found = (await mq.admin.groups.progress(group)).queues
        assert await mq.admin.topics.route(f"%RETRY%{group}")  # without which Apache's consumerProgress knows no group
    return {
        (queue.topic, queue.queue_id): (each.consumer_offset, each.broker_offset)
        for queue, each in found.items()
        if not queue.topic.startswith("%RETRY%")
    }


def test_a_listener_says_what_is_wrong_with_its_words(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="'nameServer' is required"):
        commit_offsets(spark, "reports")
    with pytest.raises(ConfigError, match="group"):
        commit_offsets(spark, "no group", nameServer="a:1")
    with pytest.raises(ConfigError, match="unknown option 'topic'"):
        commit_offsets(spark, "reports", nameServer="a:1", topic="orders")


def test_the_page_shows_what_is_so(
    topic: Topic, server: Cluster, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = topic({0: [*numbered(2, tag="paid"), *numbered(1)]})
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for shown, here in {
        '"localhost:9876"': repr(server.namesrv),
        '("topic", "orders")': f'("topic", {name!r})',
        '"paid"': repr(str(tmp_path / "paid")),
        '"paid-checkpoint"': repr(str(tmp_path / "checkpoint")),
    }.items():
        assert shown in code
        code = code.replace(shown, here)

    exec(compile(code, str(PAGE), "exec"), {})

    assert re.search(r"\|\s*0\|\s*0\|\s*0 \|\n\|\s*0\|\s*1\|\s*1 \|\n\+-", capsys.readouterr().out)


def test_the_same_against_apaches_broker(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    cluster.require("apache")
    with cluster.started("apache", tmp_path_factory.mktemp("apache-stream")) as peer:
        asyncio.run(create(peer.namesrv, "streamed", 2))
        asyncio.run(fill(peer.namesrv, "streamed", {0: numbered(300), 1: numbered(100)}))
        cluster.wait_until_dispatched(peer)
        options = {"nameServer": peer.namesrv, "topic": "streamed", "startingOffsets": "earliest"}
        frame = spark.readStream.format("rockmq").options(**options, maxOffsetsPerTrigger="150").load()
        with commit_offsets(spark, "streamed-group", nameServer=peer.namesrv):
            _, first = run(frame, tmp_path)
            asyncio.run(fill(peer.namesrv, "streamed", {1: numbered(5)}))
            cluster.wait_until_dispatched(peer)
            _, second = run(frame, tmp_path)

        assert [len(rows) for rows in first.values()] == [150, 150, 100]
        assert sorted(rows_of(first)) == [(0, offset) for offset in range(300)] + [(1, offset) for offset in range(100)]
        assert rows_of(second) == [(1, offset) for offset in range(100, 105)]
        shown = apache.mqadmin("consumerProgress", "-g", "streamed-group", namesrv=peer.namesrv, directory=tmp_path).stdout
        lags = {line.split()[2]: line.split()[3:6] for line in shown.splitlines() if line.startswith("streamed ")}
        assert lags == {"0": ["300", "300", "0"], "1": ["105", "105", "0"]}, shown


def test_lost_messages_end_the_query(topic: Topic, stream: Stream, server: Cluster, tmp_path: Path) -> None:
    name = topic({0: numbered(10)})
    beyond = json.dumps({name: {cluster.broker_name(server): {"0": 15}}})

    with pytest.raises(StreamingQueryException, match=f"{name}/.*/0 ends at 10"):
        run(stream(name, startingOffsets=beyond), tmp_path / "strict")
    _, batches = run(stream(name, startingOffsets=beyond, failOnDataLoss="false"), tmp_path / "lax")
    assert rows_of(batches) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxoffsetspertrigger'?"),
        ({"endingOffsets": "latest"}, "is for batches"),
    ],
)
def test_a_wrong_option_is_named(stream: Stream, tmp_path: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(PySparkException) as raised:
        run(stream("misread-stream", **options), tmp_path)

    assert words in str(raised.value).lower()


def test_a_batch_read_has_no_triggers(topic: Topic, read: Callable[..., DataFrame]) -> None:
    with pytest.raises(PySparkException, match="option 'maxOffsetsPerTrigger' is for streams"):
        read(topic(queues=1), maxOffsetsPerTrigger="5").count()
