"""Connections to many addresses, opened when first needed and again after a loss (NettyRemotingClient.java)."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from functools import partial

from rockmq.base import address
from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ConnectError, RequestTimeout, ResponseError
from rockmq.base.tasks import shared
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.remoting import socks
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Dispatcher, Handler

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 3.0
CLOSE_TIMEOUT = 1.0
"""How long what was written, and the end of a TLS session, have at the end."""
SILENT_SECONDS = 1.0
"""Silence that is shorter says nothing."""
IPS_MAX = 8
"""IP addresses of one host name that are tried."""


class RemotingClient:
    """Sends requests to addresses; `handlers` answer what servers ask back.

    Host names are resolved at each connect, and all their IP addresses tried in turn. With `tls` connections are
    encrypted, and the server's name is checked as that context says. Servers in the networks of `proxies` are reached by
    these; a name that is has them resolve it. `outgoing` gets each request before it is encoded.
    """

    def __init__(
        self,
        handlers: dict[int, Handler] | None = None,
        clock: Clock | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        proxies: Mapping[str, socks.SocksProxy] | None = None,
        outgoing: Callable[[Command], None] | None = None,
    ) -> None:
        self._dispatch = Dispatcher(handlers or {})
        self._make = partial(Connection, self._dispatch, clock or SystemClock(), outgoing=outgoing)
        self._tls = tls
        self._proxies = socks.SocksProxies(proxies or {})
        self._connections: dict[str, Connection] = {}
        self._retired: set[Connection] = set()
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._closed = False
        self.on_connect: list[Callable[[str, Connection], None]] = []
        self.on_lost: list[Callable[[str], None]] = []

    @property
    def connected(self) -> list[str]:
        """The addresses there is a connection to."""
        return list(self._connections)

    async def invoke(self, to: str, request: Command, timeout: float) -> Command:
        """The response of the server at `to`, whatever its code. Raises ConnectError, ConnectionLost, RequestTimeout.

        A server that is going away (code 1500) is reconnected and asked once more.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        connection = await self.connect(to, min(timeout, CONNECT_TIMEOUT))
        response = await self._invoke(connection, request, self._left(deadline))
        if response.code != ResponseCode.GO_AWAY:
            return response
        self.retire(to, connection)
        connection = await self.connect(to, min(self._left(deadline), CONNECT_TIMEOUT))
        return await self._invoke(connection, request, self._left(deadline))

    @staticmethod
    async def _invoke(connection: Connection, request: Command, timeout: float) -> Command:
        """Cuts a connection on which nothing at all came in the meantime: perhaps the other end is gone without a word, and
        the next request had better find out (NettyRemotingClient's clientCloseSocketIfTimeout)."""
        heard = connection.heard
        try:
            return await connection.invoke(request, timeout)
        except RequestTimeout:
            if connection.heard == heard and timeout >= SILENT_SECONDS:
                connection.transport.abort()
            raise

    async def ask(self, to: str, request: Command, timeout: float) -> Command:
        """As `invoke`, but a response with an error code raises ResponseError."""
        response = await self.invoke(to, request, timeout)
        if response.code != ResponseCode.SUCCESS:
            raise ResponseError(response.code, response.remark, to)
        return response

    async def send_oneway(self, to: str, request: Command, timeout: float = CONNECT_TIMEOUT) -> None:
        """Send a request that isn't answered; waits while the peer doesn't take more. Raises ConnectError."""
        connection = await self.connect(to, timeout)
        await connection.drained()
        connection.send_oneway(request)

    # Connections

    async def connect(self, to: str, timeout: float = CONNECT_TIMEOUT) -> Connection:
        """The open connection to an address, made if there is none; one attempt serves all who ask meanwhile. Raises
        ConnectError."""
        found = self._connections.get(to)
        if found is not None and found.usable:
            return found
        closed = ConnectError(f"can't connect to {to}: this client is closed")
        if self._closed:
            raise closed
        try:
            async with asyncio.timeout(timeout):
                return await shared(self.attempt(to), closed)
        except TimeoutError:
            raise ConnectError(f"can't connect to {to} within {timeout:.2g} s") from None
        except ConnectError as error:
            raise ConnectError(*error.args) from None  # who else waits raises one of their own

    def attempt(self, to: str) -> asyncio.Task[Connection]:
        """The attempt to connect that is under way, or one that begins now; it is shared: don't cancel it."""
        attempt = self._connecting.get(to)
        if attempt is None:
            attempt = self._connecting[to] = asyncio.create_task(self._open(to), name=f"connect to {to}")
            attempt.add_done_callback(partial(self._connect_ended, to))
        return attempt

    def _connect_ended(self, to: str, attempt: asyncio.Task[Connection]) -> None:
        del self._connecting[to]
        if not attempt.cancelled():
            attempt.exception()  # when all who asked have gone away, it is nobody's

    async def _open(self, to: str) -> Connection:
        host, port = address.split(to)
        failures = []
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                ips = [host] if self._proxies.of(host) else (await address.ips(host))[:IPS_MAX]
                share = CONNECT_TIMEOUT / len(ips)
                for ip in ips:
                    try:
                        async with asyncio.timeout(share):
                            return self._opened(to, await self._dial(ip, port, host))
                    except TimeoutError:
                        failures.append((ip, f"no answer within {share:.2g} s"))
                    except OSError as error:
                        failures.append((ip, self._reason(error)))
        except TimeoutError:
            failures.append((host, f"no answer within {CONNECT_TIMEOUT:g} s"))
        except (OSError, UnicodeError) as error:
            failures.append((host, f"the name doesn't resolve: {getattr(error, 'strerror', None) or error}"))
        told = failures[0][1] if len(failures) == 1 else "; ".join(f"{ip}: {reason}" for ip, reason in failures)
        raise ConnectError(f"can't connect to {to}: {told}")

    async def _dial(self, ip: str, port: int, host: str) -> Connection:
        create = asyncio.get_running_loop().create_connection
        server_name = host.partition("%")[0] if self._tls else None
        proxy = self._proxies.of(ip)
        if proxy is None:
            _, connection = await create(self._make, ip, port, ssl=self._tls, server_hostname=server_name)
        else:
            connected = await socks.connect(proxy, ip, port)
            _, connection = await create(self._make, sock=connected, ssl=self._tls, server_hostname=server_name)
        return connection

    def _reason(self, error: OSError) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"its certificate isn't accepted: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            return f"the TLS handshake failed ({error.reason}): does it speak TLS?"
        if self._tls is not None and isinstance(error, ConnectionResetError | ConnectionAbortedError):
            return "the server ended the TLS handshake: does it speak TLS?"
        return error.strerror or str(error)

    def _opened(self, to: str, connection: Connection) -> Connection:
        if self._closed:
            connection.close()
            raise ConnectError(f"can't connect to {to}: this client is closed")
        self._connections[to] = connection
        connection.on_close.append(partial(self._lost, to))
        for callback in self.on_connect:
            callback(to, connection)
        return connection

    def _lost(self, to: str, connection: Connection) -> None:
        if self._connections.get(to) is connection:
            del self._connections[to]
            for callback in self.on_lost:
                callback(to)

    def disconnect(self, to: str) -> None:
        """Cut the connection to an address, if there is one; requests that wait fail with ConnectionLost."""
        connection = self._connections.pop(to, None)
        if connection is not None:
            connection.transport.abort()

    def retire(self, to: str, connection: Connection | None = None) -> None:
        """Use the connection to an address (only if it is this one) no more, and close it when what waits is answered."""
        found = self._connections.get(to)
        if found is not None and (connection is None or found is connection):
            del self._connections[to]
            self._retired.add(found)
            found.on_close.append(self._retired.discard)
            found.retire()

    @staticmethod
    def _left(deadline: float) -> float:
        return max(0.001, deadline - asyncio.get_running_loop().time())

    async def close(self) -> None:
        """Close every connection; requests that wait fail with ConnectionLost."""
        self._closed = True
        self._dispatch.close()
        attempts = list(self._connecting.values())
        leaving = [connection for connection in (*self._connections.values(), *self._retired) if not connection.lost]
        self._connections.clear()
        for attempt in attempts:
            attempt.cancel()
        for connection in leaving:
            connection.close()
        await asyncio.gather(*attempts, *(connection.gone(CLOSE_TIMEOUT) for connection in leaving), return_exceptions=True)
