"""Servers as processes: options, logging, the ready line, signals, the exit code."""

import asyncio
import gc
import logging
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import typer

from rockmq.base.clock import SystemClock
from rockmq.base.logs import FLOOD_SECONDS, Flood, louder
from rockmq.base.tasks import Tasks
from rockmq.broker.server import Broker
from rockmq.cli import logs
from rockmq.config import properties
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import Role as Options
from rockmq.config.key import dump, load
from rockmq.config.namesrv import NamesrvOptions
from rockmq.embedded import Server
from rockmq.namesrv.server import NameServer

log = logging.getLogger(__name__)

Failed = Callable[[BaseException], None]


class Role(Protocol):
    """Anything that serves."""

    async def start(self) -> None: ...
    async def close(self) -> None: ...


R = TypeVar("R", bound=Role)


class Logging(NamedTuple):
    """How a server logs, as asked for."""

    verbose: int
    json: bool

    def begin(self) -> Flood:
        flood = Flood(SystemClock())
        logs.to_stderr(self.verbose, json=self.json).addFilter(flood)
        return flood


def both(data: Path, host: str, namesrv_port: int, broker_port: int, settings: Sequence[str], lines: Logging) -> int:
    """`rockmq serve`"""
    flood = lines.begin()
    given = properties.arguments(settings)

    def make(failed: Failed) -> Server:
        return Server(
            data, host=host, namesrv_port=namesrv_port, broker_port=broker_port, properties=given, on_failure=failed
        )

    return _run(make, lambda server: f"namesrv={server.namesrv} broker={server.broker} data={server.data}", flood)


def namesrv(
    config: Path | None, host: str | None, port: int | None, settings: Sequence[str], lines: Logging, *, shown: bool
) -> int:
    """`rockmq namesrv`"""
    flood = lines.begin()
    options = load(NamesrvOptions, _from_file(config) | _given({"bindAddress": host, "listenPort": port}, settings))
    if shown:
        return _show(options)
    return _run(lambda failed: NameServer(options), lambda server: f"namesrv={server.address}", flood)


def broker(config: Path | None, name_servers: str | None, settings: Sequence[str], lines: Logging, *, shown: bool) -> int:
    """`rockmq broker`"""
    flood = lines.begin()
    given = _given({"namesrvAddr": name_servers}, settings)
    options = load(BrokerOptions, _from_file(config) | given)
    if shown:
        return _show(options)
    if not options.identity.namesrv_addr:
        log.warning("no name server is configured (namesrvAddr, --namesrv, NAMESRV_ADDR): clients won't find this broker")
    data = os.path.abspath(options.store.store_path_root_dir)
    return _run(
        lambda failed: Broker(options, on_failure=failed, config_file=config, overridden=given.keys()),
        lambda server: f"broker={server.address} data={data}",
        flood,
    )


def _show(options: Options) -> int:
    """The configuration that would hold, as a file would say it; secrets are masked."""
    typer.echo(properties.write(dump(options)), nl=False)
    return 0


def _from_file(config: Path | None) -> dict[str, str]:
    return properties.read_file(config) if config is not None else {}


def _given(options: Mapping[str, object], settings: Sequence[str]) -> dict[str, str]:
    """What holds whatever the file says: the options that were given, then `--set`."""
    found = {key: str(value) for key, value in options.items() if value is not None}
    return found | properties.arguments(settings)


def _run(make: Callable[[Failed], R], ready: Callable[[R], str], flood: Flood) -> int:
    _open_more_files()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(make, ready, flood))
    finally:
        flood.tell(everything=True)


def _open_more_files() -> None:
    """Each connection takes one, and shells, services and containers begin with few."""
    few, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if few == most:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ValueError, OSError) as error:  # a sandbox may forbid it, and a system have less than its limit says
        log.warning("this process may open %d files, and not the %d of its hard limit (ulimit -n): %s", few, most, error)


async def _serve(make: Callable[[Failed], R], ready: Callable[[R], str], flood: Flood) -> int:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    failures: list[BaseException] = []

    def failed(cause: BaseException) -> None:
        failures.append(cause)
        ended.set()

    # From the first moment on: who starts a server and thinks better of it shall not leave a store half closed.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    loop.add_signal_handler(signal.SIGUSR1, louder)
    server = make(failed)
    async with Tasks() as tasks:
        tasks.every(FLOOD_SECONDS, flood.tell, "ends of floods in the log")
        await server.start()
        try:
            # What is here now stays; a search for garbage in it took 30 ms, in which everybody waited.
            gc.collect()
            gc.freeze()
            typer.echo(f"ready {ready(server)}")
            await ended.wait()
        finally:
            gc.unfreeze()
            await server.close()
    # Also one that comes while it stops: what it says was saved may not be.
    if failures:
        typer.echo(f"rockmq: the store failed, so this broker ended: {failures[0]}", err=True)
    return 1 if failures else 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
