"""A queue read from the files of a store that nobody has open."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq._core import Filter, QueueReader, StoreError, decode_records
from rockmq.filter.sql import program
from rockmq.protocol.properties import tag_code
from tests.support.model import Record
from tests.unit.core import test_batch_queues
from tests.unit.core.stores import append, opened

LOG_FILE_SIZE = 16_384
QUEUE_FILE_SIZE = 20 * 50
EVERYTHING = 2**62
COUNT = 400


def reader(path: Path, topic: str = "T", queue_id: int = 0) -> QueueReader:
    return QueueReader(
        [str(path / "commitlog")],
        str(path / "consumequeue"),
        topic,
        queue_id,
        log_file_size=LOG_FILE_SIZE,
        queue_file_size=QUEUE_FILE_SIZE,
        is_batch=False,
    )


def record(number: int, topic: str = "T", queue_id: int = 0) -> Record:
    properties = f"TAGS\x01t{number % 3}\x02size\x01{number}\x02".encode()
    return Record(topic, queue_id, b"%d " % number * 20, properties, store_timestamp=1_000 + number)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was closed in order: topic T with queues 0 and 1, another topic between them."""
    path = tmp_path_factory.mktemp("store")
    store = opened(path, log_file_size=LOG_FILE_SIZE, queue_file_size=QUEUE_FILE_SIZE)
    store.recover(0, True)
    for number in range(COUNT):
        append(store, record(number))
        append(store, record(number, queue_id=1))
        if number % 7 == 0:
            append(store, record(number, topic="between"))
    store.close()
    return path


def all_of(queue: QueueReader, start: int, end: int, count_max: int = 64) -> Iterator[bytes]:
    """The records of a range, of calls that go on where the last one ended."""
    while start < end:
        following, records, faults, gone = queue.read(start, end, count_max=count_max, bytes_max=1 << 14)
        assert (faults, gone) == ([], None)
        assert start < following <= end
        yield records
        start = following


def offsets(records: bytes) -> list[int]:
    return [each[4] for each in decode_records(records)]


@given(start=st.integers(0, COUNT), size=st.integers(0, COUNT), count_max=st.integers(1, 200), queue_id=st.integers(0, 1))
def test_a_range_is_what_was_appended(path: Path, start: int, size: int, count_max: int, queue_id: int) -> None:
    end = min(start + size, COUNT)
    found = decode_records(b"".join(all_of(reader(path, queue_id=queue_id), start, end, count_max)))
    assert [(each[4], each[13], each[14], each[2]) for each in found] == [
        (at, record(at).body, "T", queue_id) for at in range(start, end)
    ]


def test_as_much_as_was_asked_for_is_given(path: Path) -> None:
    queue = reader(path)
    _, few, _, _ = queue.read(0, COUNT, count_max=5, bytes_max=1 << 20)
    following, some, _, _ = queue.read(0, COUNT, count_max=50, bytes_max=1)
    assert offsets(few) == list(range(5))
    assert offsets(some) == list(range(following))
    assert queue.read(COUNT, COUNT + 5, count_max=5, bytes_max=1)[:2] == (COUNT, b"")


def test_tags_and_expressions_select(path: Path) -> None:
    queue = reader(path)
    following, records, _, _ = queue.read(0, COUNT, count_max=50, bytes_max=1 << 20, tag_codes=[tag_code("t1")])
    assert (following, offsets(records)) == (50, list(range(1, 50, 3)))
    sql = Filter(program("size BETWEEN 10 AND 12"))
    following, records, _, _ = queue.read(0, COUNT, count_max=50, bytes_max=1 << 20, filter=sql)
    assert (following, offsets(records)) == (50, [10, 11, 12])


def test_bounds_are_where_the_log_begins_and_the_limit_is(path: Path) -> None:
    queue = reader(path)
    ends = [each[5] + each[0] for each in decode_records(b"".join(all_of(queue, 0, COUNT)))]
    assert queue.bounds(0, EVERYTHING) == (0, COUNT)
    assert queue.bounds(0, ends[6]) == (0, 7)
    assert queue.bounds(0, ends[6] - 1) == (0, 6)
    assert queue.bounds(ends[6], ends[9]) == (7, 10)
    assert queue.bounds(EVERYTHING, EVERYTHING) == (COUNT, COUNT)
    assert reader(path, "nothing").bounds(0, EVERYTHING) == (0, 0)


def test_a_time_leads_to_the_first_message_then_or_later(path: Path) -> None:
    queue = reader(path)
    for at in (0, 1, 57, COUNT - 1):
        assert queue.offset_by_time(1_000 + at, 0, COUNT) == at
    assert queue.offset_by_time(0, 3, COUNT) == 3
    assert queue.offset_by_time(10**6, 0, COUNT) == COUNT


def copied(path: Path, target: Path) -> Path:
    for file in [*path.glob("commitlog/*"), *path.glob("consumequeue/T/*/*")]:
        to = target / file.relative_to(path)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(file.read_bytes())
    return target


def test_a_time_is_looked_up_only_in_records(path: Path, tmp_path: Path) -> None:
    (middle,) = decode_records(b"".join(all_of(reader(path), COUNT // 2, COUNT // 2 + 1)))
    (last,) = decode_records(b"".join(all_of(reader(path), COUNT - 5, COUNT - 4)))
    at = middle[5] % LOG_FILE_SIZE

    def log(position: int) -> Path:
        return tmp_path / "commitlog" / f"{position - position % LOG_FILE_SIZE:020}"

    copied(path, tmp_path)
    log(0).unlink()
    assert reader(tmp_path).offset_by_time(1_000 + COUNT - 1, 0, COUNT) == COUNT - 1
    with log(last[5]).open("r+b") as file:
        file.truncate(last[5] % LOG_FILE_SIZE)
    assert reader(tmp_path).offset_by_time(10**6, 0, COUNT) == COUNT - 5

    for damage in (b"????", bytes(100)):
        copied(path, tmp_path)
        with log(middle[5]).open("r+b") as file:
            file.seek(at)
            file.write(damage)
        with pytest.raises(StoreError, match=f"{log(middle[5])}, byte {at}: no record of {middle[0]} bytes"):
            reader(tmp_path).offset_by_time(1_000, 0, COUNT)
    log(middle[5]).unlink()
    log(middle[5]).mkdir()
    with pytest.raises(StoreError, match=f"can't read {log(middle[5])}"):
        reader(tmp_path).offset_by_time(1_000, 0, COUNT)


def test_a_damaged_record_is_left_out_and_told(path: Path, tmp_path: Path) -> None:
    copied(path, tmp_path)
    (stored,) = decode_records(b"".join(all_of(reader(path), 9, 10)))
    log = tmp_path / "commitlog" / f"{stored[5] - stored[5] % LOG_FILE_SIZE:020}"
    content = bytearray(log.read_bytes())
    content[stored[5] % LOG_FILE_SIZE + 100] ^= 1
    log.write_bytes(content)
    following, records, faults, gone = reader(tmp_path).read(0, 20, count_max=64, bytes_max=1 << 20)
    assert (following, gone) == (20, None)
    assert offsets(records) == [at for at in range(20) if at != 9]
    assert faults == [f"{log}, byte {stored[5] % LOG_FILE_SIZE}, where offset 9 should be: the body fails its CRC"]


def test_a_queue_that_leads_elsewhere_is_told(path: Path, tmp_path: Path) -> None:
    copied(path, tmp_path)
    file = tmp_path / "consumequeue" / "T" / "0" / f"{0:020}"
    entries = bytearray(file.read_bytes())
    entries[60:80] = entries[0:20]
    file.write_bytes(entries)
    _, records, faults, _ = reader(tmp_path).read(0, 6, count_max=64, bytes_max=1 << 20)
    assert offsets(records) == [0, 1, 2, 4, 5]
    assert [fault.partition(": ")[2] for fault in faults] == ["a record of offset 0 of queue T/0"]


def test_a_log_file_that_was_cut_short_is_told(path: Path, tmp_path: Path) -> None:
    copied(path, tmp_path)
    (last, *_) = sorted((tmp_path / "commitlog").iterdir(), reverse=True)
    with last.open("r+b") as file:
        file.truncate(50)
    queue = reader(tmp_path)
    faults = queue.read(COUNT - 1, COUNT, count_max=1, bytes_max=1)[2]
    assert len(faults) == 1
    assert f"{last}, byte " in faults[0]
    assert "no whole record of" in faults[0]


def test_files_that_were_opened_may_be_deleted(path: Path, tmp_path: Path) -> None:
    copied(path, tmp_path)
    held, late = reader(tmp_path), reader(tmp_path)
    held.hold(0, COUNT)
    for file in (tmp_path / "commitlog").iterdir():
        file.unlink()
    assert offsets(b"".join(all_of(held, 0, COUNT))) == list(range(COUNT))
    (stored,) = decode_records(next(all_of(reader(path), 5, 6)))
    assert late.read(5, COUNT, count_max=10, bytes_max=1) == (5, b"", [], stored[5])


def test_what_can_not_be_read_is_an_error(path: Path, tmp_path: Path) -> None:
    copied(path, tmp_path)
    file = tmp_path / "commitlog" / f"{0:020}"
    file.unlink()
    file.mkdir()
    with pytest.raises(StoreError, match=str(file)):
        reader(tmp_path).read(0, 1, count_max=1, bytes_max=1)
    with pytest.raises(ValueError, match="can't be a log's"):
        QueueReader([str(path)], str(path), "T", 0, log_file_size=0, queue_file_size=20, is_batch=False)


@given(seed=st.integers(0, 2**32))
def test_damaged_files_give_no_other_messages(path: Path, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    chance = random.Random(seed)
    target = copied(path, tmp_path_factory.getbasetemp() / "damaged")
    files = [*target.glob("commitlog/*"), *target.glob("consumequeue/T/0/*")]
    for _ in range(chance.randint(1, 5)):
        file = chance.choice(files)
        content = bytearray(file.read_bytes())
        at = chance.randrange(len(content))
        content[at : at + 8] = chance.randbytes(8) if chance.random() < 0.5 else bytes(8)
        file.write_bytes(content)
    queue = reader(target)
    first, end = queue.bounds(0, EVERYTHING)
    assert 0 <= first <= end <= COUNT + QUEUE_FILE_SIZE
    at = 0
    while at < COUNT:
        following, records, _, _ = queue.read(at, COUNT, count_max=100, bytes_max=1 << 20)
        for each in decode_records(records):
            assert (each[13], each[14], each[2]) == (record(each[4]).body, "T", 0)
        at = max(following, at + 1)


def test_batch_queues_give_whole_records(tmp_path: Path) -> None:
    store, sent = test_batch_queues.written(tmp_path, [5] * 12)
    store.close()
    queue = QueueReader(
        [str(tmp_path / "commitlog")],
        str(tmp_path / "batchconsumequeue"),
        "B",
        0,
        log_file_size=test_batch_queues.FILE,
        queue_file_size=46 * test_batch_queues.UNITS,
        is_batch=True,
    )
    assert queue.bounds(0, EVERYTHING) == (0, 60)
    assert queue.bounds(sent.ends[2], sent.ends[9] + 1) == (15, 50)
    following, records, faults, gone = queue.read(7, 13, count_max=64, bytes_max=1 << 20)
    assert (following, faults, gone) == (15, [], None)
    assert records == sent.records[1] + sent.records[2]
    assert queue.offset_by_time(1_003, 0, 60) == 15
