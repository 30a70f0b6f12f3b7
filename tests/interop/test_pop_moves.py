"""What was popped and not acknowledged when a store goes from Apache's broker to ours, and back."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockmq.protocol import topics
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.message import decode_stored
from tests.interop.test_store_moves import BATCH_TOPIC, Moving
from tests.support import apache
from tests.support.cluster import wait_for_route
from tests.support.events import Event, events
from tests.support.messages import content
from tests.support.process import eventually, free_port

GROUP = "poppers"
RETRIES = f"%RETRY%{GROUP}_moving"
REVIVE_LOG = f"{topics.REVIVE_PREFIX}{apache.CLUSTER}"
REVIVE_QUEUES = 8
IN_ORDER = "order=true", "invisibleMs=600000"
IN_TIME_S = 5
"""What is due so soon isn't acknowledged any more: on a slow machine that would be too late."""
QUICK = {"flushConsumerOffsetInterval": "200"}
"""Apache saves offsets so often, from ten seconds after its start on. After a kill it pops again what isn't saved."""


class Popping(Moving):
    """A store under changing brokers, and clients that pop from it."""

    def __init__(self, directory: Path, namesrv: str, **properties: str) -> None:
        super().__init__("5.5.0", "5.5.0", directory, namesrv, **QUICK, **properties)

    def wait_until_saved(self, topic: str, count: int) -> None:
        """Until Apache's broker has saved offsets of the group behind so many messages, and what its wheel has with them."""
        eventually(lambda: sum(self._saved(topic, GROUP).values()) >= count, 60, f"offsets of {topic} saved")
        time.sleep(2)

    def wait_until_order_is_saved(self, key: str) -> None:
        """Until Apache's broker has saved what of this topic and group is out in order, as it does every ten seconds."""
        path = self.directory / "broker" / "store" / "config" / "consumerOrderInfo.json"
        eventually(lambda: path.exists() and f'"{key}"' in path.read_text(), 60, f"order of {key} saved")

    def wait_until_all_is_saved(self, *groups: tuple[str, str]) -> None:
        """Until our broker has saved what it knows of these topics and groups, and of what Apache's had popped: a slow disk
        gets a document now and then."""

        def is_saved() -> bool:
            known = all(self._saved(topic, group) == self._ask(topic, group) for topic, group in groups)
            done = {queue_id: end - 1 for queue_id, end in self._ends(REVIVE_LOG, REVIVE_QUEUES).items() if end > 0}
            return known and self._saved(REVIVE_LOG, topics.REVIVE_GROUP) == done

        eventually(is_saved, 90, f"offsets of {groups} saved")

    def _saved(self, topic: str, group: str) -> dict[int, int]:
        """Offsets by queue, as they are in the documents; with enableLmq it is lmqConsumerOffset.json."""
        config = self.directory / "broker" / "store" / "config"
        text = "".join(path.read_text() for path in config.glob("*onsumerOffset.json"))
        found = re.search(re.escape(f'"{topic}@{group}":') + r"\s*{([^}]*)}", text)
        rows = re.findall(r"(\d+)\"?\s*:\s*(-?\d+)", found[1]) if found is not None else []
        return {int(queue_id): int(offset) for queue_id, offset in rows}

    def _ask(self, topic: str, group: str) -> dict[int, int]:
        """Offsets by queue, as the broker knows them."""
        answers = {}
        for queue_id in self._ends(topic, 4):
            fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "setZeroIfNotFound": "false"}
            answer = apache.invoke(f"127.0.0.1:{self.port}", RequestCode.QUERY_CONSUMER_OFFSET, fields)
            if answer.code == 0:
                answers[queue_id] = int(answer.fields["offset"])
        return answers

    def _ends(self, topic: str, queues: int) -> dict[int, int]:
        ends = {}
        for queue_id in range(queues):
            fields = {"topic": topic, "queueId": str(queue_id)}
            answer = apache.invoke(f"127.0.0.1:{self.port}", RequestCode.GET_MAX_OFFSET, fields)
            if answer.code == 0:
                ends[queue_id] = int(answer.fields["offset"])
        return ends

    def left_in_order(self) -> int:
        """How many messages our broker's document says to be out in order."""
        path = self.directory / "broker" / "store" / "config" / "consumerOrderInfo.json"
        table = json.loads(path.read_text())["table"] if path.exists() else {}
        rows = [row for queues in table.values() for row in queues.values()]
        return sum(len(row["o"]) - (row.get("cm", 0) & (1 << 64) - 1).bit_count() for row in rows)

    def fill(self, prefix: str, count: int, topic: str = "moving", mode: str = "sync") -> set[str]:
        where = f"namesrv={self.namesrv}", f"topic={topic}", f"prefix={prefix}", f"count={count}", f"modes={mode}"
        with apache.program(self.client, "Producer", *where, directory=self.directory, name=f"fill-{prefix}") as producer:
            assert producer.wait(60) == 0, producer.tail()
            assert not events(producer, "failed")
        return {content(f"{prefix}-{mode}", index).key for index in range(count)}

    def dispatch(self, prefix: str, names: str) -> None:
        """A message into some light queues, the same ones each time."""
        where = f"namesrv={self.namesrv}", "topic=moving", f"broker={apache.BROKER_NAME}", "group=%LMQ%readers"
        what = f"prefix={prefix}", f"dispatch={names}", "queues=%LMQ%none"
        with apache.program(self.client, "LightQueues", *where, *what, directory=self.directory, name=prefix) as program:
            assert program.wait(60) == 0, program.tail()

    def peek(self, queue_id: int, count: int) -> tuple[object, ...]:
        """What anyone may see of the answer to PEEK_MESSAGE, which no client of Apache's sends."""
        fields = {"consumerGroup": GROUP, "topic": "moving", "queueId": str(queue_id), "maxMsgNums": str(count)}
        answer = apache.invoke(f"127.0.0.1:{self.port}", RequestCode.PEEK_MESSAGE, fields)
        found = sorted((each.queue_id, each.queue_offset, each.body) for each in decode_stored(answer.body))
        return answer.code, answer.remark, answer.fields, found

    def acknowledge(self, popped: Event) -> None:
        place = {"topic": popped["realTopic"], "queueId": str(popped["queueId"]), "offset": str(popped["offset"])}
        fields = {"consumerGroup": GROUP, "extraInfo": popped["handle"], **place}
        answer = apache.invoke(f"127.0.0.1:{self.port}", RequestCode.ACK_MESSAGE, fields)
        assert answer.code == 0, answer

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


def handles(popped: list[Event]) -> str:
    return ";".join(f"{each['realTopic']},{each['queueId']},{each['offset']},{each['handle']}" for each in popped)


def odd(popped: list[Event]) -> list[Event]:
    return [each for each in popped if int(each["properties"]["index"]) % 2]


def due(popped: Event) -> int:
    """When a message is visible again (ms)."""
    _, pop_time, invisible, *_ = popped["handle"].split(" ")
    return int(pop_time) + int(invisible)


@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize(
    ("killed", "buffered"),
    # What Apache's broker keeps in memory (enablePopBufferMerge) is lost when it is killed.
    [(False, True), (True, False)],
    ids=["stopped", "killed"],
)
def test_what_apaches_broker_popped_comes_again_here(killed: bool, buffered: bool, tmp_path: Path, names: str) -> None:
    popping = Popping(tmp_path, names, enablePopBufferMerge=str(buffered).lower())
    with popping.apaches(killed=killed):
        wait_for_route(names, "TBW102")
        sent = popping.fill("first", 40)
        wait_for_route(names, "moving")
        out = popping.pop("ack=even", "count=40", "invisibleMs=45000", "batch=8")
        assert set(keys(out)) == sent
        if killed:
            popping.wait_until_saved("moving", 40)
    left = {each["keys"]: each for each in odd(out)}
    with popping.ours(killed=True):
        for key in sorted(left)[:5]:  # first of all, to be in time
            if time.time() < due(left[key]) / 1000 - IN_TIME_S:
                popping.acknowledge(left.pop(key))
        wait_for_route(names, "moving")
        fresh = popping.fill("second", 5)
        found = popping.pop("ack=all", f"count={len(left) + len(fresh)}", "timeoutMs=90000")
        again = [each for each in found if each["keys"] in sent]
        assert keys(found) == sorted([*left, *fresh]), "these, and none that was acknowledged there or here"
        assert {each["reconsumeTimes"] for each in again} == {1}
        for each in again:
            assert each["at"] >= due(left[each["keys"]]), "not before its time"
            assert each["sha256"] == left[each["keys"]]["sha256"]
            assert each["properties"]["1ST_POP_TIME"] == left[each["keys"]]["handle"].split(" ")[1]
        popping.wait_until_all_is_saved(("moving", GROUP), (RETRIES, GROUP))
    with popping.ours():
        wait_for_route(names, "moving")
        assert popping.pop("ack=all", "count=1", "timeoutMs=6000") == [], "each once, also after a kill"
    with popping.apaches(killed=True):
        wait_for_route(names, "moving")
        assert popping.pop("ack=all", "count=1", "timeoutMs=6000") == []


def test_nothing_is_lost_on_the_way_back(tmp_path: Path, names: str) -> None:
    """Apache's broker pops again from the first message on that isn't acknowledged, and leaves what was popped in order to
    who has it. And it peeks as ours does."""
    popping = Popping(tmp_path, names)
    with popping.apaches(killed=True):
        wait_for_route(names, "TBW102")
        sent = popping.fill("first", 20)
        wait_for_route(names, "moving")
        peeks = [popping.peek(queue_id, count) for queue_id, count in ((-1, 32), (0, 2), (0, 0), (-1, 0))]
    with popping.ours(killed=True):
        wait_for_route(names, "moving")
        ours = [popping.peek(queue_id, count) for queue_id, count in ((-1, 32), (0, 2), (0, 0), (-1, 0))]
        assert ours == peeks
        out = popping.pop("ack=even", "count=20", "invisibleMs=600000")
        assert set(keys(out)) == sent
        ordered = popping.pop(*IN_ORDER, "ack=even", "count=20", group="orderly")
        assert set(keys(ordered)) == sent
        eventually(lambda: popping.left_in_order() == len(odd(ordered)), 90, "what is out in order saved")
        popping.wait_until_all_is_saved(("moving", GROUP), ("moving", "orderly"))
    with popping.apaches(killed=True):
        wait_for_route(names, "moving")
        assert popping.pop(*IN_ORDER, "count=1", "timeoutMs=2000", group="orderly") == []
        second = popping.fill("second", 8)
        fresh = popping.pop(*IN_ORDER, "ack=all", "count=8", f"handles={handles(odd(ordered))}", group="orderly")
        assert set(keys(fresh)) == second
        again = popping.pop("ack=all", "count=28", "timeoutMs=10000")
        assert set(keys(again)) >= {*keys(odd(out)), *second}
        assert popping.pop("ack=all", "count=1", "timeoutMs=3000") == []


def test_light_queues_and_batch_queues_are_popped_too(tmp_path: Path, names: str) -> None:
    """Apache's broker hands out a batch as one message that nobody unpacks; ours its messages."""
    popping = Popping(tmp_path, names, enableLmq="true", enableMultiDispatch="true")
    with popping.apaches(killed=True):
        made = apache.invoke(
            f"127.0.0.1:{popping.port}", RequestCode.UPDATE_AND_CREATE_TOPIC, BATCH_TOPIC | {"topic": "batches"}
        )
        assert made.code == 0, made
        wait_for_route(names, "batches")
        popping.dispatch("first", "%LMQ%b;%LMQ%b,%LMQ%a;%LMQ%a")
        wait_for_route(names, "moving")
        single = popping.fill("single", 4, "batches")
        light = popping.pop("count=2", "invisibleMs=15000", topic="%LMQ%a")
        assert [each["offset"] for each in light] == [0, 1]
        assert set(keys(popping.pop("count=4", "invisibleMs=15000", "ack=even", topic="batches"))) == single
        ordered = popping.pop(*IN_ORDER, "count=4", topic="batches", group="orderly")
        assert set(keys(ordered)) == single
        popping.wait_until_saved("batches", 4)
        popping.wait_until_order_is_saved("batches@orderly")
    with popping.ours():
        wait_for_route(names, "batches")
        popping.dispatch("second", "%LMQ%a,%LMQ%b")
        found = popping.pop("count=3", "ack=all", "timeoutMs=60000", topic="%LMQ%a")
        places = sorted((each["realTopic"], each["offset"], each["reconsumeTimes"]) for each in found)
        retry = f"%RETRY%{GROUP}_%LMQ%a"
        assert places == [("%LMQ%a", 2, 0), (retry, 0, 1), (retry, 1, 1)]
        assert {each["sha256"] for each in found} > {each["sha256"] for each in light}
        closed = popping.pop(*IN_ORDER, "count=1", "timeoutMs=2000", topic="batches", group="orderly")
        assert closed == [], "who has them works on them"
        sent = popping.fill("batch", 12, "batches", "batch")
        fresh = popping.pop(
            *IN_ORDER, "ack=all", "count=12", f"handles={handles(ordered)}", topic="batches", group="orderly"
        )
        assert set(keys(fresh)) == sent
        popped = popping.pop("count=14", "ack=all", "timeoutMs=60000", topic="batches")
        assert keys(popped) == sorted([*sent, *(key for key in single if int(key[-1]) % 2)])
        assert popping.pop("count=1", "timeoutMs=3000", topic="batches") == []
        assert popping.pop("count=1", "timeoutMs=3000", topic="%LMQ%a") == []
