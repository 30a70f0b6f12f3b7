"""How far groups are behind, over time: a sampler that appends to Parquet files, and a report of what they hold.

    <directory>/dt=<day, UTC>/<HHMM>.parquet    the samples of a minute
    <directory>/dt=<day, UTC>/day.parquet       those of a day that is over, in one file
    <directory>/lag.html                        the report

A row is one queue of one group in one minute, and there is one row for these three: a second sample of a minute takes the
place of the first. One process samples into a directory at a time. Nothing here needs Spark.
"""

import asyncio
import contextlib
import os
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rockmq.base.clock import Clock, SystemClock, sleep
from rockmq.base.errors import ConfigError, RemotingError, ResponseError, RouteNotFound
from rockmq.client import Client, MessageQueue
from rockmq.pipeline import plots
from rockmq.pipeline.report import Report
from rockmq.pipeline.runs import Progress

if TYPE_CHECKING:
    import numpy.typing as npt

MINUTE_MS = 60_000
TREND_MINUTES = 60
"""What is said of the present: trend, rates and the time until nothing is left come from the last so many minutes."""
ASKED_AT_ONCE = 64
SERIES_MAX = 8
"""Lines of a chart: the groups with the largest lag."""

_TIME = pa.timestamp("ms", tz="UTC")
SCHEMA = pa.schema(
    [
        ("minute", _TIME),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("broker", pa.string()),
        ("queueId", pa.int32()),
        ("sampledAt", _TIME),
        ("minOffset", pa.int64()),
        ("maxOffset", pa.int64()),
        ("groupOffset", pa.int64()),
        ("nextStored", _TIME),
        ("lag", pa.int64()),
        ("lagSeconds", pa.float64()),
        ("expired", pa.int64()),
    ]
)
"""`groupOffset` is null where the group has committed none; it counts as standing at the queue's first message.
`nextStored` is when the next message to consume was stored, null when there is none. `expired` are messages between the
group's offset and the queue's first: they are gone, and not part of the lag."""
_KEY = ["minute", "group", "topic", "broker", "queueId"]


@dataclass(frozen=True)
class Standing:
    """A group at its last sample, and where the last `TREND_MINUTES` lead. Rates are messages a second; `drain_seconds` is
    how long until nothing is left if it goes on so, None if it doesn't get less. Of one sample nothing of this is known.
    `sampled_ms` is the minute of the last one."""

    group: str
    topic: str
    lag: int
    lag_seconds: float | None
    sent_rate: float | None
    consumed_rate: float | None
    trend: float | None
    drain_seconds: float | None
    expired: int
    sampled_ms: int


# Sampling


async def sample(
    client: Client, groups: Collection[str], topics: Collection[str] = (), *, clock: Clock | None = None
) -> pa.Table:
    """A row for each queue of each group now: of the topics that are named, else of those in which a group has offsets.

    Raises RouteNotFound, ResponseError, RemotingError.
    """
    if not groups:
        raise ConfigError("no group is named whose lag is to be sampled")
    clock = clock or SystemClock()
    turns = asyncio.Semaphore(ASKED_AT_ONCE)

    async def one(group: str, queue: MessageQueue, offset: int | None) -> dict[str, object]:
        async with turns:
            least = await client.min_offset(queue)
            most = await client.max_offset(queue)
            start = least if offset is None else max(offset, least)
            stored = await _stored(client, queue, start) if start < most else None
        now = clock.now_ms()
        return {
            "minute": now // MINUTE_MS * MINUTE_MS,
            "group": group,
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queueId": queue.queue_id,
            "sampledAt": now,
            "minOffset": least,
            "maxOffset": most,
            "groupOffset": offset,
            "nextStored": stored,
            "lag": max(most - start, 0),
            "lagSeconds": 0.0 if start >= most else None if stored is None else max(now - stored, 0) / 1_000,
            "expired": 0 if offset is None else max(least - offset, 0),
        }

    wanted = []
    for group in groups:
        for topic in topics or await _topics(client, group):
            offsets = await client.committed_offsets(group, topic)
            wanted += [one(group, queue, offset) for queue, offset in sorted(offsets.items())]
    rows = await asyncio.gather(*wanted)
    # A row's minute is that of the sample as a whole, which may take a while.
    minute = min((row["minute"] for row in rows), default=0)  # type: ignore[type-var]
    return pa.Table.from_pylist([{**row, "minute": minute} for row in rows], schema=SCHEMA)


async def _topics(client: Client, group: str) -> list[str]:
    found = await client.admin.groups.progress(group)
    return sorted({queue.topic for queue in found.queues})


async def _stored(client: Client, queue: MessageQueue, offset: int) -> int | None:
    """When the message there was stored; None if it is gone meanwhile."""
    for message in (await client.pull(queue, offset, 1)).messages:
        return message.store_timestamp
    return None


async def watch(
    client: Client,
    directory: str | os.PathLike[str],
    groups: Collection[str],
    topics: Collection[str] = (),
    *,
    every_seconds: float | None = MINUTE_MS / 1_000,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> None:
    """Sample into `directory` once, if `every_seconds` is None, else again and again until it is cancelled.

    The first sample raises what `sample` does; later ones that fail because servers are away are counted and left out.
    """
    if every_seconds is not None and every_seconds <= 0:
        raise ConfigError(f"every_seconds is {every_seconds:g}, expected more than 0")
    clock, progress = clock or SystemClock(), progress or Progress()
    progress.begin("sampling")
    root = Path(directory)
    progress.add(samples=1, rows=append(root, await sample(client, groups, topics, clock=clock)))
    while every_seconds is not None:
        await sleep(clock, every_seconds)
        try:
            rows = await sample(client, groups, topics, clock=clock)
        except (RouteNotFound, ResponseError, RemotingError) as error:
            progress.add(failed=1)
            progress.result("last failure", error)
            continue
        progress.add(samples=1, rows=append(root, rows))


# Files


def append(directory: Path, rows: pa.Table) -> int:
    """Add rows of one minute; how many. Days that are over become one file each."""
    if not rows.num_rows:
        return 0
    minute_ms = rows.column("minute")[0].cast(pa.int64()).as_py()
    day, name = plots.clock(minute_ms, "%Y-%m-%d"), plots.clock(minute_ms, "%H%M")
    path = directory / f"dt={day}" / f"{name}.parquet"
    before = [pq.ParquetFile(path).read()] if path.exists() else []
    _save(path, _merged([*before, rows]))
    for folder in sorted(directory.glob("dt=*")):
        if folder.name < f"dt={day}":
            _compact(folder)
    return int(rows.num_rows)


def _compact(folder: Path) -> None:
    """Make one file of a day's. Broken off it leaves files that say the same twice, which readers take once."""
    minutes = sorted(folder.glob("[0-9]*.parquet"))
    if not minutes:
        return
    whole = folder / "day.parquet"
    before = [whole] if whole.exists() else []
    _save(whole, _merged([pq.ParquetFile(each).read() for each in [*before, *minutes]]))
    for each in minutes:
        each.unlink()


def _save(path: Path, rows: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}-{uuid.uuid4().hex}.tmp")
    try:
        pq.write_table(rows, temporary, compression="zstd")
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def _merged(tables: Sequence[pa.Table]) -> pa.Table:
    """One row for each key, of the last table that has it; in order of keys."""
    rows = pa.concat_tables(tables)
    rows = rows.append_column("place", pa.array(np.arange(rows.num_rows)))
    last = rows.group_by(_KEY).aggregate([("place", "max")]).column("place_max")
    return rows.take(last.combine_chunks()).drop_columns("place").sort_by([(name, "ascending") for name in _KEY])


def read(directory: str | os.PathLike[str], since_ms: int | None = None, until_ms: int | None = None) -> pa.Table:
    """The samples of minutes from `since_ms` on and before `until_ms`, each once. Raises ConfigError when there are none."""
    first = "" if since_ms is None else f"dt={plots.clock(since_ms, '%Y-%m-%d')}"
    paths = [path for path in sorted(Path(directory).glob("dt=*/[0-9d]*.parquet")) if path.parent.name >= first]
    found = _merged([pq.ParquetFile(path).read() for path in paths]) if paths else SCHEMA.empty_table()
    minutes = found.column("minute").cast(pa.int64())
    if since_ms is not None:
        found = found.filter(pc.greater_equal(minutes, since_ms // MINUTE_MS * MINUTE_MS))
        minutes = found.column("minute").cast(pa.int64())
    if until_ms is not None:
        found = found.filter(pc.less(minutes, until_ms))
    if not found.num_rows:
        raise ConfigError(f"there are no samples of that time in {directory}")
    return found


# What they say


@dataclass(frozen=True)
class _Series:
    """A group in a topic by minute: sums over queues, the largest of their delays."""

    group: str
    topic: str
    minutes: "npt.NDArray[np.int64]"
    lag: "npt.NDArray[np.float64]"
    seconds: "npt.NDArray[np.float64]"
    sent: "npt.NDArray[np.float64]"
    consumed: "npt.NDArray[np.float64]"
    expired: int

    def standing(self) -> Standing:
        recent = self.minutes >= self.minutes[-1] - TREND_MINUTES * MINUTE_MS
        at = self.minutes[recent] / 1_000
        trend, sent, consumed = (_slope(at, values[recent]) for values in (self.lag, self.sent, self.consumed))
        lag = int(self.lag[-1])
        drain = 0.0 if not lag else lag / -trend if trend is not None and trend < 0 else None
        seconds = None if np.isnan(self.seconds[-1]) else float(self.seconds[-1])
        return Standing(
            self.group, self.topic, lag, seconds, sent, consumed, trend, drain, self.expired, int(self.minutes[-1])
        )


def _slope(at: "npt.NDArray[np.float64]", values: "npt.NDArray[np.float64]") -> float | None:
    """The rise of the straight line that fits best, a second; None of fewer than two points."""
    if len(at) < 2:
        return None
    at = at - at.mean()
    return float((at * (values - values.mean())).sum() / (at * at).sum())


def _series(rows: pa.Table) -> Iterator[_Series]:
    offset = pc.coalesce(rows.column("groupOffset"), rows.column("minOffset"))
    rows = rows.append_column("at", offset)
    sums = [("lag", "sum"), ("lagSeconds", "max"), ("maxOffset", "sum"), ("at", "sum"), ("expired", "sum")]
    table = (
        rows.group_by(["group", "topic", "minute"])
        .aggregate(sums)
        .sort_by([("group", "ascending"), ("topic", "ascending"), ("minute", "ascending")])
    )
    names = pc.binary_join_element_wise(table.column("group"), table.column("topic"), "\0")
    for name in pc.unique(names).to_pylist():
        part = table.filter(pc.equal(names, name))
        numbers = {
            column: np.asarray(part.column(column).cast(pa.float64()).fill_null(np.nan))
            for column in ("lag_sum", "lagSeconds_max", "maxOffset_sum", "at_sum")
        }
        group, _, topic = name.partition("\0")
        yield _Series(
            group,
            topic,
            np.asarray(part.column("minute").cast(pa.int64())),
            numbers["lag_sum"],
            numbers["lagSeconds_max"],
            numbers["maxOffset_sum"],
            numbers["at_sum"],
            part.column("expired_sum")[-1].as_py(),
        )


def standings(rows: pa.Table) -> list[Standing]:
    """Where each group is in each topic, the largest lag first."""
    return sorted((each.standing() for each in _series(rows)), key=lambda each: (-each.lag, each.group, each.topic))


def charts(rows: pa.Table) -> list[str]:
    """Lag over time in messages and in seconds, of the groups that have most of it."""
    most = sorted(_series(rows), key=lambda each: (-float(each.lag.max()), each.group, each.topic))[:SERIES_MAX]

    def line(series: _Series, values: "npt.NDArray[np.float64]") -> plots.Points:
        pairs = zip(series.minutes.tolist(), values.tolist(), strict=True)
        return [(minute, None if np.isnan(value) else value) for minute, value in pairs]

    messages = {f"{each.group}, {each.topic}": line(each, each.lag) for each in most}
    seconds = {f"{each.group}, {each.topic}": line(each, each.seconds) for each in most}
    return [
        plots.lines("Lag in messages", messages),
        plots.lines("Lag in seconds: the age of the oldest message that isn't consumed", seconds, unit=" s"),
    ]


def report(rows: pa.Table) -> Report:
    """The samples for people."""
    minutes = rows.column("minute").cast(pa.int64())
    low, high = pc.min_max(minutes).as_py().values()
    found = standings(rows)
    made = Report("Lag of consumer groups", f"{plots.clock(low)} to {plots.clock(high)} UTC")
    # What was sampled for the last time long ago says nothing of the present.
    behind = [each for each in found if each.lag and each.sampled_ms >= high - TREND_MINUTES * MINUTE_MS]
    growing = [each for each in behind if each.trend is not None and each.trend >= 0]
    unknown = [each for each in behind if each.trend is None]
    if growing:
        made.verdict(f"Behind, and not catching up: {_names(growing)}.", good=False)
    if unknown:
        made.verdict(f"Behind, with one sample that tells no trend: {_names(unknown)}.", good=False)
    if not growing and not unknown:
        made.verdict("Every group that is behind is catching up.", good=True)
    for svg in charts(rows):
        made.chart(svg)
    made.heading("Now", f"Rates and trend are those of the last {TREND_MINUTES} minutes, in messages a second.")
    made.table([_words(each) for each in found])
    return made


def _names(standings: Sequence[Standing]) -> str:
    return ", ".join(f"{each.group} in {each.topic}" for each in standings)


def _words(each: Standing) -> Mapping[str, object]:
    return {
        "group": each.group,
        "topic": each.topic,
        "lag": each.lag,
        "lag, s": each.lag_seconds,
        "sent/s": each.sent_rate,
        "consumed/s": each.consumed_rate,
        "trend/s": each.trend,
        "drained in": _duration(each.drain_seconds) if each.lag and each.trend is not None else "",
        "expired": each.expired,
    }


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    days, hours, minutes = minutes // 1_440, minutes % 1_440 // 60, minutes % 60
    return " ".join(f"{value} {unit}" for value, unit in ((days, "d"), (hours, "h"), (minutes, "min")) if value)
