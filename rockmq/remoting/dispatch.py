"""From a request code to the handler that answers it, and from an error to a code: one table, one edge.

A handler is called with (declared header, request, connection) and returns a reply, an awaitable of one when it must
wait, or None when nothing is to be answered. A plain call costs a fraction of a task, so none is made per request.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from rockmq import _core
from rockmq.base.errors import AccessDenied, ProtocolError, StoreUnavailable
from rockmq.metrics.histogram import Histogram
from rockmq.metrics.names import LATENCY_MS
from rockmq.protocol import codec
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode, name_of
from rockmq.protocol.header import EXCHANGES, Header, decode

if TYPE_CHECKING:
    from rockmq.remoting.connection import Connection

log = logging.getLogger(__name__)


RUNNING_BYTES_MAX = 16 << 20
"""Bytes of requests of one connection whose handlers wait; over it nothing more is read from it until some are answered."""
REQUEST_BYTES = 1000
"""What a request costs but for its body."""

Frame = list["bytes | _core.Slice"]
"""A response that is encoded already, in pieces."""

Answer = Command | Frame | None
_IMMEDIATE = (Command, list)
Outcome = tuple[int, int, bool, bool]
"""Code of a request, and of its answer; whether it waited for a message; whether it is one-way."""
UNSUPPORTED = -1
"""Stands for all codes of requests that have no handler."""
Handler = Callable[[Any, Command, "Connection"], "Answer | Awaitable[Answer]"]


class Refusal(Exception):
    """What a handler raises to answer with an error code; the remark is for the person who reads the client's log."""

    def __init__(self, code: ResponseCode, remark: str, header: Header | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.header = header


class Dispatcher:
    """Answers requests by a table of handlers; codes without one get REQUEST_CODE_NOT_SUPPORTED.

    `admit` is called with each request and its connection before the handler, and raises for one to be refused.
    """

    def __init__(self, handlers: dict[int, Handler], admit: "Callable[[Command, Connection], None] | None" = None) -> None:
        undeclared = [code for code in handlers if code not in EXCHANGES]
        assert not undeclared, f"no header is declared for codes {undeclared}"
        self._handlers = {code: (EXCHANGES[code].request, handler) for code, handler in handlers.items()}
        self._admit = admit
        self._running: set[asyncio.Future[Answer]] = set()
        self.latencies: dict[Outcome, Histogram] = {}
        """Time from a request's arrival to its answer (ms)."""

    @property
    def codes(self) -> frozenset[int]:
        """The request codes it has a handler for."""
        return frozenset(self._handlers)

    def __call__(self, request: Command, connection: "Connection") -> None:
        """Answer one request on its connection, now or when the handler is done."""
        request.arrived = monotonic()
        try:
            header, handler = self._handlers[request.code]
        except KeyError:
            remark = f" request type {request.code} not supported"
            connection.answer(request, codec.reply(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return
        try:
            if self._admit is not None:
                self._admit(request, connection)
            answer = handler(decode(header, request.fields), request, connection)
        except Exception as error:  # the edge where every error becomes a code  # noqa: BLE001
            connection.answer(request, refused(request, error, connection))
            return
        if isinstance(answer, _IMMEDIATE):
            connection.answer(request, answer)
        elif answer is None:
            request.is_parked = True
        else:
            self._later(request, connection, answer)

    def note(self, request: Command, answer: Command | Frame) -> None:
        """A request is being answered."""
        # A frame that is encoded already has messages.
        code = answer.code if isinstance(answer, Command) else 0
        asked = request.code if request.code in self._handlers else UNSUPPORTED
        outcome = (asked, code, request.is_parked, request.is_oneway)
        histogram = self.latencies.get(outcome)
        if histogram is None:
            histogram = self.latencies[outcome] = Histogram(LATENCY_MS)
        histogram.note((monotonic() - request.arrived) * 1000)

    def _later(self, request: Command, connection: "Connection", answer: Awaitable[Answer]) -> None:
        future = asyncio.ensure_future(answer)
        self._running.add(future)
        size = REQUEST_BYTES + len(request.body)
        _weigh(connection, size)

        def done(ended: "asyncio.Future[Answer]") -> None:
            self._running.discard(ended)
            _weigh(connection, -size)
            if ended.cancelled():
                return
            error = ended.exception()
            answer = ended.result() if error is None else refused(request, error, connection)
            if answer is None:
                request.is_parked = True
            connection.answer(request, answer)

        future.add_done_callback(done)

    async def finish(self, seconds: float) -> None:
        """Wait for the answers under way; those that take longer are given up."""
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        self.close()

    def close(self) -> None:
        """Give up what is still waiting."""
        for future in self._running.copy():
            future.cancel()


def _weigh(connection: "Connection", size: int) -> None:
    """Note that so much more is under way for a connection, or less."""
    before, after = connection.running_bytes, connection.running_bytes + size
    connection.running_bytes = after
    if before <= RUNNING_BYTES_MAX < after:
        connection.hold_reading()
    elif after <= RUNNING_BYTES_MAX < before:
        connection.release_reading()


def about(request: Command, connection: "Connection") -> dict[str, object]:
    """Fields of what is logged because of a request: who asked, and the request's number on that connection."""
    return {"peer": connection.peer, "opaque": request.opaque}


def refused(request: Command, error: BaseException, connection: "Connection") -> Command:
    """The reply that tells a client of an error. What nobody foresaw is logged with its trace and told in one line."""
    if isinstance(error, Refusal):
        return codec.reply(request, error.code, error.remark, error.header)
    if isinstance(error, AccessDenied):
        return codec.reply(request, error.code, str(error))
    if isinstance(error, StoreUnavailable):
        return codec.reply(request, ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
    if isinstance(error, ProtocolError):
        return codec.reply(request, ResponseCode.INVALID_PARAMETER, str(error))
    log.error("request %s failed", name_of(request.code), exc_info=error, extra=about(request, connection))
    return codec.reply(request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
