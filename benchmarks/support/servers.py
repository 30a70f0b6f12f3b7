"""The servers that are compared, started as a user would start them, each with its data in a directory of its own."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.support.loadgen import Generator
from tests.support import apache, server
from tests.support.process import free_broker_port, free_port

GIB = 1 << 30
PROBE_S = 90
FAVOURED_NICE = -19
# Apache caps a pull at 32 messages and 256 KiB; the row of 1,000 asks for more, so the caps are raised for it.
APACHE_LIMITS = {
    "maxTransferCountOnMessageInMemory": "1000",
    "maxTransferBytesOnMessageInMemory": str(8 << 20),
    "mappedFileSizeCommitLog": str(GIB),
}


@dataclass(frozen=True, kw_only=True)
class BenchHeap(apache.Heap):
    """The heap of Apache's own `runbroker.sh`, halved to what two cores and 24 GiB carry."""

    xms: str = "4g"
    xmx: str = "4g"
    xmn: str = "2g"
    quick: bool = False

    def flags(self) -> list[str]:
        return [*super().flags(), "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m", "-XX:G1ReservePercent=25"]


@dataclass(frozen=True)
class Contestant:
    """A running broker. `start_s` is from exec to the first message it accepted."""

    name: str
    address: str
    broker_pid: int
    """The process whose CPU is measured; its children count too."""
    name_server_pid: int | None
    """The name server, when that is a process apart."""
    start_s: float
    directory: Path
    key: Mapping[str, str]
    """What the generator signs with, of a broker that asks for it."""

    @property
    def pids(self) -> list[int]:
        return process_tree(self.broker_pid)

    @property
    def all_pids(self) -> list[int]:
        roots = [self.broker_pid, *([self.name_server_pid] if self.name_server_pid else [])]
        return [pid for root in roots for pid in process_tree(root)]

    def memory(self) -> "Memory":
        return sum((Memory.of(pid) for pid in self.all_pids), start=Memory(0, 0))

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Doing nothing meanwhile: what a server does when idle shall not slow down the one that is measured."""
        pids = self.all_pids
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


@dataclass(frozen=True)
class Memory:
    """Resident bytes: all of them, and those that no file backs."""

    total: int
    anonymous: int

    def __add__(self, other: "Memory") -> "Memory":
        return Memory(self.total + other.total, self.anonymous + other.anonymous)

    @classmethod
    def of(cls, pid: int) -> "Memory":
        sizes = {}
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]:
            key, kib, *_ = line.split()
            sizes[key] = int(kib) * 1024
        return cls(sizes["Rss:"], sizes["Anonymous:"])


def process_tree(root: int) -> list[int]:
    """`root` and every process below it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            parent = int(stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def favour(pid: int, nice: int = FAVOURED_NICE) -> None:
    """Let a process and its session run before the others on a busy machine; needs root.

    Sessions are groups to the scheduler, and the nice value of a process counts only within its own.
    """
    group = Path(f"/proc/{pid}/autogroup")
    if group.exists():
        group.write_text(str(nice), encoding="ascii")
    else:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)


@contextlib.contextmanager
def rockmq(name: str, directory: Path, generator: Generator, settings: Mapping[str, str]) -> Iterator[Contestant]:
    """Name server and broker in one process, as `rockmq serve` starts them."""
    port = free_broker_port()
    address = f"127.0.0.1:{port}"
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    key = _key(settings)
    with _timed(generator, address, key) as started, server.serve(directory, *options, broker_port=port) as running:
        yield Contestant(name, address, running.pid, None, started(), directory, key)


@contextlib.contextmanager
def apache_rocketmq(name: str, directory: Path, generator: Generator, settings: Mapping[str, str]) -> Iterator[Contestant]:
    """Apache's name server, and then its broker; only the broker's start is timed and only its CPU is measured."""
    port = free_broker_port()
    with apache.name_server(directory / "namesrv", free_port()) as names:
        address = f"127.0.0.1:{port}"
        key = _key(settings)
        with _timed(generator, address, key) as started, apache.broker(
            directory / "broker", port, names.address, properties={**settings, **APACHE_LIMITS}, heap=BenchHeap()
        ) as broker:  # fmt: skip
            yield Contestant(name, address, broker.pid, names.pid, started(), directory, key)


def _key(settings: Mapping[str, str]) -> Mapping[str, str]:
    return KEY if "authenticationEnabled" in settings else {}


@contextlib.contextmanager
def _timed(generator: Generator, address: str, key: Mapping[str, str]) -> Iterator[Callable[[], float]]:
    """Watch for the first accepted message from now on; the result tells how many seconds it took."""
    probe = generator.probe(address, PROBE_S, key)
    start = time.monotonic_ns()
    try:
        yield lambda: (generator.accepted(probe, PROBE_S + 10).accepted_monotonic_ns - start) / 1e9
    finally:
        if probe.poll() is None:
            probe.kill()
        probe.wait()


ASYNC = {"flushDiskType": "ASYNC_FLUSH", "enablePropertyFilter": "true"}
SYNC = {"flushDiskType": "SYNC_FLUSH"}
KEY = {"access_key": "bench", "secret_key": "12345678"}
ACL = {
    **ASYNC,
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"bench","password":"12345678"}',
}
# Apache's broker has no place for users and rules unless it is told of one.
APACHE_ACL = {
    **ACL,
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider",
}
CONTESTANTS = {
    "ours": (rockmq, ASYNC),
    "ours-sync": (rockmq, SYNC),
    "ours-acl": (rockmq, ACL),
    "ours-many": (rockmq, ASYNC),
    "ours-timers": (rockmq, ASYNC),
    # At the rate of single sends the log grows by some 30 MB a second. By default at most ten files are deleted every 10 s:
    # a third of those that are made, and not in each run.
    "ours-rolling": (
        rockmq,
        {
            **ASYNC,
            "mappedFileSizeCommitLog": str(8 << 20),
            "retentionBytes": str(128 << 20),
            "cleanResourceInterval": "1000",
        },
    ),
    "apache": (apache_rocketmq, ASYNC),
    "apache-sync": (apache_rocketmq, SYNC),
    "apache-acl": (apache_rocketmq, APACHE_ACL),
    "apache-many": (apache_rocketmq, ASYNC),
}


class Fleet:
    """The servers running now. Those a row doesn't need are stopped before it."""

    def __init__(self, directory: Path, generator: Generator, favoured: bool = False) -> None:
        self._directory = directory
        self._generator = generator
        self._favoured = favoured
        self._running: dict[str, tuple[contextlib.ExitStack, Contestant]] = {}
        self._started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.ExitStack() as all_of_them:
            for stack, _ in self._running.values():
                all_of_them.enter_context(stack)
            self._running.clear()

    def need(self, names: list[str]) -> list[tuple[Contestant, bool]]:
        """These and no others, and for each whether it was started just now."""
        for name in [name for name in self._running if name not in names]:
            self.stop(name)
        fresh = {name for name in names if name not in self._running}
        for name in names:
            if name in fresh:
                self._running[name] = self._start(name)
        return [(self._running[name][1], name in fresh) for name in names]

    def stop(self, name: str) -> None:
        if running := self._running.pop(name, None):
            running[0].close()

    def _start(self, name: str) -> tuple[contextlib.ExitStack, Contestant]:
        start, settings = CONTESTANTS[name]
        self._started += 1
        directory = self._directory / f"{self._started}-{name}"
        with contextlib.ExitStack() as stack:
            contestant = stack.enter_context(start(name, directory, self._generator, settings))
            if self._favoured:
                for pid in contestant.pids:
                    favour(pid)
            return stack.pop_all(), contestant
