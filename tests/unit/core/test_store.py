"""Appending and reading, judged by the model."""

import shutil
import struct
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rockmq._core import Slice, Store, StoreError, decode_records
from tests.support import model
from tests.support.model import Log, Record
from tests.unit.core import stores
from tests.unit.core.stores import HOST, PEER, PEER_V6

TAGS = ["A", "B", "Täg", "标签"]
LONG = "n" * 128
slow = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


def record(number: int, **changes: object) -> Record:
    given: dict[str, object] = {
        "topic": "T",
        "queue_id": 0,
        "body": b"body %d" % number,
        "properties": b"",
        "born_host": PEER,
        "store_host": HOST,
        "store_timestamp": 1000 + number,
    }
    return Record(**(given | changes))  # type: ignore[arg-type]


records = st.builds(
    lambda topic, queue_id, body, tag, flag, sys_flag, host, times: Record(
        topic,
        queue_id,
        body,
        model.text({"TAGS": tag} if tag else {}),
        flag,
        sys_flag,
        times,
        host,
        1000,
        HOST,
        flag & 7,
        times,
    ),
    st.sampled_from(["T", "U", LONG]),
    st.sampled_from([0, 1, 7]),
    st.binary(max_size=60) | st.just(bytes(3000)),
    st.sampled_from([None, *TAGS]),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([0, 1, 0x301, 4, 8, 12, 2]),
    st.sampled_from([PEER, PEER_V6]),
    st.integers(-(2**63), 2**63 - 1),
)
steps = st.lists(
    records | st.lists(st.tuples(st.integers(-5, 5), st.binary(max_size=300)), min_size=1, max_size=6), max_size=30
)


def apply(store: Store, log: Log, steps: list[Record | list[tuple[int, bytes]]]) -> None:
    """Append records and batches to both, and compare what they say."""
    for step in steps:
        if isinstance(step, Record):
            [placed] = log.append(step)
            answer = stores.append(store, step)
            assert answer == (placed.position, placed.size, placed.queue_offset, False)
        else:
            placed_all = log.append(*(Record("T", 0, body, b"", flag, 0, 5, PEER, 1000, HOST, 3) for flag, body in step))
            positions, end, offset, _ = store.append_batch(
                "T",
                0,
                model.batch((flag, body, b"") for flag, body in step),
                now=1000,
                born_host=PEER,
                born_timestamp=5,
                reconsume_times=3,
            )
            assert positions == [one.position for one in placed_all]
            assert (end, offset) == (log.end, placed_all[0].queue_offset)
    assert store.max_position == log.end


def check(store: Store, log: Log) -> None:
    """Every record and queue is what the model has."""
    assert sorted(store.queues()) == sorted(
        (topic, queue_id, 0, len(log.queue(topic, queue_id))) for topic, queue_id in log.queues()
    )
    for one in log.records:
        assert store.read(one.position) == one.encode()
    for topic, queue_id in log.queues():
        queue = log.queue(topic, queue_id)
        got = store.get(topic, queue_id, 0, 10_000, 1 << 30, log.end, None)
        assert stores.joined(got[5]) == b"".join(one.encode() for one in queue)


@slow
@given(steps, st.data())
def test_the_store_is_the_model(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Record | list[tuple[int, bytes]]], data: st.DataObject
) -> None:
    store = stores.fresh(tmp_path_factory.mktemp("store"), log_file_size=4096, queue_file_size=20 * 7)
    log = Log(4096)
    cut = data.draw(st.integers(0, len(steps)))
    apply(store, log, steps[:cut])
    if data.draw(st.booleans()):
        store.flush_queues(False)
    if data.draw(st.booleans()):
        store.prepare_next_file()
    apply(store, log, steps[cut:])
    check(store, log)
    ends = [one.end for one in log.records]
    for _ in range(5):
        arguments = (
            data.draw(st.sampled_from(["T", "U", LONG])),
            data.draw(st.sampled_from([0, 1, 7])),
            data.draw(st.integers(-2, 35)),
            data.draw(st.integers(1, 40)),
            data.draw(st.integers(0, 8000)),
            data.draw(st.sampled_from([*ends, log.end, 0])),
            data.draw(st.none() | st.lists(st.sampled_from([0, *map(model.java_hash, TAGS)]), max_size=3)),
        )
        *got, buffers, _ = store.get(*arguments)
        assert (*got, stores.joined(buffers)) == log.get(*arguments)
    assert store.flush() == store.flushed_position == log.end
    store.close()


@slow
@given(steps)
def test_files_are_what_the_format_says(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Record | list[tuple[int, bytes]]]
) -> None:
    """Rows 2.1 and 3.1."""
    path = tmp_path_factory.mktemp("store")
    store, log = stores.fresh(path, log_file_size=4096, queue_file_size=20 * 7), Log(4096)
    apply(store, log, steps)
    store.prepare_next_file()
    store.close()
    expected = bytearray(-(-log.end // 4096) * 4096)
    for one in log.records:
        expected[one.position : one.end] = one.encode()
    for base in range(4096, len(expected), 4096):
        end = max(one.end for one in log.records if one.position < base)
        expected[end : end + 8] = struct.pack(">ii", base - end, model.BLANK)
    files = sorted((path / "commitlog").iterdir())
    assert [file.name for file in files] == [f"{base:020}" for base in range(0, len(expected), 4096)]
    assert b"".join(file.read_bytes() for file in files) == expected
    for topic, queue_id in log.queues():
        entries = b"".join(one.entry for one in log.queue(topic, queue_id))
        files = sorted((path / "consumequeue" / topic / str(queue_id)).iterdir())
        assert [file.name for file in files] == [f"{base:020}" for base in range(0, len(entries), 140)]
        assert b"".join(file.read_bytes() for file in files) == entries.ljust(140 * len(files), b"\0")


def test_statuses_at_the_edges(tmp_path: Path) -> None:
    """Row 5.1: the table of statuses."""
    store = stores.fresh(tmp_path)
    assert store.get("T", 0, 0, 32, 1000, 0, None) == (model.NO_QUEUE, 0, 0, 0, 0, [], 0)
    ends = [sum(stores.append(store, record(number))[:2]) for number in range(3)]
    everything = store.max_position

    def get(offset: int, limit: int = everything, tags: list[int] | None = None) -> tuple[int, ...]:
        return store.get("T", 0, offset, 32, 1 << 20, limit, tags)[:5]

    assert get(-1) == (model.TOO_SMALL, 0, 0, 3, 0)
    assert get(3) == (model.OVERFLOW_ONE, 3, 0, 3, 0)
    assert get(4) == (model.OVERFLOW_BADLY, 3, 0, 3, 0)
    assert get(0, tags=[5]) == (model.NO_MATCHED, 3, 0, 3, 0)
    assert get(0, limit=ends[1]) == (model.FOUND, 2, 0, 2, 2)
    assert get(0, limit=ends[1] - 1) == (model.FOUND, 1, 0, 1, 1)
    assert get(2, limit=ends[1]) == (model.OVERFLOW_ONE, 2, 0, 2, 0)
    assert get(0, limit=0) == (model.OVERFLOW_ONE, 0, 0, 0, 0)
    assert get(0, limit=2**63) == (model.FOUND, 3, 0, 3, 3)
    assert store.get("T", 0, 0, 0, 0, everything, None)[:5] == (model.FOUND, 1, 0, 3, 1)
    assert store.get("T", 0, 2**62, 2**63, 2**63, everything, iter([1]))[0] == model.OVERFLOW_BADLY
    with pytest.raises(TypeError):
        store.get("T", 0, 0, 1, 1, everything, ["A"])  # type: ignore[list-item]


def test_a_read_tells_how_far_behind_it_is(tmp_path: Path) -> None:
    """Row 5.2: from the last record looked at, whether or not it is wanted."""
    store = stores.fresh(tmp_path)
    starts = [stores.append(store, record(number))[0] for number in range(3)]
    end = store.max_position
    for offset, count, tags, last in ((0, 1, None, 0), (0, 2, None, 1), (1, 9, None, 2), (0, 1, [5], 2)):
        assert store.get("T", 0, offset, count, 1 << 20, end, tags)[6] == end - starts[last]
    for offset in (-1, 3, 4):
        assert store.get("T", 0, offset, 1, 1 << 20, end, None)[6] == 0


def test_far_behind_other_bounds_end_an_answer(tmp_path: Path) -> None:
    """Row 5.1: each message is judged by where it is itself."""
    store = stores.fresh(tmp_path)
    places = [stores.append(store, record(number)) for number in range(10)]
    end = store.max_position
    sixth = end - places[5][0]

    def count(offset: int, count_max: int, far: tuple[int, int, int]) -> int:
        return store.get("T", 0, offset, count_max, 1 << 20, end, None, None, None, far)[4]

    assert count(0, 32, (end, 0, 0)) == 10, "nothing is further behind than the log is long"
    assert count(0, 32, (end - 1, 0, 0)) == 10, "and the first message is always given"
    assert [count(0, 32, (0, most, 1 << 20)) for most in (0, 1, 4, 99)] == [1, 1, 4, 10]
    assert [count(0, 32, (0, 32, size)) for size in (0, places[3][0] - 1, places[3][0])] == [1, 2, 3]
    assert count(0, 4, (0, 9, 1 << 20)) == 4, "what was asked for is a bound as well"
    assert [count(offset, 32, (sixth, 3, 1 << 20)) for offset in (0, 2, 3, 5)] == [3, 8, 7, 5]


def test_a_limit_may_be_far_behind(tmp_path: Path) -> None:
    store = stores.fresh(tmp_path)
    ends = [sum(stores.append(store, record(number))[:2]) for number in range(300)]
    for flushes in (0, 12):
        for _ in range(flushes):
            store.flush_queues(False)
        if flushes:
            ends.append(sum(stores.append(store, record(300))[:2]))
        for last in (0, 1, 150, 298, 299):
            got = store.get("T", 0, 0, 1000, 1 << 30, ends[last], None)
            assert got[:5] == (model.FOUND, last + 1, 0, last + 1, last + 1)


def test_no_more_than_800_entries_are_looked_at(tmp_path: Path) -> None:
    """Row 5.1: maxFilterMessageSize."""
    store = stores.fresh(tmp_path, queue_file_size=20 * 300)
    for number in range(2000):
        stores.append(store, record(number, properties=b"TAGS\x01B\x02" if number == 900 else b"TAGS\x01A\x02"))
    wanted = [model.java_hash("B")]
    for flushed in (False, True):
        if flushed:
            store.close()
            store = stores.opened(tmp_path, queue_file_size=20 * 300)
            store.recover(0, True)
        assert store.get("T", 0, 0, 32, 1 << 20, 1 << 40, wanted)[:5] == (model.NO_MATCHED, 800, 0, 2000, 0)
        assert store.get("T", 0, 800, 32, 1 << 20, 1 << 40, wanted)[:5] == (model.FOUND, 1600, 0, 2000, 1)
        assert store.get("T", 0, 0, 1000, 1 << 20, 1 << 40, wanted)[:5] == (model.FOUND, 1000, 0, 2000, 1)


def test_a_queue_file_that_is_gone_sends_readers_to_the_next(tmp_path: Path) -> None:
    """Row 5.1: OFFSET_FOUND_NULL."""
    store = stores.fresh(tmp_path, queue_file_size=20 * 10)
    for number in range(25):
        stores.append(store, record(number))
    store.close()
    store = stores.opened(tmp_path, queue_file_size=20 * 10)
    store.recover(0, True)
    (tmp_path / "consumequeue" / "T" / "0" / f"{200:020}").unlink()
    assert store.get("T", 0, 13, 32, 1 << 20, 1 << 40, None)[:5] == (model.FOUND_NULL, 20, 0, 25, 0)
    assert store.get("T", 0, 7, 32, 1 << 20, 1 << 40, None)[:5] == (model.FOUND, 10, 0, 25, 3)
    assert store.get("T", 0, 20, 32, 1 << 20, 1 << 40, None)[:5] == (model.FOUND, 25, 0, 25, 5)


def extended(root: Path, tags: list[bytes], *, body: bytes = b"") -> Store:
    """A store of a queue in which Apache has put addresses of its extension in the place of all tags codes but the first."""
    store = stores.fresh(root)
    for number, tag in enumerate(tags):
        stores.append(store, record(number, properties=b"TAGS\x01%b\x02%b" % (tag, body)))
    store.close()
    file = root / "consumequeue" / "T" / "0" / f"{0:020}"
    data = bytearray(file.read_bytes())
    for number in range(1, len(tags)):
        data[20 * number + 12 : 20 * number + 20] = struct.pack(">q", -(2**63) + 36 * number)
    data[20 * len(tags) - 8 : 20 * len(tags)] = struct.pack(">q", -(2**31) - 1)
    file.write_bytes(data)
    extension = root / "consumequeue_ext" / "T" / "0" / f"{0:020}"
    extension.parent.mkdir(parents=True)
    extension.write_bytes(bytes(400))  # as a crash may leave it
    store = stores.opened(root)
    store.recover(0, True)
    assert file.read_bytes() == data
    return store


def test_behind_an_extension_address_the_record_tells_its_tags(tmp_path: Path) -> None:
    """Row 3.2: what Apache wrote with enableConsumeQueueExt hides nothing and lets nothing through."""
    store = extended(tmp_path, [b"A", b"B", b"A", b"C"])
    assert store.get("T", 0, 0, 32, 1 << 20, 1 << 40, None)[:5] == (model.FOUND, 4, 0, 4, 4)
    for tags, expected in (("A", [0, 2]), ("B", [1]), ("C", [3]), ("BC", [1, 3])):
        got = store.get("T", 0, 0, 32, 1 << 20, 1 << 40, [model.java_hash(tag) for tag in tags])
        assert [one[4] for one in decode_records(stores.joined(got[5]))] == expected
    assert store.get("T", 0, 1, 32, 1 << 20, 1 << 40, [model.java_hash("D")])[:5] == (model.NO_MATCHED, 4, 0, 4, 0)
    stores.append(store, record(4, properties=b"TAGS\x01B\x02"))
    got = store.get("T", 0, 2, 32, 1 << 20, 1 << 40, [model.java_hash("B")])
    assert [one[4] for one in decode_records(stores.joined(got[5]))] == [4]


def test_so_many_records_are_asked_for_their_tags_in_one_call(tmp_path: Path) -> None:
    store = extended(tmp_path, [b"A"] * 50, body=b"k\x01" + b"v" * 30_000)
    offset, calls = 0, 0
    while (got := store.get("T", 0, offset, 32, 1 << 20, 1 << 40, [model.java_hash("B")]))[1] < 50:
        assert (got[0], got[4]) == (model.NO_MATCHED, 0)
        assert offset < got[1]
        offset, calls = got[1], calls + 1
    assert 4 <= calls < 10


def test_the_extension_of_a_deleted_topic_goes_too(tmp_path: Path) -> None:
    store = extended(tmp_path, [b"A", b"B"])
    other = tmp_path / "consumequeue_ext" / "U" / "0"
    other.mkdir(parents=True)
    store.forget_queues("T")
    store.delete_forgotten()
    assert list((tmp_path / "consumequeue_ext").iterdir()) == [other.parent]


def test_long_runs_are_slices_of_the_map(tmp_path: Path) -> None:
    store = stores.fresh(tmp_path, log_file_size=1 << 20)
    bodies = [b"a" * 20_000, b"b" * 100, b"c" * 30_000]
    for number, body in enumerate(bodies):
        stores.append(store, record(number, body=body))
        stores.append(store, record(number, topic="Other"))
    stores.append(store, record(3))
    buffers = store.get("T", 0, 0, 32, 1 << 20, 1 << 40, None)[5]
    assert [type(buffer) for buffer in buffers] == [Slice, bytes, Slice, bytes]
    stores.append(store, record(4, topic="Other"))
    assert [len(buffer) for buffer in buffers] == [len(memoryview(buffer)) for buffer in buffers]
    first = memoryview(buffers[0])
    assert first.readonly
    assert bytes(first)[-20_010:].count(b"a") == 20_000
    store.close()
    # The mapping outlives the store, and the file.
    for file in (tmp_path / "commitlog").iterdir():
        file.unlink()
    assert bytes(first).count(b"a") >= 20_000
    del buffers
    assert bytes(first).count(b"a") >= 20_000


def test_reading_at_a_position(tmp_path: Path) -> None:
    """Row 2.2."""
    store = stores.fresh(tmp_path)
    [placed] = Log(1 << 20).append(record(1))
    assert store.read(0) is None
    stores.append(store, placed)
    assert store.read(0) == placed.encode()
    for position in (1, 4, placed.end, 1 << 20, 2**63):
        assert store.read(position) is None


def test_offsets_by_time(tmp_path: Path) -> None:
    """Row 3.6."""
    store = stores.fresh(tmp_path, queue_file_size=20 * 3)
    times = [10, 10, 20, 20, 20, 40]
    for time in times:
        stores.append(store, record(0, store_timestamp=time))
    for flushed in (False, True):
        if flushed:
            store.flush_queues(True)
            for _ in range(12):
                store.flush_queues(False)
        assert [store.store_timestamp("T", 0, offset) for offset in range(-1, 7)] == [-1, *times, -1]
        assert store.store_timestamp("T", 9, 0) == store.store_timestamp("U", 0, 0) == -1
        lower = {time: store.offset_by_time("T", 0, time, False) for time in (0, 10, 15, 20, 30, 40, 41)}
        upper = {time: store.offset_by_time("T", 0, time, True) for time in (0, 10, 15, 20, 30, 40, 41)}
        assert lower == {0: 0, 10: 0, 15: 2, 20: 2, 30: 5, 40: 5, 41: 6}
        assert upper == {0: 0, 10: 1, 15: 1, 20: 4, 30: 4, 40: 5, 41: 5}
        assert store.offset_by_time("U", 0, 5, False) == 0


def test_a_malformed_batch_stores_nothing(tmp_path: Path) -> None:
    """Row 2.5."""
    store = stores.fresh(tmp_path)
    body = model.batch([(1, b"one", b"a\x01b"), (2, b"two", b"")])

    def append(body: bytes) -> None:
        store.append_batch("T", 0, body, now=1, born_host=PEER, born_timestamp=1)

    for end in range(1, len(body)):
        if end == 22 + 3 + 3:
            continue
        with pytest.raises(ValueError, match=r"batch message \d at byte \d+: .* can't be"):
            append(body[:end])
    for at in (16, 20 + 3):
        with pytest.raises(ValueError, match="length can't be"):
            append(body[:at] + b"\xff" * 4 + body[at + 4 :])
    with pytest.raises(ValueError, match="message 0 at byte 0: properties can't be"):
        append(model.batch([(0, b"", b"a\x01b\0")]))
    with pytest.raises(ValueError, match="body is empty"):
        append(b"")
    assert (store.max_position, store.appended, store.queues()) == (0, (0, 0), [])


def test_total_magic_and_crc_of_a_batched_message_count_for_nothing(tmp_path: Path) -> None:
    """Row 2.5: clients leave them zero, or not."""
    store = stores.fresh(tmp_path)
    body = b"\xff" * 12 + model.batch([(1, b"one", b"")])[12:]
    store.append_batch("T", 0, body, now=1, born_host=PEER, born_timestamp=1)
    [one] = decode_records(store.read(0) or b"")
    assert (one[1], one[3], one[13]) == (zlib.crc32(b"one") & 0x7FFFFFFF, 1, b"one")


def test_a_batch_is_in_one_file(tmp_path: Path) -> None:
    """Row 2.5."""
    store = stores.fresh(tmp_path, log_file_size=4096)
    stores.append(store, record(0, body=bytes(600)))
    body = model.batch([(0, bytes(500), b"")] * 6)
    positions, end, offset, _ = store.append_batch("T", 0, body, now=1, born_host=PEER, born_timestamp=1)
    assert (positions[0], offset) == (4096, 1)
    assert end < 8192
    with pytest.raises(StoreError, match="don't fit a log file of 4096 bytes"):
        store.append_batch("T", 0, body * 2, now=1, born_host=PEER, born_timestamp=1)
    assert store.max_position == end
    assert store.queue_bounds("T", 0) == (0, 7)


def test_a_store_that_may_not_be_written(tmp_path: Path) -> None:
    store = stores.opened(tmp_path)
    with pytest.raises(StoreError, match="recover"):
        stores.append(store, record(0))
    with pytest.raises(StoreError, match="recovered"):
        store.prepare_next_file()
    store.recover(0, True)
    with pytest.raises(StoreError, match="just opened"):
        store.recover(0, True)
    store.set_writable(False)
    with pytest.raises(StoreError, match="not writable"):
        stores.append(store, record(0))
    store.set_writable(True)
    stores.append(store, record(0))
    store.close()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        stores.append(store, record(0))
    assert store.get("T", 0, 0, 1, 1, 1 << 40, None)[4] == 0


def test_a_prepared_file_is_used_or_deleted(tmp_path: Path) -> None:
    """Row 1.2: pre-allocation."""
    store = stores.fresh(tmp_path, log_file_size=4096)
    log = tmp_path / "commitlog"
    assert store.prepare_next_file() is True
    assert store.prepare_next_file() is False
    assert store.files() == []
    stores.append(store, record(1))
    assert store.files() == [(0, 1001)]
    assert store.prepare_next_file() is True
    assert len(list(log.iterdir())) == 2
    assert store.files() == [(0, 1001)]
    stores.append(store, record(2, body=bytes(3990)))
    assert store.files() == [(0, 1001), (4096, 1002)]
    assert store.prepare_next_file() is True
    store.close()
    assert sorted(file.name for file in log.iterdir()) == [f"{0:020}", f"{4096:020}"]


def locked_kib() -> int:
    """Memory of this process that is locked, in KiB."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmLck:"))


@pytest.mark.skipif(sys.platform != "linux", reason="locked memory is read from /proc: needs Linux")
def test_the_file_in_use_and_the_next_are_locked_and_no_others(tmp_path: Path) -> None:
    """Row 1.2: warm-up."""
    before = locked_kib()
    store = stores.fresh(tmp_path, log_file_size=8192)
    stores.append(store, record(0))
    store.prepare_next_file()
    for _ in range(2):
        store.tend_files(False, True, True, True)
        assert locked_kib() == before + 16
    stores.append(store, record(1, body=bytes(8000)))
    store.tend_files(True, True, True, True)
    assert locked_kib() == before + 8
    assert store.read(0) is not None
    store.close()
    assert locked_kib() == before


def of_map(file: Path, name: str) -> list[str]:
    """What the kernel knows of the map of a file."""
    maps = Path("/proc/self/smaps").read_text(encoding="utf-8")
    _, _, behind = maps.partition(str(file))
    return next(line for line in behind.splitlines() if line.startswith(f"{name}:")).split()[1:]


@pytest.mark.skipif(sys.platform != "linux", reason="pages of maps are counted by /proc: needs Linux")
def test_the_next_file_is_in_memory_before_it_is_used_if_that_is_wanted(tmp_path: Path) -> None:
    """Row 1.2: warm-up."""
    store = stores.fresh(tmp_path)
    stores.append(store, record(0))
    store.prepare_next_file()
    following = tmp_path / "commitlog" / f"{1 << 20:020}"
    for warm, expected in ((False, "0"), (True, "1024")):
        store.tend_files(True, False, warm, False)
        assert of_map(following, "Rss") == [expected, "kB"]
    store.close()


@pytest.mark.skipif(sys.platform != "linux", reason="flags of maps are read from /proc: needs Linux")
def test_the_kernel_is_told_whether_to_read_ahead(tmp_path: Path) -> None:
    """Row 1.2: dataReadAheadEnable; `rr` is madvise(RANDOM)."""
    store = stores.fresh(tmp_path, log_file_size=8192)
    for number in range(2):
        stores.append(store, record(number, body=bytes(8000)))
    full, current = sorted((tmp_path / "commitlog").iterdir())
    for read_ahead, sparing, expected in [
        (True, False, (False, False)),
        (True, True, (False, True)),
        (False, False, (True, True)),
    ]:
        store.tend_files(read_ahead, sparing, False, False)
        assert tuple("rr" in of_map(file, "VmFlags") for file in (full, current)) == expected
    store.close()


def test_a_file_may_be_deleted_under_a_reader(tmp_path: Path) -> None:
    """Rows 1.2 and 4.2: nothing pins a file, and what was read of it stays as it was."""
    store = stores.fresh(tmp_path, log_file_size=1 << 16)
    for number in range(2):
        stores.append(store, record(number, body=b"%d" % number * 40_000))
    [held] = store.get("T", 0, 0, 1, 1 << 20, 1 << 40, None)[5]
    assert isinstance(held, Slice)
    assert [Path(path).name for path in store.delete_files_below(1 << 16)] == [f"{0:020}"]
    assert [file.name for file in (tmp_path / "commitlog").iterdir()] == [f"{1 << 16:020}"]
    stores.append(store, record(2, body=b"2" * 40_000))
    assert bytes(held).count(b"0") >= 40_000
    store.close()


def sealed(data: bytes) -> bool:
    """Whether a record ends in the CRC of all that is before it (MessageDecoder.createCrc32)."""
    digits = f"{zlib.crc32(data[:-20]) & 0x7FFF_FFFF:010}"[::-1].encode()
    return data.endswith(b"__CRC32#\x01" + digits + b"\x02")


def test_records_with_a_crc_of_their_own(tmp_path: Path) -> None:
    """Row 2.1: `__CRC32#`. Without the property a record isn't whole for who asks for it."""
    store = stores.opened(tmp_path, append_crc_property=True)
    store.recover(0, True)
    stores.append(store, record(0, properties=b"k\x01v"))
    inner = [(1, b"one", b""), (2, b"two", b"k\x01v")]
    store.append_batch("T", 0, model.batch(inner), now=1, born_host=PEER, born_timestamp=1)
    stores.append(store, record(3, topic=LONG))
    end = store.max_position
    read = [one for topic in ("T", LONG) for one in records_of(store, topic)]
    assert [data[:-20].endswith((b"k\x01v\x02", b"\0\x14")) for data in read] == [True] * 4
    assert all(map(sealed, read))
    long = b"k\x01".ljust(32_768 - 21, b"v")
    with pytest.raises(ValueError, match="properties have 32768 bytes, over 32767"):
        stores.append(store, record(4, properties=long))
    with pytest.raises(ValueError, match="properties have 32768 bytes, over 32767"):
        store.append_batch("T", 0, model.batch([(0, b"x", long)]), now=1, born_host=PEER, born_timestamp=1)
    assert store.max_position == end
    store.close()
    again = stores.opened(tmp_path)
    assert again.recover(0, True, by_property=True) == (end, 4)
    stores.append(again, record(5))
    again.close()
    bare = stores.opened(tmp_path)
    assert bare.recover(0, True, by_property=True) == (end, 4), "the one without it isn't believed"
    bare.close()


def test_a_damage_outside_the_body_is_found_by_the_crc_of_the_record(tmp_path: Path) -> None:
    store = stores.opened(tmp_path, append_crc_property=True)
    store.recover(0, True)
    for number in range(2):
        stores.append(store, record(number, properties=b"k\x01v\x02"))
    first = len(records_of(store, "T")[0])
    store.close()
    [file] = (tmp_path / "commitlog").iterdir()
    damaged = bytearray(file.read_bytes())
    at = damaged.rindex(b"k\x01v\x02")
    damaged[at] ^= 1
    file.write_bytes(damaged)
    shutil.copytree(tmp_path, tmp_path.with_name("copy"))
    for path, by_property, end in [(tmp_path, False, (2 * first, 2)), (tmp_path.with_name("copy"), True, (first, 1))]:
        found = stores.opened(path)
        assert found.recover(0, True, by_property=by_property) == end
        found.close()


def records_of(store: Store, topic: str) -> list[bytes]:
    """The stored records of a queue."""
    data = stores.joined(store.get(topic, 0, 0, 32, 1 << 20, 1 << 40, None)[5])
    sizes = [one[0] for one in decode_records(data)]
    return [data[sum(sizes[:number]) :][:size] for number, size in enumerate(sizes)]


def test_a_directory_that_cannot_be_used(tmp_path: Path) -> None:
    """Row 1.2: files of other sizes, gaps."""
    (tmp_path / "commitlog").mkdir(parents=True)
    for base in (0, 8192):
        (tmp_path / "commitlog" / f"{base:020}").write_bytes(bytes(4096))
    with pytest.raises(StoreError, match="8192, not at 4096"):
        stores.opened(tmp_path, log_file_size=4096)
    with pytest.raises(StoreError, match="has 4096 bytes, and log files have 8192"):
        stores.opened(tmp_path, log_file_size=8192)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="file"):
        stores.opened(tmp_path / "file")


def test_old_files_go_and_queues_begin_later(tmp_path: Path) -> None:
    """Row 4.2, pitfall 9.19."""
    store = stores.fresh(tmp_path, log_file_size=4096, queue_file_size=20 * 4)
    log = Log(4096)
    for number in range(60):
        one = record(number, topic="TU"[number % 2], body=bytes(200))
        log.append(one)
        stores.append(store, one)
    for number in range(3):
        one = record(number, topic="Idle", queue_id=number)
        log.append(one)
        stores.append(store, one)
    store.flush_queues(True)
    deleted = store.delete_files_below(2 * 4096 + 1)
    assert [Path(path).name for path in deleted] == [f"{0:020}", f"{4096:020}"]
    log.deleted_below = 8192
    assert store.min_position == 8192
    for topic in "TU":
        low = next(one.queue_offset for one in log.queue(topic, 0) if one.position >= 8192)
        assert store.queue_bounds(topic, 0) == (low, 30)
        files = sorted(int(file.name) // 80 for file in (tmp_path / "consumequeue" / topic / "0").iterdir())
        assert files == list(range(low // 4, 8))
        for offset in (low - 1, low, 29, 30):
            *got, buffers, _ = store.get(topic, 0, offset, 32, 1 << 20, 1 << 40, None)
            assert (*got, stores.joined(buffers)) == log.get(topic, 0, offset, 32, 1 << 20, 1 << 40, None)
    assert store.read(0) is None
    # The last file stays, whatever the position.
    store.delete_files_below(1 << 40)
    assert store.min_position == log.end - log.end % 4096
    assert store.queue_bounds("Idle", 0) == (0, 1)
    store.append_batch("Big", 0, model.batch([(0, bytes(3900), b"")]), now=1, born_host=PEER, born_timestamp=1)
    store.delete_files_below(1 << 40)
    assert store.queue_bounds("T", 0) == store.queue_bounds("U", 0) == (30, 30)
    assert store.queue_bounds("Idle", 0) == (1, 1)
    assert store.get("T", 0, 29, 1, 1, 1 << 40, None)[:2] == (model.TOO_SMALL, 30)
    assert stores.append(store, record(0))[2] == 30
    assert store.get("T", 0, 30, 1, 1, 1 << 40, None)[:5] == (model.FOUND, 31, 30, 31, 1)
    store.close()
    store = stores.opened(tmp_path, log_file_size=4096, queue_file_size=20 * 4)
    store.recover(store.files()[0][0], True)
    assert store.queue_bounds("T", 0) == (30, 31)
    assert store.queue_bounds("U", 0) == (30, 30)
    assert store.queue_bounds("Idle", 0) == (1, 1)


def test_a_deleted_topic_begins_anew(tmp_path: Path) -> None:
    store = stores.fresh(tmp_path)
    for number in range(3):
        stores.append(store, record(number, queue_id=number))
    store.flush_queues(True)
    stores.append(store, record(3))
    store.forget_queues("T")
    store.delete_forgotten()
    assert not (tmp_path / "consumequeue" / "T").exists()
    assert store.queues() == []
    store.flush_queues(True)
    assert not (tmp_path / "consumequeue" / "T").exists()
    assert stores.append(store, record(4))[2] == 0
    store.flush_queues(True)
    assert store.queue_bounds("T", 0) == (0, 1)
    store.forget_queues("never there")
    store.delete_forgotten()
    with pytest.raises(ValueError, match="topic"):
        store.forget_queues("../commitlog")


def entries_in(directory: Path) -> list[int]:
    """The positions that the entries of a queue lead to."""
    entries = b"".join(file.read_bytes() for file in sorted(directory.iterdir()))
    return [position for position, size, _ in struct.iter_unpack(">qiq", entries) if size]


def test_what_comes_while_files_of_a_deleted_topic_go_is_not_lost_with_them(tmp_path: Path) -> None:
    store = stores.fresh(tmp_path)
    for number in range(9000):
        stores.append(store, record(number))
    store.flush_queues(True)
    directory = tmp_path / "consumequeue" / "T" / "0"
    before = entries_in(directory)
    for _ in range(2):  # deleted again before the files of its first life are gone
        store.forget_queues("T")
        assert store.queue_bounds("T", 0) is None
        begin = store.max_position
        for number in range(8000):  # more than an append keeps in memory otherwise
            assert stores.append(store, record(number))[2] == number
        assert entries_in(directory) == before, "of the new life nothing is written over the files of the first"
    # What this returns goes into the checkpoint, so all that is below has to be on disk.
    assert store.flush_queues(True)[0] == store.max_position
    entries = entries_in(directory)
    assert len(entries) == 8000, "nothing of the first life is left"
    assert entries[0] == begin
    store.delete_forgotten()
    store.close()
    assert store.queue_bounds("T", 0) == (0, 8000)
    again = stores.opened(tmp_path)
    again.recover(store.max_position, True)
    assert again.queue_bounds("T", 0) == (0, 8000)


def test_files_that_can_not_be_deleted_hold_the_checkpoint_back_and_nothing_else(tmp_path: Path) -> None:
    store = stores.fresh(tmp_path)
    for topic in "TU":
        stores.append(store, record(0, topic=topic))
    before = store.flush_queues(True)
    assert before[0] == store.max_position
    directory = tmp_path / "consumequeue" / "T"
    shutil.rmtree(directory)
    directory.write_text("no directory")
    store.forget_queues("T")
    stores.append(store, record(1, topic="U"))
    assert store.flush_queues(True) == before
    with pytest.raises(StoreError, match="consumequeue/T: Not a directory"):
        store.delete_forgotten()
    assert len(entries_in(tmp_path / "consumequeue" / "U" / "0")) == 2
    directory.unlink()
    assert store.flush_queues(True)[0] == store.max_position
    store.close()


def test_flushing_while_others_append_and_read(tmp_path: Path) -> None:
    store = stores.fresh(tmp_path, log_file_size=1 << 16, queue_file_size=20 * 50)
    failures: list[Exception] = []
    done = threading.Event()

    def run(work: Callable[[], object]) -> None:
        try:
            while not done.is_set():
                work()
        except Exception as error:  # noqa: BLE001 - shown by the test's own thread
            failures.append(error)

    def flush() -> None:
        position = store.flush()
        assert store.flushed_position >= position

    def flush_queues() -> None:
        position, _ = store.flush_queues(store.max_position % 2 == 1)
        assert position <= store.max_position

    threads = [threading.Thread(target=run, args=(work,)) for work in (flush, flush_queues, store.prepare_next_file)]
    for thread in threads:
        thread.start()
    log = Log(1 << 16)
    try:
        for number in range(3000):
            one = record(number, queue_id=number % 3, body=bytes(number % 200))
            placed = log.append(one)[0] if number < 600 else None
            position, size, offset, _ = stores.append(store, one)
            assert placed is None or placed.position == position
            got = store.get("T", number % 3, max(0, offset - 40), 50, 1 << 20, 1 << 40, None)
            assert got[:2] == (model.FOUND, offset + 1)
            assert got[4] == min(offset, 40) + 1
            assert store.read(position) == stores.joined(got[5])[-size:]
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert failures == []
    check_lengths = [store.queue_bounds("T", queue) for queue in range(3)]
    assert check_lengths == [(0, 1000)] * 3
    store.close()
    again = stores.opened(tmp_path, log_file_size=1 << 16, queue_file_size=20 * 50)
    assert again.recover(0, True)[1] == 3000
    assert [again.queue_bounds("T", queue) for queue in range(3)] == [(0, 1000)] * 3


def test_tails_of_idle_queues_are_let_go_and_still_read(tmp_path: Path) -> None:
    store = stores.fresh(tmp_path)
    log = Log(1 << 20)
    for number in range(50):
        log.append(one := record(number))
        stores.append(store, one)
    for _ in range(12):
        store.flush_queues(False)
    check(store, log)
    for number in range(5):
        log.append(one := record(number))
        stores.append(store, one)
    check(store, log)


def test_of_very_many_queues_those_that_waited_longest_are_written(tmp_path: Path) -> None:
    def written() -> set[int]:
        return {int(path.name) for path in (tmp_path / "consumequeue").glob("T/*")}

    store = stores.fresh(tmp_path)
    for queue_id in range(5000):
        stores.append(store, record(queue_id, queue_id=queue_id))
    store.flush_queues(False)
    assert written() == set(range(2048))
    stores.append(store, record(0, queue_id=0))
    store.flush_queues(False)
    assert written() == set(range(4096))
    assert store.get("T", 4999, 0, 10, 1 << 20, 1 << 40, None)[4] == 1
    store.flush_queues(True)
    assert written() == set(range(5000))
    store.close()
    again = stores.opened(tmp_path)
    again.recover(0, True)
    assert [again.queue_bounds("T", queue_id) for queue_id in (0, 1, 4999)] == [(0, 2), (0, 1), (0, 1)]
    again.close()


def test_overlong_tails_are_written_by_themselves(tmp_path: Path) -> None:
    store = stores.fresh(tmp_path, queue_file_size=6_000_000)
    body = model.batch([(0, b"", b"")] * 700)
    for _ in range(10):
        store.append_batch("T", 0, body, now=1, born_host=PEER, born_timestamp=1)
    [file] = (tmp_path / "consumequeue" / "T" / "0").iterdir()
    assert file.stat().st_size == 6_000_000
    assert store.get("T", 0, 0, 7000, 1 << 30, 1 << 40, None)[4] == 7000


def test_a_full_or_broken_disk_is_an_error(tmp_path: Path) -> None:
    store = stores.fresh(tmp_path, log_file_size=4096)
    stores.append(store, record(0))
    end = store.max_position
    (tmp_path / "commitlog").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=r"can't create .*00000000000000004096"):
        stores.append(store, record(1, body=bytes(3900)))
    with pytest.raises(StoreError, match="can't create"):
        store.prepare_next_file()
    assert (store.max_position, store.queue_bounds("T", 0)) == (end, (0, 1))
    assert stores.append(store, record(1))[0] == end
    (tmp_path / "elsewhere").rename(tmp_path / "commitlog")
    assert stores.append(store, record(2, body=bytes(3900)))[:3:2] == (4096, 2)
    assert store.flush() == store.max_position


def test_thousands_of_queues_are_forced_and_found_again(tmp_path: Path) -> None:
    store = stores.fresh(tmp_path)
    for number in range(1_100):
        stores.append(store, record(number, topic=f"T{number}"))
    store.flush()
    store.flush_queues(True)
    store.close()
    again = stores.fresh(tmp_path)
    assert sorted(again.queues()) == sorted((f"T{number}", 0, 0, 1) for number in range(1_100))
    again.close()


def test_bytes_are_counted_by_topic_and_minima_raised(tmp_path: Path) -> None:
    """For retentionBytesPerTopic: from memory, and from files."""
    store, log = stores.fresh(tmp_path, log_file_size=4096, queue_file_size=20 * 7), Log(4096)
    for number in range(200):
        one = record(number, topic="TUV"[number % 7 % 3], queue_id=number % 2, body=bytes(number))
        log.append(one)
        stores.append(store, one)
    for again in range(2):
        for start, end in [(0, log.end), (0, 1), (4096, 8192), (5000, 20_000), (log.end, log.end + 1)]:
            expected: dict[str, int] = {}
            for placed in log.records:
                if start <= placed.position < end:
                    expected[placed.topic] = expected.get(placed.topic, 0) + placed.size
            assert store.count_bytes(start, end) == sorted(expected.items())
        if not again:
            store.close()
            store = stores.opened(tmp_path, log_file_size=4096, queue_file_size=20 * 7)
            store.recover(0, True)
    assert store.lowest_position == 0
    store.raise_min("T", 8192)
    store.raise_min("nobody's", 8192)
    for queue_id in range(2):
        low = next(one.queue_offset for one in log.queue("T", queue_id) if one.position >= 8192)
        assert store.queue_bounds("T", queue_id) == (low, len(log.queue("T", queue_id)))
        assert store.queue_bounds("U", queue_id) == (0, len(log.queue("U", queue_id)))
    assert "T" not in dict(store.count_bytes(0, 8192))
    assert store.lowest_position < 4096
    for topic in "UV":
        store.raise_min(topic, log.end)
    assert 8192 <= store.lowest_position < 12_288
    store.raise_min("T", log.end)
    assert store.lowest_position == log.end
    # The files of queues stay as long as the log does that they lead to, and no longer.
    directory = tmp_path / "consumequeue" / "T" / "0"
    assert (directory / f"{0:020}").exists()
    for begin in (8192, 20_480):
        store.delete_files_below(begin)
        needed = next(one.queue_offset for one in log.queue("T", 0) if one.position >= begin)
        assert min(int(file.name) for file in directory.iterdir()) == needed // 7 * 140
        assert store.queue_bounds("T", 0) == (len(log.queue("T", 0)), len(log.queue("T", 0)))
    store.close()


def test_what_came_to_topics_is_told_once(tmp_path: Path) -> None:
    store = stores.fresh(tmp_path)
    sizes = [stores.append(store, record(number, queue_id=number % 2))[1] for number in range(5)]
    other = stores.append(store, record(5, topic="U"))[1]
    told = store.take_arrivals(1) + store.take_arrivals(10)
    assert sorted(told) == [("T", 5, sum(sizes)), ("U", 1, other)]
    assert store.take_arrivals(10) == []
    stores.append(store, record(6))
    stores.append(store, record(7, topic="U"))
    store.forget_queues("T")
    size = stores.append(store, record(8))[1]
    assert sorted(store.take_arrivals(10)) == [("T", 1, size), ("U", 1, other)]
    sent = stores.append(store, record(8), kind=1)[1]
    stores.append(store, record(8, sys_flag=4), kind=3)
    ((topic, ((kind, *counted, _),), ends),) = [each for each in store.traffic(0, 9) if each[1]]
    assert (topic, kind, counted, ends) == ("T", 1, [1, sent], None), "what nobody sent isn't there, nor what is in no queue"
    assert store.take_arrivals(10) == [("T", 1, sent)]
    with pytest.raises(ValueError, match="no kind 5"):
        stores.append(store, record(8), kind=5)
    stores.append(store, record(9))
    store.close()
    again = stores.fresh(tmp_path)
    assert again.take_arrivals(10) == [], "what recovery puts again came long ago"
    again.close()


def test_entries_of_a_queue_lead_to_its_records(tmp_path: Path) -> None:
    store = stores.fresh(tmp_path)
    put = [stores.append(store, record(number, properties=model.text({"TAGS": "A"}))) for number in range(300)]
    store.flush_queues(True)  # from files, too
    expected = [(offset, position, size, model.java_hash("A")) for position, size, offset, _ in put]
    end = store.max_position
    assert store.entries("T", 0, 0, 1000, end) == expected
    assert store.entries("T", 0, 100, 2, end) == expected[100:102]
    assert store.entries("T", 0, 0, 1000, put[7][0]) == expected[:7]
    assert store.entries("T", 0, 300, 5, end) == store.entries("T", 9, 0, 5, end) == []
    store.close()
