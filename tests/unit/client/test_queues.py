"""Which queue a message goes to."""

from collections import Counter

import pytest

from rockmq.base.errors import ClientError
from rockmq.client.queues import RoundRobin, fixed, hashed, selected
from rockmq.client.routes import Target
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import Message

TARGETS = tuple(
    Target(MessageQueue("T", broker, number), str(number), f"{broker}:1") for broker in ("a", "b") for number in range(4)
)
MESSAGE = Message("T", b"x")


def test_round_robin_takes_turns() -> None:
    choose = RoundRobin()
    assert Counter(choose(TARGETS, None).queue for _ in range(80)) == {target.queue: 10 for target in TARGETS}


def test_round_robin_starts_anywhere() -> None:
    assert len({RoundRobin()(TARGETS, None) for _ in range(200)}) > 1


def test_a_retry_avoids_the_broker_that_failed() -> None:
    choose = RoundRobin()
    assert {choose(TARGETS, "a").queue.broker_name for _ in range(20)} == {"b"}


def test_a_retry_goes_back_when_there_is_no_other_broker() -> None:
    choose = RoundRobin()
    only = TARGETS[:4]
    assert {choose(only, "a").queue.queue_id for _ in range(20)} == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("key", "java_hash"),
    [("TagA", 2598919), ("polygenelubricants", -2147483648), ("Zürich", -1482116162), ("\U0001f600", 1772899), ("", 0)],
)
def test_keys_hash_as_in_java(key: str, java_hash: int) -> None:
    for count in (1, 3, 7, 8):
        assert hashed(key)(TARGETS[:count], None) is TARGETS[abs(java_hash) % count]


def test_a_key_stays_with_its_queue_on_a_retry() -> None:
    assert hashed("42")(TARGETS, "a") == hashed("42")(TARGETS, "b")


def test_a_named_queue() -> None:
    assert fixed(TARGETS[5].queue)(TARGETS, "b") is TARGETS[5]
    with pytest.raises(ClientError, match="queue 9 of T on a can't be sent to"):
        fixed(MessageQueue("T", "a", 9))(TARGETS, None)


def test_a_selector_is_asked_once() -> None:
    calls = []

    def last(queues: object, message: Message) -> MessageQueue:
        calls.append(message)
        return TARGETS[-1].queue

    choose = selected(last, MESSAGE)
    assert choose(TARGETS, None) is TARGETS[-1]
    assert choose(TARGETS, "b") is TARGETS[-1]
    assert calls == [MESSAGE]
