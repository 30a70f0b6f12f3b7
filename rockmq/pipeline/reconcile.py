"""What was sent against what is stored against what was consumed.

Messages are compared by an id. Each has a place in time, when it was sent (else stored, else consumed), which falls into a
window; a run writes the windows it looks at, and writes the same when it looks at them again:

    <directory>/faults/<window>.parquet     a row for each message and fault, `FAULTS`
    <directory>/windows/<window>.parquet    a row: how many of each stage and fault, how long it took
    <directory>/bad_rows/                   what of the ledgers couldn't be read, and why
    <directory>/report.html                 the same for people, of the windows of the last run
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ConfigError
from rockmq.pipeline import plots
from rockmq.pipeline.report import Report
from rockmq.pipeline.runs import Progress
from rockmq.pipeline.tables import WINDOW, overwrite, overwrite_windows
from rockmq.protocol.bodies.common import MessageQueue

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

WINDOW_SECONDS = 3600
LATE_SECONDS = 60.0
EXAMPLES = 20
"""Of each fault, in the report."""
WINDOWS_MAX = 100_000
"""Windows of one run: its report has them all in memory."""

FAULTS = {
    "lost": "acknowledged, and not stored",
    "duplicated": "stored more than once",
    "outOfOrder": "stored in its queue behind a later one of its key",
    "notConsumed": "stored, and not consumed in time",
    "late": "consumed later than allowed; where consumption isn't looked at, stored later than allowed",
    "consumedOutOfOrder": "consumed after a later one of its key",
    "consumedAgain": "consumed more than once",
    "notSent": "stored, and in no ledger of sends: a send that wasn't acknowledged may still be stored",
    "notStored": "consumed, and not stored (any more)",
}
"""What can be wrong, in words."""
HARMLESS = frozenset({"consumedAgain", "notSent"})
"""What at-least-once delivery allows: told, but no reason to worry."""


_TIMES = ("sentTime", "storedTime", "consumedTime")


@dataclass(frozen=True)
class Reconciliation:
    """Distinct messages of each stage, how many have which fault, and where it is told."""

    sent: int
    stored: int
    consumed: int | None
    pending: int
    """Stored so shortly before the end that they need not have been consumed."""
    faults: dict[str, int]
    bad_rows: int
    report: Path

    @property
    def clean(self) -> bool:
        """Nothing is wrong but what at-least-once delivery allows."""
        return not any(count for fault, count in self.faults.items() if fault not in HARMLESS)


def reconcile(
    spark: "SparkSession",
    sent: "DataFrame",
    stored: "DataFrame",
    directory: str | os.PathLike[str],
    *,
    consumed: "DataFrame | None" = None,
    offsets: Mapping[MessageQueue, int] | None = None,
    bad_rows: "DataFrame | None" = None,
    name: str = "messages",
    window_seconds: int = WINDOW_SECONDS,
    late_seconds: float = LATE_SECONDS,
    since_ms: int | None = None,
    until_ms: int | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Reconciliation:
    """Compare, and write the tables and a report below `directory`, which driver and executors share.

    `sent` and `consumed` have columns id, time, may have key and seq (rockmq.pipeline.ledgers), and `sent` delayed: true
    where a message counts as sent when it is stored, and not before. `stored` has id, topic, broker, queueId, queueOffset,
    storeTimestamp. Instead of `consumed` a group's `offsets` may be given, of all queues of `stored`: what is before them
    counts as consumed. Order is looked at where there are key and seq. Looked at are messages from the beginning of the
    window of `since_ms` on, and before `until_ms`, by default now. Rows of `bad_rows` are written to the table of that name.
    Raises ConfigError.
    """
    from pyspark.sql import functions as F

    if not 1 <= window_seconds <= 7 * 86_400:
        raise ConfigError(f"window_seconds is {window_seconds}, expected 1 to {7 * 86_400}")
    if late_seconds < 0:
        raise ConfigError(f"late_seconds is {late_seconds}, expected 0 or more")
    if consumed is not None and offsets is not None:
        raise ConfigError("consumption can be told by a ledger or by offsets, not by both")
    progress = progress or Progress()
    until_ms = (clock or SystemClock()).now_ms() if until_ms is None else until_ms
    job = _Job(
        window_seconds,
        late_seconds,
        None if since_ms is None else since_ms // (window_seconds * 1_000) * window_seconds * 1_000,
        until_ms,
        looks_at_consumption=consumed is not None or offsets is not None,
    )
    if job.since_ms is not None and until_ms - job.since_ms > WINDOWS_MAX * window_seconds * 1_000:
        raise job.too_many()
    root = Path(directory)
    progress.begin("comparing")
    judged = job.judged(job.joined(sent, stored, consumed, _offsets_frame(spark, offsets))).persist()
    try:
        summary = job.summary(judged)
        told = summary.orderBy(WINDOW).limit(WINDOWS_MAX + 1).withColumn(WINDOW, F.unix_millis(WINDOW))
        windows = [row.asDict() for row in told.collect()]
        if len(windows) > WINDOWS_MAX:
            raise job.too_many()
        if offsets is not None:
            job.check_queues(judged, offsets)
        progress.begin("writing")
        looked_at = job.windows(spark, [window[WINDOW] for window in windows])
        overwrite_windows(job.faults(judged), looked_at, root, "faults")
        overwrite_windows(summary, looked_at, root, "windows")
        examples = job.examples(judged)
    finally:
        judged.unpersist()
    bad = 0
    if bad_rows is not None:
        bad = overwrite(bad_rows, root, "bad_rows")
    result = Reconciliation(
        sent=_sum(windows, "sent"),
        stored=_sum(windows, "stored"),
        consumed=_sum(windows, "consumed") if job.looks_at_consumption else None,
        pending=_sum(windows, "pending"),
        faults={fault: _sum(windows, fault) for fault in FAULTS},
        bad_rows=bad,
        report=root / "report.html",
    )
    _report(name, job, result, windows, examples).save(result.report)
    progress.add(sent=result.sent, stored=result.stored, consumed=result.consumed or 0, faults=_bad(result))
    for fault, count in result.faults.items():
        if count:
            progress.result(f"{fault} ({FAULTS[fault]})", f"{count:,}")
    if bad:
        progress.result("bad rows", f"{bad:,}")
    progress.result("report", result.report)
    return result


@dataclass(frozen=True)
class _Job:
    """How a run looks at messages; each method is a step on data frames."""

    window_seconds: int
    late_seconds: float
    since_ms: int | None
    until_ms: int
    looks_at_consumption: bool

    def too_many(self) -> ConfigError:
        return ConfigError(
            f"there are over {WINDOWS_MAX:,} windows of {self.window_seconds} s; choose longer ones, or less time"
        )

    def joined(
        self, sent: "DataFrame", stored: "DataFrame", consumed: "DataFrame | None", offsets: "DataFrame | None"
    ) -> "DataFrame":
        """A row for each id, with what each stage says."""
        from pyspark.sql import functions as F

        for column, kind in (("key", "string"), ("seq", "bigint"), ("delayed", "boolean")):
            if column not in sent.columns:
                sent = sent.withColumn(column, F.lit(None).cast(kind))
        sends = sent.groupBy("id").agg(
            F.min("time").alias("sentTime"),
            F.min("key").alias("key"),
            F.min("seq").alias("seq"),
            F.max("delayed").alias("delayed"),
        )
        if offsets is not None:
            before = F.col("queueOffset") < F.coalesce("groupOffset", F.lit(0))
            stored = stored.join(F.broadcast(offsets), ["topic", "broker", "queueId"], "left").withColumn("taken", before)
        else:
            stored = stored.withColumn("taken", F.lit(False))
        place = F.struct("storeTimestamp", "topic", "broker", "queueId", "queueOffset")
        stores = stored.groupBy("id").agg(
            F.count("*").alias("storedTimes"), F.min(place).alias("place"), F.max("taken").alias("taken")
        )
        both = sends.join(stores, "id", "full")
        if consumed is None:
            taken = F.when(F.col("taken"), 1).otherwise(0)
            both = both.withColumns({"consumedTimes": taken, "consumedTime": F.lit(None).cast("timestamp")})
        else:
            ends = consumed.groupBy("id").agg(F.count("*").alias("consumedTimes"), F.min("time").alias("consumedTime"))
            both = both.join(ends, "id", "full")
        return both.select(
            "id",
            "key",
            "seq",
            F.when(F.col("delayed"), F.col("place.storeTimestamp")).otherwise(F.col("sentTime")).alias("sentTime"),
            F.col("place.storeTimestamp").alias("storedTime"),
            "consumedTime",
            F.coalesce("storedTimes", F.lit(0)).alias("storedTimes"),
            F.coalesce("consumedTimes", F.lit(0)).alias("consumedTimes"),
            *(F.col(f"place.{name}").alias(name) for name in ("topic", "broker", "queueId", "queueOffset")),
        )

    def judged(self, joined: "DataFrame") -> "DataFrame":
        """The same in their windows, with the faults of each."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        # A message without an order is a key of its own: all of them as one would be the work of one task.
        has_order = F.col("key").isNotNull() & F.col("seq").isNotNull()
        series = F.when(has_order, F.concat(F.lit("k"), "key")).otherwise(F.concat(F.lit("i"), "id"))
        before = Window.partitionBy("series", "topic", "broker", "queueId").orderBy("queueOffset")
        before = before.rowsBetween(Window.unboundedPreceding, -1)
        earlier = Window.partitionBy("series").orderBy(F.unix_micros("consumedTime"))
        earlier = earlier.rangeBetween(Window.unboundedPreceding, -1)
        is_sent, is_stored = F.col("sentTime").isNotNull(), F.col("storedTimes") > 0
        is_consumed = F.col("consumedTimes") > 0
        frame = joined.withColumn("series", series).withColumns(
            {
                "highestStored": F.max("seq").over(before),
                "highestConsumed": F.max(F.when(F.col("consumedTime").isNotNull(), F.col("seq"))).over(earlier),
                "time": F.coalesce("sentTime", "storedTime", "consumedTime"),
            }
        )
        seconds = self._seconds_late()
        due = F.timestamp_millis(F.lit(int(self.until_ms - self.late_seconds * 1_000)))
        waits = is_stored & ~is_consumed & F.lit(self.looks_at_consumption)
        rules = {
            "lost": is_sent & ~is_stored,
            "duplicated": F.col("storedTimes") > 1,
            "outOfOrder": is_stored & (F.col("seq") < F.col("highestStored")),
            "notConsumed": waits & (F.col("storedTime") <= due),
            "late": seconds > self.late_seconds,
            "consumedOutOfOrder": F.col("consumedTime").isNotNull() & (F.col("seq") < F.col("highestConsumed")),
            "consumedAgain": F.col("consumedTimes") > 1,
            "notSent": is_stored & ~is_sent,
            "notStored": is_consumed & ~is_stored,
        }
        assert rules.keys() == FAULTS.keys()
        found = F.array_compact(F.array(*(F.when(rule, F.lit(fault)) for fault, rule in rules.items())))
        size = self.window_seconds
        window = F.timestamp_seconds(F.floor(F.unix_seconds("time") / F.lit(size)).cast("bigint") * size)
        frame = frame.withColumns(
            {
                WINDOW: window,
                "seconds": seconds,
                "found": found,
                "pending": waits & (F.col("storedTime") > due),
            }
        )
        frame = frame.where(F.col("time") < F.timestamp_millis(F.lit(self.until_ms)))
        if self.since_ms is not None:
            frame = frame.where(F.col("time") >= F.timestamp_millis(F.lit(self.since_ms)))
        return frame.drop("series", "highestStored", "highestConsumed", "time")

    def check_queues(self, judged: "DataFrame", offsets: Mapping[MessageQueue, int]) -> None:
        """Raises ConfigError for messages in a queue of which the offsets say nothing: all would be told as not consumed."""
        places = judged.where("queueId is not null").select("topic", "broker", "queueId").distinct().collect()
        if unknown := {MessageQueue(*place) for place in places} - offsets.keys():
            least = min(unknown)
            raise ConfigError(
                f"messages are stored in queue {least.queue_id} of {least.topic} on {least.broker_name}, and the group's "
                "offsets don't have it: are they of the same cluster, and the broker's name right?"
            )

    def _seconds_late(self) -> "Column":
        """Between the last two stages that are looked at."""
        from pyspark.sql import functions as F

        first, second = ("storedTime", "consumedTime") if self.looks_at_consumption else ("sentTime", "storedTime")
        start = F.coalesce(first, "sentTime")
        return (F.unix_micros(second) - F.unix_micros(start)) / F.lit(1e6)

    def faults(self, judged: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        return judged.select(
            WINDOW, "id", F.explode("found").alias("fault"), "key", "seq", "storedTimes", "consumedTimes", "sentTime",
            "storedTime", "consumedTime", "seconds", "topic", "broker", "queueId", "queueOffset",
        )  # fmt: skip

    def summary(self, judged: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as F

        def counted(condition: "Column") -> "Column":
            return F.count_if(condition)

        quantiles = F.percentile_approx("seconds", [0.5, 0.99])
        return (
            judged.groupBy(WINDOW)
            .agg(
                counted(F.col("sentTime").isNotNull()).alias("sent"),
                counted(F.col("storedTimes") > 0).alias("stored"),
                counted(F.col("consumedTimes") > 0).alias("consumed"),
                counted(F.col("pending")).alias("pending"),
                *(counted(F.array_contains("found", fault)).alias(fault) for fault in FAULTS),
                quantiles.alias("quantiles"),
                F.max("seconds").alias("secondsMax"),
            )
            .withColumn("secondsMedian", F.col("quantiles")[0])
            .withColumn("seconds99", F.col("quantiles")[1])
            .drop("quantiles")
        )

    def windows(self, spark: "SparkSession", found_ms: list[int]) -> "DataFrame":
        """All windows that were looked at, as far as that is known: those in which there is nothing any more, too."""
        if self.since_ms is not None:
            first, last = self.since_ms // 1_000, (self.until_ms - 1) // 1_000
            return spark.range(first, last + 1, self.window_seconds).selectExpr(f"timestamp_seconds(id) {WINDOW}")
        return spark.createDataFrame([(each,) for each in found_ms], "ms bigint").selectExpr(
            f"timestamp_millis(ms) {WINDOW}"
        )

    def examples(self, judged: "DataFrame") -> dict[str, list[dict[str, Any]]]:
        """Some of each fault, the first by window and id."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        order = Window.partitionBy("fault").orderBy(WINDOW, "id")
        first = self.faults(judged).withColumn("number", F.row_number().over(order)).where(F.col("number") <= EXAMPLES)
        found: dict[str, list[dict[str, Any]]] = {fault: [] for fault in FAULTS}
        # Milliseconds: a datetime of Spark's is in the time zone of whoever collects it.
        told = first.orderBy("fault", "number").withColumns({name: F.unix_millis(name) for name in _TIMES})
        for row in told.collect():
            found[row["fault"]].append(row.asDict())
        return found


def _offsets_frame(spark: "SparkSession", offsets: Mapping[MessageQueue, int] | None) -> "DataFrame | None":
    if offsets is None:
        return None
    rows = [(queue.topic, queue.broker_name, queue.queue_id, offset) for queue, offset in offsets.items()]
    return spark.createDataFrame(rows, "topic string, broker string, queueId int, groupOffset bigint")


def _sum(windows: list[dict[str, Any]], name: str) -> int:
    return sum(int(window[name]) for window in windows)


def _bad(result: Reconciliation) -> int:
    return sum(count for fault, count in result.faults.items() if fault not in HARMLESS)


# What people read


def _report(
    name: str,
    job: _Job,
    result: Reconciliation,
    windows: list[dict[str, Any]],
    examples: Mapping[str, list[dict[str, Any]]],
) -> Report:
    report = Report(f"Reconciliation of {name}", _about(job, windows))
    if result.clean and not result.sent:
        report.verdict("Nothing was sent in this time.", good=False)
    elif result.clean:
        report.verdict(f"All of {result.sent:,} messages that were sent are accounted for.", good=True)
    else:
        worst = [f"{count:,} {fault}" for fault, count in result.faults.items() if count and fault not in HARMLESS]
        report.verdict(f"Of {result.sent:,} messages that were sent: {', '.join(worst)}.", good=False)
    stages: dict[str, int | None] = {"sent": result.sent, "stored": result.stored, "consumed": result.consumed}
    stages |= {"pending": result.pending} if job.looks_at_consumption else {}
    report.table([{"stage": stage, "messages": count} for stage, count in stages.items() if count is not None])
    if result.bad_rows:
        report.note(f"{result.bad_rows:,} rows of the ledgers couldn't be read; table bad_rows says why.")
    report.heading("Faults")
    report.table([{"fault": fault, "messages": result.faults[fault], "": words} for fault, words in FAULTS.items()])
    for svg in charts(job.looks_at_consumption, windows):
        report.chart(svg)
    for fault, rows in examples.items():
        if rows:
            report.heading(f"{fault}: {FAULTS[fault]}", f"{len(rows)} of {result.faults[fault]:,}; table faults has all.")
            report.table([_example(row) for row in rows])
    return report


def charts(looks_at_consumption: bool, windows: list[dict[str, Any]]) -> list[str]:
    """Pictures of the windows' rows, whose time is in milliseconds: messages, faults, delays."""
    at = [window[WINDOW] for window in windows]
    stages = ["sent", "stored", "consumed"] if looks_at_consumption else ["sent", "stored"]

    def line(column: str) -> list[tuple[float, float | None]]:
        return [(time, window[column]) for time, window in zip(at, windows, strict=True)]

    names = [plots.clock(time, "%m-%d %H:%M") for time in at]
    there = {fault: [window[fault] for window in windows] for fault in FAULTS if _sum(windows, fault)}
    delay = "stored to consumed" if looks_at_consumption else "sent to stored"
    found = [plots.lines("Messages per window", {stage: line(stage) for stage in stages})]
    if there:
        found.append(plots.columns("Faults per window", names, there))
    columns = {"half": "secondsMedian", "99 of 100": "seconds99", "all": "secondsMax"}
    delays = {f"{words} within": line(column) for words, column in columns.items()}
    return [*found, plots.lines(f"Seconds from {delay}", delays, unit=" s")]


def _about(job: _Job, windows: list[dict[str, Any]]) -> str:
    ends = "" if not windows else f"from {plots.clock(windows[0][WINDOW])} "
    late = f"late after {job.late_seconds:g} s"
    return f"{ends}to {plots.clock(job.until_ms)} UTC, in windows of {job.window_seconds:,} s; {late}"


def _example(row: Mapping[str, Any]) -> dict[str, object]:
    place = "" if row["queueId"] is None else f"{row['broker']}/{row['queueId']} at {row['queueOffset']}"
    times = {words: row[column] for words, column in zip(("sent", "stored", "consumed"), _TIMES, strict=True)}
    return {
        "id": row["id"],
        "key": row["key"],
        "seq": row["seq"],
        **{words: None if time is None else plots.clock(time) for words, time in times.items()},
        "times stored": row["storedTimes"],
        "consumed ": row["consumedTimes"],
        "seconds": row["seconds"],
        "place": place,
    }
