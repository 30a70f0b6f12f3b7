"""Delay levels (HookUtils.handleScheduleMessage, ScheduleMessageService.java; store spec, 6.1).

A message with a level (property DELAY) is parked: stored in queue `level - 1` of SCHEDULE_TOPIC_XXXX, with where it belongs
in its properties. The core's lane does that with ordinary sends, the hook here with all others. When it is due the core
stores it once more, there (`_core.Store.deliver`). The queue of a level is in order of time, so one number tells how far it
is delivered: `config/delayOffset.json` maps each level to the next entry of its queue.

That number is never ahead of the disk: what is saved is how far deliveries are forced. So a message is delivered at
least once, and after a clean stop once.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec import field as member

from rockmq.base.clock import Clock
from rockmq.base.errors import StoreUnavailable
from rockmq.base.tasks import Tasks
from rockmq.broker.documents import Saver, load, parts, save
from rockmq.broker.drafts import Draft
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.long_polling import LongPolling
from rockmq.config.broker import Store as StoreOptions
from rockmq.protocol import properties, topics
from rockmq.protocol.bodies.common import DataVersion
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.flags import MessageFlag, TransactionState
from rockmq.protocol.header import Int, Long
from rockmq.remoting.dispatch import Refusal
from rockmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

SLICE = 256
SLICE_BYTES = 1 << 20
"""Messages, and bytes of them, that are delivered without the event loop getting a turn: less than a millisecond."""
LOOK_SECONDS = 0.5
"""The longest sleep while messages wait: clocks may be set."""
RETRY_MS = 1000
"""How long a level rests after the store has taken nothing, or something went wrong."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")
_DELAYABLE = (TransactionState.NONE, TransactionState.COMMIT)


def level_of(found: dict[str, str]) -> int:
    """The delay level that properties ask for; none is 0 or below. Raises Refusal when it is no number."""
    text = found.get(properties.DELAY, "0")
    level = int(text) if _NUMBER.fullmatch(text) else 2**31
    if not -(2**31) <= level < 2**31:
        remark = f"property {properties.DELAY} is {text[:40]!r}: expected the number of a delay level"
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
    return level


class _Document(Struct, rename="camel"):
    offset_table: dict[Int, Long] = member(default_factory=dict)
    data_version: DataVersion = member(default_factory=DataVersion)


@dataclass(slots=True)
class _Level:
    number: int
    delay_ms: int
    next: int
    """The entry to look at next."""
    forced: int
    """The entry up to which deliveries are on disk."""
    due: int | None = 0
    """When to look (ms); None while nothing is parked, when the next message that is tells."""
    begun: deque[tuple[int, int]] = field(default_factory=deque)
    """(end of the last record, next entry) of slices that may not be on disk."""

    def is_to_be_looked_at(self, now: int) -> bool:
        # Nothing is further off than the level means, unless the clock has gone back.
        return self.due is not None and not now < self.due <= now + max(self.delay_ms, RETRY_MS)

    def settle(self, position: int) -> None:
        """The log is on disk up to there."""
        while self.begun and self.begun[0][0] <= position:
            self.forced = self.begun.popleft()[1]


class Delays:
    """Parks messages, as a hook of the writer, and delivers them, from `start` to `close`."""

    def __init__(
        self, options: StoreOptions, store: MessageStore, gate: DurabilityGate, long_polling: LongPolling, clock: Clock
    ) -> None:
        """`store` was started. Raises ConfigError when the document can't be read."""
        self._save_seconds = options.flush_delay_offset_interval / 1000
        self._store = store
        self._gate = gate
        self._long_polling = long_polling
        self._clock = clock
        self._path = store.config_directory / "delayOffset.json"
        document = load(self._path, _Document) or _Document()
        self._version = document.data_version
        self._table = document.offset_table
        """The document's; it may know levels that aren't configured any more."""
        self._is_changed = False
        self._levels = [self._level(number, delay_ms) for number, delay_ms in enumerate(options.delay_levels, 1)]
        self._saver = Saver(self._path, self._save)
        self._tasks = Tasks()
        self._woken = asyncio.Event()
        self._is_paused = False

    def _level(self, number: int, delay_ms: int) -> _Level:
        low, high = self._store.bounds(topics.SCHEDULE, number - 1)
        saved = self._table.get(number, 0)
        offset = max(low, min(saved, high))
        if offset != saved and number in self._table:
            log.warning("%s: level %d is delivered up to %d, its queue has %d to %d; going on at %d",
                        self._path, number, saved, low, high, offset)  # fmt: skip
        return _Level(number, delay_ms, offset, offset)

    # Parking

    def park(self, draft: Draft) -> None:
        """Send a message with a delay level to where it waits. Raises Refusal for a level that is no number."""
        asked = level_of(draft.properties)
        level = min(asked, len(self._levels))
        if level <= 0 or draft.sys_flag & MessageFlag.TRANSACTION not in _DELAYABLE:
            return
        if draft.topic == topics.TRANSACTION_HALF:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"a transaction can't be delayed (property {properties.DELAY})")
        found = draft.properties
        for key in (properties.TIMER_DELAY_SEC, properties.TIMER_DELAY_MS, properties.TIMER_DELIVER_MS):
            found.pop(key, None)  # a level goes before a timer
        if level < asked:
            found[properties.DELAY] = str(level)
        found[properties.REAL_TOPIC] = draft.topic
        found[properties.REAL_QID] = str(draft.queue_id)
        draft.topic = topics.SCHEDULE
        draft.queue_id = level - 1
        draft.light_queues = ()  # it is in those when it is delivered

    # Delivering

    def start(self) -> None:
        self._tasks.start(self._run(), "delay levels")
        self._tasks.every(self._save_seconds, self.flush, "delay offsets")

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            for level in self._levels:
                if level.is_to_be_looked_at(self._clock.now_ms()):
                    self._deliver_or_rest(level)
                    await asyncio.sleep(0)
            dues = [level.due for level in self._levels if level.due is not None]
            pause = min((min(dues) - self._clock.now_ms()) / 1000, LOOK_SECONDS) if dues else None
            if pause is None:
                await self._woken.wait()
            elif pause > 0:
                timer = self._clock.call_later(pause, self._woken.set)
                try:
                    await self._woken.wait()
                finally:
                    timer.cancel()

    def _deliver_or_rest(self, level: _Level) -> None:
        try:
            self._deliver(level)
        except Exception:
            if self._store.failed:
                raise
            # Whatever it was, the other levels go on, and this one has passed nothing over.
            log.exception("level %d stumbled; next try in %d ms", level.number, RETRY_MS)
            level.due = self._clock.now_ms() + RETRY_MS

    def _deliver(self, level: _Level) -> None:
        """Deliver a slice of what is due."""
        try:
            done = self._store.deliver(level.number, level.next, SLICE, SLICE_BYTES)
        except StoreUnavailable as error:
            level.due = self._clock.now_ms() + RETRY_MS
            if not self._is_paused:
                self._is_paused = True
                log.warning("delayed messages wait on: %s", error)
            return
        if self._is_paused:
            self._is_paused = False
            log.warning("delayed messages are delivered again")
        for position, why in done.passed_over:
            log.error("the message of level %d at position %d can't be delivered: %s", level.number, position, why)
        if done.next_offset != level.next:
            before = level.begun[-1][0] if level.begun else 0
            level.begun.append((done.end or before, done.next_offset))
            level.settle(self._store.core.flushed_position)
            level.next = done.next_offset
        if done.end and self._store.is_sync:
            self._store.request_flush()
        for topic, queue_id in done.arrivals:
            self._gate.wake_when_durable(topic, queue_id, done.end)
        level.due = done.due
        if done.due is None:
            self._watch(level)

    def _watch(self, level: _Level) -> None:
        """Have the next message that is parked told; it is when it may be read."""
        queue_id = level.number - 1

        def arrived() -> None:
            level.due = 0
            self._woken.set()

        self._long_polling.listen(topics.SCHEDULE, queue_id, arrived)
        if self._store.bounds(topics.SCHEDULE, queue_id)[1] > level.next:
            self._gate.wake_when_durable(topics.SCHEDULE, queue_id, self._store.core.max_position)

    # Keeping

    def pieces(self) -> Iterator[bytes]:
        """The document as it is now, see `parts`."""
        self._settle()
        rows = [(str(number), offset) for number, offset in sorted(self._table.items())]
        return parts({"dataVersion": self._version}, offsetTable=rows)

    def _settle(self) -> None:
        """Note what was delivered and is on disk."""
        for level in self._levels:
            level.settle(self._store.core.flushed_position)
            if level.forced != self._table.get(level.number, 0):
                self._table[level.number] = level.forced
                self._is_changed = True

    def flush(self) -> None:
        """Have the document written if more was delivered since the last time."""
        self._settle()
        if self._is_changed:
            self._is_changed = False
            self._version = self._version.advanced(self._clock.now_ms())
            self._saver.later()

    def figures(self) -> dict[str, str]:
        """How far each level is delivered, and what its queue has, for the runtime information."""
        self._settle()
        found = {}
        for number, offset in sorted(self._table.items()):
            end = self._store.bounds(topics.SCHEDULE, number - 1)[1]
            found[f"scheduleMessageOffset_{number}"] = f"{offset},{end}"
        return found

    async def _save(self) -> None:
        await save(self._path, self.pieces())

    async def close(self) -> None:
        """Deliver nothing more, and save how far it went."""
        await self._tasks.close()
        if any(level.begun for level in self._levels):
            try:
                await self._store.force()
            except StoreUnavailable as error:
                log.error("what was delivered last may be delivered again: %s", error)
        self.flush()
        await self._saver.close()
