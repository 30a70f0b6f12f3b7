"""Queues of topics with queue.type=BatchCQ: a unit for each record, which may be an inner batch. Rows 2.5 and 3.3."""

import shutil
import struct
from pathlib import Path

import pytest

from rockmq._core import Store, StoreError, decode_records
from tests.support import model
from tests.unit.core import stores
from tests.unit.core.stores import PEER

FILE, UNITS = 4096, 5
INNER = 0xC0
ALL = 1 << 40


class Sent:
    """What was put into queue B/0, and where it went."""

    def __init__(self) -> None:
        self.units: list[bytes] = []
        self.records: list[bytes] = []
        self.ends: list[int] = []
        self.firsts: list[int] = []
        self.next = 0

    def put(self, store: Store, count: int, *, timestamp: int, queue_id: int = 0) -> None:
        """An inner batch of `count` messages, or with 0 a message by itself."""
        body = model.batch((0, b"%d of %d" % (number, count) + bytes(80), b"") for number in range(max(count, 1)))
        properties = b"TAGS\x01tag%d\x02" % (count % 2) + (b"INNER_NUM\x01%d\x02" % count if count else b"")
        flag = INNER if count else 0
        position, size, offset, _ = store.append(
            "B", queue_id, body, properties, now=timestamp, born_host=PEER, born_timestamp=1, sys_flag=flag
        )
        assert offset == self.next
        tags = model.java_hash(f"tag{count % 2}")
        self.units.append(struct.pack(">qiqqqhii", position, size, tags, timestamp, offset, max(count, 1), -1, 0))
        self.records.append(store.read(position) or b"")
        self.ends.append(position + size)
        self.firsts.append(offset)
        self.next += max(count, 1)
        [stored] = decode_records(self.records[-1])
        assert (stored[4], stored[13]) == (offset, body)
        assert stored[15] == properties + (b"INNER_BASE\x01%d\x02" % offset if count else b"")


def opened(path: Path) -> Store:
    return stores.opened(path, log_file_size=FILE, batch_queue_file_size=46 * UNITS)


def written(path: Path, counts: list[int]) -> tuple[Store, Sent]:
    """A store whose queue B/0 has records of so many messages, and other messages between."""
    store, sent = opened(path), Sent()
    store.recover(0, True)
    store.set_batch("B")
    for number, count in enumerate(counts):
        sent.put(store, count, timestamp=1000 + number)
        plain(store)
    return store, sent


def plain(store: Store, topic: str = "T") -> None:
    store.append(topic, 0, bytes(50), b"", now=2000, born_host=PEER, born_timestamp=1)


def check(store: Store, sent: Sent, low: int = 0) -> None:
    """Everything from unit `low` on is there, from every offset."""
    begin = sent.firsts[low]
    assert store.queue_bounds("B", 0) == (begin, sent.next)
    assert ("B", 0, begin, sent.next) in store.queues()
    for offset in range(begin, sent.next):
        index = max(number for number, first in enumerate(sent.firsts) if first <= offset)
        got = store.get("B", 0, offset, 10_000, ALL, ALL, None)
        assert got[:5] == (model.FOUND, sent.next, begin, sent.next, sent.next - sent.firsts[index])
        assert stores.joined(got[5]) == b"".join(sent.records[index:])
        assert store.store_timestamp("B", 0, offset) == struct.unpack_from(">q", sent.units[index], 20)[0]


def on_disk(path: Path) -> bytes:
    files = sorted((path / "batchconsumequeue" / "B" / "0").iterdir())
    assert {file.stat().st_size for file in files} == {46 * UNITS}
    assert [int(file.name) for file in files] == [int(files[0].name) + 46 * UNITS * n for n in range(len(files))]
    return b"".join(file.read_bytes() for file in files)


COUNTS = [3, 0, 1, 7, 0, 2, 5, 0, 0, 4, 30, 1]


def test_an_inner_batch_is_one_record_and_counts_as_its_messages(tmp_path: Path) -> None:
    store, sent = written(tmp_path, COUNTS)
    check(store, sent)
    store.flush_queues(False)
    check(store, sent)
    store.close()
    assert on_disk(tmp_path).rstrip(b"\0") == b"".join(sent.units).rstrip(b"\0")
    assert not (tmp_path / "consumequeue" / "B").exists()


def test_statuses_and_bounds_are_those_of_offsets(tmp_path: Path) -> None:
    store, sent = written(tmp_path, COUNTS)

    def get(
        offset: int, count: int = 32, limit: int = ALL, size: int = ALL, tags: list[int] | None = None
    ) -> tuple[int, ...]:
        return store.get("B", 0, offset, count, size, limit, tags)[:5]

    end = sent.next
    assert store.get("B", 1, 0, 32, 1, ALL, None)[0] == model.NO_QUEUE
    assert get(-1) == (model.TOO_SMALL, 0, 0, end, 0)
    assert get(end) == (model.OVERFLOW_ONE, end, 0, end, 0)
    assert get(end + 1) == (model.OVERFLOW_BADLY, end, 0, end, 0)
    assert get(0, count=1) == (model.FOUND, 3, 0, end, 3), "the first is given whole"
    assert get(1, count=5) == (model.FOUND, 5, 0, end, 5)
    assert get(1, count=6) == (model.FOUND, 5, 0, end, 5), "the next four wouldn't fit"
    assert get(0, size=1) == (model.FOUND, 3, 0, end, 3)
    assert get(0, limit=sent.ends[2]) == (model.FOUND, 5, 0, 5, 5)
    assert get(0, limit=sent.ends[2] - 1) == (model.FOUND, 4, 0, 4, 4)
    assert get(5, limit=sent.ends[2]) == (model.OVERFLOW_ONE, 5, 0, 5, 0)
    far = [store.get("B", 0, 0, 32, ALL, ALL, None, None, None, (0, count, ALL))[1] for count in (1, 4, 11, 12)]
    assert far == [3, 4, 5, 12], "far behind the log's end, too, a record is given whole or not"
    odd = sum(count for count in COUNTS if count % 2)
    assert get(0, count=1000, tags=[model.java_hash("tag1")]) == (model.FOUND, end, 0, end, odd)
    assert get(0, tags=[5]) == (model.NO_MATCHED, end, 0, end, 0)


def test_offsets_by_time_are_those_of_records(tmp_path: Path) -> None:
    """Row 3.6 for batch queues: a time behind all leads to the last record."""
    store, sent = opened(tmp_path), Sent()
    store.recover(0, True)
    store.set_batch("B")
    for count, timestamp in ((3, 10), (2, 20), (4, 20), (1, 40)):
        sent.put(store, count, timestamp=timestamp)
    for _ in range(2):
        assert [store.offset_by_time("B", 0, time, False) for time in (0, 10, 15, 20, 40, 41)] == [0, 0, 3, 3, 9, 9]
        assert [store.offset_by_time("B", 0, time, True) for time in (0, 10, 15, 20, 30, 40, 41)] == [0, 0, 0, 5, 5, 9, 9]
        store.flush_queues(True)


def test_a_plain_batch_has_a_unit_for_each_message(tmp_path: Path) -> None:
    store, _ = written(tmp_path, [4])
    positions, _, offset, _ = store.append_batch(
        "B", 0, model.batch((0, b"%d" % number, b"") for number in range(3)), now=5, born_host=PEER, born_timestamp=1
    )
    assert (offset, store.queue_bounds("B", 0)) == (4, (0, 7))
    got = store.get("B", 0, 5, 32, ALL, ALL, None)
    assert got[:2] == (model.FOUND, 7)
    assert [record[5] for record in decode_records(stores.joined(got[5]))] == positions[1:]


def test_what_is_no_inner_batch_is_refused(tmp_path: Path) -> None:
    store, _ = written(tmp_path, [2])
    before = store.max_position
    for topic, properties in (
        ("T", b"INNER_NUM\x012\x02"),
        ("B", b""),
        ("B", b"INNER_NUM\x010\x02"),
        ("B", b"INNER_NUM\x0132768\x02"),
        ("B", b"INNER_NUM\x012"),
        ("B", b"INNER_NUM\x012\x02a\x01" + b"x" * 32_745 + b"\x02"),
    ):
        with pytest.raises(ValueError, match=r"inner batch|INNER_NUM|over 32767"):
            store.append(topic, 0, b"x", properties, now=1, born_host=PEER, born_timestamp=1, sys_flag=INNER)
    assert (store.max_position, store.queue_bounds("B", 0)) == (before, (0, 2))


def test_a_topic_has_one_kind_of_queues(tmp_path: Path) -> None:
    store, _ = written(tmp_path, [2])
    with pytest.raises(StoreError, match="T has simple queues already"):
        store.set_batch("T")
    with pytest.raises(StoreError, match="B has batch queues"):
        store.set_ordinary("B", 4, False)


def test_a_watch_is_told_of_a_unit(tmp_path: Path) -> None:
    store, _ = written(tmp_path, [2])
    store.watch("B", 0)
    properties = b"INNER_NUM\x011\x02"
    arguments = {"now": 1, "born_host": PEER, "born_timestamp": 1}
    assert store.append("B", 0, b"x", properties, sys_flag=INNER, **arguments)[3] is True
    assert store.append("B", 0, b"x", properties, sys_flag=INNER, **arguments)[3] is False


@pytest.mark.parametrize("flushed", [0, 4, 12])
@pytest.mark.parametrize("start_file", [0, 1, -1])
def test_a_kill_costs_no_unit(tmp_path: Path, flushed: int, start_file: int) -> None:
    """Rows 3.3 and 4.1: the units that are in no file come from the log, wherever the scan begins."""
    store, sent = written(tmp_path / "a", COUNTS[:flushed])
    if flushed:
        store.flush_queues(True)
    for number, count in enumerate(COUNTS[flushed:]):
        sent.put(store, count, timestamp=1000 + flushed + number)
        plain(store)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    store = opened(path)
    store.recover(store.files()[start_file][0], True)
    check(store, sent)
    assert store.queue_bounds("T", 0) == (0, 12)
    sent.put(store, 2, timestamp=3000)
    check(store, sent)
    store.close()
    assert on_disk(path).rstrip(b"\0") == b"".join(sent.units).rstrip(b"\0")
    store = opened(path)
    store.recover(store.files()[-1][0], True)
    check(store, sent)


def test_later_units_without_those_before_are_not_believed(tmp_path: Path) -> None:
    """Neither file was forced, and a power cut has left the second only."""
    store, sent = written(tmp_path / "a", [20, 5, 0, 0, 0, 0, 0, 0])
    store.flush_queues(False)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    file = path / "batchconsumequeue" / "B" / "0" / f"{0:020}"
    start = opened(path).files()[-1][0]
    units = [unit for unit, end in zip(sent.units, sent.ends, strict=True) if end <= start]
    assert 0 < len(units) < UNITS
    file.write_bytes(b"".join(units).ljust(46 * UNITS, b"\0"))
    store = opened(path)
    seen = store.recover(start, True)[1]
    assert seen < 16
    check(store, sent)


@pytest.mark.parametrize("is_empty", [True, False])
def test_files_behind_a_missing_one_are_not_the_queue(tmp_path: Path, is_empty: bool) -> None:
    """None of the last three was forced, and of the first of them a power cut has left an empty file or none."""
    store, sent = written(tmp_path, [8] * 3 + [0] * 15)
    start = next(base for base, _ in store.files() if sent.ends[2] <= base)
    assert 0 < sum(end <= start for end in sent.ends) <= UNITS
    store.close()
    second = tmp_path / "batchconsumequeue" / "B" / "0" / f"{46 * UNITS:020}"
    second.unlink()
    if is_empty:
        second.touch()
    store = opened(tmp_path)
    seen = store.recover(start, True)[1]
    assert seen < 2 * 18
    check(store, sent)
    store.close()
    assert on_disk(tmp_path).rstrip(b"\0") == b"".join(sent.units).rstrip(b"\0")


@pytest.mark.parametrize("what", ["all", "the topic's queue", "the end", "a torn unit"])
def test_units_that_a_queue_has_lost_come_from_the_log(tmp_path: Path, what: str) -> None:
    store, sent = written(tmp_path, COUNTS * 3)
    store.close()
    queues = tmp_path / "batchconsumequeue"
    files = sorted((queues / "B" / "0").iterdir())
    match what:
        case "all":
            shutil.rmtree(queues)
        case "the topic's queue":
            shutil.rmtree(queues / "B" / "0")
        case "the end":
            files[-1].unlink()
            files[-2].write_bytes(files[-2].read_bytes()[:46].ljust(46 * UNITS, b"\0"))
        case "a torn unit":
            files[-1].write_bytes(b"\xff" * 20 + files[-1].read_bytes()[20:])
    store = opened(tmp_path)
    start = store.files()[-1][0]
    assert start > 0
    end = store.recover(start, True)[0]
    assert end == sent.ends[-1] + (sent.ends[-1] and store.max_position - sent.ends[-1])
    check(store, sent)
    store.close()
    assert on_disk(tmp_path).rstrip(b"\0") == b"".join(sent.units).rstrip(b"\0")


def test_units_behind_the_logs_end_go(tmp_path: Path) -> None:
    store, sent = written(tmp_path, COUNTS)
    store.close()
    cut = 6
    for file in sorted((tmp_path / "commitlog").iterdir()):
        base = int(file.name)
        keep = max(0, min(FILE, sent.ends[cut - 1] - base))
        file.write_bytes(file.read_bytes()[:keep].ljust(FILE, b"\0"))
    store = opened(tmp_path)
    assert store.recover(0, True)[0] == sent.ends[cut - 1]
    assert store.queue_bounds("B", 0) == (0, sent.firsts[cut])
    store.close()
    assert on_disk(tmp_path).rstrip(b"\0") == b"".join(sent.units[:cut]).rstrip(b"\0")


def test_old_files_go_and_the_queue_begins_later(tmp_path: Path) -> None:
    """Row 4.2: the minimum follows the log, and files wholly before it go."""
    store, sent = written(tmp_path, COUNTS * 3)
    # A file goes only when the log has what a later one says of it.
    store.flush()
    store.flush_queues(True)
    store.delete_files_below(2 * FILE)
    low = next(number for number, end in enumerate(sent.ends) if end > 2 * FILE)
    assert low >= UNITS
    check(store, sent, low)
    assert store.get("B", 0, 0, 1, 1, ALL, None)[:2] == (model.TOO_SMALL, sent.firsts[low])
    names = sorted(int(file.name) for file in (tmp_path / "batchconsumequeue" / "B" / "0").iterdir())
    assert names[0] == low // UNITS * UNITS * 46
    store.close()
    store = opened(tmp_path)
    store.recover(store.files()[-1][0], True)
    check(store, sent, low)
    # The last file stays, and the queue goes on at its own offset even if no record of it is left.
    for _ in range(60):
        plain(store)
    store.delete_files_below(ALL)
    assert store.queue_bounds("B", 0) == (sent.next, sent.next)
    store.close()
    store = opened(tmp_path)
    store.recover(store.files()[-1][0], True)
    assert store.queue_bounds("B", 0) == (sent.next, sent.next)
    sent.put(store, 3, timestamp=4000)
    assert store.get("B", 0, sent.firsts[-1], 9, ALL, ALL, None)[:2] == (model.FOUND, sent.next)


def test_a_deleted_topic_begins_anew(tmp_path: Path) -> None:
    store, _ = written(tmp_path / "a", COUNTS)
    store.forget_queues("B")
    store.delete_forgotten()
    assert not (tmp_path / "a" / "batchconsumequeue" / "B").exists()
    assert store.queue_bounds("B", 0) is None
    store.set_batch("B")
    again = Sent()
    for count in (5, 0, 2):
        again.put(store, count, timestamp=9)
    check(store, again)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    store = opened(path)
    store.recover(0, True)
    check(store, again)


def test_what_comes_while_files_of_a_deleted_topic_go_is_not_lost_with_them(tmp_path: Path) -> None:
    store, _ = written(tmp_path / "a", COUNTS * 3)
    store.flush_queues(True)
    before = on_disk(tmp_path / "a")
    store.forget_queues("B")
    store.set_batch("B")
    again = Sent()
    for _ in range(1500):  # more than an append keeps in memory otherwise
        again.put(store, 2, timestamp=9)
    assert on_disk(tmp_path / "a") == before
    position = store.flush_queues(True)[0]
    assert position == store.max_position
    assert on_disk(tmp_path / "a").rstrip(b"\0") == b"".join(again.units).rstrip(b"\0")
    store = opened(stores.copied(tmp_path / "a", tmp_path / "b"))
    assert store.recover(position, True)[1] == 0
    assert store.queue_bounds("B", 0) == (0, 3000)


@pytest.mark.parametrize("offset", [0, 1, 21, 300, 2**50])
@pytest.mark.parametrize("at", [4, 20])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_damaged_queue_offset_costs_one_record(tmp_path: Path, flushed: bool, at: int, offset: int) -> None:
    """Row 4.1, pitfall 9.5; zero alone is what a topic that has begun again says."""
    store, sent = written(tmp_path / "a", [0] * 40)
    if flushed:
        store.flush_queues(True)
    path = stores.copied(tmp_path / "a", tmp_path / "b")
    record = sent.records[at]
    position = sent.ends[at] - len(record)
    with (path / "commitlog" / f"{position // FILE * FILE:020}").open("r+b") as file:
        file.seek(position % FILE + 20)
        file.write(struct.pack(">q", offset))
    for _ in range(2):
        store = opened(path)
        store.recover(0, True)
        low, high = store.queue_bounds("B", 0) or (0, 0)
        assert high == 40
        lost = set(range(at)) if offset == 0 else set()
        assert low == 0
        for number in set(range(40)) - {at} - lost:
            got = store.get("B", 0, number, 1, ALL, ALL, None)
            assert stores.joined(got[5]) == sent.records[number], number
        store.close()


def test_a_file_of_another_size_is_an_error(tmp_path: Path) -> None:
    store, _ = written(tmp_path, [1])
    store.close()
    store = stores.opened(tmp_path, log_file_size=FILE, batch_queue_file_size=46 * 7)
    with pytest.raises(StoreError, match="set mapperFileSizeBatchConsumeQueue"):
        store.recover(0, True)
    with pytest.raises(ValueError, match="multiple of 46"):
        stores.opened(tmp_path, log_file_size=FILE, batch_queue_file_size=100)


def test_what_came_and_where_it_is_are_told(tmp_path: Path) -> None:
    store, sent = opened(tmp_path), Sent()
    store.recover(0, True)
    store.set_batch("B")
    for count in (3, 0, 2):
        sent.put(store, count, timestamp=1)
    size = sum(map(len, sent.records))
    assert store.take_arrivals(10) == [("B", 6, size)]
    assert store.take_arrivals(10) == []
    found = store.entries("B", 0, 1, 10, ALL)
    assert [offset for offset, *_ in found] == sent.firsts
    assert [position + size for _, position, size, _ in found] == sent.ends
    assert store.entries("B", 0, 3, 1, ALL) == found[1:2]
    store.close()
