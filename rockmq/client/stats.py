"""What a client has done so far, counted as it goes, and the snapshot that users read (`Client.stats`)."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from rockmq.protocol.bodies.common import MessageQueue

BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)
"""Seconds up to which each bucket but the last goes."""


class Work:
    """Counters of one kind of work; they only grow."""

    __slots__ = ("buckets", "done", "failed", "seconds")

    def __init__(self) -> None:
        self.done = 0
        self.failed = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)

    def ended(self, seconds: float, *, done: int = 0, failed: int = 0) -> None:
        """Something has ended that took so long: so many messages are done, so many have failed."""
        self.done += done
        self.failed += failed
        self.seconds += seconds
        self.buckets[bisect_left(BOUNDS, seconds)] += 1

    def ended_quickly(self, seconds: float, *, done: int) -> None:
        """So many messages are done that took so long together, which is at most the first bound."""
        self.done += done
        self.seconds += seconds
        self.buckets[0] += done

    def snapshot(self) -> "WorkStats":
        return WorkStats(self.done, self.failed, Histogram(tuple(self.buckets), self.seconds))


class Stats:
    """The counters of a client: of sends by topic, of consumption by group and topic. There are as many as it uses."""

    def __init__(self) -> None:
        self.sends: dict[str, Work] = {}
        self.consumption: dict[tuple[str, str], Work] = {}

    def sent(self, topic: str) -> Work:
        found = self.sends.get(topic)
        if found is None:
            found = self.sends[topic] = Work()
        return found

    def consumed(self, group: str, topic: str) -> Work:
        found = self.consumption.get((group, topic))
        if found is None:
            found = self.consumption[group, topic] = Work()
        return found


@dataclass(frozen=True, slots=True)
class Histogram:
    """How often something took how long: `counts` belong to `BOUNDS`, and one more to what took longer."""

    counts: tuple[int, ...]
    seconds: float
    """All together."""

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Seconds; 0 when there was nothing."""
        return self.seconds / self.count if self.count else 0.0

    def quantile(self, part: float) -> float:
        """A time that this part (0 to 1) didn't take longer than: a bound, infinite if it is in the last bucket."""
        if not 0 <= part <= 1:
            raise ValueError(f"a part is between 0 and 1, not {part:g}")
        wanted, seen = part * self.count, 0
        for bound, count in zip(BOUNDS, self.counts, strict=False):
            seen += count
            if seen >= wanted:
                return bound
        return float("inf")


@dataclass(frozen=True, slots=True)
class WorkStats:
    """Messages that are done and that have failed, and how long each piece of work took: a request that sends, retries
    among it; or the time that the application had a message."""

    done: int
    failed: int
    latency: Histogram


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A queue that is consumed. `offset` is what may be committed, `cached` counts messages that were pulled and aren't
    finished, `delivered` those of them that the application has. `lag` is how far the offset is behind what the broker said
    last, None before it has."""

    queue: MessageQueue
    offset: int
    cached: int
    cached_bytes: int
    delivered: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class ClientStats:
    """What a client has done and has to do. Counters begin with the client."""

    sends: Mapping[str, WorkStats]
    """By topic. One-way sends aren't counted: nobody knows what comes of them."""
    consumption: Mapping[tuple[str, str], WorkStats]
    """By group and topic; retries count for the topic a message was sent to."""
    queues: Mapping[str, tuple[QueueStats, ...]]
    """By group, of the consumers that are open."""
    in_flight: int
    in_flight_bytes: int
    trace_dropped: int
    """Records of message trace that were lost."""

    @property
    def lag(self) -> int:
        """Messages that wait for this client, as far as brokers have told."""
        return sum(each.lag or 0 for queues in self.queues.values() for each in queues)
