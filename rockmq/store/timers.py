"""Timers on disk: messages for later, which lie in the queue of a topic until their time (TimerMessageStore.java,
TimerCheckpoint.java, TimerMetrics.java; store spec, 6.2).

The wheel (`timerwheel`) and its log (`timerlog/`) are the core's, see `native/core/src/timers.rs`. How far they are stands
in `config/timercheck`, 4096 bytes of which the first are used, big-endian i64 each:

     0  the time that is read next (ms)        24  the same offset, of the master
     8  the timer log is forced up to here     32  version of the state   40  its time   48  its count
    16  the queue of timers is read up to here

and how many messages are pending for each topic in `config/timermetrics`.

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
from rockmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

CHECKPOINT_SIZE = 4096
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

_CHECKPOINT = struct.Struct(">7q")

T = TypeVar("T")


class Checkpoint(NamedTuple):
    read_time: int = 0
    forced: int = 0
    offset: int = 0
    master_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    @classmethod
    def load(cls, path: Path) -> "Checkpoint | None":
        """None when there is none. What makes no sense in a damaged one is corrected by the files it tells of."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        if len(data) < _CHECKPOINT.size:
            return None
        found = cls(*_CHECKPOINT.unpack_from(data))
        return found if min(found[:3]) >= 0 else None

    def save(self, path: Path) -> None:
        files.overwrite(path, _CHECKPOINT.pack(*self), CHECKPOINT_SIZE)


class _Metric(Struct, rename="camel"):
    count: int = 0
    time_stamp: int = 0


class _Metrics(Struct, rename="camel"):
    data_version: DataVersion = field(default_factory=DataVersion)
    timing_count: dict[str, _Metric] = field(default_factory=dict)


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
        self._failing: set[str] = set()
        """What doesn't succeed for now."""
        self._next_delete = 0.0
        self.enqueued = 0
        self.delivered = 0

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

    def count(self, time: int) -> int:
        """Messages of the slot of a time."""
        return self._core.count(time)

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
        end, behind, anew = self._core.recover(self._saved.forced, self.read_time)
        minimum, maximum = self.queue
        self._delivered_before = (min(self._saved.offset, maximum), self.read_time)
        lost = end < self._saved.forced
        # The log can be ahead of the checkpoint, and behind it when it was damaged.
        offset = behind or 0 if lost or anew else max(behind or 0, self._saved.offset)
        self.offset = min(max(offset, minimum), maximum)
        self._load_metrics()
        if anew or lost:
            log.warning(
                "the timer wheel of %s was made anew; the queue of timers is read again from %d of %d on",
                root,
                self.offset,
                maximum,
            )
            if behind is None:
                self._metrics = _Metrics()  # all that waits is counted once more
            self._core.look_ahead(self.offset, maximum, self._store.readable_limit)
            self._save(self._checkpoint(), self._metrics_text())

    def _load_metrics(self) -> None:
        for path, text in files.candidates(self._metrics_path):
            try:
                self._metrics = json.decode(text, _Metrics, str(path))
                return
            except ProtocolError as error:
                log.warning("%s; pending messages are counted from 0", error)
        self._metrics = _Metrics()

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
        self._changed |= self.offset != before
        return self.offset > before

    # From the wheel to where they belong

    async def follow_clock(self) -> None:
        """If the clock went back to before what was read, let the wheel go back too: what comes now needs those slots."""
        self._commit()
        now = self._floor(self._clock.now_ms())
        if now >= self.read_time or self._open_slot or self._committed < self.read_time:
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
                self._open_slot, self._last = True, False
                if not whole:
                    log.error("the timer log has lost units of %d ms; %d messages are left of it", self.read_time, count)
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
        return msgspec.json.encode(_Metrics(version, self._metrics.timing_count))

    def _save(self, checkpoint: Checkpoint, metrics: bytes) -> None:
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
