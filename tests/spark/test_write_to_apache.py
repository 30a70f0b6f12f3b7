"""The sink against Apache's broker, and what Apache's consumer for Java makes of its messages."""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rockmq.client import Client
from tests.spark.test_batch_write import orders, texts
from tests.spark.test_stream_write import run, write_files
from tests.spark.written import NONE, bodies, faults
from tests.support import apache, cluster
from tests.support.cluster import Cluster
from tests.support.events import wait_for

QUEUES = 4


@pytest.fixture(scope="module")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster.require("apache")
    with cluster.started("apache", tmp_path_factory.mktemp("apache")) as started:
        yield started


async def create(namesrv: str, *topics: str) -> None:
    async with Client(namesrv) as client:
        for topic in topics:
            await client.create_topic(topic, QUEUES)


def test_apaches_broker_has_each_row_once_and_its_consumer_reads_them(
    spark: SparkSession, peer: Cluster, tmp_path: Path
) -> None:
    asyncio.run(create(peer.namesrv, "orders", "stream", "shown", "halves"))
    frame = orders(spark, 9_000)
    options = {"nameServer": peer.namesrv, "ledger": str(tmp_path / "ledger")}
    shown = spark.sql(
        "select 'grüße 你好' body, 'paid' tags, array('key-1', 'b') keys, 's' shardingKey, "
        "map('index', '7', 'ü', 'ö') properties"
    )

    frame.write.format("rockmq").options(**options, topic="orders", jobId="load").mode("append").save()
    shown.write.format("rockmq").options(**options, topic="shown").mode("append").save()
    halves = {**options, "delivery": "transactional", "jobId": "halves"}
    orders(spark, 30).write.format("rockmq").options(**halves, topic="halves").mode("append").save()
    rows = write_files(tmp_path / "in", 2, 1_000)
    for lost in ((), ("commits/1", "commits/.1.crc")):
        for name in lost:
            (tmp_path / "checkpoint" / name).unlink(missing_ok=True)
        for path in (tmp_path / "checkpoint").glob("rockmq-ledger/*/1/done.json"):
            path.unlink()
        run(spark, peer, tmp_path / "in", tmp_path / "checkpoint", topic="stream")

    assert faults(peer, "orders", QUEUES, texts(frame)) == NONE
    assert faults(peer, "stream", QUEUES, rows) == NONE
    assert bodies(peer, "halves", QUEUES) == dict.fromkeys(texts(orders(spark, 30)), 1)
    where = f"namesrv={peer.namesrv}", "topic=shown", "group=readers", "count=1", "timeoutMs=60000"
    with apache.program("5.5.0", "PushConsumer", *where, directory=tmp_path) as consumer:
        (message,) = wait_for(consumer, "message")
    assert message["sha256"] == hashlib.sha256("grüße 你好".encode()).hexdigest()
    assert (message["tags"], message["keys"]) == ("paid", "key-1 b")
    carried = message["properties"]
    assert (carried["index"], carried["ü"], carried["__SHARDINGKEY"]) == ("7", "ö", "s")
    assert message["msgId"] == carried["UNIQ_KEY"]
