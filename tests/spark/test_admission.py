"""What a batch takes when it may not take all: within the limit, in proportion, and no queue waits for the others."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rockmq.protocol.bodies.common import MessageQueue
from rockmq.spark.admission import Amounts, share, share_bytes

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(6)]
backlogs = st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 10_000), max_size=len(QUEUES))


@given(there=backlogs, limit=st.integers(1, 20_000))
def test_as_much_as_allowed_is_taken(there: Amounts, limit: int) -> None:
    total, waiting = sum(there.values()), sum(amount > 0 for amount in there.values())

    taken = share(there, limit)

    assert taken.keys() == there.keys()
    assert sum(taken.values()) == min(max(limit, waiting), total)
    assert all(min(1, amount) <= taken[queue] <= amount for queue, amount in there.items())


@given(there=backlogs, limit=st.integers(1, 20_000))
def test_who_has_more_gives_more(there: Amounts, limit: int) -> None:
    taken = share(there, limit)

    ordered = [taken[queue] for queue in sorted(there, key=lambda queue: there[queue])]
    assert all(low <= high + 1 for low, high in pairwise(ordered))


def test_shares_are_in_proportion() -> None:
    assert share({QUEUES[0]: 3_001, QUEUES[1]: 1_001, QUEUES[2]: 1}, 403) == {QUEUES[0]: 301, QUEUES[1]: 101, QUEUES[2]: 1}


@given(there=backlogs, limit=st.integers(1, 1_000_000), data=st.data())
def test_bytes_are_shared_alike(there: Amounts, limit: int, data: st.DataObject) -> None:
    sizes = {queue: data.draw(st.floats(0, 5_000)) for queue in there}

    taken = share_bytes(there, sizes, limit)

    assert taken.keys() == there.keys()
    assert all(min(1, count) <= taken[queue] <= count for queue, count in there.items())
    more_than_one = {queue: count for queue, count in taken.items() if count > 1}
    assert sum(count * sizes[queue] for queue, count in more_than_one.items()) <= limit * 1.000001


def test_a_limit_of_bytes_is_used() -> None:
    assert share_bytes({QUEUES[0]: 1_000, QUEUES[1]: 1_000}, {QUEUES[0]: 100, QUEUES[1]: 300}, 40_000) == {
        QUEUES[0]: 100,
        QUEUES[1]: 100,
    }
