"""Where a job reads a topic's messages: of brokers, of a store's directory, or of an archive."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rockmq.base.errors import ConfigError
from rockmq.pipeline.archive import manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BROKER, STORE = "broker", "store:"
_ARCHIVE = "archive:"
_SET_HERE = {
    "nameserver", "endpoints", "topic", "topics", "topicpattern", "readfrom", "columns", "startingtimestamp",
    "endingtimestamp", "startingoffsetsbytimestampstrategy",
}  # fmt: skip


def messages(
    spark: "SparkSession",
    topic: str,
    columns: Collection[str],
    *,
    source: str = BROKER,
    name_server: str = "",
    since_ms: int | None = None,
    until_ms: int | None = None,
    options: Mapping[str, str] | None = None,
) -> "DataFrame":
    """These columns (rockmq.spark.schema) of the topic's messages stored at `since_ms` or later and before `until_ms`.

    `source` is `broker`, `store:DIR`, or `archive:DIR`, what the job `archive` wrote; executors have to see DIR under that
    name. `options` are more ones of a read; an archive has none. Raises ConfigError.
    """
    options = options or {}
    for name in options:
        if name.lower() in _SET_HERE:
            raise ConfigError(f"option {name!r} can't be given: the job sets it by what it is told itself")
    if source.startswith(_ARCHIVE):
        if options:
            raise ConfigError(f"an archive has no options of a read, such as {next(iter(options))!r}")
        return _archived(spark, Path(source.removeprefix(_ARCHIVE)), topic, columns, since_ms, until_ms)
    if source != BROKER and not source.startswith(STORE):
        raise ConfigError(f"messages can't be read from {source!r}: expected broker, store:DIR or archive:DIR")
    reader = spark.read.format("rockmq").options(**options).option("topic", topic).option("columns", ",".join(columns))
    reader = reader.option("readFrom", source) if source != BROKER else reader.option("nameServer", name_server)
    if since_ms is not None:
        reader = reader.option("startingTimestamp", since_ms).option("startingOffsetsByTimestampStrategy", "latest")
    if until_ms is not None:
        reader = reader.option("endingTimestamp", until_ms)
    return reader.load()


def _archived(
    spark: "SparkSession", directory: Path, topic: str, columns: Collection[str], since_ms: int | None, until_ms: int | None
) -> "DataFrame":
    files = [
        os.fspath((directory / topic / each.path).resolve())
        for each in manifest(directory, topic)
        if (since_ms is None or each.max_store_timestamp >= since_ms)
        and (until_ms is None or each.min_store_timestamp < until_ms)
    ]
    if not files:
        times = "" if since_ms is None and until_ms is None else " of that time"
        raise ConfigError(f"{directory} holds no finished archive of topic {topic}{times}")
    found = spark.read.parquet(*files)
    if since_ms is not None:
        found = found.where(f"storeTimestamp >= timestamp_millis({since_ms})")
    if until_ms is not None:
        found = found.where(f"storeTimestamp < timestamp_millis({until_ms})")
    return found.select(*columns)
