"""Rates and sums, from samples of counters that only grow (BrokerStatsManager.java, StatsItem.java)."""

import asyncio
import logging
from array import array
from collections import deque
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from rockmq.base.clock import Clock
from rockmq.protocol import topics
from rockmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

SAMPLE_SECONDS = 10.0
_WINDOWS = (10.0, 60.0, 600.0)


class Window(NamedTuple):
    """How far back a sum goes, and how often that is sampled; in seconds."""

    size: float
    period: float


MINUTE, HOUR, DAY = Window(60.0, SAMPLE_SECONDS), Window(3600.0, 600.0), Window(86_400.0, 3600.0)
SERIES_MAX = 50_000
"""Topics, and groups of topics, that are counted apart; those beyond count in the broker's sums alone. Each costs up to
2,500 bytes, and goes after a day without a message. The core tells as many topics apart, those that came first."""
SLICE = 1000
"""Series that are sampled before others get the loop: some milliseconds."""
CLEAN_SAMPLES = 360
"""Samples, an hour of them, between looks for series that are idle."""
SEPARATOR = "@"


class Rate:
    """A counter and how fast it grew of late."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.total = 0
        self._samples = deque([(clock.monotonic(), 0)], maxlen=int(_WINDOWS[-1] / SAMPLE_SECONDS) + 1)

    def sample(self) -> None:
        """Called every `SAMPLE_SECONDS`."""
        self._samples.append((self._clock.monotonic(), self.total))

    def per_second(self) -> tuple[float, ...]:
        """Growth per second over the last 10 s, minute and 10 minutes, as far as there are samples."""
        now = self._clock.monotonic()
        rates = []
        for window in _WINDOWS:
            at, total = next((s for s in self._samples if now - s[0] <= window + SAMPLE_SECONDS / 2), self._samples[-1])
            rates.append((self.total - total) / (now - at) if now > at else 0.0)
        return tuple(rates)

    def __str__(self) -> str:
        """As RocketMQ's runtime info has it: three numbers apart by spaces."""
        return " ".join(f"{rate:.6f}" for rate in self.per_second())


class Grown(NamedTuple):
    """By how much something grew in a time, how much that is a second, and how much it was at once on average."""

    sum: int
    per_second: float
    average: float


class Unit(IntEnum):
    """What a series counts side by side."""

    MESSAGES = 0
    BYTES = 1
    TIMES = 2
    """In so many requests; what is sent isn't counted by requests, but each message by itself."""


_ROW = 1 + len(Unit)


class Series:
    """Counts that only grow, and samples of them as far apart as each window wants. Where nothing changed there is none, so
    an idle series costs nothing."""

    __slots__ = ("_began", "_samples", "totals")

    def __init__(self, now: float) -> None:
        self.totals = [0] * len(Unit)
        self._began = now
        self._samples = {window: array("d") for window in (MINUTE, HOUR, DAY)}

    def sample(self, now: float) -> None:
        """Keep what is counted by now."""
        last = self._samples[MINUTE][-_ROW:]
        for window, samples in self._samples.items():
            # What it was before it was idle for long tells what came before that.
            if last and now - last[0] >= window.period and last[0] > samples[-_ROW]:
                samples.extend(last)
            if not samples or now - samples[-_ROW] >= window.period - SAMPLE_SECONDS / 2:
                samples.extend((now, *self.totals))
            while len(samples) > _ROW and samples[_ROW] <= now - window.size - window.period:
                del samples[:_ROW]

    def grown(self, unit: Unit, window: Window, now: float) -> Grown:
        """Over a window, or since the series began."""
        since = now - window.size + window.period / 2
        before = array("d", (self._began, *(0,) * len(Unit)))
        # The last sample before the window: of the newest things that may be one that a shorter window took.
        for samples in self._samples.values():
            for at in range(len(samples) - _ROW, -1, -_ROW):
                if samples[at] <= since:
                    before = max(before, samples[at : at + _ROW])
                    break
        amount = int(self.totals[unit] - before[1 + unit])
        times = self.totals[Unit.TIMES] - before[1 + Unit.TIMES]
        seconds = max(min(window.size, now - self._began), SAMPLE_SECONDS)
        return Grown(amount, amount / seconds, amount / times if times > 0 else 0.0)

    def is_idle(self, now: float) -> bool:
        """Whether nothing was counted for a day."""
        samples = self._samples[MINUTE]
        return now - (samples[-_ROW] if samples else self._began) > DAY.size


_PUT, _GOT, _BACK = "put", "got", "back"
_PUT_OTHERS, _GOT_OTHERS = "put, not to the system's topics", "got, not from the system's topics"

_NAMES: dict[str, tuple[str, Unit]] = {
    "TOPIC_PUT_NUMS": (_PUT, Unit.MESSAGES),
    "TOPIC_PUT_SIZE": (_PUT, Unit.BYTES),
    "BROKER_PUT_NUMS": (_PUT, Unit.MESSAGES),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": (_PUT_OTHERS, Unit.MESSAGES),
    "GROUP_GET_NUMS": (_GOT, Unit.MESSAGES),
    "GROUP_GET_SIZE": (_GOT, Unit.BYTES),
    "BROKER_GET_NUMS": (_GOT, Unit.MESSAGES),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": (_GOT_OTHERS, Unit.MESSAGES),
    "SNDBCK_PUT_NUMS": (_BACK, Unit.MESSAGES),
}
"""What is counted, by Apache's names; their keys are a topic, `topic@group`, or the cluster's name for all of a broker."""
STATS_NAMES = tuple(_NAMES)


class BrokerStats:
    """What comes into topics and what groups get, over a minute, an hour and a day."""

    def __init__(self, clock: Clock, store: MessageStore, cluster: str) -> None:
        self._clock = clock
        self._store = store
        self._cluster = cluster
        now = clock.monotonic()
        self._of_broker = {kind: Series(now) for kind in (_PUT, _GOT, _PUT_OTHERS, _GOT_OTHERS)}
        self._series: dict[tuple[str, str], Series] = {}
        """By kind, and topic or `topic@group`."""
        self._changed: dict[Series, None] = {}
        self._samples = 0
        self._is_full = False

    @property
    def got_total(self) -> int:
        """Messages handed out."""
        return self._of_broker[_GOT].totals[Unit.MESSAGES]

    def got(self, group: str, topic: str, messages: int, size: int) -> None:
        """A group was handed messages of a topic, in one answer."""
        self._count(self._of_broker[_GOT], messages, size)
        if not topics.is_system(topic):
            self._count(self._of_broker[_GOT_OTHERS], messages, size)
        self._count_apart(_GOT, f"{topic}{SEPARATOR}{group}", messages, size)

    def sent_back(self, group: str, topic: str) -> None:
        """A group sent a message of a topic back."""
        self._count_apart(_BACK, f"{topic}{SEPARATOR}{group}", 1, 0)

    def _count(self, series: Series, messages: int, size: int, times: int = 1) -> None:
        totals = series.totals
        totals[Unit.MESSAGES] += messages
        totals[Unit.BYTES] += size
        totals[Unit.TIMES] += times
        self._changed[series] = None

    def _count_apart(self, kind: str, key: str, messages: int, size: int, times: int = 1) -> None:
        series = self._series.get((kind, key))
        if series is None:
            if len(self._series) >= SERIES_MAX:
                self._tell_full(key)
                return
            series = self._series[kind, key] = Series(self._clock.monotonic())
        self._count(series, messages, size, times)

    def _tell_full(self, key: str) -> None:
        if not self._is_full:
            log.warning("statistics of %d topics and groups are kept, and of no more, as of %s", SERIES_MAX, key)
        self._is_full = True

    async def refresh(self) -> None:
        """Count what the core has appended since the last time."""
        while arrivals := self._store.core.take_arrivals(SLICE):
            # Of topics over the core's bound it isn't known which they are; the system's come first, as a rule.
            others = [arrival for arrival in arrivals if arrival[0] is None or not topics.is_system(arrival[0])]
            for kind, of_kind in ((_PUT, arrivals), (_PUT_OTHERS, others)):
                messages = sum(messages for _, messages, _ in of_kind)
                self._count(self._of_broker[kind], messages, sum(size for _, _, size in of_kind), messages)
            for topic, messages, size in arrivals:
                if topic is not None:
                    self._count_apart(_PUT, topic, messages, size, messages)
                else:
                    self._tell_full("topics that the core counts together")
            if len(arrivals) < SLICE:
                return
            await asyncio.sleep(0)

    async def sample(self) -> None:
        """Called every `SAMPLE_SECONDS`."""
        await self.refresh()
        changed, self._changed = self._changed, {}
        now = self._clock.monotonic()
        for number, series in enumerate(changed, 1):
            series.sample(now)
            if number % SLICE == 0:
                await asyncio.sleep(0)
        self._samples += 1
        if self._samples % CLEAN_SAMPLES == 0:
            await self._clean(now)

    async def _clean(self, now: float) -> None:
        for number, (key, series) in enumerate(list(self._series.items()), 1):
            if series.is_idle(now) and self._series.get(key) is series:
                del self._series[key]
            if number % SLICE == 0:
                await asyncio.sleep(0)
        self._is_full = len(self._series) >= SERIES_MAX

    def find(self, name: str, key: str) -> tuple[Series, Unit] | None:
        """A series by Apache's name and key; None when nothing of the kind was counted."""
        found = _NAMES.get(name)
        if found is None:
            return None
        kind, unit = found
        if name.startswith("BROKER_"):
            series = self._of_broker[kind] if key == self._cluster else None
        else:
            series = self._series.get((kind, key))
        return (series, unit) if series is not None else None

    def grown(self, series: Series, unit: Unit, window: Window) -> Grown:
        return series.grown(unit, window, self._clock.monotonic())

    def per_second(self, name: str, key: str) -> float:
        """Over the last minute, as of the last `refresh`; 0 when nothing was counted."""
        found = self.find(name, key)
        return self.grown(*found, MINUTE).per_second if found is not None else 0.0

    def forget_topic(self, topic: str, groups: Iterable[str]) -> None:
        """Also what these groups got of it."""
        self._series.pop((_PUT, topic), None)
        for group in groups:
            self._forget(topic, group)

    def forget_group(self, group: str, of_topics: Iterable[str]) -> None:
        """What a group got of these topics."""
        for topic in of_topics:
            self._forget(topic, group)

    def _forget(self, topic: str, group: str) -> None:
        for kind in (_GOT, _BACK):
            self._series.pop((kind, f"{topic}{SEPARATOR}{group}"), None)
