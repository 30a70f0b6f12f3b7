"""What was popped and not acknowledged when a store goes from Apache's broker to ours, and back."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.test_store_moves import Moving
from tests.support import apache
from tests.support.cluster import wait_for_route
from tests.support.events import Event, events
from tests.support.messages import content
from tests.support.process import free_port

GROUP = "poppers"
QUICK = {"flushConsumerOffsetInterval": "200"}
"""Apache saves a group's offsets so often, and after a kill pops again what isn't saved."""


class Popping(Moving):
    """A store under changing brokers, and clients that pop from it."""

    def __init__(self, directory: Path, namesrv: str, **properties: str) -> None:
        super().__init__("5.5.0", "5.5.0", directory, namesrv, **QUICK, **properties)

    def fill(self, prefix: str, count: int) -> set[str]:
        where = f"namesrv={self.namesrv}", "topic=moving", f"prefix={prefix}", f"count={count}"
        with apache.program(self.client, "Producer", *where, directory=self.directory, name=f"fill-{prefix}") as producer:
            assert producer.wait(60) == 0, producer.tail()
            assert not events(producer, "failed")
        return {content(f"{prefix}-sync", index).key for index in range(count)}

    def pop(self, *arguments: str, topic: str = "moving", group: str = GROUP) -> list[Event]:
        """All that is popped."""
        where = f"namesrv={self.namesrv}", f"topic={topic}", f"group={group}", f"broker={apache.BROKER_NAME}", "route=moving"
        name = f"Pops-{len(list(self.directory.glob('Pops-*.out')))}"
        with apache.program(self.client, "Pops", *where, *arguments, directory=self.directory, name=name) as pops:
            assert pops.wait(120) == 0, pops.tail()
            assert not events(pops, "failed")
            assert {each["status"] for each in events(pops, "acknowledged")} <= {"OK"}
            return events(pops, "popped")


@pytest.fixture
def names(tmp_path: Path) -> Iterator[str]:
    with apache.name_server(tmp_path / "namesrv", free_port()) as started:
        yield started.address


def keys(popped: list[Event]) -> list[str]:
    return sorted(each["keys"] for each in popped)


def odd(popped: list[Event]) -> list[Event]:
    return [each for each in popped if int(each["properties"]["index"]) % 2]


def due(popped: Event) -> int:
    """When a message is visible again (ms)."""
    _, pop_time, invisible, *_ = popped["handle"].split(" ")
    return int(pop_time) + int(invisible)


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("buffered", [False, True], ids=["log", "memory"])
def test_what_apaches_broker_popped_comes_again_here(killed: bool, buffered: bool, tmp_path: Path, names: str) -> None:
    if killed and buffered:
        pytest.skip("what Apache's broker keeps in memory is lost with it")
    popping = Popping(tmp_path, names, enablePopBufferMerge=str(buffered).lower())
    with popping.apaches(killed=killed):
        wait_for_route(names, "TBW102")
        sent = popping.fill("first", 40)
        wait_for_route(names, "moving")
        out = popping.pop("ack=even", "count=40", "invisibleMs=45000", "batch=8")
        assert set(keys(out)) == sent
        time.sleep(3)  # Apache's wheel and offsets are saved
    left = {each["keys"]: each for each in odd(out)}
    late = [left.pop(key) for key in sorted(left)[:5]]
    handles = ";".join(f"{each['realTopic']},{each['queueId']},{each['offset']},{each['handle']}" for each in late)
    with popping.ours(killed=True):
        wait_for_route(names, "moving")
        fresh = popping.fill("second", 5)
        found = popping.pop("ack=all", f"count={len(left) + len(fresh)}", "timeoutMs=90000", f"handles={handles}")
        again = [each for each in found if each["keys"] in sent]
        assert keys(found) == sorted([*left, *fresh]), "these, and none that was acknowledged there or here"
        assert {each["reconsumeTimes"] for each in again} == {1}
        for each in again:
            assert each["at"] >= due(left[each["keys"]]), "not before its time"
            assert each["sha256"] == left[each["keys"]]["sha256"]
            assert each["properties"]["1ST_POP_TIME"] == left[each["keys"]]["handle"].split(" ")[1]
        time.sleep(1)
    with popping.ours():
        wait_for_route(names, "moving")
        assert popping.pop("ack=all", "count=1", "timeoutMs=8000") == [], "each once, also after a kill"
    with popping.apaches(killed=True):
        wait_for_route(names, "moving")
        assert popping.pop("ack=all", "count=1", "timeoutMs=8000") == []
