"""Servers of one test bind their ports after both are chosen."""

from collections import Counter

from tests.support.process import free_broker_port, free_port


def test_no_two_servers_are_given_one_port() -> None:
    given = Counter[int]()
    for _ in range(30):
        broker = free_broker_port()
        given.update((free_port(), broker, broker - 2, broker + 1))
    assert max(given.values()) == 1
