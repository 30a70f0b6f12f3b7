"""What Apache's broker had popped and not acknowledged when it left a store (store spec, 6.5)."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rockmq.broker import pop_revive
from rockmq.broker.server import Broker
from rockmq.protocol import properties, topics
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.pop import Ack
from rockmq.protocol.message import StoredMessage
from rockmq.remoting.client import RemotingClient
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import SETTINGS, options
from tests.unit.broker.test_messages import create_request
from tests.unit.broker.test_pop import RETRY, Group, again
from tests.unit.broker.test_timers import image
from tests.unit.store.stores import HOST, made

LOG = "rmq_sys_REVIVE_LOG_DefaultCluster"
INVISIBLE = 60_000
POPPED = 1_700_000_000_000
"""When everything here was popped: the time at which the test's clock begins."""


class Left:
    """A store as Apache's broker leaves it: a topic T, of which a group g has popped the first messages of queue 0."""

    def __init__(self, root: Path, clock: FakeClock, remote: RemotingClient) -> None:
        self.root = root
        self.clock = clock
        self.remote = remote
        self.records: list[tuple[str, dict[str, object], int, int]] = []

    @asynccontextmanager
    async def served(self, **settings: str) -> AsyncIterator[Group]:
        broker = Broker(options(self.root, **settings), self.clock)
        await broker.start()
        try:
            yield Group(broker, self.remote)
        finally:
            await broker.close()

    async def fill(self, count: int, *more: str) -> None:
        """Messages 0, 1, …, the group's offset behind them, and the retry topic and `more`."""
        async with self.served() as group:
            for name in ("T", RETRY, *more):
                await self.remote.ask(group.broker.address, create_request(name, queues=2), 5)
            await group.send(*(b"%d" % number for number in range(count)))
        self.change(
            "topics", "topicConfigTable", LOG, {"topicName": LOG, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        )
        self.change("subscriptionGroup", "subscriptionGroupTable", "g", {"groupName": "g"})
        self.change("consumerOffset", "offsetTable", "T@g", {"0": count})

    def change(self, document: str, table: str, key: str, value: object) -> None:
        path = self.root / "config" / f"{document}.json"
        held = json.loads(path.read_text()) if path.exists() else {}
        held.setdefault(table, {})[key] = value
        path.write_text(json.dumps(held))

    def checkpoint(self, start: int, count: int, *, queue: int = 0, **more: object) -> None:
        said: dict[str, object] = {
            "so": start,
            "n": count,
            "pt": POPPED,
            "it": INVISIBLE,
            "t": "T",
            "c": "g",
            "q": 0,
            "bm": 0,
        }
        said |= {"d": list(range(count)), "bn": "apache-a", "ro": 0} | more
        self.records.append(("ck", said, POPPED + INVISIBLE - 1000, queue))

    def acknowledge(self, start: int, *offsets: int, queue: int = 0, is_batch: bool = False) -> None:
        said: dict[str, object] = {"so": start, "pt": POPPED, "t": "T", "c": "g", "q": 0, "bn": "apache-a"}
        for each in [list(offsets)] if is_batch else offsets:
            told = said | ({"ao": -1, "aol": each} if is_batch else {"ao": each})
            self.records.append(("bAck" if is_batch else "ack", told, POPPED + INVISIBLE, queue))

    async def leave(self, *, delivered: bool = False) -> None:
        """Write the records into the queue of timers, or where timers have delivered them."""
        store, _ = made(self.root, SETTINGS, self.clock)
        await store.start()
        for tag, said, deliver, queue in self.records:
            told = {properties.TAGS: tag, properties.TIMER_DELIVER_MS: str(deliver)}
            if not delivered:
                told |= {properties.REAL_TOPIC: LOG, properties.REAL_QID: str(queue)}
                told[properties.TIMER_OUT_MS] = str(deliver - 1000)
            body = json.dumps(said).encode() if said else b"{"
            place = (LOG, queue) if delivered else (topics.TIMER, 0)
            store.append(*place, body, properties.encode(told), born_host=HOST, born_timestamp=POPPED)
        self.records.clear()
        await store.close()

    async def pass_over(self, seconds: float = INVISIBLE / 1000 + 10) -> None:
        """Let time pass in steps, as timers need some of it."""
        for _ in range(5):
            self.clock.seconds += seconds / 5
            await asyncio.sleep(0.3)


@pytest.fixture
async def left(tmp_path: Path, remote: RemotingClient) -> Left:
    return Left(tmp_path / "store", FakeClock(), remote)


def bodies(popped: list[tuple[StoredMessage, str]]) -> list[bytes]:
    return sorted(message.body for message, _ in popped)


@pytest.mark.parametrize("delivered", [False, True], ids=["in the timers", "delivered"])
async def test_what_isnt_acknowledged_comes_again_once(left: Left, delivered: bool) -> None:
    await left.fill(12)
    # An acknowledgement may be delivered first where Apache's broker was killed.
    left.acknowledge(0, 0)
    left.checkpoint(0, 3)
    left.acknowledge(0, 2)
    left.checkpoint(3, 3, queue=1, d=[0, 2, 4])
    left.acknowledge(3, 5, 7, queue=1, is_batch=True)
    left.checkpoint(8, 2, d=None, bm=2)
    left.checkpoint(10, 1, sp=True)
    left.checkpoint(11, 1, c="nobody")
    await left.leave(delivered=delivered)
    async with left.served(autoCreateSubscriptionGroup="false") as group:
        assert await group.pop() == [], "their time isn't over"
        await left.pass_over()
        popped = await again(group, 4)
        assert {message.body: message.reconsume_times for message, _ in popped} == {b"1": 1, b"3": 1, b"8": 1, b"10": 0}
        for message, handle in popped:
            assert message.topic == RETRY
            assert message.properties["1ST_POP_TIME"] == str(POPPED)
            assert await group.ack(message, handle) == 0
    async with left.served() as group:
        await left.pass_over()
        assert await group.pop() == []
    document = json.loads((left.root / "config" / "consumerOffset.json").read_text())
    assert document["offsetTable"][f"{LOG}@{topics.REVIVE_GROUP}"] == {"0": 6 - 1, "1": 2 - 1}


async def test_what_is_acknowledged_here_doesnt_come_again(left: Left) -> None:
    """By the handles that Apache's broker gave, also over a restart."""
    await left.fill(4)
    left.checkpoint(0, 4, queue=1)
    await left.leave()

    async def ack(group: Group, offset: int) -> Command:
        handle = f"0 {POPPED} {INVISIBLE} 1 0 apache-a 0 {offset}"
        header = Ack(consumer_group="g", topic="T", queue_id=0, extra_info=handle, offset=offset)
        return await group.ask(RequestCode.ACK_MESSAGE, header)

    left.clock.seconds += 10
    async with left.served() as group:
        assert [(await ack(group, offset)).code for offset in (0, 2)] == [0, 0]
    async with left.served() as group:
        part = {"c": "g", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 1, "pt": POPPED, "it": INVISIBLE, "b": "CA=="}
        answer = await group.ask(RequestCode.BATCH_ACK_MESSAGE, None, json.dumps({"acks": [part]}).encode())
        assert answer.code == 0, "the fourth"
        await left.pass_over()
        assert bodies(await again(group, 1)) == [b"1"]
        await left.pass_over(10)
        assert await group.pop() == []


async def test_what_makes_no_sense_is_passed_over(left: Left, caplog: pytest.LogCaptureFixture) -> None:
    await left.fill(3)
    left.checkpoint(0, 1)
    left.records.append(("ck", {}, 0, 0))
    left.checkpoint(1, 200)
    left.checkpoint(1, 1, t="Gone")
    left.checkpoint(70, 1)
    left.checkpoint(2, 1)
    await left.leave(delivered=True)
    async with left.served() as group:
        await left.pass_over()
        assert bodies(await again(group, 2)) == [b"0", b"2"]
    told = [record.message for record in caplog.records if "is passed over" in record.message]
    assert [f"{LOG}:0:1" in told[0], f"{LOG}:0:2" in told[1], len(told)] == [True, True, 2]


async def test_an_offset_behind_the_end_of_the_log_hides_nothing(left: Left) -> None:
    """A crash of Apache's broker may cut the log short of what it has noted."""
    await left.fill(1)
    left.change("consumerOffset", "offsetTable", f"{LOG}@{topics.REVIVE_GROUP}", {"0": 99})
    left.checkpoint(0, 1)
    await left.leave()
    async with left.served() as group:
        await left.pass_over()
        assert bodies(await again(group, 1)) == [b"0"]
    document = json.loads((left.root / "config" / "consumerOffset.json").read_text())
    assert document["offsetTable"][f"{LOG}@{topics.REVIVE_GROUP}"]["0"] == 0


async def test_more_than_fit_into_memory_come_again(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop_revive, "CHECKPOINTS_MAX", 4)
    monkeypatch.setattr(pop_revive, "READ_MAX", 2)
    monkeypatch.setattr(pop_revive, "GIVEN_MAX", 3)
    await left.fill(20)
    for offset in range(20):
        left.checkpoint(offset, 1)
    await left.leave(delivered=True)
    async with left.served() as group:
        await left.pass_over()
        assert len({message.body for message, _ in await again(group, 20)}) == 20


async def test_nothing_is_lost_by_a_kill(left: Left, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is stored anew before it is noted comes twice."""
    monkeypatch.setattr(pop_revive, "GIVEN_MAX", 1)
    await left.fill(20)
    left.checkpoint(0, 10)
    left.acknowledge(0, 3)
    left.checkpoint(10, 10, queue=1)
    await left.leave()
    async with left.served() as group:
        await left.pass_over()
        some = await again(group, 5)
        for message, handle in some:
            await group.ack(message, handle)
        killed = image(left.root, tmp_path / "killed")
    monkeypatch.undo()
    left.root = killed
    async with left.served() as group:
        await left.pass_over()
        found = {message.body for message, _ in some}
        async with asyncio.timeout(30):
            while len(found) < 19:
                found |= set(await group.bodies())
                await asyncio.sleep(0.02)
        assert b"3" not in found


async def test_what_cant_be_given_out_again_is_told(left: Left, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    await left.fill(1)
    left.checkpoint(0, 1)
    await left.leave(delivered=True)
    async with left.served():
        pass
    assert not caplog.records
    (left.root / "kvStore").mkdir()
    async with left.served(timerWheelEnable="false"):
        await left.pass_over()
    told = " ".join(record.message for record in caplog.records)
    assert "popConsumerKVServiceEnable" in told
    assert "timerWheelEnable=false" in told
    async with left.served() as group:
        await left.pass_over()
        assert bodies(await again(group, 1)) == [b"0"]


async def test_retry_topics_of_apaches_other_settings_are_popped_too(left: Left) -> None:
    """enableRetryTopicV2, useSeparateRetryQueue."""
    second = "%RETRY%g+T"
    await left.fill(0)
    left.change(
        "topics", "topicConfigTable", second, {"topicName": second, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    )
    store, _ = made(left.root, SETTINGS, left.clock)
    await store.start()
    for topic in (RETRY, second):
        for queue_id in range(2):
            body = f"{topic} {queue_id}".encode()
            store.append(topic, queue_id, body, b"", born_host=HOST, born_timestamp=POPPED, reconsume_times=1)
    await store.close()
    async with left.served() as group:
        popped = await group.pop()
        assert bodies(popped) == [b"%RETRY%g+T 0", b"%RETRY%g+T 1", b"%RETRY%g_T 0", b"%RETRY%g_T 1"]
        for message, handle in popped:
            assert await group.ack(message, handle) == 0
            assert await group.offset(message.queue_id, message.topic) == 1
        left.clock.seconds += INVISIBLE / 1000 + 1
        await asyncio.sleep(0.5)
        assert await group.pop() == []
