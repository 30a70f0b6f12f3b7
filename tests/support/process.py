"""Child processes of tests: output goes to files, waiting is polling with a deadline, and none outlives its `with`."""

import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

POLL_S = 0.05
LOOPBACK = "127.0.0.1"
# Below the range the kernel hands out by itself, and the demo's, so that a port found free stays free until its server
# binds it.
PORTS = range(12_000, 20_000)

T = TypeVar("T")


class ProcessError(Exception):
    """A child ended or stayed silent when it should not have; the text carries the end of its output."""


def eventually(condition: Callable[[], T | None], timeout_s: float, what: str) -> T:
    """The first result of `condition` that is true; TimeoutError names `what` when none came in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        if result := condition():
            return result
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(POLL_S)


def accepts(port: int, host: str = LOOPBACK) -> bool:
    """Whether something listens there."""
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False


def free_port(*offsets: int) -> int:
    """A port that is free together with its neighbours at `offsets` (a broker also binds port - 2 and port + 1).

    Servers bind later than they are told their port: until all have been given away, nobody else gets it or a neighbour.
    """
    for port in itertools.islice(_ports, len(PORTS)):
        if all(_is_free(port + offset) for offset in (0, *offsets)):
            return port
    raise ProcessError("no free port")


def free_broker_port() -> int:
    """A free port whose fast port (two below) and HA port (one above) are free too."""
    return free_port(-2, 1)


class Process:
    """One running child. Its standard output and error are files `<name>.out` and `<name>.err` in `directory`."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.out = directory / f"{name}.out"
        self.err = directory / f"{name}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=directory,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # a Ctrl-C at the terminal must reach pytest only, which then ends its children
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.terminate()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def running(self) -> bool:
        return self._child.poll() is None

    def lines(self) -> list[str]:
        """The whole lines it has printed so far."""
        return self.out.read_text(encoding="utf-8", errors="replace").rpartition("\n")[0].splitlines()

    def tail(self) -> str:
        """The end of both outputs, for error messages."""
        ends = (
            f"--- {path}\n{path.read_text(encoding='utf-8', errors='replace')[-4_000:]}" for path in (self.out, self.err)
        )
        return "\n".join(ends)

    def wait_until(self, condition: Callable[[], T | None], timeout_s: float, what: str) -> T:
        """As `eventually`, and ProcessError as soon as the child ends without the condition having come true."""

        def met() -> T | None:
            ended = not self.running
            if result := condition():
                return result
            if ended:
                raise ProcessError(f"{self.name} ended with {self._child.returncode} before {what}\n{self.tail()}")
            return None

        try:
            return eventually(met, timeout_s, f"{self.name}: {what}")
        except TimeoutError as error:
            raise ProcessError(f"{error}\n{self.tail()}") from None

    def wait(self, timeout_s: float) -> int:
        """Its exit code; ProcessError when it runs on."""
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ProcessError(f"{self.name} still runs after {timeout_s:g} s\n{self.tail()}") from None

    def terminate(self, timeout_s: float = 60) -> int:
        """Ask it to end (SIGTERM), make it end if it doesn't; its exit code."""
        if self.running:
            self._child.terminate()
            try:
                return self._child.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._child.wait()

    def kill(self) -> None:
        """End it at once (SIGKILL), together with children it may have started."""
        if self.running:
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()


def _turns() -> Iterator[int]:
    """Ports of this process, over and over, four apart; each worker of a run has a share of its own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = PORTS[2::4][worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    # The run of another worktree begins elsewhere; by no seed, as tests set that.
    return itertools.islice(itertools.cycle(share), random.SystemRandom().randrange(len(share)), None)


_ports = _turns()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))  # the HA port of Apache's broker is bound on every interface
        except OSError:
            return False
        return True
