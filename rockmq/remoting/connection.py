"""One connection, either end of it.

Both ends send requests on the same connection; bit 0 of the flag tells a response from a request, `opaque` which request
it answers. Bytes go through a lane of the core, which cuts frames and, on a broker, appends ordinary sends by itself. A
server's connections get what is left for them from the core's reactor, a client's get bytes from asyncio.

Bounds: an unfinished frame holds at most `FRAME_SIZE_MAX` bytes; while a client doesn't read, a server reads nothing more
from it (`WRITE_BUFFER_HIGH`), and over `WRITE_BUFFER_MAX` or after `stall_seconds` it is cut off. A client reads on while a
server doesn't, as it gets no more than it has asked for: if both held, each would wait for the other. Who asks bounds what
it has to write (`max_in_flight_bytes`); the server is cut off when somebody stops waiting for an answer and more than
`WRITE_BUFFER_MAX` are left unread, or what nobody waits for would pile up.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast

from rockmq import _core
from rockmq.base import address
from rockmq.base.clock import Clock
from rockmq.base.errors import ConnectionLost, RequestTimeout
from rockmq.protocol import codec
from rockmq.protocol.codec import FRAME_SIZE_MAX, Command
from rockmq.protocol.codes import name_of
from rockmq.remoting.dispatch import Answer, Dispatcher

if TYPE_CHECKING:
    from typing_extensions import Buffer

log = logging.getLogger(__name__)

WRITE_BUFFER_HIGH = 1 << 20
WRITE_BUFFER_MAX = 64 << 20

Appended = Callable[["Connection", bytes, int, list[tuple[str, int]]], None]
"""Takes (connection, encoded replies, position behind the last append, queues to wake)."""


class Waiter(Protocol):
    """Gets the response to a request, or ConnectionLost; a future does. Called from within the connection: it may send, and
    must not raise."""

    def done(self) -> bool: ...
    def set_result(self, response: Command, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...


class Transport(Protocol):
    """What a connection needs of asyncio.Transport, or of the core's in its place."""

    def write(self, data: bytes, /) -> None: ...
    def writelines(self, data: list[Any], /) -> None: ...
    def get_write_buffer_size(self) -> int: ...
    def is_closing(self) -> bool: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class Connection(asyncio.Protocol):
    """A connection from its start to its end. `on_close` callables run once, when it is lost."""

    def __init__(
        self,
        dispatch: Dispatcher,
        clock: Clock,
        *,
        appended: Appended | None = None,
        outgoing: Callable[[Command], None] | None = None,
    ) -> None:
        self._dispatch = dispatch
        self._now_ms = clock.now_ms
        self._appended = appended
        self._outgoing = outgoing
        self._pending: dict[int, Waiter] = {}
        self._opaque = 0
        self._writable = asyncio.Event()
        self._writable.set()
        self._unread = 0
        self._paused = False
        self._is_client = False
        self._retired = False
        self._answers = False
        self._fault: str | None = None
        self.transport: Transport
        self.lost = False
        self.heard = 0
        """How often something came; of a client's connections."""
        self.peer = ""
        """The other end as `ip:port`."""
        self.peer_host = b""
        self.held_bytes = 0
        """Bytes of replies that wait until their messages are durable."""
        self.running_bytes = 0
        """Bytes of requests whose handlers wait."""
        self.on_close: list[Callable[[Connection], None]] = []

    def start(self, transport: Transport, peer_host: bytes) -> None:
        """Begin on a transport that is connected to `peer_host`."""
        self.transport = transport
        self.peer_host = peer_host
        self.peer = address.join(*address.from_bytes(peer_host))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast("asyncio.Transport", transport)
        made.set_write_buffer_limits(high=WRITE_BUFFER_HIGH)
        self._is_client = True
        name = made.get_extra_info("peername")
        self.start(made, address.to_bytes(name[0], name[1]))
        self._feed = _core.Lane(None, self.peer_host, FRAME_SIZE_MAX).feed

    def data_received(self, data: "Buffer") -> None:
        self.heard += 1
        self.fed(self._feed(data, self._now_ms()))

    def fed(self, fed: "_core.Fed") -> None:
        """Take what a lane has left for us."""
        replies, position, commands, arrivals, fault = fed
        if position and self._appended is not None:
            self._appended(self, replies, position, arrivals)
        for cut in commands:
            command = codec.from_tuple(cut)
            if command.flag & codec.RESPONSE_FLAG:
                self._answered(command)
            else:
                self._dispatch(command, self)
        if fault is not None:
            log.warning("closing the connection: %s", fault, extra={"peer": self.peer})
            self._fault = fault
            self.transport.close()

    def eof_received(self) -> bool:
        return False

    # Both ways are also called by an asyncio transport at marks of its own, so each may come twice.

    def pause_writing(self) -> None:
        if not self._paused:
            self._paused = True
            self._writable.clear()
            if not self._is_client:
                self.hold_reading()

    def resume_writing(self) -> None:
        if self._paused:
            self._paused = False
            self._writable.set()
            if not self._is_client:
                self.release_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost = True
        self._writable.set()
        pending, self._pending = self._pending, {}
        reason = self._why_lost(error)
        callbacks, self.on_close = self.on_close, []
        for callback in callbacks:
            callback(self)
        for waiter in pending.values():
            if not waiter.done():
                waiter.set_exception(ConnectionLost(reason))

    def _why_lost(self, error: Exception | None) -> str:
        if self._fault is not None:
            return f"what {self.peer} sends is not RocketMQ's protocol: {self._fault}"
        if error is not None:
            return f"the connection to {self.peer} was lost: {error}"
        if self._answers:
            return f"the connection to {self.peer} was lost"
        return f"{self.peer} closed the connection without any answer: is it a RocketMQ server, and does it want TLS?"

    @property
    def usable(self) -> bool:
        """Whether requests can be sent."""
        return not (self.lost or self._retired or self.transport.is_closing())

    # Reading is held by two independent causes: the peer doesn't read, or too much waits for the disk.

    def hold_reading(self) -> None:
        """Read no more until `release_reading` was called as often."""
        self._unread += 1
        if self._unread == 1 and not self.transport.is_closing():
            self.transport.pause_reading()

    def release_reading(self) -> None:
        self._unread -= 1
        if self._unread == 0 and not self.transport.is_closing():
            self.transport.resume_reading()

    @property
    def traffic(self) -> int:
        """Bytes that were read, and one for each write; of a server's connections."""
        return cast("_core.Transport", self.transport).traffic

    def vouch(self, code: int, access_key: str, topic: str, secret: bytes) -> None:
        """Have the core take sends with this code of this access key to this topic if they are signed with the secret; of a
        server's connections."""
        cast("_core.Transport", self.transport).vouch(code, access_key, topic, secret)

    # Writing

    def write(self, data: bytes) -> None:
        """Send bytes that are whole frames; dropped when the connection is gone, cut off when the peer lets them pile up."""
        transport = self.transport
        if not transport.is_closing():
            transport.write(data)
            self.check_waiting()

    def check_waiting(self) -> None:
        """Read no more from a client that doesn't read, and cut it off when too much waits for it."""
        waiting = self.transport.get_write_buffer_size()
        if waiting > WRITE_BUFFER_MAX and not self._is_client:
            self._cut_off(waiting)
        elif waiting > WRITE_BUFFER_HIGH:
            self.pause_writing()
        elif waiting == 0 and self._paused:
            self.resume_writing()

    def _cut_off(self, waiting: int) -> None:
        why = f"{waiting} bytes are left unread, the bound is {WRITE_BUFFER_MAX}"
        log.warning("cutting off a connection: %s", why, extra={"peer": self.peer})
        self.transport.abort()

    def answer(self, request: Command, answer: Answer) -> None:
        """Send a handler's answer; one-way requests get none."""
        if answer is not None:
            self._dispatch.note(request, answer)
        if answer is None or request.flag & codec.ONEWAY_FLAG or self.transport.is_closing():
            return
        if isinstance(answer, list):
            self.transport.writelines(answer)
            self.check_waiting()
        else:
            self.write(answer.encode())

    async def drained(self) -> None:
        """Wait until the peer has taken enough that more may be sent."""
        await self._writable.wait()

    # Requests of our own

    async def invoke(self, request: Command, timeout: float) -> Command:
        """Send a request and wait for its response; cancelling forgets just this request.

        Raises ConnectionLost, RequestTimeout.
        """
        future = self.expect(request)
        try:
            self.write(request.encode())
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            if future.done() and not future.cancelled():
                return future.result()  # the loop stood still, and found answer and timeout in the same moment
            text = f"no answer from {self.peer} to {name_of(request.code)} within {timeout:.2g} s"
            raise RequestTimeout(text) from None
        finally:
            self.forget(request.opaque)

    def expect(self, request: Command) -> "asyncio.Future[Command]":
        """Number a request that the caller is about to write, and give the future of its response.

        Raises ConnectionLost. Whoever stops waiting calls `forget`.
        """
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self.expect_for(request, future)
        return future

    def expect_for(self, request: Command, waiter: Waiter) -> None:
        """As `expect`, but the response goes to the waiter."""
        if not self.usable:
            why = f"the connection to {self.peer} is closed" if self._fault is None else self._why_lost(None)
            raise ConnectionLost(why)
        request.opaque = self._opaque = (self._opaque + 1) & 0x7FFF_FFFF
        if self._outgoing is not None:
            self._outgoing(request)
        self._pending[self._opaque] = waiter

    def forget(self, opaque: int) -> None:
        """Drop the response to a request should it come; of one that hasn't come, cut off a peer that reads nothing."""
        if self._pending.pop(opaque, None) is not None and not self.transport.is_closing():
            waiting = self.transport.get_write_buffer_size()
            if waiting > WRITE_BUFFER_MAX:
                self._cut_off(waiting)
        if self._retired and not self._pending:
            self.transport.close()

    def send_oneway(self, request: Command) -> None:
        """Send a request that is never answered; nothing happens when the connection is gone."""
        request.opaque = self._opaque = (self._opaque + 1) & 0x7FFF_FFFF
        request.flag |= codec.ONEWAY_FLAG
        if self._outgoing is not None:
            self._outgoing(request)
        self.write(request.encode())

    def _answered(self, response: Command) -> None:
        self._answers = True
        waiter = self._pending.pop(response.opaque, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(response)
        # Otherwise the caller gave up; a late answer is nobody's.
        if self._retired and not self._pending:
            self.transport.close()

    def retire(self) -> None:
        """Take no more requests, and close when those that wait are answered."""
        self._retired = True
        if not self._pending:
            self.transport.close()

    def close(self) -> None:
        """Close when what was written is sent."""
        self.transport.close()

    async def gone(self, timeout: float) -> None:
        """Wait until a connection that was closed is lost; cut it off after the timeout."""
        if self.lost:
            return
        gone = asyncio.get_running_loop().create_future()
        self.on_close.append(lambda _: None if gone.done() else gone.set_result(None))
        await asyncio.wait([gone], timeout=timeout)
        if not self.lost:
            self.transport.abort()
            await asyncio.wait([gone], timeout=timeout)
