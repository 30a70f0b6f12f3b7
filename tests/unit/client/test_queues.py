"""Which queue a message goes to."""

from collections import Counter

import pytest

from rockmq.base.errors import ClientError
from rockmq.client.queues import RoundRobin, fixed, hashed, java_hash, select_by_hash, select_by_random, selected
from rockmq.client.routes import Target
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.message import Message

TARGETS = tuple(
    Target(MessageQueue("T", broker, number), str(number), broker, f"{broker}:1")
    for broker in ("a", "b")
    for number in range(4)
)
MESSAGE = Message("T", b"x")


def test_round_robin_takes_turns() -> None:
    choose = RoundRobin()
    assert Counter(choose(TARGETS, None).queue for _ in range(80)) == {target.queue: 10 for target in TARGETS}


def test_round_robin_starts_anywhere() -> None:
    assert len({RoundRobin()(TARGETS, None) for _ in range(200)}) > 1


def test_round_robin_leaves_out_queues_without_a_master() -> None:
    choose = RoundRobin()
    some = [target if target.broker_name == "a" else target._replace(address="") for target in TARGETS]
    assert Counter(choose(some, None).queue for _ in range(40)) == {target.queue: 10 for target in TARGETS[:4]}
    assert {choose(some, "a").queue.broker_name for _ in range(20)} == {"a"}, "there is no other"
    nowhere = [target._replace(address="") for target in TARGETS]
    assert choose(nowhere, None) in nowhere


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


@pytest.mark.parametrize(
    ("argument", "java_hash_code"),
    [
        (0, 0), (42, 42), (-7, -7), (2**31 - 1, 2**31 - 1), (-(2**31), -(2**31)),
        (2**31, -(2**31)), (2**32, 1), (2**32 + 5, 4), (-(2**31) - 1, -(2**31)), (-(2**63), -(2**31)), (True, 1231),
        (False, 1237), ("TagA", 2598919),
    ],
)  # fmt: skip
def test_the_stock_selector_hashes_as_java(argument: str | int, java_hash_code: int) -> None:
    """Integer.hashCode, Long.hashCode, Boolean.hashCode, String.hashCode; SelectMessageQueueByHash takes the modulus."""
    assert java_hash(argument) == java_hash_code
    queues = [target.queue for target in TARGETS[:7]]
    assert select_by_hash(argument)(queues, MESSAGE) == queues[abs(java_hash_code) % 7]


def test_what_java_can_not_hash() -> None:
    with pytest.raises(ClientError, match="64 bits"):
        select_by_hash(2**63)


def test_a_random_queue() -> None:
    queues = [target.queue for target in TARGETS]
    assert {select_by_random(queues, MESSAGE) for _ in range(400)} == set(queues)
