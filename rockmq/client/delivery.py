"""Messages between the pulls and the application.

    pulled ─> Inbox ─> delivered ─> acknowledged            the queue's offset may move on
                ^          └─> refused: the broker keeps it for a later try, or else it is delivered
                └───────────── again here after a pause

`max_in_flight` bounds what the application has and hasn't finished; what waits in the inbox is bounded by its queues.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum, auto
from types import TracebackType
from typing import Protocol

from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ClientError
from rockmq.client.hooks import Watched
from rockmq.client.process_queue import ProcessQueue
from rockmq.protocol import properties as names
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import StoredMessage

log = logging.getLogger(__name__)

Watch = Callable[[StoredMessage, MessageQueue], Watched]
"""Tells hooks that the application gets a message."""

YIELD_EVERY = 64
"""Messages that may be taken without the event loop getting a turn; handlers that never wait must not starve pulls."""


class State(Enum):
    WAITING = auto()
    DELIVERED = auto()
    REFUSED = auto()
    DONE = auto()


class Outcome(Protocol):
    """Takes what the application decided about a message."""

    def acknowledged(self, message: "ConsumedMessage") -> None:
        """It is done with."""

    async def refused(self, message: "ConsumedMessage", delay_level: int) -> None:
        """It shall be delivered again later."""

    def returned(self, message: "ConsumedMessage") -> None:
        """It shall be delivered again at once: the application was interrupted."""


class ConsumedMessage:
    """A message as a consumer gets it. End it by `ack`, `nack` or a `process` block; until then it counts as in flight.

    `stored` is all that the broker keeps of it.
    """

    __slots__ = ("_outcome", "process_queue", "state", "stored", "taken", "watched")

    def __init__(self, stored: StoredMessage, process_queue: ProcessQueue, outcome: Outcome) -> None:
        self.stored = stored
        self.process_queue = process_queue
        self.state = State.WAITING
        self._outcome = outcome
        self.taken = 0.0
        """When the application got it, by the clock's `monotonic`."""
        self.watched: Watched | None = None
        """What hooks know of it, while the application has it."""

    @property
    def topic(self) -> str:
        """The topic it was sent to, also when it comes by way of the group's retry topic."""
        return self.stored.topic

    @property
    def body(self) -> bytes:
        return self.stored.body

    @property
    def tag(self) -> str | None:
        return self.stored.tag

    @property
    def keys(self) -> list[str]:
        return self.stored.keys

    @property
    def properties(self) -> dict[str, str]:
        return self.stored.properties

    @property
    def msg_id(self) -> str:
        return self.stored.msg_id

    @property
    def queue(self) -> MessageQueue:
        """The queue it was read from."""
        return self.process_queue.queue

    @property
    def queue_offset(self) -> int:
        return self.stored.queue_offset

    @property
    def reconsume_times(self) -> int:
        """How often it was delivered before."""
        return self.stored.reconsume_times

    @property
    def born_timestamp(self) -> int:
        return self.stored.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self.stored.store_timestamp

    async def ack(self) -> None:
        """It is done with. Raises ClientError when it was ended before."""
        self._end(State.DONE)
        self._outcome.acknowledged(self)

    async def nack(self, delay_level: int = 0) -> None:
        """Have it delivered again later: after the delay of that level, 0 lets the broker decide by the number of tries."""
        self._end(State.REFUSED)
        await self._outcome.refused(self, delay_level)

    def process(self, *, suppress: bool = False) -> "Processing":
        """`async with message.process():` acknowledges when the block ends well, and refuses when it raises.

        The exception goes on to the caller; with `suppress` it is logged and ends here.
        """
        return Processing(self, suppress)

    def _end(self, state: State) -> None:
        if self.state is not State.DELIVERED:
            raise ClientError(f"{self!r} was acknowledged or refused before")
        self.state = state
        if self.watched is not None:
            self.watched.end(succeeded=state is State.DONE)

    def __repr__(self) -> str:
        queue = self.queue
        return f"<message {self.msg_id} at {queue.broker_name} {queue.topic} {queue.queue_id}:{self.queue_offset}>"


class Processing:
    """The block around the work on one message."""

    __slots__ = ("_message", "_suppress")

    def __init__(self, message: ConsumedMessage, suppress: bool) -> None:
        self._message = message
        self._suppress = suppress

    async def __aenter__(self) -> ConsumedMessage:
        self._message.process_queue.processing += 1
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
                await message.nack()
            else:
                message._end(State.WAITING)
                message._outcome.returned(message)
        finally:
            message.process_queue.processing -= 1
        if self._suppress and isinstance(error, Exception):
            log.warning("%r failed and will be delivered again", message, exc_info=error)
            return True
        return None


class Inbox:
    """Messages that wait for the application, and the count of those it has."""

    def __init__(self, max_in_flight: int, clock: Clock | None = None, watch: Watch | None = None) -> None:
        assert max_in_flight > 0, max_in_flight
        self.max_in_flight = max_in_flight
        self._clock = clock or SystemClock()
        self._watch = watch
        self.in_flight = 0
        self.closed = False
        self._ready: deque[ConsumedMessage] = deque()
        self._takers: deque[asyncio.Future[None]] = deque()
        self._taken = 0

    def put(self, messages: Iterable[ConsumedMessage]) -> None:
        self._ready.extend(messages)
        self._wake()

    def put_first(self, message: ConsumedMessage) -> None:
        self._ready.appendleft(message)
        self._wake()

    async def take(self) -> ConsumedMessage | None:
        """The next message, when there is one and the bound allows; None when closed."""
        self._taken += 1
        if self._taken % YIELD_EVERY == 0:
            await asyncio.sleep(0)
        while True:
            message = self.take_nowait()
            if message is not None or self.closed:
                return message
            await self._wait()

    def take_nowait(self) -> ConsumedMessage | None:
        ready = self._ready
        while ready and self.in_flight < self.max_in_flight and not self.closed:
            message = ready.popleft()
            process_queue = message.process_queue
            if not process_queue.dropped:
                message.state = State.DELIVERED
                message.taken = self._clock.monotonic()
                process_queue.delivered += 1
                self.in_flight += 1
                if self._watch is not None:
                    message.watched = self._watch(message.stored, message.queue)
                return message
        return None

    def ended(self, process_queue: ProcessQueue, count: int = 1) -> None:
        """Messages of that queue are no longer with the application."""
        if process_queue.dropped:
            return  # they were taken off the count when the queue was lost
        process_queue.delivered -= count
        self.in_flight -= count
        if self._takers:
            self._wake()

    def withhold(self, process_queue: ProcessQueue) -> None:
        """Hand out no more of the queue's messages."""
        self._ready = deque(message for message in self._ready if message.process_queue is not process_queue)

    def lost(self, process_queue: ProcessQueue) -> None:
        """The queue isn't ours any more: forget its messages, also those the application has."""
        assert not process_queue.dropped, process_queue.queue
        process_queue.dropped = True
        self.in_flight -= process_queue.delivered
        self.withhold(process_queue)
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
        count = len(self._takers) if self.closed else min(len(self._ready), self.max_in_flight - self.in_flight)
        while count > 0 and self._takers:
            turn = self._takers.popleft()
            if not turn.done():
                turn.set_result(None)
                count -= 1


class Handed:
    """The outcome of a message that an administrator has handed to a consumer: it changes no offset."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self.result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """CR_SUCCESS or CR_LATER (CMResult.java)."""

    def acknowledged(self, message: ConsumedMessage) -> None:
        self._end(message, "CR_SUCCESS")

    async def refused(self, message: ConsumedMessage, delay_level: int) -> None:
        self._end(message, "CR_LATER")

    def returned(self, message: ConsumedMessage) -> None:
        self._end(message, "CR_LATER")

    def _end(self, message: ConsumedMessage, result: str) -> None:
        self._inbox.ended(message.process_queue)
        if not self.result.done():  # who asked may have given up
            self.result.set_result(result)


def consumed(stored: StoredMessage, process_queue: ProcessQueue, outcome: Outcome) -> ConsumedMessage:
    """A pulled message for the application: one from the retry topic gets its own topic back."""
    if topics.is_retry(stored.topic):
        stored.topic = stored.properties.get(names.RETRY_TOPIC, stored.topic)
    stored.broker_name = process_queue.queue.broker_name
    return ConsumedMessage(stored, process_queue, outcome)
