"""What recovery makes of the files a crash has left."""

import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rockmq._core import Store, StoreError
from tests.support import model
from tests.support.model import Log, Record
from tests.unit.core import stores
from tests.unit.core.stores import HOST, PEER

FILE, QUEUE_FILE, SECTOR = 4096, 20 * 7, 512
BLANK_ENTRY = struct.pack(">qiq", 0, 2**31 - 1, 0)


def record(number: int, **changes: object) -> Record:
    given: dict[str, object] = {
        "topic": "TUV"[number % 3],
        "queue_id": number % 2,
        "body": b"%d" % number + bytes(100 + 37 * (number % 11)),
        "properties": b"TAGS\x01tag%d\x02" % (number % 4),
        "born_host": PEER,
        "store_host": HOST,
        "store_timestamp": 1000 + number,
    }
    return Record(**(given | changes))  # type: ignore[arg-type]


def written(path: Path, count: int, *, flushed: int = 0) -> Log:
    """A store of `count` records that was never closed; the queue entries of the first `flushed` are in files."""
    store, log = opened(path), Log(FILE)
    store.recover(0, True)
    for number in range(count):
        if number == flushed:
            store.flush_queues(True)
        stores.append(store, log.append(record(number))[0])
    if flushed >= count:
        store.flush_queues(True)
    return log


def opened(path: Path) -> Store:
    return stores.opened(path, log_file_size=FILE, queue_file_size=QUEUE_FILE)


def log_files(path: Path) -> list[Path]:
    return sorted((path / "commitlog").iterdir())


def overwrite(path: Path, position: int, data: bytes) -> None:
    """Change the log on disk, across files."""
    for number, byte in enumerate(data):
        base = (position + number) // FILE * FILE
        with (path / "commitlog" / f"{base:020}").open("r+b") as file:
            file.seek(position + number - base)
            file.write(bytes([byte]))


def change_entry(path: Path, key: tuple[str, int], index: int, data: bytes) -> None:
    """Overwrite the beginning of a queue's entry on disk."""
    file_start, at = divmod(20 * index, QUEUE_FILE)
    with (path / "consumequeue" / key[0] / str(key[1]) / f"{file_start * QUEUE_FILE:020}").open("r+b") as file:
        file.seek(at)
        file.write(data)


def check(path: Path, log: Log, start: int = 0, *, scanned: int | None = None) -> Store:
    """Recover, and find exactly the model's log: in memory, on disk, after another append, and once more."""
    store = opened(path)
    end, seen = store.recover(start, True)
    assert (end, seen) == (log.end, len(log.records) if scanned is None else scanned)
    check_content(store, log)
    store.flush_queues(False)
    check_disk(path, log)
    again = opened(path)
    assert again.recover(start, True) == (end, seen)
    check_content(again, log)
    extra = record(1000, topic="T", queue_id=0)
    [placed] = Log(FILE, list(log.records), log.end).append(extra)
    assert stores.append(store, extra) == (placed.position, placed.size, placed.queue_offset, False)
    return store


def check_content(store: Store, log: Log) -> None:
    assert store.max_position == store.flush() == log.end
    assert sorted(store.queues()) == sorted((*key, 0, len(log.queue(*key))) for key in log.queues())
    for key in log.queues():
        got = store.get(*key, 0, 10_000, 1 << 30, log.end, None)
        assert stores.joined(got[5]) == b"".join(one.encode() for one in log.queue(*key))
        for index, one in enumerate(log.queue(*key)):
            assert store.get(*key, index, 1, 1, log.end, [one.tags_code])[4] == 1


def check_disk(path: Path, log: Log) -> None:
    data = b"".join(file.read_bytes() for file in log_files(path))
    assert data[log.end :].strip(b"\0") == b""
    assert len(data) - log.end <= FILE
    for key in log.queues():
        directory = path / "consumequeue" / key[0] / str(key[1])
        entries = b"".join(file.read_bytes() for file in sorted(directory.iterdir()))
        assert entries.rstrip(b"\0") == b"".join(one.entry for one in log.queue(*key)).rstrip(b"\0")


def test_nothing_is_recovered_from_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert store.files() == []
    assert store.recover(0, True) == (0, 0)
    assert store.flush_queues(True) == (0, 0)
    assert (store.min_position, store.max_position) == (0, 0)


@pytest.mark.parametrize("flushed", [0, 1, 20, 40])
def test_queues_are_made_again(tmp_path: Path, flushed: int) -> None:
    log = written(tmp_path / "a", 40, flushed=flushed)
    check(stores.copied(tmp_path / "a", tmp_path / "b"), log)


def test_a_closed_store_opens_as_it_was(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.recover(0, True)
    log = Log(FILE)
    for number in range(40):
        stores.append(store, log.append(record(number))[0])
    assert store.flush_queues(False) == (log.end, 1039)
    store.close()
    entries = {path: path.stat().st_mtime_ns for path in (tmp_path / "consumequeue").rglob("0*") if path.is_file()}
    last = opened(tmp_path).files()[-1]
    scanned = [one for one in log.records if one.position >= last[0]]
    assert last == (scanned[0].position, scanned[0].store_timestamp)
    store = check(tmp_path, log, last[0], scanned=len(scanned))
    assert {path: path.stat().st_mtime_ns for path in entries} == entries
    assert store.flush_queues(False)[1] == 2000


@pytest.mark.parametrize("start_file", [0, 1, 2, -1])
def test_scanning_may_start_at_any_file(tmp_path: Path, start_file: int) -> None:
    log = written(tmp_path / "a", 60, flushed=60)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    start = opened(path).files()[start_file][0]
    check(path, log, start, scanned=sum(one.position >= start for one in log.records))


def test_the_scan_begins_where_a_record_ends_if_told_so(tmp_path: Path) -> None:
    """Row 4.1: where our checkpoint says. Entries that lead below are trusted, and nothing below is judged."""
    log = written(tmp_path / "a", 60, flushed=60)
    for number in (1, 17, 30, 59, 60):
        path = stores.copied(tmp_path / "a", tmp_path / "b")
        start = log.records[number].position if number < 60 else log.end
        check(path, log, start, scanned=60 - number)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    overwrite(path, log.records[20].position + 90, b"damaged")
    overwrite(path, log.records[25].position, bytes(8))
    store = opened(path)
    assert store.recover(log.records[30].position, True) == (log.end, 30)
    assert (store.flushed_position, store.recovery[0]) == (log.records[30].position, log.end - log.records[30].position)
    assert store.read(log.records[26].position) == log.records[26].encode()


@pytest.mark.parametrize("damage", ["files", "all files", "zeros", "the last record", "garbage", "another log", "no queues"])
def test_a_log_that_does_not_reach_its_start_is_refused_as_it_is(tmp_path: Path, damage: str) -> None:
    """What was on disk and isn't any more is lost: to go on would hide that, and to cut would lose more."""
    log = written(tmp_path / "a", 60, flushed=60)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    start, files, ends = log.records[59].position, log_files(path), str(log.records[58].position)
    match damage:
        case "files":
            files[-1].unlink()
            ends = str((len(files) - 1) * FILE)
        case "all files":
            [file.unlink() for file in files]
            ends = f"no log in {path}/commitlog,"
        case "zeros" | "no queues":
            overwrite(path, log.records[58].position, bytes(log.end - log.records[58].position))
        case "the last record":
            overwrite(path, log.records[58].position, bytes(8))
            overwrite(path, start, bytes(log.end - start))
        case "garbage":
            overwrite(path, log.records[58].position, b"garbage!" * (log.records[58].size // 8 + 8))
        case "another log":
            start += 1
            ends = str(log.end)
    if damage == "no queues":
        shutil.rmtree(path / "consumequeue")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(StoreError, match=f"{ends}.* whole on disk up to {start}"):
        opened(path).recover(start, True)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_records_larger_than_what_is_looked_at_first(tmp_path: Path) -> None:
    store = stores.opened(tmp_path, log_file_size=64 << 20, max_message_size=16 << 20)
    store.recover(0, True)
    placed = [stores.append(store, record(0, body=bytes(size)))[:2] for size in (100, 9 << 20, 3 << 20, 100)]
    store.close()
    for position, size in placed:
        store = stores.opened(tmp_path, log_file_size=64 << 20)
        assert store.recover(position + size, True)[1] == len(placed) - placed.index((position, size)) - 1


def test_a_start_below_the_log_is_an_error(tmp_path: Path) -> None:
    written(tmp_path / "a", 60, flushed=60)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    log_files(path)[0].unlink()
    with pytest.raises(ValueError, match="start 5 is below"):
        opened(path).recover(5, True)


@pytest.mark.parametrize("field", ["size", "magic", "position", "body", "rest", "zero page"])
def test_the_log_ends_at_the_first_record_that_is_not_whole(tmp_path: Path, field: str) -> None:
    """Rows 2.2 and 4.1."""
    log = written(tmp_path / "a", 40, flushed=35)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    broken = log.records[17]
    body_at = broken.position + 88
    place, data = {
        "size": (broken.position, struct.pack(">i", broken.size + 1)),
        "magic": (broken.position + 4, b"\0\0\0\0"),
        "position": (broken.position + 28, struct.pack(">q", broken.position + 1)),
        "body": (body_at + 50, b"x"),
        "rest": (body_at + 1, b"\xff" * (broken.end - body_at - 1)),
        "zero page": (broken.position, bytes(400)),
    }[field]
    overwrite(path, place, data)
    check(path, log.truncated(17))


def test_without_the_crc_a_body_is_believed(tmp_path: Path) -> None:
    """Row 2.2: checkCRCOnRecover."""
    log = written(tmp_path / "a", 10)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    overwrite(path, log.records[5].position + 90, b"damaged")
    assert opened(path).recover(0, False) == (log.end, 10)


def test_a_torn_tail_is_wiped(tmp_path: Path) -> None:
    """Pitfall 9.2: wherever in the last record the write was torn."""
    log = written(tmp_path / "a", 12)
    for cut in range(1, log.records[-1].size, 7):
        path = stores.copied(tmp_path / "a", tmp_path / "b")
        overwrite(path, log.end - cut, bytes(cut))
        check(path, log.truncated(11))


def test_a_garbage_tail_is_wiped(tmp_path: Path) -> None:
    log = written(tmp_path / "a", 12)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    base = log.end // FILE * FILE
    overwrite(path, log.end, bytes(range(1, 256)) * 4)
    (path / "commitlog" / f"{base + FILE:020}").write_bytes(b"x" * FILE)
    check(path, log)


def test_a_stale_record_behind_the_end_stays_dead(tmp_path: Path) -> None:
    """A record of an earlier life stands right behind where a new, equally long one ends. Pitfall 9.3."""
    log = written(tmp_path / "a", 6, flushed=6)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    broken = log.records[3]
    overwrite(path, broken.position + 100, b"torn")
    store = check(path, log.truncated(3))
    new = record(3, topic="T", queue_id=0, properties=broken.properties + b"xy\x02" * 0, body=broken.body)
    stores.append(store, new)
    once_more = stores.copied(path, tmp_path / "c")
    assert opened(once_more).recover(0, True)[1] == 5


def test_a_blank_at_the_end_and_a_file_made_ahead(tmp_path: Path) -> None:
    """Rows 1.2 and 2.1: BLANK, and files that were never used."""
    store, log = opened(tmp_path / "a"), Log(FILE)
    store.recover(0, True)
    for number in range(2):
        stores.append(store, log.append(record(number, body=bytes(3900)))[0])
    store.prepare_next_file()
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    assert len(log_files(path)) == 3
    check(path, log)
    # Only the blank of the first file made it to disk.
    overwrite(path, FILE, bytes(FILE))
    assert opened(path).recover(0, True) == (FILE, 1)
    log_files(path)[1].unlink()
    store = opened(path)
    assert store.recover(0, True) == (FILE, 1)
    assert stores.append(store, record(1))[0] == FILE


def test_an_empty_last_file_is_dropped(tmp_path: Path) -> None:
    """Row 1.2, pitfall 9.1: the one length that is tolerated."""
    log = written(tmp_path / "a", 30)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    (path / "commitlog" / f"{len(log_files(path)) * FILE:020}").touch()
    check(path, log)


def test_without_a_log_the_queues_are_gone(tmp_path: Path) -> None:
    """Row 4.1."""
    written(tmp_path / "a", 30, flushed=30)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    for file in log_files(path):
        file.unlink()
    store = opened(path)
    assert store.recover(0, True) == (0, 0)
    assert store.queues() == []
    assert [file for file in (path / "consumequeue").rglob("*") if file.is_file()] == []


def test_entries_that_are_there_keep_their_tags_code(tmp_path: Path) -> None:
    """Apache keeps delivery times in the tags codes of its delay queues. Row 3.1."""
    log = written(tmp_path / "a", 20, flushed=20)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    file = path / "consumequeue" / "T" / "0" / f"{0:020}"
    data = bytearray(file.read_bytes())
    data[12:20] = struct.pack(">q", 1_700_000_000_000)
    data[20:40] = bytes(20)
    file.write_bytes(data)
    store = opened(path)
    assert store.recover(0, True) == (log.end, 20)
    expected = log.queue("T", 0)[1].entry
    assert file.read_bytes()[12:40] == struct.pack(">q", 1_700_000_000_000) + expected


@pytest.mark.parametrize("start_file", [0, -1])
def test_entries_of_light_queues_are_made_again(tmp_path: Path, start_file: int) -> None:
    """Row 2.5: a store of Apache's with enableLmq, whose records say which other queues they are in. One that isn't there
    isn't made: without enableLmq anybody may have said so."""
    store, log = opened(tmp_path / "a"), Log(FILE)
    store.recover(0, True)
    wrong = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%../b\x02INNER_MULTI_QUEUE_OFFSET\x017\x02"
    for number in range(40):
        indexes = b"INNER_MULTI_QUEUE_OFFSET\x01%d,%d,%d\x02" % (number, number, number)
        both = b"INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%gone,%LMQ%b\x02" + indexes
        stores.append(store, log.append(record(number, topic="T", properties=both))[0])
        stores.append(store, log.append(record(number, topic="%RETRY%g", properties=both))[0])
        stores.append(store, log.append(record(number, topic="U", properties=wrong))[0])
    store.flush_queues(True)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    light = [one for one in log.records if one.topic == "T"]
    for name in "ab":
        (path / "consumequeue" / f"%LMQ%{name}" / "0").mkdir(parents=True)
        entries = b"".join(one.entry for one in light).ljust(QUEUE_FILE * 6, b"\0")
        for base in range(0, len(entries), QUEUE_FILE):
            file = path / "consumequeue" / f"%LMQ%{name}" / "0" / f"{base:020}"
            file.write_bytes(entries[base : base + QUEUE_FILE])
    store = opened(path)
    store.recover(store.files()[start_file][0], True)
    assert sorted(topic for topic, *_ in store.queues() if "LMQ" in topic) == ["%LMQ%a", "%LMQ%b"]
    for name in "ab":
        assert store.queue_bounds(f"%LMQ%{name}", 0) == (0, 40)
        got = store.get(f"%LMQ%{name}", 0, 0, 100, 1 << 30, log.end, None)
        assert stores.joined(got[5]) == b"".join(one.encode() for one in light)


def test_a_lost_queue_over_retention_begins_with_blanks(tmp_path: Path) -> None:
    """Pitfalls 9.6 and 9.19: a queue's minimum comes from the log, and pre-blank entries count for nothing."""
    log = written(tmp_path / "a", 120, flushed=120)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    for file in log_files(path)[:3]:
        file.unlink()
    for file in (path / "consumequeue" / "T" / "0").iterdir():
        file.unlink()
    store = opened(path)
    store.recover(3 * FILE, True)
    queue = log.queue("T", 0)
    low = next(one.queue_offset for one in queue if one.position >= 3 * FILE)
    assert low % 7 != 0
    for key in log.queues():
        first = next(one.queue_offset for one in log.queue(*key) if one.position >= 3 * FILE)
        assert store.queue_bounds(*key) == (first, len(log.queue(*key)))
    files = sorted((path / "consumequeue" / "T" / "0").iterdir())
    assert files[0].name == f"{low // 7 * QUEUE_FILE:020}"
    entries = b"".join(one.entry for one in queue[low:])
    assert b"".join(file.read_bytes() for file in files).rstrip(b"\0").startswith(BLANK_ENTRY * (low % 7) + entries[:-8])
    log.deleted_below = 3 * FILE
    for offset in (low - 1, low, len(queue) - 1):
        *got, buffers, _ = store.get("T", 0, offset, 32, 1 << 20, log.end, None)
        assert (*got, stores.joined(buffers)) == log.get("T", 0, offset, 32, 1 << 20, log.end, None)
    store.close()
    store = opened(path)
    store.recover(store.files()[-1][0], True)
    assert store.queue_bounds("T", 0) == (low, len(queue))


def shortened(path: Path, index: int) -> None:
    """Take the entries of queue T/0 from `index` on away."""
    files = sorted((path / "consumequeue" / "T" / "0").iterdir())
    data = b"".join(file.read_bytes() for file in files)
    data = data[: 20 * index].ljust(len(data), b"\0")
    for number, file in enumerate(files):
        file.write_bytes(data[number * QUEUE_FILE : (number + 1) * QUEUE_FILE])


def test_holes_in_a_queue_are_bridged(tmp_path: Path) -> None:
    """Entries that neither the file nor the log has become pre-blank ones, and are passed over by readers. Pitfall 9.6."""
    log = written(tmp_path / "a", 120, flushed=120)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    queue = log.queue("T", 0)
    files = [one.position // FILE for one in queue]
    # The last two of its records in one file.
    first = next(at for at in range(3, len(queue)) if files[at - 2] == files[at - 1] < files[at])
    start = files[first] * FILE
    shortened(path, first - 2)
    overwrite(path, queue[first - 2].position, bytes(8))
    store = opened(path)
    store.recover(start, True)
    assert store.queue_bounds("T", 0) == (0, len(queue))
    got = store.get("T", 0, first - 3, 3, 1 << 20, log.end, None)
    assert got[:2] == (model.FOUND, first + 1)
    assert stores.joined(got[5]) == b"".join(queue[index].encode() for index in (first - 3, first - 1, first))
    assert store.get("T", 0, first - 2, 1, 1, log.end, [])[0] == model.REMOVING
    store.close()
    store = opened(path)
    store.recover(store.files()[-1][0], True)
    assert store.queue_bounds("T", 0) == (0, len(queue))


@pytest.mark.parametrize("what", ["all", "a queue", "files of a queue", "the end", "all but the beginning"])
@pytest.mark.parametrize("start_file", [0, 3, -1])
def test_entries_that_queues_have_lost_come_from_the_log(tmp_path: Path, what: str, start_file: int) -> None:
    """Wherever the scan was meant to begin (store spec, 3.1 and 4.1: recovery of queues; pitfall 9.5)."""
    log = written(tmp_path / "a", 120, flushed=120)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    start = opened(path).files()[start_file][0]
    queues = path / "consumequeue"
    match what:
        case "all":
            shutil.rmtree(queues)
        case "a queue":
            shutil.rmtree(queues / "T" / "0")
        case "files of a queue":
            for file in (queues / "T" / "0").iterdir():
                file.unlink()
        case "the end":
            shortened(path, len(log.queue("T", 0)) - 3)
        case "all but the beginning":
            for file in sorted((queues / "T" / "0").iterdir())[1:]:
                file.unlink()
    store = opened(path)
    assert store.recover(start, True)[0] == log.end
    check_content(store, log)
    store.flush_queues(False)
    check_disk(path, log)


@pytest.mark.parametrize("lost", ["all", "T"])
def test_making_queues_again_may_be_broken_off(tmp_path: Path, lost: str) -> None:
    """What it leaves then aren't queues that end early."""
    log = written(tmp_path, 60, flushed=60)
    end = log.end
    queues = tmp_path / "consumequeue"
    for topic in "TUV" if lost == "all" else lost:
        shutil.rmtree(queues / topic)
    (queues / "T").mkdir()
    obstacle = queues / "T" / "1"
    obstacle.write_bytes(b"no directory")
    for _ in range(3):
        with pytest.raises(StoreError, match="consumequeue/T/1"):
            opened(tmp_path).recover(end if lost == "all" else log.records[30].position, True)
        assert (queues / "incomplete").exists()
    obstacle.unlink()
    for seen in (60, 0):
        store = opened(tmp_path)
        assert store.recover(end, True) == (end, seen)
        assert not (queues / "incomplete").exists()
        check_content(store, log)
        check_disk(tmp_path, log)


def test_looking_for_lost_entries_never_ends_the_log(tmp_path: Path) -> None:
    """A record that was damaged long ago stays where it is, and costs the queue that is looked for no other."""
    log = written(tmp_path / "a", 120, flushed=120)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    files = opened(path).files()
    overwrite(path, files[2][0] + 4, bytes(4))
    body = next(one for one in log.queue("T", 0) if one.position >= files[5][0])
    overwrite(path, body.position + body.size - len(body.properties) - 8, b"!")
    damaged = (path / "commitlog" / f"{files[2][0]:020}").read_bytes()
    shutil.rmtree(path / "consumequeue" / "T" / "0")
    store = opened(path)
    assert store.recover(files[-1][0], True)[0] == log.end
    assert (path / "commitlog" / f"{files[2][0]:020}").read_bytes() == damaged
    broken = next(one for one in log.records if one.position == files[2][0])
    queue = log.queue("T", 0)
    assert store.queue_bounds("T", 0) == (0, len(queue))
    for index, one in enumerate(queue):
        assert store.store_timestamp("T", 0, index) == (-1 if one == broken else one.store_timestamp)
    for key in set(log.queues()) - {("T", 0)}:
        for index, one in enumerate(log.queue(*key)):
            assert store.store_timestamp(*key, index) == (-1 if one == broken else one.store_timestamp)


def test_a_queue_ahead_of_the_log_is_cut(tmp_path: Path) -> None:
    """Also when the log ends long before the queue does: whole queue files go."""
    log = written(tmp_path / "a", 120, flushed=120)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    for file in log_files(path)[4:]:
        file.unlink()
    left = log.truncated(next(number for number, one in enumerate(log.records) if one.position >= 4 * FILE))
    store = opened(path)
    assert store.recover(3 * FILE, True)[0] == 4 * FILE
    for key in left.queues():
        assert store.queue_bounds(*key) == (0, len(left.queue(*key)))
    again = opened(path)
    again.recover(0, True)
    assert sorted(again.queues()) == sorted(store.queues())
    assert stores.append(again, record(120, topic="T", queue_id=0))[2] == len(left.queue("T", 0))


@pytest.mark.parametrize("damage", ["dropped", "torn", "dropped before a torn one"])
def test_entries_that_a_power_cut_damaged_before_others_are_not_counted(tmp_path: Path, damage: str) -> None:
    """The log has lost the records of all of them; those that weren't damaged lead behind its end."""
    log = written(tmp_path / "a", 120, flushed=120)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    start = 4 * FILE
    for file in log_files(path)[4:]:
        file.write_bytes(bytes(FILE))
    left = Log(FILE, [one for one in log.records if one.position < start], start)
    for key in left.queues():
        first = len(left.queue(*key))
        match damage:
            case "dropped":
                change_entry(path, key, first, bytes(20))
            case "torn":
                change_entry(path, key, first, bytes(8))
            case _:
                change_entry(path, key, first, bytes(20))
                change_entry(path, key, first + 1, bytes(8))
    check(path, left, start, scanned=0)


def test_recovery_reads_from_its_start_on_and_no_more(tmp_path: Path) -> None:
    """Row 4.1: what it costs is what isn't known to be on disk, not the size of the log."""
    log = written(tmp_path / "a", 200, flushed=200)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    files = opened(path).files()
    assert len(files) > 8
    for start in (files[-1][0], files[-2][0], 0):
        store = opened(path)
        assert store.recovery == (0, 0)
        store.recover(start, True)
        assert store.recovery == (log.end - start, len(files) * FILE - start)
        assert store.flushed_position == start
        assert store.flush() == store.flushed_position == log.end


def test_times_that_go_back_keep_the_log_and_the_search_bounded(tmp_path: Path) -> None:
    """Pitfall 9.7: the search assumes times in order, and only has to end within the queue when they aren't."""
    store = stores.fresh(tmp_path, log_file_size=FILE, queue_file_size=QUEUE_FILE)
    times = [5000, 5001, 5002, 100, 101, 102, 7000, 50, 51, 0] * 6
    for time in times:
        stores.append(store, record(1, topic="T", queue_id=0, store_timestamp=time))
    store.flush_queues(True)
    again = opened(stores.copied(tmp_path, tmp_path.with_name("again")))
    again.recover(again.files()[2][0], True)
    assert again.queue_bounds("T", 0) == (0, len(times))
    for timestamp in (-1, 0, 50, 100, 4999, 5001, 6000, 7000, 9000):
        for upper in (False, True):
            assert 0 <= again.offset_by_time("T", 0, timestamp, upper) <= len(times)
    assert again.offset_by_time("T", 0, 7001, False) == len(times)
    assert again.offset_by_time("T", 0, 7000, True) == len(times) - 1


def test_a_queue_follows_the_last_life_of_its_topic(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.recover(0, True)
    for number in range(9):
        stores.append(store, record(number, topic="T", queue_id=0))
    store.forget_queues("T")
    store.delete_forgotten()
    for number in range(4):
        stores.append(store, record(number, topic="T", queue_id=0))
    store.close()
    store = opened(tmp_path)
    assert store.recover(0, True)[1] == 13
    assert store.queue_bounds("T", 0) == (0, 4)
    assert store.store_timestamp("T", 0, 3) == 1003


def test_foreign_names_are_left_alone(tmp_path: Path) -> None:
    """Rows 1.1 and 1.5."""
    log = written(tmp_path / "a", 10, flushed=10)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    for name in ("notes", "-1", "01", "T", "99999999999"):
        (path / "consumequeue" / "T" / name).mkdir()
    (path / "consumequeue" / "file").write_text("x")
    (path / "commitlog" / "notes").write_text("x")
    store = opened(path)
    assert store.recover(0, True) == (log.end, 10)
    assert sorted(store.queues()) == sorted((*key, 0, len(log.queue(*key))) for key in log.queues())


def test_a_queue_file_of_another_size_is_an_error(tmp_path: Path) -> None:
    written(tmp_path / "a", 10, flushed=10)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    store = stores.opened(path, log_file_size=FILE, queue_file_size=QUEUE_FILE * 2)
    reason = f"has {QUEUE_FILE} bytes, and queue files have {QUEUE_FILE * 2}: set mappedFileSizeConsumeQueue"
    with pytest.raises(StoreError, match=reason):
        store.recover(0, True)


def hostile(position: int, **changes: object) -> bytes:
    return record(0, position=position, **changes).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "../../etc"},
        {"topic": ""},
        {"topic": ".."},
        {"topic": "x" * 300},
        {"queue_id": -5},
        {"queue_offset": -1},
        {"queue_offset": 2**62},
        {"sys_flag": 0x80},
        {"sys_flag": 4},
        {"sys_flag": 12},
    ],
)
def test_records_without_a_place_in_a_queue(tmp_path: Path, changes: dict[str, object]) -> None:
    """Rows 2.1 and 3.1: prepared and rollback records, inner batches, names that are none."""
    (tmp_path / "commitlog").mkdir()
    data = hostile(0, **changes)
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(data.ljust(FILE, b"\0"))
    store = opened(tmp_path)
    assert store.recover(0, True) == (len(data), 1)
    assert store.queues() == []
    assert store.read(0) == data


def test_a_far_offset_costs_no_more_than_a_file(tmp_path: Path) -> None:
    """Of a queue of which nothing else is known. Forcing asks for the files there are, not for 2^50 before."""
    (tmp_path / "commitlog").mkdir()
    far = hostile(0, topic="T", queue_id=0, queue_offset=2**50)
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(far.ljust(FILE, b"\0"))
    store = opened(tmp_path)
    assert store.recover(0, True)[1] == 1
    assert store.queue_bounds("T", 0) == (2**50, 2**50 + 1)
    assert len(list((tmp_path / "consumequeue" / "T" / "0").iterdir())) == 1
    assert store.flush_queues(True) == (len(far), store.store_timestamp("T", 0, 2**50))
    store.close()


@pytest.mark.parametrize("place", ["in the middle", "at the end"])
@pytest.mark.parametrize("offset", [3, 15, 300, 2**20, 2**50])
@pytest.mark.parametrize(("flushed", "start_file"), [(0, 0), (120, 0), (120, -5)])
def test_a_damaged_queue_offset_costs_one_message(
    tmp_path: Path, flushed: int, start_file: int, offset: int, place: str
) -> None:
    """Row 4.1, pitfall 9.5: no CRC guards that field, and who believes it ends or moves the queue."""
    log = written(tmp_path / "a", 120, flushed=flushed)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    start = opened(path).files()[start_file][0]
    queue = log.queue("T", 0)
    broken = queue[-1 if place == "at the end" else next(at for at, one in enumerate(queue) if one.position >= start) + 2]
    overwrite(path, broken.position + 20, struct.pack(">q", offset))
    store = opened(path)
    assert store.recover(start, True)[0] == log.end
    for _ in range(2):
        low, high = store.queue_bounds("T", 0) or (0, 0)
        assert low == 0
        assert high in (len(queue), *((len(queue) - 1, offset + 1) if place == "at the end" else ()))
        for one in queue:
            if one is not broken:
                got = store.get("T", 0, one.queue_offset, 1, 1 << 20, log.end, None)
                assert stores.joined(got[5]) == one.encode()
        store.close()
        store = opened(path)
        store.recover(start, True)


@pytest.mark.parametrize("blanks", [0, 1, 5, 20])
@pytest.mark.parametrize("offsets", [[1, 3, None, 8, None, None, 7], [8, None, None, None, None, 8], [3, 1, 2, None, 5]])
def test_wrong_queue_offsets_are_judged_alike_each_time(tmp_path: Path, offsets: list[int | None], blanks: int) -> None:
    """Row 4.1: pre-blank entries that a recovery has made, or found, say nothing to the next. None is of another queue."""
    (tmp_path / "commitlog").mkdir()
    data = b""
    for number, offset in enumerate(offsets):
        place = {"queue_id": 1, "queue_offset": number} if offset is None else {"queue_id": 0, "queue_offset": offset}
        data += hostile(len(data), topic="T", **place)
    assert len(data) + 8 <= FILE
    (tmp_path / "commitlog" / f"{0:020}").write_bytes(data.ljust(FILE, b"\0"))
    entries = struct.pack(">qiq", 0, 0x7FFFFFFF, 0) * blanks
    queue = tmp_path / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    for base in range(0, len(entries), QUEUE_FILE):
        (queue / f"{base:020}").write_bytes(entries[base : base + QUEUE_FILE].ljust(QUEUE_FILE, b"\0"))
    found = []
    for _ in range(3):
        store = opened(tmp_path)
        assert store.recover(0, True) == (len(data), len(offsets))
        assert store.queue_bounds("T", 0)
        store.close()
        found.append([(file.name, file.read_bytes()) for file in sorted(queue.iterdir())])
    assert found[0] == found[1] == found[2]


def test_a_first_record_with_a_wrong_offset_hides_none_behind_it(tmp_path: Path) -> None:
    """The queue is lost, as is the log before; what is said first is believed, and so is what several records say then."""
    log = written(tmp_path / "a", 120, flushed=120)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(path / "consumequeue")
    for file in log_files(path)[:5]:
        file.unlink()
    first, *others = (one for one in log.queue("T", 0) if one.position >= 5 * FILE)
    assert first.queue_offset > 5
    overwrite(path, first.position + 20, struct.pack(">q", 2))
    store = opened(path)
    assert store.recover(5 * FILE, True)[0] == log.end
    assert (store.queue_bounds("T", 0) or (0, 0))[1] == len(log.queue("T", 0))
    for one in others:
        got = store.get("T", 0, one.queue_offset, 1, 1 << 20, log.end, None)
        assert stores.joined(got[5]) == one.encode()


def test_a_hole_behind_the_start_makes_no_queue_too_long(tmp_path: Path) -> None:
    """Row 4.1: a power cut may leave any sectors of what wasn't forced, of queues and of the log."""
    log = written(tmp_path / "a", 120, flushed=120)
    queue = log.queue("T", 0)
    for hole in range(5, len(queue) - 1):
        path = stores.copied(tmp_path / "a", tmp_path / "b")
        start = queue[5].position
        overwrite(path, start, bytes(log.end - start))
        files = sorted((path / "consumequeue" / "T" / "0").iterdir())
        for index in {5, hole, *range(len(queue) // 2, len(queue) // 2 + 2)}:
            data = bytearray(files[index // 7].read_bytes())
            data[index % 7 * 20 : index % 7 * 20 + 20] = bytes(20)
            files[index // 7].write_bytes(data)
        store = opened(path)
        assert store.recover(start, True)[0] == start
        assert store.queue_bounds("T", 0) == (0, 5)


def test_an_entry_whose_record_is_of_another_topic_now_is_none(tmp_path: Path) -> None:
    """At the log's very beginning, where a position looks like that of a pre-blank entry."""
    store = opened(tmp_path / "a")
    store.recover(0, True)
    log = Log(FILE)
    for number in (0, 3):
        stores.append(store, log.append(record(number, topic="T", queue_id=0))[0])
    store.close()
    overwrite(tmp_path / "a", log.records[0].encode().index(b"\x01T") + 1, b"U")
    store = opened(tmp_path / "a")
    assert store.recover(0, True) == (log.end, 2)
    assert store.get("T", 0, 0, 1, 1, log.end, None)[:2] != (model.FOUND, 1)
    assert stores.joined(store.get("T", 0, 1, 1, 1, log.end, None)[5]) == log.records[1].encode()
    assert store.get("U", 0, 0, 1, 1, log.end, None)[0] == model.FOUND
    store.close()


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.integers(0, 30), st.integers(0, 30), st.data())
def test_any_crash_leaves_a_prefix(
    tmp_path_factory: pytest.TempPathFactory, count: int, flushed: int, data: st.DataObject
) -> None:
    """Any sectors of the log behind what was forced may never have reached the disk."""
    directory = tmp_path_factory.mktemp("crash")
    flushed = min(flushed, count)
    log = written(directory / "a", count, flushed=flushed)
    path = stores.copied(directory / "a", directory / "b")
    forced = -(-log.records[flushed - 1].end // SECTOR) if flushed else 0
    lost = data.draw(st.sets(st.integers(forced, max(forced, log.end // SECTOR)), max_size=4))
    # A record whose properties alone were lost, with the next record whole behind it, can't be told from a good one.
    assume(not lost & {one.end // SECTOR - 1 for one in log.records if one.end % SECTOR == 0})
    for sector in lost:
        if sector * SECTOR < len(log_files(path)) * FILE:
            overwrite(path, sector * SECTOR, bytes(SECTOR))
    expected = log.truncated(intact(path, log))
    end, seen = opened(path).recover(0, True)
    # The blank behind the last record may be there or not.
    assert (end, seen) in {(expected.end, len(expected.records)), (-(-expected.end // FILE) * FILE, len(expected.records))}
    expected.end = end
    store = opened(path)
    store.recover(0, True)
    check_content(store, expected)
    store.flush_queues(False)
    check_disk(path, expected)


def intact(path: Path, log: Log) -> int:
    """How many records are on disk as they were written, without a gap before them."""
    data = b"".join(file.read_bytes() for file in log_files(path))
    end = 0
    for number, one in enumerate(log.records):
        if one.position > end and data[end : end + 8] != struct.pack(">ii", FILE - end % FILE, model.BLANK):
            return number
        if data[one.position : one.end] != one.encode():
            return number
        end = one.end
    return len(log.records)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.data())
def test_hostile_files_do_no_harm(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    directory = tmp_path_factory.mktemp("hostile")
    log = written(directory / "a", 15, flushed=15)
    path = stores.copied(directory / "a", directory / "b")
    files = [file for file in path.rglob("0*") if file.is_file()]
    for _ in range(data.draw(st.integers(1, 6))):
        file = data.draw(st.sampled_from(files))
        content = bytearray(file.read_bytes())
        place = data.draw(st.integers(0, len(content) - 8))
        content[place : place + 8] = data.draw(
            st.binary(min_size=8, max_size=8) | st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\x7f" + b"\xff" * 7])
        )
        file.write_bytes(content)
    store = opened(path)
    store.recover(0, data.draw(st.booleans()))
    for topic, queue_id, low, high in store.queues():
        for offset in (low - 1, low, high - 1, high):
            store.get(topic, queue_id, offset, 32, 1 << 20, 1 << 40, None)
            store.store_timestamp(topic, queue_id, offset)
        store.offset_by_time(topic, queue_id, 1005, True)
    stores.append(store, record(0))
    store.close()
    assert log.records


def test_a_torn_first_record_has_no_time(tmp_path: Path) -> None:
    """Its time may be zero or half a time, so old that recovery would begin behind what it has to check."""
    written(tmp_path / "a", 60, flushed=60)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    base = opened(path).files()[-1][0]
    overwrite(path, base + 56, bytes(8))
    assert opened(path).files()[-1] == (base, 0)
    overwrite(path, base + 56, bytes(300))
    assert opened(path).files()[-1] == (base, -1)


def test_properties_with_a_lost_sector_end_the_log(tmp_path: Path) -> None:
    long = record(1, properties=b"a\x01" + b"n" * 1400 + b"\x02")
    store, log = opened(tmp_path / "a"), Log(FILE)
    store.recover(0, True)
    for one in (record(0), long, record(2)):
        stores.append(store, log.append(one)[0])
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    torn = log.records[1]
    sector = torn.end // SECTOR * SECTOR
    for start, size in ((sector - SECTOR, SECTOR), (sector - 20, 20)):
        path = stores.copied(tmp_path / "a", tmp_path / "b")
        overwrite(path, start, bytes(size))
        check(path, log.truncated(1))


@pytest.mark.parametrize("at", [64, 71, 72, 80, 86, 87, 88])
def test_fields_whose_sector_ends_in_zeros_end_the_log(tmp_path: Path, at: int) -> None:
    """The sector ends `at` so many bytes of a message without a body, whose last fields are zero anyway: whole, it stays."""
    store, log = opened(tmp_path / "a"), Log(FILE)
    store.recover(0, True)
    first = record(0, body=b"")
    for one in (record(0, body=bytes(2 * SECTOR - at - first.size)), record(1, body=b""), record(2)):
        stores.append(store, log.append(one)[0])
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    check(path, log)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    overwrite(path, 2 * SECTOR - 18, bytes(18))
    check(path, log.truncated(1))


@pytest.mark.parametrize("is_empty", [True, False])
def test_queue_files_behind_a_missing_one_are_not_the_queue(tmp_path: Path, is_empty: bool) -> None:
    """The last ones weren't forced, and of one between a power cut has left an empty file or none."""
    log = written(tmp_path, 120, flushed=120)
    start = opened(tmp_path).files()[1][0]
    for key in log.queues():
        below = sum(one.position < start for one in log.queue(*key))
        assert 0 < below < 7
        second = tmp_path / "consumequeue" / key[0] / str(key[1]) / f"{QUEUE_FILE:020}"
        second.unlink()
        if is_empty:
            second.touch()
    check(tmp_path, log, start, scanned=sum(one.position >= start for one in log.records))


def test_files_behind_the_end_go_without_leaving_a_gap(tmp_path: Path) -> None:
    """And what is wiped keeps its length: a crash within a recovery leaves a store that opens."""
    log = written(tmp_path / "a", 60, flushed=60)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    overwrite(path, log.records[3].position + 90, b"torn")
    check(path, log.truncated(3))
