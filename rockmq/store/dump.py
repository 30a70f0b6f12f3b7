"""Records, queue entries and index headers of a store directory, one after the other; reads, and writes nothing."""

import struct
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from rockmq import _core
from rockmq.store.layout import ENTRY_SIZE, Layout, index_files, is_number, positions

BYTES_MAX = 4 << 20
"""Bytes of records that are read at a time."""
BLOCK_ENTRIES = 4096

_ENTRY = struct.Struct(">qiq")
_INDEX_HEADER = struct.Struct(">qqqqii")

Dumped: TypeAlias = "_core.Record"


class What(StrEnum):
    RECORDS = "records"
    QUEUES = "queues"
    INDEX = "index"


class Wanted(NamedTuple):
    """What to show: of this topic and queue, from this offset to before that one, or from this position on; so many."""

    topic: str | None = None
    queue_id: int | None = None
    start: int | None = None
    end: int | None = None
    position: int | None = None
    limit: int | None = None


def records(layout: Layout, wanted: Wanted) -> Iterator[Dumped]:
    """Whole records in log order; where none is, the next one is searched for."""
    reader = _reader(layout)
    left = wanted.limit
    for base, _ in layout.log_files:
        at, ended, behind = base, False, base + layout.log_file_size
        if wanted.position is not None:
            at = max(base, min(wanted.position, behind))
        while at < behind and not ended:
            at, ended, found, _, _ = reader.read(
                at, behind, bytes_max=BYTES_MAX, topic=wanted.topic, queue_id=wanted.queue_id
            )
            for record in found:
                offset = record[4]
                if (wanted.start is not None and offset < wanted.start) or (wanted.end is not None and offset >= wanted.end):
                    continue
                if left == 0:
                    return
                yield record
                left = None if left is None else left - 1


def records_at(layout: Layout, positions: Iterable[int]) -> Iterator[Dumped]:
    """The records that begin at these positions, as far as the log still has them."""
    reader = _reader(layout)
    for position in positions:
        if position >= layout.log_min:
            _, _, found, _, _ = reader.read(position, position + 1, bytes_max=1)
            yield from (record for record in found[:1] if record[5] == position)


def _reader(layout: Layout) -> _core.LogReader:
    return _core.LogReader(list(map(str, layout.log_directories)), file_size=layout.log_file_size)


def queue_entries(layout: Layout, wanted: Wanted) -> Iterator[dict[str, object]]:
    """Entries that are used, by topic, queue and offset."""
    left = wanted.limit
    topics = sorted(layout.queues.iterdir()) if layout.queues.is_dir() else []
    for topic in topics:
        if not topic.is_dir() or wanted.topic not in (None, topic.name):
            continue
        numbers = sorted(int(each.name) for each in topic.iterdir() if each.is_dir() and is_number(each.name))
        for queue_id in numbers:
            if wanted.queue_id not in (None, queue_id):
                continue
            for offset, position, size, tags in _entries(layout, topic.name, queue_id, wanted.start or 0, wanted.end):
                if left == 0:
                    return
                yield {
                    "topic": topic.name,
                    "queueId": queue_id,
                    "queueOffset": offset,
                    "position": position,
                    "size": size,
                    "tagsCode": tags,
                }
                left = None if left is None else left - 1


def _entries(layout: Layout, topic: str, queue_id: int, start: int, end: int | None) -> Iterator[tuple[int, int, int, int]]:
    directory = layout.queues / topic / str(queue_id)
    for base, size in positions(directory):
        first = max(base, start * ENTRY_SIZE)
        if first >= base + size:
            continue
        with open(directory / f"{base:020}", "rb") as file:
            file.seek(first - base)
            offset = first // ENTRY_SIZE
            while block := file.read(BLOCK_ENTRIES * ENTRY_SIZE):
                for entry in _ENTRY.iter_unpack(block[: len(block) // ENTRY_SIZE * ENTRY_SIZE]):
                    if (end is not None and offset >= end) or entry[1] <= 0:
                        return  # as recovery does: a queue ends at an entry of no size
                    yield offset, *entry
                    offset += 1


def index_headers(layout: Layout) -> Iterator[dict[str, object]]:
    """The header of each index file (IndexHeader.java; store spec, 3.5)."""
    for path in index_files(layout.index_directory):
        with path.open("rb") as file:
            header = file.read(_INDEX_HEADER.size).ljust(_INDEX_HEADER.size, b"\0")
        begin, end, begin_position, end_position, slots, following = _INDEX_HEADER.unpack(header)
        yield {
            "file": path.name,
            "beginTimestamp": begin,
            "endTimestamp": end,
            "beginPosition": begin_position,
            "endPosition": end_position,
            "slotsUsed": slots,
            "entries": max(following - 1, 0),
        }
