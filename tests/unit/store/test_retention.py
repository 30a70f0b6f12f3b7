"""Which log files are deleted, and when. The disk is a stand-in: its use is what a test says."""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import cast

import pytest

from rockmq import _core
from rockmq.base.errors import ConfigError, StoreUnavailable
from rockmq.store import disk
from rockmq.store.disk import Usage
from rockmq.store.message_store import MessageStore
from rockmq.store.retention import Retention
from tests.support.clock import FakeClock
from tests.unit.store.stores import HOST, made

FILE_SIZE = 4096
BODY = b"x" * 900
HOUR = 3600.0


class Disk:
    """In place of the real one: 1000 bytes, of which `used` are used."""

    def __init__(self) -> None:
        self.used = 100
        self.free: int | None = None
        self.inodes_free = True

    def usage(self, path: Path) -> Usage:
        free = self.free if self.free is not None else 1000 - self.used
        return Usage(path, 1000, self.used, free, self.inodes_free)


@pytest.fixture
def fake_disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    found = Disk()
    monkeypatch.setattr(disk, "usage", found.usage)
    return found


@asynccontextmanager
async def opened(root: Path, clock: FakeClock, **settings: str) -> AsyncIterator[tuple[MessageStore, Retention]]:
    """A store whose rounds of deleting only the test makes."""
    keys = {
        "mappedFileSizeCommitLog": str(FILE_SIZE),
        "mappedFileSizeConsumeQueue": "200",
        "deleteCommitLogFilesInterval": "0",
        "cleanResourceInterval": "1000000",
        **settings,
    }
    store, options = made(root, keys, clock)
    await store.start()
    try:
        yield store, Retention(options.retention, store.core, store.disk, clock, store._in_worker)
    finally:
        await store.close()


def put(store: MessageStore, queue_id: int = 0) -> None:
    store.append("T", queue_id, BODY, b"", born_host=HOST, born_timestamp=0)


def fill(store: MessageStore, files: int) -> None:
    """Messages until the log has so many files; four fit one."""
    while len(store.core.files()) < files:
        put(store)


def at_hour(clock: FakeClock, hour: int) -> None:
    """Move on to that hour of the day, local time, at least an hour later."""
    clock.seconds += HOUR
    while datetime.fromtimestamp(clock.seconds).astimezone().hour != hour:
        clock.seconds += HOUR


def names(root: Path) -> list[int]:
    return sorted(int(path.name) // FILE_SIZE for path in (root / "commitlog").iterdir())


async def test_expired_files_go_at_their_hour_only(tmp_path: Path, fake_disk: Disk) -> None:
    """Row 4.2."""
    clock = FakeClock()
    async with opened(tmp_path, clock, fileReservedTime="48", deleteWhen="04;13") as (store, retention):
        at_hour(clock, 13)
        fill(store, 4)
        clock.seconds += 24 * HOUR
        await retention.clean()
        assert names(tmp_path) == [0, 1, 2, 3]
        clock.seconds += 23 * HOUR
        await retention.clean()
        assert names(tmp_path) == [0, 1, 2, 3], "expired, but the hour is another one"
        at_hour(clock, 4)
        await retention.clean()
        assert names(tmp_path) == [3], "the last one is never deleted"
        assert store.core.min_position == 3 * FILE_SIZE
        assert store.bounds("T", 0) == (12, 13)
        assert store.get("T", 0, 5, 32, 1 << 20, None).next_offset == 12


async def test_an_operator_has_expired_files_deleted_at_any_hour(tmp_path: Path, fake_disk: Disk) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock, fileReservedTime="20", deleteWhen="04", deleteFileBatchMax="1") as (store, retention):
        at_hour(clock, 13)
        fill(store, 3)
        clock.seconds += 24 * HOUR
        fill(store, 5)
        await retention.clean()
        assert names(tmp_path) == [0, 1, 2, 3, 4]
        retention.delete_expired()
        await retention.clean()
        assert names(tmp_path) == [1, 2, 3, 4]
        for _ in range(5):
            await retention.clean()
        assert names(tmp_path) == [2, 3, 4], "the rest hasn't expired"


async def test_a_file_expires_with_its_last_message(tmp_path: Path, fake_disk: Disk) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock, fileReservedTime="20") as (store, retention):
        at_hour(clock, 4)
        fill(store, 2)
        clock.seconds += 12 * HOUR
        fill(store, 4)
        at_hour(clock, 4)
        await retention.clean()
        assert names(tmp_path) == [1, 2, 3], "the second file has young messages too"
        clock.seconds += 24 * HOUR
        await retention.clean()
        assert names(tmp_path) == [3]


async def test_times_of_files_say_nothing(tmp_path: Path, fake_disk: Disk) -> None:
    """Pitfall 9.8: a copy of a store may have old files, or fresh ones; the age is that of the messages."""
    clock = FakeClock()
    async with opened(tmp_path, clock, fileReservedTime="20") as (store, retention):
        at_hour(clock, 4)
        fill(store, 4)
        for file in (tmp_path / "commitlog").iterdir():
            os.utime(file, (1, 1))
        await retention.clean()
        assert names(tmp_path) == [0, 1, 2, 3]
        clock.seconds += 24 * HOUR
        for file in (tmp_path / "commitlog").iterdir():
            os.utime(file, (clock.seconds, clock.seconds))
        await retention.clean()
        assert names(tmp_path) == [3]


async def test_a_round_has_a_bound(tmp_path: Path, fake_disk: Disk) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock, fileReservedTime="0", deleteFileBatchMax="3") as (store, retention):
        fill(store, 9)
        at_hour(clock, 4)
        for left in (6, 3, 1, 1):
            await retention.clean()
            assert len(names(tmp_path)) == left


async def test_a_round_pauses_between_files(tmp_path: Path, fake_disk: Disk) -> None:
    clock = FakeClock()
    settings = {"fileReservedTime": "0", "deleteCommitLogFilesInterval": str(2**31 - 1)}
    async with opened(tmp_path, clock, **settings) as (store, retention):
        fill(store, 4)
        at_hour(clock, 4)
        cleaning = asyncio.create_task(retention.clean())
        async with asyncio.timeout(30):
            while len(names(tmp_path)) == 4:
                await asyncio.sleep(0.01)
        put(store)
        assert not cleaning.done()
        assert names(tmp_path) == [1, 2, 3]
        cleaning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cleaning


@pytest.mark.parametrize(("used", "goes"), [(750, False), (751, True)])
async def test_a_disk_in_use_makes_expired_files_go_at_any_hour(
    tmp_path: Path, fake_disk: Disk, used: int, goes: bool
) -> None:
    """Row 4.2: diskMaxUsedSpaceRatio."""
    clock = FakeClock()
    async with opened(tmp_path, clock, fileReservedTime="1") as (store, retention):
        at_hour(clock, 13)
        fill(store, 3)
        fake_disk.used = used
        await retention.clean()
        assert len(names(tmp_path)) == 3, "not expired"
        clock.seconds += 2 * HOUR
        await retention.clean()
        assert len(names(tmp_path)) == (1 if goes else 3)


async def test_a_full_disk_makes_the_oldest_go_whatever_its_age(
    tmp_path: Path, fake_disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """Row 4.2: diskSpaceCleanForciblyRatio."""
    caplog.set_level(logging.INFO)
    clock = FakeClock()
    async with opened(tmp_path, clock) as (store, retention):
        at_hour(clock, 13)
        fill(store, 6)
        fake_disk.used = 850
        await retention.clean()
        assert len(names(tmp_path)) == 6
        fake_disk.used = 851
        with freeing(fake_disk, store, each=1, below=850):
            await retention.clean()
        assert names(tmp_path) == [1, 2, 3, 4, 5], "the disk is asked again before each file"
        assert "86% of the disk are used, over diskSpaceCleanForciblyRatio=85" in caplog.text


@contextmanager
def freeing(fake_disk: Disk, store: MessageStore, each: int, below: int) -> Iterator[None]:
    """Each file that is deleted gives some of the disk back."""
    look: Callable[[], None] = store.disk.look

    def looked() -> None:
        fake_disk.used = max(below, fake_disk.used - each)
        look()

    store.disk.look = looked  # type: ignore[method-assign]
    yield
    store.disk.look = look  # type: ignore[method-assign]


async def test_forced_deletion_can_be_forbidden(tmp_path: Path, fake_disk: Disk) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock, cleanFileForciblyEnable="false") as (store, retention):
        at_hour(clock, 13)
        fill(store, 3)
        fake_disk.used = 990
        await retention.clean()
        assert len(names(tmp_path)) == 3


async def test_bytes_in_all_are_bounded(tmp_path: Path, fake_disk: Disk) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock, retentionBytes=str(3 * FILE_SIZE)) as (store, retention):
        at_hour(clock, 13)
        fill(store, 3)
        await retention.clean()
        assert len(names(tmp_path)) == 3
        fill(store, 6)
        await retention.clean()
        assert names(tmp_path) == [3, 4, 5]
        assert store.core.max_position - store.core.min_position <= 3 * FILE_SIZE


async def test_queue_files_follow_the_log_and_a_restart_finds_the_same_minimum(tmp_path: Path, fake_disk: Disk) -> None:
    """Row 4.2, pitfall 9.19: the minimum is nowhere on disk."""
    clock = FakeClock()
    async with opened(tmp_path, clock, retentionBytes=str(2 * FILE_SIZE)) as (store, retention):
        fill(store, 10)
        put(store, queue_id=1)
        store.core.flush_queues(True)
        queue = tmp_path / "consumequeue" / "T" / "0"
        assert len(list(queue.iterdir())) == 4
        await retention.clean()
        before = store.bounds("T", 0), store.bounds("T", 1)
        assert before == ((32, 37), (0, 1))
        assert [path.name for path in queue.iterdir()] == [f"{600:020}"]
    async with opened(tmp_path, clock) as (store, _):
        assert (store.bounds("T", 0), store.bounds("T", 1)) == before
        assert store.get("T", 0, 32, 1, 1 << 20, None).messages == 1


async def test_what_cant_be_deleted_stays_and_is_tried_again(
    tmp_path: Path, fake_disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """A gap between log files would keep the store from opening."""
    clock = FakeClock()
    async with opened(tmp_path, clock, retentionBytes=str(FILE_SIZE)) as (store, retention):
        fill(store, 4)
        first = tmp_path / "commitlog" / f"{0:020}"
        first.rename(tmp_path / "aside")
        first.mkdir()
        for _ in range(3):
            await retention.clean()
        assert caplog.text.count("old files of the log can't be deleted") == 1
        assert str(first) in caplog.text
        assert names(tmp_path) == [0, 1, 2, 3]
        assert store.core.min_position == 0
        first.rmdir()
        (tmp_path / "aside").rename(first)
        await retention.clean()
        assert names(tmp_path) == [3]


async def test_over_the_warning_level_nothing_is_taken_but_all_is_read(
    tmp_path: Path, fake_disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, FakeClock(), flushDiskType="ASYNC_FLUSH") as (store, _):
        put(store)
        fake_disk.used = 901
        store.disk.look()
        store.disk.look()
        with pytest.raises(
            StoreUnavailable, match=rf"the disk of {tmp_path}.* is full: 91% .*diskSpaceWarningLevelRatio=90"
        ):
            put(store)
        assert store.get("T", 0, 0, 1, 1 << 20, None).messages == 1
        fake_disk.used = 900
        store.disk.look()
        put(store)
        assert store.bounds("T", 0) == (0, 2)
    assert [record.levelname for record in caplog.records] == ["CRITICAL", "WARNING"], "once for each change"


async def test_a_disk_that_is_full_at_the_start_is_noticed_before_the_first_message(tmp_path: Path, fake_disk: Disk) -> None:
    fake_disk.used = 950
    async with opened(tmp_path, FakeClock()) as (store, _):
        with pytest.raises(StoreUnavailable, match="95% are used"):
            put(store)


async def test_a_write_without_room_refuses_until_there_is_as_much_as_it_wanted(tmp_path: Path, fake_disk: Disk) -> None:
    async with opened(tmp_path, FakeClock()) as (store, _):
        fake_disk.free = 500
        store.disk.ran_out("can't allocate F: No space left on device", 600)
        with pytest.raises(StoreUnavailable, match=r"can't allocate F.*taken again when 600 bytes are free"):
            put(store)
        store.disk.look()
        assert store.refusal is not None
        fake_disk.free, fake_disk.inodes_free = 600, False
        store.disk.look()
        assert store.refusal is not None
        fake_disk.inodes_free = True
        store.disk.look()
        put(store)


async def test_a_disk_that_cant_be_asked_changes_nothing(
    tmp_path: Path, fake_disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def blind(path: Path) -> Usage:
        raise OSError(5, "Input/output error", str(path))

    async with opened(tmp_path, FakeClock()) as (store, retention):
        monkeypatch.setattr(disk, "usage", blind)
        for _ in range(3):
            store.disk.look()
            await retention.clean()
        put(store)
    assert caplog.text.count("can't be found out") == 1


def test_use_is_rounded_up_as_apache_does(tmp_path: Path) -> None:
    assert Usage(tmp_path, 1000, 1, 999, True).percent == 1
    assert Usage(tmp_path, 1000, 500, 400, True).percent == 56, "what is kept for root counts for neither"
    assert Usage(tmp_path, 0, 0, 0, True).percent == 0
    found = disk.usage(tmp_path)
    assert 0 < found.used < found.total
    assert found.inodes_free


def put_to(store: MessageStore, topic: str, count: int, queue_id: int = 0) -> None:
    for _ in range(count):
        store.append(topic, queue_id, BODY, b"", born_host=HOST, born_timestamp=0)


async def test_bytes_of_a_topic_are_bounded_file_by_file(tmp_path: Path, fake_disk: Disk) -> None:
    """Of four messages in a file two are T's, one U's, one the system's."""
    clock = FakeClock()
    system = "SCHEDULE_TOPIC_XXXX"
    size = 91 + len("T") + len(BODY)
    async with opened(tmp_path, clock, retentionBytesPerTopic=str(5 * size)) as (store, retention):
        at_hour(clock, 13)
        for number in range(5):
            put_to(store, "T", 2, queue_id=number % 2)
            put_to(store, "U", 1)
            put_to(store, system, 1)
            if number == 2:
                await retention.clean()
                assert store.bounds("T", 0) == (2, 4), "the first file's are hidden"
        await retention.clean()
        assert [store.bounds("T", queue_id) for queue_id in range(2)] == [(4, 6), (2, 4)]
        assert (store.bounds("U", 0), store.bounds(system, 0)) == ((0, 5), (0, 5))
        assert store.get("T", 0, 0, 32, 1 << 20, None).next_offset == 4
        assert names(tmp_path) == [0, 1, 2, 3, 4], "U is within its bound"
        put_to(store, "U", 4)
        await retention.clean()
        assert store.bounds("U", 0) == (4, 9)
        assert names(tmp_path)[0] == 0, "what waits in a topic of the system is kept"
        await store.delete_queues(system)
        await retention.clean()
        assert names(tmp_path) == [3, 4, 5], "nobody keeps anything in the first three"
        hidden = store.bounds("T", 0), store.bounds("T", 1), store.bounds("U", 0)
    async with opened(tmp_path, clock, retentionBytesPerTopic=str(5 * size)) as (store, _):
        assert (store.bounds("T", 0), store.bounds("T", 1), store.bounds("U", 0)) == hidden
        assert [store.get("U", 0, offset, 1, 1 << 20, None).messages for offset in (3, 4)] == [0, 1]


async def test_an_idle_light_queue_keeps_no_file(tmp_path: Path, fake_disk: Disk) -> None:
    """Row 2.5: a message is its topic's, and so is the bound."""
    clock = FakeClock()
    bound = str(4 * (91 + len("T") + len(BODY)))
    light = {"enableLmq": "true", "enableMultiDispatch": "true"}
    async with opened(tmp_path, clock, retentionBytesPerTopic=bound, **light) as (store, retention):
        at_hour(clock, 13)
        properties = b"INNER_MULTI_DISPATCH\x01%LMQ%idle\x02"
        store.append("T", 0, b"x", properties, born_host=HOST, born_timestamp=0, light_queues=["%LMQ%idle"])
        put_to(store, "T", 2)
        await retention.clean()
        assert (store.bounds("%LMQ%idle", 0), names(tmp_path)) == ((0, 1), [0])
        put_to(store, "T", 17)
        await retention.clean()
        assert names(tmp_path)[0] > 0
        assert (store.bounds("%LMQ%idle", 0), store.bounds("T", 0)[1]) == ((1, 1), 20)


class Asked:
    """The core, and what it was asked for in which thread."""

    def __init__(self, core: _core.Store) -> None:
        self._core = core
        self.threads: dict[str, list[str]] = {}

    def __getattr__(self, name: str) -> object:
        self.threads.setdefault(name, []).append(threading.current_thread().name)
        return getattr(self._core, name)


async def test_what_takes_long_is_asked_once_in_a_round_and_away_from_the_loop(tmp_path: Path, fake_disk: Disk) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock, retentionBytesPerTopic="2000") as (store, _):
        asked = Asked(store.core)
        retention = Retention(store._retention_options, cast("_core.Store", asked), store.disk, clock, store._in_worker)
        fill(store, 4)
        await retention.clean()
        assert names(tmp_path) == [3]
        for name in ("files", "lowest_position"):
            (thread,) = asked.threads[name]
            assert thread.startswith("store")


async def test_what_is_hidden_of_a_topic_is_so_after_a_start_and_no_longer_without_the_bound(
    tmp_path: Path, fake_disk: Disk
) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock) as (store, _):
        for _ in range(6):
            put_to(store, "T", 2)
            put_to(store, "U", 2)
        store.core.flush_queues(True)
    bound = str(4 * (91 + len("T") + len(BODY)))
    for _ in range(2):
        async with opened(tmp_path, clock, retentionBytesPerTopic=bound) as (store, _):
            assert (store.bounds("T", 0), store.bounds("U", 0)) == ((8, 12), (8, 12)), "before anything is served"
            assert len(names(tmp_path)) == 6
    async with opened(tmp_path, clock) as (store, _):
        assert store.bounds("T", 0) == (0, 12)


async def test_a_deleted_topic_leaves_nothing_to_its_next_life(tmp_path: Path, fake_disk: Disk) -> None:
    clock = FakeClock()
    bound = str(6 * (91 + len("T") + len(BODY)))
    async with opened(tmp_path, clock, retentionBytesPerTopic=bound) as (store, retention):
        put_to(store, "U", 1)
        put_to(store, "T", 5)
        await retention.clean()
        store._retention.topic_deleted("T")
        retention.topic_deleted("T")
        await store.delete_queues("T")
        put_to(store, "T", 5)
        await retention.clean()
        assert store.bounds("T", 0) == (0, 5)


HELD = {"retentionGroups": "archiver; audit", "fileReservedTime": "1", "deleteWhen": ";".join(map(str, range(24)))}


async def test_what_a_group_hasnt_got_isnt_deleted(
    tmp_path: Path, fake_disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    """Four messages fit a file."""
    clock = FakeClock()
    offsets = {"archiver": {"T": {0: 9}}, "audit": {"T": {0: 14}}}
    async with opened(tmp_path, clock, **HELD) as (store, retention):
        fill(store, 6)
        clock.seconds += 2 * HOUR
        await retention.clean()
        assert len(names(tmp_path)) == 6, "as long as nobody said where the groups are"
        retention.hold_for_groups(lambda group: offsets[group])
        await retention.clean()
        await retention.clean()
        assert names(tmp_path) == [2, 3, 4, 5]
        assert caplog.text.count("messages are held for group archiver, which is at offset 9 of T/0") == 1
        offsets["archiver"]["T"][0] = 17
        await retention.clean()
        assert names(tmp_path) == [3, 4, 5], "the other group is at 14"
        offsets["audit"]["T"][0] = 21
        await retention.clean()
        assert names(tmp_path) == [4, 5]
        for at in offsets.values():
            at["T"][0] = 100
        await retention.clean()
        assert names(tmp_path) == [5]


async def test_a_group_holds_all_queues_of_its_topics_and_no_others(tmp_path: Path, fake_disk: Disk) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock, **HELD) as (store, retention):
        retention.hold_for_groups(lambda group: {"T": {0: 1_000}, "gone": {0: 3}})
        fill(store, 2)
        store.append("other", 0, BODY, b"", born_host=HOST, born_timestamp=0)
        fill(store, 4)
        put(store, queue_id=1)
        fill(store, 6)
        clock.seconds += 2 * HOUR
        await retention.clean()
        assert names(tmp_path) == [3, 4, 5], "queue 1, which the group never committed, begins there"


@pytest.mark.parametrize(
    ("used", "settings", "left"),
    [
        (800, {}, 4),
        (801, {}, 1),
        (900, {"retentionGroupsDiskRatio": "100"}, 4),
        (100, {"retentionGroupsBytes": str(2 * FILE_SIZE)}, 2),
    ],
)
async def test_over_a_bound_messages_go_whoever_hasnt_got_them(
    tmp_path: Path, fake_disk: Disk, caplog: pytest.LogCaptureFixture, used: int, settings: dict[str, str], left: int
) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock, **HELD, **settings) as (store, retention):
        retention.hold_for_groups(lambda group: {"T": {0: 2}})
        fill(store, 4)
        clock.seconds += 2 * HOUR
        fake_disk.used = used
        await retention.clean()
        assert len(names(tmp_path)) == left
        lost = [record for record in caplog.records if "messages go that were held" in record.message]
        assert [record.levelno for record in lost] == ([logging.ERROR] if left < 4 else [])


async def test_bytes_in_all_wait_for_groups_too(tmp_path: Path, fake_disk: Disk) -> None:
    clock = FakeClock()
    settings = {"retentionBytes": str(2 * FILE_SIZE), "retentionGroups": "archiver"}
    async with opened(tmp_path, clock, **settings) as (store, retention):
        at: dict[int, int] = {}
        retention.hold_for_groups(lambda group: {"T": at})
        fill(store, 5)
        await retention.clean()
        assert len(names(tmp_path)) == 5
        at[0] = 8
        await retention.clean()
        assert names(tmp_path) == [2, 3, 4]


async def test_groups_that_cant_be_held_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="retentionGroups=a b: "):
        async with opened(tmp_path, FakeClock(), retentionGroups="a b"):
            raise AssertionError("it opened")
    with pytest.raises(ConfigError, match="can't be with retentionBytesPerTopic"):
        made(tmp_path, {"retentionGroups": "a", "retentionBytesPerTopic": "1000"})
