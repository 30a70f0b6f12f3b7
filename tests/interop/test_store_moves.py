"""One store and one broker.conf, served by Apache's broker, then by ours, then by Apache's again."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support import apache, server
from tests.support.cluster import wait_for_route
from tests.support.events import Event, events, wait_for_keys
from tests.support.messages import content
from tests.support.process import eventually, free_broker_port, free_port

MODES = ("sync", "batch", "large")
PER_MODE = 12


class Moving:
    """A store under changing brokers, and clients that know nothing of it."""

    def __init__(self, client: str, directory: Path, namesrv: str) -> None:
        self.client, self.directory, self.namesrv = client, directory, namesrv
        self.port = free_broker_port()
        self.configuration = directory / "broker" / "broker.conf"

    @contextmanager
    def apaches(self) -> Iterator[None]:
        with apache.broker(self.directory / "broker", self.port, self.namesrv) as broker:
            yield
            broker.terminate()

    @contextmanager
    def ours(self) -> Iterator[None]:
        with server.broker(self.directory / "rockmq", self.configuration) as broker:
            eventually(lambda: apache.is_registered(self.namesrv, broker.broker), 30, "our broker registered")
            yield
            broker.terminate()

    def send(self, prefix: str) -> set[str]:
        arguments = f"prefix={prefix}", f"modes={','.join(MODES)}", f"count={PER_MODE}"
        where = f"namesrv={self.namesrv}", "topic=moving"
        name = f"Producer-{prefix}"
        with apache.program(self.client, "Producer", *where, *arguments, directory=self.directory, name=name) as producer:
            assert producer.wait(90) == 0, producer.tail()
            assert not events(producer, "failed")
        return {content(f"{prefix}-{mode}", i).key for mode in MODES for i in range(PER_MODE)}

    def consume(self, group: str, keys: set[str]) -> list[Event]:
        """All a group is given until it has `keys`."""
        where = f"namesrv={self.namesrv}", "topic=moving", f"group={group}"
        name = f"PushConsumer-{len(list(self.directory.glob('*.out')))}"
        with apache.program(self.client, "PushConsumer", *where, directory=self.directory, name=name) as consumer:
            wait_for_keys(consumer, keys, 90)
            consumer.terminate()
            return events(consumer, "message")


def judge(received: list[Event], prefixes: set[str]) -> None:
    """Content and order of what a group got: nothing but messages with these prefixes, each as it was sent."""
    for message in received:
        prefix, _, index = message["keys"].rpartition("-key-")
        assert prefix.split("-")[0] in prefixes
        assert message["sha256"] == content(prefix, int(index), 6_000 if prefix.endswith("-large") else 0).sha256
    places = {(message["queueId"], message["queueOffset"]) for message in received}
    assert len(places) == len({message["msgId"] for message in received})


@pytest.mark.parametrize("client", apache.CLIENTS)
def test_store_moves_to_our_broker_and_back(client: str, tmp_path: Path) -> None:
    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        moving = Moving(client, tmp_path, names.address)
        with moving.apaches():
            first = moving.send("first")
            judge(moving.consume("follower", first), {"first"})
        with moving.ours():
            wait_for_route(moving.namesrv, "moving")
            second = moving.send("second")
            judge(moving.consume("follower", second), {"second"})
            judge(moving.consume("late", first | second), {"first", "second"})
        with moving.apaches():
            wait_for_route(moving.namesrv, "moving")
            third = moving.send("third")
            judge(moving.consume("follower", third), {"third"})
            judge(moving.consume("late", third), {"third"})
            judge(moving.consume("last", first | second | third), {"first", "second", "third"})
