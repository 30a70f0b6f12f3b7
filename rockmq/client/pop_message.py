"""A popped message, between the broker and the application.

    popped ─> waiting ─> delivered ─> acknowledged
       │         ^           ├──────> to come again: after a delay of its own, or when its invisible time is over
       │         └───────────┤ the application was interrupted
       └─ late: dropped      └──────> a dead letter

Nobody else gets it while its invisible time lasts, which `extend` makes longer.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, Protocol

from rockmq.base.errors import ClientError
from rockmq.client import retries
from rockmq.client.decoding import Body, Decoder
from rockmq.client.delivery import ELSEWHERE, PartDone
from rockmq.client.pop import PopLoop
from rockmq.client.received import Received, State
from rockmq.client.retries import Retry
from rockmq.protocol.bodies.client import DirectResult
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import StoredMessage
from rockmq.protocol.pop import ReceiptHandle

log = logging.getLogger(__name__)


class PopOutcome(Protocol):
    """Takes what the application decided about a message."""

    def acknowledged(self, message: "AnyPop") -> None:
        """It is done with."""

    async def refused(self, message: "AnyPop", delay: float | None) -> None:
        """It shall come again after so many seconds, or as its tries say."""

    async def given_up(self, message: "AnyPop") -> None:
        """It shall be a dead letter."""

    async def extended(self, message: "AnyPop", seconds: float) -> None:
        """It shall stay with the application for longer."""

    def returned(self, messages: "Sequence[AnyPop]") -> None:
        """They shall be delivered again at once, one after the other if they were popped in order: the application was
        interrupted."""

    def is_late(self, message: "AnyPop") -> bool:
        """Whether its invisible time is over."""

    def working(self, step: int) -> None:
        """One more, or one less, is inside a handler or a `process` block."""


class PopMessage(Received[Body]):
    """A message as a pop consumer gets it. End it by `ack`, `nack`, `retry`, `dead_letter` or a `process` block; a message
    that isn't ended when its invisible time is over comes again, here or elsewhere.

    `stored` is all that the broker keeps of it, `handle` what it is acknowledged by. It can be pickled: the copy tells the
    same, but can't be ended.
    """

    __slots__ = ("_outcome", "changing", "decoder", "error", "expires_at", "following", "handle", "loop")

    def __init__(
        self,
        stored: StoredMessage,
        handle: ReceiptHandle,
        loop: PopLoop | None,
        expires_at: float,
        outcome: PopOutcome,
        decoder: Decoder[Body] | None = None,
    ) -> None:
        self.stored = stored
        self.decoder = decoder
        self.state = State.WAITING
        self.taken = 0.0
        self.watched = None
        self.handle = handle
        self.loop = loop
        """Who popped it; None for a message that an administrator handed over."""
        self.expires_at = expires_at
        """When its invisible time is over, by the client's monotonic clock, counted from the answer's arrival: the clocks of
        client and broker needn't agree."""
        self.following: PopMessage[Body] | None = None
        """Popped in order: what is delivered when this one is acknowledged."""
        self.changing: asyncio.Task[None] | None = None
        """A change of its invisible time that is under way, and with it the handle."""
        self.error: Exception | None = None
        """What its handler raised, if it did."""
        self._outcome = outcome

    @property
    def queue(self) -> MessageQueue:
        """The queue it was popped from; that of a message which comes again is the retry topic's."""
        return MessageQueue(self.stored.topic, self.stored.broker_name, self.stored.queue_id)

    async def ack(self) -> None:
        """It is done with. The broker is told soon, together with others; if that fails the message comes again.

        Raises ClientError when it was ended before.
        """
        self.end(State.DONE)
        self._outcome.acknowledged(self)

    async def nack(self) -> None:
        """Have it come again after a delay that grows with its tries: 10 s, 30 s, 1 min … 2 h. After the last try it becomes
        a dead letter."""
        await self.retry()

    async def retry(self, delay: float | timedelta | None = None) -> None:
        """As `nack`, after just so many seconds."""
        wanted = retries.seconds(delay) if delay is not None else None
        self.end(State.REFUSED)
        await self._outcome.refused(self, wanted)

    async def dead_letter(self) -> None:
        """Move it to the group's dead-letter topic."""
        self.end(State.REFUSED)
        await self._outcome.given_up(self)

    async def extend(self, seconds: float) -> None:
        """Have so much time from now on. Raises ResponseError when the message isn't ours any more, RemotingError."""
        if seconds <= 0:
            raise ClientError(f"a message can't be extended by {seconds:g} s")
        while self.changing is not None and not self.changing.done():
            await asyncio.wait([self.changing])
        if self.state is not State.DELIVERED:
            raise ClientError(f"{self!r} was acknowledged or refused before")
        # Not ours to cancel: once the broker has heard of it, only the new handle counts.
        self.changing = asyncio.ensure_future(self._outcome.extended(self, seconds))
        self.changing.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await asyncio.shield(self.changing)

    def process(self, *, retry: Retry | None = None, suppress: bool = False) -> "PopProcessing[Body]":
        """`async with message.process():` acknowledges when the block ends well, and refuses when it raises.

        `retry` says after how many seconds it comes again then. The exception goes on to the caller; with `suppress` it is
        logged and ends here.
        """
        return PopProcessing([self], retry, suppress)

    @property
    def withdrawn(self) -> bool:
        """Whether another member may get it: its invisible time is over."""
        return self._outcome.is_late(self)

    def put_back(self) -> None:
        """Have it delivered again at once, as if it hadn't been taken."""
        put_back([self])

    def __reduce__(self) -> tuple[object, ...]:
        return _copy, (self.stored, self.handle, self.decoder)

    def __repr__(self) -> str:
        stored = self.stored
        return f"<message {self.msg_id} at {stored.broker_name} {self.topic} {stored.queue_id}:{stored.queue_offset}>"


AnyPop = PopMessage[Any]
"""To which it doesn't matter what its body is."""


def put_back(messages: Sequence[AnyPop]) -> None:
    """Have messages of one batch delivered again at once."""
    for message in messages:
        message.end(State.WAITING)
    if messages:
        messages[0]._outcome.returned(messages)


class PopProcessing(Generic[Body]):
    """The block around the work on one message, or on a batch of messages."""

    __slots__ = ("_messages", "_retry", "_suppress")

    def __init__(self, messages: Sequence[PopMessage[Body]], retry: Retry | None, suppress: bool) -> None:
        self._messages = messages
        self._retry = retry
        self._suppress = suppress

    async def __aenter__(self) -> PopMessage[Body]:
        first = self._messages[0]
        first._outcome.working(+1)
        for message in self._messages:
            if message.watched is not None:
                message.watched.enter()
        return first

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        first = self._messages[0]
        for message in reversed(self._messages):
            if message.watched is not None:
                message.watched.leave(error)
        try:
            await self._ended(error)
        finally:
            put_back(self._unfinished)
            first._outcome.working(-1)
        if self._suppress and isinstance(error, Exception):
            log.warning("%r failed and will be delivered again", first, exc_info=error)
            return True
        return None

    @property
    def _unfinished(self) -> list[AnyPop]:
        return [message for message in self._messages if message.state is State.DELIVERED]

    async def _ended(self, error: BaseException | None) -> None:
        """Decide about what wasn't ended inside the block."""
        done = len(self._messages) if error is None else error.count if isinstance(error, PartDone) else 0
        for message in self._messages[:done]:
            if message.state is State.DELIVERED:
                await message.ack()
        if isinstance(error, Exception):
            await asyncio.gather(*(self._refuse(message, error) for message in self._unfinished))

    async def _refuse(self, message: AnyPop, error: Exception) -> None:
        message.error = error
        await message.retry(self._delay(message))

    def _delay(self, message: AnyPop) -> float | None:
        if self._retry is None:
            return None
        try:
            return retries.seconds(self._retry(message.reconsume_times))
        except Exception:
            log.exception("what says when %r is to come again failed; its tries say it", message)
            return None


class HandedPop:
    """The outcome of a message that an administrator has handed to a consumer: no broker waits for it."""

    def __init__(self, order: bool) -> None:
        self._order = order
        self.result: asyncio.Future[DirectResult] = asyncio.get_running_loop().create_future()
        """CR_SUCCESS, CR_LATER or CR_THROW_EXCEPTION (CMResult.java)."""

    def acknowledged(self, message: AnyPop) -> None:
        self._end("CR_SUCCESS")

    async def refused(self, message: AnyPop, delay: float | None) -> None:
        if message.error is None:
            self._end("CR_LATER")
        else:
            self._end("CR_THROW_EXCEPTION", f"{type(message.error).__name__}: {message.error}")

    async def given_up(self, message: AnyPop) -> None:
        self._end("CR_LATER")

    async def extended(self, message: AnyPop, seconds: float) -> None:
        """It has no time that could be over."""

    def returned(self, messages: Sequence[AnyPop]) -> None:
        self._end("CR_LATER")

    def is_late(self, message: AnyPop) -> bool:
        return False

    def working(self, step: int) -> None:
        """A consumer that closes doesn't wait for it."""

    def _end(self, result: str, remark: str | None = None) -> None:
        if not self.result.done():  # who asked may have given up
            self.result.set_result(DirectResult(order=self._order, consume_result=result, remark=remark, spent_time_mills=0))


class _Elsewhere:
    """The outcome of a copy in another process."""

    def acknowledged(self, message: AnyPop) -> None:
        raise ClientError(ELSEWHERE)

    async def refused(self, message: AnyPop, delay: float | None) -> None:
        raise ClientError(ELSEWHERE)

    async def given_up(self, message: AnyPop) -> None:
        raise ClientError(ELSEWHERE)

    async def extended(self, message: AnyPop, seconds: float) -> None:
        raise ClientError(ELSEWHERE)

    def returned(self, messages: Sequence[AnyPop]) -> None:
        raise ClientError(ELSEWHERE)

    def is_late(self, message: AnyPop) -> bool:
        return False

    def working(self, step: int) -> None:
        """Nobody counts it here."""


def _copy(stored: StoredMessage, handle: ReceiptHandle, decoder: Decoder[Body] | None) -> PopMessage[Body]:
    copy = PopMessage(stored, handle, None, float("inf"), _Elsewhere(), decoder)
    copy.state = State.DELIVERED
    return copy
