"""Name server and broker inside the caller's event loop: for tests, demos and notebooks.

    async with embedded.serve() as server:
        async with Client(server.namesrv) as mq:
            ...

It is the real thing: real ports, real files. Only the files are small, so that a test costs little disk.
"""

import logging
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from rockmq.base import address
from rockmq.base.clock import Clock
from rockmq.base.errors import ConfigError
from rockmq.broker.server import Broker
from rockmq.config.broker import BrokerOptions, Flush
from rockmq.config.key import Role, keys, load
from rockmq.config.namesrv import NamesrvOptions
from rockmq.namesrv.server import NameServer

log = logging.getLogger(__name__)

LOG_FILE_SIZE = 16 << 20
"""Bytes of a log file. Room for it is taken on the disk when it is made, so Apache's gigabyte would be felt."""

_SAID_OTHERWISE = {
    "listenPort": "there are two ports, each with an option of its own",
    "bindAddress": "it is the host",
    "storePathRootDir": "it is the data directory",
    "kvConfigPath": "it is in the data directory",
}


class Server:
    """A name server and a broker registered with it, from `start` to `close`.

    `data` is the broker's store, in which the name server's file has a folder of its own. `properties` are keys of
    broker.conf and namesrv.conf. Port 0 lets the system choose. Raises ConfigError. `on_failure` as in `Broker`.
    """

    def __init__(
        self,
        data: Path,
        *,
        host: str = "127.0.0.1",
        namesrv_port: int = 0,
        broker_port: int = 0,
        properties: Mapping[str, str] | None = None,
        clock: Clock | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.data = Path(os.path.abspath(data))
        common = {"bindAddress": host}
        of_namesrv, of_broker = _shared_out(properties or {})
        kept = str(self.data / "namesrv" / "kvConfig.json")
        self._namesrv_options = load(
            NamesrvOptions, {**of_namesrv, **common, "listenPort": str(namesrv_port), "kvConfigPath": kept}
        )
        # A namesrvAddr from the environment is meant for brokers that have no name server of their own.
        self._more_name_servers = of_broker.pop("namesrvAddr", "")
        self._broker_options = load(
            BrokerOptions,
            {**of_broker, **common, "listenPort": str(broker_port), "storePathRootDir": str(self.data), "namesrvAddr": ""},
        )
        self._clock = clock
        self._on_failure = on_failure
        self._closing = AsyncExitStack()
        self.namesrv = ""
        """Where clients find the name server, `host:port`; known after `start`."""
        self.broker = ""
        """Where clients find the broker, `host:port`; known after `start`."""
        self.metrics = self.namesrv_metrics = ""
        """Where the metrics of the broker and of the name server are, `host:port`; empty without, and before `start`."""

    async def start(self) -> None:
        """Serve. Raises ConfigError; nothing is left running then."""
        try:
            name_server = NameServer(self._namesrv_options, self._clock)
            await name_server.start()
            self._closing.push_async_callback(name_server.close)
            name_servers = ";".join(filter(None, [name_server.address, self._more_name_servers]))
            identity = replace(self._broker_options.identity, namesrv_addr=name_servers)
            broker = Broker(replace(self._broker_options, identity=identity), self._clock, self._on_failure)
            await broker.start()
            self._closing.push_async_callback(broker.close)
            self.metrics, self.namesrv_metrics = broker.metrics_address, name_server.metrics_address
        except BaseException:
            await self.close()
            raise
        self.broker = broker.address
        # Who can reach the broker can reach the name server at the same host, wherever the two are bound.
        self.namesrv = address.join(address.split(broker.address)[0], name_server.port)

    async def close(self) -> None:
        """Stop both, the broker first. Idempotent."""
        closing, self._closing = self._closing, AsyncExitStack()
        await closing.aclose()


@asynccontextmanager
async def serve(
    data: str | os.PathLike[str] | None = None,
    *,
    flush: Flush | str = Flush.SYNC_FLUSH,
    host: str = "127.0.0.1",
    namesrv_port: int = 0,
    broker_port: int = 0,
    properties: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Server]:
    """A server for the length of a block, on free ports and in a temporary folder unless told otherwise.

    `flush` is flushDiskType; `properties` are further keys of broker.conf and namesrv.conf; `clock` owns the time.
    """
    own = {
        "flushDiskType": str(flush),
        "mappedFileSizeCommitLog": str(LOG_FILE_SIZE),
        # Tests also run on a notebook whose disk is nearly full.
        "diskSpaceWarningLevelRatio": "100",
        "diskSpaceCleanForciblyRatio": "100",
        "metricsExporterType": "DISABLE",
    }
    async with AsyncExitStack() as stack:
        if data is None:
            data = stack.enter_context(tempfile.TemporaryDirectory(prefix="rockmq-"))
        server = Server(
            Path(data),
            host=host,
            namesrv_port=namesrv_port,
            broker_port=broker_port,
            properties={**own, **(properties or {})},
            clock=clock,
        )
        await server.start()
        stack.push_async_callback(server.close)
        yield server


def _shared_out(properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The keys of each role, name server's first; one that both know goes to both. Raises ConfigError."""
    of_namesrv, of_broker = {}, {}
    for key, value in properties.items():
        if key in _SAID_OTHERWISE:
            raise ConfigError(f"{key} can't be set here: {_SAID_OTHERWISE[key]}")
        if _knows(NamesrvOptions, key):
            of_namesrv[key] = value
            if not _knows(BrokerOptions, key):
                continue
        of_broker[key] = value  # also what nobody knows: the broker's keys are the more likely to be meant
    return of_namesrv, of_broker


def _knows(role: type[Role], key: str) -> bool:
    return key in keys(role) or key in role.foreign.inert or key in role.foreign.refused
