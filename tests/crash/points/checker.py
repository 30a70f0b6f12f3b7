"""Recovers an image with the code of a start, and compares what is there with what has to be."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rockmq import _core
from rockmq.base.errors import ConfigError
from tests.crash.points import load
from tests.crash.points.history import Fault, History, Placed, require
from tests.crash.points.loop import SeededLoop
from tests.crash.points.store_load import Driven
from tests.support import model
from tests.unit.core import stores


class Kept(NamedTuple):
    count: int
    end: int
    log_min: int


def check(root: Path, history: History, choice: random.Random, directories: load.Directories = load.ONE) -> History:
    """Recover the image in `root` with the core, write on, and open it again."""
    up = start(root, "the image", directories)
    kept = compare(up.store, history, scanned=(up.start, up.seen))
    check_index(up, history.records[: kept.count], kept, choice)
    found = history.copy()
    found.cut(*kept)
    if choice.random() < 0.3:
        write_on(root, up, found.copy(), choice, directories)
    return found


def check_store(root: Path, history: History, choice: random.Random) -> History:
    """The same with `MessageStore`."""
    with asyncio.Runner(loop_factory=lambda: SeededLoop(choice)) as runner:
        return runner.run(_check_store(root, history, choice))


async def _check_store(root: Path, history: History, choice: random.Random) -> History:
    driven = await opened(root, "the image")
    kept = compare(driven.store.core, history)
    found = history.copy()
    found.cut(*kept)
    for one, key, wanted in _queries(history.records[: kept.count], kept.log_min, choice):
        answer = await driven.store.query(one.topic, key, 1000, 0, 1 << 60, is_tag=False)
        require(
            answer.records == [each.data for each in wanted],
            f"key {key} of {_name(one)} leads to {len(answer.records)} records, not {[each.position for each in wanted]}",
        )
    if choice.random() < 0.3:
        after = found.copy()
        for number in range(choice.randint(1, 3)):
            one = load.record(choice, 900_000 + number, driven.clock.now_ms())
            [placed] = after.append([one])
            put = driven.append(one)
            at = (placed.position, placed.queue_offset)
            require((put.position, put.queue_offset) == at, f"the next record went to {put}, not to {at}")
        after.acknowledged = await driven.flush()
        # A kill leaves the files as they are now; a stop closes them.
        killed = choice.random() < 0.5
        if killed:
            stores.copied(root, root.with_name("killed"))
        await driven.store.close()
        driven = await opened(root.with_name("killed") if killed else root, "the store that wrote on")
        compare(driven.store.core, after)
    await driven.store.close()
    return found


async def opened(root: Path, what: str) -> Driven:
    try:
        return await Driven.started(root, load.FIRST_TIME + 10**9)
    except ConfigError as error:
        raise Fault(f"{what} can't be opened: {error}") from error


def start(root: Path, what: str, directories: load.Directories) -> load.Started:
    try:
        return load.start(root, directories)
    except (_core.StoreError, OSError, ValueError) as error:
        raise Fault(f"{what} can't be opened: {error}") from error


def compare(store: _core.Store, history: History, scanned: tuple[int, int] | None = None) -> Kept:
    end, log_min = store.max_position, store.min_position
    low, high = history.min_low, history.min_high
    require(low <= log_min <= high or log_min == end, f"the log begins at {log_min}, not within {low} … {high}")
    records = history.records
    count = next((at for at, one in enumerate(records) if one.position >= end), len(records))
    acknowledged = sum(one.position < history.acknowledged for one in records)
    for number, one in enumerate(records[:count]):
        if one.position >= log_min:
            found = store.read(one.position)
            state = "acknowledged" if number < acknowledged else "not acknowledged"
            if found is None:
                raise Fault(f"{_name(one)} ({state}) isn't there; the log is {log_min} … {end}")
            if found != one.data:
                raise Fault(f"{_name(one)} ({state}) is there with other bytes: {_difference(found, one.data)}")
    require(
        count >= acknowledged,
        f"the log ends at {end} with {count} records, and {acknowledged} were acknowledged, below {history.acknowledged}",
    )
    ends = history.ends(count)
    require(end in ends or end == history.end, f"the log ends at {end}, not at one of {sorted(ends)}")
    require(store.flushed_position == end, f"what was recovered is flushed up to {store.flushed_position}, not {end}")
    if scanned is not None:
        before = [one for one in records[:count] if log_min <= one.position < scanned[0]]
        expected = sum(one.position >= scanned[0] for one in records[:count])
        # Without any simple queue on disk, all may have been deleted, for a recovery to make them again; and so may one of
        # which nothing is left before.
        queues = {queue for one in before for queue, _ in one.places}
        new = {queue for one in records[:count] if one.position >= scanned[0] for queue, _ in one.places} - queues
        if (new or all(topic == load.BATCH_TOPIC for topic, _ in queues)) and scanned[1] != expected:
            expected += len(before)
        require(scanned[1] == expected, f"{scanned[1]} records were seen from {scanned[0]} on, not {expected}")
    compare_queues(store, records[:count], log_min, end)
    return Kept(count, end, log_min)


def compare_queues(store: _core.Store, records: list[Placed], log_min: int, end: int) -> None:
    queues: dict[tuple[str, int], list[tuple[int, Placed]]] = {}
    for one in records:
        for queue, offset in one.places:
            queues.setdefault(queue, []).append((offset, one))
    bounds = {(topic, queue_id): (low, high) for topic, queue_id, low, high in store.queues()}
    for queue, placed in queues.items():
        there = [(offset, one) for offset, one in placed if one.position >= log_min]
        name = f"queue {queue[0][:10]}/{queue[1]}"
        behind = placed[-1][0] + placed[-1][1].count
        wanted = (there[0][0] if there else behind, behind)
        # A queue whose messages are all deleted still knows its next offset.
        require(bounds.get(queue) == wanted, f"{name} is {bounds.get(queue)}, not {wanted}")
        if not there:
            continue
        got = store.get(*queue, wanted[0], 10_000, 1 << 30, end, None)
        found = stores.joined(got[5])
        data = b"".join(one.data for _, one in there)
        if found != data:
            raise Fault(f"{name} gives other messages: {_difference(found, data)}")
        for offset, one in there[:: max(1, len(there) // 4)]:
            by_tag = store.get(*queue, offset + one.count - 1, 1, 1, end, [one.tags_code])
            require(by_tag[4] == one.count, f"{_name(one)} isn't found by its tag: {by_tag[:5]}")
    extra = bounds.keys() - queues.keys()
    require(all(bounds[queue][0] == bounds[queue][1] for queue in extra), f"queues that never were: {extra}")


def check_index(up: load.Started, records: list[Placed], kept: Kept, choice: random.Random) -> None:
    try:
        up.index.catch_up(kept.end, 1 << 30, load.index_name(up.checkpoint.index + 1))
    except _core.StoreError as error:
        raise Fault(f"the index can't be completed: {error}") from error
    for one, key, wanted in _queries(records, kept.log_min, choice):
        found, _, _ = up.index.find(one.topic, key, is_tag=False, count_max=1000, begin=0, end=1 << 60)
        positions = sorted(position for position in found if position >= kept.log_min)
        expected = [each.position for each in wanted]
        require(positions == expected, f"key {key} of {_name(one)} leads to {positions}, not {expected}")


def _queries(records: list[Placed], log_min: int, choice: random.Random) -> Iterator[tuple[Placed, str, list[Placed]]]:
    """Some records, a key of each, and all records that have it."""
    there = [one for one in records if one.position >= log_min and one.sys_flag & 12 != 12]
    for one in [*choice.sample(there, min(6, len(there))), *there[-3:]]:
        for key in one.keys:
            number = model.java_hash(f"{one.topic}#{key}")
            yield one, key, [each for each in there if number in each.key_hashes]


def write_on(root: Path, up: load.Started, history: History, choice: random.Random, directories: load.Directories) -> None:
    """Append, flush, and open once more, in order or not: still all there."""
    for number in range(choice.randint(1, 3)):
        one = load.record(choice, 900_000 + number, load.FIRST_TIME + 10**9)
        [placed] = history.append([one])
        position, _, offset, _ = load.append(up.store, one)
        at = (placed.position, placed.queue_offset)
        require((position, offset) == at, f"the next record went to position and offset {(position, offset)}, not {at}")
    history.acknowledged = up.store.flush()
    if choice.random() < 0.5:
        up.index.close()
        up.store.close()
        up.abort.clear()
    del up
    again = start(root, "the store that wrote on", directories)
    compare(again.store, history)


def _name(one: Placed) -> str:
    return (
        f"record {one.flag} at {one.position} ({one.size} bytes, {one.topic[:10]}/{one.queue_id} offset {one.queue_offset})"
    )


def _difference(found: bytes | None, wanted: bytes) -> str:
    found = found or b""
    at = next((at for at, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b), min(len(found), len(wanted)))
    return f"{len(found)} bytes, not {len(wanted)}; from byte {at} on {found[at : at + 24]!r}, not {wanted[at : at + 24]!r}"
