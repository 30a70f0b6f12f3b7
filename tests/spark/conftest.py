"""Tests of the Spark source: all marked `spark`; one server and one Spark session for the whole run.

`ROCKMQ_SPARK=apache` reads from Apache's servers instead: what fails there as well is wrong with the test.
"""

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import SPARK_MISSING
from tests.support import cluster
from tests.support.jars import QUICK_START

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

if SPARK_MISSING:
    if os.environ.get("CI") == "true":
        raise ImportError(f"the Spark tests can't run: {', '.join(SPARK_MISSING)} missing")
    # What they import isn't there, so they can't even be collected.
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.Cluster]:
    """A name server and a broker; each test uses topics of its own."""
    kind = os.environ.get("ROCKMQ_SPARK", "rockmq")
    with cluster.started(kind, tmp_path_factory.mktemp(kind), {"enablePropertyFilter": "true"}) as started:
        yield started


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    from rockmq.spark import session

    started = session(
        "rockmq tests",
        {
            "spark.master": "local[2]",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.log.level": "ERROR",
            "spark.driver.extraJavaOptions": " ".join(QUICK_START),
        },
    )
    yield started
    started.stop()


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """Names that no other test of this session uses."""
    counter = itertools.count(1)
    return lambda name: f"{name}-{next(counter)}"


Queues = Mapping[int, "list[Any]"]
"""Messages to send by queue id."""


@pytest.fixture
def topic(server: cluster.Cluster, unique: Callable[[str], str]) -> Callable[..., str]:
    """Makes a topic with messages: `topic(queues=4)`, `topic({0: [Message, …], 1: […]})`; its name."""

    def make(messages: Queues | None = None, queues: int = 1) -> str:
        name = unique("spark")
        given = messages or {}
        asyncio.run(create(server.namesrv, name, max([queues, *(queue + 1 for queue in given)])))
        send(name, given)
        return name

    def send(name: str, messages: Queues) -> None:
        asyncio.run(fill(server.namesrv, name, messages))

    make.send = send  # type: ignore[attr-defined]
    return make


@pytest.fixture
def read(spark: "SparkSession", server: cluster.Cluster) -> "Callable[..., DataFrame]":
    """`read(topic, startingOffsets=…)`: the data frame."""

    def make(topic: str, **options: str) -> "DataFrame":
        reader = spark.read.format("rockmq").option("nameServer", server.namesrv).option("topic", topic)
        return reader.options(**options).load()

    return make


@pytest.fixture
def stream(spark: "SparkSession", server: cluster.Cluster) -> "Callable[..., DataFrame]":
    """`stream(topic, maxOffsetsPerTrigger=…)`: the streaming data frame, from the beginning unless told otherwise."""

    def make(topic: str, **options: str) -> "DataFrame":
        reader = spark.readStream.format("rockmq").option("nameServer", server.namesrv).option("topic", topic)
        return reader.options(**{"startingOffsets": "earliest"} | options).load()

    return make


async def create(namesrv: str, topic: str, queues: int) -> None:
    from rockmq.client import Client

    async with Client(namesrv) as mq:
        await mq.create_topic(topic, queues)


async def fill(namesrv: str, topic: str, messages: Queues) -> None:
    """Send to each queue in order, ordinary messages in batches."""
    from rockmq.client import Client

    async with Client(namesrv) as mq, mq.producer("spark-tests", timeout=10) as producer:
        queues = {queue.queue_id: queue for queue in await mq.queues(topic)}
        for queue_id, batch in messages.items():
            for message in batch:
                message.topic = topic
            small = [message for message in batch if len(message.body) < 4_000]
            if len(small) == len(batch):
                for at in range(0, len(batch), 500):
                    await producer.send_batch(batch[at : at + 500], queue=queues[queue_id])
            else:
                for message in batch:
                    await producer.send(message, queue=queues[queue_id])
