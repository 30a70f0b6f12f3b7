"""Queues with the log they lead into, and the files of timers, damaged: what is read of them is right as far as a plain
reading of the same bytes can tell."""

import itertools
import logging
import os
import shutil
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from rockmq import _core
from rockmq.protocol.properties import tag_code
from rockmq.store.layout import Layout, find
from rockmq.store.repair import repair
from rockmq.store.verify import verify
from tests.support import model
from tests.support.damage import SLOW, damaged
from tests.unit.core import stores
from tests.unit.core.test_batch_queues import Sent
from tests.unit.core.test_timers import NOW, STEP, put, timers

LOG_FILE = 1024
LOG_FILES = 2
QUEUE_FILES = {"simple": 20 * 12, "batch": 46 * 5}
EVERYTHING = 1 << 62
TAG1 = [tag_code("tag1")]

TIMER_FILE = 52 * 4 + 16 + 7
SLOTS = 1_209_600
SLOTS_PER_INPUT = 8
INPUTS_PER_WHEEL = 500
"""A wheel has 38 MB, which are read whole, and its slots are read one by one: each file holds so many inputs."""


@pytest.mark.parametrize("kind", ["simple", "batch"])
def test_queues_lead_to_records_of_their_own_or_tell_a_fault(directory: Path, kind: str) -> None:
    """As a reader beside the broker reads them."""
    queues = directory / ("batchconsumequeue" if kind == "batch" else "consumequeue")
    topic = "B" if kind == "batch" else "T"
    names = [queues / topic / "0" / f"{0:020}", *(directory / "commitlog" / f"{LOG_FILE * n:020}" for n in range(LOG_FILES))]
    sizes = [QUEUE_FILES[kind], *[LOG_FILE] * LOG_FILES]
    places = list(itertools.pairwise(itertools.accumulate(sizes, initial=0)))
    make_store(directory)
    valid = b"".join(path.read_bytes() for path in names)
    assert len(valid) == sum(sizes)
    files = [path.open("r+b", buffering=0) for path in names]

    def check(data: bytes) -> None:
        if len(data) < 2 * sizes[0]:  # the queue alone
            data = data[: sizes[0]].ljust(sizes[0], b"\0") + valid[sizes[0] :]
        data = data.ljust(sum(sizes), b"\0")
        for file, (begin, end) in zip(files, places, strict=True):
            os.pwrite(file.fileno(), data[begin:end], 0)
        queue = _core.QueueReader(
            [str(directory / "commitlog")],
            str(queues),
            topic,
            0,
            log_file_size=LOG_FILE,
            queue_file_size=sizes[0],
            is_batch=kind == "batch",
        )
        number = zlib.crc32(data)
        for begin, end in (queue.bounds(number % 3 * 500, EVERYTHING), (0, 20)):
            if begin > end:
                continue  # units that don't follow each other
            if number % 2:  # either will do for some inputs
                queue.hold(begin, end)
            else:
                try:
                    assert begin <= queue.offset_by_time(1003, begin, end) <= end
                except _core.StoreError as error:
                    assert "no record of" in str(error)
            for record in records_of(queue, begin, end):
                (found,) = _core.decode_records(record)
                at = sizes[0] + found[5]
                assert data[at : at + len(record)] == record, "it lies where it says"
                assert (found[14], found[2]) == (topic, 0)
                assert found[1] == zlib.crc32(found[13]) & 0x7FFFFFFF

    damaged([valid, valid[: sizes[0]]], check)
    for file in files:
        file.close()


def test_a_repair_leaves_nothing_wrong_but_what_the_log_has_lost(directory: Path) -> None:
    """`rockmq store verify` and `repair`, of a store damaged in its log and all its queues: the log stays as it is, another
    repair makes the same, and nothing is wrong then if the log was whole: a record that was hit may claim what is another's.
    Costs some milliseconds, so it gets a fiftieth of the inputs."""
    make_store(directory)
    queues = {"consumequeue/T/0": "simple", "consumequeue/T/1": "simple", "batchconsumequeue/B/0": "batch"}
    sizes = {f"commitlog/{LOG_FILE * number:020}": LOG_FILE for number in range(LOG_FILES)}
    sizes |= {f"{name}/{0:020}": QUEUE_FILES[kind] for name, kind in queues.items()}
    valid = b"".join((directory / name).read_bytes() for name in sizes)
    store = directory / "damaged"

    def below(name: str) -> dict[str, bytes]:
        found = (path for path in (store / name).rglob("*") if path.is_file())
        return {str(path.relative_to(store)): path.read_bytes() for path in found}

    def layout() -> Layout:
        sizes_of_queues = {"queue_file_size": QUEUE_FILES["simple"], "batch_queue_file_size": QUEUE_FILES["batch"]}
        return find(store)._replace(index_sizes=(10, 40), **sizes_of_queues)

    def check(data: bytes) -> None:
        shutil.rmtree(store, ignore_errors=True)
        is_whole = data.startswith(valid[: LOG_FILE * LOG_FILES])
        if len(data) % 2 and not is_whole:
            data, is_whole = valid[: LOG_FILE * LOG_FILES] + data[LOG_FILE * LOG_FILES :], True
        data, at = data.ljust(sum(sizes.values()), b"\0"), 0
        for name, size in sizes.items():
            (store / name).parent.mkdir(parents=True, exist_ok=True)
            (store / name).write_bytes(data[at : at + size])
            at += size
        verify(layout(), nobody)
        log = below("commitlog")
        made = []
        for _ in range(2):
            repair(layout(), nobody, cut=False, say=logging.getLogger(__name__).info)
            made.append(below("consumequeue") | below("batchconsumequeue"))
        assert made[0] == made[1]
        assert below("commitlog") == log
        report = verify(layout(), nobody)
        assert report.is_clean or not is_whole, report.findings

    damaged([valid], check, tests=5 * SLOW)


def nobody(done: int, total: int) -> None:
    """Is told of progress."""


def make_store(directory: Path) -> None:
    """Topic T with two queues, and batch queue B/0, record by record."""
    store = stores.opened(
        directory,
        log_file_size=LOG_FILE,
        queue_file_size=QUEUE_FILES["simple"],
        batch_queue_file_size=QUEUE_FILES["batch"],
    )
    store.recover(0, True)
    store.set_batch("B")
    sent = Sent()
    for number, count in enumerate((2, 0, 1)):
        sent.put(store, count, timestamp=1000 + 2 * number)
        for queue_id in (0, 1):
            tags = b"TAGS\x01tag%d\x02" % (number % 2)
            stores.append(store, model.Record("T", queue_id, b"%d" % number, tags, store_timestamp=1001 + 2 * number))
    store.close()


def records_of(queue: _core.QueueReader, begin: int, end: int) -> Iterator[bytes]:
    """The records of a range, until nothing more is there, and then those with a tag."""
    for codes in (None, TAG1):
        at = begin
        while at < end:
            following, records, faults, gone = queue.read(at, end, count_max=3, bytes_max=500, tag_codes=codes)
            assert following >= at
            assert all("where offset" in fault for fault in faults)
            while records:
                size = int.from_bytes(records[:4], "big")
                yield records[:size]
                records = records[size:]
            if following == at or gone is not None:
                break
            at = following


class Unit(NamedTuple):
    """Of the log of timers, as TimerLog.java says (store spec, 6.2)."""

    previous: int
    magic: int
    written: int
    delay: int
    position: int
    size: int

    @property
    def time(self) -> int:
        return min(max(self.written + self.delay, -(2**63)), 2**63 - 1)

    @property
    def deletes(self) -> bool:
        return self.magic & 6 == 4


def unit_at(files: Sequence[bytes], position: int) -> Unit | None:
    number, at = divmod(position, TIMER_FILE)
    if not 0 <= number < len(files) or len(files[number]) < at + 52:
        return None
    size, previous, magic, written, delay, position, record_size = struct.unpack_from(">iqiqiqi", files[number], at)
    if size != 52 or magic & ~0xF or not magic & 1 or position < 0 or record_size <= 0:
        return None
    return Unit(previous, magic, written, delay, position, record_size)


def chain(files: Sequence[bytes], last: int) -> tuple[list[Unit], bool]:
    """The units of a slot, those that delete first, then from old to new; and whether all are there."""
    found: list[Unit] = []
    whole = True
    while last >= 0 and whole:
        unit = unit_at(files, last)
        if unit is not None and unit.previous < last:
            found.insert(0, unit)
            last = unit.previous
        else:
            whole = False
    return [*(unit for unit in found if unit.deletes), *(unit for unit in found if not unit.deletes)], whole


def with_timers(directory: Path) -> tuple[_core.Store, dict[int, int], int]:
    """A store with messages in four slots, their positions and sizes, and where the log of timers ends."""
    store = stores.fresh(directory)
    positions = [put(store, NOW + STEP * (number % 4), number) for number in range(8)]
    recall = f"TIMER_OUT_MS\x01{NOW}\x02REAL_TOPIC\x01T\x02TIMER_DEL_UNIQKEY\x01T+4\x02".encode()
    born = bytes([10, 0, 0, 1, 0, 0, 0, 1])
    positions.append(store.append("rmq_sys_wheel_timer", 0, b"0", recall, now=NOW, born_host=born, born_timestamp=NOW)[0])
    sizes = {position: len(store.read(position) or b"") for position in positions}
    wheel = timers(directory, store, file_size=TIMER_FILE)
    wheel.recover(0, NOW)
    found = wheel.enqueue(0, 100, store.max_position, read_time=NOW, write_time=NOW, delivered=(0, 0))
    assert found[:3] == (9, 9, 0)
    return store, sizes, wheel.flush()


def log_of(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((directory / "timerlog").iterdir()))


def write_log(directory: Path, data: bytes) -> list[bytes]:
    """Make the files of the log anew: what is in them."""
    root = f"{directory}/timerlog"
    pieces = [data[at : at + TIMER_FILE] for at in range(0, len(data), TIMER_FILE)]
    for name in os.listdir(root):
        if int(name) >= len(data):
            os.unlink(f"{root}/{name}")
    for number, piece in enumerate(pieces):
        with open(f"{root}/{number * TIMER_FILE:020}", "wb", buffering=0) as file:
            file.write(piece)
    return pieces


def test_logs_of_timers_are_taken_up_as_far_as_they_are_whole(directory: Path) -> None:
    """Without a wheel, which is made from them."""
    store, sizes, _ = with_timers(directory)
    (directory / "timerwheel").unlink()

    def check(data: bytes) -> None:
        # One that is short was in the making.
        whole = [piece for piece in write_log(directory, data) if len(piece) == TIMER_FILE]
        end = end_of(whole, sizes)
        wheel = timers(directory, store, file_size=TIMER_FILE)
        assert wheel.recover(0, NOW)[::2] == (end, True)
        left = [piece[: max(0, end - number * TIMER_FILE)] for number, piece in enumerate(whole)]
        for time, last in slots_of(left, end).items():
            units, is_whole = chain(left, last)
            assert wheel.open_slot(time * STEP) == (len(units), is_whole)
            records, is_last, lost, _ = wheel.due(100, 1 << 20)
            assert is_last
            there = [unit.position for unit in units if sizes.get(unit.position) == unit.size]
            assert lost == len(units) - len(there)
            given = [_core.decode_records(record)[0][5] for record, _, _ in records]
            assert not set(given) - set(there)
        if len(data) % 8 == 0:  # some inputs will do for this
            wheel.remake()
            found = wheel.enqueue(0, 100, store.max_position, read_time=NOW, write_time=NOW, delivered=(0, 0))
            assert found[:3] == (9, 9, 0)

    damaged([log_of(directory)], check)
    store.close()


def end_of(files: Sequence[bytes], sizes: dict[int, int]) -> int:
    """Where the first unit is that isn't whole, less those before it that have no message."""
    at, places = 0, []
    while at < len(files) * TIMER_FILE:
        unit = unit_at(files, at)
        if unit is not None and unit.previous < at:
            places.append(at)
            at += 52
            continue
        rest = TIMER_FILE - at % TIMER_FILE
        is_blank = rest < 52 + 16 and files[at // TIMER_FILE][at % TIMER_FILE + 12 :][:4] == struct.pack(">i", model.BLANK)
        if not is_blank or at + rest >= len(files) * TIMER_FILE:
            break
        at += rest
    while places and (unit := unit_at(files, places[-1])) and sizes.get(unit.position) != unit.size:
        at = places.pop()
    return at


def slots_of(files: Sequence[bytes], end: int) -> dict[int, int]:
    """Number of each slot that is pending, and its last unit."""
    slots: dict[int, tuple[int, int]] = {}
    for at in itertools.chain.from_iterable(range(base, base + 4 * 52, 52) for base in range(0, end, TIMER_FILE)):
        unit = unit_at(files, at) if at < end else None
        if unit is not None and unit.time >= NOW:
            time = unit.time // STEP
            slots[time % SLOTS] = time, at
    return dict(slots.values())


def test_slots_of_a_wheel_lead_to_what_is_in_the_log(directory: Path) -> None:
    store, _, flushed = with_timers(directory)
    log = log_of(directory)
    path, first = directory / "timerwheel", NOW // STEP
    held: list[bytes] = []

    def check(data: bytes) -> None:
        held.append(data[: 32 * SLOTS_PER_INPUT].ljust(32 * SLOTS_PER_INPUT, b"\0"))
        if len(held) == INPUTS_PER_WHEEL:
            check_all()

    def check_all() -> None:
        files, slots = write_log(directory, log), []
        for number, data in enumerate(held):
            for time, *rest in struct.iter_unpack(">qqqii", data):
                # Each input has the same slots, one turn of them further on.
                slots.append(((time + number * SLOTS_PER_INPUT + (1 << 63)) % (1 << 64) - (1 << 63), *rest))
        text = b"".join(struct.pack(">qqqii", *slot) for slot in slots)
        with path.open("r+b") as file:
            file.seek(first % SLOTS * 32)
            file.write(text.ljust(32 * SLOTS_PER_INPUT * INPUTS_PER_WHEEL, b"\0"))
        expected = [
            ((first + number) * STEP, unit.position, unit.size, unit.written, unit.magic)
            for number, (time, _, last, *_) in enumerate(slots)
            if time == first + number and last >= 0
            for unit in chain(files, last)[0]
        ]
        found = _core.pending_timers(str(path), str(directory / "timerlog"), TIMER_FILE, STEP, NOW, len(expected))
        assert found == (expected, 0), held
        wheel = timers(directory, store, file_size=TIMER_FILE)
        end, offset, agrees = wheel.recover(flushed, NOW)
        assert (end, offset) == (flushed, 9)
        if not agrees:
            wheel.remake()
            assert wheel.count_between(NOW, NOW + SLOTS * STEP) == 0
        held.clear()

    with path.open("rb") as file:
        file.seek(first % SLOTS * 32)
        valid = file.read(32 * SLOTS_PER_INPUT)
    assert struct.unpack_from(">q", valid)[0] == first
    damaged([valid], check)
    check_all()
    store.close()
