"""Kafka and NATS as servers beside RockMQ: Kafka's jars by Maven, the NATS server by Go; both are kept under `.cache`."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.jars import CACHE as JARS
from tests.support.jars import PeerError, maven_class_path, need
from tests.support.process import LOOPBACK, Process, accepts, free_port

REPOSITORY = Path(__file__).resolve().parents[2]
KAFKA = "3.9.1"
NATS = "v2.12.2"
SPARK = "4.2.0"
"""The last version for which Spark's connector for Kafka is on Maven Central: both sides are measured on it."""
START_TIMEOUT_S = 90
_CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_OFFSET_TOPIC = "offsets.topic.num.partitions=1\noffsets.topic.replication.factor=1\n"
_TRANSACTION_TOPIC = "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"


@dataclass(frozen=True)
class Peer:
    """A server that accepts connections at `address`, as process `pid`."""

    address: str
    pid: int


@contextlib.contextmanager
def kafka(directory: Path) -> Iterator[Peer]:
    """One broker that is its own controller, otherwise with Kafka's defaults."""
    class_path = maven_class_path(f"kafka-{KAFKA}", [("org.apache.kafka", "kafka_2.13", KAFKA)])
    port, controller = free_port(), free_port()
    directory.mkdir(parents=True, exist_ok=True)
    properties = directory / "server.properties"
    properties.write_text(
        f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@{LOOPBACK}:{controller}\n"
        f"listeners=PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}\n"
        "controller.listener.names=CONTROLLER\ngroup.initial.rebalance.delay.ms=0\n"
        f"log.dirs={directory / 'data'}\n{_OFFSET_TOPIC}{_TRANSACTION_TOPIC}",
        encoding="utf-8",
    )
    java = [need("java"), "-Xms1g", "-Xmx1g", "-cp", class_path]
    format_it = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)]
    done = subprocess.run(format_it, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
    if done.returncode:
        raise PeerError(f"Kafka's storage couldn't be formatted\n{done.stdout}{done.stderr}")
    with Process("kafka", [*java, "kafka.Kafka", str(properties)], directory) as process:
        process.wait_until(lambda: accepts(port), START_TIMEOUT_S, "Kafka accepting")
        yield Peer(f"{LOOPBACK}:{port}", process.pid)


def spark_connector() -> list[Path]:
    """The jars of Spark's own source and sink for Kafka."""
    connector = [("org.apache.spark", "spark-sql-kafka-0-10_2.13", SPARK)]
    return [Path(jar) for jar in maven_class_path(f"spark-kafka-{SPARK}", connector).split(os.pathsep)]


def have_pyspark() -> None:
    """Have this program and Spark's workers import PySpark in the version of the connector: it begins anew for that."""
    where = JARS.parent / f"pyspark-{SPARK}"
    if str(where) in sys.path:
        return
    if not (where / "pyspark").is_dir():
        unfinished = where.with_name(f"{where.name}.{os.getpid()}")
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--target", str(unfinished), f"pyspark=={SPARK}"], check=True, timeout=900)
        unfinished.rename(where)
    path = os.pathsep.join([str(where), str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | {"PYTHONPATH": path})


@contextlib.contextmanager
def nats(directory: Path) -> Iterator[str]:
    """One server with JetStream, its files in `directory`; its address."""
    port = free_port()
    command = [str(_nats_server()), "-js", "-a", LOOPBACK, "-p", str(port), "-sd", str(directory / "data")]
    with Process("nats", command, directory) as process:
        process.wait_until(lambda: accepts(port), START_TIMEOUT_S, "NATS accepting")
        yield f"nats://{LOOPBACK}:{port}"


def _nats_server() -> Path:
    where = JARS.parent / "go" / f"nats-server-{NATS}"
    program = where / "nats-server"
    if not program.exists():
        if not (go := shutil.which("go")):
            raise PeerError("go is not installed")
        done = subprocess.run(
            [go, "install", f"github.com/nats-io/nats-server/v2@{NATS}"],
            env=os.environ | {"GOBIN": str(where)}, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        if done.returncode:
            raise PeerError(f"the NATS server couldn't be built\n{done.stderr[-4_000:]}")
    return program
