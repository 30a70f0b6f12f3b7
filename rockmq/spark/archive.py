"""A topic as Parquet files, before its messages expire.

    <directory>/<topic>/dt=<day of storing, UTC>/<broker>-<queue>-<from>-<to>.parquet     offsets from … to - 1
    <directory>/<topic>/_manifest/<run>.jsonl     a line per file: what counts
    <directory>/<topic>/_manifest/_<run>.plan     the ranges of a run, written before it starts

A run archives what came since the last one. Its ranges are decided first and kept in the plan; file names are a function
of them, and files appear whole under their names. So a run that was broken off is done again over the same ranges and
overwrites itself, and a directory without unfinished plans holds each message once, for any reader of Parquet.

The tasks pull and write by themselves; only the lines of the manifest pass through the JVM.
"""

import contextlib
import io
import os
import uuid
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rockmq.base import files
from rockmq.base.errors import ConfigError
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.spark import cluster, schema
from rockmq.spark.batch_reader import read_range
from rockmq.spark.options import ReadOptions, parse
from rockmq.spark.ranges import Range, offsets_json, plan

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyspark.sql import SparkSession

RECORDS_PER_FILE = 1_000_000
ROW_GROUP_ROWS = 65_536
ROW_GROUP_BYTES = 128 << 20
"""A row group ends with so many rows, or with the batch that reaches so many bytes in memory."""

_DAY_US = 24 * 3600 * 1_000_000
_MANIFEST = "_manifest"
# Worth a dictionary: few different values. One that overflows costs time and space, and keys, ids and bodies all differ.
_REPEATING = [
    "topic", "broker", "queueId", "tags", "bornHost", "reconsumeTimes", "sysFlag", "properties.key_value.key"
]  # fmt: skip
_RISING = ("queueOffset", "commitLogOffset", "bornTimestamp", "storeTimestamp")
_SET_BY_ARCHIVE = {"startingoffsets", "tags", "maxrecordsperpartition", "topics"}


class ArchivedFile(msgspec.Struct, frozen=True, rename="camel"):
    """A line of the manifest. `path` is below the topic's directory, times are milliseconds, `crc` is the file's CRC-32."""

    path: str
    broker: str
    queue_id: int
    start: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")
    rows: int
    bytes: int
    min_store_timestamp: int
    max_store_timestamp: int
    crc: int
    schema_version: int = schema.VERSION


class Task(msgspec.Struct, frozen=True, rename="camel"):
    """A range of a run's plan."""

    broker: str
    queue_id: int
    start: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")


@dataclass(frozen=True)
class Archive:
    """What one call of `archive` has written; `root` holds the topic's files of all runs."""

    topic: str
    root: Path
    files: list[ArchivedFile] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.files)


def archive(
    spark: "SparkSession",
    name_server: str,
    topic: str,
    directory: str | os.PathLike[str],
    *,
    records_per_file: int = RECORDS_PER_FILE,
    options: Mapping[str, str] | None = None,
) -> Archive:
    """Archive what `topic` holds and `directory` doesn't; `directory` must be the same for driver and workers.

    `options` are those of a read (failOnDataLoss, endingOffsets, minPartitions, …). A run that was broken off before is
    finished first. Raises DataLoss when messages expired since the last run, ConfigError, RockMQError.
    """
    read = _options(name_server, topic, records_per_file, options or {})
    root = Path(directory).resolve() / topic
    (root / _MANIFEST).mkdir(parents=True, exist_ok=True)
    written = []
    number, unfinished = _last_run(root)
    if unfinished is not None:
        written += _run(spark, read, root, number, unfinished)
    fresh = _plan(read, root)
    if fresh:
        number += 1
        files.save(_plan_path(root, number), msgspec.json.encode(fresh).decode())
        written += _run(spark, read, root, number, fresh)
    return Archive(topic, root, written)


def manifest(directory: str | os.PathLike[str], topic: str) -> list[ArchivedFile]:
    """Every file of every finished run, in order of runs."""
    runs = sorted((Path(directory) / topic / _MANIFEST).glob("*.jsonl"))
    return [entry for run in runs for entry in msgspec.json.Decoder(ArchivedFile).decode_lines(run.read_bytes())]


def _options(name_server: str, topic: str, records_per_file: int, given: Mapping[str, str]) -> ReadOptions:
    for name in given:
        if name.lower() in _SET_BY_ARCHIVE:
            raise ConfigError(f"option {name!r} can't be given: an archive holds all of a topic, each message once")
    if records_per_file < 1:
        raise ConfigError(f"records_per_file is {records_per_file}, expected at least 1")
    own = {"nameServer": name_server, "topic": topic, "maxRecordsPerPartition": str(records_per_file)}
    read = parse({**given, **own})
    if read.topics != [topic]:
        raise ConfigError(f"an archive is of one topic, not of {topic!r}")
    return read


# Runs


def _plan_path(root: Path, number: int) -> Path:
    return root / _MANIFEST / f"_{number:08}.plan"


def _manifest_path(root: Path, number: int) -> Path:
    return root / _MANIFEST / f"{number:08}.jsonl"


def _plans(root: Path) -> list[tuple[int, Path]]:
    return sorted((int(path.stem.removeprefix("_")), path) for path in (root / _MANIFEST).glob("_*.plan"))


def _last_run(root: Path) -> tuple[int, list[Task] | None]:
    """(number of the last run, its plan if it was broken off)."""
    number, path = max(_plans(root), default=(0, None))
    if path is None or _manifest_path(root, number).exists():
        return number, None
    return number, _read_plan(path)


def _read_plan(path: Path) -> list[Task]:
    return msgspec.json.decode(path.read_bytes(), type=list[Task])


def _plan(read: ReadOptions, root: Path) -> list[Task]:
    """What to archive next: from where the runs so far have ended."""
    (topic,) = read.topics
    ends: dict[MessageQueue, int] = {}
    for _, path in _plans(root):
        for task in _read_plan(path):
            queue = MessageQueue(topic, task.broker, task.queue_id)
            ends[queue] = max(task.end, ends.get(queue, 0))
    bounds = cluster.run(cluster.topic_bounds(read))
    known = {queue: end for queue, end in ends.items() if queue in bounds}
    if known:
        read = msgspec.structs.replace(read, starting_offsets=offsets_json(known))
    ranges = plan(bounds, read)
    return [Task(each.queue.broker_name, each.queue.queue_id, each.start, each.end) for each in ranges]


def _run(spark: "SparkSession", read: ReadOptions, root: Path, number: int, tasks: list[Task]) -> list[ArchivedFile]:
    (topic,) = read.topics

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                task = tasks[index]
                wanted = Range(MessageQueue(topic, task.broker, task.queue_id), task.start, task.end)
                lines = [msgspec.json.encode(entry) for entry in write_range(read, wanted, root)]
                yield pa.RecordBatch.from_pydict({"line": pa.array(lines, pa.binary())})

    one_each = spark.range(0, len(tasks), 1, len(tasks))
    lines = [bytes(row.line) for row in one_each.mapInArrow(work, "line binary").collect()]
    entries = [msgspec.json.decode(line, type=ArchivedFile) for line in lines]
    entries.sort(key=lambda entry: (entry.broker, entry.queue_id, entry.start))
    files.save(_manifest_path(root, number), "".join(msgspec.json.encode(entry).decode() + "\n" for entry in entries))
    return entries


# Files


def write_range(read: ReadOptions, wanted: Range, root: Path) -> Iterator[ArchivedFile]:
    """Write the messages of a range, a file per day; each file is there when its line is yielded."""
    current: _File | None = None
    try:
        for batch in read_range(read, wanted, schema.ARROW):
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
    finally:
        if current is not None:
            current.abandon()


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
        self._spans: list[_Span] = []

    def add(self, rows: pa.RecordBatch) -> None:
        self._spans.append(_Span.of(rows))
        self._waiting.append(rows)
        waiting = sum(each.num_rows for each in self._waiting)
        if waiting >= ROW_GROUP_ROWS or sum(each.nbytes for each in self._waiting) >= ROW_GROUP_BYTES:
            self._write(waiting)

    def _write(self, rows: int) -> None:
        # Whole groups only, so that the same range gives the same bytes however its batches came.
        table = pa.Table.from_batches(self._waiting)
        whole = rows - rows % ROW_GROUP_ROWS or rows
        self._writer.write_table(table.slice(0, whole).combine_chunks(), row_group_size=ROW_GROUP_ROWS)
        self._waiting = table.slice(whole).to_batches()

    def finish(self) -> ArchivedFile:
        if self._waiting:
            self._write(sum(each.num_rows for each in self._waiting))
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
