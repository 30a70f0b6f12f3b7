"""Where `reconcile` gets what it compares, as its command names it."""

import os
from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING

import msgspec

from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ConfigError
from rockmq.pipeline import trace
from rockmq.pipeline.ledgers import read_ledger
from rockmq.pipeline.messages import BROKER, STORE, messages
from rockmq.pipeline.reconcile import LATE_SECONDS, WINDOW_SECONDS, Reconciliation, reconcile
from rockmq.pipeline.runs import Progress
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.spark import cluster
from rockmq.spark.options import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARGIN_MS = 3_600_000
"""Messages stored so long before `since` are read too: clocks of senders and brokers differ, and what was stored before its
send was noted belongs to a later window."""

_LEDGER, _TRACE, _OFFSETS = "ledger:", "trace", "offsets"
_PLACE = ("topic", "broker", "queueId", "queueOffset", "storeTimestamp")


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """`sent` is `ledger:PATH` or `trace`; `consumed` is `ledger:PATH`, `trace:GROUP`, `offsets:GROUP` or None.

    `messages` says where the topic, and the trace topic, are read (rockmq.pipeline.messages), with more `options` of a read.
    `id` is what ledgers call a message by: `msgId`, `keys`, or the name of a property.
    """

    topic: str
    sent: str
    consumed: str | None = None
    messages: str = BROKER
    name_server: str = ""
    trace_topic: str = topics.TRACE
    id: str = "msgId"
    options: Mapping[str, str] = {}


def compare(
    spark: "SparkSession",
    sources: Sources,
    directory: str | os.PathLike[str],
    *,
    window_seconds: int = WINDOW_SECONDS,
    late_seconds: float = LATE_SECONDS,
    since_ms: int | None = None,
    until_ms: int | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Reconciliation:
    """`reconcile` of what the sources say. Raises ConfigError, RockMQError."""
    if until_ms is not None and until_ms % (window_seconds * 1_000):
        raise ConfigError(
            f"until is no edge of a window of {window_seconds} s: the whole window's results would be replaced"
        )
    # Before anything is read: what is acknowledged while it is read need not be found.
    until_ms = (clock or SystemClock()).now_ms() if until_ms is None else until_ms
    from_ms = None if since_ms is None else max(since_ms - window_seconds * 1_000 - MARGIN_MS, 0)
    bad: list[DataFrame] = []
    consumed, offsets = None, None
    kind, _, which = (sources.consumed or "").partition(":")
    if sources.id != "msgId" and _TRACE in (sources.sent, kind):
        raise ConfigError(f"id is {sources.id!r}: trace knows messages by msgId alone")
    traced = _trace(spark, sources, from_ms, bad) if _TRACE in (sources.sent, kind) else None
    if kind == _OFFSETS and which:
        if sources.messages.startswith(STORE) and "brokername" not in map(str.lower, sources.options):
            raise ConfigError(
                "a store doesn't know its broker's name, which a group's offsets are kept by: give option brokerName"
            )
        offsets = committed(sources, which)
    elif sources.consumed is not None:
        consumed = _consumed(spark, sources, sources.consumed, traced, bad)
    sent, stored = _sent(spark, sources, traced, bad), _stored(spark, sources, from_ms, bad)
    if consumed is not None and (kind == _TRACE or from_ms is not None):
        # Records of consumers don't say the topic, and a group may have others. And who lags consumes what was stored before
        # what is read.
        consumed = consumed.join(sent.select("id").unionByName(stored.select("id")), "id", "left_semi")
    return reconcile(
        spark,
        sent,
        stored,
        directory,
        consumed=consumed,
        offsets=offsets,
        bad_rows=reduce(lambda one, other: one.unionByName(other), bad),
        name=sources.topic,
        window_seconds=window_seconds,
        late_seconds=late_seconds,
        since_ms=since_ms,
        until_ms=until_ms,
        progress=progress,
    )


def committed(sources: Sources, group: str) -> dict[MessageQueue, int]:
    """The group's offsets, 0 where it has none."""
    options = {**sources.options, "nameServer": sources.name_server, "topic": sources.topic}

    async def ask() -> dict[MessageQueue, int]:
        async with cluster.asking(parse(options)) as origin:
            found = await origin.committed_offsets(group, sources.topic)
        return {queue: offset or 0 for queue, offset in found.items()}

    return cluster.run(ask())


def _sent(spark: "SparkSession", sources: Sources, traced: "DataFrame | None", bad: "list[DataFrame]") -> "DataFrame":
    if traced is not None and sources.sent == _TRACE:
        return trace.sends(traced, sources.topic)
    if sources.sent.startswith(_LEDGER):
        return _ledger(spark, sources, sources.sent, bad)
    raise ConfigError(f"sent is {sources.sent!r}: expected ledger:PATH or trace")


def _consumed(
    spark: "SparkSession", sources: Sources, consumed: str, traced: "DataFrame | None", bad: "list[DataFrame]"
) -> "DataFrame":
    if consumed.startswith(_LEDGER):
        return _ledger(spark, sources, consumed, bad)
    group = consumed.removeprefix(f"{_TRACE}:")
    if traced is not None and group and group != consumed:
        return trace.consumptions_of(traced, group)
    raise ConfigError(f"consumed is {consumed!r}: expected ledger:PATH, trace:GROUP or offsets:GROUP")


def _ledger(spark: "SparkSession", sources: Sources, text: str, bad: "list[DataFrame]") -> "DataFrame":
    rows, faults = read_ledger(spark, text.removeprefix(_LEDGER), sources.topic)
    bad.append(faults)
    return rows


def _trace(spark: "SparkSession", sources: Sources, from_ms: int | None, bad: "list[DataFrame]") -> "DataFrame":
    bodies = messages(
        spark,
        sources.trace_topic,
        ["body"],
        source=sources.messages,
        name_server=sources.name_server,
        since_ms=from_ms,
        options=sources.options,
    )
    found = trace.records(bodies)
    bad.append(found.where("reason is not null").select("text", "reason"))
    return found


def _stored(spark: "SparkSession", sources: Sources, from_ms: int | None, bad: "list[DataFrame]") -> "DataFrame":
    """The topic's messages by id; those without one can't be compared."""
    column = sources.id if sources.id in ("msgId", "keys") else "properties"
    found = messages(
        spark,
        sources.topic,
        [*_PLACE, column],
        source=sources.messages,
        name_server=sources.name_server,
        since_ms=from_ms,
        options=sources.options,
    )
    id = found[column] if column == sources.id else found[column][sources.id]
    found = found.select(*_PLACE, id.alias("id"))
    place = "concat(topic, '/', broker, '/', queueId, ' at ', queueOffset) text"
    if sources.id != "msgId":
        bad.append(found.where("id is null").selectExpr(place, f"'the stored message has no {column}' reason"))
    return found.where("id is not null")
