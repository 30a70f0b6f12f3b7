"""Listens, and keeps an eye on its connections."""

import asyncio
import logging
import os
from collections.abc import Callable

from rockmq.base import address
from rockmq.base.errors import ConfigError
from rockmq.base.tasks import Tasks
from rockmq.remoting.connection import Connection

log = logging.getLogger(__name__)

SWEEP_SECONDS = 5.0


class RemotingServer:
    """Serves connections on one or more ports of a bind address.

    `make` builds a connection. One that is silent in both directions for `idle_seconds`, or whose peer doesn't read for as
    long, is closed (NettyServerConfig.serverChannelMaxIdleTimeSeconds). Over `connections_max` new ones are refused.
    """

    def __init__(
        self,
        host: str,
        ports: list[int],
        make: Callable[[Callable[[Connection], None]], Connection],
        *,
        idle_seconds: float = 120.0,
        connections_max: int = 50_000,
        backlog: int = 1024,
    ) -> None:
        self._host = host
        self._ports = ports
        self._make = make
        self._idle_rounds_max = max(1, round(idle_seconds / SWEEP_SECONDS))
        self._connections_max = connections_max
        self._backlog = backlog
        self._servers: list[asyncio.Server] = []
        self._tasks = Tasks()
        self._closing = False
        self.connections: set[Connection] = set()

    async def bind(self) -> None:
        """Take all ports, or none, without accepting yet. Raises ConfigError naming the port that is taken."""
        loop = asyncio.get_running_loop()
        for port in self._ports:
            try:
                server = await loop.create_server(
                    lambda: self._make(self._opened),
                    self._host,
                    port,
                    backlog=self._backlog,
                    reuse_address=True,
                    start_serving=False,
                )
            except OSError as error:
                await self.close()
                where = address.join(self._host, port)
                # asyncio puts a sentence of its own where the system's words should be.
                reason = os.strerror(error.errno) if error.errno else error
                raise ConfigError(f"can't listen on {where}: {reason}") from None
            self._servers.append(server)

    async def start(self) -> None:
        """Accept connections; binds first if that wasn't done. Raises ConfigError as `bind`."""
        if not self._servers:
            await self.bind()
        for server in self._servers:
            await server.start_serving()
        self._tasks.every(SWEEP_SECONDS, self.sweep, "idle sweep")

    @property
    def port(self) -> int:
        """The first bound port; tells which one the system chose when 0 was asked for."""
        return int(self._servers[0].sockets[0].getsockname()[1])

    def _opened(self, connection: Connection) -> None:
        if self._closing:
            # Accepted by the kernel before it stopped listening; nobody would serve it or close it.
            connection.transport.abort()
            return
        if len(self.connections) >= self._connections_max:
            log.warning("refusing %s: %d connections are open, the bound", connection.peer, len(self.connections))
            connection.transport.abort()
            return
        self.connections.add(connection)
        connection.on_close.append(self.connections.discard)

    def sweep(self) -> None:
        """Close what is idle or stalled; called every `SWEEP_SECONDS`."""
        for connection in list(self.connections):
            connection.idle_rounds += 1
            if connection.transport.get_write_buffer_size():
                connection.stalled_rounds += 1
            else:
                connection.stalled_rounds = 0
            if connection.stalled_rounds > self._idle_rounds_max:
                log.warning("cutting off %s: it doesn't read what it is sent", connection.peer)
                connection.transport.abort()
            elif connection.idle_rounds > self._idle_rounds_max:
                log.info("closing the connection from %s: idle", connection.peer)
                connection.transport.close()

    async def close(self) -> None:
        """Stop listening, then close every connection."""
        self._closing = True
        await self._tasks.close()
        for server in self._servers:
            server.close()
        for connection in list(self.connections):
            connection.close()
        # Give what was written a moment to leave; a peer that doesn't read mustn't hold us.
        for _ in range(20):
            if not self.connections:
                break
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.abort()
        self._servers.clear()
