"""Messages of an archive (`rockmq.pipeline.archive`) to a topic again.

The offsets to read, and the queues that their messages go to, are decided first and kept in `plan.json`
(`rockmq.pipeline.moving`). A step is what some files hold, in whatever files that is when its turn has come. Messages of one
sharding key, else key, else queue go to one queue by one task, in the order in which they were stored; steps follow each
other, and each queue's messages are in its order over them. A key that was in several queues is in the order of storing
within a step only, as a step's files may hold messages that were stored after the first ones of the next.
"""

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import reduce
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from pyspark.sql import functions as f

from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ConfigError
from rockmq.client import MessageQueue
from rockmq.pipeline.archive import ArchivedFile, manifest
from rockmq.pipeline.moving import (
    ID,
    IN_ORDER,
    NOTHING,
    Given,
    Work,
    asked,
    carried,
    explained,
    message_id,
    new_id,
    placed,
    queue_of,
    together,
    writable,
)
from rockmq.pipeline.runs import Progress
from rockmq.spark import schema
from rockmq.spark.ledger import Done
from rockmq.spark.options import parse_tags

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROWS_PER_STEP = 1_000_000
"""Archived rows of a step, unless one file has more: so many ids are read back at most after a failure."""

RATE_OF_A_TASK = 20_000
"""Rows a second for which one task is enough; a faster replay is shared out to several."""

REPLAY = "REPLAY"
"""Property by which consumers tell replayed messages: the replay's id."""


class Selection(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which archived messages: all of what is given must be so.

    Stored from `start_ms` on and before `end_ms` (since the epoch), with one of `keys`, with one of `tags` (`a || b`), and
    `filter`, a condition in Spark's SQL over the archive's columns.
    """

    start_ms: int | None = None
    end_ms: int | None = None
    keys: tuple[str, ...] = ()
    tags: str = "*"
    filter: str = ""


EVERYTHING = Selection()


class Counts(NamedTuple):
    """What a selection finds: messages, bytes of their bodies, and when the first and the last was stored (UTC)."""

    rows: int
    bytes: int
    first: datetime | None
    last: datetime | None


class Replayed(NamedTuple):
    """What became of all of a replay, over its runs.

    `done` counts messages: `rows` are all that were selected, each of which was either `sent`, or `found` as it had been
    sent before a failure, or is `bad` and can't be sent.
    """

    id: str
    done: Done


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """Archived messages of a queue that follow each other."""

    broker: str
    queue_id: int
    start: int = msgspec.field(name="from")
    end: int = msgspec.field(name="to")

    def shared(self, file: ArchivedFile) -> int:
        """How many offsets of it a file has."""
        if (file.broker, file.queue_id) != (self.broker, self.queue_id):
            return 0
        return max(0, min(file.end, self.end) - max(file.start, self.start))


class Plan(msgspec.Struct, frozen=True, rename="camel"):
    """`steps` is what each step sends: no files, as other ones may have that when the step's turn has come."""

    replay: str
    archive: str
    topic: str
    target: str
    queues: list[MessageQueue]
    selection: Selection
    steps: list[list[Part]]


def count(spark: "SparkSession", archive: str | os.PathLike[str], topic: str, selection: Selection = EVERYTHING) -> Counts:
    """What a replay would send; nothing is sent or written. Raises as `replay`."""
    root, files = _files(archive, topic, selection)
    if not files:
        return Counts(0, 0, None, None)
    rows = _selected(spark, root, [each.path for each in files], selection)
    times = [f.unix_millis(each("storeTimestamp")) for each in (f.min, f.max)]
    with explained():
        (found,) = rows.select(f.count("*"), f.coalesce(f.sum(f.octet_length("body")), f.lit(0)), *times).collect()
    first, last = (None if each is None else datetime.fromtimestamp(each / 1_000, UTC) for each in found[2:])
    return Counts(found[0], found[1], first, last)


def replay(
    spark: "SparkSession",
    name_server: str,
    archive: str | os.PathLike[str],
    topic: str,
    target: str,
    work: str | os.PathLike[str],
    selection: Selection = EVERYTHING,
    *,
    rate: float = 0.0,
    force: bool = False,
    rows_per_step: int = ROWS_PER_STEP,
    options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Replayed:
    """Send what was archived of `topic` to `target`, at most `rate` messages a second (0: as fast as it goes).

    `archive` and `work` must be the same directories for this program, the driver and the workers. Called again with the
    same `work` it goes on where it was broken off, and sends nothing when it was done. `force` allows the topic itself as
    target. `options` are those of the sink (timeout, accessKey, maxMessageSize, …).

    Raises ConfigError, RockMQError.
    """
    progress = progress or Progress()
    given = Given(name_server, options or {})
    if rate < 0:
        raise ConfigError(f"rate is {rate:g}, expected messages a second, or 0 for no limit")
    if target == topic and not force:
        raise ConfigError(f"messages of {topic} would be replayed to {topic} itself, which only `force` allows")
    with Work(work) as place:
        plan = place.load("plan.json", Plan)
        if plan is None:
            root, files = _files(archive, topic, selection)
            if files:
                _selected(spark, root, [files[0].path], selection)  # a wrong condition isn't kept
            plan = Plan(
                replay=new_id(clock or SystemClock()),
                archive=str(root.parent),
                topic=topic,
                target=target,
                queues=asked(given.connection, lambda client: writable(client, target)),
                selection=selection,
                steps=[_parts(step) for step in _steps(files, rows_per_step)],
            )
            place.save("plan.json", plan)
        place.check(plan, archive=str(Path(archive).resolve()), topic=topic, target=target, selection=selection)
        progress.result("replay", plan.replay)
        progress.begin(f"replaying {topic} to {target}", steps=len(plan.steps))
        done = NOTHING
        for number, parts in enumerate(plan.steps):
            step = f"{plan.replay}-{number:06}"
            sent = place.done(step)
            if sent is None:
                chosen = _selected(spark, Path(plan.archive) / topic, _paths(plan, parts), selection)
                rows = _messages(chosen.where(_is_of(parts)), plan, rate)
                write = {**given.write, "topic": target, "rowsPerSecond": str(_rate_of_each(rate))}
                sent = place.send(step, rows, write, progress, plan.queues)
            done = together(done, sent)
            progress.add(steps=1)
        return Replayed(plan.replay, done)


# What to read


def _files(archive: str | os.PathLike[str], topic: str, selection: Selection) -> tuple[Path, list[ArchivedFile]]:
    """The topic's directory, and its files that may hold what is wanted."""
    root = Path(archive).resolve() / topic
    listed = manifest(archive, topic)
    if not listed:
        raise ConfigError(f"{root} holds no archive: there is no manifest that lists a file")
    start, end = selection.start_ms, selection.end_ms
    if start is not None and end is not None and start >= end:
        raise ConfigError(f"the time range is empty: it begins at {start} and ends before {end}")
    found = [
        each
        for each in listed
        if (start is None or each.max_store_timestamp >= start) and (end is None or each.min_store_timestamp < end)
    ]
    for each in found:
        if not (root / each.path).is_file():
            raise ConfigError(f"{root / each.path} is missing, which the archive's manifest lists")
    return root, found


def _steps(files: list[ArchivedFile], rows_per_step: int) -> Iterator[list[ArchivedFile]]:
    """Files in the order of their times, those of a queue in the order of their offsets."""
    reached: dict[tuple[str, int], int] = {}
    begins: list[tuple[int, str, int, int, ArchivedFile]] = []
    for each in sorted(files, key=lambda each: each.start):
        queue = each.broker, each.queue_id
        reached[queue] = max(reached.get(queue, 0), each.min_store_timestamp)  # a clock may have been set back
        begins.append((reached[queue], *queue, each.start, each))
    step: list[ArchivedFile] = []
    rows = 0
    for *_, each in sorted(begins, key=lambda begin: begin[:4]):
        if step and rows + each.rows > rows_per_step:
            yield step
            step, rows = [], 0
        step.append(each)
        rows += each.rows
    if step:
        yield step


def _parts(files: list[ArchivedFile]) -> list[Part]:
    """What files hold."""
    parts: list[Part] = []
    for each in sorted(files, key=lambda each: (each.broker, each.queue_id, each.start)):
        part = Part(each.broker, each.queue_id, each.start, each.end)
        if parts and (parts[-1].broker, parts[-1].queue_id, parts[-1].end) == (part.broker, part.queue_id, part.start):
            part = msgspec.structs.replace(part, start=parts.pop().start)
        parts.append(part)
    return parts


def _paths(plan: Plan, parts: list[Part]) -> list[str]:
    """The files that hold this now. Raises ConfigError when the archive doesn't have all of it any more."""
    listed = manifest(plan.archive, plan.topic)
    for part in parts:
        if sum(map(part.shared, listed)) < part.end - part.start:
            raise ConfigError(
                f"the archive {plan.archive} doesn't have all messages any more that this replay is to send: of "
                f"{plan.topic}/{part.broker}/{part.queue_id} those from {part.start} to {part.end - 1}"
            )
    return [each.path for each in listed if any(part.shared(each) for part in parts)]


def _is_of(parts: list[Part]) -> "Column":
    conditions = (
        (f.col("broker") == part.broker)
        & (f.col("queueId") == part.queue_id)
        & (f.col("queueOffset") >= part.start)
        & (f.col("queueOffset") < part.end)
        for part in parts
    )
    return reduce(lambda one, other: one | other, conditions)


def _selected(spark: "SparkSession", root: Path, paths: list[str], selection: Selection) -> "DataFrame":
    rows = spark.read.schema(schema.DDL).parquet(*(f"file:{root / path}" for path in paths))
    conditions: list[Column] = []
    if selection.start_ms is not None:
        conditions.append(f.col("storeTimestamp") >= f.timestamp_millis(f.lit(selection.start_ms)))
    if selection.end_ms is not None:
        conditions.append(f.col("storeTimestamp") < f.timestamp_millis(f.lit(selection.end_ms)))
    if selection.keys:
        conditions.append(f.arrays_overlap(f.split("keys", " "), f.array(*map(f.lit, selection.keys))))
    if (tags := parse_tags(selection.tags)) is not None:
        conditions.append(f.col("tags").isin(sorted(tags)))
    rows = reduce(lambda rows, condition: rows.where(condition), conditions, rows)
    if not selection.filter:
        return rows
    with explained("filter"):
        rows = rows.where(selection.filter)
        rows.schema  # noqa: B018  (Spark Connect looks at a filter only when it is asked for something)
    return rows


# What to send


def _tasks(rate: float) -> int:
    return ceil(rate / RATE_OF_A_TASK)


def _rate_of_each(rate: float) -> float:
    return rate / _tasks(rate) if rate else 0.0


def _messages(rows: "DataFrame", plan: Plan, rate: float) -> "DataFrame":
    key = f.coalesce("shardingKey", "keys", f.concat_ws("/", "broker", "queueId"))
    by_key = placed(rows).withColumn("orderKey", key)
    shared = by_key.repartition(_tasks(rate), "orderKey") if rate else by_key.repartition("orderKey")
    return shared.sortWithinPartitions(*IN_ORDER).select(
        message_id().alias(ID),
        "body",
        carried({REPLAY: plan.replay}).alias("properties"),
        queue_of(f.col("orderKey"), len(plan.queues)).alias("queue"),
    )
