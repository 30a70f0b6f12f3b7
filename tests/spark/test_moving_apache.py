"""Redrive and replay against Apache's broker: its dead letters, an archive of its topic."""

import asyncio
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from rockmq.client import Message
from rockmq.pipeline.archive import archive
from rockmq.pipeline.redrive import Group, Outcome, count, redrive
from rockmq.pipeline.replay import replay
from tests.spark import dead_letters
from tests.spark.conftest import fill
from tests.spark.test_drain import orders
from tests.spark.test_write_to_apache import QUEUES, create, peer
from tests.spark.written import NONE, bodies, faults, stored
from tests.support.cluster import Cluster, wait_until_dispatched

__all__ = ["peer"]


def test_apaches_dead_letters_and_topics(spark: SparkSession, peer: Cluster, tmp_path: Path) -> None:
    asyncio.run(create(peer.namesrv, "given-up", "source", "target"))
    letters = [Message("", b"letter:%d" % number, "paid", "k") for number in range(5)]
    dead_letters.make(peer, "billing", "given-up", letters)

    assert count(spark, peer.namesrv, "billing", tmp_path / "redriven") == [Group("given-up", "1 tries", "", 5)]
    for moved in (5, 0):
        assert redrive(spark, peer.namesrv, "billing", tmp_path / "redriven") == Outcome(moved=moved)

    assert bodies(peer, "given-up", QUEUES) == Counter({f"letter:{number}": 2 for number in range(5)})
    again = [each for queue in stored(peer, "given-up", QUEUES) for each in queue if "ORIGIN_UNIQ_KEY" in each.properties]
    assert len(again) == 5
    assert all(each.reconsume_times == 0 and "RETRY_TOPIC" not in each.properties for each in again)

    sent = [message for queue in range(2) for message in orders(queue, 0, 500)]
    asyncio.run(fill(peer.namesrv, "source", {queue: orders(queue, 0, 500) for queue in range(2)}))
    wait_until_dispatched(peer)
    archive(spark, peer.namesrv, "source", tmp_path / "archive", records_per_file=200)
    for _ in range(2):
        done = replay(spark, peer.namesrv, tmp_path / "archive", "source", "target", tmp_path / "work", rows_per_step=400)
        assert (done.done.rows, done.done.bad) == (1_000, 0)
    assert faults(peer, "target", QUEUES, [message.body.decode() for message in sent]) == NONE
