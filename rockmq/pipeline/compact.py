"""Puts the small files of an archive together: those of a queue and a day that follow each other.

Frequent runs leave small files. Their rows are written into larger ones, and a manifest with these instead of them makes the
change at one moment: who goes by the manifest sees each message once at any time, also after a kill at any point. The small
files stay for a while, as who has read the manifest before may still open them; who lists the directory sees their messages
twice until then. A file over half of the largest size stays as it is, so a message is written a few times at most.
"""

import os
from collections.abc import Collection
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ConfigError, RockMQError
from rockmq.pipeline import delta
from rockmq.pipeline.archive import RECORDS_PER_FILE, Archive, raise_faults
from rockmq.pipeline.archive_tasks import Run, carry_out
from rockmq.pipeline.manifest import ArchivedFile, ArchivedTopic, Plan, Task
from rockmq.pipeline.runs import Progress
from rockmq.spark import schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE_BYTES = 512 << 20
"""Files that are put together become no larger; a task holds one small file and a row group in memory."""
KEEP_SECONDS = 3_600.0


def compact(
    spark: "SparkSession",
    directory: str | os.PathLike[str],
    topics: Collection[str] | None = None,
    *,
    records_per_file: int = RECORDS_PER_FILE,
    keep_seconds: float = KEEP_SECONDS,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> list[Archive]:
    """Put together what `archive` has written, of these topics or all that are there; what each now has that is new.

    Small files are removed when they have been replaced for `keep_seconds`, by this or a later call. `directory` must be the
    same for driver and workers. Raises ConfigError for what isn't an archive, or is damaged.
    """
    progress, clock = progress or Progress(), clock or SystemClock()
    if records_per_file < 1:
        raise ConfigError(f"records_per_file is {records_per_file}, expected at least 1")
    shelf = Path(directory).resolve()
    archives = {topic: Archive(topic, shelf / topic) for topic in topics or _topics(shelf)}
    runs, faults = [], {}
    for topic, each in archives.items():
        try:
            runs += _planned(topic, ArchivedTopic(each.root), records_per_file)
        except RockMQError as error:
            faults[topic] = error
    written, failed = carry_out(spark, runs, None, progress)
    for topic, lines in written.items():
        archives[topic].files.extend(lines)
    faults |= failed
    for topic in sorted(archives.keys() - faults):
        progress.begin(f"tidying {topic}")
        root = archives[topic].root
        try:
            # Before anything goes that the table may name.
            if delta.is_table(root):
                delta.catch_up(root, clock)
            progress.add(removed=ArchivedTopic(root).tidy(keep_seconds, clock))
        except RockMQError as error:
            faults[topic] = error
    raise_faults(faults)
    return list(archives.values())


def _topics(shelf: Path) -> list[str]:
    found = sorted(path.parent.name for path in shelf.glob("*/_manifest"))
    if not found:
        raise ConfigError(f"{shelf} holds no archive")
    return found


def _planned(topic: str, archived: ArchivedTopic, records_per_file: int) -> list[Run]:
    number, plan, is_done = archived.last()
    if not number:
        raise ConfigError(f"{archived.root} is no archive of a topic")
    if not is_done:
        if not all(task.files for task in plan.tasks):
            raise ConfigError(f"the last run of the archive {archived.root} was broken off: archive {topic} again first")
        return [Run(topic, archived, number, plan)]
    tasks = _together(archived.files(), records_per_file)
    fresh = Plan(tasks, plan.ends)
    if not tasks:
        return []
    if not archived.begin(number + 1, fresh):
        raise ConfigError(f"another run is at work on {archived.root}")
    return [Run(topic, archived, number + 1, fresh)]


def _together(lines: list[ArchivedFile], rows_max: int) -> list[Task]:
    """What is to become one file each."""
    small = [
        each
        for each in lines
        if each.rows <= rows_max // 2 and each.bytes <= FILE_BYTES // 2 and each.schema_version == schema.VERSION
    ]
    tasks = []
    small.sort(key=lambda each: (each.broker, each.queue_id, each.day, each.start))
    for (broker, queue_id, _), of_day in groupby(small, key=lambda each: (each.broker, each.queue_id, each.day)):
        group: list[ArchivedFile] = []
        for each in [*of_day, None]:
            if group and (each is None or not _fits(group, each, rows_max)):
                if len(group) > 1:
                    tasks.append(Task(broker, queue_id, group[0].start, group[-1].end, group))
                group = []
            if each is not None:
                group.append(each)
    return tasks


def _fits(group: list[ArchivedFile], each: ArchivedFile, rows_max: int) -> bool:
    return (
        each.start == group[-1].end
        and sum(one.rows for one in group) + each.rows <= rows_max
        and sum(one.bytes for one in group) + each.bytes <= FILE_BYTES
    )
