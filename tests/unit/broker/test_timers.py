"""Messages that are delivered at a time, over a real broker whose clock the test moves (store spec, 6.2)."""

import asyncio
import base64
import json
import random
import shutil
import struct
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from rockmq.base.errors import ResponseError
from rockmq.broker.drafts import Draft
from rockmq.broker.server import Broker
from rockmq.broker.timers import TimerDelivery, TimerHook
from rockmq.protocol import codec
from rockmq.protocol.codec import Command, encode_batch
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.offset import GetMaxOffset
from rockmq.protocol.headers.recall import RecallHandle, RecallMessage, RecallResponse
from rockmq.protocol.headers.send import SendResponse
from rockmq.protocol.message import StoredMessage, decode_stored
from rockmq.remoting.client import RemotingClient
from rockmq.store.timers import Checkpoint, TimerStore
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import options, running
from tests.unit.broker.test_messages import pull_request, send_request

STEP = 1000
DAY = 86_400
RECALL = {"recallMessageEnable": "true"}


async def send(remote: RemotingClient, broker: Broker, body: str, **wishes: object) -> SendResponse:
    said = {key: str(value) for key, value in wishes.items()}
    answer = await remote.ask(broker.address, send_request(body.encode(), **said), 30)
    return decode(SendResponse, answer.fields)


async def refused(remote: RemotingClient, broker: Broker, request: Command) -> tuple[int, str]:
    with pytest.raises(ResponseError) as raised:
        await remote.ask(broker.address, request, 5)
    return raised.value.code, raised.value.remark


async def delivered(remote: RemotingClient, broker: Broker) -> list[StoredMessage]:
    """What consumers of topic T's queue 0 can see now."""
    messages: list[StoredMessage] = []
    while True:
        answer = await remote.invoke(broker.address, pull_request(len(messages), count=1024), 5)
        if answer.code != ResponseCode.SUCCESS:
            return messages
        messages += decode_stored(answer.body)


async def wait_for(remote: RemotingClient, broker: Broker, count: int) -> list[StoredMessage]:
    async with asyncio.timeout(30):
        while len(messages := await delivered(remote, broker)) < count:
            await asyncio.sleep(0.02)
    return messages


async def end(remote: RemotingClient, broker: Broker) -> int:
    """The end of topic T's queue 0."""
    header = GetMaxOffset(topic="T", queue_id=0)
    answer = await remote.ask(broker.address, codec.request(RequestCode.GET_MAX_OFFSET, header), 5)
    return int(answer.fields["offset"])


def image(original: Path, target: Path) -> Path:
    for _ in range(10):  # a document may be renamed meanwhile
        if subprocess.run(["cp", "-a", "--sparse=always", str(original), str(target)], check=False).returncode == 0:
            return target
        shutil.rmtree(target)
    raise AssertionError(f"{original} can't be copied")


async def settled(broker: Broker) -> None:
    """Wait until the broker has done what its clock says."""
    timers = broker.timers
    assert timers is not None
    async with asyncio.timeout(30):
        while timers.behind or timers.read_time < broker._clock.now_ms() // timers.step * timers.step:
            await asyncio.sleep(0.01)


async def test_a_message_comes_when_its_time_has_come(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    clock.seconds += 0.25
    now = clock.now_ms()
    async with running(tmp_path, clock) as broker:
        by_seconds = await send(remote, broker, "seconds", TIMER_DELAY_SEC=10, TIMER_DELIVER_MS=now + 100)
        await send(remote, broker, "ms", TIMER_DELAY_MS=10_500, TIMER_DELIVER_MS=1)
        await send(remote, broker, "whole", TIMER_DELIVER_MS=now + 11_750)  # on a step
        await send(remote, broker, "past", TIMER_DELIVER_MS=now)
        await send(remote, broker, "never", TIMER_DELAY_MS=-5)
        assert [each.body for each in await delivered(remote, broker)] == [b"past", b"never"]
        await settled(broker)
        for ahead, bodies in ((10.5, []), (10.75, [b"seconds", b"ms"]), (11.5, []), (11.75, [b"whole"])):
            before = len(await delivered(remote, broker))
            clock.seconds = 1_700_000_000.25 + ahead
            await settled(broker)
            assert [each.body for each in (await delivered(remote, broker))[before:]] == bodies
        found = await delivered(remote, broker)
        first = found[2]
        out = (now + 10_000) // STEP * STEP
        said = first.properties
        assert (first.topic, first.queue_id, said["REAL_TOPIC"], said["TIMER_OUT_MS"]) == ("T", 0, "T", str(out))
        assert int(said["TIMER_ENQUEUE_MS"]) <= now < int(said["TIMER_DEQUEUE_MS"])
        assert (first.msg_id, "TIMER_ROLL_TIMES" in said) == (by_seconds.transaction_id, False)
        assert by_seconds.recall_handle is not None
        handle = base64.urlsafe_b64decode(by_seconds.recall_handle).decode()
        assert handle == f"v1 T broker-a {out + 1} {by_seconds.transaction_id}"
        assert (by_seconds.queue_id, by_seconds.queue_offset) == (0, 0)
        info = (await remote.ask(broker.address, codec.request(RequestCode.GET_BROKER_RUNTIME_INFO), 5)).body
        assert json.loads(info)["table"]["timerCongestNum"] == "0"


@pytest.mark.parametrize("precision", [100, 200, 500])
async def test_a_finer_step(tmp_path: Path, remote: RemotingClient, clock: FakeClock, precision: int) -> None:
    clock.seconds += 0.05
    async with running(tmp_path, clock, timerPrecisionMs=str(precision)) as broker:
        for number in range(20):
            await send(remote, broker, str(number), TIMER_DELAY_MS=100 * number + 30)
        due = [(clock.now_ms() + 100 * number + 29) // precision * precision + precision for number in range(20)]
        for _ in range(22):
            await settled(broker)
            now = clock.now_ms()
            found = {int(each.body) for each in await delivered(remote, broker)}
            assert found == {number for number in range(20) if due[number] <= now}
            clock.seconds += 0.1


@pytest.mark.parametrize("key", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
async def test_bad_times_are_refused_by_name(tmp_path: Path, remote: RemotingClient, clock: FakeClock, key: str) -> None:
    async with running(tmp_path, clock) as broker:
        for bad in ("x", "1.5", " 1", "1_0", str(2**63), "٣"):
            code, remark = await refused(remote, broker, send_request(b"x", **{key: bad}))
            assert code == ResponseCode.MESSAGE_ILLEGAL
            assert key in remark
        far = {"TIMER_DELAY_SEC": 3 * DAY + 1, "TIMER_DELAY_MS": 3 * DAY * 1000 + 1}.get(key, 2**62)
        code, remark = await refused(remote, broker, send_request(b"x", **{key: str(far)}))
        assert (code, key in remark, "timerMaxDelaySec" in remark) == (ResponseCode.MESSAGE_ILLEGAL, True, True)
        batch = send_request(encode_batch([(0, b"x", b"")]), batch=True, **{key: "5"})
        code, remark = await refused(remote, broker, batch)
        assert (code, key in remark) == (ResponseCode.MESSAGE_ILLEGAL, True)
        code, _ = await refused(remote, broker, send_request(b"x", topic="rmq_sys_wheel_timer"))
        assert code == ResponseCode.NO_PERMISSION
        # A delivery adds to the properties, and what is taken must be deliverable.
        code, remark = await refused(remote, broker, send_request(b"x", TIMER_DELAY_MS="5000", big="b" * 32_500))
        assert (code, "properties" in remark) == (ResponseCode.MESSAGE_ILLEGAL, True)
        assert await delivered(remote, broker) == []


async def test_without_the_wheel_they_are_refused(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    async with running(tmp_path, clock, timerWheelEnable="false") as broker:
        code, remark = await refused(remote, broker, send_request(b"x", TIMER_DELAY_SEC="5"))
        assert (code, "timerWheelEnable" in remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert not (tmp_path / "timerwheel").exists()


def test_a_delay_level_wins(tmp_path: Path, clock: FakeClock) -> None:
    hook = TimerHook(options(tmp_path), None, clock)
    said = {"TIMER_DELAY_SEC": "5", "TIMER_DELIVER_MS": "7", "TIMER_DELAY_MS": "x", "DELAY": "3"}
    draft = Draft(topic="T", queue_id=1, body=b"x", properties=said, born_host=b"", born_timestamp=0)
    hook(draft)
    assert (draft.topic, draft.properties) == ("T", {"DELAY": "3"})


async def test_a_full_step_takes_no_more(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    random.seed(1)
    at = clock.now_ms() + 50_000
    async with running(tmp_path, clock, timerCongestNumEachSlot="10", timerPrecisionMs="100") as broker:
        taken = 0
        for number in range(60):
            answer = await remote.invoke(broker.address, send_request(b"%d" % number, TIMER_DELIVER_MS=str(at)), 5)
            taken += answer.code == ResponseCode.SUCCESS
            await settled(broker)
        assert 11 <= taken <= 20
        assert "flow control" in (answer.remark or "")
        await send(remote, broker, "elsewhere", TIMER_DELIVER_MS=at + 100)


async def test_who_waits_longer_than_the_window_is_stored_anew(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock
) -> None:
    """A year, in ways of some hours, over restarts."""
    settings = {"timerMaxDelaySec": str(365 * DAY), "timerPrecisionMs": "100", "mappedFileSizeTimerLog": "200"}
    start = clock.seconds
    async with running(tmp_path, clock, **settings) as broker:
        await send(remote, broker, "year", TIMER_DELAY_SEC=365 * DAY)
        await send(remote, broker, "week", TIMER_DELAY_SEC=7 * DAY)
        await settled(broker)
    for begin in range(2, 362, 60):
        async with running(tmp_path, clock, **settings) as broker:
            for day in range(begin, begin + 60, 3):
                clock.seconds = start + day * DAY
                await settled(broker)
                clock.seconds += 0.25  # what is stored anew late comes a step later
                await settled(broker)
                expected = [b"week"] if day > 7 else []
                assert [each.body for each in await delivered(remote, broker)] == expected
    async with running(tmp_path, clock, **settings) as broker:
        for ahead in (DAY, DAY // 2, DAY // 10, 0.25):
            clock.seconds = start + 365 * DAY - ahead
            await settled(broker)
        assert [each.body for each in await delivered(remote, broker)] == [b"week"]
        clock.seconds = start + 365 * DAY
        await settled(broker)
        found = await delivered(remote, broker)
        assert [each.body for each in found] == [b"week", b"year"]
        assert int(found[1].properties["TIMER_ROLL_TIMES"]) > 100
    assert len(list((tmp_path / "timerlog").iterdir())) > 1


async def test_a_producers_count_of_ways_that_is_none_loses_no_message(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock
) -> None:
    start, counts = clock.seconds, {"text": "x", "digits": "9" * 5000, "number": "7"}
    async with running(tmp_path, clock, timerMaxDelaySec=str(20 * DAY), timerPrecisionMs="100") as broker:
        for body, count in counts.items():
            await send(remote, broker, body, TIMER_DELAY_SEC=DAY, TIMER_ROLL_TIMES=count)
        await settled(broker)
        for step in range(1, 25):
            clock.seconds = start + step * DAY / 24
            await settled(broker)
        found = {each.body.decode(): int(each.properties["TIMER_ROLL_TIMES"]) for each in await delivered(remote, broker)}
    ways = found["number"] - 7
    assert ways > 0
    assert found == {"text": ways, "digits": ways, "number": 7 + ways}


@pytest.mark.parametrize("with_topic", ["false", "true"])
async def test_a_recalled_message_never_comes(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock, with_topic: str
) -> None:
    async with running(tmp_path, clock, **RECALL, appendTopicForTimerDeleteKey=with_topic) as broker:
        kept = await send(remote, broker, "kept", TIMER_DELAY_SEC=20)
        gone = await send(remote, broker, "gone", TIMER_DELAY_SEC=20)
        assert gone.recall_handle
        request = codec.request(RequestCode.RECALL_MESSAGE, RecallMessage(topic="T", recall_handle=gone.recall_handle))
        answer = await remote.ask(broker.address, request, 5)
        assert decode(RecallResponse, answer.fields).msg_id == gone.transaction_id
        # One that isn't there takes nothing back.
        other = RecallHandle("T", "broker-a", clock.now_ms() + 20_001, "F" * 32).encode()
        missing = codec.request(RequestCode.RECALL_MESSAGE, RecallMessage(topic="T", recall_handle=other))
        await remote.ask(broker.address, missing, 5)
        await settled(broker)
        clock.seconds += 30
        await settled(broker)
        assert [each.msg_id for each in await delivered(remote, broker)] == [kept.transaction_id]
        late = await refused(remote, broker, request)
        assert (late[0], "time has come" in late[1]) == (ResponseCode.ILLEGAL_OPERATION, True)


def handle(clock: FakeClock, **changes: object) -> str:
    said = {"topic": "T", "broker_name": "broker-a", "timestamp": clock.now_ms() + 5000, "unique_key": "A" * 32}
    return RecallHandle(**(said | changes)).encode()  # type: ignore[arg-type]


async def test_recalls_that_are_refused(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    def recall(text: str, topic: str = "T") -> Command:
        return codec.request(RequestCode.RECALL_MESSAGE, RecallMessage(topic=topic, recall_handle=text))

    illegal = ResponseCode.ILLEGAL_OPERATION
    async with running(tmp_path, clock, **RECALL) as broker:
        await send(remote, broker, "makes the topic")
        for text, code, words in (
            ("%%%", illegal, "base64"),
            ("ä", illegal, "base64"),
            (base64.urlsafe_b64encode(b"v2 a b 1 c").decode(), illegal, "v1"),
            (base64.urlsafe_b64encode(b"v1 T broker-a").decode(), illegal, "v1"),
            (base64.urlsafe_b64encode(b"v1 T broker-a soon id").decode(), illegal, "no time"),
            (handle(clock, topic="U"), illegal, "topic U"),
            (handle(clock, broker_name="other"), illegal, "broker other"),
            (handle(clock, timestamp=clock.now_ms()), illegal, "has come"),
            (handle(clock, timestamp=clock.now_ms() + 4 * DAY * 1000), illegal, "timerMaxDelaySec"),
        ):
            found, remark = await refused(remote, broker, recall(text))
            assert (found, words in remark) == (code, True), remark
        code, _ = await refused(remote, broker, recall(handle(clock), topic="missing"))
        assert code == ResponseCode.TOPIC_NOT_EXIST
        for missing in ("topic", "recallHandle"):
            fields = {"topic": "T", "recallHandle": handle(clock)}
            del fields[missing]
            _, remark = await refused(remote, broker, Command(RequestCode.RECALL_MESSAGE, 0, fields=fields))
            assert missing in remark
    async with running(tmp_path, clock) as broker:
        code, remark = await refused(remote, broker, recall(handle(clock)))
        assert (code, "recallMessageEnable" in remark) == (ResponseCode.NO_PERMISSION, True)
    read_only = {"brokerPermission": "4", "allowRecallWhenBrokerNotWriteable": "false"}
    async with running(tmp_path, clock, **RECALL, **read_only) as broker:
        code, remark = await refused(remote, broker, recall(handle(clock)))
        assert (code, "not writable" in remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_after_a_stop_each_comes_once(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, flush: str
) -> None:
    """Stopped in the middle of a step with many messages, with one recalled, again and again."""
    count = 4000
    async with running(tmp_path, clock, flushDiskType=flush, **RECALL) as broker:
        sends = [send(remote, broker, str(number), TIMER_DELAY_SEC=30) for number in range(count)]
        handles = [(await asyncio.gather(*sends))[0].recall_handle]
        request = codec.request(RequestCode.RECALL_MESSAGE, RecallMessage(topic="T", recall_handle=handles[0] or ""))
        await remote.ask(broker.address, request, 5)
        await settled(broker)
    clock.seconds += 60
    middles = 0
    with monkeypatch.context() as patch:
        patch.setattr("rockmq.broker.timers.SLICE_SECONDS", 0)  # few at a time, so that a stop finds the middle
        for _ in range(6):
            async with running(tmp_path, clock, flushDiskType=flush, **RECALL) as broker:
                before = await end(remote, broker)
                while await end(remote, broker) < min(before + 100, count - 1):
                    await asyncio.sleep(0)
                middles += await end(remote, broker) < count - 1
    async with running(tmp_path, clock, flushDiskType=flush, **RECALL) as broker:
        await settled(broker)
        found = Counter(int(each.body) for each in await wait_for(remote, broker, count - 1))
    assert middles > 1
    assert found == Counter(range(1, count))


async def test_a_stop_while_many_come_in_gives_none_of_them_twice(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock
) -> None:
    """Stopped in the middle of a step, while the worker puts others into the wheel."""
    async with running(tmp_path, clock) as broker:
        await asyncio.gather(*(send(remote, broker, f"now{number}", TIMER_DELAY_SEC=5) for number in range(300)))
        await settled(broker)
        timers = broker.timers
        assert timers is not None
        (delivery,) = (task for task in asyncio.all_tasks() if task.get_name() == "timers")
        delivery.cancel()
        await asyncio.wait([delivery])
        await asyncio.gather(*(send(remote, broker, f"later{number}", TIMER_DELAY_SEC=50) for number in range(300)))
        clock.seconds += 10
        timers.tell_time()
        assert len(await timers.due()) == 128
        enqueuing = asyncio.create_task(timers.enqueue())
        await asyncio.sleep(0)
        # The worker is done then, but nobody was told.
        time.sleep(0.2)  # noqa: ASYNC251
        enqueuing.cancel()
        await asyncio.wait([enqueuing])
    async with running(tmp_path, clock) as broker:
        await settled(broker)
        clock.seconds += 100
        await settled(broker)
        found = Counter(each.body for each in await wait_for(remote, broker, 600))
        assert broker.timers is not None
        assert broker.timers.pending == 0
    assert (len(found), set(found.values())) == (600, {1})


async def test_after_a_kill_nothing_is_lost(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    """What lies on the disk at any moment is what a kill leaves."""
    original, early, late = tmp_path / "store", [], []
    async with running(original, clock, flushDiskType="SYNC_FLUSH", timerFlushIntervalMs="50") as broker:
        for number in range(200):
            await send(remote, broker, str(number), TIMER_DELAY_SEC=5 + number % 20)
            if number % 50 == 49:
                early.append((number + 1, image(original, tmp_path / f"early{number}")))
        for ahead in (10, 8, 10):
            clock.seconds += ahead
            await asyncio.sleep(0.12)
            late.append((200, image(original, tmp_path / f"late{len(late)}")))
    clock.seconds += 100
    for count, killed in early + late:
        async with running(killed, clock, flushDiskType="SYNC_FLUSH") as broker:
            await settled(broker)
            found = Counter(int(each.body) for each in await wait_for(remote, broker, count))
        assert set(found) == set(range(count))
        # What was being delivered may come once more.
        assert max(found.values()) == 1 or (max(found.values()) == 2 and (count, killed) in late)


async def test_what_is_saved_is_never_ahead_of_the_disk(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    """What was delivered isn't forced yet, so a power cut would take it: then it must come again."""
    due = clock.now_ms() + 4000
    settings = {"flushIntervalCommitLog": "600000", "timerFlushIntervalMs": "20"}
    async with running(tmp_path, clock, **settings) as broker:
        await send(remote, broker, "x", TIMER_DELAY_SEC=5)
        await settled(broker)
        clock.seconds += 30
        await wait_for(remote, broker, 1)
        await send(remote, broker, "y", TIMER_DELAY_SEC=5)
        await settled(broker)
        async with asyncio.timeout(30):
            while saved(tmp_path).offset < 2:
                await asyncio.sleep(0.01)
        assert saved(tmp_path).read_time <= due
    assert saved(tmp_path).read_time > due


def saved(root: Path) -> Checkpoint:
    return Checkpoint.load(root / "config" / "timercheck") or Checkpoint()


def no_wheel(root: Path) -> None:
    (root / "timerwheel").unlink()


def short_wheel(root: Path) -> None:
    (root / "timerwheel").write_bytes(b"x" * 100)


def empty_slots(root: Path) -> None:
    (root / "timerwheel").write_bytes(b"\0" * (root / "timerwheel").stat().st_size)


def wrong_slots(root: Path) -> None:
    size = (root / "timerwheel").stat().st_size
    data = bytearray((root / "timerwheel").read_bytes())
    for at in range(0, size, 32):
        if data[at : at + 8] != bytes(8):
            data[at + 8 : at + 24] = struct.pack(">qq", 2**40, 2**40)
    (root / "timerwheel").write_bytes(data)


def no_log(root: Path) -> None:
    shutil.rmtree(root / "timerlog")


def first_log_file_lost(root: Path) -> None:
    min((root / "timerlog").iterdir()).unlink()


def middle_log_file_lost(root: Path) -> None:
    sorted((root / "timerlog").iterdir())[1].unlink()


def last_log_file_cut(root: Path) -> None:
    with max((root / "timerlog").iterdir()).open("r+b") as file:
        file.truncate(300)


def garbage_in_the_log(root: Path) -> None:
    with max((root / "timerlog").iterdir()).open("r+b") as file:
        file.seek(52)
        file.write(b"garbage" * 20)


def garbage_in_an_early_file(root: Path) -> None:
    """Where no start looks: units of what is due later are found missing when it is."""
    with min((root / "timerlog").iterdir()).open("r+b") as file:
        file.seek(52 * 30)
        file.write(b"garbage" * 8)


def no_wheel_and_first_log_file_lost(root: Path) -> None:
    no_wheel(root)
    first_log_file_lost(root)


def nothing_left(root: Path) -> None:
    no_wheel(root)
    no_log(root)
    (root / "config" / "timercheck").unlink()
    (root / "config" / "timermetrics").write_bytes(b"{")
    (root / "config" / "timermetrics.bak").unlink(missing_ok=True)


DAMAGES = [no_wheel, short_wheel, empty_slots, wrong_slots, no_log, first_log_file_lost, middle_log_file_lost,
           last_log_file_cut, garbage_in_the_log, garbage_in_an_early_file, no_wheel_and_first_log_file_lost,
           nothing_left]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damaged_files_are_made_anew(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock, damage: "object"
) -> None:
    settings = {"mappedFileSizeTimerLog": str(52 * 40 + 16)}
    async with running(tmp_path, clock, **settings) as broker:
        for number in range(100):
            await send(remote, broker, str(number), TIMER_DELAY_SEC=2 if number < 20 else 100 + number % 7)
        await settled(broker)
        clock.seconds += 50
        await settled(broker)
        assert len(await delivered(remote, broker)) == 20
    assert callable(damage)
    damage(tmp_path)
    async with running(tmp_path, clock, **settings) as broker:
        await send(remote, broker, "100", TIMER_DELAY_SEC=60)
        await settled(broker)
        known = len(await delivered(remote, broker))
        # Without the checkpoint nobody knows what has been delivered.
        assert known == 20 or damage is nothing_left
        clock.seconds += 100
        await settled(broker)
        found = Counter(int(each.body) for each in await delivered(remote, broker))
    assert set(found) == set(range(101))
    assert damage is nothing_left or set(found.values()) == {1}


@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_what_is_made_anew_over_kills_comes_once(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Whatever came or was delivered before, is stored anew, or takes another one back."""
    root, settings = tmp_path / "store", RECALL | {"timerRollWindowSlot": "50"}
    async with running(root, clock, **settings) as broker:
        for number in range(60):
            sent = await send(remote, broker, str(number), TIMER_DELAY_SEC=5 if number < 20 else 80 + number % 7)
        await settled(broker)
        clock.seconds += 55  # what waits longer than 50 steps was stored anew
        await settled(broker)
        await wait_for(remote, broker, 20)
        recall = RecallMessage(topic="T", recall_handle=sent.recall_handle or "")
        await remote.ask(broker.address, codec.request(RequestCode.RECALL_MESSAGE, recall), 5)
        await settled(broker)
    no_log(root)
    with monkeypatch.context() as patch:
        patch.setattr("rockmq.store.timers.ENQUEUED_MAX", 5)
        patch.setattr("rockmq.broker.timers.SLICE_SECONDS", 0)
        for life in range(3):
            killed = tmp_path / f"killed{life}"
            async with running(root, clock, **settings) as broker:
                timers = broker.timers
                assert timers is not None
                while timers.offset < 30 * life:
                    await asyncio.sleep(0)
                assert timers.is_reading_again
                (reading,) = (task for task in asyncio.all_tasks() if task.get_name() == "timers")
                reading.cancel()
                await asyncio.wait([reading])
                if end == "kill":
                    image(root, killed)
                clock.seconds += 10  # also a slot that is over meanwhile is handed out by none of these lives
            root = killed if end == "kill" else root
    async with running(root, clock, **settings) as broker:
        await settled(broker)
        assert broker.timers is not None
        assert not broker.timers.is_reading_again
        clock.seconds += 50
        await settled(broker)
        found = Counter(int(each.body) for each in await wait_for(remote, broker, 59))
        assert found == Counter(range(59))
        assert broker.timers.pending == 0
        clock.seconds += 1
        async with asyncio.timeout(30):
            while saved(root).again_before:
                await asyncio.sleep(0.02)
    async with running(root, clock, **settings) as broker:
        assert broker.timers is not None
        assert not broker.timers.is_reading_again
        assert len(await delivered(remote, broker)) == 59


async def test_who_came_late_and_waits_outlasts_kills_while_all_is_made_anew(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is before what is read, as if it were delivered."""
    root = tmp_path / "store"
    async with running(root, clock) as broker:
        await send(remote, broker, "early", TIMER_DELAY_SEC=5)
        await settled(broker)
        clock.seconds += 50
        await wait_for(remote, broker, 1)
        await settled(broker)
    async with running(root, clock, timerStopEnqueue="true") as broker:
        await send(remote, broker, "late", TIMER_DELAY_SEC=5)
        clock.seconds += 100
        assert broker.timers is not None
        async with asyncio.timeout(30):
            while broker.timers.read_time < clock.now_ms() // STEP * STEP:
                await asyncio.sleep(0.01)
    async with running(root, clock, timerStopDequeue="true") as broker:
        async with asyncio.timeout(30):
            while broker.timers is None or broker.timers.behind:
                await asyncio.sleep(0.01)
    no_wheel(root)
    with monkeypatch.context() as patch:
        patch.setattr(TimerStore, "enqueue", nothing_yet)
        patch.setattr(TimerDelivery, "_deliver", nothing_yet)
        async with running(root, clock):
            image(root, tmp_path / "killed")
    async with running(tmp_path / "killed", clock) as broker:
        await settled(broker)
        clock.seconds += 10
        await settled(broker)
        assert [each.body for each in await wait_for(remote, broker, 2)] == [b"early", b"late"]


async def nothing_yet(_: object) -> bool:
    return False


async def test_another_step_finds_what_waits(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    """Also what is further ahead than slots of the finer step reach, which is 33 hours."""
    begun = clock.seconds
    delays = [5, 3600, 40 * 3600, 60 * 3600]
    async with running(tmp_path, clock) as broker:
        for delay in delays:
            await send(remote, broker, str(delay), TIMER_DELAY_SEC=delay)
        await settled(broker)
    for precision in ("100", "1000", "200"):
        async with running(tmp_path, clock, timerPrecisionMs=precision) as broker:
            await settled(broker)
            assert await delivered(remote, broker) == []
            assert broker.timers is not None
            assert broker.timers.pending == len(delays)
    async with running(tmp_path, clock, timerPrecisionMs="200") as broker:
        for delay in delays:
            for hours in range(20, 0, -4):
                clock.seconds = max(clock.seconds, begun + delay - 3600 * hours)
                await settled(broker)
            clock.seconds = begun + delay + 1
            await settled(broker)
            assert int((await delivered(remote, broker))[-1].body) == delay
        assert len(await delivered(remote, broker)) == len(delays)


async def test_another_step_gives_what_was_stored_anew_once(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock
) -> None:
    async with running(tmp_path, clock, timerPrecisionMs="100", timerRollWindowSlot="50") as broker:
        for body in ("one", "two"):  # sent by someone who makes ids that aren't unique
            await send(remote, broker, body, TIMER_DELAY_SEC=20, UNIQ_KEY="same")
        await send(remote, broker, "three", TIMER_DELAY_SEC=22)
        for _ in range(2):
            await settled(broker)
            clock.seconds += 5.5
        await settled(broker)
        assert broker.timers is not None
        assert broker.timers.queue[1] == 9
    async with running(tmp_path, clock) as broker:
        await settled(broker)
        assert broker.timers is not None
        assert broker.timers.pending == 3
        clock.seconds += 20
        await settled(broker)
        found = await delivered(remote, broker)
        assert [(each.body, each.properties["TIMER_ROLL_TIMES"]) for each in found] == [
            (b"one", "2"),
            (b"two", "2"),
            (b"three", "2"),
        ]


async def test_timers_can_be_held_back(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    """timerStopEnqueue, timerStopDequeue, and a disk that takes nothing; in between the broker goes on where it was."""
    async with running(tmp_path, clock, timerStopEnqueue="true") as broker:
        await send(remote, broker, "x", TIMER_DELAY_SEC=5)
        clock.seconds += 60
        await asyncio.sleep(0.3)
        assert await delivered(remote, broker) == []
    assert not (tmp_path / "timerlog").exists()
    for settings in ({"timerStopDequeue": "true"}, {"diskSpaceWarningLevelRatio": "1", "cleanFileForciblyEnable": "false"}):
        async with running(tmp_path, clock, **settings) as broker:
            clock.seconds += 60
            await asyncio.sleep(0.5)
            assert await delivered(remote, broker) == []
            assert (tmp_path / "timerlog").exists()
    async with running(tmp_path, clock) as broker:
        assert [each.body for each in await wait_for(remote, broker, 1)] == [b"x"]


async def test_a_clock_that_goes_back_makes_nothing_early(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    async with running(tmp_path, clock, timerFlushIntervalMs="50") as broker:
        await send(remote, broker, "first", TIMER_DELAY_SEC=5)
        await settled(broker)
        clock.seconds += 3600
        await wait_for(remote, broker, 1)
        clock.seconds -= 3000
        timers = broker.timers
        assert timers is not None
        async with asyncio.timeout(30):
            while timers.read_time > clock.now_ms():
                await asyncio.sleep(0.02)
        await send(remote, broker, "second", TIMER_DELAY_SEC=60)
        clock.seconds += 59
        await settled(broker)
        assert len(await delivered(remote, broker)) == 1
        clock.seconds += 2
        await settled(broker)
        assert [each.body for each in await delivered(remote, broker)] == [b"first", b"second"]


async def test_light_queues_get_a_message_when_it_is_due(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    settings = {"enableLmq": "true", "enableMultiDispatch": "true"}
    async with running(tmp_path, clock, **settings) as broker:
        await send(remote, broker, "x", TIMER_DELAY_SEC=5, INNER_MULTI_DISPATCH="%LMQ%a")
        pull = pull_request()
        pull.fields["topic"] = "%LMQ%a"
        assert (await remote.invoke(broker.address, pull, 5)).code != ResponseCode.SUCCESS
        clock.seconds += 10
        await wait_for(remote, broker, 1)
        pull = pull_request()
        pull.fields["topic"] = "%LMQ%a"
        (found,) = decode_stored((await remote.ask(broker.address, pull, 5)).body)
        assert (found.topic, found.body) == ("T", b"x")


async def test_light_queues_that_cant_be_had_lose_nothing(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    settings = {"enableLmq": "true", "enableMultiDispatch": "true", "maxLmqConsumeQueueNum": "1"}
    async with running(tmp_path, clock, **settings) as broker:
        bad = send_request(b"x", TIMER_DELAY_SEC="5", INNER_MULTI_DISPATCH="%LMQ%a,other")
        code, remark = await refused(remote, broker, bad)
        assert (code, "'other'" in remark) == (ResponseCode.MESSAGE_ILLEGAL, True)
        await send(remote, broker, "a", TIMER_DELAY_SEC=5, INNER_MULTI_DISPATCH="%LMQ%a")
        await send(remote, broker, "b", TIMER_DELAY_SEC=6, INNER_MULTI_DISPATCH="%LMQ%b")
        await settled(broker)
        clock.seconds += 10
        found = await wait_for(remote, broker, 2)
        assert [each.body for each in found] == [b"a", b"b"]
        assert ["INNER_MULTI_QUEUE_OFFSET" in each.properties for each in found] == [True, False]
