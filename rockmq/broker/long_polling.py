"""Pulls that wait for messages (PullRequestHoldService.java).

A parked pull is tried again when its queue gets a message, and answered for good at its deadline; deadlines are looked at
every 5 s, as clients expect of Apache's broker. How many may be parked is bounded; over the bound a pull is
answered at once.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rockmq.base.clock import Clock

SWEEP_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class Parked:
    """`attempt(last)` tries again and says whether it answered; with `last` it must."""

    deadline: float
    attempt: Callable[[bool], bool]
    is_gone: Callable[[], bool]


class LongPolling:
    """Parks pulls by queue. `watch` is told whenever somebody waits for a queue's next message."""

    def __init__(self, clock: Clock, parked_max: int, watch: Callable[[str, int], None]) -> None:
        self._clock = clock
        self._parked_max = parked_max
        self._watch = watch
        self._queues: dict[tuple[str, int], list[Parked]] = {}
        self._listeners: dict[tuple[str, int], Callable[[], None]] = {}
        self.count = 0

    def park(self, topic: str, queue_id: int, pull: Parked) -> bool:
        """Keep a pull until something arrives; False when too many are parked already."""
        if self.count >= self._parked_max:
            return False
        self._watch(topic, queue_id)  # may fail, and then nobody waits
        self._queues.setdefault((topic, queue_id), []).append(pull)
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
        self._retry((topic, queue_id), lambda pull: False)

    def sweep(self) -> None:
        """Answer what has waited long enough, and forget pulls whose client is gone."""
        now = self._clock.monotonic()
        for key in list(self._queues):
            if any(pull.deadline <= now or pull.is_gone() for pull in self._queues[key]):
                self._retry(key, lambda pull: pull.deadline <= now)

    def _retry(self, key: tuple[str, int], last: Callable[[Parked], bool]) -> None:
        waiting = self._queues.pop(key, [])
        self.count -= len(waiting)
        still = [pull for pull in waiting if not pull.is_gone() and not pull.attempt(last(pull))]
        if still:
            self._queues.setdefault(key, []).extend(still)
            self.count += len(still)
            self._watch(*key)

    def answer_topic(self, topic: str) -> None:
        """Answer every pull parked for a topic now; its queues are going."""
        for key in [key for key in self._queues if key[0] == topic]:
            self._retry(key, lambda pull: True)

    def answer_all(self) -> None:
        """Answer every parked pull now; the broker is stopping."""
        for key in list(self._queues):
            self._retry(key, lambda pull: True)
