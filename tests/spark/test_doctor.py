"""`rockmq doctor spark`: each line is right or says what to do."""

import importlib
import importlib.metadata
import json
import socket
import sys
from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rockmq.cli.main import app
from rockmq.embedded import Server
from rockmq.spark import doctor, start
from rockmq.spark.doctor import Finding
from tests.support.cluster import Cluster
from tests.support.process import free_port
from tests.unit.cli.test_secured import authority, environment, secured

__all__ = ["authority", "environment", "secured"]

Told = dict[str, Finding]


def run(*words: str) -> tuple[int, Told]:
    ended = CliRunner().invoke(app, ["doctor", "spark", "--json", *words])
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert all(line["ok"] == (line["advice"] == "") for line in lines)
    return ended.exit_code, {line["what"]: Finding(line["what"], line["says"], line["advice"]) for line in lines}


def test_all_is_well_here_and_on_executors(spark: SparkSession, server: Cluster) -> None:
    code, told = run("--namesrv", server.namesrv, "--executors")

    assert code == 0, [each for each in told.values() if not each.ok]
    host = socket.gethostname()
    looked_at = ["Python", "pyspark", "pyarrow", "pandas", "pyspark_rockmq", f"name server {server.namesrv}"]
    for what in [*looked_at, f"broker {server.broker}"]:
        assert what in told
        assert f"{what} on {host}" in told
    assert {"Python of workers", "Java", "Spark"} <= told.keys()


def test_what_is_wrong_is_said_with_what_to_do(server: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    monkeypatch.setattr(start, "_candidates", lambda: iter(()))
    nobody = f"127.0.0.1:{free_port()}"

    ended = CliRunner().invoke(app, ["doctor", "spark", "--namesrv", f"{server.namesrv};{nobody}"])

    assert ended.exit_code == 1
    for line in (
        "WRONG pandas: can't be imported",
        "WRONG Python of workers: PYSPARK_PYTHON=/nowhere/python: ",
        "WRONG Java: Spark needs Java 17 or later",
        f"WRONG name server {nobody}: ",
        f"ok    broker {server.broker}: accepts connections",
        "-> pip install 'rockmq[spark]'",
    ):
        assert line in ended.stdout, ended.stdout


@pytest.mark.parametrize(("version", "ok"), [("3.5.1", False), ("4.0.0", True), ("4.3.0", True)])
def test_old_packages_are_wrong(version: str, ok: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def of(package: str) -> str:
        return version

    versions: Callable[[str], str] = of
    monkeypatch.setattr(importlib.metadata, "version", versions)

    found = doctor.installed("pyspark")

    assert (found.ok, version in found.says) == (ok, True)


@pytest.mark.parametrize("look", [lambda: doctor.installed("pandas"), doctor.module])
def test_a_package_built_for_another_numpy_is_wrong(look: Callable[[], Finding], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise ValueError("numpy.dtype size changed, may indicate binary incompatibility")

    monkeypatch.setattr(importlib, "import_module", broken)

    found = look()

    assert not found.ok
    assert "numpy.dtype size changed" in found.says


async def test_a_broker_that_isnt_reached_is_wrong() -> None:
    found = await doctor._connects(f"127.0.0.1:{free_port()}")

    assert not found.ok
    assert "brokerIP1" in found.advice


async def test_servers_that_enforce_tls_are_reached_as_the_environment_says(
    secured: Server, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for changed, right in (({}, True), ({"ROCKMQ_TLS_CA": ""}, False), ({"ROCKMQ_TLS": "yes"}, False)):
        for name, value in changed.items():
            monkeypatch.setenv(name, value)

        found = await doctor.reach(secured.namesrv)

        assert all(each.ok for each in found) == right, found
        assert (f"broker {secured.broker}" in [each.what for each in found]) == right
