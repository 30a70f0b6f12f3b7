"""A log on several disks: which of them counts, and where the next file goes. The disks are stand-ins."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rockmq.base.errors import ConfigError, StoreUnavailable
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import load
from rockmq.store import disk, dump, repair, verify
from rockmq.store import layout as layouts
from rockmq.store.disk import ROOM, Usage
from rockmq.store.layout import Layout
from rockmq.store.message_store import MessageStore
from rockmq.store.retention import Retention
from tests.support.clock import FakeClock
from tests.unit.store.stores import HOST, made

FILE = 4096
BODY = b"x" * 900
SIZES = {
    "mappedFileSizeCommitLog": str(FILE),
    "mappedFileSizeConsumeQueue": "200",
    "maxHashSlotNum": "5",
    "maxIndexNum": "20",
}


class Disks:
    """One of 1000 MB for each directory, of which so many are used."""

    def __init__(self) -> None:
        self.used = {"a": 100, "b": 100, "store": 100}

    def usage(self, path: Path) -> Usage:
        used = self.used[path.name]
        return Usage(path, 1000 << 20, used << 20, (1000 - used) << 20, True)


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Disks:
    found = Disks()
    monkeypatch.setattr(disk, "usage", found.usage)
    return found


@asynccontextmanager
async def opened(root: Path, *directories: str, **settings: str) -> AsyncIterator[tuple[MessageStore, Retention]]:
    """A store whose looks at the disks, and rounds of deleting, only the test makes."""
    listed = ",".join(str(root / each) for each in directories)
    keys = {"storePathCommitLog": listed, "cleanResourceInterval": "1000000", "deleteCommitLogFilesInterval": "0"}
    clock = FakeClock()
    store, options = made(root / "store", SIZES | keys | settings, clock)
    await store.start()
    try:
        yield store, Retention(options.retention, store.core, store.disk, clock, store._in_worker)
    finally:
        await store.close()


def fill(store: MessageStore, files: int) -> None:
    """Messages until the log has so many files; four fit one."""
    while len(store.core.files()) < files:
        store.append("T", 0, BODY, b"", born_host=HOST, born_timestamp=0)


def numbers(root: Path, directory: str) -> list[int]:
    return sorted(int(path.name) // FILE for path in (root / directory).iterdir())


async def test_new_files_avoid_disks_that_are_nearly_full(tmp_path: Path, disks: Disks) -> None:
    async with opened(tmp_path, "a", "b") as (store, _):
        fill(store, 2)
        assert (numbers(tmp_path, "a"), numbers(tmp_path, "b")) == ([0], [1])
        disks.used["a"] = 860
        store.disk.look()
        fill(store, 4)
        assert (numbers(tmp_path, "a"), numbers(tmp_path, "b")) == ([0], [1, 2, 3])
        disks.used["b"] = 870
        store.disk.look()
        fill(store, 6)
        assert (numbers(tmp_path, "a"), numbers(tmp_path, "b")) == ([0, 4], [1, 2, 3, 5]), "all are, so all are used"
        disks.used |= {"a": 1000, "b": 890}
        store.disk.look()
        fill(store, 7)
        assert numbers(tmp_path, "b") == [1, 2, 3, 5, 6], "there isn't room for a file in the other one"
        disks.used |= {"a": 100, "b": 100}
        store.disk.look()
        fill(store, 9)
        assert (numbers(tmp_path, "a"), numbers(tmp_path, "b")) == ([0, 4, 8], [1, 2, 3, 5, 6, 7])
    async with opened(tmp_path, "b", "a") as (store, _):
        assert store.bounds("T", 0) == (0, 33)


async def test_messages_are_refused_when_no_disk_has_room(tmp_path: Path, disks: Disks) -> None:
    async with opened(tmp_path, "a", "b") as (store, _):
        disks.used["a"] = 990
        store.disk.look()
        assert store.refusal is None
        disks.used["b"] = 950
        store.disk.look()
        with pytest.raises(StoreUnavailable, match=r"/b is full: 95% are used, over diskSpaceWarningLevelRatio=90"):
            fill(store, 1)
        disks.used["a"] = 900
        store.disk.look()
        assert store.refusal is None, "the least used one counts"
        disks.used["store"] = 910
        store.disk.look()
        with pytest.raises(StoreUnavailable, match=r"/store is full: 91% are used"):
            fill(store, 1)


async def test_a_write_without_room_needs_it_on_one_disk_only(tmp_path: Path, disks: Disks) -> None:
    async with opened(tmp_path, "a", "b", diskSpaceWarningLevelRatio="100") as (store, _):
        disks.used["a"] = 1000
        store.disk.ran_out("can't allocate F: No space left on device", 2 << 20)
        assert store.refusal is None, "the other one gets the next file"
        disks.used["b"] = 1000
        store.disk.ran_out("can't allocate F: No space left on device", 2 << 20)
        store.disk.look()
        assert store.refusal is not None
        disks.used["b"] = 998
        store.disk.look()
        assert store.refusal is None
        fill(store, 2)
        assert (numbers(tmp_path, "a"), numbers(tmp_path, "b")) == ([], [0, 1])
        disks.used |= {"b": 1000, "store": 999}
        store.disk.ran_out("can't allocate F: No space left on device", 4 << 20)
        store.disk.look()
        assert store.refusal is not None
        disks.used["b"] = 990
        store.disk.look()
        assert store.refusal is None, "the root's disk needs no room for a log file"
        disks.used["store"] = 1000
        store.disk.ran_out("can't write Q: No space left on device")
        store.disk.look()
        assert store.refusal is not None, "queues have no other disk"


async def test_files_go_in_the_order_of_the_log_when_all_disks_are_full(tmp_path: Path, disks: Disks) -> None:
    async with opened(tmp_path, "a", "b") as (store, retention):
        fill(store, 4)
        disks.used["a"] = 990
        await retention.clean()
        assert (numbers(tmp_path, "a"), numbers(tmp_path, "b")) == ([0, 2], [1, 3]), "the other one has room"
        disks.used["b"] = 880
        await retention.clean()
        assert (numbers(tmp_path, "a"), numbers(tmp_path, "b")) == ([], [3])
        assert store.bounds("T", 0) == (12, 13)


async def test_read_only_directories_are_a_part_of_the_log(tmp_path: Path, disks: Disks) -> None:
    async with opened(tmp_path, "a") as (store, _):
        fill(store, 2)
    disks.used["b"] = 950
    (tmp_path / "b").mkdir()
    read_only = {"readOnlyCommitLogStorePaths": f"{tmp_path}/a/"}
    async with opened(tmp_path, "a", "b", **read_only) as (store, retention):
        assert store.bounds("T", 0) == (0, 5)
        assert store.refusal is not None, "whether the disk of the read-only one has room says nothing"
        disks.used["b"] = 100
        store.disk.look()
        fill(store, 4)
        assert (numbers(tmp_path, "a"), numbers(tmp_path, "b")) == ([0, 1], [2, 3])
        disks.used["b"] = 880
        await retention.clean()
        assert (numbers(tmp_path, "a"), numbers(tmp_path, "b")) == ([], [3])
    (tmp_path / "a").rmdir()
    with pytest.raises(ConfigError, match=r"/a/ isn't there, and readOnlyCommitLogStorePaths says"):
        async with opened(tmp_path, "a", "b", **read_only):
            pass


async def test_a_directory_that_was_not_mounted_is_not_made_anew(tmp_path: Path, disks: Disks) -> None:
    async with opened(tmp_path, "a", "b") as (store, _):
        fill(store, 4)
    (tmp_path / "store" / "config" / "logDirectories.json").unlink()  # as if Apache's broker had made the store
    (tmp_path / "b").rename(tmp_path / "unmounted")
    with pytest.raises(ConfigError, match=r"/b isn't there, and .*/a holds a part of the log: mount it"):
        async with opened(tmp_path, "a", "b"):
            pass
    assert not (tmp_path / "b").exists()
    (tmp_path / "unmounted").rename(tmp_path / "b")
    async with opened(tmp_path, "a", "b") as (store, _):
        assert store.bounds("T", 0) == (0, 13)


async def test_an_empty_directory_where_the_newest_files_were_is_told_of(tmp_path: Path, disks: Disks) -> None:
    """A mount point stands also when its disk isn't mounted."""
    async with opened(tmp_path, "a", "b") as (store, _):
        fill(store, 2)
    assert (numbers(tmp_path, "a"), numbers(tmp_path, "b")) == ([0], [1])
    (tmp_path / "b").rename(tmp_path / "unmounted")
    (tmp_path / "b").mkdir()
    for directories in (("a", "b"), ("a",)):
        with pytest.raises(ConfigError, match=r"/b had the log's file 0+4096, and it isn't there: is its disk mounted"):
            async with opened(tmp_path, *directories):
                pass
    assert numbers(tmp_path, "b") == []
    (tmp_path / "b").rmdir()
    (tmp_path / "unmounted").rename(tmp_path / "b")
    async with opened(tmp_path, "a", "b") as (store, _):
        fill(store, 3)
        end = store.bounds("T", 0)[1]
    before = numbers(tmp_path, "a") + numbers(tmp_path, "b")
    # Files that retention has taken are missed by nobody, also if they are all of a directory.
    for number in range(max(before)):
        for directory in ("a", "b"):
            (tmp_path / directory / f"{number * FILE:020}").unlink(missing_ok=True)
    async with opened(tmp_path, "a", "b") as (store, _):
        assert store.bounds("T", 0)[1] == end


async def test_what_was_where_is_kept_from_the_beginning_of_a_file(tmp_path: Path, disks: Disks) -> None:
    async with opened(tmp_path, "a", "b", flushIntervalConsumeQueue="1000000") as (store, _):
        fill(store, 3)
        store._write_queues()
        kept = (tmp_path / "store" / "config" / "logDirectories.json").read_text()
        assert json.loads(kept) == {str(tmp_path / "a"): 2 * FILE, str(tmp_path / "b"): FILE}
    (tmp_path / "store" / "config" / "logDirectories.json").write_text("{ broken")
    (tmp_path / "store" / "config" / "logDirectories.json.bak").write_text("[]")
    with pytest.raises(ConfigError, match="can be read"):
        async with opened(tmp_path, "a", "b"):
            pass


async def test_the_next_file_is_made_ahead_where_it_will_be(tmp_path: Path, disks: Disks) -> None:
    async with opened(tmp_path, "a", "b", flushIntervalConsumeQueue="1000000") as (store, _):
        fill(store, 1)
        fill_half(store)
        disks.used |= {"a": 1000, "b": 1000}
        store.disk.look()
        store._prepare_next_file()
        assert numbers(tmp_path, "b") == []
        disks.used["b"] = 100
        store.disk.look()
        store._prepare_next_file()
        assert (numbers(tmp_path, "a"), numbers(tmp_path, "b")) == ([0], [1])


async def test_a_next_file_that_is_there_is_room_enough(tmp_path: Path, disks: Disks) -> None:
    settings = {"flushIntervalConsumeQueue": "1000000", "diskSpaceWarningLevelRatio": "100"}
    async with opened(tmp_path, "a", **settings) as (store, _):
        fill(store, 1)
        fill_half(store)
        disks.used["a"] = 1000
        store.disk.ran_out("no space is left", FILE + ROOM)
        store.disk.look()
        assert store.refusal is not None
        disks.used["a"] = 100
        store._prepare_next_file()
        disks.used["a"] = 999
        store.disk.look()
        assert store.refusal is None, "it is what the room has become"
        fill(store, 2)


def fill_half(store: MessageStore) -> None:
    while store.core.max_position % FILE <= FILE // 2:
        store.append("T", 0, BODY, b"", born_host=HOST, born_timestamp=0)


async def test_checks_dumps_and_repair_find_all_directories(tmp_path: Path, disks: Disks) -> None:
    async with opened(tmp_path, "a", "b") as (store, _):
        fill(store, 5)
        count = store.bounds("T", 0)[1]
    layout = laid_out(tmp_path, storePathCommitLog=f"{tmp_path}/a,{tmp_path}/b")
    report = verify.verify(layout, silent)
    assert report.is_clean
    assert (report.records, len(layout.log_files)) == (count, 5)
    assert sum(1 for _ in dump.records(layout, dump.Wanted())) == count
    said: list[str] = []
    done = repair.repair(layout, silent, cut=False, say=said.append)
    assert (done.records, done.end) == (count, report.end)
    assert repair.plan(layout)[0] == f"read the log {tmp_path}/a and {tmp_path}/b, 5 files from position 0 on"
    assert verify.verify(layout, silent).is_clean
    damaged = bytearray((tmp_path / "b" / f"{FILE:020}").read_bytes())
    damaged[100] ^= 0xFF
    (tmp_path / "b" / f"{FILE:020}").write_bytes(damaged)
    [finding] = verify.verify(layout, silent).findings
    assert (finding.kind, finding.file, finding.byte) == ("crc", f"{tmp_path}/b/{FILE:020}", 0)
    with pytest.raises(ConfigError, match=r"is no store: there is no directory .*/store/commitlog.*several"):
        laid_out(tmp_path)
    half = laid_out(tmp_path, storePathCommitLog=f"{tmp_path}/a")
    assert "log file" in verify.verify(half, silent).kinds
    with pytest.raises(ConfigError, match="files are missing"):
        repair.repair(half, silent, cut=False, say=said.append)
    (tmp_path / "a" / f"{FILE:020}").write_bytes(bytes(FILE))
    with pytest.raises(ConfigError, match=f"/a/{FILE:020} and .*/b/{FILE:020} are the same part of the log"):
        laid_out(tmp_path, storePathCommitLog=f"{tmp_path}/a,{tmp_path}/b")


def laid_out(root: Path, **settings: str) -> Layout:
    options = load(BrokerOptions, {"storePathRootDir": str(root / "store"), **SIZES, **settings}).store
    return layouts.find(root / "store", options if settings else None)


def silent(done: int, total: int) -> None:
    assert 0 <= done <= total
