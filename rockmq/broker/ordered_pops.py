"""What groups popped in order and haven't acknowledged (QueueLevelConsumerManager.java; store spec, 1.7), in
`config/consumerOrderInfo.json`.

Of a queue that is the messages of the last pop: the next come when these are acknowledged or visible again. The document is
Apache's, so over a stop, a kill or a move of the store a queue stays closed for its time, handles stay good, and tries are
counted on. It is saved as often as groups' offsets, but one may be older than the other after a kill: what lies below a
group's offset is done with, whatever the document says.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, field

from rockmq.base.clock import Clock
from rockmq.broker.documents import Saver, load, parts, save
from rockmq.broker.offsets import LIGHT_SEPARATOR, SEPARATOR, ConsumerOffsets
from rockmq.protocol import topics
from rockmq.protocol.header import Int, Long

CLEAN_SECONDS = 60.0
FORGOTTEN_AFTER_MS = 24 * 3600 * 1000
"""What was popped so long ago, and is visible again, is kept no more: its group has left."""

Key = tuple[str, str, int]
"""Topic, group, queue."""


Number = Annotated[int, Meta(ge=-(1 << 60), le=1 << 60)]
Position = Annotated[int, Meta(ge=0, le=1 << 60)]
"""The sum of two is still one of Java's numbers."""


class _Info(Struct, omit_defaults=True, kw_only=True):
    """A queue of a group in the document: `offsets` are the first and its distances to the others, `bits` which of them are
    acknowledged; `visible` has the times that were changed, `counts` those that aren't 0."""

    pop_time: Number = field(name="popTime", default=0)
    invisible_ms: Number = field(name="i", default=0)
    offsets: Annotated[list[Position], Meta(min_length=1)] = field(name="o")
    visible: dict[Position, Number] = field(name="ot", default_factory=dict)
    counts: dict[Position, Int] = field(name="oc", default_factory=dict)
    last_consumed: Number = field(name="l", default=0)
    bits: Long = field(name="cm", default=0)
    attempt_id: str | None = field(name="a", default=None)


class _Document(Struct):
    table: dict[str, dict[Int, _Info]] = field(default_factory=dict)


class OrderedPop:
    """The messages that a group popped last of a queue."""

    __slots__ = ("attempt_id", "counts", "handed", "invisible_ms", "next", "offsets", "pop_time")

    def __init__(
        self, offsets: list[int], pop_time: int, invisible_ms: int, attempt_id: str | None, counts: dict[int, int], next: int
    ) -> None:
        self.offsets = offsets
        self.pop_time = pop_time
        self.invisible_ms = invisible_ms
        self.attempt_id = attempt_id
        self.counts = counts
        """By offset: how often it was popped before."""
        self.next = next
        """Where the next pop begins when all are acknowledged."""
        self.handed = dict.fromkeys(offsets, pop_time + invisible_ms)
        """Those that aren't acknowledged: when each is visible again, ms."""

    def is_blocked(self, attempt_id: str | None, now: int) -> bool:
        """Whether somebody works on them; an attempt that is made again isn't kept out by itself."""
        if attempt_id is not None and attempt_id == self.attempt_id:
            return False
        return any(visible_at > now for visible_at in self.handed.values())

    def committed(self) -> int:
        """The first offset that isn't acknowledged."""
        return min(self.handed, default=self.next)

    @classmethod
    def of(cls, info: _Info, committed: int) -> "OrderedPop":
        """What a document says that isn't older than the group's offset."""
        first, *steps = info.offsets
        offsets = [first, *(first + step for step in steps)]
        counts = {offset: info.counts.get(offset, 0) for offset in offsets}
        made = cls(offsets, info.pop_time, info.invisible_ms, info.attempt_id, counts, offsets[-1] + 1)
        usual = info.pop_time + made.invisible_ms
        made.handed = {
            offset: info.visible.get(offset, usual)
            for number, offset in enumerate(offsets)
            if offset >= committed and not info.bits >> number & 1
        }
        return made

    def info(self) -> _Info:
        first, handed = self.offsets[0], dict(self.handed)
        usual = self.pop_time + self.invisible_ms
        return _Info(
            pop_time=self.pop_time,
            invisible_ms=self.invisible_ms,
            offsets=[first, *(offset - first for offset in self.offsets[1:])],
            visible={offset: visible_at for offset, visible_at in handed.items() if visible_at != usual},
            counts={offset: count for offset, count in self.counts.items() if count},
            last_consumed=self.pop_time,
            bits=sum(1 << number for number, offset in enumerate(self.offsets) if offset not in handed),
            attempt_id=self.attempt_id,
        )


class OrderedPops:
    """What is out in order, by topic, group and queue."""

    def __init__(self, directory: Path, offsets: ConsumerOffsets, clock: Clock) -> None:
        """Raises ConfigError when the document can't be read."""
        self._clock = clock
        self._path = directory / "consumerOrderInfo.json"
        self._table: dict[tuple[str, str], dict[int, OrderedPop]] = {}
        document = load(self._path, _Document) or _Document()
        for name, queues in document.table.items():
            topic, group = _parted(name)
            for queue_id, info in queues.items():
                held = OrderedPop.of(info, committed=offsets.query(group, topic, queue_id) or 0)
                if held.handed:
                    self._put((topic, group, queue_id), held)
        self._changed = False
        self._saver = Saver(self._path, self._save)

    def _put(self, key: Key, held: OrderedPop) -> None:
        topic, group, queue_id = key
        self._table.setdefault((topic, group), {})[queue_id] = held

    def items(self) -> Iterator[tuple[Key, OrderedPop]]:
        for (topic, group), queues in self._table.items():
            for queue_id, held in queues.items():
                yield (topic, group, queue_id), held

    def get(self, key: Key) -> OrderedPop | None:
        topic, group, queue_id = key
        return self._table.get((topic, group), {}).get(queue_id)

    def is_open(self, key: Key, attempt_id: str | None) -> bool:
        """Whether messages of a queue may be popped."""
        held = self.get(key)
        return held is None or not held.is_blocked(attempt_id, self._clock.now_ms())

    def hand(
        self, key: Key, offsets: list[int], pop_time: int, invisible_ms: int, next_offset: int, attempt_id: str | None
    ) -> OrderedPop:
        """Note a pop of an open queue; it takes the place of the one before, with what is left of it first."""
        before = self.get(key)
        if before is None:
            counts = dict.fromkeys(offsets, 0)
        elif attempt_id is not None and attempt_id == before.attempt_id:
            counts = {offset: before.counts.get(offset, 0) for offset in offsets}
        else:
            counts = {offset: before.counts.get(offset, -1) + 1 for offset in offsets}
        held = OrderedPop(offsets, pop_time, invisible_ms, attempt_id, counts, next_offset)
        self._put(key, held)
        self._changed = True
        return held

    def ack(self, key: Key, offset: int, pop_time: int) -> OrderedPop | None:
        """Note that a message is done with: what it was popped with, None when it isn't out by this pop any more."""
        held = self._out(key, offset, pop_time)
        if held is not None:
            del held.handed[offset]
            self._changed = True
            if not held.handed:
                self.forget(key)
        return held

    def change(self, key: Key, offset: int, pop_time: int, visible_at: int) -> bool:
        """Have a message visible again at another time (ms). False when it isn't out by this pop any more."""
        held = self._out(key, offset, pop_time)
        if held is None:
            return False
        held.handed[offset] = visible_at
        self._changed = True
        return True

    def _out(self, key: Key, offset: int, pop_time: int) -> OrderedPop | None:
        held = self.get(key)
        return held if held is not None and held.pop_time == pop_time and offset in held.handed else None

    def forget(self, key: Key) -> None:
        """Whatever was popped of a queue, its group goes on elsewhere."""
        topic, group, queue_id = key
        queues = self._table.get((topic, group), {})
        if queues.pop(queue_id, None) is not None:
            self._changed = True
            if not queues:
                del self._table[topic, group]

    def forget_topic(self, topic: str) -> None:
        self._drop([each for each in self._table if each[0] == topic])

    def forget_group(self, group: str) -> None:
        self._drop([each for each in self._table if each[1] == group])

    def _drop(self, keys: list[tuple[str, str]]) -> None:
        for key in keys:
            del self._table[key]
            self._changed = True

    def clean(self) -> None:
        """Forget what nobody comes back for (autoClean); called every `CLEAN_SECONDS`."""
        bound = self._clock.now_ms() - FORGOTTEN_AFTER_MS
        old = [key for key, held in self.items() if max(held.pop_time, *held.handed.values()) < bound]
        for key in old:
            self.forget(key)

    # Keeping

    def flush(self) -> None:
        """Have the document written if something changed since the last time."""
        if self._changed:
            self._changed = False
            self._saver.later()

    def pieces(self) -> Iterator[bytes]:
        """The document as it is now, see `parts`."""
        return parts({}, table=self._rows())

    def _rows(self) -> Iterator[tuple[str, dict[int, _Info]]]:
        for (topic, group), queues in list(self._table.items()):
            yield f"{topic}{SEPARATOR}{group}", {queue_id: held.info() for queue_id, held in list(queues.items())}

    async def _save(self) -> None:
        await save(self._path, self.pieces())

    async def close(self) -> None:
        """Write what isn't written yet."""
        self.flush()
        await self._saver.close()


def _parted(name: str) -> tuple[str, str]:
    """Topic and group of a row; names of light queues may hold a separator."""
    if LIGHT_SEPARATOR in name:
        topic, _, group = name.rpartition(LIGHT_SEPARATOR)
        return topic, topics.LIGHT_PREFIX + group
    topic, _, group = name.rpartition(SEPARATOR)
    return topic, group
