"""What was popped and not acknowledged yet (PopMessageProcessor.java, PopBufferMergeService.java, PopReviveService.java;
store spec, 6.5).

A group's offset of a queue stands at the first message that isn't acknowledged, so all of this can be in memory: after a
crash what is behind that offset is popped again (docs/adr/0012). A message whose invisible time is over goes to the group's
retry topic, and counts as done when it is durable there; one that was popped in order (`ordered_pops.py`) is popped again
where it is.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from heapq import heapify, heappop, heappush
from struct import unpack_from
from typing import NamedTuple

from rockmq.base.clock import Clock
from rockmq.base.errors import ProtocolError, StoreUnavailable
from rockmq.broker.drafts import Draft, DraftWriter
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.ordered_pops import Key, OrderedPops
from rockmq.broker.slow_groups import SlowGroups
from rockmq.broker.topics import TopicTable
from rockmq.protocol import codec, pop, properties, topics
from rockmq.protocol.bodies.common import TopicConfig
from rockmq.protocol.message import unwrap
from rockmq.store import Filter, GetResult, GetStatus
from rockmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

SWEEP_SECONDS = 0.1
REVIVED_MAX = 200
"""Messages that go to their retry topics in one sweep, some 50 us each."""
IN_FLIGHT_MAX = 500_000
"""Messages that all groups together may have popped and not acknowledged, some 200 bytes each."""
DUE_MAX = 10_000
"""Pops whose time isn't over, up to which nobody looks if they are acknowledged."""
POPPED_BYTES_MAX = 1 << 20
INVISIBLE_MS_MAX = 7 * 24 * 3600 * 1000
PAUSE_MS = 1000
"""When a message that couldn't be put into its retry topic is tried again."""
_MOVED = frozenset({GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL})

Wanted = tuple[tuple[int, ...] | None, Filter | None]
"""Codes of the tags, or a filter; None where anything is wanted."""
ANYTHING: Wanted = (None, None)


class Popped(NamedTuple):
    """Records that were popped from one queue, back to back."""

    data: bytes
    offsets: list[int]
    rest: int
    """Messages behind them."""
    counts: dict[int, int]
    """By offset, how often a message was popped in order before."""


class _Queue:
    """What a group has popped of a queue; there is one only while something isn't acknowledged."""

    __slots__ = ("_order", "handed", "next", "suspended")

    def __init__(self, start: int) -> None:
        self.next = start
        """Where the next pop begins."""
        self.handed: dict[int, tuple[int, int]] = {}
        """By offset: (pop time, when it is visible again), ms. A pop time of -1: on its way to the retry topic."""
        self.suspended: set[int] = set()
        """Offsets whose next delivery isn't another try."""
        self._order: deque[int] = deque()

    def hand(self, offsets: list[int], pop_time: int, visible_at: int) -> None:
        self._order.extend(offsets)
        for offset in offsets:
            self.handed[offset] = (pop_time, visible_at)

    def committed(self) -> int:
        """The first offset that isn't acknowledged."""
        order = self._order
        while order and order[0] not in self.handed:
            order.popleft()
        return order[0] if order else self.next


class Pops:
    """Hands out messages, and gives them out again when nobody acknowledges them. `wake` is told of queues from which more
    may be popped than before."""

    def __init__(
        self,
        clock: Clock,
        topic_table: TopicTable,
        offsets: ConsumerOffsets,
        ordered: OrderedPops,
        store: MessageStore,
        gate: DurabilityGate,
        writer: DraftWriter,
        wake: Callable[[str, int], None],
        slow: SlowGroups | None,
        in_flight_max: int,
    ) -> None:
        self._clock = clock
        self._topics = topic_table
        self._offsets = offsets
        self._ordered = ordered
        self._store = store
        self._gate = gate
        self._writer = writer
        self._wake = wake
        self._slow = slow
        self._in_flight_max = in_flight_max
        self._queues: dict[Key, _Queue] = {}
        self._due: list[tuple[int, int, Key, int, list[int]]] = []
        """A heap: when, a number that makes each different, queue, pop time, offsets."""
        self._due_max = DUE_MAX
        self._numbers = 0
        self.in_flight = 0
        """Messages that are out, but for those popped in order: of a queue these are one pop's at most."""
        self.passes = 0
        """How often a pop found nothing but there is more to look at."""
        for key, held in ordered.items():
            for visible_at in set(held.handed.values()):
                self._expect(visible_at, key, held.pop_time, [])

    # Popping

    def pop(
        self,
        key: Key,
        count_max: int,
        pop_time: int,
        invisible_ms: int,
        wanted: Wanted,
        *,
        from_end: bool,
    ) -> Popped | None:
        """Messages of a queue that nobody else gets for the invisible time, or None."""
        topic, group, queue_id = key
        start = self._start(key, from_end)
        queue = self._queues.get(key)
        held = len(queue.handed) if queue is not None else 0
        count_max = min(count_max, self._in_flight_max - held, IN_FLIGHT_MAX - self.in_flight)
        if count_max <= 0:
            return None
        found = self._get(key, start, count_max, wanted)
        if not found.messages:
            self._passed(key, start, found)
            return None
        data, numbers, next_offset = self._taken(key, found, start, count_max)
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _Queue(next_offset)
        queue.next = next_offset
        queue.hand(numbers, pop_time, pop_time + invisible_ms)
        self.in_flight += len(numbers)
        self._expect(pop_time + invisible_ms, key, pop_time, numbers)
        self._offsets.commit(group, topic, queue_id, queue.committed())
        return Popped(data, numbers, found.max_offset - next_offset, {})

    def _start(self, key: Key, from_end: bool) -> int:
        topic, group, queue_id = key
        moved = self._offsets.take_reset(group, topic, queue_id)
        if moved is not None:
            self._forget(key)
            return moved
        committed = self._offsets.query(group, topic, queue_id)
        if committed is None:
            low, high = self._store.bounds(topic, queue_id)
            # As for a pull: in a young queue a new group begins at the beginning, whatever it asks for.
            begins = not from_end or topics.is_retry(topic) or low <= 0
            committed = low if begins else max(high - 1, 0)
            self._offsets.commit(group, topic, queue_id, committed)
        queue = self._queues.get(key)
        return committed if queue is None else max(queue.next, committed)

    def _get(self, key: Key, start: int, count_max: int, wanted: Wanted) -> GetResult:
        topic, group, queue_id = key
        found = self._store.get(topic, queue_id, start, count_max, POPPED_BYTES_MAX, *wanted)
        if found.status in _MOVED:
            found = self._store.get(topic, queue_id, found.next_offset, count_max, POPPED_BYTES_MAX, *wanted)
        if self._slow is not None:
            self._slow.note(group, topic, queue_id, found.behind)
        return found

    def _taken(self, key: Key, found: GetResult, start: int, count_max: int) -> tuple[bytes, list[int], int]:
        """What is handed out of what was found from an offset on: records, their offsets, and where the next begin."""
        topic = key[0]
        data = b"".join(found.buffers)
        if self._topics.is_light(topic):
            return data, _light_offsets(data, topic), found.next_offset
        config = self._topics.get(topic)
        if config is None or not config.has_batch_queues:
            return data, [offset for offset, _ in _records(data)], found.next_offset
        # Each message of a batch is handed out by itself. In Apache's broker the batch is one, and stays packed.
        records = _unwrapped(data)
        taken = [(offset, record) for offset, record in records if offset >= start][:count_max] or records[:1]
        is_all = not taken or taken[-1] == records[-1]
        next_offset = found.next_offset if is_all else taken[-1][0] + 1
        return b"".join(record for _, record in taken), [offset for offset, _ in taken], next_offset

    def _passed(self, key: Key, start: int, found: GetResult) -> None:
        """Nothing that was looked at is wanted: it needn't be looked at again."""
        topic, group, queue_id = key
        if found.status not in (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING, GetStatus.OFFSET_FOUND_NULL):
            return
        queue = self._queues.get(key)
        if queue is not None:
            queue.next = max(queue.next, found.next_offset)
        else:
            self._offsets.commit(group, topic, queue_id, found.next_offset)
        self.passes += start < found.next_offset < found.max_offset

    def pop_in_order(
        self,
        key: Key,
        count_max: int,
        pop_time: int,
        invisible_ms: int,
        wanted: Wanted,
        *,
        from_end: bool,
        attempt_id: str | None,
    ) -> Popped | None:
        """As `pop`, of a queue of which nobody works on messages; what was popped and not acknowledged comes again."""
        topic, group, queue_id = key
        start = self._start(key, from_end)
        if not self._ordered.is_open(key, attempt_id):
            return None
        found = self._get(key, start, count_max, wanted)
        if not found.messages:
            if self._ordered.get(key) is None:
                self._passed(key, start, found)
            return None
        data, numbers, next_offset = self._taken(key, found, start, count_max)
        held = self._ordered.hand(key, numbers, pop_time, invisible_ms, next_offset, attempt_id)
        self._expect(pop_time + invisible_ms, key, pop_time, [])
        self._offsets.commit(group, topic, queue_id, held.committed())
        return Popped(data, numbers, found.max_offset - next_offset, held.counts)

    def is_open(self, key: Key, *, order: bool, attempt_id: str | None) -> bool:
        """Whether a pop may have messages of a queue, if there are any."""
        if order:
            return self._ordered.is_open(key, attempt_id)
        queue = self._queues.get(key)
        return self.in_flight < IN_FLIGHT_MAX and (queue is None or len(queue.handed) < self._in_flight_max)

    def peek(self, key: Key, count_max: int) -> tuple[bytes, int, int]:
        """What a pop would begin with: records, how many, and how many messages there are in all."""
        start = self.next_offset(key)
        there = max(0, self._store.bounds(key[0], key[2])[1] - start)
        if not there or not count_max:
            return b"", 0, there
        data, offsets, _ = self._taken(key, self._get(key, start, count_max, ANYTHING), start, count_max)
        return data, len(offsets), there

    def has_messages(self, key: Key, *, order: bool, attempt_id: str | None) -> bool:
        """Whether a pop might find something."""
        if not self.is_open(key, order=order, attempt_id=attempt_id):
            return False
        found = self._get(key, self.next_offset(key), 1, ANYTHING)
        return found.messages > 0

    def next_offset(self, key: Key) -> int:
        """Where the next pop of a queue begins."""
        topic, group, queue_id = key
        committed = self._offsets.query(group, topic, queue_id)
        if committed is None:
            committed = self._store.bounds(topic, queue_id)[0]
        queue = self._queues.get(key)
        return committed if queue is None else max(queue.next, committed)

    def held(self, key: Key) -> int:
        """Messages of a queue that are out."""
        queue, ordered = self._queues.get(key), self._ordered.get(key)
        return (len(queue.handed) if queue is not None else 0) + (len(ordered.handed) if ordered is not None else 0)

    # Acknowledging

    def ack(self, key: Key, offset: int, pop_time: int) -> bool:
        """A message is done with. False when it isn't out by this pop any more: it is to be delivered again, or was."""
        queue = self._queues.get(key)
        if queue is None or queue.handed.get(offset, (None, 0))[0] != pop_time:
            return False
        self._finish(key, queue, offset)
        return True

    def _finish(self, key: Key, queue: _Queue, offset: int) -> None:
        topic, group, queue_id = key
        was_full = len(queue.handed) >= self._in_flight_max or self.in_flight >= IN_FLIGHT_MAX
        del queue.handed[offset]
        queue.suspended.discard(offset)
        self.in_flight -= 1
        if not self._offsets.is_reset(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, queue.committed())
        if not queue.handed:
            del self._queues[key]
        if was_full:
            self._wake(topic, queue_id)

    def ack_in_order(self, key: Key, offset: int, pop_time: int) -> bool:
        """As `ack`, of a message that was popped in order."""
        topic, group, queue_id = key
        held = self._ordered.ack(key, offset, pop_time)
        if held is None:
            return False
        if not self._offsets.is_reset(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, held.committed())
        if not held.is_blocked(None, self._clock.now_ms()):
            self._wake(topic, queue_id)
        return True

    def change(self, key: Key, offset: int, pop_time: int, now: int, invisible_ms: int, *, suspend: bool = False) -> bool:
        """Have a message visible again at another time; it is out by pop time `now` then. False as for `ack`.

        With `suspend` its next delivery isn't counted as a try."""
        queue = self._queues.get(key)
        if queue is None or queue.handed.get(offset, (None, 0))[0] != pop_time:
            return False
        queue.handed[offset] = (now, now + invisible_ms)
        (queue.suspended.add if suspend else queue.suspended.discard)(offset)
        self._expect(now + invisible_ms, key, now, [offset])
        return True

    def change_in_order(self, key: Key, offset: int, pop_time: int, visible_at: int) -> bool:
        """As `change`; the pop time stays."""
        changed = self._ordered.change(key, offset, pop_time, visible_at)
        if changed:
            self._expect(visible_at, key, pop_time, [])
        return changed

    def _forget(self, key: Key) -> None:
        """Whatever was popped of a queue, its group goes on elsewhere."""
        self._ordered.forget(key)
        queue = self._queues.pop(key, None)
        if queue is not None:
            self.in_flight -= len(queue.handed)

    def forget_topic(self, topic: str) -> None:
        self._ordered.forget_topic(topic)
        for key in [each for each in self._queues if each[0] == topic]:
            self._forget(key)

    def forget_group(self, group: str) -> None:
        self._ordered.forget_group(group)
        for key in [each for each in self._queues if each[1] == group]:
            self._forget(key)

    # Giving out again

    def _expect(self, when: int, key: Key, pop_time: int, offsets: list[int]) -> None:
        self._numbers += 1
        heappush(self._due, (when, self._numbers, key, pop_time, offsets))
        if len(self._due) > self._due_max:
            # Most of what is popped is acknowledged long before its time.
            self._due = [item for item in self._due if self._is_out(*item)]
            heapify(self._due)
            self._due_max = max(DUE_MAX, 2 * len(self._due))

    def _is_out(self, when: int, _number: int, key: Key, pop_time: int, offsets: list[int]) -> bool:
        """Whether anything of a pop isn't acknowledged, and counts from then."""
        if not offsets:
            ordered = self._ordered.get(key)
            return ordered is not None and ordered.pop_time == pop_time and when in ordered.handed.values()
        queue = self._queues.get(key)
        return queue is not None and any(queue.handed.get(offset, (None, 0))[0] == pop_time for offset in offsets)

    def sweep(self) -> None:
        """Give out again what is due; called every `SWEEP_SECONDS`."""
        now, left = self._clock.now_ms(), REVIVED_MAX
        while self._due and self._due[0][0] <= now and left > 0:
            _, _, key, pop_time, offsets = heappop(self._due)
            if not offsets:
                self._wake(key[0], key[2])
                continue
            for number, offset in enumerate(offsets):
                queue = self._queues.get(key)
                if queue is None or queue.handed.get(offset, (None, 0))[0] != pop_time:
                    continue
                is_away = False
                try:
                    is_away = left > 0 and self._revive(key, queue, offset, pop_time)
                finally:
                    if not is_away:
                        self._expect(now + (PAUSE_MS if left else 0), key, pop_time, offsets[number:])
                if not is_away:
                    return
                left -= 1

    def _revive(self, key: Key, queue: _Queue, offset: int, pop_time: int) -> bool:
        """Put a message into its retry topic; False when that can't be now."""
        end = self.give_again(key, offset, pop_time, counts=offset not in queue.suspended)
        if end is None:
            return False
        if not end:
            self._finish(key, queue, offset)
            return True
        queue.handed[offset] = (-1, 0)

        def stored(durable: bool) -> None:
            if not durable:
                self._gate.when_durable(end, stored)  # late, but it is on its way
            elif self._queues.get(key) is queue and queue.handed.get(offset) == (-1, 0):
                self._finish(key, queue, offset)

        self._gate.when_durable(end, stored)
        return True

    def give_again(self, key: Key, offset: int, pop_time: int, *, counts: bool) -> int | None:
        """Store a message that was popped at a time (ms) anew, in its group's retry topic; `counts` is whether that is
        another try. Where it ends in the log; None when it can't be stored now, 0 when it never can
        (PopReviveService.reviveRetry)."""
        topic, group, queue_id = key
        found = self._store.get(topic, queue_id, offset, 1, POPPED_BYTES_MAX, None)
        data, offsets, _ = self._taken(key, found, offset, 1)
        if offsets != [offset]:
            return 0  # retention has taken it
        retry = topic if topics.is_retry(topic) else pop.retry_topic(topic, group)
        try:
            if not self.is_ready(retry):
                return None
            draft = Draft.of(data)
            draft.topic, draft.queue_id = retry, 0
            if counts:
                draft.count_try()
            draft.properties.setdefault(properties.FIRST_POP_TIME, str(pop_time))
            draft.properties[properties.ORIGIN_GROUP] = group
            return self._writer.append(draft).end  # properties of a delay that is over are still there
        except StoreUnavailable as error:
            words = "messages that weren't acknowledged can't be given out again now: %s"
            log.warning(words, error, extra={"group": group})
            return None
        except (ProtocolError, ValueError) as error:
            where = {"group": group, "topic": topic, "queue": queue_id, "offset": offset}
            log.error("a message can't be given out again, it is passed over: %s", error, extra=where)
            return 0

    def is_ready(self, retry: str) -> bool:
        """Whether a group's retry topic is there; it is made if it isn't. Raises StoreUnavailable when it can't be."""
        if self._topics.get(retry) is None:
            self._topics.put(TopicConfig(topic_name=retry, read_queue_nums=1, write_queue_nums=1))
        return not self._topics.is_new(retry)


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Each record with its queue offset (store spec, 1.3)."""
    at = 0
    while at < len(data):
        (size,) = unpack_from(">i", data, at)
        yield unpack_from(">q", data, at + 20)[0], data[at : at + size]
        at += size


@lru_cache(maxsize=4)  # of a long batch a pop takes a few messages, some 10 us each to unwrap
def _unwrapped(data: bytes) -> list[tuple[int, bytes]]:
    """As `_records`, with each message of a batch as a record."""
    return list(_records(unwrap(data, strict=False)))


def _light_offsets(data: bytes, name: str) -> list[int]:
    """The offset of each record in a light queue. Of those of other topics a property tells it (LmqDispatch.java)."""
    found = []
    for record in codec.decode_records(data):
        offset, topic, text = record[4], record[14], record[15]
        if topic != name:
            told = properties.decode(text)
            place = told[properties.INNER_MULTI_DISPATCH].split(",").index(name)
            offset = int(told[properties.INNER_MULTI_QUEUE_OFFSET].split(",")[place])
        found.append(offset)
    return found
