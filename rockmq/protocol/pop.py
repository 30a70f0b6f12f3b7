"""Texts of pop: the handle of a message, and where popped messages lie (ExtraInfoUtil.java; store spec, 6.5).

A handle is `start pop-time invisible-time revive-queue retry-flag broker queue offset`; the client makes it of the texts in
a pop's response, where several queues are apart by `;`. The retry flag tells the topic: 0 the topic itself, 1 the group's
retry topic of it, 2 the one of an Apache broker with enableRetryTopicV2.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rockmq.base.errors import ProtocolError
from rockmq.protocol import topics

ORDERED = 999
"""The revive queue of messages that were popped in order: they go to no retry topic."""


class Handle(NamedTuple):
    """What a popped message is acknowledged by, as far as the broker needs it."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue: int


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
