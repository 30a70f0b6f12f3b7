"""`rockmq serve` as a child process that can be killed and started again on the same data and ports."""

import contextlib
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from rockmq.base.errors import ConfigError

LOOPBACK = "127.0.0.1"
READY_TIMEOUT = 30.0
STOP_TIMEOUT = 30.0
# Small files, so that the log rolls over on the way and the demo's folder stays small.
LOG_FILE_SIZE = 32 << 20
# Below the range from which the kernel hands out ports, so that these are still free at the second start.
_PORTS = range(20_000, 32_000)
FAST_PORT_BELOW = 2


class Server:
    """The server, from `with` to its end; `namesrv` is its address."""

    def __init__(self, data: Path, log: Path) -> None:
        self.data = data
        self._log = log
        self._ports = _free_port(), _free_port(FAST_PORT_BELOW)
        self.namesrv = f"{LOOPBACK}:{self._ports[0]}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Start and wait until clients can come; the seconds that took. Raises ConfigError when it doesn't come up."""
        started = time.monotonic()
        command = [sys.executable, "-m", "rockmq.cli", "serve", "--data", str(self.data), "-v"]
        command += ["--namesrv-port", str(self._ports[0]), "--broker-port", str(self._ports[1])]
        command += ["--set", f"mappedFileSizeCommitLog={LOG_FILE_SIZE}"]
        with self._log.open("a") as log:
            # A session of its own: Ctrl-C must reach the demo alone, which then ends its children in order.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        assert self._process.stdout is not None
        with self._process.stdout as out:
            line = out.readline()  # the only one it prints
        if not line.startswith("ready "):
            raise ConfigError(f"the server did not start, see {self._log}: {self._log.read_text()[-500:].strip()}")
        return time.monotonic() - started

    def kill(self) -> None:
        """SIGKILL: no chance to write anything any more."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int | None:
        """End it in order; its exit code, None when it had to be killed."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return None

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()


def _free_port(*below: int) -> int:
    """A port that is free, and those so far below it too."""
    for port in _shuffled():
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for each in (port, *(port - distance for distance in below)):
                stack.enter_context(socket.socket()).bind((LOOPBACK, each))
            return port
    raise ConfigError(f"no free port among {_PORTS.start} to {_PORTS.stop - 1}")


def _shuffled() -> Iterator[int]:
    return iter(random.sample(_PORTS, len(_PORTS)))
