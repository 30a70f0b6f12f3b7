"""What message trace says of producers and consumers, as tables and a report (clients' spec, 2.10).

    <directory>/consumptions    a row for each time a consumer got a message, with its send where that is traced
    <directory>/latency         per minute, topic, group and what: how many, how many failed, quantiles in milliseconds
    <directory>/consumers       per group and topic: the slowest first
    <directory>/failures        per group, topic and cause, with an example
    <directory>/retry_storms    per group and topic: minutes in which mostly retries came
    <directory>/bad_rows        what was no record, and why
    <directory>/report.html     the same for people

`what` is `send` (until the broker had answered), `wait` (from there to a consumer, of first deliveries that weren't delayed
by wish) or `handle` (in the handler). A record counts once however often it was stored: by kind, message id and request id.
Java's client divides the time of a batch by its messages.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rockmq.base.errors import ConfigError
from rockmq.client.trace import DELAY, HALF
from rockmq.pipeline import plots, trace_records
from rockmq.pipeline.report import Report
from rockmq.pipeline.runs import Progress
from rockmq.pipeline.tables import overwrite, rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SLOW_MS = 1_000
NEVER_ENDED_MS = 60_000
"""A consumption without an end so long before the last record never ended."""
STORM_RETRIES = 20
STORM_SHARE = 0.5
"""A minute is stormy when a group gets so many retries of a topic, and they are this share of all it gets."""
SERIES_MAX = 6
"""Lines of a chart: the topics or groups with most messages."""
CHARTED_MAX = 50_000
"""Rows of `latency` that the report's charts are made of."""

_MINUTE_MS = 60_000
_CAUSES = {1: "longer than its time-out", 2: "exception", 3: "returned null", 4: "refused"}
_UNKNOWN = "(unknown)"
"""The topic of a message whose send isn't traced, as records of consumers don't say it; and the group of a consumption whose
beginning isn't there, where older clients tell it."""


@dataclass(frozen=True)
class Traced:
    """How many there are of each, and where it is told. `slow` are the groups whose slowest hundredth is over the limit."""

    records: int
    bad_rows: int
    sends: int
    consumptions: int
    failures: int
    storms: int
    slow: list[str]
    report: Path


def records(bodies: "DataFrame") -> "DataFrame":
    """The records in column `body` of trace messages: columns of `trace_records.SCHEMA`, a row for each message."""
    from pyspark.sql import functions as F

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield trace_records.decode(batch.column(0))

    found = bodies.select("body").mapInArrow(work, trace_records.DDL)
    # Java's client tells a batch in one record, with all ids.
    return found.withColumn("msg_id", F.explode_outer(F.split("msg_id", ",")))


def sends(found: "DataFrame", topic: str) -> "DataFrame":
    """The acknowledged sends to a topic as a ledger (rockmq.pipeline.ledgers): id and time, and whether it is `delayed`.

    A half message is none before its commit, and neither is one that was recalled.
    """
    from pyspark.sql import functions as F

    told = found.where("reason is null and kind in ('Pub', 'EndTransaction', 'Recall')").where(F.col("topic") == topic)
    by_message = told.groupBy("msg_id").agg(
        F.expr("min(time_ms + cost_ms) filter (where kind = 'Pub')").alias("sent_ms"),
        F.expr("min(time_ms) filter (where kind = 'EndTransaction' and state = 'COMMIT_MESSAGE')").alias("commit_ms"),
        F.expr("max(message_kind) filter (where kind = 'Pub')").alias("message_kind"),
        F.count_if(F.expr("kind = 'Recall' and success")).alias("recalls"),
    )
    stays = f"sent_ms is not null and recalls = 0 and (not message_kind <=> {HALF} or commit_ms is not null)"
    time = "timestamp_millis(coalesce(commit_ms, sent_ms)) time"
    return by_message.where(stays).selectExpr("msg_id id", time, f"message_kind <=> {DELAY} delayed")


def consumptions_of(found: "DataFrame", group: str) -> "DataFrame":
    """What a group has consumed with success, as a ledger: id and time. A consumption that is told twice is one."""
    from pyspark.sql import functions as F

    # Older clients, and Java's in the cloud, tell group and time only where a consumption begins.
    told = found.where("reason is null and kind in ('SubBefore', 'SubAfter')").groupBy("msg_id", "request_id")
    once = told.agg(
        F.min("group").alias("group"),
        F.count_if(F.expr("kind = 'SubAfter' and success")).alias("ends"),
        F.expr("min(time_ms) filter (where kind = 'SubAfter')").alias("end_ms"),
        F.expr("min(time_ms) filter (where kind = 'SubBefore') + min(cost_ms)").alias("counted_ms"),
    )
    return (
        once.where("ends > 0")
        .where(F.col("group") == group)
        .selectExpr("msg_id id", "timestamp_millis(coalesce(end_ms, counted_ms)) time")
    )


def trace(
    spark: "SparkSession",
    bodies: "DataFrame",
    directory: str | os.PathLike[str],
    *,
    slow_ms: int = SLOW_MS,
    progress: Progress | None = None,
) -> Traced:
    """Make the tables and the report of trace messages, whose bodies are column `body`; what was there is replaced.

    `directory` is shared by driver and executors. Raises ConfigError.
    """
    from pyspark.sql import functions as F

    if slow_ms < 1:
        raise ConfigError(f"slow_ms is {slow_ms}, expected at least 1")
    progress = progress or Progress()
    root = Path(directory)
    progress.begin("decoding")
    found = records(bodies).persist()
    once = _once(found.where("reason is null")).persist()
    try:
        count, bad, last_ms = found.agg(
            F.count("*"), F.count("reason"), F.max(F.when(F.col("reason").isNull(), F.col("time_ms")))
        ).collect()[0]
        progress.add(records=count - bad)
        overwrite(found.where("reason is not null").select("text", "reason"), root, "bad_rows")
        published = _published(once)
        overwrite(_consumptions(once, published, (last_ms or 0) - NEVER_ENDED_MS), root, "consumptions")
        progress.begin("counting")
        done = spark.read.parquet(f"file://{(root / 'consumptions').resolve()}")
        overwrite(_latency(published, done).coalesce(1), root, "latency")
        overwrite(_consumers(done, slow_ms).coalesce(1), root, "consumers")
        overwrite(_failures(published, done).coalesce(1), root, "failures")
        overwrite(_storms(done).coalesce(1), root, "retry_storms")
        sent = published.count()
    finally:
        once.unpersist()
        found.unpersist()

    consumers = rows(root, "consumers", "p99_ms", descending=True)
    failures = rows(root, "failures", "count", descending=True)
    storms = rows(root, "retry_storms", "retries", descending=True)
    latency = rows(root, "latency", "minute_ms", CHARTED_MAX, descending=True)
    result = Traced(
        records=count - bad,
        bad_rows=bad,
        sends=sent,
        consumptions=sum(row["consumptions"] for row in consumers),
        failures=sum(row["count"] for row in failures),
        storms=len(storms),
        slow=sorted({row["group"] or _UNKNOWN for row in consumers if (row["p99_ms"] or 0) >= slow_ms}),
        report=root / "report.html",
    )
    _report(result, slow_ms, latency, consumers, failures, storms).save(result.report)
    progress.add(sends=result.sends, consumptions=result.consumptions, failures=result.failures, storms=result.storms)
    if result.slow:
        progress.result("slow groups", ", ".join(result.slow))
    if bad:
        progress.result("bad rows", f"{bad:,}")
    progress.result("report", result.report)
    return result


# Tables


def _once(found: "DataFrame") -> "DataFrame":
    """Each record once; of some that say different things of the same, the same one at each run."""
    from pyspark.sql import functions as F

    by = ("kind", "msg_id", "request_id")
    rest = [name for name in found.columns if name not in (*by, "time_ms")]
    first = found.groupBy(*by).agg(F.min(F.struct("time_ms", *rest)).alias("first"))
    return first.select(*by, "first.*")


def _published(once: "DataFrame") -> "DataFrame":
    """A row for each message that was sent."""
    return once.where("kind = 'Pub'").selectExpr(
        "msg_id", "topic", "`group` producers", "time_ms sent_ms", "time_ms + cost_ms stored_ms", "cost_ms send_ms",
        "success stored_well", f"message_kind <=> {DELAY} delayed", "keys",
    )  # fmt: skip


def _consumptions(once: "DataFrame", published: "DataFrame", never_after_ms: int) -> "DataFrame":
    begins = once.where("kind = 'SubBefore'").selectExpr(
        "msg_id", "request_id", "`group` begin_group", "time_ms begin_ms", "retries"
    )
    ends = once.where("kind = 'SubAfter'").selectExpr(
        "msg_id", "request_id", "`group` end_group", "time_ms end_ms", "cost_ms", "success", "code"
    )
    causes = " ".join(f"when code = {code} then '{words}'" for code, words in _CAUSES.items())
    never = f"success is null and begin_ms < {never_after_ms}L"
    joined = begins.join(ends, ["msg_id", "request_id"], "full").join(published, "msg_id", "left")
    return joined.selectExpr(
        "coalesce(begin_group, end_group) `group`", f"coalesce(topic, '{_UNKNOWN}') topic", "msg_id", "request_id", "keys",
        "retries", "producers", "sent_ms", "stored_ms", "coalesce(begin_ms, end_ms - cost_ms) began_ms", "cost_ms handle_ms",
        "case when not delayed and retries = 0 then greatest(begin_ms - stored_ms, 0L) end wait_ms", "success",
        f"case when success and not code <=> 1 then null {causes} when not success then 'refused' "
        f"when {never} then 'never ended' end cause",
    )  # fmt: skip


_MINUTE = f"floor(%s / {_MINUTE_MS}) * {_MINUTE_MS} minute_ms"


def _latency(published: "DataFrame", done: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    sends = published.selectExpr(
        _MINUTE % "sent_ms", "topic", "producers `group`", "'send' what", "send_ms ms", "not stored_well failed"
    )
    waits = done.where("wait_ms is not null").selectExpr(
        _MINUTE % "began_ms", "topic", "`group`", "'wait' what", "wait_ms ms", "false failed"
    )
    handles = done.where("handle_ms is not null and began_ms is not null").selectExpr(
        _MINUTE % "began_ms", "topic", "`group`", "'handle' what", "handle_ms ms", "cause is not null failed"
    )
    measured = sends.unionByName(waits).unionByName(handles)
    found = measured.groupBy("minute_ms", "topic", "group", "what").agg(
        F.count("*").alias("count"), F.count_if("failed").alias("failed"), *_quantiles("ms"), F.max("ms").alias("max_ms")
    )
    return found.withColumn("minute", F.timestamp_millis("minute_ms"))


def _quantiles(column: str, *, prefix: str = "") -> "list[Column]":
    from pyspark.sql import functions as F

    found = F.percentile_approx(column, [0.5, 0.9, 0.99])
    return [found[place].alias(f"{prefix}p{name}_ms") for place, name in enumerate((50, 90, 99))]


def _consumers(done: "DataFrame", slow_ms: int) -> "DataFrame":
    from pyspark.sql import functions as F

    return done.groupBy("group", "topic").agg(
        F.count("*").alias("consumptions"),
        F.count("cause").alias("failed"),
        F.count_if(F.col("retries") > 0).alias("retries"),
        *_quantiles("handle_ms"),
        F.max("handle_ms").alias("max_ms"),
        F.count_if(F.col("handle_ms") >= slow_ms).alias("slow"),
        *_quantiles("wait_ms", prefix="wait_"),
    )


def _failures(published: "DataFrame", done: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as F

    consumed = done.where("cause is not null").selectExpr("`group`", "topic", "cause", "began_ms at_ms", "msg_id")
    sent = published.where("not stored_well").selectExpr(
        "producers `group`", "topic", "'stored, but not as it should be' cause", "sent_ms at_ms", "msg_id"
    )
    return (
        consumed.unionByName(sent)
        .groupBy("group", "topic", "cause")
        .agg(
            F.count("*").alias("count"),
            F.timestamp_millis(F.min("at_ms")).alias("first"),
            F.timestamp_millis(F.max("at_ms")).alias("last"),
            F.min_by("msg_id", F.struct("at_ms", "msg_id")).alias("example"),
        )
    )


def _storms(done: "DataFrame") -> "DataFrame":
    """Stormy minutes, those that follow each other as one row."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    minutes = done.where("retries is not null").selectExpr(_MINUTE % "began_ms", "`group`", "topic", "retries", "msg_id")
    counted = minutes.groupBy("group", "topic", "minute_ms").agg(
        F.count_if(F.col("retries") > 0).alias("retries"),
        F.count("*").alias("consumptions"),
        F.max("retries").alias("most"),
    )
    stormy = counted.where(F.col("retries") >= STORM_RETRIES).where(
        F.col("retries") >= F.col("consumptions") * F.lit(STORM_SHARE)
    )
    number = F.row_number().over(Window.partitionBy("group", "topic").orderBy("minute_ms"))
    runs = stormy.withColumn("run", F.col("minute_ms") - number * _MINUTE_MS)
    return (
        runs.groupBy("group", "topic", "run")
        .agg(
            F.timestamp_millis(F.min("minute_ms")).alias("from"),
            F.timestamp_millis(F.max("minute_ms") + _MINUTE_MS).alias("to"),
            F.count("*").alias("minutes"),
            F.sum("retries").alias("retries"),
            F.sum("consumptions").alias("consumptions"),
            F.max("most").alias("most_retries"),
        )
        .drop("run")
    )


# What people read


def _report(
    result: Traced,
    slow_ms: int,
    latency: list[dict[str, Any]],
    consumers: list[dict[str, Any]],
    failures: list[dict[str, Any]],
    storms: list[dict[str, Any]],
) -> Report:
    times = [row["minute_ms"] for row in latency]
    span = f"{plots.clock(min(times))} to {plots.clock(max(times) + _MINUTE_MS)} UTC" if times else "no records"
    report = Report("Message trace", f"{result.sends:,} sends and {result.consumptions:,} consumptions, {span}")
    told = [
        f"slow, with a hundredth over {slow_ms:,} ms: {', '.join(result.slow)}" if result.slow else "",
        f"{result.failures:,} failures" if result.failures else "",
        f"{result.storms:,} retry storms" if result.storms else "",
    ]
    faults = [each for each in told if each]
    report.verdict("; ".join(faults) if faults else "No slow group, no failure, no retry storm.", good=not faults)
    if result.bad_rows:
        report.note(f"{result.bad_rows:,} records couldn't be read; table bad_rows says why.")
    for svg in charts(latency):
        report.chart(svg)
    # In two, each as wide as the page.
    handling = [{name: value for name, value in row.items() if name not in _WAITING} for row in consumers]
    report.heading("Consumers", "Milliseconds in handlers; the slowest first.")
    report.table(handling)
    report.heading("How long messages wait", "Milliseconds from storing to the first delivery.")
    report.table([{name: row[name] for name in ("group", "topic", *_WAITING)} for row in consumers])
    report.heading("Failures")
    report.table([_in_words(row) for row in failures])
    note = f"Minutes with at least {STORM_RETRIES} retries that are {STORM_SHARE:.0%} of what a group gets of a topic."
    report.heading("Retry storms", note)
    report.table([_in_words(row) for row in storms])
    return report


_WAITING = ("wait_p50_ms", "wait_p90_ms", "wait_p99_ms")


def _in_words(row: dict[str, Any]) -> dict[str, Any]:
    times = ("first", "last", "from", "to")
    return {name: plots.clock(value) if name in times and value is not None else value for name, value in row.items()}


_TITLES = {
    "send": "Sends: 99 of 100 within … ms",
    "wait": "From storing to the consumer: 99 of 100 within … ms",
    "handle": "In handlers: 99 of 100 within … ms",
}


def charts(latency: list[dict[str, Any]]) -> list[str]:
    """Pictures of table `latency`: how long each of the busiest topics and groups takes, and how many failed."""
    found = []
    for what, title in _TITLES.items():
        rows = [row for row in latency if row["what"] == what]
        found.append(plots.lines(title, _by_series(rows, "p99_ms"), unit=" ms"))
    failed = _by_series([row for row in latency if row["what"] == "handle"], "failed")
    return [*found, plots.lines("Failures of handlers per minute", failed)]


def _by_series(rows: list[dict[str, Any]], column: str) -> dict[str, plots.Points]:
    """Lines of the topics and groups with most messages."""
    totals: dict[tuple[str, str], int] = {}
    for row in rows:
        series = (row["group"] or _UNKNOWN, row["topic"])
        totals[series] = totals.get(series, 0) + row["count"]
    most = sorted(totals, key=lambda series: (-totals[series], series))[:SERIES_MAX]
    return {
        f"{group}, {topic}": sorted(
            (row["minute_ms"], row[column]) for row in rows if (row["group"] or _UNKNOWN, row["topic"]) == (group, topic)
        )
        for group, topic in most
    }
