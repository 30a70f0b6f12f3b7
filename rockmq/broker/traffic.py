"""What handlers count for the metrics: what went out, by group and topic, and dead letters. What came in the core counts."""

from collections.abc import Callable
from dataclasses import dataclass, field

from rockmq.broker.groups import GroupTable
from rockmq.broker.topics import TopicTable
from rockmq.metrics import names
from rockmq.metrics.histogram import Histogram
from rockmq.protocol import properties, topics

EXPIRY_SECONDS = 3600.0
IDLE_LOOKS = 24
"""A series that nothing was added to between so many looks is forgotten, and begins at 0 should it come back."""

PAIRS_MAX = 100_000
"""Pairs of a topic and a group that are told apart; what is of more is counted together."""

NORMAL, FIFO, DELAY, TRANSACTION = range(4)
"""Kinds of messages that producers send, by the core's numbers."""
KINDS = ("normal", "fifo", "delay", "transaction")
_LATER = ("__STARTDELIVERTIME", properties.DELAY, *properties.TIMER_WISHES)


def is_system(topic: str, group: str) -> bool:
    """Whether something is the system's own by its topic or its group (BrokerMetricsManager.isSystem)."""
    return topics.is_system(topic) or group.lower().startswith("cid_rmq_sys_")


def kind_of(found: dict[str, str]) -> int:
    """What a message is by the properties that its producer gave it (BrokerMetricsManager.getMessageType)."""
    if found.get(properties.TRAN_MSG, "").lower() == "true":
        return TRANSACTION
    if properties.SHARDING_KEY in found:
        return FIFO
    return DELAY if any(key in found for key in _LATER) else NORMAL


@dataclass(slots=True)
class Given:
    """What a group got of a topic."""

    messages: int = 0
    bytes: int = 0
    next_offsets: dict[int, int] = field(default_factory=dict)
    """By queue, where its last pull ended."""
    seen: int = -1
    idle: int = 0


Key = tuple[str, str, bool | None]
"""Topic, group, and of a pop whether it was of retries."""


class Traffic:
    def __init__(self, topic_table: TopicTable, groups: GroupTable) -> None:
        self._topics = topic_table
        self._groups = groups
        self.given: dict[Key, Given] = {}
        self.others = Given()
        """What went out to all over the bound."""
        self.dead_letters: dict[tuple[str, str], int] = {}
        """By group and topic; both are empty for all over the bound."""
        self.delays: dict[str, Histogram] = {}
        """Of messages for a time, by topic, in seconds."""

    def pulled(self, group: str, topic: str, queue_id: int, messages: int, size: int, next_offset: int) -> None:
        given = self._given((topic, group, None))
        if given is not self.others:
            given.next_offsets[queue_id] = next_offset
        given.messages += messages
        given.bytes += size

    def popped(self, group: str, topic: str, messages: int, size: int, *, is_retry: bool) -> None:
        given = self._given((topic, group, is_retry))
        given.messages += messages
        given.bytes += size

    def peeked(self, group: str, topic: str, messages: int, size: int) -> None:
        given = self._given((topic, group, None))
        given.messages += messages
        given.bytes += size

    def _given(self, key: Key) -> Given:
        given = self.given.get(key)
        if given is None:
            if len(self.given) >= PAIRS_MAX:
                return self.others
            given = self.given[key] = Given()
        return given

    def next_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group's last pull of a queue ended, None when there was none."""
        given = self.given.get((topic, group, None))
        return given.next_offsets.get(queue_id) if given is not None else None

    def died(self, group: str, topic: str) -> None:
        key = (group, topic)
        if key not in self.dead_letters and len(self.dead_letters) >= PAIRS_MAX:
            key = ("", "")
        self.dead_letters[key] = self.dead_letters.get(key, 0) + 1

    def delayed(self, topic: str, seconds: int) -> None:
        histogram = self.delays.get(topic)
        if histogram is None:
            histogram = self.delays[topic] = Histogram(names.DELAY_SECONDS)
        histogram.note(seconds)

    def forget_topic(self, topic: str) -> None:
        """It was deleted; a new one of its name begins at 0."""
        self._forget(lambda of_topic, group: of_topic == topic)
        self.delays.pop(topic, None)

    def forget_group(self, group: str) -> None:
        """As `forget_topic`."""
        self._forget(lambda topic, of_group: of_group == group)

    def _forget(self, is_gone: Callable[[str, str], bool]) -> None:
        """Forget what is of a topic and a group for which that holds."""
        for key in list(self.given):
            if is_gone(key[0], key[1]):
                del self.given[key]
        for group, topic in list(self.dead_letters):
            if is_gone(topic, group):
                del self.dead_letters[group, topic]

    def expire(self) -> None:
        """Forget what is of topics and groups that are gone, or that has been idle for long. Called every
        `EXPIRY_SECONDS`."""
        for key, given in list(self.given.items()):
            topic, group, _ = key
            given.idle = given.idle + 1 if given.seen == given.messages else 0
            given.seen = given.messages
            if given.idle >= IDLE_LOOKS or not self._exists(topic, group):
                del self.given[key]
        for group, topic in list(self.dead_letters):
            if group and not self._exists(topic, group):
                del self.dead_letters[group, topic]
        for topic in list(self.delays):
            if self._topics.get(topic) is None:
                del self.delays[topic]

    def _exists(self, topic: str, group: str) -> bool:
        return self._topics.get(topic) is not None and self._groups.exists(group)
