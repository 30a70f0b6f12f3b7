"""The name server, assembled. It knows nothing of other name servers: brokers register with each of them."""

import logging
from pathlib import Path
from typing import cast

from rockmq.base import address
from rockmq.base.clock import Clock, SystemClock
from rockmq.base.tasks import Tasks
from rockmq.config.namesrv import NamesrvOptions
from rockmq.namesrv.handlers import Handlers
from rockmq.namesrv.kv import KVConfig
from rockmq.namesrv.route_table import RouteTable
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Dispatcher
from rockmq.remoting.server import RemotingServer

log = logging.getLogger(__name__)

KV_LOG_SECONDS = 600.0


class NameServer:
    def __init__(self, options: NamesrvOptions, clock: Clock | None = None) -> None:
        self._options = options
        clock = clock or SystemClock()
        self._table = RouteTable(clock)
        self._kv = KVConfig(Path(options.files.kv_config_path))
        self._dispatcher = Dispatcher(Handlers(options, clock, self._table, self._kv).by_code())
        network = options.network
        self._server = RemotingServer(
            network.bind_address,
            [network.listen_port],
            lambda: Connection(self._dispatcher, clock),
            clock,
            idle_seconds=network.server_channel_max_idle_time_seconds,
            connections_max=network.connections_max,
            backlog=network.server_socket_backlog,
        )
        self._tasks = Tasks()

    async def start(self) -> None:
        """Listen. Raises ConfigError naming the port when it is taken."""
        self._kv.load()
        await self._server.start()
        interval = self._options.routes.scan_not_active_broker_interval / 1000
        self._tasks.every(interval, self.expire_brokers, "scan for silent brokers")
        self._tasks.every(KV_LOG_SECONDS, self._kv.log_all, "log of the key-value configuration")
        log.info("the name server listens on %s", self.address)

    def expire_brokers(self) -> None:
        """Forget silent brokers and close their connections; called every `scanNotActiveBrokerInterval`."""
        for connection in self._table.expire():
            cast("Connection", connection).close()

    @property
    def port(self) -> int:
        """The bound port; tells which one the system chose when 0 was asked for."""
        return self._server.port

    @property
    def address(self) -> str:
        """`host:port` that this machine reaches it at; loopback when it listens on every interface."""
        host = self._options.network.bind_address
        anywhere = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}
        return address.join(anywhere.get(host, host), self.port)

    async def close(self) -> None:
        """Stop listening and close every connection."""
        await self._tasks.close()
        self._dispatcher.close()
        await self._server.close()
