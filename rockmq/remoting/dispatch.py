"""From a request code to the handler that answers it, and from an error to a code: one table, one edge.

A handler is called with (declared header, request, connection) and returns a reply, an awaitable of one when it must
wait, or None when nothing is to be answered. A plain call costs a fraction of a task, so none is made per request.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from rockmq import _core
from rockmq.base.errors import ProtocolError, StoreUnavailable
from rockmq.protocol import codec
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode, name_of
from rockmq.protocol.header import EXCHANGES, Header, decode

if TYPE_CHECKING:
    from rockmq.remoting.connection import Connection

log = logging.getLogger(__name__)


Frame = list["bytes | _core.Slice"]
"""A response that is encoded already, in pieces."""

Answer = Command | Frame | None
_IMMEDIATE = (Command, list)
Handler = Callable[[Any, Command, "Connection"], "Answer | Awaitable[Answer]"]


class Refusal(Exception):
    """What a handler raises to answer with an error code; the remark is for the person who reads the client's log."""

    def __init__(self, code: ResponseCode, remark: str, header: Header | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.header = header


class Dispatcher:
    """Answers requests by a table of handlers; codes without one get REQUEST_CODE_NOT_SUPPORTED."""

    def __init__(self, handlers: dict[int, Handler]) -> None:
        undeclared = [code for code in handlers if code not in EXCHANGES]
        assert not undeclared, f"no header is declared for codes {undeclared}"
        self._handlers = {code: (EXCHANGES[code].request, handler) for code, handler in handlers.items()}
        self._running: set[asyncio.Future[Answer]] = set()

    @property
    def codes(self) -> frozenset[int]:
        """The request codes it has a handler for."""
        return frozenset(self._handlers)

    def __call__(self, request: Command, connection: "Connection") -> None:
        """Answer one request on its connection, now or when the handler is done."""
        try:
            header, handler = self._handlers[request.code]
        except KeyError:
            remark = f" request type {request.code} not supported"
            connection.answer(request, codec.reply(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return
        try:
            answer = handler(decode(header, request.fields), request, connection)
        except Exception as error:  # the edge where every error becomes a code  # noqa: BLE001
            connection.answer(request, refused(request, error))
            return
        if isinstance(answer, _IMMEDIATE):
            connection.answer(request, answer)
        elif answer is not None:
            self._later(request, connection, answer)

    def _later(self, request: Command, connection: "Connection", answer: Awaitable[Answer]) -> None:
        future = asyncio.ensure_future(answer)
        self._running.add(future)

        def done(ended: "asyncio.Future[Answer]") -> None:
            self._running.discard(ended)
            if ended.cancelled():
                return
            error = ended.exception()
            connection.answer(request, ended.result() if error is None else refused(request, error))

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


def refused(request: Command, error: BaseException) -> Command:
    """The reply that tells a client of an error. What nobody foresaw is logged with its trace and told in one line."""
    if isinstance(error, Refusal):
        return codec.reply(request, error.code, error.remark, error.header)
    if isinstance(error, StoreUnavailable):
        return codec.reply(request, ResponseCode.SERVICE_NOT_AVAILABLE, str(error))
    if isinstance(error, ProtocolError):
        return codec.reply(request, ResponseCode.INVALID_PARAMETER, str(error))
    log.error("request %s failed", name_of(request.code), exc_info=error)
    return codec.reply(request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
