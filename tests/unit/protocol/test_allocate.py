"""Shares of queues, against vectors that Apache's jars gave and against Java's formula."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq.base.errors import ClientError
from rockmq.protocol import allocate
from rockmq.protocol.bodies.common import MessageQueue

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


def numbered(share: allocate.Strategy, queues: list[MessageQueue], clients: list[str] = CLIENTS) -> list[list[int]]:
    return [[queue.queue_id for queue in share(queues, clients, client)] for client in clients]


TEN = [MessageQueue("T", "b", number) for number in range(10)]


def test_vectors_of_the_other_java_classes() -> None:
    assert numbered(allocate.in_a_circle, TEN) == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]
    assert numbered(allocate.by_consistent_hash(), TEN) == [[3, 4, 6], [2, 9], [0, 7, 8], [1, 5]]
    rooms = [MessageQueue("T", "east@b", number) for number in range(5)]
    assert numbered(allocate.by_machine_room({"east"}), rooms, ["c0", "c1"]) == [[0, 1, 4], [2, 3]]


def test_the_ring_can_be_another() -> None:
    share = allocate.by_consistent_hash(1, lambda text: len(text) if "[" in text else int(text[1]))
    assert numbered(share, TEN) == [list(range(10)), [], [], []], "behind the last point comes the first"


def test_queues_of_other_rooms_are_nobodys() -> None:
    queues = [MessageQueue("T", broker, 0) for broker in ("b", "east@a@b", "east@b", "west@b")]
    assert list(allocate.by_machine_room(["east"])(queues, ["c0"], "c0")) == [queues[2]]


def test_queues_go_to_members_nearby() -> None:
    queues = [MessageQueue("T", broker, number) for broker in ("east", "north", "west") for number in range(4)]
    share = allocate.near_machine_room(lambda queue: queue.broker_name, lambda client: client.partition("-")[0])
    clients = ["east-1", "east-2", "west-1"]
    found = {client: [(queue.broker_name, queue.queue_id) for queue in share(queues, clients, client)] for client in clients}
    assert found == {
        "east-1": [("east", 0), ("east", 1), ("north", 0), ("north", 1)],
        "east-2": [("east", 2), ("east", 3), ("north", 2)],
        "west-1": [("west", 0), ("west", 1), ("west", 2), ("west", 3), ("north", 3)],
    }
    with pytest.raises(ClientError, match="no machine room"):
        allocate.near_machine_room(lambda queue: "", lambda client: "east")(queues, clients, "east-1")


def test_a_fixed_list() -> None:
    share = allocate.configured([TEN[7], TEN[2]])
    assert [queue.queue_id for queue in share(TEN, CLIENTS, "c3")] == [2, 7]
    retry = [MessageQueue("%RETRY%g", "b", 0)]
    assert [list(share(retry, CLIENTS, client)) for client in CLIENTS] == [retry, [], [], []]


@pytest.mark.parametrize(
    "share",
    [
        allocate.in_a_circle,
        allocate.by_consistent_hash(),
        allocate.by_machine_room({"east"}),
        allocate.near_machine_room(lambda queue: "east", lambda client: "east"),
    ],
)
@given(queues=st.integers(0, 60), clients=st.integers(1, 20))
def test_every_strategy_gives_each_queue_to_one_member(share: allocate.Strategy, queues: int, clients: int) -> None:
    all_queues = [MessageQueue("T", "east@b", number) for number in range(queues)]
    names = [f"c{number:03}" for number in range(clients)]
    assert sorted(queue for name in names for queue in share(all_queues, names, name)) == all_queues
    assert not share(all_queues, names, "other")
