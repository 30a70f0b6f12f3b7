"""Whether Spark can work with RockMQ here: what is there, what is wrong, and what to do about it.

The looks are independent of each other and none raises: what goes wrong is what they tell. PySpark may be missing.
"""

import asyncio
import importlib
import importlib.metadata
import os
import platform
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from rockmq.base import address
from rockmq.base.errors import ConfigError, RockMQError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

REACH_SECONDS = 5.0
PYTHON_MIN = (3, 11)
PACKAGES = {"pyspark": (4, 0), "pyarrow": (18, 0), "pandas": (2, 2)}
"""What Spark's Python workers need, and from which version on."""
STREAMS_MIN = (4, 2)
_INSTALL = "pip install 'rockmq[spark]'"


class Finding(NamedTuple):
    """One line: what was looked at, what is so, and what to do if that is wrong (empty when it is right)."""

    what: str
    says: str
    advice: str = ""

    @property
    def ok(self) -> bool:
        return not self.advice


def driver(name_server: str) -> Iterator[Finding]:
    """This machine, and how it reaches the brokers."""
    yield python()
    yield worker_python()
    for package in PACKAGES:
        yield installed(package)
    yield java()
    yield module()
    yield from asyncio.run(reach(name_server))


def python() -> Finding:
    says = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info < PYTHON_MIN:
        return Finding("Python", says, f"use Python {_dotted(PYTHON_MIN)} or later")
    return Finding("Python", says)


def worker_python() -> Finding:
    """The Python of Spark's workers has to have the same version, and RockMQ."""
    program = os.environ.get("PYSPARK_PYTHON", sys.executable)
    what, code = "Python of workers", "import sys, rockmq, pyarrow; print(*sys.version_info[:2], sep='.')"
    try:
        done = subprocess.run([program, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(what, f"PYSPARK_PYTHON={program}: {error}", "have PYSPARK_PYTHON name a Python, or unset it")
    if done.returncode:
        fault = (done.stderr.strip().splitlines() or ["it doesn't run"])[-1]
        return Finding(what, f"{program}: {fault}", f"in the environment of {program}: {_INSTALL}")
    ours = _dotted(sys.version_info[:2])
    if done.stdout.strip() != ours:
        return Finding(what, f"{program} is {done.stdout.strip()}, this is {ours}", "let both be the same version")
    return Finding(what, f"{ours} at {program}")


def installed(package: str) -> Finding:
    try:
        importlib.import_module(package)
        found = importlib.metadata.version(package)
    except Exception as error:  # noqa: BLE001  (one built for another NumPy raises what it likes)
        return Finding(package, f"can't be imported: {error}", _INSTALL)
    least = PACKAGES[package]
    if _version(found) < least:
        return Finding(package, f"{found} is older than {_dotted(least)}", _INSTALL)
    if package == "pyspark" and _version(found) < STREAMS_MIN:
        return Finding(package, f"{found}: batches only, streams come with {_dotted(STREAMS_MIN)}")
    return Finding(package, found)


def java() -> Finding:
    from rockmq.spark import start

    try:
        found = start.choose_java()
    except ConfigError as error:
        return Finding("Java", str(error), f"{_INSTALL}, or have JAVA_HOME name a Java {start.JAVA_MAJOR_MIN}")
    return Finding("Java", f"{found.major} at {found.home}")


def module() -> Finding:
    """What Spark finds the format `rockmq` by."""
    try:
        found = importlib.import_module("pyspark_rockmq")
    except Exception as error:  # noqa: BLE001  (as above: it imports these)
        return Finding("pyspark_rockmq", f"can't be imported: {error}", _INSTALL)
    return Finding("pyspark_rockmq", f"format {found.DefaultSource.name()!r} at {os.path.dirname(str(found.__file__))}")


async def reach(name_server: str) -> list[Finding]:
    """Whether name servers answer, and brokers accept connections, from here, as the environment says how."""
    from rockmq.client import environment

    findings = []
    try:
        environment.key()
        tls = environment.tls()
    except ConfigError as error:
        return [Finding("environment", str(error), "correct it, or unset it")]
    for each in address.split_list(name_server):
        what = f"name server {each}"
        try:
            async with asyncio.timeout(REACH_SECONDS), environment.client(each) as client:
                known = await client.admin.brokers.clusters()
        except (RockMQError, TimeoutError) as error:
            says = str(error) or f"no answer within {REACH_SECONDS:g} s"
            findings.append(Finding(what, says, "start it, or say with --namesrv where it is; look for a firewall between"))
            continue
        places = {place for broker in known.brokers.values() for place in broker.addresses.values()}
        if not places:
            findings.append(Finding(what, "answers, and knows no broker", "start a broker with this name server"))
            continue
        findings.append(Finding(what, f"answers, and knows {len(places)} broker(s)"))
        findings += [await _connects(place, tls) for place in sorted(places)]
    return list(dict.fromkeys(findings))


async def _connects(place: str, tls: ssl.SSLContext | None = None) -> Finding:
    what = f"broker {place}"
    try:
        host, port = address.split(place)
        async with asyncio.timeout(REACH_SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=tls)
        writer.close()
    except (ConfigError, OSError, TimeoutError) as error:
        says = str(error) or f"no connection within {REACH_SECONDS:g} s"
        advice = "start it, or have its brokerIP1 be an address that is reached from here; look for a firewall between"
        return Finding(what, says, advice)
    return Finding(what, "accepts connections")


def executors(spark: "SparkSession", name_server: str) -> Iterator[Finding]:
    """The same in the Python workers of Spark's executors, as far as they take part in a job of a task for each core."""

    def look(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        from rockmq.spark import doctor

        for _ in batches:
            pass
        found = [doctor.python(), *map(doctor.installed, doctor.PACKAGES), doctor.module()]
        found += asyncio.run(doctor.reach(name_server))
        rows = [{"host": socket.gethostname(), **finding._asdict()} for finding in found]
        yield pa.RecordBatch.from_pylist(rows, pa.schema([(name, pa.string()) for name in rows[0]]))

    count = int(spark.conf.get("spark.sql.leafNodeDefaultParallelism", None) or 2 * (os.cpu_count() or 1))
    frame = spark.range(0, count, 1, count).mapInArrow(look, "host string, what string, says string, advice string")
    try:
        rows = frame.distinct().orderBy("host", "what").collect()
    except Exception as error:  # noqa: BLE001  (whatever keeps a task from running is what is looked for)
        text = str(error).strip().splitlines()
        yield Finding("executors", (text[-1] if text else type(error).__name__)[:500], f"on all executors: {_INSTALL}")
        return
    for row in rows:
        yield Finding(f"{row.what} on {row.host}", row.says, row.advice)


def spark_starts(conf: Mapping[str, str]) -> "tuple[Finding, SparkSession | None]":
    from rockmq.spark import start

    try:
        spark = start.session("rockmq doctor", {"spark.log.level": "OFF", **conf})
        return Finding("Spark", f"{spark.version} at {spark.conf.get('spark.master')}"), spark
    except Exception as error:  # noqa: BLE001  (whatever keeps it from starting is what is looked for)
        return Finding("Spark", f"doesn't start: {error}"[:500], "see what it printed above"), None


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)[:2]))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
