"""Connections to many addresses, opened when first needed and again after a loss (NettyRemotingClient.java)."""

import asyncio
import logging
from collections.abc import Callable

from rockmq.base import address
from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ConnectError, ResponseError
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Dispatcher, Handler

log = logging.getLogger(__name__)

CONNECT_TIMEOUT = 3.0


class RemotingClient:
    """Sends requests to addresses; `handlers` answer what servers ask back. Host names are resolved at each connect."""

    def __init__(self, handlers: dict[int, Handler] | None = None, clock: Clock | None = None) -> None:
        self._dispatch = Dispatcher(handlers or {})
        self._clock = clock or SystemClock()
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Lock] = {}
        self._closed = False
        self.on_connect: list[Callable[[str, Connection], None]] = []
        self.on_lost: list[Callable[[str], None]] = []

    async def invoke(self, to: str, request: Command, timeout: float) -> Command:
        """The response of the server at `to`, whatever its code. Raises ConnectError, ConnectionLost, RequestTimeout.

        A server that is going away (code 1500) is reconnected and asked once more.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        connection = await self.connect(to, min(timeout, CONNECT_TIMEOUT))
        response = await connection.invoke(request, self._left(deadline))
        if response.code != ResponseCode.GO_AWAY:
            return response
        self.disconnect(to)
        connection = await self.connect(to, min(self._left(deadline), CONNECT_TIMEOUT))
        return await connection.invoke(request, self._left(deadline))

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

    async def connect(self, to: str, timeout: float = CONNECT_TIMEOUT) -> Connection:
        """The open connection to an address, made if there is none. Raises ConnectError."""
        found = self._connections.get(to)
        if found is not None and not found.lost and not found.transport.is_closing():
            return found
        if self._closed:
            raise ConnectError(f"can't connect to {to}: this client is closed")
        async with self._connecting.setdefault(to, asyncio.Lock()):
            found = self._connections.get(to)
            if found is not None and not found.lost and not found.transport.is_closing():
                return found
            return await self._open(to, timeout)

    async def _open(self, to: str, timeout: float) -> Connection:
        host, port = address.split(to)
        try:
            async with asyncio.timeout(timeout):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._dispatch, self._clock), host, port
                )
        except TimeoutError:
            raise ConnectError(f"can't connect to {to} within {timeout:g} s") from None
        except OSError as error:
            raise ConnectError(f"can't connect to {to}: {error.strerror or error}") from None
        if self._closed:
            connection.close()
            raise ConnectError(f"can't connect to {to}: this client is closed")
        self._connections[to] = connection
        connection.on_close.append(lambda lost: self._lost(to, lost))
        for callback in self.on_connect:
            callback(to, connection)
        return connection

    def _lost(self, to: str, connection: Connection) -> None:
        if self._connections.get(to) is connection:
            del self._connections[to]
            for callback in self.on_lost:
                callback(to)

    def disconnect(self, to: str) -> None:
        """Close the connection to an address, if there is one."""
        connection = self._connections.pop(to, None)
        if connection is not None:
            connection.close()

    @staticmethod
    def _left(deadline: float) -> float:
        return max(0.001, deadline - asyncio.get_running_loop().time())

    async def close(self) -> None:
        """Close every connection; requests that wait fail with ConnectionLost."""
        self._closed = True
        self._dispatch.close()
        for connection in list(self._connections.values()):
            connection.close()
        self._connections.clear()
        await asyncio.sleep(0)
