"""Pops in order over stops and kills, and the document that they are kept in (store spec, 1.7)."""

import asyncio
import json
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockmq.base.errors import ConfigError
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.ordered_pops import FORGOTTEN_AFTER_MS, OrderedPops
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.pop import PopResponse
from rockmq.protocol.message import StoredMessage
from rockmq.remoting.client import RemotingClient
from tests.support.clock import FakeClock
from tests.unit.broker.test_messages import create_request
from tests.unit.broker.test_pop import INVISIBLE, Group, handles, popping

ORDER: dict[str, Any] = {"order": True, "queue_id": 0, "max_msg_nums": 3}
DOCUMENT = "consumerOrderInfo.json"


@pytest.fixture
async def group(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> AsyncIterator[Group]:
    async with popping(tmp_path / "store", remote, clock, flushConsumerOffsetInterval="20") as group:
        await remote.ask(group.broker.address, create_request(queues=1), 5)
        yield group


async def counts(group: Group) -> tuple[list[bytes], str | None]:
    """What is popped in order, and how often it was before."""
    answer = await group.ask(RequestCode.POP_MESSAGE, group.pop_header(**ORDER))
    return [message.body for message, _ in handles(answer)], decode(PopResponse, answer.fields).order_count_info


def table(root: Path) -> Any:
    return json.loads((root / "config" / DOCUMENT).read_text())["table"]


async def test_over_a_stop_a_queue_stays_closed_and_handles_are_good(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock
) -> None:
    async with popping(tmp_path, remote, clock) as group:
        await remote.ask(group.broker.address, create_request(queues=1), 5)
        await group.send(*(b"%d" % number for number in range(5)))
        await group.pop(**ORDER)
        clock.seconds += INVISIBLE / 1000 + 1
        popped = await group.pop(**ORDER)
        pop_time = clock.now_ms()
        assert (await group.change(*popped[2], 2 * INVISIBLE)).code == 0
        assert await group.ack(*popped[1]) == 0
    assert table(tmp_path) == {
        "T@g": {
            "0": {
                "popTime": pop_time,
                "i": INVISIBLE,
                "o": [0, 1, 2],
                "ot": {"2": pop_time + 2 * INVISIBLE},
                "oc": {"0": 1, "1": 1, "2": 1},
                "l": pop_time,
                "cm": 0b010,
            }
        }
    }
    async with popping(tmp_path, remote, clock) as group:
        assert await group.pop(**ORDER) == []
        assert await group.ack(*popped[0]) == 0
        assert await group.offset() == 2, "the one in the middle was acknowledged before the stop"
        clock.seconds += INVISIBLE / 1000 + 1
        assert await group.pop(**ORDER) == [], "its time was made longer"
        clock.seconds += INVISIBLE / 1000 + 1
        again = await group.pop(**ORDER)
        assert [message.body for message, _ in again] == [b"2", b"3", b"4"]
        assert await group.ack(*popped[2]) == 0
        assert await group.offset() == 2, "by the old handle it isn't out any more"
        clock.seconds += INVISIBLE / 1000 + 1
        assert await counts(group) == ([b"2", b"3", b"4"], "0 0 1;0 qo0%2 3"), "tries are counted on"


async def test_a_pop_that_waits_is_woken_when_the_time_from_before_a_stop_is_over(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock
) -> None:
    async with popping(tmp_path, remote, clock) as group:
        await group.send(b"0")
        assert await group.bodies(**ORDER) == [b"0"]
    async with popping(tmp_path, remote, clock) as group:
        clock.seconds += INVISIBLE / 1000 + 1
        assert await group.bodies(**ORDER, poll_time=20_000) == [b"0"]


async def test_an_attempt_that_is_made_again_is_no_other_try(group: Group, clock: FakeClock) -> None:
    """OrderInfo.mergeOffsetConsumedCount."""
    await group.send(b"0")
    for _ in range(3):
        answer = await group.ask(RequestCode.POP_MESSAGE, group.pop_header(**ORDER, attempt_id="one"))
        assert decode(PopResponse, answer.fields).order_count_info == "0 0 0"
    clock.seconds += INVISIBLE / 1000 + 1
    answer = await group.ask(RequestCode.POP_MESSAGE, group.pop_header(**ORDER, attempt_id="two"))
    assert decode(PopResponse, answer.fields).order_count_info == "0 0 1"


async def test_what_a_group_that_has_left_popped_in_order_closes_no_queue_to_others(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it stays for good, as it goes to no retry topic."""
    monkeypatch.setattr("rockmq.broker.pop.IN_FLIGHT_MAX", 3)
    await group.send(b"0", b"1", b"2")
    assert len(await group.pop(**ORDER)) == 3
    assert await group.bodies(consumer_group="h") == [b"0", b"1", b"2"]


async def test_whatever_a_kill_leaves_nothing_is_lost(
    group: Group, tmp_path: Path, remote: RemotingClient, clock: FakeClock
) -> None:
    """Either document may be older than the other."""
    root = tmp_path / "store"
    names = "consumerOffset.json", DOCUMENT
    await group.send(*(b"%d" % number for number in range(6)))
    images = []
    for done in (0, 1, 2):
        popped = await group.pop(**ORDER)
        for message, handle in popped[:done]:
            assert await group.ack(message, handle) == 0
        offset, pop_time = await group.offset() or 0, clock.now_ms()

        def is_saved(offset: int = offset, pop_time: int = pop_time, done: int = done) -> bool:
            if not all((root / "config" / name).exists() for name in names):
                return False
            committed = json.loads((root / "config" / names[0]).read_text())["offsetTable"]["T@g"]["0"]
            row = table(root)["T@g"]["0"]
            return (committed, row["popTime"], row.get("cm", 0)) == (offset, pop_time, 2**done - 1)

        async with asyncio.timeout(30):
            while not is_saved():
                await asyncio.sleep(0.01)
        images.append((offset, [(root / "config" / name).read_text() for name in names]))
        clock.seconds += INVISIBLE / 1000 + 1
    assert [offset for offset, _ in images] == [0, 1, 3]
    killed = Path(shutil.copytree(root, tmp_path / "killed"))
    for offset, (offsets, _) in images:
        for _, (_, ordered) in images:
            (killed / "config" / names[0]).write_text(offsets)
            (killed / "config" / names[1]).write_text(ordered)
            async with popping(killed, remote, clock) as again:
                found = await again.bodies(**(ORDER | {"max_msg_nums": 32}))
            assert found == [b"%d" % number for number in range(offset, 6)]


STEPS = st.lists(st.sampled_from(["send", "pop", "ack", "pass", "change", "stop"]), min_size=5, max_size=30)


@settings(max_examples=15)
@given(steps=STEPS, dice=st.randoms(use_true_random=False))
def test_nobody_gets_what_another_works_on(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], dice: random.Random
) -> None:
    """Over stops too. And all comes in order, from the first on that isn't acknowledged."""
    asyncio.run(_nobody_gets(tmp_path_factory.mktemp("ordered"), steps, dice))


async def _nobody_gets(root: Path, steps: list[str], dice: random.Random) -> None:
    clock, remote, number = FakeClock(), RemotingClient(), 0
    held: list[tuple[StoredMessage, str]] = []
    visible: dict[int, int] = {}
    """Of what isn't acknowledged, by offset: when it is visible again."""
    first = end = 0
    """The first that isn't acknowledged, and where the last pop ended."""
    async with AsyncExitStack() as closing:
        closing.push_async_callback(remote.close)
        group = await closing.enter_async_context(popping(root, remote, clock))
        await remote.ask(group.broker.address, create_request(queues=1), 5)
        for step in [*steps, "pass", "pop"]:
            if step == "send":
                await group.send(b"%d" % number)
                number += 1
            elif step == "pop":
                popped = await group.pop(**ORDER)
                is_closed = any(when > clock.now_ms() for when in visible.values())
                there = range(first, min(first + ORDER["max_msg_nums"], number))
                assert [message.queue_offset for message, _ in popped] == ([] if is_closed else list(there))
                if popped:
                    held, visible, end = popped, dict.fromkeys(there, clock.now_ms() + INVISIBLE), there.stop
            elif step == "ack" and held:
                message, handle = held.pop(dice.randrange(len(held)))
                assert await group.ack(message, handle) == 0
                del visible[message.queue_offset]
                first = min(visible, default=end)
            elif step == "change" and held:
                message, handle = dice.choice(held)
                assert (await group.change(message, handle, 2 * INVISIBLE)).code == 0
                visible[message.queue_offset] = clock.now_ms() + 2 * INVISIBLE
            elif step == "pass":
                clock.seconds += INVISIBLE / 1000 + 1
            elif step == "stop":
                await closing.aclose()
                remote = RemotingClient()
                closing.push_async_callback(remote.close)
                group = await closing.enter_async_context(popping(root, remote, clock))


def document(tmp_path: Path, text: str) -> OrderedPops:
    (tmp_path / DOCUMENT).write_text(text)
    offsets = ConsumerOffsets(tmp_path, FakeClock(), light=True)
    offsets.commit("h", "U", 1, 12)
    offsets.commit("done", "U", 1, 14)
    return OrderedPops(tmp_path, offsets, FakeClock())


ROW = '{"a":"x","cm":1,"i":1000,"l":5,"o":[10,1,3],"oc":{11:2},"ot":{13:9000},"popTime":4000}'


def test_a_document_of_apaches_is_read(tmp_path: Path) -> None:
    """What lies below a group's offset is done with."""
    text = f'{{"table":{{"U@g":{{1:{ROW}}},"U@h":{{1:{ROW}}},"U@done":{{1:{ROW}}},"%LMQ%a@b@%LMQ%c@d":{{0:{ROW}}}}}}}'
    found = dict(document(tmp_path, text).items())
    assert set(found) == {("U", "g", 1), ("U", "h", 1), ("%LMQ%a@b", "%LMQ%c@d", 0)}
    held = found["U", "g", 1]
    assert (held.offsets, held.handed, held.next) == ([10, 11, 13], {11: 5000, 13: 9000}, 14)
    assert (held.counts, held.attempt_id) == ({10: 0, 11: 2, 13: 0}, "x")
    assert (held.committed(), found["U", "h", 1].committed()) == (11, 13)
    assert (held.is_blocked(None, 8999), held.is_blocked("x", 8999), held.is_blocked(None, 9000)) == (True, False, False)


async def test_what_was_read_is_written_again(tmp_path: Path) -> None:
    ordered = document(tmp_path, f'{{"table":{{"U@g":{{1:{ROW}}},"%LMQ%a@b@%LMQ%c@d":{{0:{ROW}}}}}}}')
    assert ordered.change(("U", "g", 1), 11, 4000, 6000)
    await ordered.close()
    saved = json.loads((tmp_path / DOCUMENT).read_text())["table"]
    row = {"popTime": 4000, "i": 1000, "o": [10, 1, 3], "ot": {"13": 9000}, "oc": {"11": 2}, "l": 4000, "cm": 1, "a": "x"}
    assert saved == {
        "U@g": {"1": row | {"ot": {"11": 6000, "13": 9000}}},
        "%LMQ%a@b@%LMQ%c@d": {"0": row},
    }


@pytest.mark.parametrize("text", ['{"table":{"U@g":{1:{"o":[]}}}}', '{"table":{"U@g":{1:{}}}}', '{"table":7}', "{"])
def test_a_document_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=DOCUMENT):
        document(tmp_path, text)


async def test_what_nobody_comes_back_for_is_forgotten(tmp_path: Path) -> None:
    clock = FakeClock()
    ordered = OrderedPops(tmp_path, ConsumerOffsets(tmp_path, clock), clock)
    now = clock.now_ms()
    ordered.hand(("T", "g", 0), [1], now, 1000, 2, None)
    ordered.hand(("T", "g", 1), [1], now, 2 * FORGOTTEN_AFTER_MS, 2, None)
    ordered.hand(("U", "g", 0), [1], now, 2 * FORGOTTEN_AFTER_MS, 2, None)
    ordered.clean()
    assert len(list(ordered.items())) == 3
    ordered.forget_topic("U")
    clock.seconds += FORGOTTEN_AFTER_MS / 1000 + 2
    ordered.clean()
    assert [key for key, _ in ordered.items()] == [("T", "g", 1)]
    await ordered.close()
    assert set(json.loads((tmp_path / DOCUMENT).read_text())["table"]["T@g"]) == {"1"}
