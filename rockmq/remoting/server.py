"""Listens, serves its connections through the core's reactor, and keeps an eye on them."""

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Callable

from rockmq import _core
from rockmq.base import address
from rockmq.base.clock import Clock
from rockmq.base.errors import ConfigError
from rockmq.base.tasks import Tasks
from rockmq.protocol.codec import FRAME_SIZE_MAX
from rockmq.remoting import tls
from rockmq.remoting.connection import Connection

log = logging.getLogger(__name__)

SWEEP_SECONDS = 5.0
ACCEPT_PAUSE_SECONDS = 1.0
"""How long no connection is accepted when the system has no file descriptor left for one."""
FILES_KEPT = 200
"""File descriptors that no connection gets: a store that can't open its next file ends."""
HANDSHAKE_SECONDS = 10.0
"""What a TLS handshake may take."""
REFUSALS_LOGGED = 10
"""Connections whose refusal is told by name between two sweeps."""

ROUNDS = 4
"""How often sockets are served before the event loop gets a turn."""


class _Seen:
    """What the sweeps have seen of a connection."""

    __slots__ = ("handshake_rounds", "idle_rounds", "progress", "stalled_rounds", "transport")

    def __init__(self, transport: "_core.Transport") -> None:
        self.transport = transport
        self.progress = 0
        self.idle_rounds = 0
        self.handshake_rounds = 0
        self.stalled_rounds = 0


class RemotingServer:
    """Serves connections on one or more ports of a bind address.

    `make` builds a connection. One that is silent in both directions for `idle_seconds`, or whose peer takes longer to send
    a frame or to read what it is sent, is closed (NettyServerConfig.serverChannelMaxIdleTimeSeconds). Over `connections_max`
    new ones are refused, and over what the system lets the process open (RLIMIT_NOFILE, as at the start) less `FILES_KEPT`.
    Without `certificates` nobody can speak TLS.
    """

    def __init__(
        self,
        host: str,
        ports: list[int],
        make: Callable[[], Connection],
        clock: Clock,
        *,
        idle_seconds: float = 120.0,
        connections_max: int = 50_000,
        backlog: int = 1024,
        certificates: tls.Certificates | None = None,
    ) -> None:
        self._host = host
        self._ports = ports
        self._make = make
        self._now_ms = clock.now_ms
        self._idle_seconds = idle_seconds
        self._idle_rounds_max = max(1, round(idle_seconds / SWEEP_SECONDS))
        self._connections_max = connections_max
        self._files_max = 0
        self._backlog = backlog
        self._certificates = certificates
        self._tls: _core.Tls | None = None
        self._refusals = 0
        self._listeners: list[socket.socket] = []
        self._reactor: _core.Reactor | None = None
        self._tasks = Tasks()
        self._connections: dict[Connection, _Seen] = {}
        self.turns = 0
        """How often the reactor was asked."""

    async def bind(self) -> None:
        """Take all ports, or none, without accepting yet. Raises ConfigError naming the port that is taken, or what is wrong
        with certificates."""
        if self._certificates is not None:
            self._tls = self._certificates.load()
        for port in self._ports:
            try:
                await self._bind(port)
            except OSError as error:
                await self.close()
                where = address.join(self._host, port)
                # A resolver's error has words but no number of the system's.
                reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
                raise ConfigError(f"can't listen on {where}: {reason}") from None

    async def _bind(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self._host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, where in dict.fromkeys((family, where) for family, _, _, _, where in found):
            self._listeners.append(listener := socket.socket(family, socket.SOCK_STREAM))
            listener.setblocking(False)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(where)

    async def start(
        self, store: "_core.Store | None" = None, *, replies_at_once: bool = False, is_guarded: bool = False
    ) -> None:
        """Accept connections; binds first if that wasn't done. Raises ConfigError as `bind`.

        Ordinary sends are appended to `store` by the core, and their replies written by it: at once, or by `release`. With
        `is_guarded` only those are ordinary that `Connection.vouch` says it of.
        """
        if not self._listeners:
            await self.bind()
        self._files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._reactor = _core.Reactor(store, FRAME_SIZE_MAX, replies_at_once, is_guarded)
        if self._certificates is not None:
            self._reactor.secure(self._tls, self._certificates.takes_plain)
            self._tasks.every(tls.LOOK_SECONDS, self.look, "certificates")
        asyncio.get_running_loop().add_reader(self._reactor.fileno(), self._serve)
        for listener in self._listeners:
            listener.listen(self._backlog)
            self._accept_from(listener)
        self._tasks.every(SWEEP_SECONDS, self.sweep, "idle sweep")

    def release(self, position: int) -> None:
        """Everything below `position` is durable now: write the replies that the core holds for that."""
        if self._reactor is not None:
            self._reactor.release(position)

    def revoke(self) -> None:
        """End what connections have vouched for."""
        if self._reactor is not None:
            self._reactor.revoke()

    def overdue(self, sweeps: int) -> list[tuple[Connection, bytes]]:
        """Replies that the core held during as many calls of this, which it forgets."""
        return self._reactor.overdue(sweeps) if self._reactor is not None else []

    @property
    def held(self) -> int:
        """Chunks of replies that the core holds."""
        return self._reactor.held if self._reactor is not None else 0

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    @property
    def port(self) -> int:
        """The first bound port; tells which one the system chose when 0 was asked for."""
        return int(self._listeners[0].getsockname()[1])

    @property
    def connections(self) -> list[Connection]:
        """Those that are open."""
        return list(self._connections)

    def _accept_from(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(self._backlog):
            try:
                accepted, name = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("can't accept connections for now: %s; %d are open", error.strerror, len(self._connections))
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(ACCEPT_PAUSE_SECONDS, self._accept_from, listener)
                return
            self._open(accepted, address.to_bytes(name[0], name[1]))

    def _open(self, accepted: socket.socket, peer_host: bytes) -> None:
        if (why := self._no_room(accepted)) is not None:
            self._refused(address.join(*address.from_bytes(peer_host)), why)
            accepted.close()
            return
        assert self._reactor is not None
        connection = self._make()
        try:
            transport = self._reactor.add(accepted.detach(), peer_host, connection)
        except OSError as error:
            peer = address.join(*address.from_bytes(peer_host))
            log.error("can't serve a connection: %s", error, extra={"peer": peer})
            return
        connection.start(transport, peer_host)
        self._connections[connection] = _Seen(transport)
        connection.on_close.append(self._closed)

    def _no_room(self, accepted: socket.socket) -> str | None:
        """Why there is no room for one more connection."""
        if len(self._connections) >= self._connections_max:
            return f"{len(self._connections)} connections are open, the bound (connectionsMax)"
        # The system gives the lowest number that is free, whatever else this process has open.
        if self._files_max != resource.RLIM_INFINITY and accepted.fileno() >= self._files_max - FILES_KEPT:
            return (
                f"{len(self._connections)} connections are open, and the process may open {self._files_max} files "
                f"(ulimit -n), of which it keeps {FILES_KEPT}"
            )
        return None

    def _refused(self, peer: str, why: str) -> None:
        self._refusals += 1
        if self._refusals <= REFUSALS_LOGGED:
            log.warning("refusing a connection: %s", why, extra={"peer": peer})

    def _closed(self, connection: Connection) -> None:
        del self._connections[connection]

    def _serve(self) -> None:
        # Answering takes long enough for others to become ready; asking again costs less than a turn of the event loop.
        for _ in range(ROUNDS):
            self.turns += 1
            told = self._reactor.poll(self._now_ms()) if self._reactor is not None else None
            if told is None:
                break
            for connection, fed, ended in told:
                self._told(connection, fed, ended)

    def _told(self, connection: Connection, fed: "_core.Fed | None", ended: str | None) -> None:
        try:
            if fed is not None:
                connection.fed(fed)
            else:
                connection.check_waiting()
        except Exception:
            log.exception("closing a connection", extra={"peer": connection.peer})
            connection.transport.abort()
        if ended is not None:
            why = self._connections[connection].transport.refusal
            if why is not None:
                self._refused(connection.peer, why)
            connection.connection_lost(OSError(ended) if ended else None)

    def look(self) -> None:
        """Show and believe new certificates if these have changed; called every `tls.LOOK_SECONDS`."""
        assert self._certificates is not None
        made = self._certificates.look()
        if made is not None and self._reactor is not None:
            self._reactor.secure(made, self._certificates.takes_plain)

    def sweep(self) -> None:
        """Close what is idle, slow or stalled; called every `SWEEP_SECONDS`."""
        if self._refusals > REFUSALS_LOGGED:
            log.warning("refused %d more connections", self._refusals - REFUSALS_LOGGED)
        self._refusals = 0
        for connection, seen in list(self._connections.items()):
            transport = seen.transport
            seen.idle_rounds = seen.idle_rounds + 1 if transport.progress == seen.progress else 0
            seen.handshake_rounds = seen.handshake_rounds + 1 if transport.is_handshaking else 0
            seen.stalled_rounds = seen.stalled_rounds + 1 if transport.get_write_buffer_size() else 0
            seen.progress = transport.progress
            if seen.stalled_rounds > self._idle_rounds_max:
                log.warning("cutting off a connection: it doesn't read what it is sent", extra={"peer": connection.peer})
                transport.abort()
            elif seen.idle_rounds > self._idle_rounds_max:
                log.info("closing a connection: no frame in %g s", self._idle_seconds, extra={"peer": connection.peer})
                transport.close()
            elif seen.handshake_rounds > HANDSHAKE_SECONDS / SWEEP_SECONDS:
                self._refused(connection.peer, f"its TLS handshake takes longer than {HANDSHAKE_SECONDS:g} s")
                transport.abort()

    def stop(self) -> None:
        """Accept no connection and read no request any more; what was asked can still be answered."""
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            loop.remove_reader(listener)
            listener.close()
        self._listeners.clear()
        for connection in self.connections:
            connection.hold_reading()

    async def close(self) -> None:
        """Stop, then close every connection."""
        self.stop()
        await self._tasks.close()
        loop = asyncio.get_running_loop()
        for connection in self.connections:
            connection.close()
        # Give what was written a moment to leave; a peer that doesn't read mustn't hold us.
        for _ in range(20):
            if not self._connections:
                break
            await asyncio.sleep(0.01)
        for connection in self.connections:
            connection.transport.abort()
        if self._reactor is not None:
            for _ in self.connections:  # each turn tells some of them that they are lost
                self._serve()
            loop.remove_reader(self._reactor.fileno())
            self._reactor = None
