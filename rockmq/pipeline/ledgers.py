"""Ledgers: what a program notes of the messages it had acknowledged, or has worked on.

A line of JSON, or a row of Parquet, for each message:

    id      text        what the message is known by: its message id, or what else the stored message has of its own
    time    timestamp   when it was acknowledged or worked on; or milliseconds since the epoch, or ISO 8601
    key     text        optional: messages of a key have an order
    seq     integer     optional: which they are in, rising within the key
    topic   text        optional: where it was sent, if the ledger is of several topics
"""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rockmq.base.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_OPTIONAL = {"key": "string", "seq": "bigint", "topic": "string"}
_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
TIME_MS_MAX = 253_370_764_799_999
"""The end of the year 9998: what is added to a time that is no later can still be told as a date."""


class Ledger(NamedTuple):
    """`rows` have id, time, key and seq; `bad` have `text` and `reason`: what is no line of a ledger."""

    rows: "DataFrame"
    bad: "DataFrame"


def read_ledger(spark: "SparkSession", path: str, topic: str) -> Ledger:
    """What a file, or those of a directory, say of a topic. Raises ConfigError for a path without a ledger."""
    from pyspark.sql import functions as F

    files, is_json = _files(Path(path))
    if is_json:
        lines = spark.read.schema("id string, time string, key string, seq bigint, topic string, line string")
        found = lines.option("columnNameOfCorruptRecord", "line").json(files)
        text, broken = F.coalesce("line", F.to_json(F.struct("id", "time", "key", "seq"))), F.col("line").isNotNull()
    else:
        found = spark.read.parquet(*files)
        if missing := {"id", "time"}.difference(found.columns):
            raise ConfigError(f"ledger {path} has no column {min(missing)!r}; its columns are {', '.join(found.columns)}")
        text, broken = F.to_json(F.struct(*found.columns)), F.lit(False)
    columns = [F.col("id").cast("string").alias("id"), _time(found).alias("time")]
    for name, kind in _OPTIONAL.items():
        column = F.col(name).try_cast(kind) if name in found.columns else F.lit(None).cast(kind)
        columns.append(column.alias(name))
    reason = (
        F.when(F.col("broken"), "it is no JSON object with id, time and seq as they have to be")
        .when(F.col("id").isNull() | (F.col("id") == ""), "it has no id")
        .when(F.col("time").isNull(), "its time is neither milliseconds nor a date with time, of 1970 to 9998")
    )
    told = found.select(*columns, text.alias("text"), broken.alias("broken")).withColumn("reason", reason)
    here = F.col("topic").isNull() | (F.col("topic") == topic)
    rows = told.where("reason is null").where(here).select("id", "time", "key", "seq")
    return Ledger(rows, told.where("reason is not null").select("text", "reason"))


def _files(path: Path) -> tuple[list[str], bool]:
    found = [path] if path.is_file() else sorted(each for each in path.rglob("*") if _is_data(each, path))
    json = [each for each in found if each.suffix in _JSON_SUFFIXES]
    if not found:
        kinds = ", ".join(_JSON_SUFFIXES)
        raise ConfigError(
            f"there is no ledger in {path}: expected Parquet files, or lines of JSON in files that end in {kinds}"
        )
    if json and len(json) != len(found):
        raise ConfigError(f"{path} has files of JSON and others ({found[0].name}, …): a ledger is of one kind")
    return [f"file://{each.resolve()}" for each in found], bool(json)


def _is_data(path: Path, root: Path) -> bool:
    """Notes of Spark and Delta, and what isn't finished, begin with these, or lie in directories that do."""
    return path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(root).parts)


def _time(found: "DataFrame") -> "Column":
    from pyspark.sql import functions as F

    kind, column = dict(found.dtypes)["time"], F.col("time")
    if kind.startswith("timestamp"):
        time = column.cast("timestamp")
    else:
        milliseconds = column.try_cast("bigint")
        time = F.when(milliseconds.between(0, TIME_MS_MAX), F.timestamp_millis(milliseconds))
    if kind == "string":
        time = F.coalesce(time, F.try_to_timestamp(column))
    return F.when(F.unix_millis(time).between(0, TIME_MS_MAX), time)
