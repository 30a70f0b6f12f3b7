"""Topics as Parquet files, before their messages expire. What lies where, and what counts: rockmq/pipeline/manifest.py.

A run archives what came since the last one. Its ranges are decided first and kept in a plan; file names are a function of
them, and files appear whole under their names. So a run that was broken off is gone on with over the same ranges, and each
message is archived once, wherever a run was killed and how often.

The tasks pull, or read a store's files, and write by themselves; only the lines of the manifest pass through the JVM. What
keeps one topic from being archived keeps no other; it is raised when these are done.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rockmq.base.errors import ConfigError, RockMQError
from rockmq.pipeline import delta as delta_table
from rockmq.pipeline.archive_tasks import Run, carry_out, check_source
from rockmq.pipeline.manifest import ArchivedFile, ArchivedTopic, LostRange, Plan, Task, manifest, paths
from rockmq.pipeline.runs import Progress
from rockmq.protocol import topics as names
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.spark import cluster
from rockmq.spark.group_offsets import commit_once
from rockmq.spark.options import ReadOptions, parse
from rockmq.spark.ranges import Bounds, DataLoss, Range, check_named, cut, name, offsets_json, uncut

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Archive", "ArchivedFile", "archive", "archive_topics", "manifest", "paths"]

RECORDS_PER_FILE = 1_000_000

_SET_BY_ARCHIVE = {
    "startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp", "tags", "sql", "columns", "jsonschema", "queues",
    "topicpattern", "topics", "maxrecordsperpartition",
}  # fmt: skip


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
    group: str = "",
    delta: bool = False,
    progress: Progress | None = None,
) -> Archive:
    """`archive_topics` of one topic."""
    if isinstance(topic, str) and "," in topic:
        raise ConfigError(f"archive is of one topic, not of {topic!r}: archive_topics takes several")
    (done,) = archive_topics(
        spark,
        name_server,
        [topic],
        directory,
        records_per_file=records_per_file,
        options=options,
        group=group,
        delta=delta,
        progress=progress,
    )
    return done


def archive_topics(
    spark: "SparkSession",
    name_server: str,
    topics: Collection[str] | None,
    directory: str | os.PathLike[str],
    *,
    retries: bool = False,
    records_per_file: int = RECORDS_PER_FILE,
    options: Mapping[str, str] | None = None,
    group: str = "",
    delta: bool = False,
    progress: Progress | None = None,
) -> list[Archive]:
    """Archive what the topics hold and `directory` doesn't, which must be the same for driver and workers.

    `topics` None are all of users, with `retries` also those of retries and dead letters. `options` are those of a read
    (failOnDataLoss, endingOffsets, readFrom, …). Brokers are told under the name of `group` how far the archive is: its lag
    is what isn't archived, and with their key retentionGroups they wait for it with deletion. `delta` also keeps the topic's
    directory as a Delta table. Runs that were broken off are finished first.

    Raises DataLoss when messages expired since the last run, ConfigError, RockMQError.
    """
    progress = progress or Progress()
    read = _options(name_server, topics, records_per_file, options or {})
    _check_group(group, name_server)
    if delta:
        delta_table.check()
    shelf = _shelf(directory)
    progress.begin("asking where the topics end")
    faults: dict[str, RockMQError] = {}
    bounds, read = cluster.run(_survey(read, topics, retries, faults))
    archives = {topic: Archive(topic, shelf / topic) for topic in read.topics}

    def do(runs: list[Run]) -> None:
        written, failed = carry_out(spark, runs, read, progress)
        for topic, lines in written.items():
            archives[topic].files.extend(lines)
        faults.update(failed)

    do(_broken_off(_without(faults, archives), read, faults))
    do(_fresh(_without(faults, archives), bounds, read, faults))
    tables: dict[str, RockMQError] = {}
    for topic in sorted(archives.keys() - faults):
        root = archives[topic].root
        if (delta and root.is_dir()) or delta_table.is_table(root):
            progress.begin(f"adding {topic} to its Delta table")
            try:
                delta_table.catch_up(root)
            except ConfigError as error:
                tables[topic] = error
    if group:
        progress.begin(f"telling brokers how far {group} is")
        connection = msgspec.structs.replace(read, name_server=name_server)
        cluster.run(commit_once(connection, group, _reached(archives, faults, bounds)))
    raise_faults(faults | tables)
    return list(archives.values())


def _options(
    name_server: str, topics: Collection[str] | None, records_per_file: int, given: Mapping[str, str]
) -> ReadOptions:
    for option in given:
        if option.lower() in _SET_BY_ARCHIVE:
            raise ConfigError(f"option {option!r} can't be given: an archive holds all of a topic, each message once")
    if records_per_file < 1:
        raise ConfigError(f"records_per_file is {records_per_file}, expected at least 1")
    said = {option.lower(): value for option, value in given.items()}
    own = {"maxRecordsPerPartition": str(records_per_file)}
    if said.get("readfrom", "broker").startswith("store:"):
        if "brokername" not in said:
            raise ConfigError("option 'brokerName' is required with readFrom=store: the archive's files are named by it")
    else:
        own["nameServer"] = name_server
    if topics is None:
        return parse({**given, **own, "topicPattern": ".*"})
    return parse({**given, **own, "topic": ",".join(topics)})


def _check_group(group: str, name_server: str) -> None:
    if group and (fault := names.group_fault(group)) is not None:
        raise ConfigError(fault)
    if group and not name_server:
        raise ConfigError(f"group {group} needs a name server: its offsets are kept by brokers")


def _shelf(directory: str | os.PathLike[str]) -> Path:
    shelf = Path(directory).resolve()
    try:
        shelf.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the archive's directory {shelf} can't be made: {error}") from None
    return shelf


async def _survey(
    read: ReadOptions, topics: Collection[str] | None, retries: bool, faults: dict[str, RockMQError]
) -> tuple[dict[MessageQueue, Bounds], ReadOptions]:
    """The ends of all queues, and the options with the topics by name and offsets instead of times. What keeps a topic's
    queues from being asked goes to `faults`."""

    async def ask(topic: str) -> dict[MessageQueue, Bounds]:
        try:
            return await cluster.bounds_of(origin, msgspec.structs.replace(read, topic=topic))
        except RockMQError as error:
            faults[topic] = error
            return {}

    async with cluster.asking(read) as origin:
        if topics is None:
            found = sorted(each for each in await origin.topic_names() if _is_meant(each, retries))
            read = msgspec.structs.replace(read, topic=",".join(found), topic_pattern="")
        of_topics = await cluster.of_each(read.topics, ask)
        bounds = {queue: ends for each in of_topics.values() for queue, ends in each.items()}
        read = await cluster.resolved(origin, read, bounds)
        if not faults:  # they may be why a queue isn't known
            check_named("endingOffsets", read.ending, bounds)
        return bounds, read


def _is_meant(topic: str, retries: bool) -> bool:
    if names.is_system(topic) or names.is_light(topic):
        return False
    return retries if names.is_retry_or_dlq(topic) else True


def _without(faults: Mapping[str, RockMQError], archives: Mapping[str, Archive]) -> dict[str, Archive]:
    return {topic: each for topic, each in archives.items() if topic not in faults}


# Plans


def _broken_off(archives: Mapping[str, Archive], read: ReadOptions, faults: dict[str, RockMQError]) -> list[Run]:
    """Runs that are to be gone on with; what keeps a topic from that goes to `faults`."""
    runs = []
    for topic, each in archives.items():
        number, plan, is_done = ArchivedTopic(each.root).last()
        if is_done:
            continue
        try:
            for task in plan.tasks:
                check_source(task, read)
        except ConfigError as error:
            faults[topic] = ConfigError(f"the last run of the archive {each.root} was broken off: {error}")
        else:
            runs.append(Run(topic, ArchivedTopic(each.root), number, plan))
    return runs


def _fresh(
    archives: Mapping[str, Archive],
    bounds: Mapping[MessageQueue, Bounds],
    read: ReadOptions,
    faults: dict[str, RockMQError],
) -> list[Run]:
    """Runs over what comes behind where the last ones have ended; what keeps a topic from that goes to `faults`."""
    places: dict[str, tuple[ArchivedTopic, int, Plan]] = {}
    idle: set[str] = set()
    whole: list[Range] = []
    for topic, each in archives.items():
        shelf = ArchivedTopic(each.root)
        number, plan, is_done = shelf.last()
        here = {queue: ends for queue, ends in bounds.items() if queue.topic == topic}
        said = {queue: plan.ends.get(queue.broker_name, {}).get(queue.queue_id) for queue in here}
        known = {queue: end for queue, end in said.items() if end is not None}
        changes = {"starting_offsets": offsets_json(known) if known else "earliest", "ending_offsets": _ending(read, topic)}
        try:
            if not is_done:
                raise _beaten(topic, shelf)
            _check_same(known, here)
            whole += uncut(here, msgspec.structs.replace(read, **changes))
        except RockMQError as error:
            faults[topic] = error
        else:
            expired = [] if read.fail_on_data_loss else _expired(known, here)
            places[topic] = shelf, number, Plan([], _going_on(plan.ends, here, expired), expired)
            if places[topic][2].ends == plan.ends:
                idle.add(topic)
    for piece in cut(whole, read.min_partitions, read.max_records_per_partition):
        queue = piece.queue
        plan = places[queue.topic][2]
        plan.tasks.append(Task(queue.broker_name, queue.queue_id, piece.start, piece.end))
        plan.ends[queue.broker_name][queue.queue_id] = piece.end
    runs = []
    for topic, (shelf, number, plan) in places.items():
        if not plan.tasks and topic in idle:
            continue
        if shelf.begin(number + 1, plan):
            runs.append(Run(topic, shelf, number + 1, plan))
        else:
            faults[topic] = _beaten(topic, shelf)
    return runs


def _beaten(topic: str, shelf: ArchivedTopic) -> ConfigError:
    return ConfigError(f"another run archives {topic} into {shelf.root} at this time")


def _check_same(archived: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, Bounds]) -> None:
    """Raises DataLoss for a queue that ends before what is archived of it."""
    for queue, end in archived.items():
        if bounds[queue].end < end:
            raise DataLoss(
                f"{name(queue)} ends at {bounds[queue].end} and is archived up to {end}: the topic was made anew, so "
                "archive it into another directory, or this is a copy that is behind"
            )


def _expired(archived: Mapping[MessageQueue, int], bounds: Mapping[MessageQueue, Bounds]) -> list[LostRange]:
    """What isn't archived and isn't there any more; without failOnDataLoss=false this is an error before."""
    return [
        LostRange(queue.broker_name, queue.queue_id, end, bounds[queue].first, "expired before it was archived")
        for queue, end in archived.items()
        if end < bounds[queue].first
    ]


def _going_on(
    archived: Mapping[str, Mapping[int, int]], bounds: Mapping[MessageQueue, Bounds], expired: list[LostRange]
) -> dict[str, dict[int, int]]:
    """Where each queue is gone on with. An empty one has its place, too: what comes to it and expires is missed."""
    ends = {broker: dict(queues) for broker, queues in archived.items()}
    for queue, (first, _) in bounds.items():
        ends.setdefault(queue.broker_name, {}).setdefault(queue.queue_id, first)
    for lost in expired:
        ends[lost.broker][lost.queue_id] = lost.end
    return ends


def _ending(read: ReadOptions, topic: str) -> str:
    """What the option endingOffsets says of one topic."""
    ending = read.ending
    if isinstance(ending, int):
        return read.ending_offsets
    return msgspec.json.encode({topic: ending.get(topic, {})}).decode()


def _reached(
    archives: Mapping[str, Archive], faults: Mapping[str, RockMQError], bounds: Mapping[MessageQueue, Bounds]
) -> dict[MessageQueue, int]:
    """The first message of each queue that isn't archived."""
    ends = {topic: ArchivedTopic(each.root).ends() for topic, each in archives.items() if topic not in faults}
    return {
        queue: ends[queue.topic].get(queue.broker_name, {}).get(queue.queue_id, ends_of_queue.first)
        for queue, ends_of_queue in bounds.items()
        if queue.topic in ends
    }


def raise_faults(faults: Mapping[str, RockMQError]) -> None:
    """What kept topics from being done, by topic."""
    if not faults:
        return
    if len(faults) == 1:
        raise next(iter(faults.values()))
    kind = DataLoss if all(isinstance(each, DataLoss) for each in faults.values()) else RockMQError
    raise kind(f"{len(faults)} topics aren't done: " + "; ".join(f"{topic}: {each}" for topic, each in faults.items()))
