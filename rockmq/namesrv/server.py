"""The name server, assembled. It knows nothing of other name servers: brokers register with each of them."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from rockmq.base import address, logs
from rockmq.base.clock import Clock, SystemClock
from rockmq.base.tasks import Tasks
from rockmq.config.metrics import Exporter
from rockmq.config.namesrv import NamesrvOptions
from rockmq.metrics import names
from rockmq.metrics.samples import Sample
from rockmq.metrics.site import Site
from rockmq.namesrv.handlers import Handlers
from rockmq.namesrv.kv import KVConfig
from rockmq.namesrv.route_table import RouteTable
from rockmq.protocol import codec
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Dispatcher
from rockmq.remoting.figures import requests
from rockmq.remoting.server import RemotingServer
from rockmq.remoting.tls import Certificates

log = logging.getLogger(__name__)

KV_LOG_SECONDS = 600.0
METRICS_PORT = 5558


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
            certificates=Certificates(options.tls),
        )
        self._tasks = Tasks()
        self._site = _site(options, clock)

    @property
    def request_codes(self) -> frozenset[int]:
        """The requests it answers."""
        return self._dispatcher.codes

    async def start(self) -> None:
        """Listen. Raises ConfigError naming the port when it is taken."""
        if self._options.logs.log_level is not None:
            logs.set_level(self._options.logs.log_level)
        self._kv.load()
        if self._site is not None:
            await self._site.start()
        try:
            await self._server.start()
        except BaseException:
            if self._site is not None:
                await self._site.close()
            raise
        if self._site is not None:
            self._site.samples = self._samples
            self._site.hindrances = list
        interval = self._options.routes.scan_not_active_broker_interval / 1000
        self._tasks.every(interval, self.expire_brokers, "scan for silent brokers")
        self._tasks.every(KV_LOG_SECONDS, self._kv.log_all, "log of the key-value configuration")
        log.info("the name server listens on %s", self.address)

    def expire_brokers(self) -> None:
        """Forget silent brokers and close their connections; called every `scanNotActiveBrokerInterval`."""
        for connection in self._table.expire():
            cast("Connection", connection).close()

    def _samples(self) -> Iterator[Sample]:
        for cluster, count in self._table.brokers_by_cluster().items():
            yield names.BROKERS, (cluster,), count
        yield names.ROUTED_TOPICS, (), self._table.topic_count
        yield names.EXPIRED, (), self._table.expired
        yield from requests(self._dispatcher)
        yield names.CONNECTIONS, (), self._server.connection_count
        yield names.TURNS, (), self._server.turns
        yield names.BUILD, (codec.SOFTWARE_VERSION,), 1

    @property
    def metrics_address(self) -> str:
        """Where metrics are, `host:port`; empty if there are none."""
        return self._site.address if self._site is not None else ""

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
        if self._site is not None:
            await self._site.close()


def _site(options: NamesrvOptions, clock: Clock) -> Site | None:
    metrics = options.metrics
    if metrics.metrics_exporter_type is Exporter.DISABLE:
        return None
    own = {"node_type": "namesrv"}
    return Site(names.NAMESRV, metrics, port=metrics.metrics_port, default_port=METRICS_PORT, own=own, clock=clock)
