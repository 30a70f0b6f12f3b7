"""Carries out the plans of an archive, of several topics at once, in Spark's tasks."""

import concurrent.futures
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
import pyarrow as pa

from rockmq.base.errors import ConfigError, ProtocolError, RockMQError
from rockmq.pipeline.archive_files import put_together, write_range
from rockmq.pipeline.manifest import ArchivedFile, ArchivedTopic, LostRange, Plan, Task
from rockmq.pipeline.runs import Progress
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.spark.options import ReadOptions
from rockmq.spark.ranges import DataLoss, Range
from rockmq.spark.worker import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS_MIN = 64
PARTITION_ROWS = 250_000
"""Small tasks share partitions of Spark's: there are so many, and one more for so many rows."""
REASONS_MAX = 10
LOOK_SECONDS = 2.0
"""How often the driver looks for tasks that have ended, to tell how far the job is."""

_KINDS: dict[str, type[RockMQError]] = {kind.__name__: kind for kind in (DataLoss, ConfigError, ProtocolError)}
_SCHEMA = "number int, lines binary, kind string, fault string"

T = TypeVar("T")


class Run(NamedTuple):
    """A plan that has been saved and isn't done."""

    topic: str
    archived: ArchivedTopic
    number: int
    plan: Plan


class Item(NamedTuple):
    """A task of a plan as it goes to a worker; `run` and `part` say which."""

    run: int
    part: int
    topic: str
    root: str
    number: int
    task: Task

    @property
    def rows(self) -> int:
        return self.task.end - self.task.start


def carry_out(
    spark: "SparkSession", runs: Sequence[Run], read: ReadOptions | None, progress: Progress
) -> tuple[dict[str, list[ArchivedFile]], dict[str, RockMQError]]:
    """What was written, by topic, and what kept the other topics from being done. `read` says how to read ranges.

    What tasks have already written in an earlier attempt is taken as it is.
    """
    items = [
        Item(place, index, run.topic, str(run.archived.root), run.number, task)
        for place, run in enumerate(runs)
        for index, task in enumerate(run.plan.tasks)
    ]
    if not runs:
        return {}, {}
    faults: dict[str, RockMQError] = {}
    progress.begin(
        f"archiving {runs[0].topic}" if len(runs) == 1 else f"archiving {len(runs)} topics",
        rows=progress.counts["rows"] + sum(item.rows for item in items),
    )
    look = _Look(items, progress)
    parts = dict(look.parts())
    todo = [number for number in range(len(items)) if number not in parts]
    for number, lines, kind, fault in _in_tasks(spark, items, todo, read, look):
        if lines is None:
            faults.setdefault(items[number].topic, _KINDS.get(kind, RockMQError)(fault))
        else:
            parts[number] = msgspec.json.Decoder(ArchivedFile).decode_lines(lines)
            look.done(number, parts[number])
    written = {}
    for place, run in enumerate(runs):
        if run.topic not in faults:
            of_run = [parts[number] for number, item in enumerate(items) if item.run == place]
            written[run.topic] = run.archived.finish(run.number, run.plan, of_run)
    return written, faults


class _Look:
    """Sees by their parts which tasks have ended."""

    def __init__(self, items: Sequence[Item], progress: Progress) -> None:
        self._items = items
        self._progress = progress
        self._done: set[int] = set()

    def parts(self) -> Iterator[tuple[int, list[ArchivedFile]]]:
        """Those that have ended since the last time, with what they have written."""
        runs = {(item.root, item.number) for item in self._items}
        there = {root: ArchivedTopic(Path(root)).parts(number) for root, number in runs}
        for number, item in enumerate(self._items):
            if number not in self._done and item.part in there[item.root]:
                part = ArchivedTopic(Path(item.root)).part(item.number, item.part)
                self.done(number, part)
                yield number, part

    def done(self, number: int, part: list[ArchivedFile]) -> None:
        if number in self._done:
            return
        self._done.add(number)
        rows = sum(each.rows for each in part)
        counts = {"rows": rows, "bytes": sum(each.bytes for each in part), "files": len(part)}
        if not self._items[number].task.files and (lost := self._items[number].rows - rows):
            counts["lost"] = lost
        self._progress.add(**counts)


def _in_tasks(
    spark: "SparkSession", items: Sequence[Item], todo: Sequence[int], read: ReadOptions | None, look: _Look
) -> "Sequence[tuple[int, bytes | None, str, str]]":
    if not todo:
        return []
    shares = _shares(items, todo)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        settle()
        for batch in batches:
            for share in batch.column(0).to_pylist():
                for number, item in shares[share]:
                    row = dict(zip(("number", "lines", "kind", "fault"), (number, *_done(item, read)), strict=True))
                    yield pa.RecordBatch.from_pylist([row], _ARROW)

    frame = spark.range(0, len(shares), 1, len(shares)).mapInArrow(work, _SCHEMA)
    rows = _beside(frame.collect, lambda: [*look.parts()])
    return [(row.number, None if row.lines is None else bytes(row.lines), row.kind, row.fault) for row in rows]


_ARROW = pa.schema([("number", pa.int32()), ("lines", pa.binary()), ("kind", pa.string()), ("fault", pa.string())])


def _shares(items: Sequence[Item], todo: Sequence[int]) -> list[list[tuple[int, Item]]]:
    """The tasks in as many shares as Spark is to have partitions, about equally large."""
    rows = sum(items[number].rows for number in todo)
    count = min(len(todo), PARTITIONS_MIN + rows // PARTITION_ROWS)
    by_size = sorted(todo, key=lambda number: items[number].rows, reverse=True)
    return [[(number, items[number]) for number in by_size[share::count]] for share in range(count)]


def _done(item: Item, read: ReadOptions | None) -> tuple[bytes | None, str | None, str | None]:
    """In a worker: (lines, None, None), or (None, kind, text) of what kept the task from being done."""
    archived = ArchivedTopic(Path(item.root))
    try:
        if not archived.plan_path(item.number).exists():
            raise ConfigError(
                f"on {socket.gethostname()}: {archived.plan_path(item.number)} isn't there; driver and executors have to "
                "share the archive's directory"
            )
        lines = _written(item, read, archived)
        archived.save_part(item.number, item.part, lines)
    except (RockMQError, OSError) as error:
        return None, type(error).__name__, str(error)
    return b"".join(msgspec.json.encode(line) + b"\n" for line in lines), None, None


def _written(item: Item, read: ReadOptions | None, archived: ArchivedTopic) -> list[ArchivedFile]:
    task = item.task
    if task.files:
        return [put_together(task, archived.root)]
    assert read is not None
    check_source(task, read)
    wanted = Range(MessageQueue(item.topic, task.broker, task.queue_id), task.start, task.end)
    gaps: list[tuple[int, int]] = []
    with _warnings() as said:
        lines = list(write_range(read, wanted, archived.root, gaps))
    if gaps:
        reason = "; ".join(said) or "the queue leads to no messages there"
        lost = [LostRange(task.broker, task.queue_id, start, end, reason) for start, end in gaps]
        archived.save_lost(item.number, item.part, lost)
    return lines


def check_source(task: Task, read: ReadOptions) -> None:
    """Raises ConfigError when messages of the task's broker would be looked for in another broker's store."""
    if read.store is not None and not task.files and task.broker != read.broker_name:
        raise ConfigError(
            f"its plan is of broker {task.broker}, and {read.store} is the store of {read.broker_name}: finish it from "
            f"where it was begun, or from the store of {task.broker}"
        )


@contextlib.contextmanager
def _warnings() -> Iterator[list[str]]:
    """What reading says of messages that it goes on without, the first `REASONS_MAX`."""
    said: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if len(said) < REASONS_MAX:
                said.append(record.getMessage())

    keeper = Keeper(logging.WARNING)
    reading = logging.getLogger("rockmq.spark")
    reading.addHandler(keeper)
    try:
        yield said
    finally:
        reading.removeHandler(keeper)


def _beside(work: Callable[[], T], look: Callable[[], object]) -> T:
    """The result of `work`, which runs in another thread; meanwhile `look` is called now and then.

    Who is interrupted leaves Spark's job running: what it still writes is what the next run would.
    """
    result: concurrent.futures.Future[T] = concurrent.futures.Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001  (handed to the caller)
            result.set_exception(error)

    threading.Thread(target=run, name="rockmq archive", daemon=True).start()
    while not concurrent.futures.wait([result], LOOK_SECONDS).done:
        look()
    return result.result()
