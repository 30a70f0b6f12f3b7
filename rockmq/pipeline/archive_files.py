"""A Parquet file of an archive: a range of a queue's messages as Spark's source reads them, of one day of storing.

The same messages give the same bytes, whoever writes them and however they come: a task that is done again overwrites what
it has written. Nothing is there under a file's name before it is whole and on disk.
"""

import contextlib
import io
import os
import uuid
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rockmq.base import files
from rockmq.base.errors import ConfigError
from rockmq.pipeline.manifest import ArchivedFile, Task
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.spark import schema
from rockmq.spark.batch_reader import read_range
from rockmq.spark.options import ReadOptions
from rockmq.spark.ranges import Range

if TYPE_CHECKING:
    import numpy.typing as npt

ROW_GROUP_ROWS = 65_536
ROW_GROUP_BYTES = 128 << 20
"""A row group ends with so many rows, or with the row that reaches so many bytes, as `_sizes` counts them."""
ROW_BYTES = 256
"""What a row is counted for beside its body and properties."""

_DAY_US = 24 * 3600 * 1_000_000
# Worth a dictionary: few different values. One that overflows costs time and space, and keys, ids and bodies all differ.
_REPEATING = [
    "topic", "broker", "queueId", "tags", "bornHost", "reconsumeTimes", "sysFlag", "properties.key_value.key"
]  # fmt: skip
_RISING = ("queueOffset", "commitLogOffset", "bornTimestamp", "storeTimestamp")


def write_range(
    read: ReadOptions, wanted: Range, root: Path, gaps: list[tuple[int, int]] | None = None
) -> Iterator[ArchivedFile]:
    """Write the messages of a range, a file per day; each file is there when its line is yielded. `gaps` gets (from, to) of
    offsets that no message came for."""
    current: _File | None = None
    at = wanted.start
    try:
        for batch in read_range(read, wanted, schema.ARROW):
            if not batch.num_rows:
                continue  # none of its messages could be kept
            if gaps is not None:
                at = _note_gaps(gaps, at, _numbers(batch, "queueOffset"))
            for day, rows in _by_day(batch):
                if current is not None and current.day != day:
                    yield current.finish()
                    current = None
                if current is None:
                    current = _File(root, wanted.queue, day)
                current.add(rows)
        if current is not None:
            yield current.finish()
            current = None
        if gaps is not None and at < wanted.end:
            gaps.append((at, wanted.end))
    finally:
        if current is not None:
            current.abandon()


def _note_gaps(gaps: list[tuple[int, int]], at: int, offsets: "npt.NDArray[np.int64]") -> int:
    """What is missing before and between these offsets, where `at` is to come first; what is to come next."""
    before = np.concatenate(([at], offsets[:-1] + 1))
    gaps += [(int(before[row]), int(offsets[row])) for row in np.flatnonzero(offsets > before)]
    return int(offsets[-1]) + 1


def put_together(task: Task, root: Path) -> ArchivedFile:
    """Write a file with the rows of the task's, which are of one queue and day. Raises ConfigError for one that isn't what
    the manifest says, OSError."""
    target = _File(root, MessageQueue("", task.broker, task.queue_id), task.files[0].day)
    try:
        for each in task.files:
            content = (root / each.path).read_bytes()
            if zlib.crc32(content) != each.crc:
                raise ConfigError(f"{root / each.path} isn't what was archived: its CRC-32 is not the manifest's")
            for rows in pq.ParquetFile(pa.BufferReader(content)).iter_batches(ROW_GROUP_ROWS):
                target.add(rows)
        return target.finish()
    except BaseException:
        target.abandon()
        raise


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The batch cut where the day of storing changes."""
    days = _numbers(batch, "storeTimestamp") // _DAY_US
    edges = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), batch.num_rows]
    for start, end in pairwise(edges):
        yield str(np.datetime64(int(days[start]), "D")), batch.slice(start, end - start)


class _Span(NamedTuple):
    """What a batch of rows adds to its file's line."""

    rows: int
    start: int
    end: int
    earliest: int
    latest: int

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> "_Span":
        offsets, times_ms = _numbers(rows, "queueOffset"), _numbers(rows, "storeTimestamp") // 1_000
        return cls(rows.num_rows, int(offsets[0]), int(offsets[-1]) + 1, int(times_ms.min()), int(times_ms.max()))


def _numbers(rows: pa.RecordBatch, name: str) -> "npt.NDArray[np.int64]":
    return np.asarray(rows.column(schema.ARROW.get_field_index(name)).cast(pa.int64()).fill_null(0))


def _sizes(rows: pa.RecordBatch) -> "npt.NDArray[np.int64]":
    """About how many bytes each row takes: by its content alone, not by the batch it comes in."""
    properties = rows.column(schema.ARROW.get_field_index("properties"))
    pairs = np.concatenate(([0], np.cumsum(_lengths(properties.keys) + _lengths(properties.items))))
    sizes: npt.NDArray[np.int64] = np.diff(pairs[np.asarray(properties.offsets)]) + ROW_BYTES
    sizes += _lengths(rows.column(schema.ARROW.get_field_index("body")))
    return sizes


def _lengths(column: pa.Array) -> "npt.NDArray[np.int64]":
    return np.asarray(pc.binary_length(column).fill_null(0), np.int64)


class _File:
    """A file in the making: nothing under its final name before it is whole and on disk."""

    def __init__(self, root: Path, queue: MessageQueue, day: str) -> None:
        self.day = day
        self._root = root
        self._queue = queue
        self._folder = root / f"dt={day}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._temporary = self._folder / f".{queue.broker_name}-{queue.queue_id}-{uuid.uuid4().hex}.tmp"
        self._sink = _Sink(self._temporary)
        self._writer = pq.ParquetWriter(
            self._sink,
            schema.ARROW,
            compression="zstd",
            use_dictionary=_REPEATING,
            column_encoding=dict.fromkeys(_RISING, "DELTA_BINARY_PACKED"),
            write_statistics=[name for name in schema.ARROW.names if name not in ("body", "properties")],
        )
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = 0
        self._spans: list[_Span] = []

    def add(self, rows: pa.RecordBatch) -> None:
        self._spans.append(_Span.of(rows))
        # Groups end at rows, not where a batch does, so that the same range gives the same bytes however its batches came.
        sizes = _sizes(rows)
        while rows.num_rows:
            total = np.cumsum(sizes)
            full = int(np.searchsorted(total, ROW_GROUP_BYTES - self._waiting_bytes)) + 1
            count = min(full, ROW_GROUP_ROWS - self._waiting_rows, rows.num_rows)
            self._waiting.append(rows.slice(0, count))
            self._waiting_rows += count
            self._waiting_bytes += int(total[count - 1])
            if self._waiting_rows >= ROW_GROUP_ROWS or self._waiting_bytes >= ROW_GROUP_BYTES:
                self._write()
            rows, sizes = rows.slice(count), sizes[count:]

    def _write(self) -> None:
        table = pa.Table.from_batches(self._waiting).combine_chunks()
        self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0

    def finish(self) -> ArchivedFile:
        if self._waiting:
            self._write()
        self._writer.close()
        self._sink.sync()
        self._sink.close()
        broker, queue_id = self._queue.broker_name, self._queue.queue_id
        start, end = self._spans[0].start, self._spans[-1].end
        path = self._folder / f"{broker}-{queue_id}-{start}-{end}.parquet"
        os.replace(self._temporary, path)
        files.sync_directory(self._folder)
        return ArchivedFile(
            path=str(path.relative_to(self._root)),
            broker=broker,
            queue_id=queue_id,
            start=start,
            end=end,
            rows=sum(span.rows for span in self._spans),
            bytes=self._sink.size,
            min_store_timestamp=min(span.earliest for span in self._spans),
            max_store_timestamp=max(span.latest for span in self._spans),
            crc=self._sink.crc,
        )

    def abandon(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(OSError):  # the disk may be what broke
            self._writer.close()
        self._sink.close()
        self._temporary.unlink(missing_ok=True)


class _Sink(io.RawIOBase):
    """A file that counts and sums what is written."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self.size = 0
        self.crc = 0

    def writable(self) -> bool:
        return True

    def write(self, data: "bytes | memoryview") -> int:  # type: ignore[override]
        self.crc = zlib.crc32(data, self.crc)
        self.size += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self.size

    def sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()
        super().close()
