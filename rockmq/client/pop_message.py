"""A popped message, between the broker and the application.

    popped ─> waiting ─> delivered ─> acknowledged
       │         ^           ├──────> to come again: after a delay of its own, or when its invisible time is over
       │         └───────────┤ the application was interrupted
       └─ late: dropped      └──────> a dead letter

Nobody else gets it while its invisible time lasts, which `extend` makes longer.
"""

import asyncio
import logging
from datetime import timedelta
from types import TracebackType
from typing import Protocol

from rockmq.base.errors import ClientError
from rockmq.client.pop import PopLoop
from rockmq.client.received import Received, State
from rockmq.client.retries import Retry
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import StoredMessage
from rockmq.protocol.pop import ReceiptHandle

log = logging.getLogger(__name__)


class PopOutcome(Protocol):
    """Takes what the application decided about a message."""

    def acknowledged(self, message: "PopMessage") -> None:
        """It is done with."""

    async def refused(self, message: "PopMessage", delay: float | None) -> None:
        """It shall come again after so many seconds, or as its tries say."""

    async def given_up(self, message: "PopMessage") -> None:
        """It shall be a dead letter."""

    async def extended(self, message: "PopMessage", seconds: float) -> None:
        """It shall stay with the application for longer."""

    def returned(self, message: "PopMessage") -> None:
        """It shall be delivered again at once: the application was interrupted."""

    def working(self, step: int) -> None:
        """One more, or one less, is inside a handler or a `process` block."""


class PopMessage(Received):
    """A message as a pop consumer gets it. End it by `ack`, `nack`, `retry`, `dead_letter` or a `process` block; a message
    that isn't ended when its invisible time is over comes again, here or elsewhere.

    `stored` is all that the broker keeps of it, `handle` what it is acknowledged by.
    """

    __slots__ = ("_outcome", "changing", "expires_at", "following", "handle", "loop")

    def __init__(
        self, stored: StoredMessage, handle: ReceiptHandle, loop: PopLoop | None, expires_at: float, outcome: PopOutcome
    ) -> None:
        super().__init__(stored)
        self.handle = handle
        self.loop = loop
        """Who popped it; None for a message that an administrator handed over."""
        self.expires_at = expires_at
        """When its invisible time is over, by the client's monotonic clock, counted from the answer's arrival: the clocks of
        client and broker needn't agree."""
        self.following: PopMessage | None = None
        """Popped in order: what is delivered when this one is acknowledged."""
        self.changing: asyncio.Task[None] | None = None
        """A change of its invisible time that is under way, and with it the handle."""
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
        if isinstance(delay, timedelta):
            delay = delay.total_seconds()
        if delay is not None and not 0 <= delay < float("inf"):
            raise ClientError(f"a message can't come again after {delay:g} s: expected 0 or more")
        self.end(State.REFUSED)
        await self._outcome.refused(self, delay)

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

    def process(self, *, retry: Retry | None = None, suppress: bool = False) -> "PopProcessing":
        """`async with message.process():` acknowledges when the block ends well, and refuses when it raises.

        `retry` says after how many seconds it comes again then. The exception goes on to the caller; with `suppress` it is
        logged and ends here.
        """
        return PopProcessing(self, retry, suppress)

    def __repr__(self) -> str:
        stored = self.stored
        return f"<message {self.msg_id} at {stored.broker_name} {self.topic} {stored.queue_id}:{stored.queue_offset}>"


class PopProcessing:
    """The block around the work on one message."""

    __slots__ = ("_message", "_retry", "_suppress")

    def __init__(self, message: PopMessage, retry: Retry | None, suppress: bool) -> None:
        self._message = message
        self._retry = retry
        self._suppress = suppress

    async def __aenter__(self) -> PopMessage:
        self._message._outcome.working(+1)
        if self._message.watched is not None:
            self._message.watched.enter()
        return self._message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        message = self._message
        if message.watched is not None:
            message.watched.leave(error)
        try:
            if message.state is not State.DELIVERED:
                pass  # ended inside the block
            elif error is None:
                await message.ack()
            elif isinstance(error, Exception):
                await message.retry(self._delay())
            else:
                message.end(State.WAITING)
                message._outcome.returned(message)
        finally:
            message._outcome.working(-1)
        if self._suppress and isinstance(error, Exception):
            log.warning("%r failed and will be delivered again", message, exc_info=error)
            return True
        return None

    def _delay(self) -> float | None:
        if self._retry is None:
            return None
        try:
            delay = self._retry(self._message.reconsume_times)
            return delay if 0 <= delay < float("inf") else None
        except Exception:
            log.exception("what says when %r is to come again failed; its tries say it", self._message)
            return None


class HandedPop:
    """The outcome of a message that an administrator has handed to a consumer: no broker waits for it."""

    def __init__(self) -> None:
        self.result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """CR_SUCCESS or CR_LATER (CMResult.java)."""

    def acknowledged(self, message: PopMessage) -> None:
        self._end("CR_SUCCESS")

    async def refused(self, message: PopMessage, delay: float | None) -> None:
        self._end("CR_LATER")

    async def given_up(self, message: PopMessage) -> None:
        self._end("CR_LATER")

    async def extended(self, message: PopMessage, seconds: float) -> None:
        """It has no time that could be over."""

    def returned(self, message: PopMessage) -> None:
        self._end("CR_LATER")

    def working(self, step: int) -> None:
        """A consumer that closes doesn't wait for it."""

    def _end(self, result: str) -> None:
        if not self.result.done():  # who asked may have given up
            self.result.set_result(result)
