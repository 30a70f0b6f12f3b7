"""A streaming query whose JVM, Python workers or broker are killed (SIGKILL) at any time: nothing lost, nothing twice.

ROCKMQ_SPARK_KILLS is how often the JVM is killed, ROCKMQ_KILL_SEED what the run's choices come from.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from rockmq.client import Message
from tests.spark import stream_job
from tests.spark.conftest import create, fill
from tests.support import server as servers
from tests.support.cluster import Cluster
from tests.support.process import Process, eventually, free_broker_port, free_port

pytestmark = pytest.mark.flaky(reruns=0)
"""What is lost once is lost."""

KILLS = int(os.environ.get("ROCKMQ_SPARK_KILLS", "1"))
SEED = int(os.environ.get("ROCKMQ_KILL_SEED", random.randrange(1 << 32)))
QUEUES = 3
START_S = 600
PATIENCE_S = 600

Topic = Callable[..., str]


class Load:
    """What was sent to each queue of a topic."""

    def __init__(self, send: Callable[[dict[int, list[Message]]], object]) -> None:
        self._send = send
        self.sent: dict[int, list[bytes]] = {queue: [] for queue in range(QUEUES)}

    def more(self, count: int) -> None:
        for sent in self.sent.values():
            sent += [b"%d" % number for number in range(len(sent), len(sent) + count)]
        self._send({queue: [Message("", body) for body in sent[-count:]] for queue, sent in self.sent.items()})


@pytest.fixture
def chance() -> random.Random:
    print(f"ROCKMQ_KILL_SEED={SEED}")
    return random.Random(SEED)


def finish(spark: SparkSession, namesrv: str, topic: str, directory: Path) -> None:
    """Run the query to the end of what is there."""
    query = stream_job.start(spark, namesrv, topic, directory, 1_000_000, availableNow=True)
    assert query.awaitTermination(PATIENCE_S)


def progressed(directory: Path, batches: int) -> bool:
    return len(stream_job.batches(directory)) >= batches


def test_the_jvm_is_killed(
    spark: SparkSession, server: Cluster, topic: Topic, tmp_path: Path, chance: random.Random
) -> None:
    name = topic(queues=QUEUES)
    load = Load(partial(topic.send, name))  # type: ignore[attr-defined]
    words = [sys.executable, "-m", "tests.spark.stream_job", server.namesrv, name, str(tmp_path), "100"]
    environment = {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    for kill in range(KILLS):
        load.more(2_000)
        before = len(stream_job.batches(tmp_path))
        with Process(f"job-{kill}", words, tmp_path / "jobs", environment) as job:
            (jvm,) = job.wait_until(job.lines, START_S, "a JVM")
            try:
                job.wait_until(lambda: progressed(tmp_path, before + 2), START_S, "some batches")  # noqa: B023
                time.sleep(chance.uniform(0, 1))
            finally:
                os.kill(int(jvm), signal.SIGKILL)
                job.kill()

    finish(spark, server.namesrv, name, tmp_path)

    stream_job.check(tmp_path, load.sent)


def test_python_workers_are_killed(spark: SparkSession, server: Cluster, topic: Topic, tmp_path: Path) -> None:
    name = topic(queues=QUEUES)
    load = Load(partial(topic.send, name))  # type: ignore[attr-defined]
    # Who reads ranges; and who is asked for offsets.
    for module in ("pyspark.worker", "pyspark.sql.streaming.python_streaming_source_runner"):
        load.more(3_000)
        before = len(stream_job.batches(tmp_path))
        query = stream_job.start(spark, server.namesrv, name, tmp_path, 100)
        eventually(lambda: progressed(tmp_path, before + 2), PATIENCE_S, "some batches")  # noqa: B023
        eventually(partial(killed, spark, query, module), PATIENCE_S, "the end of the query")
        assert isinstance(query.exception(), StreamingQueryException)

    finish(spark, server.namesrv, name, tmp_path)

    stream_job.check(tmp_path, load.sent)


def killed(spark: SparkSession, query: StreamingQuery, module: str) -> bool:
    """Kill such Python processes of the JVM as there are; whether the query has ended of it."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    for child in leaves(int(jvm.java.lang.ProcessHandle.current().pid())):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
            if Path(f"/proc/{child}/cmdline").read_bytes().rstrip(b"\0").endswith(module.encode()):
                os.kill(child, signal.SIGKILL)
    return not query.isActive


def leaves(pid: int) -> Iterator[int]:
    """The processes below that one that have none below them: workers, without the daemons that fork them, whose death Spark
    doesn't survive."""
    below = [int(each) for listed in Path(f"/proc/{pid}/task").glob("*/children") for each in listed.read_text().split()]
    for child in below:
        yield from leaves(child)
    if not below:
        yield pid


def test_the_broker_is_killed(spark: SparkSession, tmp_path: Path, chance: random.Random) -> None:
    serve = partial(servers.serve, tmp_path / "server", namesrv_port=free_port(), broker_port=free_broker_port())
    started: list[servers.Server] = []
    load = Load(lambda messages: asyncio.run(fill(started[-1].namesrv, "killed", messages)))
    query = None
    try:
        for life in range(3):
            with serve() as running:
                started.append(running)
                if not life:
                    asyncio.run(create(running.namesrv, "killed", QUEUES))
                load.more(1_000)
                query = query or stream_job.start(spark, running.namesrv, "killed", tmp_path, 100)
                before = len(stream_job.batches(tmp_path))
                eventually(lambda: progressed(tmp_path, before + 2), PATIENCE_S, "some batches")  # noqa: B023
                if life < 2:
                    time.sleep(chance.uniform(0, 0.5))
                    running.kill()
                else:
                    assert query.isActive, query.exception()
                    query.stop()
                    finish(spark, running.namesrv, "killed", tmp_path)
    finally:
        if query is not None:
            query.stop()

    stream_job.check(tmp_path, load.sent)
