"""Records, queue entries and index headers of a store directory, one after the other; reads, and writes nothing."""

import struct
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias

from rockmq import _core
from rockmq.protocol import properties, topics
from rockmq.protocol.message import INNER
from rockmq.store.layout import ENTRY_SIZE, Layout, index_files, is_number, positions

BYTES_MAX = 4 << 20
"""Bytes of records that are read at a time."""
BLOCK_ENTRIES = 4096

_ENTRY = struct.Struct(">qiq")
_UNIT = struct.Struct(">qiqqqh8x")
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
    """Whole records in log order, of a light queue in its own; where none is, the next one is searched for."""
    found = _in_light_queue(layout, wanted) if topics.is_light(wanted.topic or "") else _in_log(layout, wanted)
    return islice(found, wanted.limit)


def _in_light_queue(layout: Layout, wanted: Wanted) -> Iterator[Dumped]:
    """Records are of other topics: only its entries tell what a light queue has."""
    entries = (int(str(entry["position"])) for entry in queue_entries(layout, wanted._replace(limit=None)))
    return records_at(layout, (position for position in entries if position >= (wanted.position or 0)))


def _in_log(layout: Layout, wanted: Wanted) -> Iterator[Dumped]:
    reader = _reader(layout)
    for base, _ in layout.log_files:
        at, ended, behind = base, False, base + layout.log_file_size
        if wanted.position is not None:
            at = max(base, min(wanted.position, behind))
        while at < behind and not ended:
            at, ended, found, _, _ = reader.read(
                at, behind, bytes_max=BYTES_MAX, topic=wanted.topic, queue_id=wanted.queue_id
            )
            yield from (record for record in found if _is_between(record[4], _messages(record), wanted))


def _is_between(offset: int, messages: int, wanted: Wanted) -> bool:
    return offset + messages > (wanted.start or 0) and (wanted.end is None or offset < wanted.end)


def _messages(record: Dumped) -> int:
    """How many messages a record is: an inner batch says so in its properties."""
    if record[6] & INNER != INNER:
        return 1
    number = properties.number(properties.decode(record[15]).get(properties.INNER_NUM))
    return 1 if number is None else number


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
    """Entries that are used, by topic, queue and offset: of simple and light queues, then the units of batch queues."""
    return islice(_all_entries(layout, wanted), wanted.limit)


def _all_entries(layout: Layout, wanted: Wanted) -> Iterator[dict[str, object]]:
    for root, entries in ((layout.queues, _entries), (layout.batch_queues, _units)):
        for topic in sorted(root.iterdir()) if root.is_dir() else ():
            if not topic.is_dir() or wanted.topic not in (None, topic.name):
                continue
            for queue_id in sorted(int(each.name) for each in topic.iterdir() if each.is_dir() and is_number(each.name)):
                if wanted.queue_id in (None, queue_id):
                    for entry in entries(topic / str(queue_id), wanted):
                        yield {"topic": topic.name, "queueId": queue_id} | entry


def _entries(directory: Path, wanted: Wanted) -> Iterator[dict[str, object]]:
    for base, size in positions(directory):
        first = max(base, (wanted.start or 0) * ENTRY_SIZE)
        if first >= base + size:
            continue
        with open(directory / f"{base:020}", "rb") as file:
            file.seek(first - base)
            offset = first // ENTRY_SIZE
            while block := file.read(BLOCK_ENTRIES * ENTRY_SIZE):
                for position, length, tags in _ENTRY.iter_unpack(block[: len(block) // ENTRY_SIZE * ENTRY_SIZE]):
                    if (wanted.end is not None and offset >= wanted.end) or length <= 0:
                        return  # as recovery does: a queue ends at an entry of no size
                    yield {"queueOffset": offset, "position": position, "size": length, "tagsCode": tags}
                    offset += 1


def _units(directory: Path, wanted: Wanted) -> Iterator[dict[str, object]]:
    """Of a batch queue, which grows by the messages of each unit: only reading tells where an offset is (spec, 3.3)."""
    last = -1
    for base, _ in positions(directory):
        with open(directory / f"{base:020}", "rb") as file:
            while block := file.read(BLOCK_ENTRIES * _UNIT.size):
                whole = block[: len(block) // _UNIT.size * _UNIT.size]
                for position, length, tags, stored, offset, messages in _UNIT.iter_unpack(whole):
                    if length <= 0 or messages <= 0 or position <= last:
                        return  # as recovery does: each leads behind the one before
                    last = position
                    if _is_between(offset, messages, wanted):
                        yield {
                            "queueOffset": offset,
                            "messages": messages,
                            "position": position,
                            "size": length,
                            "tagsCode": tags,
                            "storeTimestamp": stored,
                        }


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
