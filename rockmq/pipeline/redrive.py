"""Dead letters (`%DLQ%group`) back to the topics they were sent to (store spec, 6.4; AbstractSendMessageProcessor).

    <directory>/result/run=<n>/         Parquet: what became of each dead letter that run <n> looked at
    <directory>/runs/<n>/chosen/        Parquet: the messages of a run, as they are to be sent, while it isn't done
    <directory>/runs/<n>/plan.json      written when `chosen` is whole
    <directory>/runs/<n>/faults.json    to which topics its messages can't go, written before the first is sent
    <directory>/runs/<n>/outcome.json   written when the result is
    and what `rockmq.pipeline.moving` keeps, with a step for each run

The messages of a run are written down before the first is sent, so that one that was broken off sends just these, whatever
has become of the dead-letter topic and of the options since. A dead letter that a run has moved is never moved again.
"""

import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from pyspark.sql import functions as f

from rockmq.base.errors import ConfigError, NotSupported, RouteNotFound
from rockmq.pipeline.moving import ID, IN_ORDER, Given, Work, asked, carried, explained, message_id, placed, writable
from rockmq.pipeline.runs import Progress
from rockmq.protocol import pop, topics
from rockmq.protocol import properties as names
from rockmq.spark import cluster
from rockmq.spark.options import ConnectionOptions, parse
from rockmq.spark.ranges import offsets_json
from rockmq.spark.schema import COLUMNS
from rockmq.spark.write_options import topic_fault

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REAL_TOPIC = "realTopic"
"""Column of a dead letter: the topic that it was sent to, and goes back to."""

TRIES = "concat(reconsumeTimes, ' tries')"
"""What dead letters are counted by, unless told otherwise: how often they had been given back."""

TOPICS_MAX = 1_000
"""Dead letters of one group that were sent to more topics than that aren't redriven at once; a filter makes them fewer."""

_PLACE = (ID, "topic", "broker", "queueId", "queueOffset", "msgId", "storeTimestamp")
_TYPES = {
    **{column: (COLUMNS[column].spark,) for column in _PLACE[1:]},
    ID: ("string",),
    REAL_TOPIC: ("string",),
    "tags": ("string",),
    "keys": ("string",),
    "shardingKey": ("string",),
    "properties": (COLUMNS["properties"].spark,),
    "body": ("binary", "string"),
}
"""What a transformation has to leave, and of which types."""

_SAID_BY_COLUMNS = (names.TAGS, names.KEYS, names.SHARDING_KEY)
_NO_TOPIC = f"none of its properties {names.DLQ_ORIGIN_TOPIC} and {names.RETRY_TOPIC} names the topic that it was sent to"
_LEFT_OUT = "the transformation left it out"

Transform = Callable[["DataFrame"], "DataFrame"]
"""From dead letters to messages, a row for a row: the columns of a read, `realTopic`, and `id`, which stays as it is."""


class Group(NamedTuple):
    """So many dead letters of a topic; `reason` is why they can't be moved, or empty."""

    topic: str
    by: str
    reason: str
    rows: int


class Outcome(msgspec.Struct, frozen=True):
    """How many dead letters were moved; how many were skipped, and failed, for a reason that the result tells."""

    moved: int = 0
    skipped: int = 0
    failed: int = 0

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(self.moved + other.moved, self.skipped + other.skipped, self.failed + other.failed)


class Plan(msgspec.Struct, frozen=True):
    """A run whose messages are written down: of which group, and how many."""

    group: str
    rows: int


class Faults(msgspec.Struct, frozen=True):
    """Why nothing is sent to topics, of those to which that is so: judged once in a run."""

    topics: dict[str, str]


def count(
    spark: "SparkSession",
    name_server: str,
    group: str,
    directory: str | os.PathLike[str],
    *,
    filter: str = "",
    transform: Transform | None = None,
    limit: int = 0,
    by: str = TRIES,
    options: Mapping[str, str] | None = None,
) -> list[Group]:
    """What a redrive would move and skip, by topic, `by` (an expression in Spark's SQL over the dead letters' columns) and
    reason. Nothing is sent or written. Raises as `redrive`."""
    given = Given(name_server, options or {})
    letters = _letters(spark, given, group, Path(directory).resolve(), filter, limit)
    with explained("by"):
        said = letters.select(ID, f.expr(f"string({by})").alias("by"))
        said.schema  # noqa: B018  (Spark Connect looks at things only when it is asked for something)
    with explained():
        changed = _changed(letters, transform)
        rows = _judged(changed, _faults(given.connection, changed)).join(said, ID, "left")
        counted = rows.groupBy(REAL_TOPIC, "by", "reason").count().collect()
    return sorted(Group(row[REAL_TOPIC] or "", row["by"] or "", row["reason"] or "", row["count"]) for row in counted)


def redrive(
    spark: "SparkSession",
    name_server: str,
    group: str,
    directory: str | os.PathLike[str],
    *,
    filter: str = "",
    transform: Transform | None = None,
    limit: int = 0,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Send the group's dead letters, oldest first, to where they were sent to at first; tries begin anew.

    `filter` is a condition in Spark's SQL over the columns of a read and `realTopic`; `limit` is how many at most, 0 for all
    of them. `transform` changes what is sent: body, tags, keys, shardingKey, properties, realTopic. What it leaves out, and
    what has no topic to go to, is skipped, for a later call to look at again; what was moved before isn't looked at.
    `directory` must be the same for this program, the driver and the workers. A call that was broken off is finished by the
    next one before it does its own. `options` are those of source and sink (timeout, accessKey, maxMessageSize, …).

    Every group that consumes the topics gets the messages. What became of them is the Parquet table `directory`/result.
    Raises ConfigError, RockMQError.
    """
    progress = progress or Progress()
    given = Given(name_server, options or {})
    with Work(directory) as place:
        total, number = Outcome(), 1
        while (begun := place.load(f"runs/{number}/plan.json", Plan)) is not None:
            if begun.group != group:
                raise ConfigError(f"{place.directory} is of group {begun.group}, not {group}; choose another directory")
            if place.load(f"runs/{number}/outcome.json", Outcome) is None:
                total += _send(spark, given, place, number, begun, progress)
            number += 1
        progress.begin(f"looking at the dead letters of {group}")
        letters = _letters(spark, given, group, place.directory, filter, limit)
        plan = _write_down(spark, _changed(letters, transform), place, number, group)
        if plan is not None:
            total += _send(spark, given, place, number, plan, progress)
    progress.result("result", place.directory / "result")
    return total


# What there is


def _letters(spark: "SparkSession", given: Given, group: str, directory: Path, filter: str, limit: int) -> "DataFrame":
    """The dead letters that weren't moved yet, those that are there now."""
    if fault := topics.group_fault(group):
        raise ConfigError(fault)
    if limit < 0:
        raise ConfigError(f"limit is {limit}, expected 0 for all, or how many")
    topic = topics.dead_letter_topic(group)
    read = parse({**given.read, "topic": topic})
    try:
        bounds = asked(given.connection, lambda client: cluster.bounds_of(client, read))
    except RouteNotFound as error:
        raise ConfigError(f"group {group} has no dead letters: {error}") from None
    options = {
        "topic": topic,
        "startingOffsets": offsets_json({queue: each.first for queue, each in bounds.items()}),
        "endingOffsets": offsets_json({queue: each.end for queue, each in bounds.items()}),
    }
    with explained():
        rows = spark.read.format("rockmq").options(**given.read, **options).load()
        said = (f.col("properties")[name] for name in (names.DLQ_ORIGIN_TOPIC, names.RETRY_TOPIC))
        retry = "|".join(re.escape(name("", group)) for name in (pop.retry_topic, pop.retry_topic_v2))
        real = f.regexp_replace(f.coalesce(*said), f"^({retry})", "")  # what a consumer by pop got again came from there
        rows = rows.withColumn(REAL_TOPIC, real).withColumn(ID, message_id())
        if (directory / "result").is_dir():
            results = spark.read.schema("id string, outcome string").parquet(f"file:{directory / 'result'}")
            rows = rows.join(results.where("outcome = 'moved'").select(ID), ID, "left_anti")
    if filter:
        with explained("filter"):
            rows = rows.where(filter)
            rows.schema  # noqa: B018
    return placed(rows).orderBy(*IN_ORDER).limit(limit).drop("place") if limit else rows


def _changed(letters: "DataFrame", transform: Transform | None) -> "DataFrame":
    """What is to be sent of dead letters; with a column `reason`, which says why a row can't be, or null."""
    with explained("transform"):
        changed = letters if transform is None else transform(letters)
        types = {field.name: field.dataType.simpleString() for field in changed.schema.fields}
    for column, allowed in _TYPES.items():
        if types.get(column) not in allowed:
            found = f"makes column {column!r} {types[column]}" if column in types else f"leaves no column {column!r}"
            raise ConfigError(f"transform: it {found}: expected {' or '.join(allowed)}")
    columns = [f.col(column).cast("binary").alias(column) if column == "body" else f.col(column) for column in _TYPES]
    with explained("transform"):
        rows = changed.select(*columns, f.lit(None).cast("string").alias("reason"))
        rows.schema  # noqa: B018
    if transform is None:
        return rows
    left_out = letters.join(changed.select(ID), ID, "left_anti")
    return rows.unionByName(left_out.select(*_TYPES, f.lit(_LEFT_OUT).alias("reason")))


def _faults(connection: ConnectionOptions, rows: "DataFrame") -> Faults:
    """To which topics of the rows nothing can be sent now."""
    found = rows.where("reason is null").select(REAL_TOPIC).distinct().limit(TOPICS_MAX + 1).collect()
    if len(found) > TOPICS_MAX:
        raise ConfigError(f"the dead letters go to more than {TOPICS_MAX} topics; a filter makes them fewer")
    real = sorted(row[REAL_TOPIC] for row in found if row[REAL_TOPIC] is not None)
    return Faults(asked(connection, lambda client: _faults_of(client, real)))


def _judged(rows: "DataFrame", faults: Faults) -> "DataFrame":
    """The same, with a reason for rows without a topic that can be written to."""
    reason = f.when(f.col(REAL_TOPIC).isNull(), _NO_TOPIC)
    for topic, fault in faults.topics.items():
        reason = reason.when(f.col(REAL_TOPIC) == topic, fault)
    return rows.withColumn("reason", f.coalesce("reason", reason))


async def _faults_of(client: cluster.Brokers, real: list[str]) -> dict[str, str]:
    """Why nothing can be sent to topics, of those to which that is so."""
    found = {}
    for topic in real:
        fault = topic_fault(topic)
        if fault is None:
            try:
                await writable(client, topic)
            except (ConfigError, NotSupported) as error:
                fault = str(error)
            except RouteNotFound:
                fault = f"there is no topic {topic} any more"
        if fault is not None:
            found[topic] = fault
    return found


# A run


def _write_down(spark: "SparkSession", rows: "DataFrame", place: Work, number: int, group: str) -> Plan | None:
    """Have the messages of a run written, whatever becomes of it; None when there are none."""
    chosen = _chosen(place, number)
    with explained():
        rows.write.mode("overwrite").parquet(f"file:{chosen}")
        if not chosen.is_dir():
            raise ConfigError(
                f"{place.directory} isn't the same directory here and where Spark's workers run; expected one that all share"
            )
        ((rows_written, ids),) = spark.read.parquet(f"file:{chosen}").select(f.count("*"), f.count_distinct(ID)).collect()
    if rows_written != ids:
        raise ConfigError(
            f"transform: it makes {rows_written} rows of {ids} dead letters, which can't be told apart; expected one of each"
        )
    if not rows_written:
        shutil.rmtree(chosen.parent, ignore_errors=True)
        return None
    plan = Plan(group, rows_written)
    place.save(f"runs/{number}/plan.json", plan)
    return plan


def _chosen(place: Work, number: int) -> Path:
    return place.directory / "runs" / str(number) / "chosen"


def _send(spark: "SparkSession", given: Given, place: Work, number: int, plan: Plan, progress: Progress) -> Outcome:
    """Send what is written down, and write what became of it."""
    progress.begin(f"redriving dead letters of {plan.group}", rows=progress.counts["rows"] + plan.rows)
    step = f"{number:06}"
    with explained():
        chosen = spark.read.parquet(f"file:{_chosen(place, number)}")
        faults = place.load(f"runs/{number}/faults.json", Faults)
        if faults is None:
            faults = _faults(given.connection, chosen)
            place.save(f"runs/{number}/faults.json", faults)
        rows = _judged(chosen, faults)
        # One task: in the order in which they came, also of a key that was in several queues.
        messages = placed(rows.where("reason is null")).repartition(1).sortWithinPartitions(*IN_ORDER)
    columns = (ID, "tags", "keys", "shardingKey", "body")
    properties = carried(without=_SAID_BY_COLUMNS).alias("properties")
    messages = messages.select(*columns, f.col(REAL_TOPIC).alias("topic"), properties)
    if place.done(step) is None:
        place.send(step, messages, given.write, progress)
    with explained():
        outcome = f.when(f.col("reason").isNull(), "moved").otherwise("skipped")
        if bad := [f"file:{path}" for path in (place.directory / "bad").glob(f"{step}-*.parquet")]:
            failed = spark.read.parquet(*bad).select(ID, f.col("reason").alias("fault"))
            rows = rows.join(failed, ID, "left")
            outcome = f.when(f.col("fault").isNotNull(), "failed").otherwise(outcome)
            rows = rows.withColumn("outcome", outcome).withColumn("reason", f.coalesce("fault", "reason"))
        else:
            rows = rows.withColumn("outcome", outcome)
        table = rows.select(ID, REAL_TOPIC, "broker", "queueId", "queueOffset", "msgId", "outcome", "reason")
        path = f"file:{place.directory / 'result' / f'run={number}'}"
        table.coalesce(1).write.mode("overwrite").parquet(path)
        counts = {row["outcome"]: row["count"] for row in spark.read.parquet(path).groupBy("outcome").count().collect()}
    done = Outcome(**counts)
    place.save(f"runs/{number}/outcome.json", done)
    shutil.rmtree(_chosen(place, number), ignore_errors=True)
    progress.add(**{name: count for name, count in counts.items() if name != "moved"})
    return done
