"""Messages that are delivered at a time: parked when they are sent, delivered when it has come (HookUtils.java,
TimerMessageStore.java; store spec, 6.2).

A message that says when it wants to be delivered goes to the timer topic first; `store/timers.py` leads it through the wheel
from there. A delivered one is a new record of its real topic, which keeps the properties of its way.
"""

import asyncio
import logging
import random
import re
import time

from rockmq.base.clock import Clock, sleep
from rockmq.base.errors import ProtocolError, StoreUnavailable
from rockmq.broker.drafts import Draft, DraftWriter
from rockmq.config.broker import INT_MAX, BrokerOptions
from rockmq.protocol import properties, topics
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.flags import MessageFlag, TransactionState
from rockmq.remoting.dispatch import Refusal
from rockmq.store.message_store import MessageStore
from rockmq.store.timers import Due, TimerStore

log = logging.getLogger(__name__)

SLICE_SECONDS = 0.002
"""How long timers hold the loop."""
TICKS_PER_STEP = 10
ROOM = 120
"""Bytes that a delivery may add to the properties."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


class TimerHook:
    """Sends messages with a time into the timer topic."""

    def __init__(self, options: BrokerOptions, timers: TimerStore | None, clock: Clock) -> None:
        self._options = options.timers
        self._timers = timers
        self._clock = clock

    def __call__(self, draft: Draft) -> None:
        found = draft.properties
        for key in properties.TIMER_WISHES:
            if key in found:
                break
        else:
            return
        if draft.sys_flag & MessageFlag.TRANSACTION not in (TransactionState.NONE, TransactionState.COMMIT):
            return
        if draft.topic == topics.TIMER:
            return  # it is stored anew on its way
        if _has_level(found):
            for each in properties.TIMER_WISHES:
                found.pop(each, None)
            return
        if properties.TIMER_OUT_MS not in found:
            self._park(draft, key)

    def _park(self, draft: Draft, key: str) -> None:
        if self._timers is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"timer messages (property {key}) need timerWheelEnable=true")
        found, now = draft.properties, self._clock.now_ms()
        deliver = self._wish(key, found[key], now)
        is_recall = properties.TIMER_DEL_UNIQKEY in found
        if deliver <= now:
            if is_recall:
                remark = f"property {key} asks for a time that is past; there is nothing to take back any more"
                raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
            return
        if deliver - now > self._options.timer_max_delay_sec * 1000:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                f"property {key}={found[key]} asks for a delay of {deliver - now} ms, timerMaxDelaySec is "
                f"{self._options.timer_max_delay_sec}",
            )
        # The slot is read when its step is over, so nothing is early.
        step = self._timers.step
        due = (deliver - 1) // step * step
        if not is_recall:
            self._check_congestion(due)
        found[properties.TIMER_OUT_MS] = str(due)
        found[properties.REAL_TOPIC] = draft.topic
        found[properties.REAL_QID] = str(draft.queue_id)
        _check_room(found)
        draft.topic, draft.queue_id, draft.light_queues = topics.TIMER, 0, ()

    def _wish(self, key: str, text: str, now: int) -> int:
        if _NUMBER.fullmatch(text) is None or not -(2**63) <= int(text) < 2**63:
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, f"property {key}={text[:40]!r}: expected a whole number of 64 bits")
        match key:
            case properties.TIMER_DELAY_SEC:
                return now + int(text) * 1000
            case properties.TIMER_DELAY_MS:
                return now + int(text)
            case _:
                return int(text)

    def _check_congestion(self, due: int) -> None:
        limit = self._options.timer_congest_num_each_slot
        if limit == INT_MAX or self._timers is None:
            return
        count = self._timers.count(due)
        if count > limit and (count >= 2 * limit or random.random() * limit < count - limit):
            raise Refusal(
                # Apache's code: it makes a Java producer try another broker.
                ResponseCode.SYSTEM_ERROR,
                f"flow control: {count} messages wait for {due} ms already, timerCongestNumEachSlot is {limit}",
            )


class TimerDelivery:
    """Delivers what is due; `run` is a task."""

    def __init__(
        self, options: BrokerOptions, timers: TimerStore, store: MessageStore, writer: DraftWriter, clock: Clock
    ) -> None:
        self._options = options
        self._timers = timers
        self._store = store
        self._writer = writer
        self._clock = clock
        self._paused = False

    async def run(self) -> None:
        tick = self._timers.step / 1000 / TICKS_PER_STEP
        while True:
            try:
                is_busy = await self._turn()
            except Exception:
                # Whatever it was, other timers wait behind it; nothing has been passed over.
                log.exception("timers stumbled; next try in %s s", 1)
                await asyncio.sleep(1)
                continue
            await sleep(self._clock, 0 if is_busy else tick)

    async def _turn(self) -> bool:
        """A slice of the work; whether there is more."""
        is_busy = False
        await self._timers.follow_clock()
        # What was sent before a step ended has to be in the wheel when that is read.
        if not self._options.timers.timer_stop_enqueue:
            end = time.perf_counter() + SLICE_SECONDS
            is_busy = await self._timers.enqueue()
            while is_busy and time.perf_counter() < end:
                is_busy = await self._timers.enqueue()
        self._timers.tell_time()
        # One that is read again later may take another one back.
        holds_back = is_busy and self._timers.is_reading_again
        if not self._options.timers.timer_stop_dequeue and not holds_back:
            is_busy |= await self._deliver()
        return is_busy

    async def _deliver(self) -> bool:
        end = time.perf_counter() + SLICE_SECONDS
        before = self._timers.delivered
        try:
            while due := await self._timers.due():
                while due:
                    if not self._put(due[0]):
                        return False
                    if time.perf_counter() >= end:
                        return True
            return False
        finally:
            # No sender waits for it and asks for that.
            if self._store.is_sync and self._timers.delivered > before:
                self._store.request_flush()

    def _put(self, due: Due) -> bool:
        """Store a message where it belongs; False when there is no room now."""
        topic, end = "", 0
        try:
            draft = Draft.of(due.record)
            topic = draft.properties[properties.REAL_TOPIC]
            self._address(draft, due)
            end = self._append(draft)
        except StoreUnavailable as error:
            if not self._paused:
                log.warning("no timer message is delivered for now: %s", error)
            self._paused = True
            return False
        except (Refusal, ProtocolError, ValueError, KeyError) as error:
            log.error("a timer message can't be delivered, now or later: %r", error, extra={"topic": topic})
        self._paused = False
        self._timers.done(topic, end)
        return True

    def _append(self, draft: Draft) -> int:
        """Store a message: where it ends."""
        try:
            return self._writer.put(draft).end
        except ProtocolError:
            if not draft.light_queues:
                raise
            # Without them, as they can't be had any more: its own queue has it at least.
            draft.light_queues = ()
            return self._writer.append(draft).end

    def _address(self, draft: Draft, due: Due) -> None:
        """Say where the message goes: to its topic, or once more through the timer topic (TimerMessageStore.convert)."""
        found = draft.properties
        found.pop(properties.CRC32, None)
        found[properties.TIMER_ENQUEUE_MS] = str(due.write_time)
        if due.rolls:
            # The first may be its producer's, which can be anything.
            rolls = properties.number(found.get(properties.TIMER_ROLL_TIMES)) or 0
            found[properties.TIMER_ROLL_TIMES] = str(rolls + 1)
        found[properties.TIMER_DEQUEUE_MS] = str(self._clock.now_ms())
        if due.rolls:
            return
        if properties.TIMER_DEL_UNIQKEY in found:
            raise ProtocolError("it is one that takes another back")
        draft.topic, draft.queue_id = found[properties.REAL_TOPIC], int(found[properties.REAL_QID])
        names = found.get(properties.INNER_MULTI_DISPATCH, "").strip()
        if names and self._options.store.light_queues and topics.allows_light_queues(draft.topic):
            draft.light_queues = names.rstrip(",").split(",")


def _has_level(found: dict[str, str]) -> bool:
    level = found.get(properties.DELAY, "0")
    return _NUMBER.fullmatch(level) is not None and int(level) > 0


def _check_room(found: dict[str, str]) -> None:
    """Refuse what couldn't be stored with the properties that a delivery adds."""
    longest = 4 * sum(len(key) + len(value) + 2 for key, value in found.items())
    if longest + ROOM > properties.SIZE_MAX:
        size = len(properties.encode(found))
        if size + ROOM > properties.SIZE_MAX:
            remark = f"properties are {size} bytes, of a timer message {properties.SIZE_MAX - ROOM} at most"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
