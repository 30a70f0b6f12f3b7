"""Messages of a queue one after the other (ConsumeMessageOrderlyService.java; clients' spec, 3.7).

A queue's next message is handed out when the one before is acknowledged, so queues don't wait for each other but each
waits for itself: while its message is worked on, for a pause after a failure, and while the broker's lock on it isn't held.
That also holds over a queue that is lost and comes back while its old message is still worked on.
"""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from rockmq.base.clock import Clock
from rockmq.client.delivery import AnyMessage, Inbox, Watch
from rockmq.client.process_queue import ProcessQueue
from rockmq.protocol.bodies.common import MessageQueue


class OrderlyInbox(Inbox):
    """An inbox in which each queue is a line of its own."""

    def __init__(self, max_in_flight: int, clock: Clock | None = None, watch: Watch | None = None) -> None:
        super().__init__(max_in_flight, clock, watch)
        self._lines: dict[MessageQueue, dict[ProcessQueue, deque[AnyMessage]]] = {}
        """A queue has several lines when an administrator hands one of its messages out, or a new life of it has begun."""
        self._next: deque[ProcessQueue] = deque()
        """Queues whose first message may be taken now."""
        self._offered: set[ProcessQueue] = set()
        """The same, to look up."""
        self._held: dict[MessageQueue, int] = {}
        """How many of a queue's messages the application has, also when it isn't ours any more."""
        self._pauses: dict[ProcessQueue, asyncio.TimerHandle] = {}

    def put(self, messages: Iterable[AnyMessage]) -> None:
        for message in messages:
            self._line(message.process_queue).append(message)
            self.offer(message.process_queue)

    def put_first(self, message: AnyMessage) -> None:
        process_queue = message.process_queue
        if process_queue.dropped or process_queue.leaving_since is not None or self.closed:
            return
        line = self._line(process_queue)
        index = 0
        while index < len(line) and line[index].queue_offset < message.queue_offset:
            index += 1
        line.insert(index, message)
        self.offer(process_queue)

    def pause(self, process_queue: ProcessQueue, seconds: float) -> None:
        """Hand out nothing of the queue for so long."""
        before = self._pauses.pop(process_queue, None)
        if before is not None:
            before.cancel()
        if not self.closed and not process_queue.dropped:
            loop = asyncio.get_running_loop()
            self._pauses[process_queue] = loop.call_later(seconds, self._go_on, process_queue)

    def offer(self, process_queue: ProcessQueue) -> None:
        """Let the queue's first message be taken if nothing stands against it."""
        if process_queue not in self._offered and self._line_if_free(process_queue):
            self._offered.add(process_queue)
            self._next.append(process_queue)
            self._wake()

    def take_nowait(self) -> AnyMessage | None:
        while self._next and self.in_flight < self.max_in_flight and not self.closed:
            process_queue = self._next.popleft()
            self._offered.discard(process_queue)
            # Much may have come between since it was offered; it is offered again when that is over.
            line = self._line_if_free(process_queue)
            if line:
                message = line.popleft()
                self._hand_out([message])
                return message
        return None

    def ended(self, process_queue: ProcessQueue, count: int = 1) -> None:
        super().ended(process_queue, count)
        queue = process_queue.queue
        left = self._held.pop(queue) - count
        if left:
            self._held[queue] = left
            return
        lines = self._lines.get(queue, {})
        for each in [each for each, line in lines.items() if not line]:
            del lines[each]
        if not lines:
            self._lines.pop(queue, None)
        for each in list(lines):
            self.offer(each)

    def withhold(self, *process_queues: ProcessQueue) -> None:
        super().withhold(*process_queues)
        for process_queue in process_queues:
            self._forget(process_queue)

    def lost(self, process_queue: ProcessQueue) -> None:
        super().lost(process_queue)
        self._forget(process_queue)

    def close(self) -> None:
        super().close()
        for pause in self._pauses.values():
            pause.cancel()
        self._pauses.clear()
        self._lines.clear()
        self._next.clear()
        self._offered.clear()

    def _following(self, first: AnyMessage, count: int) -> list[AnyMessage]:
        line = self._lines.get(first.queue, {}).get(first.process_queue, deque())
        room = min(count, len(line), self.max_in_flight - self.in_flight)
        found = [line.popleft() for _ in range(room)]
        if found:
            self._hand_out(found)
        return found

    def _hand_out(self, messages: Sequence[AnyMessage]) -> None:
        queue = messages[0].queue
        self._held[queue] = self._held.get(queue, 0) + len(messages)
        super()._hand_out(messages)

    def _line(self, process_queue: ProcessQueue) -> deque[AnyMessage]:
        return self._lines.setdefault(process_queue.queue, {}).setdefault(process_queue, deque())

    def _line_if_free(self, process_queue: ProcessQueue) -> deque[AnyMessage] | None:
        """What waits in the queue, unless it has to wait on."""
        if process_queue in self._pauses or self._held.get(process_queue.queue):
            return None
        if process_queue.locked_until <= asyncio.get_running_loop().time():
            return None
        return self._lines.get(process_queue.queue, {}).get(process_queue)

    def _go_on(self, process_queue: ProcessQueue) -> None:
        del self._pauses[process_queue]
        self.offer(process_queue)

    def _forget(self, process_queue: ProcessQueue) -> None:
        lines = self._lines.get(process_queue.queue, {})
        lines.pop(process_queue, None)
        if not lines:
            self._lines.pop(process_queue.queue, None)
        pause = self._pauses.pop(process_queue, None)
        if pause is not None:
            pause.cancel()

    def _waiting(self) -> int:
        return len(self._next)
