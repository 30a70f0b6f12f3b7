"""Servers as processes: options, logging, the ready line, signals, the exit code."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import typer

from rockmq.broker.server import Broker
from rockmq.cli import logs
from rockmq.config import properties
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import load
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


def both(data: Path, host: str, namesrv_port: int, broker_port: int, settings: Sequence[str], verbose: int) -> int:
    """`rockmq serve`"""
    logs.to_stderr(verbose)
    given = properties.arguments(settings)

    def make(failed: Failed) -> Server:
        return Server(
            data, host=host, namesrv_port=namesrv_port, broker_port=broker_port, properties=given, on_failure=failed
        )

    return _run(make, lambda server: f"namesrv={server.namesrv} broker={server.broker} data={server.data}")


def namesrv(config: Path | None, host: str | None, port: int | None, settings: Sequence[str], verbose: int) -> int:
    """`rockmq namesrv`"""
    logs.to_stderr(verbose)
    options = load(NamesrvOptions, _merged(config, {"bindAddress": host, "listenPort": port}, settings))
    return _run(lambda failed: NameServer(options), lambda server: f"namesrv={server.address}")


def broker(config: Path | None, name_servers: str | None, settings: Sequence[str], verbose: int) -> int:
    """`rockmq broker`"""
    logs.to_stderr(verbose)
    options = load(BrokerOptions, _merged(config, {"namesrvAddr": name_servers}, settings))
    if not options.identity.namesrv_addr:
        log.warning("no name server is configured (namesrvAddr, --namesrv, NAMESRV_ADDR): clients won't find this broker")
    data = os.path.abspath(options.store.store_path_root_dir)
    return _run(lambda failed: Broker(options, on_failure=failed), lambda server: f"broker={server.address} data={data}")


def _merged(config: Path | None, options: Mapping[str, object], settings: Sequence[str]) -> dict[str, str]:
    """The file's keys, then the options that were given, then `--set`."""
    found = properties.read_file(config) if config is not None else {}
    found.update({key: str(value) for key, value in options.items() if value is not None})
    return found | properties.arguments(settings)


def _run(make: Callable[[Failed], R], ready: Callable[[R], str]) -> int:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_serve(make, ready))


async def _serve(make: Callable[[Failed], R], ready: Callable[[R], str]) -> int:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    failures: list[BaseException] = []

    def failed(cause: BaseException) -> None:
        failures.append(cause)
        ended.set()

    # From the first moment on: who starts a server and thinks better of it shall not leave a store half closed.
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    server = make(failed)
    await server.start()
    try:
        typer.echo(f"ready {ready(server)}")
        await ended.wait()
    finally:
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
