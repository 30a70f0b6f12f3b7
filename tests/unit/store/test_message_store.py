"""What the store does around the core: who owns it, how it starts and ends, what it does when the disk fails."""

import asyncio
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rockmq import _core
from rockmq.base.errors import ConfigError, StoreUnavailable
from rockmq.store.checkpoint import SIZE, Checkpoint
from rockmq.store.files import is_locked
from rockmq.store.message_store import MessageStore, Put
from tests.unit.store.stores import HOST, made


class Events:
    def __init__(self) -> None:
        self.flushed: list[int] = []
        self.failures: list[BaseException] = []
        self.changed = asyncio.Event()

    def on_flushed(self, position: int) -> None:
        self.flushed.append(position)
        self.changed.set()

    def on_failure(self, error: BaseException) -> None:
        self.failures.append(error)
        self.changed.set()


def make(root: Path, events: Events, **settings: str) -> MessageStore:
    keys = {"mappedFileSizeCommitLog": "65536", **settings}
    return made(root, keys, flushed=events.on_flushed, failed=events.on_failure)[0]


@asynccontextmanager
async def opened(root: Path, **settings: str) -> AsyncIterator[tuple[MessageStore, Events]]:
    events = Events()
    store = make(root, events, **settings)
    await store.start()
    try:
        yield store, events
    finally:
        await store.close()


def put(store: MessageStore, body: bytes, queue_id: int = 0) -> Put:
    return store.append("T", queue_id, body, b"", born_host=HOST, born_timestamp=0)


async def test_sync_flush_hides_what_is_not_on_disk(tmp_path: Path) -> None:
    """Row 3.4, pitfall 9.11."""
    async with opened(tmp_path) as (store, events):
        stored = put(store, b"x" * 100)
        assert store.get("T", 0, 0, 32, 1 << 20, None).messages == 0
        store.request_flush()
        await asyncio.wait_for(events.changed.wait(), 30)
        assert events.flushed == [stored.end]
        assert store.get("T", 0, 0, 32, 1 << 20, None).messages == 1


async def test_async_flush_shows_at_once_and_forces_by_itself(tmp_path: Path) -> None:
    """Row 1.4."""
    async with opened(tmp_path, flushDiskType="ASYNC_FLUSH", flushIntervalCommitLog="20") as (store, events):
        stored = put(store, b"x")
        assert store.get("T", 0, 0, 32, 1 << 20, None).messages == 1
        await asyncio.wait_for(events.changed.wait(), 30)
        assert events.flushed == [stored.end]


class Tended:
    """A core that notes what is wanted of the log's files, and locks none."""

    def __init__(self, core: _core.Store) -> None:
        self._core = core
        self.wanted: list[tuple[bool, ...]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._core, name)

    def tend_files(self, *wanted: bool) -> None:
        self.wanted.append(wanted)
        if wanted[-1]:
            raise _core.StoreError("lock the memory of a file: Cannot allocate memory")


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({}, (True, True, False, False)),
        ({"flushDiskType": "ASYNC_FLUSH"}, (True, False, False, False)),
        ({"dataReadAheadEnable": "false"}, (False, True, False, False)),
        ({"warmMapedFileEnable": "true"}, (True, True, True, False)),
        ({"lockLogInMemory": "true"}, (True, True, False, True)),
    ],
)
async def test_files_of_the_log_are_tended_as_configured(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    keys: dict[str, str],
    wanted: tuple[bool, ...],
) -> None:
    """Row 1.2: read-ahead, warm-up, and locked memory, which is given up where the kernel allows none."""
    async with opened(tmp_path, flushIntervalConsumeQueue="10", **keys) as (store, _):
        core = store.core
        tended = Tended(core)
        monkeypatch.setattr(store, "core", tended)
        async with asyncio.timeout(30):
            while len(tended.wanted) < 3:
                await asyncio.sleep(0.01)
        monkeypatch.setattr(store, "core", core)
        assert tended.wanted[0] == wanted
        assert set(tended.wanted[1:]) == {(*wanted[:3], False)}
        assert sum("lockLogInMemory is given up" in line for line in caplog.messages) == wanted[-1]
        assert store.refusal is None


async def test_queues_and_checkpoint_follow_on_their_intervals(tmp_path: Path) -> None:
    """Row 1.4: FlushConsumeQueue. What is on disk is what a power cut would leave of the queue."""
    keys = {"flushIntervalConsumeQueue": "10", "flushConsumeQueueThoroughInterval": "30"}
    async with opened(tmp_path, **keys) as (store, _):
        stored = put(store, b"x")
        store.request_flush()
        entry = stored.position.to_bytes(8, "big") + (stored.end - stored.position).to_bytes(4, "big") + bytes(8)
        queue = tmp_path / "consumequeue" / "T" / "0" / f"{0:020}"
        async with asyncio.timeout(30):
            while not queue.exists() or queue.read_bytes()[: len(entry)] != entry:
                await asyncio.sleep(0.01)
            while Checkpoint.load(tmp_path / "checkpoint").position != stored.end:
                await asyncio.sleep(0.01)
        saved = Checkpoint.load(tmp_path / "checkpoint")
        assert saved.physic == saved.logics == store.store_timestamp("T", 0, 0)


async def test_a_crc_of_the_whole_record_is_kept_and_asked_for_as_configured(tmp_path: Path) -> None:
    """Row 2.1: enabledAppendPropCRC, forceVerifyPropCRC."""
    keys = {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}
    async with opened(tmp_path, **keys) as (store, _):
        end = put(store, b"with").end
    async with opened(tmp_path) as (store, _):
        both = put(store, b"less").end
    assert both == end + end - 20
    for settings, expected in (({}, both), (keys, end)):
        (tmp_path / "abort").write_text("4711")
        (tmp_path / "checkpoint").unlink()
        async with opened(tmp_path, **settings) as (store, _):
            assert store.core.max_position == expected


async def test_abort_stands_while_the_store_runs(tmp_path: Path) -> None:
    """Rows 1.1 and 1.5, pitfall 9.4. The `abort.bak` that Apache may leave says nothing."""
    (tmp_path / "abort.bak").write_text("4711")
    async with opened(tmp_path) as (store, _):
        assert not store._abort.was_there
        assert (tmp_path / "abort").read_text().isdigit()
        assert (tmp_path / "lock").read_text() == "lock"
    assert not (tmp_path / "abort").exists()
    assert (tmp_path / "abort.bak").exists()


async def test_a_kill_is_noticed_and_the_log_checked_from_the_checkpoint(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        for number in range(3000):
            put(store, b"%d" % number + b"x" * 200, number % 3)
        end = store.core.max_position
    files = len(list((tmp_path / "commitlog").iterdir()))
    assert files > 10
    (tmp_path / "abort").write_text("4711")
    Checkpoint(0, 0, 0).save(tmp_path / "checkpoint")
    async with opened(tmp_path) as (store, _):
        assert store.core.max_position == end
        assert [store.bounds("T", queue_id) for queue_id in range(3)] == [(0, 1000)] * 3
        result = store.get("T", 2, 999, 1, 1 << 20, None)
        assert result.messages == 1


async def test_store_is_locked_against_other_processes_and_itself(tmp_path: Path) -> None:
    """Row 1.1, pitfall 9.20."""
    code = f"import fcntl; f = open({str(tmp_path / 'lock')!r}, 'r+'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
    async with opened(tmp_path):
        with pytest.raises(ConfigError, match="in use"):
            async with opened(tmp_path):
                pass
        other = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True)
        assert other.returncode != 0
        assert b"BlockingIOError" in other.stderr
    free = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True)
    assert free.returncode == 0


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_no_message_waits_in_a_pool(tmp_path: Path, flush: str, caplog: pytest.LogCaptureFixture) -> None:
    """Row 1.3, pitfall 9.22: what transientStorePoolEnable asks for isn't done, so nothing is read before it is in the log,
    and nothing dies with the process."""
    async with opened(tmp_path / "a", transientStorePoolEnable="true", flushDiskType=flush) as (store, _):
        assert "transientStorePoolEnable is not needed" in caplog.text
        end = put(store, b"x").end
        # What a kill leaves.
        shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b" / "abort").exists()
    async with opened(tmp_path / "b") as (store, _):
        assert store.core.max_position == end
        assert store.get("T", 0, 0, 32, 1 << 20, None).messages == 1


async def test_log_file_of_another_size_is_refused_with_its_name(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, _):
        put(store, b"x")
    (file,) = (tmp_path / "commitlog").iterdir()
    with file.open("r+b") as log:
        log.truncate(4096)
    with pytest.raises(ConfigError, match=file.name):
        async with opened(tmp_path):
            pass
    async with opened(tmp_path / "another"):
        pass


def test_checkpoint_is_apaches(tmp_path: Path) -> None:
    """Row 1.6."""
    path = tmp_path / "checkpoint"
    Checkpoint(10_000, 9_000, 8_000).save(path)
    data = path.read_bytes()
    assert len(data) == SIZE
    assert data[:24] == (10_000).to_bytes(8, "big") + (9_000).to_bytes(8, "big") + (8_000).to_bytes(8, "big")
    assert Checkpoint.load(path).safe == 6_000
    path.write_bytes(b"torn")
    assert Checkpoint.load(path).safe == 0
    assert Checkpoint.load(tmp_path / "missing").safe == 0


async def test_a_start_that_is_given_up_keeps_the_lock_until_its_thread_has_left_the_store(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    os.mkfifo(checkpoint)  # reading it lasts until somebody has written
    starting = asyncio.create_task(make(tmp_path, Events()).start())
    try:
        async with asyncio.timeout(30):
            while not (tmp_path / "commitlog").exists():
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        starting.cancel()
        await asyncio.sleep(0.1)
        assert is_locked(tmp_path / "lock")
        with pytest.raises(ConfigError, match="in use"):
            await make(tmp_path, Events()).start()
    finally:
        os.close(os.open(checkpoint, os.O_RDWR))
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not is_locked(tmp_path / "lock")
    checkpoint.unlink()
    async with opened(tmp_path) as (store, _):
        put(store, b"x")


async def test_after_a_failure_nothing_is_taken_and_abort_stays(tmp_path: Path) -> None:
    async with opened(tmp_path) as (store, events):
        put(store, b"before")
        store._fail(OSError(5, "Input/output error"))
        with pytest.raises(StoreUnavailable):
            put(store, b"after")
        assert len(events.failures) == 1
    assert (tmp_path / "abort").exists()
    async with opened(tmp_path) as (store, _):
        assert store.bounds("T", 0) == (0, 1)


@pytest.mark.parametrize("is_given_up", [False, True])
async def test_deleting_a_topic_does_not_hold_up_the_loop_nor_touch_what_comes_next(
    tmp_path: Path, is_given_up: bool
) -> None:
    """Its files go in the thread for file work, here behind a long one; the topic may be made anew before."""
    async with opened(tmp_path, flushDiskType="ASYNC_FLUSH", flushIntervalConsumeQueue="10") as (store, _):
        files = tmp_path / "consumequeue" / "T"
        for number in range(5):
            put(store, b"first %d" % number)
        async with asyncio.timeout(30):
            while not files.exists():
                await asyncio.sleep(0.01)
            began, go_on = threading.Event(), threading.Event()
            busy = asyncio.create_task(store._in_worker(lambda: (began.set(), go_on.wait(30))))
            assert await asyncio.to_thread(began.wait, 30)
            deleted = asyncio.create_task(store.delete_queues("T"))
            await asyncio.sleep(0.05)
            assert files.exists()
            assert store.bounds("T", 0) == (0, 0), "forgotten at once"
            assert put(store, b"second").queue_offset == 0
            if is_given_up:
                deleted.cancel()
            go_on.set()
            await asyncio.gather(busy, deleted, return_exceptions=True)
            while not (files / "0").exists():
                await asyncio.sleep(0.01)
        assert store.bounds("T", 0) == (0, 1)
        assert b"second" in b"".join(bytes(each) for each in store.get("T", 0, 0, 32, 1 << 20, None).buffers)
    async with opened(tmp_path) as (store, _):
        assert store.bounds("T", 0) == (0, 1)
