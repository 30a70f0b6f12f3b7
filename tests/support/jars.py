"""Apache's jars, by Maven with its ordinary client, and the Java programs of `tests/support/java`, compiled against them.

Class paths and classes are kept under `.cache/apache/<version>/`, so that Maven and javac run once.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

SERVER = "5.5.0"
STORES = ("4.9.7", "5.5.0")
"""Servers whose stores move here and back."""
CLIENTS = ("4.9.8", "5.5.0")
GROUP = "org.apache.rocketmq"
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "apache"
PROGRAMS = Path(__file__).parent / "java"
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""For JVMs that don't live long enough for what the compiler and the collector do besides to pay."""

_SERVER_ARTIFACTS = ("rocketmq-namesrv", "rocketmq-broker", "rocketmq-tools")
_CLIENT_ARTIFACTS = ("rocketmq-client",)
_PROXY_ARTIFACTS = ("rocketmq-proxy",)
_CONTAINER_ARTIFACTS = ("rocketmq-container",)


class PeerError(Exception):
    """Apache's software could not be fetched, compiled or asked."""


def available() -> str | None:
    """None when Java peers can run here, else what is missing."""
    for tool in ("java", "javac"):
        if not _tool(tool):
            return f"{tool} is not installed"
    missing = [name for name in (*map(_server_name, STORES), *map(_client_name, CLIENTS)) if not _cached_class_path(name)]
    if missing and not _tool("mvn"):
        return f"Maven is not installed and the jars of {', '.join(missing)} are not in {CACHE}"
    return None


def server_class_path(version: str = SERVER) -> str:
    """Name server, controller, broker and tools."""
    return _class_path(_server_name(version), version, _SERVER_ARTIFACTS)


def client_class_path(version: str) -> str:
    return _class_path(_client_name(version), version, _CLIENT_ARTIFACTS)


def proxy_class_path(version: str = SERVER) -> str:
    """The proxy, with the broker that it may run itself."""
    return _class_path(f"{version}/proxy", version, _PROXY_ARTIFACTS)


def container_class_path(version: str = SERVER) -> str:
    """The process in which several brokers run."""
    return _class_path(f"{version}/container", version, _CONTAINER_ARTIFACTS)


def compiled(client: str) -> Path:
    """The classes of `tests/support/java`, and of the folder there for that client version, compiled against it."""
    sources = sorted([*PROGRAMS.glob("*.java"), *(PROGRAMS / client).glob("*.java")])
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    classes = CACHE / client / f"programs-{digest.hexdigest()[:16]}"
    if not classes.is_dir():
        unfinished = classes.with_name(f"{classes.name}.{os.getpid()}")
        command = [
            need("javac"), "-encoding", "UTF-8", "-proc:none", "-nowarn", "-Xlint:-options", "--release", "8",
            "-cp", client_class_path(client), "-d", str(unfinished), *map(str, sources),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise PeerError(f"javac against {client} failed\n{done.stderr}{done.stdout}")
        _move_into_place(unfinished, classes)
    return classes


def _tool(name: str) -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and name != "mvn" and (path := shutil.which(name, path=str(Path(home) / "bin"))):
        return path
    return shutil.which(name)


def need(name: str) -> str:
    if path := _tool(name):
        return path
    raise PeerError(f"{name} is not installed")


def _server_name(version: str) -> str:
    return f"{version}/server"


def _client_name(version: str) -> str:
    return f"{version}/client"


def _cached_class_path(name: str) -> str | None:
    file = CACHE / f"{name}.classpath"
    if not file.is_file():
        return None
    class_path = file.read_text(encoding="utf-8").strip()
    return class_path if all(map(os.path.exists, class_path.split(os.pathsep))) else None


def _class_path(name: str, version: str, artifacts: tuple[str, ...]) -> str:
    return maven_class_path(name, [(GROUP, artifact, version) for artifact in artifacts])


def maven_class_path(name: str, artifacts: Sequence[tuple[str, str, str]]) -> str:
    """The class path of these artifacts (group, id, version) with all that they need, kept under that name."""
    if cached := _cached_class_path(name):
        return cached
    file = CACHE / f"{name}.classpath"
    project = CACHE / f"{name}-pom"
    project.mkdir(parents=True, exist_ok=True)
    with (CACHE / "maven.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Maven's own folder bears no two at a time
        return _cached_class_path(name) or _resolved(name, artifacts, file, project)


def _resolved(name: str, artifacts: Sequence[tuple[str, str, str]], file: Path, project: Path) -> str:
    (project / "pom.xml").write_text(_pom(artifacts), encoding="utf-8")
    unfinished = file.with_suffix(f".{os.getpid()}")
    command = [
        need("mvn"), "-B", "-q", "-f", str(project / "pom.xml"), "dependency:build-classpath",
        "-Dmdep.includeScope=runtime", f"-Dmdep.outputFile={unfinished}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode or not unfinished.is_file():
        raise PeerError(f"Maven could not resolve {name}\n{done.stdout[-4_000:]}{done.stderr[-4_000:]}")
    unfinished.replace(file)
    return file.read_text(encoding="utf-8").strip()


def _pom(artifacts: Sequence[tuple[str, str, str]]) -> str:
    dependencies = "".join(
        f"    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{escape(version)}</version></dependency>\n"
        for group, artifact, version in artifacts
    )
    return f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>rockmq.peers</groupId><artifactId>apache</artifactId><version>1</version><packaging>pom</packaging>
  <build><pluginManagement><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId><version>3.8.1</version>
  </plugin></plugins></pluginManagement></build>
  <dependencies>
{dependencies}  </dependencies>
</project>
"""


def _move_into_place(unfinished: Path, final: Path) -> None:
    try:
        unfinished.rename(final)
    except OSError:
        shutil.rmtree(unfinished)
        if not final.is_dir():  # otherwise another process has compiled the same meanwhile
            raise
