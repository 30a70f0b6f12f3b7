"""Shares of queues, against vectors that Apache's jars gave and against Java's formula."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq.protocol import allocate

CLIENTS = ["c0", "c1", "c2", "c3"]


def shares(queues: int, clients: int) -> list[list[int]]:
    names = [f"c{number:03}" for number in range(clients)]
    return [allocate.averagely(range(queues), names, name) for name in names]


def test_vectors_of_the_java_class() -> None:
    assert [allocate.averagely(range(10), CLIENTS, client) for client in CLIENTS] == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]


@pytest.mark.parametrize(
    ("queues", "clients", "expected"),
    [
        (0, 2, [[], []]),
        (1, 3, [[0], [], []]),
        (3, 4, [[0], [1], [2], []]),
        (4, 4, [[0], [1], [2], [3]]),
        (5, 4, [[0, 1], [2], [3], [4]]),
        (8, 1, [list(range(8))]),
        (16, 3, [list(range(6)), list(range(6, 11)), list(range(11, 16))]),
    ],
)
def test_uneven_numbers(queues: int, clients: int, expected: list[list[int]]) -> None:
    assert shares(queues, clients) == expected


@given(queues=st.integers(0, 200), clients=st.integers(1, 60))
def test_every_queue_has_one_owner_and_shares_differ_by_one(queues: int, clients: int) -> None:
    found = shares(queues, clients)
    assert sorted(queue for share in found for queue in share) == list(range(queues))
    sizes = [len(share) for share in found]
    assert max(sizes) - min(sizes) <= 1
    assert all(share == list(range(share[0], share[-1] + 1)) for share in found if share)


def test_a_stranger_gets_nothing() -> None:
    assert allocate.averagely(range(4), CLIENTS, "other") == []


def test_clients_are_sorted_like_java_strings() -> None:
    # Java compares UTF-16 units: the surrogates of U+1F600 come before U+FF5E, unlike the code points.
    assert allocate.sort_clients(["b", "a", "b"]) == ["a", "b"]
    assert allocate.sort_clients(["\uff5e", "\U0001f600"]) == ["\U0001f600", "\uff5e"]
