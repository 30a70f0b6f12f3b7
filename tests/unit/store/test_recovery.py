"""Opening what is there: checkpoints that are wrong, clocks that go back, and what is said meanwhile."""

import asyncio
import json
import logging
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from rockmq.base.errors import ConfigError
from rockmq.protocol.bodies.common import DataVersion, TopicConfig
from rockmq.store import message_store, recovery
from rockmq.store.checkpoint import SIZE, Checkpoint
from rockmq.store.journal import TopicChange, line
from rockmq.store.layout import find
from rockmq.store.message_store import MessageStore
from rockmq.store.repair import repair
from rockmq.store.verify import verify
from tests.support.clock import FakeClock
from tests.unit.store.stores import HOST, made

FILE = 16 << 10
COUNT = 400
NOW = 1_700_000_000_000
HOUR_MS = 3_600_000
MAGIC = -626843481
FUTURE = struct.pack(">qqq", *[NOW + HOUR_MS] * 3).ljust(SIZE, b"\0")


def make(root: Path, clock: FakeClock, **settings: str) -> MessageStore:
    return made(root, {"mappedFileSizeCommitLog": str(FILE), **settings}, clock)[0]


def silent(*what: object) -> None:
    assert what


def bodies(store: MessageStore) -> list[bytes]:
    low, high = store.bounds("T", 0)
    found = [store.get("T", 0, offset, 1, 1 << 20, None) for offset in range(low, high)]
    assert all(each.messages == 1 for each in found)
    return [bytes(memoryview(buffer))[88:92] for each in found for buffer in each.buffers]


async def killed(root: Path, *, step_ms: int = 10) -> list[bytes]:
    """A store of many log files, as a kill leaves it, whose clock goes by `step_ms` for each message."""
    clock = FakeClock()
    store = make(root, clock)
    await store.start()
    for number in range(COUNT):
        store.append("T", 0, b"%04d" % number + bytes(300), b"", born_host=HOST, born_timestamp=0)
        clock.seconds += step_ms / 1000
    await store.close()
    (root / "abort").write_text("1")
    return [b"%04d" % number for number in range(COUNT)]


def records(root: Path) -> list[int]:
    """Where the records of the log are."""
    positions = []
    for file in sorted((root / "commitlog").iterdir()):
        data, at = file.read_bytes(), 0
        while at + 8 <= FILE and struct.unpack_from(">i", data, at + 4)[0] == MAGIC:
            positions.append(int(file.name) + at)
            at += struct.unpack_from(">i", data, at)[0]
    return positions


def poke(root: Path, position: int, data: bytes) -> None:
    with (root / "commitlog" / f"{position - position % FILE:020}").open("r+b") as file:
        file.seek(position % FILE)
        file.write(data)


def torn(root: Path) -> int:
    """Damage the last record of the log's second file, which no recovery from a later one would see; its position."""
    position = max(position for position in records(root) if position < 2 * FILE)
    poke(root, position + 100, b"torn")
    return position


def vouch(root: Path, position: int) -> None:
    checkpoint = Checkpoint.load(root / "checkpoint")
    checkpoint.position = position
    checkpoint.save(root / "checkpoint")


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(None, id="missing"),
        pytest.param(b"", id="empty"),
        pytest.param(bytes(SIZE), id="zeros"),
        pytest.param(b"\x7f" * 20, id="too short"),
        pytest.param(FUTURE, id="in the future"),
        pytest.param(FUTURE[:40] + struct.pack(">qq", 1 << 40, 4711) + bytes(SIZE - 56), id="a position without its CRC"),
        pytest.param(random.Random(1).randbytes(SIZE), id="garbage"),
        pytest.param(b"\xff" * SIZE, id="ones"),
    ],
)
async def test_a_wrong_checkpoint_vouches_for_nothing(tmp_path: Path, content: bytes | None) -> None:
    """Row 1.6, pitfall 9.21: after a kill all is read, and what is damaged is found wherever it is."""
    sent = await killed(tmp_path)
    position = torn(tmp_path)
    path = tmp_path / "checkpoint"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    store = make(tmp_path, FakeClock())
    await store.start()
    assert store.core.max_position == position
    left = bodies(store)
    assert left == sent[: len(left)]
    await store.close()


async def test_a_checkpoint_in_the_future_costs_only_time(tmp_path: Path) -> None:
    sent = await killed(tmp_path)
    (tmp_path / "checkpoint").write_bytes(FUTURE)
    store = make(tmp_path, FakeClock())
    await store.start()
    assert store.core.recovery[0] == store.core.max_position
    assert bodies(store) == sent
    await store.close()


async def test_recovery_is_bounded_by_the_checkpoint(tmp_path: Path) -> None:
    """Row 4.1: of many files a kill has the last ones read, though the clock stood still all the time."""
    sent = await killed(tmp_path, step_ms=0)
    files = len(list((tmp_path / "commitlog").iterdir()))
    assert files > 8
    position = records(tmp_path)[-7]
    vouch(tmp_path, position)
    store = make(tmp_path, FakeClock())
    await store.start()
    assert store.core.recovery[0] == store.core.max_position - position
    assert bodies(store) == sent
    await store.close()


async def test_a_start_without_new_messages_keeps_the_times_of_the_checkpoint(tmp_path: Path) -> None:
    """Row 1.6: for Apache's broker, which reads the whole log without them."""
    await killed(tmp_path)
    before = Checkpoint.load(tmp_path / "checkpoint")
    assert min(before.physic, before.logics) > NOW
    store = make(tmp_path, FakeClock())
    await store.start()
    assert store.core.recovery[0] == 0
    await store.close()
    assert Checkpoint.load(tmp_path / "checkpoint") == before


@pytest.mark.parametrize("by_times", [False, True])
async def test_a_clock_that_goes_back_loses_nothing(tmp_path: Path, by_times: bool) -> None:
    """Pitfall 9.7: back between files and between lives, with our checkpoint and with one that has only times."""
    clock, sent = FakeClock(), []
    for life in range(4):
        store = make(tmp_path, clock)
        await store.start()
        assert bodies(store) == sent
        for _ in range(150):
            sent.append(b"%04d" % len(sent))
            store.append("T", 0, sent[-1] + bytes(300), b"", born_host=HOST, born_timestamp=0)
            clock.seconds += 60 if life % 2 else -60
        assert store.offset_by_time("T", 0, clock.now_ms(), upper=False) <= len(sent)
        await store.close()
        (tmp_path / "abort").write_text("1")
        if by_times:
            path = tmp_path / "checkpoint"
            path.write_bytes(path.read_bytes()[:40].ljust(SIZE, b"\0"))
            assert Checkpoint.load(path).position is None
        clock.seconds -= 86_400 * (life % 3)
    store = make(tmp_path, clock)
    await store.start()
    assert bodies(store) == sent
    await store.close()


async def test_abort_that_was_removed_by_hand_proves_nothing(tmp_path: Path) -> None:
    """Pitfall 9.4: what our checkpoint doesn't vouch for is checked all the same."""
    await killed(tmp_path)
    (tmp_path / "abort").unlink()
    vouch(tmp_path, next(position for position in records(tmp_path) if position > FILE))
    position = torn(tmp_path)
    store = make(tmp_path, FakeClock())
    await store.start()
    assert store.core.max_position == position
    await store.close()


def lose_the_last_file(root: Path) -> int:
    file = max((root / "commitlog").iterdir())
    file.unlink()
    return int(file.name)


def lose_the_end(root: Path) -> int:
    position = records(root)[-2]
    poke(root, position, bytes(FILE - position % FILE))
    return position


def tear_the_end(root: Path) -> int:
    position = records(root)[-1]
    poke(root, position + 4, b"torn")
    return position


def belong_to_another(root: Path) -> int:
    end = Checkpoint.load(root / "checkpoint").position
    assert end is not None
    vouch(root, 1 << 30)
    return end


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("damage", [lose_the_last_file, lose_the_end, tear_the_end, belong_to_another])
async def test_a_log_that_has_lost_what_was_on_disk_is_refused(
    tmp_path: Path, damage: Callable[[Path], int], is_killed: bool
) -> None:
    """Row 4.1, pitfall 9.21: nothing is changed, `verify` tells it, and `repair --yes` lets the store open."""
    sent = await killed(tmp_path)
    if not is_killed:
        (tmp_path / "abort").unlink()
    whole = contents(tmp_path)
    end = damage(tmp_path)
    position = Checkpoint.load(tmp_path / "checkpoint").position
    before = contents(tmp_path)
    told = end // FILE * FILE + FILE if damage is belong_to_another else end
    advice = f"rockmq store verify {tmp_path}.*rockmq store repair {tmp_path} --yes"
    with pytest.raises(ConfigError, match=f"ends at {told}, and was whole on disk up to {position}; nothing was.*{advice}"):
        await make(tmp_path, FakeClock()).start()
    assert contents(tmp_path) == before
    assert ("checkpoint", 40) in [(found.kind, found.byte) for found in verify(find(tmp_path), silent).findings]
    assert repair(find(tmp_path), silent, cut=False, say=silent).lost_until == position
    with pytest.raises(ConfigError, match=f"up to {position}"):
        await make(tmp_path, FakeClock()).start()
    assert repair(find(tmp_path), silent, cut=True, say=silent).lost_until is None
    assert Checkpoint.load(tmp_path / "checkpoint").position == end
    store = make(tmp_path, FakeClock())
    await store.start()
    assert store.core.max_position == end
    left = bodies(store)
    assert left == sent[: len(left)]
    assert left or end == 0
    await store.close()
    if damage is not belong_to_another:
        for name, data in whole.items():  # the copy that the error asks for
            (tmp_path / name).write_bytes(data)
        store = make(tmp_path, FakeClock())
        await store.start()
        assert bodies(store) == sent
        await store.close()


async def test_a_log_that_is_gone_is_refused(tmp_path: Path) -> None:
    await killed(tmp_path)
    for file in (tmp_path / "commitlog").iterdir():
        file.unlink()
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=f"no log in .*delete {tmp_path}/checkpoint to begin anew"):
        await make(tmp_path, FakeClock()).start()
    assert contents(tmp_path) == before
    (tmp_path / "checkpoint").unlink()
    store = make(tmp_path, FakeClock())
    await store.start()
    assert bodies(store) == []
    await store.close()


@pytest.mark.parametrize("place", ["body", "magic"])
async def test_a_damage_below_the_position_cuts_nothing(tmp_path: Path, place: str) -> None:
    """What was on disk isn't judged: the messages behind the damage were acknowledged. `verify` and the scrub tell it."""
    sent = await killed(tmp_path)
    positions = records(tmp_path)
    vouch(tmp_path, positions[-1])
    last = [position for position in positions if position // FILE == positions[-1] // FILE]
    assert len(last) > 4
    poke(tmp_path, last[1] + (100 if place == "body" else 4), b"torn")
    store = make(tmp_path, FakeClock())
    await store.start()
    lost = positions.index(last[1])
    for offset in (0, lost - 1, lost + 1, COUNT - 1):
        (buffer,) = store.get("T", 0, offset, 1, 1 << 20, None).buffers
        assert bytes(memoryview(buffer))[88:92] == sent[offset]
    assert store.bounds("T", 0) == (0, COUNT)
    await store.close()
    # Not even for an Apache broker's checkpoint, once `repair` has looked at the log.
    (tmp_path / "checkpoint").write_bytes((tmp_path / "checkpoint").read_bytes()[:40].ljust(SIZE, b"\0"))
    assert len(repair(find(tmp_path), silent, cut=True, say=silent).damaged) == 1
    store = make(tmp_path, FakeClock())
    await store.start()
    assert store.bounds("T", 0)[1] == COUNT
    await store.close()


async def test_a_torn_record_at_the_position_is_cut(tmp_path: Path) -> None:
    """It wasn't on disk, so nobody was told that it is."""
    sent = await killed(tmp_path)
    position = records(tmp_path)[-3]
    vouch(tmp_path, position)
    poke(tmp_path, position + 4, b"torn")
    store = make(tmp_path, FakeClock())
    await store.start()
    assert store.core.max_position == position
    assert bodies(store) == sent[:-3]
    await store.close()
    assert Checkpoint.load(tmp_path / "checkpoint").position == position


async def test_lost_queues_come_back_after_a_clean_stop(tmp_path: Path) -> None:
    sent = await killed(tmp_path)
    (tmp_path / "abort").unlink()
    for file in (tmp_path / "consumequeue" / "T" / "0").iterdir():
        file.unlink()
    store = make(tmp_path, FakeClock())
    await store.start()
    assert bodies(store) == sent
    await store.close()


@pytest.mark.parametrize(
    ("directory", "key"),
    [("commitlog", "mappedFileSizeCommitLog"), ("consumequeue/T/0", "mappedFileSizeConsumeQueue")],
)
@pytest.mark.parametrize("size", [100, FILE // 2, FILE + 1])
async def test_a_file_of_the_wrong_size_is_refused_with_what_to_do(
    tmp_path: Path, directory: str, key: str, size: int
) -> None:
    """Pitfall 9.1, row 1.2: nothing is changed by the refusal, and with the file put back all is there."""
    sent = await killed(tmp_path)
    file = min((tmp_path / directory).iterdir())
    whole = file.read_bytes()
    file.write_bytes(whole[:size].ljust(size, b"\0"))
    with pytest.raises(ConfigError, match=f"{file.name} has {size} bytes.*set {key} to the size"):
        await make(tmp_path, FakeClock()).start()
    file.write_bytes(whole)
    store = make(tmp_path, FakeClock())
    await store.start()
    assert bodies(store) == sent
    await store.close()


async def test_progress_is_told_while_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(recovery, "PROGRESS_SECONDS", 0.001)
    read, opened = iter(range(1, 1000)), asyncio.Event()

    def progress() -> tuple[int, int]:
        at = next(read)
        if at == 3:
            opened.set()
        return at << 29, 5 << 30

    async def opening() -> None:
        await opened.wait()

    with caplog.at_level(logging.INFO):
        await recovery.telling(opening(), progress)
    assert caplog.messages[:3] == [f"recovering: {at} of 5.0 GiB of log read" for at in ("0.5", "1.0", "1.5")]


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_progress_comes_on_standard_error(verbose: int) -> None:
    """However quiet the log of a server is."""
    code = (
        f"import logging; from rockmq.cli import logs; logs.to_stderr({verbose}); "
        "logging.getLogger('rockmq.store.recovery').info('how far'); logging.getLogger('rockmq.store').info('other')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "INFO rockmq.store.recovery: how far" in done.stderr
    assert ("other" in done.stderr) == (verbose > 0)


async def test_a_failure_to_open_is_not_swallowed_by_its_progress() -> None:
    async def opening() -> None:
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        await recovery.telling(opening(), lambda: (0, 0))


async def test_the_checkpoint_follows_a_log_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 1.6: whatever the time, so that what a start after a kill reads is bounded."""
    monkeypatch.setattr(message_store, "CHECKPOINT_BYTES", 2 * FILE)
    store = make(tmp_path, FakeClock(), flushIntervalConsumeQueue="10")
    await store.start()
    for wanted in (2 * FILE, 4 * FILE):
        while store.core.max_position < wanted:
            store.append("T", 0, bytes(300), b"", born_host=HOST, born_timestamp=0)
            store.core.flush()
        async with asyncio.timeout(30):
            while (Checkpoint.load(tmp_path / "checkpoint").position or 0) < wanted - FILE:
                await asyncio.sleep(0.01)
    end = store.core.max_position
    copy = shutil.copytree(tmp_path, tmp_path.with_name("killed"))
    again = make(copy, FakeClock())
    await again.start()
    assert again.core.max_position == end
    assert again.core.recovery[0] <= 2 * FILE
    await again.close()
    await store.close()


class SlowDisk(FakeClock):
    """To the writer of queues whatever is between two looks at the time takes a second."""

    def monotonic(self) -> float:
        if sys._getframe(1).f_code.co_name == "_write_queues":
            self.seconds += 1
        return self.seconds


async def test_queues_that_take_long_arent_forced_for_each_piece_of_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_store, "CHECKPOINT_BYTES", FILE)
    store = make(tmp_path, SlowDisk(), flushIntervalConsumeQueue="10000000", flushConsumeQueueThoroughInterval="10000000")
    await store.start()
    saved = []
    for _ in range(50):
        while store.core.max_position < (len(saved) + 1) * FILE:
            store.append("T", 0, bytes(300), b"", born_host=HOST, born_timestamp=0)
        store.core.flush()
        await store._maintain()
        saved.append(Checkpoint.load(tmp_path / "checkpoint").position or 0)
    assert 2 < len(set(saved)) < 10
    await store.close()


@pytest.mark.parametrize(
    ("checkpoint", "was_killed", "start"),
    [
        pytest.param(Checkpoint(), True, 0, id="nothing known"),
        pytest.param(Checkpoint(physic=9_000, logics=8_500), True, 100, id="three seconds before the older time"),
        pytest.param(Checkpoint(physic=8_000, logics=NOW), True, 100, id="the log's time"),
        pytest.param(Checkpoint(physic=7_999, logics=NOW), True, 0, id="just before a file's first record"),
        pytest.param(Checkpoint(physic=NOW + 4000, logics=NOW + 4000), True, 0, id="a time to come"),
        pytest.param(Checkpoint(), False, 200, id="a clean stop: the newest file with a record"),
        pytest.param(Checkpoint(position=150), True, 150, id="a position"),
        pytest.param(Checkpoint(physic=NOW, logics=NOW, position=30), False, 50, id="a position below what is kept"),
        pytest.param(Checkpoint(position=900), True, 900, id="a position behind the log, which the core refuses"),
    ],
)
def test_where_the_log_is_read_from(checkpoint: Checkpoint, was_killed: bool, start: int) -> None:
    """Rows 4.1 and 1.6: the newest file that was surely on disk by Apache's times, or our position."""
    files = [(0, 1_000), (50, 0), (100, 5_000), (200, 6_000), (300, -1)]
    if checkpoint.position == 30:
        del files[0]
    assert recovery.start(files, checkpoint, was_killed=was_killed, now=NOW) == start
    assert recovery.start([], Checkpoint(), was_killed=was_killed, now=NOW) == 0


async def remove_batch_queues_and_start(root: Path, started: Callable[[], Awaitable[tuple[MessageStore, int]]]) -> None:
    """All of them: a start notices."""
    shutil.rmtree(root / "batchconsumequeue")
    store, read = await started()
    assert (read > 4 * FILE, store.bounds("B", 0)) == (True, (0, COUNT))
    await store.close()


async def test_a_store_with_batch_queues_only_is_not_read_whole_at_each_start(tmp_path: Path) -> None:
    """Row 4.1: where there was no simple queue, none is missing; where there was one, all come from the log."""

    async def started() -> tuple[MessageStore, int]:
        store = make(tmp_path, FakeClock())
        await store.start()
        store.set_batch("B")
        return store, store.core.recovery[0]

    def put(store: MessageStore, topic: str, count: int) -> None:
        kind = (b"INNER_NUM\x011\x02", 0xC0) if topic == "B" else (b"", 0)
        for _ in range(count):
            store.append(topic, 0, bytes(300), kind[0], born_host=HOST, born_timestamp=0, sys_flag=kind[1])

    store, _ = await started()
    put(store, "B", COUNT)
    end = store.core.max_position
    assert end > 4 * FILE
    await store.close()
    for is_killed in (False, True):
        if is_killed:
            (tmp_path / "abort").write_text("1")
        store, read = await started()
        assert read <= FILE
        assert store.bounds("B", 0) == (0, COUNT)
        await store.close()
    await remove_batch_queues_and_start(tmp_path, started)
    store, _ = await started()
    put(store, "T", 1)
    await store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    store, read = await started()
    assert read >= end
    assert (store.bounds("B", 0), store.bounds("T", 0)) == ((0, COUNT), (0, 1))
    await store.delete_queues("T")
    await store.close()
    store, read = await started()
    assert read <= FILE
    assert store.bounds("T", 0) == (0, 0), "what was deleted doesn't come back"
    await store.close()


@pytest.mark.parametrize("how", ["a start", "a start after Apache's", "a start that was killed", "repair"])
async def test_lost_batch_queues_of_topics_that_the_document_is_too_old_for_come_back(tmp_path: Path, how: str) -> None:
    """Row 4.1: its time tells them from those that were deleted before."""
    clock = FakeClock()
    store = make(tmp_path, clock)
    await store.start()

    def put(topic: str) -> None:
        for _ in range(3):
            store.append(topic, 0, b"x", b"INNER_NUM\x012\x02", born_host=HOST, born_timestamp=0, sys_flag=0xC0)

    for topic in ("B", "gone", "young"):
        store.set_batch(topic)
    for topic in ("B", "gone"):
        put(topic)
    await store.delete_queues("gone")
    clock.seconds += 10
    table = {"B": {"topicName": "B", "attributes": {"queue.type": "BatchCQ"}}}
    document = {"dataVersion": {"counter": 1, "timestamp": clock.now_ms()}, "topicConfigTable": table}
    (tmp_path / "config" / "topics.json").write_text(json.dumps(document))
    clock.seconds += 10
    put("young")
    await store.close()
    shutil.rmtree(tmp_path / "batchconsumequeue")
    if how == "repair":
        layout = find(tmp_path)
        assert repair(layout, silent, cut=False, say=silent).batch_queues == 2
    elif how == "a start after Apache's":
        Checkpoint().save(tmp_path / "checkpoint")  # it tells no position, nor that there were batch queues
        (tmp_path / "abort").write_text("1")
    elif how == "a start that was killed":
        # It had made the directory again, and one of the queues.
        (tmp_path / "batchconsumequeue" / "B").mkdir(parents=True)
        (tmp_path / "consumequeue" / "incomplete").touch()
    store = make(tmp_path, clock)
    await store.start()
    for topic in ("B", "young"):
        assert store.bounds(topic, 0) == (0, 6), topic
    assert not (tmp_path / "batchconsumequeue" / "gone").exists()
    await store.close()


@pytest.mark.parametrize("how", ["a start", "repair"])
async def test_lost_batch_queues_of_topics_that_only_the_journal_knows_come_back(tmp_path: Path, how: str) -> None:
    """Row 4.1: of a large table of topics the last changes are in its journal when the broker is killed."""
    clock = FakeClock()
    store = make(tmp_path, clock)
    await store.start()
    for topic in ("gone", "B"):
        store.set_batch(topic)
        for _ in range(3):
            store.append(topic, 0, b"x", b"", born_host=HOST, born_timestamp=0)
    await store.delete_queues("gone")
    await store.close()
    (tmp_path / "abort").write_text("1")
    versions = [DataVersion(counter=counter, timestamp=clock.now_ms()) for counter in range(4)]
    attributes = {"queue.type": "BatchCQ"}
    table = {"gone": {"topicName": "gone", "attributes": attributes}}
    document = tmp_path / "config" / "topics.json"
    document.write_bytes(msgspec.json.encode({"dataVersion": versions[1], "topicConfigTable": table}))
    changes = [
        TopicChange("B", versions[2], TopicConfig(topic_name="B", attributes=attributes)),
        TopicChange("gone", versions[3]),
        TopicChange("covered", versions[1], TopicConfig(topic_name="covered", attributes=attributes)),
    ]
    lines = [line(msgspec.json.encode(each)) for each in ([versions[0], versions[1]], *changes)]
    document.with_name("topics.json.journal.7").write_bytes(b"".join(lines))
    for directory in ("consumequeue", "batchconsumequeue"):
        shutil.rmtree(tmp_path / directory)
    if how == "repair":
        assert repair(find(tmp_path), silent, cut=False, say=silent).batch_queues == 1
    store = make(tmp_path, clock)
    await store.start()
    assert store.bounds("B", 0) == (0, 3)
    assert [path.name for path in (tmp_path / "batchconsumequeue").iterdir()] == ["B"]
    assert not (tmp_path / "consumequeue" / "B").exists()
    await store.close()


@pytest.mark.parametrize("version", [{"counter": 2, "timestamp": NOW + HOUR_MS}, {}], ids=["time", "no time"])
async def test_the_only_batch_topic_stays_deleted_after_a_kill(tmp_path: Path, version: dict[str, int]) -> None:
    """Row 4.1: the checkpoint of before tells of batch queues; a document that names none tells by its time."""
    clock = FakeClock()
    store = make(tmp_path / "store", clock)
    await store.start()
    store.set_batch("B")
    store.append("B", 0, b"x", b"INNER_NUM\x012\x02", born_host=HOST, born_timestamp=0, sys_flag=0xC0)
    await store.close()
    store = make(tmp_path / "store", clock)
    await store.start()
    await store.delete_queues("B")
    document = {"dataVersion": version, "topicConfigTable": {"T": {"topicName": "T"}}}
    (tmp_path / "store" / "config" / "topics.json").write_text(json.dumps(document))
    shutil.copytree(tmp_path / "store", tmp_path / "killed")
    await store.close()
    store = make(tmp_path / "killed", clock)
    await store.start()
    assert store.bounds("B", 0) == ((0, 0) if version else (0, 2))
    await store.close()


@pytest.mark.parametrize("is_written", [False, True], ids=["in memory", "in files"])
@pytest.mark.parametrize("ends", [False, True], ids=["killed", "stopped"])
async def test_light_queues_outlast_lives_without_them(tmp_path: Path, is_written: bool, ends: bool) -> None:
    """Row 2.5: what was acknowledged to be in them is there when they are wanted again, and offsets go on."""
    wanted = {"enableLmq": "true", "enableMultiDispatch": "true"}

    def put(store: MessageStore, *light: str) -> bytes:
        text = f"INNER_MULTI_DISPATCH\x01{','.join(light)}\x02".encode() if light else b""
        put = store.append("T", 0, b"x", text, born_host=HOST, born_timestamp=0, light_queues=light)
        return bytes(store.core.read(put.position) or b"")

    for life, light in enumerate((True, False, False)):
        store = make(tmp_path / str(life), FakeClock(), **(wanted if light else {}))
        await store.start()
        put(store, *(("%LMQ%a", "%LMQ%b") if light else ()))
        if is_written:
            store.core.flush_queues(False)
        # Of the lives without them the first is killed, the second is not: then the log is read no more.
        is_stopped = life == 2 or (life == 0 and ends)
        if is_stopped:
            await store.close()
        shutil.copytree(tmp_path / str(life), tmp_path / str(life + 1))
        if not is_stopped:
            await store.close()
    store = make(tmp_path / "3", FakeClock(), **wanted)
    await store.start()
    assert [store.bounds(name, 0) for name in ("%LMQ%a", "%LMQ%b", "T")] == [(0, 1), (0, 1), (0, 3)]
    assert b"INNER_MULTI_QUEUE_OFFSET\x011,0\x02" in put(store, "%LMQ%b", "%LMQ%c")
    await store.close()


def test_times_that_apache_changes_take_the_position_away(tmp_path: Path) -> None:
    """Row 1.6: its log may have been cut and written on since. The rest of the file is zero."""
    path = tmp_path / "checkpoint"
    Checkpoint(1, 2, 3, 4096).save(path)
    data = path.read_bytes()
    assert Checkpoint.load(path) == Checkpoint(1, 2, 3, 4096)
    for known in (Checkpoint(1, 2, 3, 4096, had_queues=False), Checkpoint(1, 2, 3, 4096, had_light_queues=True)):
        known.save(path)
        assert Checkpoint.load(path) == known
    Checkpoint(1, 2, 3, 4096).save(path)
    assert struct.unpack(">qqqqqq", data[:48]) == (1, 2, 3, 0, 0, 4096)
    assert data[56:] == bytes(SIZE - 56)
    for field in range(5):
        path.write_bytes(data[: 8 * field] + struct.pack(">q", 77) + data[8 * field + 8 :])
        assert Checkpoint.load(path).position is None
