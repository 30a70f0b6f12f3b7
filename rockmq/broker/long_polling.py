"""Pulls and pops that wait for messages (PullRequestHoldService.java, PopLongPollingService.java).

What is parked is tried again when one of its queues gets a message, and answered for good at its deadline; deadlines are
looked at every 5 s, as clients expect of Apache's broker. How many may be parked is bounded; over the bound a request is
answered at once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rockmq.base.clock import Clock

SWEEP_SECONDS = 5.0

Queue = tuple[str, int]
"""Topic and queue id."""


@dataclass(slots=True, eq=False)
class Parked:
    """`attempt(last)` tries again and says whether it answered; with `last` it must. `ended` is called when it is parked no
    more."""

    deadline: float
    attempt: Callable[[bool], bool]
    is_gone: Callable[[], bool]
    ended: Callable[[], None] | None = None
    queues: Sequence[Queue] = ()
    trying: bool = False


class LongPolling:
    """Parks requests by queues. `watch` is told whenever somebody waits for a queue's next message."""

    def __init__(self, clock: Clock, parked_max: int, watch: Callable[[str, int], None]) -> None:
        self._clock = clock
        self._parked_max = parked_max
        self._watch = watch
        self._queues: dict[Queue, dict[Parked, None]] = {}
        self._topics: dict[str, set[int]] = {}
        """The ids of the queues in `_queues`."""
        self._listeners: dict[Queue, Callable[[], None]] = {}
        self.count = 0

    def park(self, queues: Sequence[Queue], parked: Parked) -> bool:
        """Keep a request until something arrives in one of the queues; False when too many are parked already."""
        if self.count >= self._parked_max:
            return False
        for queue in queues:
            self._watch(*queue)  # may fail, and then nobody waits
        parked.queues = queues
        for queue in queues:
            if queue not in self._queues:
                self._queues[queue] = {}
                self._topics.setdefault(queue[0], set()).add(queue[1])
            self._queues[queue][parked] = None
        self.count += 1
        return True

    def listen(self, topic: str, queue_id: int, arrived: Callable[[], None]) -> None:
        """Call once, when the queue gets a message that may be read: for a service of ours, of which a queue has one."""
        self._watch(topic, queue_id)
        self._listeners[topic, queue_id] = arrived

    def wake(self, topic: str, queue_id: int) -> None:
        """The queue got messages that may be read."""
        arrived = self._listeners.pop((topic, queue_id), None)
        if arrived is not None:
            arrived()
        self._retry((topic, queue_id), lambda parked: False)

    def sweep(self) -> None:
        """Answer what has waited long enough, and forget requests whose client is gone."""
        now = self._clock.monotonic()
        for queue, waiting in list(self._queues.items()):
            if any(parked.deadline <= now or parked.is_gone() for parked in waiting):
                self._retry(queue, lambda parked: parked.deadline <= now)

    def again(self, parked: Parked) -> None:
        """Try one request, if it still waits."""
        self._try(parked, last=False)

    def end(self, parked: Parked) -> None:
        """Answer one request for good, if it still waits."""
        self._try(parked, last=True)

    def _retry(self, queue: Queue, last: Callable[[Parked], bool]) -> None:
        if queue not in self._queues:
            return
        self._watch(*queue)  # first: what comes while they try wakes them once more
        for parked in list(self._queues[queue]):
            self._try(parked, last=last(parked))

    def _try(self, parked: Parked, *, last: bool) -> None:
        # A wake that the attempt itself has caused, or what was answered by such.
        if parked.trying or parked not in self._queues.get(parked.queues[0], ()):
            return
        parked.trying = True
        try:
            done = parked.is_gone() or parked.attempt(last)
        finally:
            parked.trying = False
        if done:
            self._forget(parked)

    def _forget(self, parked: Parked) -> None:
        for queue in parked.queues:
            waiting = self._queues.get(queue, {})
            waiting.pop(parked, None)
            if not waiting and self._queues.pop(queue, None) is not None:
                ids = self._topics[queue[0]]
                ids.discard(queue[1])
                if not ids:
                    del self._topics[queue[0]]
        self.count -= 1
        if parked.ended is not None:
            parked.ended()

    def answer_topic(self, topic: str) -> None:
        """Answer every request parked for a topic now; its queues are going."""
        for queue_id in list(self._topics.get(topic, ())):
            self._retry((topic, queue_id), lambda parked: True)

    def answer_all(self) -> None:
        """Answer every parked request now; the broker is stopping."""
        for queue in list(self._queues):
            self._retry(queue, lambda parked: True)
