"""Timers on disk: messages for later, which lie in the queue of a topic until their time (TimerMessageStore.java,
TimerCheckpoint.java, TimerMetrics.java; store spec, 6.2).

The wheel (`timerwheel`) and its log (`timerlog/`) are the core's, see `native/core/src/timers.rs`. How far they are stands
in `config/timercheck`, 4096 bytes of which the first are used, big-endian i64 each:

     0  the time that is read next (ms)        24  the same offset, of the master
     8  the timer log is forced up to here     32  version of the state   40  its time   48  its count
    16  the queue of timers is read up to here
    56  what was due before this time (ms) ...     64  ... and lay below this offset of the queue was delivered

The last two are ours, and 0 but while all is made anew: when wheel and log don't agree with each other any more, or are of
another step, they are emptied and the whole queue is read again, and nothing is delivered until that is done. A kill on the
way leaves the checkpoint as it was at the beginning, and the next start begins anew.

How many messages are pending for each topic stands in `config/timermetrics`.

Nothing there is ahead of what is on disk: the read time passes a slot when the messages it held are forced where they
belong, and the wheel is written behind the units it leads to. What comes after the last save is found again by reading the
log's end, so after a kill at most the slots that were being delivered are delivered once more.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, field

from rockmq import _core
from rockmq.base import files
from rockmq.base.clock import Clock
from rockmq.base.errors import ConfigError, ProtocolError
from rockmq.config.broker import Timers as TimerOptions
from rockmq.protocol import json, topics
from rockmq.protocol.bodies.common import DataVersion
from rockmq.protocol.header import Long
from rockmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

CHECKPOINT_SIZE = 4096
APACHES_SIZE = 56
ENQUEUED_MAX = 256
"""Messages that are given units in one go: a fraction of a millisecond."""
BATCH_MAX = 128
BATCH_BYTES_MAX = 1 << 20
"""Messages that are due and in memory."""
BLANK_STEPS = 60
WEEK_STEPS = 7 * 86_400
IDLE_SAVE_MS = 60_000
"""How far the saved read time may be behind while nothing is due."""
DELETE_EVERY_SECONDS = 30
RESERVED_SHARE = 0.75
"""Of the time that the log keeps messages: a message that waits longer is stored anew before its record expires."""

TOPICS_MAX = 50_000
"""Topics whose timers are counted apart; those of more are only in the sums."""

_CHECKPOINT = struct.Struct(">9q")

T = TypeVar("T")


class Checkpoint(NamedTuple):
    read_time: int = 0
    forced: int = 0
    offset: int = 0
    master_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0
    again_before: int = 0
    again_below: int = 0

    @classmethod
    def load(cls, path: Path) -> "Checkpoint | None":
        """None when there is none. What makes no sense in a damaged one is corrected by the files it tells of."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        if len(data) < APACHES_SIZE:
            return None
        found = cls(*_CHECKPOINT.unpack_from(data.ljust(_CHECKPOINT.size, b"\0")))
        if not (0 <= found.again_before <= found.read_time and found.again_below >= 0):
            found = found._replace(again_before=0, again_below=0)
        return found if min(found[:3]) >= 0 else None

    def save(self, path: Path) -> None:
        files.overwrite(path, _CHECKPOINT.pack(*self), CHECKPOINT_SIZE)


class _Metric(Struct, rename="camel"):
    count: Long = 0
    time_stamp: Long = 0


class Metrics(Struct, rename="camel"):
    """The document `timermetrics`: messages that wait, by topic."""

    data_version: DataVersion = field(default_factory=DataVersion)
    timing_count: dict[str, _Metric] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> "Metrics":
        """An empty one when none can be read: what waits is counted from 0 then."""
        for each, text in files.candidates(path):
            try:
                found = json.decode(text, cls, str(each))
            except ProtocolError as error:
                log.warning("%s; pending messages are counted from 0", error)
            else:
                found.timing_count = {topic: metric for topic, metric in found.timing_count.items() if metric.count > 0}
                return found
        return cls()


class Due(NamedTuple):
    """A message whose time has come, or that has to be stored anew (`rolls`). `write_time` is when it came to the wheel."""

    record: bytes
    write_time: int
    rolls: bool


_Placed: TypeAlias = tuple[int, int, int, list[tuple[str, int]]]
_Handed: TypeAlias = tuple[list[tuple[bytes, int, bool]], bool, int, list[tuple[str, int]]]


class TimerStore:
    """The timers of a store, from `open` to `close`. Used by one task; times are ms, in whole steps of the wheel."""

    def __init__(self, store: MessageStore, options: TimerOptions, reserved_hours: int, clock: Clock) -> None:
        self._store = store
        self._options = options
        self._clock = clock
        self.step = options.timer_precision_ms
        reserved_steps = int(reserved_hours * 3_600_000 * RESERVED_SHARE) // self.step
        self._window = max(2, min(options.timer_roll_window_slot, reserved_steps))
        self._checkpoint_path = store.config_directory / "timercheck"
        self._metrics_path = store.config_directory / "timermetrics"
        # One thread for its file work, which another's may hold up for long.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="timers")
        self._uncommitted: deque[tuple[int, int]] = deque()
        """(where the last message of a slot ends, the time behind the slot), in order."""
        self._placing: asyncio.Future[_Placed] | None = None
        self._open_slot = False
        self._batch: deque[Due] = deque()
        self._coming: asyncio.Future[_Handed] | None = None
        self._last = False
        """Whether `_batch` is the slot's last."""
        self._end = 0
        """Where the message that was delivered last ends."""
        self._changed = False
        self._read_again_to = 0
        self._failing: set[str] = set()
        """What doesn't succeed for now."""
        self._next_delete = 0.0
        self.enqueued = 0
        self.delivered = 0
        self.enqueued_by: dict[str, int] = {}
        self.delivered_by: dict[str, int] = {}
        """The same by topic, of which there are `TOPICS_MAX` at most."""

    @property
    def queue(self) -> tuple[int, int]:
        """(minimum, end) of the queue of timers."""
        return self._store.bounds(topics.TIMER, 0)

    @property
    def behind(self) -> int:
        """Messages in the queue of timers that have no unit yet."""
        return max(0, self.queue[1] - self.offset)

    @property
    def pending(self) -> int:
        """Messages that wait, as far as they are counted."""
        return sum(metric.count for metric in self._metrics.timing_count.values())

    @property
    def pending_by(self) -> dict[str, int]:
        """The same by topic."""
        return {topic: metric.count for topic, metric in self._metrics.timing_count.items()}

    @property
    def checkpoint(self) -> Checkpoint:
        """How far everything is that needn't be done again."""
        return self._saved

    def counts(self) -> bytes:
        """Messages that wait, by topic: the document `timermetrics`."""
        return json.encode(self._metrics)

    def count(self, time: int) -> int:
        """Messages of the slot of a time."""
        return self._core.count(time)

    def count_between(self, from_time: int, to_time: int) -> int | None:
        """Messages of the slots of these times, without the last; None while the worker is at work on the wheel."""
        return self._core.count_between(from_time, to_time)

    # Start and stop

    async def open(self) -> None:
        """Take up what is there. Raises ConfigError when it can't be opened."""
        try:
            await self._in_worker(self._open)
        except BaseException as error:
            # Who gives up waiting doesn't end what the worker has begun, and the store's lock has to outlast that.
            self._worker.shutdown(wait=True)
            if isinstance(error, (_core.StoreError, OSError)):
                raise ConfigError(f"the timers of {self._store.root} can't be opened: {error}") from None
            raise

    def _open(self) -> None:
        root, now = self._store.root, self._clock.now_ms()
        saved = Checkpoint.load(self._checkpoint_path)
        if saved is not None and saved.read_time > now + WEEK_STEPS * self.step:
            log.error("%s says %d ms, which can't be; it is left out", self._checkpoint_path, saved.read_time)
            saved = None
        self._saved = saved or Checkpoint(read_time=max(0, now - (WEEK_STEPS - BLANK_STEPS) * self.step))
        self._core = _core.Timers(
            self._store.core,
            str(root / "timerwheel"),
            str(root / "timerlog"),
            file_size=self._options.mapped_file_size_timer_log,
            step_ms=self.step,
            window=self._window,
        )
        self.read_time = self._committed = self._floor(self._saved.read_time)
        self.write_time = self._floor(now)
        _, behind, agrees = self._core.recover(self._saved.forced, self.read_time)
        minimum, maximum = self.queue
        self.offset = min(max(behind or 0, self._saved.offset, minimum), maximum)
        self._delivered_before = (min(self._saved.offset, maximum), self.read_time)
        self._metrics = Metrics.load(self._metrics_path)
        if not agrees or self._saved.again_before:
            self._make_anew(self._saved.offset)

    def _make_anew(self, placed_below: int) -> None:
        """Empty wheel and log, and have the queue of timers read again from its beginning; messages below that offset had
        units."""
        saved, (minimum, maximum) = self._saved, self.queue
        if saved.again_before:  # a kill came between
            self._delivered_before = (saved.again_below, saved.again_before)
        else:
            late = self._core.late(self.read_time)
            self._delivered_before = (min(placed_below, maximum), self.read_time)
            # Once this process is gone nobody tells who came late and waits from others that were due then.
            before = min(self._committed, self.read_time if late is None else late)
            saved = saved._replace(
                read_time=self._committed,
                forced=0,
                offset=minimum,
                again_before=max(before, 1),
                again_below=self._delivered_before[0],
            )
            saved.save(self._checkpoint_path)
            self._saved = saved
        log.warning(
            "the timer wheel of %s is made anew; the queue of timers is read again, %d to %d",
            self._store.root,
            minimum,
            maximum,
        )
        self._core.remake()
        self._core.look_ahead(minimum, maximum, self._store.readable_limit)
        self._metrics = Metrics()  # all that waits is counted once more
        self.offset, self._read_again_to, self._changed = minimum, maximum, True

    @property
    def is_reading_again(self) -> bool:
        """Whether messages that wait may not be in the wheel yet."""
        return self.offset < self._read_again_to

    async def close(self) -> None:
        """Save how far everything is, so that the next start delivers nothing twice."""
        try:
            # First: what `give_back` puts behind it doesn't tell how far the queue was read.
            await self._take_placed()
            await self._take()
            if self._open_slot and self._last and not self._batch:
                self._end_slot()
            if self._open_slot:
                await self._in_worker(self._core.give_back, len(self._batch), self.write_time)
                self._open_slot, self._changed = False, True
                self._batch.clear()
            if self._changed or (self._uncommitted and self._saved.forced):
                await self._in_worker(self._store.core.flush)
                await self._save_all()
        except (_core.StoreError, OSError) as error:
            log.error(
                "timers of %s are left as if killed; what was just delivered may come again: %s", self._store.root, error
            )
        self._worker.shutdown(wait=True)

    # From the queue into the wheel

    async def enqueue(self) -> bool:
        """Give the next messages of the queue units; whether there may be more."""
        behind = self.behind
        if not behind:
            return False
        enqueue = partial(
            self._core.enqueue,
            self.offset,
            ENQUEUED_MAX,
            self._store.readable_limit,
            # A slot that is open has handed out its units already.
            read_time=self.read_time + (self.step if self._open_slot else 0),
            write_time=self.write_time,
            delivered=self._delivered_before,
        )
        # What has just been stored is in memory, what has lain for long may not be.
        if behind <= ENQUEUED_MAX:
            return self._note_placed(enqueue)
        self._placing = asyncio.get_running_loop().run_in_executor(self._worker, enqueue)
        return await self._take_placed()

    async def _take_placed(self) -> bool:
        """Take over what the worker has put into the wheel; whether it was anything. Who is cancelled meanwhile leaves that
        to `close`."""
        if self._placing is None:
            return False
        await asyncio.wait([self._placing])
        placing, self._placing = self._placing, None
        return self._note_placed(placing.result)

    def _note_placed(self, enqueue: Callable[[], _Placed]) -> bool:
        before = self.offset
        try:
            self.offset, placed, unreadable, counts = enqueue()
        except _core.StoreError as error:
            self._note_failure("put into the wheel", error)
            return False
        self._failing.discard("put into the wheel")
        if unreadable:
            log.error(
                "%d messages of %s before %d say no time or topic; nobody gets them", unreadable, topics.TIMER, self.offset
            )
        self._count(dict(counts))
        self.enqueued += placed
        for topic, count in counts:
            if count > 0:
                _add(self.enqueued_by, topic, count)
        self._changed |= self.offset != before
        return self.offset > before

    # From the wheel to where they belong

    async def follow_clock(self) -> None:
        """If the clock went back to before what was read, let the wheel go back too: what comes now needs those slots."""
        self._commit()
        now = self._floor(self._clock.now_ms())
        if now >= self.read_time or self._open_slot or self._committed < self.read_time or self.is_reading_again:
            return
        log.warning("the clock went back by %d ms; timers follow it", self.read_time - now)
        self._core.erase(now, self.read_time)
        self.read_time = self.write_time = self._committed = now
        # Before anything is put there: after a kill it would count as delivered.
        await self._save_all()

    def tell_time(self) -> None:
        """Let the wheel turn to what the clock says."""
        self.write_time = max(self.read_time, self._floor(self._clock.now_ms()))

    async def due(self) -> deque[Due]:
        """The messages to be delivered next, as far as they have come due; what is delivered is taken from it from the left,
        with `done`. Empty when nothing is due."""
        while not self._batch:
            if not self._open_slot:
                self._pass(self._core.next_time(self.read_time, self.write_time))
                if self.read_time >= self.write_time:
                    break
                count, whole = await self._in_worker(self._core.open_slot, self.read_time)
                if not whole:
                    log.error("the timer log has lost units of %d ms; %d messages are left of it", self.read_time, count)
                    await self._in_worker(self._make_anew, self.offset)
                    break
                self._open_slot, self._last = True, False
            if self._last:
                self._end_slot()
                continue
            loop = asyncio.get_running_loop()
            self._coming = loop.run_in_executor(self._worker, self._core.due, BATCH_MAX, BATCH_BYTES_MAX)
            await self._take()
        return self._batch

    async def _take(self) -> None:
        """Take over what the core hands out. Who is cancelled meanwhile leaves that to `close`."""
        if self._coming is None:
            return
        records, self._last, lost, counts = await asyncio.shield(self._coming)
        self._coming = None
        self._batch.extend(Due(*record) for record in records)
        self._count(dict(counts))
        if lost:
            log.error("%d messages for %d ms aren't in the log any more", lost, self.read_time)

    def done(self, real_topic: str, end: int) -> None:
        """The next message of `due` is stored, up to the position `end`, or can't be: 0."""
        self._batch.popleft()
        self._end = max(self._end, end)
        self.delivered += 1
        _add(self.delivered_by, real_topic, 1)
        self._count({real_topic: -1})

    def _end_slot(self) -> None:
        self._open_slot = False
        self._changed = True
        self._pass(self.read_time + self.step)

    def _pass(self, time: int) -> None:
        """Everything before a time is delivered."""
        if time > self.read_time:
            self.read_time = time
            if self._uncommitted and self._uncommitted[-1][0] == self._end:
                self._uncommitted.pop()
            self._uncommitted.append((self._end, time))

    def _count(self, counts: dict[str, int]) -> None:
        table, now = self._metrics.timing_count, self._clock.now_ms()
        for topic, count in counts.items():
            metric = table.setdefault(topic, _Metric())
            metric.count += count
            metric.time_stamp = now
            if metric.count <= 0:
                del table[topic]

    # Saving

    async def save(self) -> None:
        """Save how far everything is, if that has changed."""
        self._commit()
        if not self._changed and self._committed - self._saved.read_time < IDLE_SAVE_MS:
            return
        if not self._changed and not self._saved.forced:
            return  # there never was a timer
        try:
            await self._save_all()
        except (_core.StoreError, OSError) as error:
            self._note_failure("saved", error)
        else:
            self._failing.discard("saved")

    async def _save_all(self) -> None:
        if self.is_reading_again:
            return  # it has to be begun anew after a kill
        self._commit()
        self._changed = bool(self._uncommitted)
        try:
            await self._in_worker(self._save, self._checkpoint(), self._metrics_text())
        except BaseException:
            self._changed = True
            raise

    def _commit(self) -> None:
        durable = self._store.core.flushed_position
        while self._uncommitted and self._uncommitted[0][0] <= durable:
            self._committed = self._uncommitted.popleft()[1]

    def _checkpoint(self) -> Checkpoint:
        offset, now = self.offset, self._clock.now_ms()
        counter = self._saved.counter + 1
        return Checkpoint(self._committed, 0, offset, offset, self._saved.state_version, now, counter)

    def _metrics_text(self) -> bytes:
        version = self._metrics.data_version = self._metrics.data_version.advanced(self._clock.now_ms())
        return msgspec.json.encode(Metrics(version, self._metrics.timing_count))

    def _save(self, checkpoint: Checkpoint, metrics: bytes) -> None:
        if self.is_reading_again:
            return  # since it was asked for
        forced = self._core.flush()
        saved = checkpoint._replace(forced=forced)
        saved.save(self._checkpoint_path)
        before, self._saved = self._saved.read_time, saved
        # If the clock goes back these slots are used once more.
        self._core.erase(before, saved.read_time)
        files.save_parts(self._metrics_path, [metrics])
        if self._clock.monotonic() >= self._next_delete:
            self._next_delete = self._clock.monotonic() + DELETE_EVERY_SECONDS
            for path in self._core.delete_below(self._store.core.min_position):
                log.info("deleted %s: the log holds none of its messages any more", path)

    def _note_failure(self, done: str, error: Exception) -> None:
        """Tell it once: it is tried again until it succeeds."""
        if done not in self._failing:
            self._failing.add(done)
            log.error("timers of %s can't be %s; it is tried again until they can: %s", self._store.root, done, error)

    def _floor(self, time: int) -> int:
        return time // self.step * self.step

    async def _in_worker(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, partial(work, *arguments))


def _add(by_topic: dict[str, int], topic: str, count: int) -> None:
    if topic in by_topic or len(by_topic) < TOPICS_MAX:
        by_topic[topic] = by_topic.get(topic, 0) + count
