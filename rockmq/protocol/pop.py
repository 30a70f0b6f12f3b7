"""Texts of pop: the handle of a message, and where popped messages lie (ExtraInfoUtil.java; store spec, 6.5).

A handle is `start pop-time invisible-time revive-queue retry-flag broker queue offset`; the client makes it of the texts in
a pop's response, where several queues are apart by `;`. The retry flag tells the topic: 0 the topic itself, 1 the group's
retry topic of it, 2 the one of an Apache broker with enableRetryTopicV2.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rockmq.base.errors import ProtocolError
from rockmq.protocol import topics

ORDERED = 999
"""The revive queue of messages that were popped in order: they go to no retry topic."""

_NUMBERS = re.compile(r"-?\d+(,-?\d+)*")


class Handle(NamedTuple):
    """What a popped message is acknowledged by, as far as the broker needs it."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue: int


class ReceiptHandle(NamedTuple):
    """All eight words: what a client keeps of a popped message to acknowledge it by."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue: int
    retry_flag: str
    broker_name: str
    queue_id: int
    offset: int

    @property
    def text(self) -> str:
        return " ".join(map(str, self))

    @classmethod
    def parse(cls, text: str) -> "ReceiptHandle":
        """Raises ProtocolError."""
        parts = text.split(" ")
        try:
            start, pop_time, invisible_time, revive, retry_flag, broker_name, queue_id, offset = parts
            return cls(
                int(start),
                int(pop_time),
                int(invisible_time),
                int(revive),
                retry_flag,
                broker_name,
                int(queue_id),
                int(offset),
            )
        except ValueError:
            raise ProtocolError(f"{text[:200]!r} is no handle of a popped message: expected eight words") from None


Place = tuple[str, int]
"""Which of the queues of a pop: retry flag and queue id."""


def retry_topic(topic: str, group: str) -> str:
    """Where a popped message goes that wasn't acknowledged in time (KeyBuilder.buildPopRetryTopicV1)."""
    return f"{topics.RETRY_PREFIX}{group}_{topic}"


def retry_topic_v2(topic: str, group: str) -> str:
    """Where an Apache broker with enableRetryTopicV2 puts it (KeyBuilder.buildPopRetryTopicV2)."""
    return f"{topics.RETRY_PREFIX}{group}+{topic}"


def parse_handle(text: str) -> Handle:
    """Raises ProtocolError."""
    parts = text.split(" ")
    try:
        return Handle(*map(int, parts[:4]))
    except (ValueError, TypeError):
        raise ProtocolError(
            f"extraInfo {text[:200]!r} is no handle of a popped message: expected eight words with blanks between"
        ) from None


def real_topic(topic: str, group: str, retry: str) -> str:
    """The topic that a retry flag means. Raises ProtocolError."""
    if retry == "0":
        return topic
    if retry == "1":
        return retry_topic(topic, group)
    if retry == "2":
        return retry_topic_v2(topic, group)
    raise ProtocolError(f"the retry flag is {retry[:20]!r}; this broker gives 0, 1 and 2")


def flag(topic: str) -> str:
    if not topics.is_retry(topic):
        return "0"
    return "2" if "+" in topic else "1"


def start_offsets(popped: Iterable[tuple[str, int, int]]) -> str:
    """Of (topic, queue, first offset) of each queue."""
    return ";".join(f"{flag(topic)} {queue_id} {start}" for topic, queue_id, start in popped)


def message_offsets(popped: Iterable[tuple[str, int, Sequence[int]]]) -> str:
    """Of (topic, queue, offsets of its messages) of each queue."""
    return ";".join(f"{flag(topic)} {queue_id} {','.join(map(str, offsets))}" for topic, queue_id, offsets in popped)


def order_counts(popped: Iterable[tuple[str, int, dict[int, int]]]) -> str:
    """Of (topic, queue, how often each offset was popped before); one number for a queue if it is the same for all."""
    parts = []
    for topic, queue_id, counts in popped:
        least = min(counts.values(), default=0)
        parts.append(f"{flag(topic)} {queue_id} {least}")
        parts += [f"{flag(topic)} qo{queue_id}%{offset} {count}" for offset, count in counts.items() if count != least]
    return ";".join(parts)


def parse_start_offsets(text: str | None) -> dict[Place, int]:
    """What `start_offsets` makes. Raises ProtocolError."""
    return {place: offsets[0] for place, offsets in parse_message_offsets(text).items()}


def parse_message_offsets(text: str | None) -> dict[Place, list[int]]:
    """What `message_offsets` makes. Raises ProtocolError."""
    try:
        return {
            (retry_flag, int(queue_id)): [int(offset) for offset in offsets.split(",")]
            for retry_flag, queue_id, offsets in _triples(text)
        }
    except ValueError:
        raise ProtocolError(f"{(text or '')[:200]!r} are no offsets of a pop: a queue isn't a number") from None


def parse_order_counts(text: str | None) -> dict[tuple[str, str], int]:
    """What `order_counts` makes, by retry flag and queue or `qo<queue>%<offset>`. Raises ProtocolError."""
    try:
        return {(retry_flag, which): int(count) for retry_flag, which, count in _triples(text)}
    except ValueError:
        raise ProtocolError(f"{(text or '')[:200]!r} are no counts of a pop") from None


def order_count(counts: Mapping[tuple[str, str], int], place: Place, offset: int) -> int:
    """How often the message was popped before."""
    retry_flag, queue_id = place
    return counts.get((retry_flag, f"qo{queue_id}%{offset}"), counts.get((retry_flag, str(queue_id)), 0))


def _triples(text: str | None) -> Iterator[tuple[str, str, str]]:
    for part in (text or "").split(";"):
        words = part.split(" ")
        if len(words) == 3 and _NUMBERS.fullmatch(words[2]):
            yield words[0], words[1], words[2]
        elif part:
            raise ProtocolError(f"{part[:200]!r} is none of a pop's offsets: expected flag, queue and numbers")
