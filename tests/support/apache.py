"""Unmodified Apache RocketMQ as a peer: name server, broker, `mqadmin` and Java clients as real processes.

`available()` tells whether this machine can do it; where the jars come from is in `jars.py`.

    with apache.name_server(directory, 9876) as names, apache.broker(directory, 10911, names.address) as broker:
        apache.mqadmin("clusterList", namesrv=names.address, directory=directory)
        with apache.program("5.5.0", "Producer", f"namesrv={names.address}", "topic=t", directory=directory) as producer:
            producer.wait(60)
"""

import contextlib
import json
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import frames
from tests.support.jars import (
    CACHE,
    CLIENTS,
    GROUP,
    QUICK_START,
    SERVER,
    STORES,
    PeerError,
    available,
    client_class_path,
    compiled,
    container_class_path,
    need,
    proxy_class_path,
    server_class_path,
)
from tests.support.process import LOOPBACK, Process, accepts, free_port

__all__ = [
    "CLIENTS",
    "SERVER",
    "STORES",
    "Heap",
    "Peer",
    "PeerError",
    "Shell",
    "available",
    "broker",
    "broker_file",
    "container",
    "controller",
    "dashboard",
    "invoke",
    "is_registered",
    "mqadmin",
    "name_server",
    "program",
    "proxy",
    "server_class_path",
    "shell",
]

BROKER_NAME = "apache-a"
CLUSTER = "ApacheCluster"
START_TIMEOUT_S = 180
LOOK_S = 3
"""How long a server that may still be starting is waited for until it is looked at again."""

# Reflection into the JDK that Apache's own start scripts and fastjson rely on.
_OPENED = ("java.lang", "java.nio", "java.util", "java.util.concurrent", "sun.nio.ch", "sun.nio.fs", "jdk.internal.ref")
_OFTEN = {"rocketmq.client.rebalance.waitInterval": "1000"}
"""Consumers that miss their first rebalancing, as a member or a topic comes a moment later, wait 20 s for the next one."""
_PATIENT = {"waitTimeMillsInSendQueue": "10000"}
"""A broker refuses what has waited for 200 ms, which on a busy machine it does at any time."""
_TOOLS = Path(__file__).parent / "java" / "tools"
_LOGBACK = """<configuration>
  <statusListener class="org.apache.rocketmq.logging.ch.qos.logback.core.status.NopStatusListener"/>
  <appender name="file" class="org.apache.rocketmq.logging.ch.qos.logback.core.FileAppender">
    <file>${rockmq.log}</file>
    <encoder><pattern>%d{HH:mm:ss.SSS} %p %c{0} %t - %m%n</pattern></encoder>
  </appender>
  <root level="${rocketmq.log.level:-info}"><appender-ref ref="file"/></root>
</configuration>
"""


@dataclass(frozen=True, kw_only=True)
class Heap:
    """Heap sizes of a JVM, in its own spelling, and whether it is to start quickly rather than to be fast after a while.

    The defaults suit tests; a benchmark gives its peer more.
    """

    xms: str = "512m"
    xmx: str = "512m"
    xmn: str = "256m"
    quick: bool = True

    def flags(self) -> list[str]:
        return [f"-Xms{self.xms}", f"-Xmx{self.xmx}", f"-Xmn{self.xmn}", *(QUICK_START if self.quick else ())]


SMALL_HEAP = Heap(xms="64m", xmx="256m", xmn="32m")


@dataclass(frozen=True)
class Peer:
    """A running name server or broker."""

    process: Process
    host: str
    port: int
    log: Path

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        self.process.kill()

    def terminate(self) -> None:
        """End it in order, so that its files are whole; takes a broker some 20 s."""
        self.process.terminate()


@contextlib.contextmanager
def name_server(
    directory: Path,
    port: int,
    *,
    properties: Mapping[str, str] | None = None,
    heap: Heap = SMALL_HEAP,
    jvm: Sequence[str] = (),
    version: str = SERVER,
) -> Iterator[Peer]:
    """Apache's name server on `port`, with its files and logs in `directory`; it answers when this returns."""
    settings = {
        "listenPort": str(port),
        "bindAddress": LOOPBACK,
        "kvConfigPath": str(directory / "kvConfig.json"),
        "configStorePath": str(directory / "namesrv.properties"),
        **(properties or {}),
    }
    with _server(
        "namesrv", "namesrv.NamesrvStartup", directory, LOOPBACK, port, settings, [*heap.flags(), *jvm], version
    ) as peer:
        peer.process.wait_until(lambda: _answers(peer.address), START_TIMEOUT_S, f"answering on {peer.address}")
        yield peer


@contextlib.contextmanager
def broker(
    directory: Path,
    port: int,
    namesrv: str,
    *,
    name: str = BROKER_NAME,
    cluster: str = CLUSTER,
    advertised: str = LOOPBACK,
    properties: Mapping[str, str] | None = None,
    heap: Heap = Heap(),
    jvm: Sequence[str] = (),
    version: str = SERVER,
) -> Iterator[Peer]:
    """Apache's broker on `port` (also binding port - 2 and port + 1), its store in `directory`/store.

    It is registered with `namesrv` and accepts connections when this returns. Started again on the same directory it
    goes on with the same store. `properties` are those of a broker.conf and win over the ones set here; `jvm` are further
    options of the Java command. It binds the loopback address, but the HA port on every interface.
    """
    wanted = {**(_PATIENT if heap.quick else {}), **(properties or {})}
    settings = _broker_settings(directory, port, namesrv, name, cluster, advertised, wanted)
    with _server(
        "broker", "broker.BrokerStartup", directory, advertised, port, settings, [*heap.flags(), *jvm], version
    ) as peer:
        peer.process.wait_until(lambda: accepts(port), START_TIMEOUT_S, f"accepting on {peer.address}")
        peer.process.wait_until(lambda: is_registered(namesrv, peer.address), START_TIMEOUT_S, f"registered with {namesrv}")
        yield peer


@contextlib.contextmanager
def controller(directory: Path, port: int) -> Iterator[Peer]:
    """Apache's controller on `port`, alone in its group; it leads that when this returns."""
    settings = {
        "listenPort": str(port),
        "bindAddress": LOOPBACK,
        "controllerDLegerGroup": "controllers",
        "controllerDLegerPeers": f"n0-{LOOPBACK}:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": str(directory / "controller-store"),
        "configStorePath": str(directory / "controller.properties"),
        "mappedFileSize": str(1 << 20),
    }
    main, flags = "controller.ControllerStartup", SMALL_HEAP.flags()
    with _server("controller", main, directory, LOOPBACK, port, settings, flags, SERVER) as peer:
        peer.process.wait_until(lambda: _leads(peer.address), START_TIMEOUT_S, f"leading on {peer.address}")
        yield peer


@contextlib.contextmanager
def container(directory: Path, port: int, namesrv: str) -> Iterator[Peer]:
    """Apache's process for several brokers, without any, on `port` (also binding port - 2); it accepts connections when this
    returns."""
    settings = {"listenPort": str(port), "bindAddress": LOOPBACK, "namesrvAddr": namesrv}
    main, flags = "container.BrokerContainerStartup", Heap().flags()
    with _server(
        "container", main, directory, LOOPBACK, port, settings, flags, SERVER, class_path=container_class_path()
    ) as peer:
        peer.process.wait_until(lambda: accepts(port), START_TIMEOUT_S, f"accepting on {peer.address}")
        yield peer


def broker_file(directory: Path, port: int, namesrv: str, properties: Mapping[str, str]) -> Path:
    """The configuration of a broker as `broker` starts it, for a container."""
    directory.mkdir(parents=True, exist_ok=True)
    wanted = {**_PATIENT, **properties}
    return _written(
        directory / "broker.conf", _broker_settings(directory, port, namesrv, BROKER_NAME, CLUSTER, LOOPBACK, wanted)
    )


@contextlib.contextmanager
def proxy(
    directory: Path,
    port: int,
    namesrv: str,
    *,
    properties: Mapping[str, str] | None = None,
    heap: Heap = Heap(),
) -> Iterator[Peer]:
    """Apache's proxy for gRPC clients, with a broker inside (its local mode): the address is that for clients, the broker's
    port is a free one. It accepts connections when this returns; its logs and files are as those of `broker`."""
    directory.mkdir(parents=True, exist_ok=True)
    broker_port = free_port(-2, 1)
    broker_settings = _broker_settings(directory, broker_port, namesrv, BROKER_NAME, CLUSTER, LOOPBACK, properties)
    configuration = _written(directory / "broker.conf", broker_settings)
    settings = directory / "rmq-proxy.json"
    settings.write_text(
        json.dumps(
            {
                "rocketMQClusterName": CLUSTER,
                "proxyClusterName": CLUSTER,
                "namesrvAddr": namesrv,
                "grpcServerPort": port,
                "remotingListenPort": free_port(),
                "metricsExporterType": "DISABLE",
            }
        ),
        encoding="utf-8",
    )
    arguments = ["-pm", "local", "-n", namesrv, "-pc", str(settings), "-bc", str(configuration)]
    command = _java(proxy_class_path(), f"{GROUP}.proxy.ProxyStartup", arguments, "proxy", directory, flags=heap.flags())
    with Process("proxy", command, directory, _environment(directory) | {"RMQ_PROXY_HOME": str(directory)}) as process:
        try:
            process.wait_until(lambda: accepts(port), START_TIMEOUT_S, f"accepting on {port}")
            broker_address = f"{LOOPBACK}:{broker_port}"
            process.wait_until(
                lambda: is_registered(namesrv, broker_address), START_TIMEOUT_S, f"its broker registered with {namesrv}"
            )
            yield Peer(process, LOOPBACK, port, directory / "proxy.log")
        finally:
            process.kill()


def is_registered(namesrv: str, broker_address: str) -> bool:
    """Whether the name server lists a broker at `broker_address`."""
    with contextlib.suppress(OSError):
        return f'"{broker_address}"'.encode() in invoke(namesrv, _GET_BROKER_CLUSTER_INFO, timeout_s=LOOK_S).body
    return False


def mqadmin(
    command: str,
    *args: str,
    namesrv: str | None,
    directory: Path,
    timeout_s: float = 120,
    version: str = SERVER,
    system: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run one `mqadmin` command; its exit code is 0 even for most failures, so judge by what it prints."""
    addressed = [command, *(["-n", namesrv] if namesrv else []), *args]
    return subprocess.run(
        _java(
            server_class_path(version), f"{GROUP}.tools.command.MQAdminStartup", addressed, "mqadmin", directory,
            flags=[*SMALL_HEAP.flags(), *(f"-D{key}={value}" for key, value in (system or {}).items())],
        ),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False,
        env=os.environ | _environment(directory),
    )  # fmt: skip


def dashboard(*args: str, directory: Path, timeout_s: float = 240) -> list[tuple[str, Mapping[str, Any]]]:
    """What servers tell Apache's dashboard: its pages with their calls, and for each of them `answer` or `error`.

    The program says what arguments it wants, and what there has to be.
    """
    flags = [*SMALL_HEAP.flags(), *(f"-D{key}={value}" for key, value in _OFTEN.items())]
    done = subprocess.run(
        _java(server_class_path(), str(_TOOLS / "Dashboard.java"), args, "dashboard", directory, flags=flags),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False,
        env=os.environ | _environment(directory),
    )  # fmt: skip
    if done.returncode:
        raise PeerError(f"the dashboard's calls: {done.stderr[-4000:]}")
    return [tuple(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]


class Shell:
    """`mqadmin` in one JVM for many commands, where each would take a second to start by itself."""

    def __init__(self, process: "subprocess.Popen[bytes]", directory: Path) -> None:
        self._process = process
        self.directory = directory

    def __call__(self, command: str, *args: str, namesrv: str | None = None, timeout_s: float = 60) -> str:
        """What a command prints, errors and stack traces included. Raises PeerError when it doesn't end, or ends the JVM."""
        words = [command, *(["-n", namesrv] if namesrv else []), *args]
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        watchdog = threading.Timer(timeout_s, self._process.kill)
        watchdog.start()
        try:
            stdin.write("\t".join(words).encode() + b"\n")
            stdin.flush()
            size = stdout.readline()
            if not size.endswith(b"\n"):
                raise PeerError(f"mqadmin {' '.join(words)} has ended the JVM, or took over {timeout_s:g} s")
            return _exactly(stdout.read(int(size)), int(size)).decode()
        except BrokenPipeError:
            said = (self.directory / "shell.err").read_text(errors="replace")[-2000:]
            raise PeerError(f"the JVM of mqadmin had ended before {' '.join(words)}: {said}") from None
        finally:
            watchdog.cancel()


@contextlib.contextmanager
def shell(directory: Path, version: str = SERVER) -> Iterator[Shell]:
    """`mqadmin` for many commands."""
    flags = [*SMALL_HEAP.flags(), *(f"-D{key}={value}" for key, value in _OFTEN.items())]
    command = _java(server_class_path(version), str(_TOOLS / "Mqadmin.java"), [], "shell", directory, flags=flags)
    environment = os.environ | _environment(directory)
    with (
        (directory / "shell.err").open("wb") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env=environment, cwd=directory
        ) as process,
    ):
        try:
            yield Shell(process, directory)
        finally:
            process.kill()


def program(
    client: str,
    main: str,
    *args: str,
    directory: Path,
    name: str | None = None,
    system: Mapping[str, str] | None = None,
    heap: Heap = SMALL_HEAP,
    libraries: str | None = None,
) -> Process:
    """Start a Java program of `tests/support/java` on the client of that version, with system properties `system`.

    It runs with other `libraries` than the client's if they are given.
    """
    class_path = os.pathsep.join((str(compiled(client)), libraries or client_class_path(client)))
    name = name or f"{main}-{client}"
    defined = [f"-D{key}={value}" for key, value in (_OFTEN | dict(system or {})).items()]
    flags = [*heap.flags(), *defined]
    return Process(name, _java(class_path, main, args, name, directory, flags=flags), directory, _environment(directory))


def invoke(
    address: str, code: int, fields: Mapping[str, str] | None = None, body: bytes = b"", timeout_s: float = 30
) -> frames.Frame:
    """The answer to one request, which goes as a JSON frame over a connection of its own."""
    header = json.dumps(
        {"code": code, "language": "JAVA", "version": 479, "opaque": 1, "flag": 0, "extFields": dict(fields or {})}
    ).encode()
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
        with connection.makefile("rb") as stream:
            size = _exactly(stream.read(4), 4)
            (rest,) = struct.unpack(">i", size)
            return frames.read(size + _exactly(stream.read(rest), rest))


_GET_BROKER_CLUSTER_INFO = 106
_CONTROLLER_GET_METADATA_INFO = 1005


def _broker_settings(
    directory: Path,
    port: int,
    namesrv: str,
    name: str,
    cluster: str,
    advertised: str,
    properties: Mapping[str, str] | None,
) -> dict[str, str]:
    return {
        "listenPort": str(port),
        "bindAddress": LOOPBACK,
        "brokerIP1": advertised,
        "brokerName": name,
        "brokerClusterName": cluster,
        "brokerId": "0",
        "namesrvAddr": namesrv,
        "storePathRootDir": str(directory / "store"),
        "storePathCommitLog": str(directory / "store" / "commitlog"),
        "mappedFileSizeCommitLog": str(64 << 20),
        # The disk of a test machine is often fuller than the 75% at which a broker starts to refuse messages.
        "diskMaxUsedSpaceRatio": "95",
        **(properties or {}),
    }


@contextlib.contextmanager
def _server(
    name: str,
    main: str,
    directory: Path,
    host: str,
    port: int,
    settings: Mapping[str, str],
    flags: list[str],
    version: str,
    *,
    class_path: str | None = None,
) -> Iterator[Peer]:
    directory.mkdir(parents=True, exist_ok=True)
    if version.startswith("4."):
        # The one place where 4.x looks, and without it doesn't start; its logback isn't a shaded one yet.
        (directory / "conf").mkdir(exist_ok=True)
        configured = _LOGBACK.replace("org.apache.rocketmq.logging.ch.qos", "ch.qos")
        (directory / "conf" / f"logback_{name}.xml").write_text(configured, encoding="utf-8")
    configuration = _written(directory / f"{name}.conf", settings)
    libraries = class_path or server_class_path(version)
    command = _java(libraries, f"{GROUP}.{main}", ["-c", str(configuration)], name, directory, flags=flags)
    with Process(name, command, directory, _environment(directory)) as process:
        try:
            yield Peer(process, host, port, directory / f"{name}.log")
        finally:
            process.kill()  # an orderly end takes this broker 18 s; who wants its files whole calls `terminate`


def _java(
    class_path: str, main: str, args: list[str] | tuple[str, ...], name: str, directory: Path, *, flags: list[str]
) -> list[str]:
    directory.mkdir(parents=True, exist_ok=True)
    return [
        need("java"),
        *flags,
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
        "-Djava.net.preferIPv4Stack=true",
        f"-Djava.io.tmpdir={directory}",  # RocksDB's library, unpacked by each broker, stays when that is killed
        f"-Duser.home={directory}",  # logs and local offsets of every Apache program go below it
        f"-Drockmq.log={directory / name}.log",
        f"-Drmq.logback.configurationFile={_logback()}",
        f"-Drocketmq.client.logRoot={directory}",
        f"-Drocketmq.client.logFileName={name}.log",
        "-cp",
        class_path,
        main,
        *args,
    ]


def _environment(directory: Path) -> dict[str, str]:
    return {"ROCKETMQ_HOME": str(directory), "NAMESRV_ADDR": ""}


def _written(file: Path, settings: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
    return file


def _leads(address: str) -> bool:
    with contextlib.suppress(OSError, PeerError):
        return invoke(address, _CONTROLLER_GET_METADATA_INFO, timeout_s=LOOK_S).fields.get("isLeader") == "true"
    return False


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError, PeerError):
        return invoke(address, _GET_BROKER_CLUSTER_INFO, timeout_s=LOOK_S).is_response
    return False


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise PeerError(f"connection closed after {len(data)} of {size} bytes")
    return data


def _logback() -> Path:
    file = CACHE / "logback.xml"
    if not file.is_file() or file.read_text(encoding="utf-8") != _LOGBACK:
        unfinished = file.with_suffix(f".{os.getpid()}")
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(_LOGBACK, encoding="utf-8")
        unfinished.replace(file)
    return file
