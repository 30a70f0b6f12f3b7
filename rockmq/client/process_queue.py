"""What was pulled from one queue and isn't finished (ProcessQueue.java; clients' spec, 3.5).

Messages finish in any order, but the group's offset is one number: everything below it is done. So it stands at the
smallest unfinished offset, and at the next one to pull when all is finished. It never goes back.
"""

import asyncio
import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rockmq.client.consume_stats import TopicStats
from rockmq.client.decoding import Decoder
from rockmq.client.stats import QueueStats, Work
from rockmq.protocol.bodies.common import MessageQueue

if TYPE_CHECKING:
    from rockmq.client.delivery import Processing

MESSAGES_MAX = 1000
BYTES_MAX = 100 * 1024 * 1024
SPAN_MAX = 2000
"""Offsets between the first and the last unfinished message: one stuck message mustn't let the others run far ahead."""


class Limits:
    """Bounds of each queue of a consumer. `per_topic` ones, where given, are shared out over the consumer's queues and hold
    instead of the queues' own (RebalancePushImpl.messageQueueChanged)."""

    def __init__(
        self,
        messages: int = MESSAGES_MAX,
        size: int = BYTES_MAX,
        span: float = SPAN_MAX,
        messages_per_topic: int | None = None,
        bytes_per_topic: int | None = None,
    ) -> None:
        self.messages = messages
        self.bytes = size
        self.span = span
        self._messages_per_topic = messages_per_topic
        self._bytes_per_topic = bytes_per_topic

    def share(self, queues: int) -> None:
        """The consumer has so many queues now."""
        if self._messages_per_topic is not None:
            self.messages = max(1, self._messages_per_topic // max(queues, 1))
        if self._bytes_per_topic is not None:
            self.bytes = max(1, self._bytes_per_topic // max(queues, 1))


DEFAULT_LIMITS = Limits()


class ProcessQueue:
    def __init__(self, queue: MessageQueue, offset: int, decoder: Decoder[Any] | None = None) -> None:
        self.queue = queue
        self.decoder = decoder
        """What applications get for the bodies of its messages; None leaves them bytes."""
        self.limits = DEFAULT_LIMITS
        self.topic_stats = TopicStats(Work())
        self.next_offset = offset
        """Where the next pull begins."""
        self.max_offset: int | None = None
        """What the broker said last of where the queue ends."""
        self.dropped = False
        """True when the queue is no longer ours: what comes of its messages doesn't matter any more."""
        self.bytes = 0
        self.delivered = 0
        """Messages that the application has and hasn't finished."""
        self.blocks: dict[Processing[Any], None] = {}
        """The handlers and `process` blocks that work on some of them, the oldest first."""
        self.leaving_since: float | None = None
        """When it was found to be no longer ours; nothing of it is handed out any more. Seconds of the event loop."""
        self.locked_until = math.inf
        """Until when the broker's lock keeps others away, if it takes one. Seconds of the event loop."""
        self.pulled_at = -math.inf
        self.consumed_at = -math.inf
        """When a pull was last answered, and work on a message last begun. Seconds of the event loop."""
        self._unfinished: deque[int] = deque()
        self._finished: set[int] = set()

    def add(self, offsets: Sequence[int], size: int) -> None:
        """Messages were pulled, of so many bytes together; offsets rise."""
        assert not self._unfinished or offsets[0] > self._unfinished[-1], (offsets, self._unfinished[-1])
        self._unfinished += offsets
        self.bytes += size

    def finish(self, offsets: Iterable[int], size: int) -> None:
        """Messages that were added, of so many bytes together, are done with; once for each."""
        self.bytes -= size
        unfinished, finished = self._unfinished, self._finished
        for offset in offsets:
            if offset == unfinished[0]:
                unfinished.popleft()
            else:
                finished.add(offset)
        while finished and unfinished[0] in finished:
            finished.remove(unfinished.popleft())

    @property
    def offset(self) -> int:
        """What may be committed: every message below it is finished."""
        return self._unfinished[0] if self._unfinished else self.next_offset

    def stats(self) -> QueueStats:
        lag = max(self.max_offset - self.offset, 0) if self.max_offset is not None else None
        return QueueStats(self.queue, self.offset, self.count, self.bytes, self.delivered, lag)

    @property
    def count(self) -> int:
        """Unfinished messages."""
        return len(self._unfinished) - len(self._finished)

    @property
    def span(self) -> int:
        return self._unfinished[-1] - self._unfinished[0] if self._unfinished else 0

    @property
    def full(self) -> bool:
        """Whether no more should be pulled for now."""
        limits = self.limits
        return self.count >= limits.messages or self.bytes >= limits.bytes or self.span >= limits.span


class Cache:
    """All that a consumer has pulled and not finished: the bound over all its queues, and who waits for room."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self.messages = 0
        self.bytes = 0
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._waiting: dict[ProcessQueue, asyncio.Future[None]] = {}

    @property
    def full(self) -> bool:
        return self.messages >= self._messages_max or self.bytes >= self._bytes_max

    def room(self, process_queue: ProcessQueue) -> "asyncio.Future[None] | None":
        """None when more of this queue may be pulled now, else what to wait for before asking again."""
        if not process_queue.full and not self.full:
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[process_queue] = turn
        return turn

    def add(self, process_queue: ProcessQueue, offsets: Sequence[int], size: int) -> None:
        """Messages were pulled, of so many bytes together."""
        process_queue.add(offsets, size)
        self.messages += len(offsets)
        self.bytes += size

    def finish(self, process_queue: ProcessQueue, offsets: Sequence[int], size: int) -> None:
        """Messages are done with. What becomes of a dropped queue's messages counts no more."""
        if process_queue.dropped:
            return
        was_full = self._waiting and self.full
        process_queue.finish(offsets, size)
        self.messages -= len(offsets)
        self.bytes -= size
        if self._waiting:
            if was_full:
                self._wake_all()
            elif process_queue in self._waiting and not process_queue.full:
                self._wake(process_queue)

    def drop(self, process_queue: ProcessQueue) -> None:
        """The queue is no longer ours; called before it is marked as dropped."""
        self.messages -= process_queue.count
        self.bytes -= process_queue.bytes
        if process_queue in self._waiting:
            self._wake(process_queue)
        self._wake_all()

    def _wake_all(self) -> None:
        if not self.full:
            for process_queue in list(self._waiting):
                self._wake(process_queue)

    def _wake(self, process_queue: ProcessQueue) -> None:
        turn = self._waiting.pop(process_queue)
        if not turn.done():
            turn.set_result(None)
