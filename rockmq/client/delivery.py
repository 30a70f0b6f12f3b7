"""Messages between the pulls and the application.

    pulled ─> Inbox ─> delivered ─> acknowledged            the queue's offset may move on
                ^          └─> refused: the broker keeps it for a later try, or else it is delivered
                └───────────── again here after a pause

`max_in_flight` bounds what the application has and hasn't finished; what waits in the inbox is bounded by its queues.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, Protocol, runtime_checkable

from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ClientError
from rockmq.client import retries
from rockmq.client.decoding import Body, Decoder
from rockmq.client.hooks import Watched
from rockmq.client.process_queue import ProcessQueue
from rockmq.client.received import Received, State
from rockmq.client.retries import Retry
from rockmq.protocol import properties as names
from rockmq.protocol import topics
from rockmq.protocol.bodies.client import DirectResult
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import StoredMessage

log = logging.getLogger(__name__)

_WAITING, _DELIVERED = State.WAITING, State.DELIVERED

Watch = Callable[[StoredMessage, MessageQueue], Watched]
"""Tells hooks that the application gets a message."""

YIELD_EVERY = 64
"""Messages that may be taken without the event loop getting a turn; handlers that never wait must not starve pulls."""

EXPIRED_LEVEL = 3
"""Delay level of a message whose handler hangs (ProcessQueue.cleanExpiredMsg)."""


class Outcome(Protocol):
    """Takes what the application decided about a message."""

    def acknowledged(self, message: "AnyMessage") -> None:
        """It is done with."""

    async def refused(self, message: "AnyMessage", delay_level: int, delay: float | None = None) -> None:
        """It shall be delivered again later: after the delay of that level, 0 for as the broker decides, -1 for never. If
        the wish was in seconds, `delay` is it, and the level the nearest that isn't shorter."""

    def returned(self, message: "AnyMessage") -> None:
        """It shall be delivered again at once: the application was interrupted."""


@runtime_checkable
class Committing(Protocol):
    """An outcome of which acknowledging is only a part: the offset moves when it is told to."""

    def committed(self, message: "AnyMessage") -> None:
        """The message and all before it in its queue are done with."""

    def rolled_back(self, message: "AnyMessage", delay: float | None) -> None:
        """All of its queue that isn't committed shall be delivered again, after so many seconds."""


class ConsumedMessage(Received[Body]):
    """A message as a consumer gets it. End it by `ack`, `nack`, `retry`, `dead_letter` or a `process` block; until then it
    counts as in flight.

    `stored` is all that the broker keeps of it. It can be pickled: the copy tells the same, but can't be ended.
    """

    __slots__ = ("error", "outcome", "process_queue")

    def __init__(self, stored: StoredMessage, process_queue: ProcessQueue, outcome: Outcome) -> None:
        # All in one place, as it is done for each message: what is in all received messages, and then its own.
        self.stored = stored
        self.state = _WAITING
        self.taken = 0.0
        self.watched = None
        self.process_queue = process_queue
        self.error: Exception | None = None
        """What its handler raised, if it did."""
        self.outcome = outcome

    @property
    def body(self) -> Body:
        """The bytes that were sent, or what `decode` made of them when this was first asked for.

        Raises ProtocolError, which names the message, when it can't be decompressed or decoded.
        """
        stored = self.stored
        if self.process_queue.decoder is None and stored.fault is None:
            body: Any = stored.body
            return body  # type: ignore[no-any-return]  # Body is bytes
        return super().body

    @property
    def decoder(self) -> Decoder[Any] | None:  # type: ignore[override]
        return self.process_queue.decoder

    @property
    def queue(self) -> MessageQueue:
        """The queue it was read from."""
        return self.process_queue.queue

    async def ack(self) -> None:
        """It is done with. Raises ClientError when it was ended before."""
        self.end(State.DONE)
        self.outcome.acknowledged(self)

    async def nack(self, delay_level: int = 0) -> None:
        """Have it delivered again later: after the delay of that level, 0 lets the broker decide by the number of tries."""
        self.end(State.REFUSED)
        await self.outcome.refused(self, delay_level)

    async def retry(self, delay: float | timedelta) -> None:
        """Have it delivered again after so many seconds.

        Brokers can wait for some times only (`retries.LEVEL_SECONDS`): it is the nearest that isn't shorter, 2 h at most. In
        an orderly consumer its queue waits, just so long, but 10 ms at least and 30 s at most.
        """
        wanted = retries.seconds(delay)
        self.end(State.REFUSED)
        await self.outcome.refused(self, retries.level_of(wanted), wanted)

    async def dead_letter(self) -> None:
        """Have it delivered no more: it goes to the topic `%DLQ%` and the group's name."""
        await self.nack(retries.DEAD_LETTER)

    async def commit(self) -> None:
        """In an orderly consumer with `auto_commit=False`: it is done with, and so is all that was taken of its queue
        before; the group's offset moves behind it, and the broker is told within seconds. Raises ClientError elsewhere."""
        self._committing().committed(self)

    async def rollback(self, delay: float | timedelta | None = None) -> None:
        """In an orderly consumer with `auto_commit=False`: have it delivered again, with all of its queue that was taken and
        isn't committed, in order, after so many seconds or those of `suspend`. Raises ClientError elsewhere."""
        wanted = retries.seconds(delay) if delay is not None else None
        self._committing().rolled_back(self, wanted)

    def _committing(self) -> Committing:
        if not isinstance(self.outcome, Committing):
            raise ClientError("only an orderly consumer with auto_commit=False commits and rolls back; others acknowledge")
        return self.outcome

    def process(self, *, retry: Retry | None = None, suppress: bool = False) -> "Processing[Body]":
        """`async with message.process():` acknowledges when the block ends well, and refuses when it raises.

        `retry` says after how many seconds it comes again then (`backoff(1, 60)`), otherwise the broker decides. The
        exception goes on to the caller; with `suppress` it is logged and ends here. A block that takes longer than the
        consumer's `consume_timeout` gets TimeoutError at its next `await`.
        """
        return Processing([self], retry, suppress)

    @property
    def withdrawn(self) -> bool:
        """Whether another member is to get it: its queue is leaving us."""
        return self.process_queue.leaving_since is not None

    def put_back(self) -> None:
        """Have it delivered again at once, as if it hadn't been taken."""
        self.end(State.WAITING)
        self.outcome.returned(self)

    def __reduce__(self) -> tuple[object, ...]:
        return _copy, (self.stored, self.queue, self.decoder)

    def __repr__(self) -> str:
        queue = self.queue
        return f"<message {self.msg_id} at {queue.broker_name} {queue.topic} {queue.queue_id}:{self.queue_offset}>"


AnyMessage = ConsumedMessage[Any]
"""To which it doesn't matter what its body is."""


class PartDone(Exception):
    """What a handler of batches raises when it got only so far: the first `count` messages are done, the others are refused
    (the ack index of ConsumeConcurrentlyContext.java)."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count

    def __str__(self) -> str:
        return f"only the first {self.count} messages of the batch are done"


class Processing(Generic[Body]):
    """The block around the work on one message, or on a batch of messages of one queue; `begun` says when it began, in
    seconds of the event loop."""

    __slots__ = ("_cancelling", "_interrupted", "_messages", "_retry", "_suppress", "_task", "begun")

    def __init__(self, messages: Sequence[ConsumedMessage[Body]], retry: Retry | None, suppress: bool) -> None:
        self._messages = messages
        self._retry = retry
        self._suppress = suppress
        self._interrupted = False
        self._task: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> ConsumedMessage[Body]:
        task = self._task = asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        first = self._messages[0]
        process_queue = first.process_queue
        self.begun = process_queue.consumed_at = task.get_loop().time()
        process_queue.blocks[self] = None
        for message in self._messages:
            if message.watched is not None:
                message.watched.enter()
        return first

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        messages = self._messages
        for message in reversed(messages):
            if message.watched is not None:
                message.watched.leave(error)
        task, self._task = self._task, None  # nobody is interrupted any more
        assert task is not None
        try:
            if self._interrupted:
                self._put_back()
                if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
                    error = TimeoutError(
                        f"the work on {messages[0]!r} took too long or its queue is lost: it was broken off"
                    )
            elif error is None:
                for message in messages:
                    if message.state is State.DELIVERED:  # otherwise it was ended inside the block
                        message.end(State.DONE)
                        message.outcome.acknowledged(message)
            else:
                await self._failed(error)
        finally:
            del messages[0].process_queue.blocks[self]
        if self._suppress and isinstance(error, Exception):
            log.warning("%r failed and will be delivered again", messages[0], exc_info=error)
            return True
        if self._interrupted and isinstance(error, TimeoutError):
            raise error
        return None

    async def _failed(self, error: BaseException) -> None:
        if isinstance(error, PartDone):
            for message in self._messages[: error.count]:
                if message.state is State.DELIVERED:
                    await message.ack()
        try:
            if isinstance(error, Exception):
                left = [message for message in self._messages if message.state is State.DELIVERED]
                await asyncio.gather(*(self._refuse(message, error) for message in left))
        finally:
            self._put_back()

    async def _refuse(self, message: AnyMessage, error: Exception) -> None:
        message.error = error
        if self._retry is None:
            await message.nack()
            return
        try:
            delay = self._retry(message.reconsume_times)
            retries.seconds(delay)
        except Exception:
            log.exception("what says when %r is to come again failed; the broker decides", message)
            await message.nack()
        else:
            await message.retry(delay)

    def _put_back(self) -> None:
        for message in reversed(self._messages):
            if message.state is State.DELIVERED:
                message.put_back()

    def interrupt(self) -> None:
        """Tell whoever works here to stop: TimeoutError is raised at their `await`."""
        if self._task is not None and not self._interrupted:
            self._interrupted = True
            self._task.cancel()

    @property
    def unfinished(self) -> list[AnyMessage]:
        """Those of its messages that aren't ended yet."""
        return [message for message in self._messages if message.state is State.DELIVERED]

    async def expire(self) -> None:
        """The work doesn't come to an end: refuse the messages in place of who does it, and tell them."""
        self.interrupt()
        late = self.unfinished
        for message in late:
            message.end(State.REFUSED)
        await asyncio.gather(*(message.outcome.refused(message, EXPIRED_LEVEL) for message in late))


class Inbox:
    """Messages that wait for the application, and the count of those it has."""

    def __init__(self, max_in_flight: int, clock: Clock | None = None, watch: Watch | None = None) -> None:
        assert max_in_flight > 0, max_in_flight
        self.max_in_flight = max_in_flight
        self.clock = clock or SystemClock()
        self._watch = watch
        self.in_flight = 0
        self.closed = False
        self._ready: deque[AnyMessage] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._taken = 0

    def put(self, messages: Iterable[AnyMessage]) -> None:
        self._ready.extend(messages)
        self._wake()

    def put_first(self, message: AnyMessage) -> None:
        """It was taken, and is to be the next again."""
        if message.process_queue.leaving_since is None and not self.closed:
            self._ready.appendleft(message)
            self._wake()

    async def take(self) -> AnyMessage | None:
        """The next message, when there is one and the bound allows; None when closed."""
        self._taken += 1
        if self._taken % YIELD_EVERY == 0:
            await asyncio.sleep(0)
        while True:
            message = self.take_nowait()
            if message is not None or self.closed:
                return message
            await self._wait()

    def take_nowait(self) -> AnyMessage | None:
        ready = self._ready
        while ready and self.in_flight < self.max_in_flight and not self.closed:
            message = ready.popleft()
            if not message.process_queue.dropped:
                self._hand_out([message])
                return message
        return None

    def _hand_out(self, messages: Sequence[AnyMessage]) -> None:
        """The application gets them; they are of one queue."""
        now = self.clock.monotonic()
        for message in messages:
            message.state = _DELIVERED
            message.taken = now
            if self._watch is not None:
                message.watched = self._watch(message.stored, message.queue)
        messages[0].process_queue.delivered += len(messages)
        self.in_flight += len(messages)

    async def take_batch(self, count: int) -> list[AnyMessage]:
        """The next message and up to so many of the same queue that follow it; none when closed."""
        first = await self.take()
        return [] if first is None else [first, *self._following(first, count - 1)]

    def _following(self, first: AnyMessage, count: int) -> list[AnyMessage]:
        ready, process_queue = self._ready, first.process_queue
        room = min(count, self.max_in_flight - self.in_flight)
        found: list[AnyMessage] = []
        while len(found) < room and ready and ready[0].process_queue is process_queue:
            found.append(ready.popleft())
        if found:
            self._hand_out(found)
        return found

    def following(self, first: AnyMessage, count: int) -> Generator[AnyMessage, None, None]:
        """A message that was taken, and up to so many of the same queue that follow it, each taken when it is asked for; for
        one who calls no hooks, and marks as delivered what he gets. Until this is closed all of them count as in flight."""
        ready, process_queue = self._ready, first.process_queue
        left = min(count, len(ready), self.max_in_flight - self.in_flight)
        process_queue.delivered += left
        self.in_flight += left
        try:
            yield first
            while left and ready and ready[0].process_queue is process_queue:
                left -= 1
                yield ready.popleft()
        finally:
            self.ended(process_queue, left)

    def ended(self, process_queue: ProcessQueue, count: int = 1) -> None:
        """Messages of that queue are no longer with the application."""
        if process_queue.dropped:
            return  # they were taken off the count when the queue was lost
        process_queue.delivered -= count
        self.in_flight -= count
        if self._takers:
            self._wake()

    def withhold(self, *process_queues: ProcessQueue) -> None:
        """Hand out nothing more of these queues: they are leaving us."""
        now = asyncio.get_running_loop().time()
        for process_queue in process_queues:
            if process_queue.leaving_since is None:
                process_queue.leaving_since = now
        leaving = set(process_queues)
        staying = [message for message in self._ready if message.process_queue not in leaving]
        self._ready.clear()
        self._ready.extend(staying)

    def lost(self, process_queue: ProcessQueue) -> None:
        """The queue isn't ours any more: forget its messages, also those the application has."""
        assert not process_queue.dropped, process_queue.queue
        process_queue.dropped = True
        self.in_flight -= process_queue.delivered
        self._wake()

    def close(self) -> None:
        """Hand out nothing more; who waits gets None."""
        self.closed = True
        self._ready.clear()
        self._wake()

    async def _wait(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._takers.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._wake()  # somebody else takes the message this turn was for
            raise

    def _wake(self) -> None:
        """Wake as many takers as there may be messages for."""
        count = len(self._takers) if self.closed else min(self._waiting(), self.max_in_flight - self.in_flight)
        while count > 0 and self._takers:
            turn = self._takers.popleft()
            if not turn.done():
                turn.set_result(None)
                count -= 1

    def _waiting(self) -> int:
        """How many could be taken now, but for the bound."""
        return len(self._ready)


class Handed:
    """The outcome of a message that an administrator has handed to a consumer: it changes no offset."""

    def __init__(self, inbox: Inbox, order: bool) -> None:
        self._inbox = inbox
        self._order = order
        self.result: asyncio.Future[DirectResult] = asyncio.get_running_loop().create_future()
        """CR_SUCCESS, CR_LATER or CR_THROW_EXCEPTION (CMResult.java)."""

    def acknowledged(self, message: AnyMessage) -> None:
        self._end(message, "CR_SUCCESS")

    async def refused(self, message: AnyMessage, delay_level: int, delay: float | None = None) -> None:
        if message.error is None:
            self._end(message, "CR_LATER")
        else:
            self._end(message, "CR_THROW_EXCEPTION", f"{type(message.error).__name__}: {message.error}")

    def returned(self, message: AnyMessage) -> None:
        self._end(message, "CR_LATER")

    def committed(self, message: AnyMessage) -> None:
        message.end(State.DONE)
        self._end(message, "CR_COMMIT")

    def rolled_back(self, message: AnyMessage, delay: float | None) -> None:
        message.end(State.REFUSED)
        self._end(message, "CR_ROLLBACK")

    def _end(self, message: AnyMessage, result: str, remark: str | None = None) -> None:
        self._inbox.ended(message.process_queue)
        if not self.result.done():  # who asked may have given up
            self.result.set_result(DirectResult(order=self._order, consume_result=result, remark=remark, spent_time_mills=0))


class _Elsewhere:
    """The outcome of a copy in another process."""

    def acknowledged(self, message: AnyMessage) -> None:
        raise ClientError(ELSEWHERE)

    async def refused(self, message: AnyMessage, delay_level: int, delay: float | None = None) -> None:
        raise ClientError(ELSEWHERE)

    def returned(self, message: AnyMessage) -> None:
        raise ClientError(ELSEWHERE)

    def committed(self, message: AnyMessage) -> None:
        raise ClientError(ELSEWHERE)

    def rolled_back(self, message: AnyMessage, delay: float | None) -> None:
        raise ClientError(ELSEWHERE)


ELSEWHERE = (
    "this is a copy of the message; a handler in another process returns to acknowledge, and raises to refuse; "
    "with auto_commit=False it returns a Decision"
)


def _copy(stored: StoredMessage, queue: MessageQueue, decoder: Decoder[Any] | None) -> AnyMessage:
    copy: AnyMessage = ConsumedMessage(stored, ProcessQueue(queue, stored.queue_offset, decoder), _Elsewhere())
    copy.state = State.DELIVERED
    return copy


def consumed(found: Iterable[StoredMessage], process_queue: ProcessQueue, outcome: Outcome) -> list[AnyMessage]:
    """Messages of a queue for the application: those of the retry topic get their own topics back."""
    if topics.is_retry(process_queue.queue.topic):
        for stored in found:
            stored.topic = stored.properties.get(names.RETRY_TOPIC, stored.topic)
    return [ConsumedMessage(stored, process_queue, outcome) for stored in found]
