"""How much may be sent to a topic, and by a client (beyond Apache).

A quota is an amount a second, of which a second's may come at once. Ordinary sends don't pass here, so what came is looked
at every `LOOK_SECONDS`: a topic over its quota takes no more until time has made up for it, and its sends are answered with
FLOW_CONTROL and when to come again; from a client over its own nothing is read meanwhile. So a quota may be
exceeded for that moment, and holds over longer.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil

from rockmq.base.clock import Clock
from rockmq.broker.topics import TopicTable
from rockmq.protocol import properties
from rockmq.protocol.bodies.common import TopicConfig
from rockmq.remoting.connection import Connection
from rockmq.store.message_store import MessageStore

LOOK_SECONDS = 0.05
ATTRIBUTE = "send.quota"
"""The attribute of a topic that says how many messages a second it takes."""


@dataclass(slots=True)
class _Bucket:
    """What is left of a quota; below 0 it is used up."""

    rate: float
    left: float
    seen: int
    """The count when it was looked at last."""
    queues: int = 0
    """Of a topic: those that were counted."""
    is_used_up: bool = False

    def look(self, count: int, seconds: float) -> bool:
        """Take what came since the last look; whether that has changed if it is used up."""
        self.left = min(self.left + self.rate * seconds, self.rate) - (count - self.seen)
        self.seen = count
        before, self.is_used_up = self.is_used_up, self.left < 0
        return before != self.is_used_up

    def wait_ms(self) -> int:
        return max(1, ceil(-self.left / self.rate * 1000))


def quota_of(config: TopicConfig) -> int | None:
    """Messages a second, None without a quota."""
    return properties.number(config.attributes.get(ATTRIBUTE)) or None


def _queues(config: TopicConfig) -> int:
    return max(config.write_queue_nums, config.read_queue_nums)


class Quotas:
    """Keeps topics and clients to their quotas; `client_bytes` is what each connection may send a second, 0 for no bound."""

    def __init__(
        self,
        topics: TopicTable,
        store: MessageStore,
        connections: Callable[[], Iterable[Connection]],
        client_bytes: int,
        clock: Clock,
    ) -> None:
        self._table = topics
        self._store = store
        self._connections = connections
        self._client_bytes = client_bytes
        self._clock = clock
        self._looked = clock.monotonic()
        self._topics: dict[str, _Bucket] = {}
        self._clients: dict[Connection, _Bucket] = {}
        topics.on_change.append(self._changed)
        for config in topics.all().values():
            self._set(config)

    def _changed(self, topic: str) -> None:
        config = self._table.get(topic)
        if config is not None:
            self._set(config)
        elif self._topics.pop(topic, None) is not None:
            self._table.closed.discard(topic)

    def _set(self, config: TopicConfig) -> None:
        name, quota, queues = config.topic_name, quota_of(config), _queues(config)
        held = self._topics.get(name)
        if quota is None:
            if held is not None:
                del self._topics[name]
                self._table.set_closed(name, False)
        elif held is None:
            self._topics[name] = _Bucket(quota, quota, self._count(config), queues)
        else:
            held.rate = quota
            if held.queues != queues:  # what queues have that come back, or go, wasn't sent now
                held.queues, held.seen = queues, self._count(config)

    def _count(self, config: TopicConfig) -> int:
        """Messages that the topic ever had."""
        return sum(self._store.bounds(config.topic_name, queue_id)[1] for queue_id in range(_queues(config)))

    def refusal(self, topic: str) -> str | None:
        """Why a topic takes no message now, and when it will; None when it does."""
        bucket = self._topics.get(topic)
        if bucket is None or not bucket.is_used_up:
            return None
        return (
            f"the topic {topic} is over its quota of {bucket.rate:g} messages a second; try again in {bucket.wait_ms()} ms"
        )

    def look(self) -> None:
        """Called every `LOOK_SECONDS`."""
        now = self._clock.monotonic()
        seconds, self._looked = now - self._looked, now
        for name, bucket in self._topics.items():
            config = self._table.get(name)
            if config is not None and bucket.look(self._count(config), seconds):
                self._table.set_closed(name, bucket.is_used_up)
        if self._client_bytes:
            self._look_at_clients(seconds)

    def _look_at_clients(self, seconds: float) -> None:
        rate = self._client_bytes
        clients = {}
        for connection in self._connections():
            traffic = connection.traffic
            bucket = clients[connection] = self._clients.get(connection) or _Bucket(rate, rate, 0)
            if bucket.look(traffic, seconds):
                if bucket.is_used_up:
                    connection.hold_reading()
                else:
                    connection.release_reading()
        self._clients = clients
