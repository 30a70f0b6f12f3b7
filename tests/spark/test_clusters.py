"""Spark as a cluster of two workers, and Spark Connect on it: source and sink need nothing that processes share but a
directory for the sink's ledger."""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rockmq.client import Message
from rockmq.protocol.properties import SHARDING_KEY
from rockmq.spark.start import choose_java
from tests.spark import standalone
from tests.spark.conftest import create, fill
from tests.spark.written import bodies
from tests.support.cluster import Cluster
from tests.support.process import Process, free_port

PATIENCE_S = 300
QUEUES = 2
COUNT = 500
"""Messages of each queue."""


class Driver(NamedTuple):
    """A program that has copied topic `source` to `target` on the cluster, and serves Spark Connect now."""

    process: Process
    connect_port: int
    source: str
    target: str


@pytest.fixture(scope="module")
def driver(server: Cluster, unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    java = choose_java()
    if not java.has_vector:
        pytest.skip("executors need a Java 17+ with jdk.incubator.vector in JAVA_HOME or on PATH")
    directory = tmp_path_factory.mktemp("standalone")
    source, target = unique("source"), unique("target")
    asyncio.run(create(server.namesrv, source, QUEUES))
    asyncio.run(fill(server.namesrv, source, {queue: messages(queue) for queue in range(QUEUES)}))
    asyncio.run(create(server.namesrv, target, QUEUES))
    port = free_port()
    with standalone.started(directory, java, workers=2) as master:
        words = ("driver", master, str(port), server.namesrv, source, target, str(directory / "ledger"))
        with program(directory, *words) as process:
            yield Driver(process, port, source, target)


def messages(queue: int) -> list[Message]:
    keyed = {SHARDING_KEY: str(queue)}
    return [Message("", f"{queue}:{number}".encode(), properties=keyed) for number in range(COUNT)]


def program(directory: Path, *words: str) -> Process:
    environment = {"PYTHONPATH": standalone.path_of_the_checkout()}
    command = [sys.executable, "-m", "tests.spark.cluster_program", *words]
    return Process(f"spark-{words[0]}", command, directory, environment)


def executors(running: Process) -> int:
    """How many had a part in copying, once that is done."""
    said = running.wait_until(
        lambda: next((line for line in running.lines() if line.startswith("copied ")), None), PATIENCE_S, "having copied"
    )
    return int(said.split()[1])


WANTED = Counter(f"{queue}:{number}" for queue in range(QUEUES) for number in range(COUNT))


def test_source_and_sink_run_on_a_standalone_cluster(driver: Driver, server: Cluster) -> None:
    assert executors(driver.process) == 2
    assert bodies(server, driver.target, QUEUES) == WANTED


def test_source_and_sink_run_over_spark_connect(
    driver: Driver, server: Cluster, unique: Callable[[str], str], tmp_path: Path
) -> None:
    executors(driver.process)  # which serves from its start on, and copies first
    target = unique("target")
    asyncio.run(create(server.namesrv, target, QUEUES))
    words = (str(driver.connect_port), server.namesrv, driver.source, target, str(tmp_path / "ledger"))

    with program(tmp_path, "client", *words) as client:
        assert executors(client) == 2
        assert client.wait(PATIENCE_S) == 0, client.tail()

    assert bodies(server, target, QUEUES) == WANTED
