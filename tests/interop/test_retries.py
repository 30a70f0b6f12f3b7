"""Messages that a Java consumer can't consume: tried again later and later, then dead letters that can be read."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop.conftest import SERVERS
from tests.support import apache, server
from tests.support.cluster import wait_for_route
from tests.support.events import Event, events
from tests.support.messages import content
from tests.support.process import free_broker_port, free_port

LEVELS = "1s 1s 1s 2s 3s"
"""The first try is at level 3, so it comes after 1 s, the second after 2 s."""


class Place(NamedTuple):
    namesrv: str
    kind: str


@pytest.fixture(scope="module", params=SERVERS)
def quick(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server with short delay levels."""
    directory = tmp_path_factory.mktemp(request.param)
    with ExitStack() as running:
        if request.param == "apache":
            names = running.enter_context(apache.name_server(directory / "namesrv", free_port()))
            levels = {"messageDelayLevel": LEVELS}
            running.enter_context(apache.broker(directory / "broker", free_broker_port(), names.address, properties=levels))
            namesrv = names.address
        else:
            started = running.enter_context(server.serve(directory, "--set", f"messageDelayLevel={LEVELS}"))
            namesrv = started.namesrv
        wait_for_route(namesrv, "TBW102")
        yield Place(namesrv, request.param)


def consumed(client: str, place: Place, directory: Path, topic: str, group: str, count: int, *more: str) -> list[Event]:
    """All that a consumer is given until it has had `count` deliveries and is done with them."""
    arguments = f"namesrv={place.namesrv}", f"topic={topic}", f"group={group}", *more
    name = f"PushConsumer-{len(list(directory.glob('*.out')))}"
    with apache.program(client, "PushConsumer", *arguments, directory=directory, name=name) as consumer:
        consumer.wait_until(
            lambda: any(each["messages"] >= count for each in events(consumer, "idle")), 60, f"{count} deliveries"
        )
        consumer.terminate()
        return events(consumer, "message")


@pytest.mark.parametrize("client", apache.CLIENTS)
@pytest.mark.parametrize("way", ["concurrently", "orderly"])
def test_what_fails_comes_again_and_then_is_a_dead_letter(
    client: str, way: str, quick: Place, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, group = unique(f"retries-{way}"), unique(f"group-{way}")
    where = f"namesrv={quick.namesrv}", f"topic={topic}", "prefix=try", "count=3", "queues=1"
    with apache.program(client, "Producer", *where, directory=tmp_path) as producer:
        assert producer.wait(60) == 0, producer.tail()
        assert not events(producer, "failed")
    failing = "failOnce=1", "failAlways=2", "maxReconsumeTimes=2", f"orderly={str(way == 'orderly').lower()}"
    received = consumed(client, quick, tmp_path, topic, group, 6, *failing)
    tries: dict[str, list[Event]] = {}
    for event in received:
        tries.setdefault(event["properties"]["index"], []).append(event)
    assert {index: [each["reconsumeTimes"] for each in found] for index, found in tries.items()} == {
        "0": [0],
        "1": [0, 1],
        "2": [0, 1, 2],
    }
    assert {each["topic"] for each in received} == {topic}
    for index, found in tries.items():
        assert {each["sha256"] for each in found} == {content("try-sync", int(index)).sha256}
        assert len({each["msgId"] for each in found}) == 1
    if way == "concurrently":
        stored = [each["storeTimestamp"] for each in tries["2"]]
        assert stored[1] - stored[0] >= 1000
        assert stored[2] - stored[1] >= 2000
    (dead,) = consumed(client, quick, tmp_path, f"%DLQ%{group}", unique("undertaker"), 1)
    assert (dead["sha256"], dead["keys"]) == (content("try-sync", 2).sha256, "try-sync-key-2")
    assert dead["properties"]["RETRY_TOPIC"] == topic
    assert dead["properties"]["ORIGIN_MESSAGE_ID"]
