"""RockMQ itself as a real process: `rockmq serve` on free loopback ports, started, killed and started again."""

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.process import LOOPBACK, Process, free_broker_port, free_port

START_TIMEOUT_S = 120
_READY = re.compile(r"^ready (?P<fields>.*)$")


@dataclass(frozen=True)
class Server:
    """What a `rockmq serve` or `rockmq namesrv` said when it was ready. Addresses are host:port."""

    process: Process
    namesrv: str
    broker: str
    data: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        """End it as a crash would (SIGKILL)."""
        self.process.kill()

    def terminate(self) -> None:
        """End it in order."""
        self.process.terminate()


@contextlib.contextmanager
def serve(
    directory: Path,
    *arguments: str,
    namesrv_port: int | None = None,
    broker_port: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Name server and broker with their data in `directory`/data and what they print in `directory`.

    Given the same directory and ports it goes on where it was.
    """
    data = directory / "data"
    options = {
        "--data": str(data),
        "--namesrv-port": str(namesrv_port or free_port()),
        "--broker-port": str(broker_port or free_broker_port()),
    }
    with _started("serve", options, arguments, directory, environment) as (process, fields):
        yield Server(process, fields["namesrv"], fields["broker"], data)


@contextlib.contextmanager
def name_server(directory: Path, *arguments: str, port: int | None = None) -> Iterator[Server]:
    """A name server alone; its `broker` address is empty."""
    options = {"--host": LOOPBACK, "--port": str(port or free_port())}
    with _started("namesrv", options, arguments, directory, None) as (process, fields):
        yield Server(process, fields["namesrv"], "", directory)


@contextlib.contextmanager
def broker(directory: Path, configuration: Path, *arguments: str) -> Iterator[Server]:
    """A broker alone, started from a broker.conf; its `namesrv` address is empty."""
    with _started("broker", {"--config": str(configuration)}, arguments, directory, None) as (process, fields):
        yield Server(process, "", fields["broker"], Path(fields["data"]))


@contextlib.contextmanager
def _started(
    role: str,
    options: Mapping[str, str],
    arguments: Sequence[str],
    directory: Path,
    environment: Mapping[str, str] | None,
) -> Iterator[tuple[Process, dict[str, str]]]:
    command = [str(command_path()), role, *(word for option in options.items() for word in option), *arguments]
    with Process(f"rockmq-{role}", command, directory, environment) as process:
        ready = process.wait_until(lambda: _ready(process), START_TIMEOUT_S, "saying that it is ready")
        yield process, ready


def command_path() -> Path:
    """The `rockmq` command of the environment the tests run in."""
    return Path(sys.executable).with_name("rockmq")


def _ready(process: Process) -> dict[str, str] | None:
    for line in process.lines():
        if found := _READY.match(line):
            return dict(field.split("=", 1) for field in found["fields"].split(" ") if "=" in field)
    return None
