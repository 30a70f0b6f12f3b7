"""What Apache's broker had popped and not acknowledged when its store came here (PopReviveService.java,
AckMessageProcessor.java; store spec, 6.5).

That broker notes each pop as a checkpoint, and what was acknowledged of it, in a log of its own, `rmq_sys_REVIVE_LOG_` and
the cluster's name. Both come there by the timer wheel: a checkpoint a second before the messages are visible again, an
acknowledgement when they are. Its groups' offsets stand behind what they popped, so only this log tells what is out.

The log is read here as its timers deliver it. What isn't acknowledged when its time is over goes to the group's retry topic;
how far that is done is the offset of a group of the broker's own, as Apache has it: the last entry that is done with.
After a kill some of it comes once more.
"""

import logging

import msgspec

from rockmq.base.clock import Clock
from rockmq.base.errors import ProtocolError, StoreUnavailable
from rockmq.broker.drafts import Draft, DraftWriter
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.groups import GroupTable
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.ordered_pops import Key
from rockmq.broker.pop import Pops
from rockmq.broker.topics import TopicTable
from rockmq.protocol import codec, json, pop, properties, topics
from rockmq.protocol.bodies.pop import PopAcks, PopCheckpoint
from rockmq.remoting.dispatch import Refusal
from rockmq.store.message_store import MessageStore
from rockmq.store.timers import TimerStore

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
READ_MAX = 100
READ_BYTES_MAX = 1 << 20
"""Entries of a queue that are read in one look, some 20 us each."""
GIVEN_MAX = 100
"""Messages that go to their retry topics in one look, some 50 us each."""
CHECKPOINTS_MAX = 20_000
"""Pops of a queue whose time isn't over, at most some 5 KiB each."""
LEAD_MS = 1000
"""How long before its messages are visible again a checkpoint is delivered."""
WAIT_MS = 2000
"""How long after that acknowledgements are waited for."""
BEYOND = -2
"""Done with less than nothing: whatever is read next is to be noted."""
ROCKSDB = "kvStore"
"""Where Apache's broker keeps pops with popConsumerKVServiceEnable, in the store."""


class _Pop:
    """A pop that isn't over: its checkpoint, or only acknowledgements of it so far."""

    __slots__ = ("acknowledged", "counts", "due", "offset", "offsets")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        """Of its first entry."""
        self.due = 0
        """When its messages are visible again (ms)."""
        self.offsets: set[int] = set()
        self.acknowledged: set[int] = set()
        self.counts = True


class _Queue:
    """A queue of the log, as far as it is read."""

    def __init__(self, topic: str, queue_id: int, start: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.next = start
        self.done = start - 1
        """The last entry that is done with, told or about to be."""
        self.until = 0
        """All that was delivered before this time (ms) is read."""
        self.end = 0
        """Where the last message ends that was given out again."""
        self.pops: dict[tuple[Key, int, int], _Pop] = {}
        """By queue, pop time and first offset, in the order of their first entries."""


class PopRevive:
    """Gives out what is left of Apache's pops; called every `LOOK_SECONDS`."""

    def __init__(
        self,
        clock: Clock,
        topic_table: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        store: MessageStore,
        gate: DurabilityGate,
        writer: DraftWriter,
        timers: TimerStore | None,
        pops: Pops,
        cluster: str,
    ) -> None:
        self._clock = clock
        self._groups = groups
        self._offsets = offsets
        self._store = store
        self._gate = gate
        self._writer = writer
        self._pops = pops
        self._started = clock.now_ms()
        self._queues: list[_Queue] = []
        own = topics.REVIVE_PREFIX + cluster
        names = [name for name in topic_table.all() if name.startswith(topics.REVIVE_PREFIX)]
        # What is acknowledged here belongs to the first of them.
        for name in sorted(names, key=lambda name: (name != own, name)):
            for queue_id in range(topic_table.all()[name].read_queue_nums):
                done = offsets.query(topics.REVIVE_GROUP, name, queue_id)
                self._queues.append(_Queue(name, queue_id, 0 if done is None else done + 1))
        if (store.root / ROCKSDB).is_dir():
            log.warning(
                "%s: there Apache's broker kept what was popped and not acknowledged (popConsumerKVServiceEnable). What is "
                "still in it can't be read here and isn't given out again; `mqadmin exportPopRecord` takes it out while "
                "that broker runs",
                store.root / ROCKSDB,
            )
        self._timers = timers
        if timers is None:
            if any(queue.next < store.bounds(queue.topic, queue.queue_id)[1] for queue in self._queues):
                log.warning("what Apache's broker popped isn't given out again without timers (timerWheelEnable=false)")
            return
        self._timers_end = timers.queue[1]
        """What is in the queue of timers may have been due before what is in the wheel."""
        self._wheel_time: int | None = None
        """When the wheel had all of it; None before."""

    def look(self) -> None:
        timers = self._timers
        if timers is None or self._store.refusal is not None:
            return
        is_complete, left = self._is_complete(timers), GIVEN_MAX
        for queue in self._queues:
            delivered, end = timers.read_time, self._store.bounds(queue.topic, queue.queue_id)[1]
            self._read(queue, delivered)
            if queue.next >= end:
                queue.until = max(queue.until, delivered)
            if is_complete:
                left = self._give_out(queue, left)
            self._note_done(queue)

    def _is_complete(self, timers: TimerStore) -> bool:
        """Whether what timers deliver from now on comes in the order of its times."""
        if self._wheel_time is None and timers.offset >= self._timers_end:
            self._wheel_time = timers.write_time
        return self._wheel_time is not None and timers.read_time > self._wheel_time

    # Reading the log

    def _read(self, queue: _Queue, delivered: int) -> None:
        if len(queue.pops) >= CHECKPOINTS_MAX:
            return
        found = self._store.get(queue.topic, queue.queue_id, queue.next, READ_MAX, READ_BYTES_MAX, None)
        for record in codec.decode_records(b"".join(found.buffers)):
            told = properties.decode(record[-1])
            deliver_time = properties.number(told.get(properties.TIMER_DELIVER_MS)) or 0
            try:
                self._take(queue, record[4], told.get(properties.TAGS), record[13], deliver_time)
            except ProtocolError as error:
                log.error("%s:%d:%d is passed over: %s", queue.topic, queue.queue_id, record[4], error)
            queue.until = max(queue.until, min(deliver_time, delivered))
        if found.next_offset < queue.next:
            queue.done = BEYOND  # its offset is from before a crash that cut the log short
        queue.next = found.next_offset

    def _take(self, queue: _Queue, offset: int, tag: str | None, body: bytes, deliver_time: int) -> None:
        if tag == "ck":
            checkpoint = json.decode(body, PopCheckpoint, "a checkpoint")
            key = (checkpoint.topic, checkpoint.group, checkpoint.queue_id)
            held = queue.pops.setdefault((key, checkpoint.pop_time, checkpoint.start_offset), _Pop(offset))
            held.due = max(held.due, deliver_time + LEAD_MS)
            held.counts = not checkpoint.suspended
            for each, is_acknowledged in checkpoint.offsets().items():
                (held.acknowledged if is_acknowledged else held.offsets).add(each)
        elif tag in ("ack", "bAck"):
            acks = json.decode(body, PopAcks, "an acknowledgement")
            key = (acks.topic, acks.group, acks.queue_id)
            held = queue.pops.setdefault((key, acks.pop_time, acks.start_offset), _Pop(offset))
            held.due = max(held.due, deliver_time)
            held.acknowledged.update(acks.offsets if tag == "bAck" else [acks.offset])

    # Giving out again

    def _give_out(self, queue: _Queue, left: int) -> int:
        """Store anew what nobody acknowledged in time; how many more may be in this look."""
        while queue.pops and left > 0:
            name, held = next(iter(queue.pops.items()))
            # Where there are too many, acknowledgements aren't waited for.
            if held.due + WAIT_MS >= queue.until and len(queue.pops) < CHECKPOINTS_MAX:
                break
            key, pop_time, _ = name
            if held.offsets - held.acknowledged and self._groups.find(key[1]) is None:
                popped = {"group": key[1], "topic": key[0]}
                log.warning("what a group popped isn't given out again: there is no such group", extra=popped)
                held.offsets.clear()
            for offset in sorted(held.offsets - held.acknowledged):
                end = self._pops.give_again(key, offset, pop_time, counts=held.counts)
                if end is None:
                    return 0
                held.acknowledged.add(offset)
                queue.end = max(queue.end, end)
                left -= 1
            del queue.pops[name]
        return left

    def _note_done(self, queue: _Queue) -> None:
        """Have it known how far the log is done with, once what was given out again is durable."""
        done = (next(iter(queue.pops.values())).offset if queue.pops else queue.next) - 1
        if done <= queue.done:
            return
        queue.done = done
        end = queue.end

        def stored(durable: bool) -> None:
            if not durable:
                self._gate.when_durable(end, stored)
            else:
                self._offsets.commit(topics.REVIVE_GROUP, queue.topic, queue.queue_id, done)

        self._gate.when_durable(end, stored)

    # Acknowledging

    def ack(self, key: Key, offsets: list[int], handle: pop.Handle) -> None:
        """Note what is acknowledged of a pop before this start, if it was at Apache's broker
        (AckMessageProcessor.appendAck)."""
        due = handle.pop_time + handle.invisible_time
        if self._timers is None or handle.pop_time >= self._started or due <= self._clock.now_ms():
            return
        queue = next((queue for queue in self._queues if queue.queue_id == handle.revive_queue), None)
        if queue is None:
            return
        topic, group, queue_id = key
        acks = PopAcks(
            offsets=offsets,
            start_offset=handle.start_offset,
            group=group,
            topic=topic,
            queue_id=queue_id,
            pop_time=handle.pop_time,
        )
        draft = Draft(
            topic=queue.topic,
            queue_id=queue.queue_id,
            body=msgspec.json.encode(acks),
            properties={properties.TAGS: "bAck", properties.TIMER_DELIVER_MS: str(due)},
            born_host=self._store.store_host,
            born_timestamp=self._clock.now_ms(),
        )
        try:
            self._writer.put(draft)
        except (StoreUnavailable, ProtocolError, Refusal) as error:
            acknowledged = {"group": group, "topic": topic, "queue": queue_id}
            log.warning("messages that were acknowledged may come again: %s", error, extra=acknowledged)
