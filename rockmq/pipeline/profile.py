"""What is in a topic: sizes, keys, tags, rates and queues, as tables and a report, and advice on the number of queues.

<directory>/sizes      messages and bytes by size of the body, in powers of two
<directory>/tags       messages and bytes by tag
<directory>/keys       the `KEYS_MAX` most frequent keys, with their share
<directory>/minutes    messages and bytes stored in each minute
<directory>/queues     messages, bytes and share of each queue
<directory>/report.html
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rockmq.base.errors import ConfigError
from rockmq.client.queues import java_hash
from rockmq.pipeline import plots
from rockmq.pipeline.report import Report
from rockmq.pipeline.runs import Progress
from rockmq.pipeline.tables import overwrite, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("broker", "queueId", "tags", "keys", "shardingKey", "body", "storeTimestamp")
"""What is looked at (rockmq.spark.schema)."""
KEYS_MAX = 10_000
"""Keys whose queues are known one by one; the others count as spread evenly."""
SHOWN = 20
"""Keys and tags in the report."""
MINUTES_MAX = 100_000
"""Minutes that the report's charts are made of, the last ones."""
QUEUE_COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
HEADROOM = 0.5
"""How busy the busiest queue may be in the busiest minute: what is left is for catching up, and for growth."""
HANDLER_MS = 10.0

_MINUTE_MS = 60_000
_QUANTILES = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True)
class Layout:
    """What a number of queues would mean: the busiest queue's share of all messages, its messages a second in the busiest
    minute, and how long a handler may take in milliseconds."""

    queues: int
    share: float
    rate: float
    handler_ms: float


@dataclass(frozen=True)
class Profile:
    """Sizes are bytes of bodies; `keys` is about how many different ones there are. `advice` is text, a thought a line."""

    messages: int
    bytes: int
    size_quantiles: dict[float, int]
    size_max: int
    keys: int
    without_key: int
    queues: int
    peak_rate: float
    mean_rate: float
    layouts: list[Layout]
    queues_advised: int | None
    """None when no number of queues will do."""
    advice: list[str]
    report: Path


def profile(
    spark: "SparkSession",
    messages: "DataFrame",
    directory: str | os.PathLike[str],
    *,
    key: str = "shardingKey",
    handler_ms: float = HANDLER_MS,
    name: str = "messages",
    progress: Progress | None = None,
) -> Profile:
    """Look at messages, which have the columns `COLUMNS`; tables that were in `directory` are replaced.

    `key` is the column by which messages have an order, `shardingKey` or `keys` (the first of several). `handler_ms` is how
    long a consumer works on a message. `directory` is shared by driver and executors. Raises ConfigError.
    """
    from pyspark.sql import functions as F

    if key not in ("shardingKey", "keys"):
        raise ConfigError(f"key is {key!r}, expected shardingKey or keys")
    if handler_ms <= 0:
        raise ConfigError(f"handler_ms is {handler_ms:g}, expected more than 0")
    progress = progress or Progress()
    root = Path(directory)
    progress.begin(f"reading {name}")
    slim = messages.select(
        F.concat_ws("/", "broker", F.col("queueId").cast("string")).alias("queue"),
        F.octet_length("body").alias("size"),
        "tags",
        (F.split(key, " ")[0] if key == "keys" else F.col(key)).alias("key"),
        F.floor(F.unix_millis("storeTimestamp") / F.lit(_MINUTE_MS)).cast("bigint").alias("minute"),
    ).persist()
    try:
        whole = _whole(slim)
        if not whole["messages"]:
            raise ConfigError(f"{name} has no messages to be looked at")
        progress.add(messages=whole["messages"], bytes=whole["bytes"])
        progress.begin("counting")
        for table, frame in _tables(slim, whole["messages"]).items():
            overwrite(frame.coalesce(1), root, table)
    finally:
        slim.unpersist()

    minutes = rows(root, "minutes", "minute", MINUTES_MAX, descending=True)[::-1]
    queues = rows(root, "queues", "queue")
    keys = rows(root, "keys", "messages", descending=True)
    peak = max(minutes, key=lambda minute: minute["messages"])
    span_s = (minutes[-1]["minute"] - minutes[0]["minute"] + 1) * 60
    found = layouts({row["key"]: row["messages"] for row in keys}, whole["messages"], peak["messages"] / 60)
    advised, advice = _advice(whole, peak, span_s, keys, queues, found, handler_ms)
    result = Profile(
        messages=whole["messages"],
        bytes=whole["bytes"],
        size_quantiles=dict(zip(_QUANTILES, whole["quantiles"], strict=True)),
        size_max=whole["size_max"],
        keys=whole["keys"],
        without_key=whole["without_key"],
        queues=len(queues),
        peak_rate=peak["messages"] / 60,
        mean_rate=whole["messages"] / span_s,
        layouts=found,
        queues_advised=advised,
        advice=advice,
        report=root / "report.html",
    )
    sizes, tags = rows(root, "sizes", "size_from"), rows(root, "tags", "messages", SHOWN, descending=True)
    _report(name, result, sizes, tags, keys[:SHOWN], minutes, queues).save(result.report)
    progress.result("advice", "\n".join(advice))
    progress.result("report", result.report)
    return result


def layouts(keys: Mapping[str, int], messages: int, peak_rate: float) -> list[Layout]:
    """What each number of queues would mean. Messages of a key go to the queue that Java's hash of it says, as producers
    choose; what has no key, or one that isn't named, is spread evenly."""
    rest = messages - sum(keys.values())
    hashes = [(abs(java_hash(key)), count) for key, count in keys.items()]
    found = []
    for queues in QUEUE_COUNTS:
        loads = [rest / queues] * queues
        for number, count in hashes:
            loads[number % queues] += count
        share = max(loads) / messages
        rate = share * peak_rate
        found.append(Layout(queues, share, rate, HEADROOM * 1_000 / rate))
    return found


def _whole(slim: "DataFrame") -> dict[str, Any]:
    from pyspark.sql import functions as F

    (row,) = slim.agg(
        F.count("*").alias("messages"),
        F.coalesce(F.sum("size"), F.lit(0)).alias("bytes"),
        F.max("size").alias("size_max"),
        F.percentile_approx("size", list(_QUANTILES)).alias("quantiles"),
        F.approx_count_distinct("key").alias("keys"),
        F.count_if(F.col("key").isNull()).alias("without_key"),
    ).collect()
    found: dict[str, Any] = row.asDict()
    return found


def _tables(slim: "DataFrame", messages: int) -> "dict[str, DataFrame]":
    from pyspark.sql import functions as F

    counts = (F.count("*").alias("messages"), F.sum("size").cast("bigint").alias("bytes"))
    share = F.col("messages") / F.lit(messages)
    power = F.when(F.col("size") > 0, F.pow(F.lit(2), F.floor(F.log2("size"))).cast("bigint")).otherwise(F.lit(0))
    minutes = slim.groupBy("minute").agg(*counts).withColumn("time", F.timestamp_seconds(F.col("minute") * 60))
    keys = slim.where("key is not null").groupBy("key").agg(*counts).orderBy(F.desc("messages"), "key").limit(KEYS_MAX)
    return {
        "sizes": slim.withColumn("size_from", power).groupBy("size_from").agg(*counts),
        "tags": slim.groupBy(F.col("tags").alias("tag")).agg(*counts).withColumn("share", share),
        "keys": keys.withColumn("share", share),
        "minutes": minutes,
        "queues": slim.groupBy("queue").agg(*counts).withColumn("share", share),
    }


def _advice(
    whole: Mapping[str, Any],
    peak: Mapping[str, Any],
    span_s: int,
    keys: Sequence[Mapping[str, Any]],
    queues: Sequence[Mapping[str, Any]],
    found: Sequence[Layout],
    handler_ms: float,
) -> tuple[int | None, list[str]]:
    """The least number of queues that will do, and how it comes to that."""
    rate, able = peak["messages"] / 60, 1_000 / handler_ms
    lines = [
        f"In the busiest minute, {plots.clock(peak['minute'] * _MINUTE_MS, '%Y-%m-%d %H:%M')} UTC, {rate:,.1f} messages a "
        f"second were stored; {whole['messages'] / span_s:,.1f} on average.",
        f"Who consumes in order works on one message of a queue at a time: with {handler_ms:g} ms for each, {able:,.0f} a "
        f"second. {HEADROOM:.0%} of that is left for catching up and for growth.",
    ]
    if keys:
        top = keys[0]
        share = top["messages"] / whole["messages"]
        lines.append(
            f"The most frequent key, {top['key']!r}, has {share:.1%} of the messages, and they lie in one queue. The "
            f"busiest queue never has less: with over {max(1, round(1 / share)):,} queues only the others have less."
        )
    else:
        lines.append("No message has a key, so queues take turns and are equally busy.")
    fullest = max(row["messages"] for row in queues) * len(queues) / whole["messages"]
    lines.append(f"Of the {len(queues)} queues that have messages the fullest has {fullest:.2f} times the mean.")
    fitting = next((layout for layout in found if layout.handler_ms >= handler_ms), None)
    if fitting is None:
        least = min(found, key=lambda layout: layout.rate)
        lines.append(
            f"No number of queues up to {QUEUE_COUNTS[-1]} will do for consumption in order: the busiest gets at "
            f"least {least.rate:,.1f} messages a second, which leaves {least.handler_ms:.3g} ms for each. Faster handlers, "
            f"finer keys, or consumption without order will."
        )
        return None, lines
    enough = "1 queue" if fitting.queues == 1 else f"{fitting.queues} queues"
    lines.append(
        f"With {enough} the busiest gets {fitting.rate:,.1f} a second in the busiest minute, so a message "
        f"may take {fitting.handler_ms:.3g} ms: {enough} will do. Members of a group without a queue have "
        f"nothing to do, so have at least as many as members."
    )
    return fitting.queues, lines


# What people read


def _report(
    name: str,
    found: Profile,
    sizes: Sequence[Mapping[str, Any]],
    tags: Sequence[Mapping[str, Any]],
    keys: Sequence[Mapping[str, Any]],
    minutes: Sequence[Mapping[str, Any]],
    queues: Sequence[Mapping[str, Any]],
) -> Report:
    first, last = minutes[0]["minute"] * _MINUTE_MS, (minutes[-1]["minute"] + 1) * _MINUTE_MS
    report = Report(f"Profile of {name}", f"Stored from {plots.clock(first)} to {plots.clock(last)} UTC")
    report.table(
        [
            {"messages": found.messages, "bytes of bodies": found.bytes, "queues": found.queues, "keys, about": found.keys,
             "without key": found.without_key, "a second, mean": found.mean_rate, "in the busiest minute": found.peak_rate}
        ]
    )  # fmt: skip
    report.heading("How many queues")
    report.paragraphs(found.advice)
    report.table(
        [
            {"queues": each.queues, "busiest queue, %": each.share * 100, "its messages/s at the peak": each.rate,
             "ms for a message": each.handler_ms}
            for each in found.layouts
        ]
    )  # fmt: skip
    for svg in charts(sizes, tags, keys, minutes, queues, found.messages):
        report.chart(svg)
    report.heading("Sizes of bodies")
    quantiles = {f"{quantile:.1%} within": size for quantile, size in found.size_quantiles.items()}
    report.table([{**quantiles, "largest": found.size_max}])
    return report


def charts(
    sizes: Sequence[Mapping[str, Any]],
    tags: Sequence[Mapping[str, Any]],
    keys: Sequence[Mapping[str, Any]],
    minutes: Sequence[Mapping[str, Any]],
    queues: Sequence[Mapping[str, Any]],
    messages: int,
) -> list[str]:
    """Pictures of the tables."""
    rates: list[tuple[float, float | None]] = []
    for row in minutes:
        if rates and row["minute"] * _MINUTE_MS > rates[-1][0] + _MINUTE_MS:  # nothing came between
            rates += [(rates[-1][0] + _MINUTE_MS, 0.0), ((row["minute"] - 1) * _MINUTE_MS, 0.0)]
        rates.append((row["minute"] * _MINUTE_MS, row["messages"] / 60))
    named = [plots.short(row["size_from"]) for row in sizes]
    return [
        plots.lines("Messages stored a second, by minute", {"messages/s": rates}),
        keys_chart({row["key"]: 100 * row["messages"] / messages for row in keys}),
        plots.columns("Messages by size of the body, from … bytes on", named, {"": [row["messages"] for row in sizes]}),
        plots.bars("Tags: messages", {row["tag"] or "(none)": row["messages"] for row in tags}),
        plots.bars("Queues: messages", {row["queue"]: row["messages"] for row in queues[: 2 * SHOWN]}),
    ]


def keys_chart(shares: Mapping[str, float]) -> str:
    """The most frequent keys, with their shares in percent."""
    return plots.bars("Most frequent keys: % of all messages", shares)
