"""A standalone cluster of Spark from the wheel on this machine: a master and workers, as processes of their own."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from rockmq.spark.start import Java
from tests.support.process import LOOPBACK, Process, accepts, free_port

START_TIMEOUT_S = 120
HOME = Path(pyspark.__file__).parent


@contextmanager
def started(directory: Path, java: Java, workers: int) -> Iterator[str]:
    """The master's address, for `spark.master`. Each worker has one core."""
    with ExitStack() as stack:
        port = free_port()
        master = f"spark://{LOOPBACK}:{port}"

        def start(name: str, role: str, *words: str) -> Process:
            command = [str(java.program), "-Xmx256m", "-cp", str(HOME / "jars" / "*"), f"org.apache.spark.deploy.{role}"]
            where = ["--host", LOOPBACK, "--webui-port", "0"]
            environment = {"SPARK_HOME": str(HOME), "JAVA_HOME": str(java.home), "SPARK_LOCAL_IP": LOOPBACK}
            environment["SPARK_SCALA_VERSION"] = "2.13"  # without it a worker looks for a source tree
            # Of how a driver is reached only the driver knows.
            environment |= dict.fromkeys(("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"), "")
            return stack.enter_context(Process(name, [*command, *where, *words], directory, environment))

        running = start("master", "master.Master", "--port", str(port))
        running.wait_until(lambda: accepts(port), START_TIMEOUT_S, "accepting")
        for number in range(workers):
            folder = str(directory / f"work-{number}")
            start(f"worker-{number}", "worker.Worker", "--cores", "1", "--memory", "1g", "--work-dir", folder, master)
        yield master


def path_of_the_checkout() -> str:
    """What PYTHONPATH has to be for programs that import this package."""
    return os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])])
