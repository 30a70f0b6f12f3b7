"""What was appended to a store and what it acknowledged, as its log and queues have to tell it."""

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property

from tests.support.model import BLANK, Record, java_hash, parse

BLANK_SIZE = 8
INNER_BATCH = 0xC0
QueueKey = tuple[str, int]


class Fault(Exception):
    """What was found is lost, invented or misplaced."""


def require(holds: bool, text: str) -> None:
    if not holds:
        raise Fault(text)


class Placed(Record):
    """A record with its offset and position; what is derived from it is kept."""

    @cached_property
    def data(self) -> bytes:
        return self.encode()

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def queue(self) -> QueueKey:
        return self.topic, self.queue_id

    @cached_property
    def count(self) -> int:
        """Messages of an inner batch, 1 otherwise."""
        return int(parse(self.properties)["INNER_NUM"]) if self.sys_flag & INNER_BATCH else 1

    @cached_property
    def places(self) -> list[tuple[QueueKey, int]]:
        """The queues it is in, and at which offset."""
        if not self.is_queued:
            return []
        found = parse(self.properties)
        names, offsets = found.get("INNER_MULTI_DISPATCH"), found.get("INNER_MULTI_QUEUE_OFFSET")
        light = zip(names.split(","), map(int, offsets.split(",")), strict=True) if names and offsets else ()
        return [(self.queue, self.queue_offset), *(((name, 0), offset) for name, offset in light)]

    @cached_property
    def keys(self) -> list[str]:
        properties = parse(self.properties)
        return [properties["UNIQ_KEY"], *properties.get("KEYS", "").split()]

    @cached_property
    def key_hashes(self) -> set[int]:
        return {java_hash(f"{self.topic}#{key}") for key in self.keys}


@dataclass
class History:
    """`acknowledged` is a position: what is below must survive. The log begins at one of `min_low` … `min_high`."""

    file_size: int
    records: list[Placed] = field(default_factory=list)
    end: int = 0
    acknowledged: int = 0
    min_low: int = 0
    min_high: int = 0
    _next: Counter[QueueKey] = field(default_factory=Counter)
    _appended: list[Placed] = field(default_factory=list)
    _is_complete: bool = False
    """Nothing may be missing of what was appended: the process was killed or has closed the store."""

    def told(self, what: str, *values: object) -> bool:
        """Take in what a load does; whether a cut may mean something else from now on. Raises Fault."""
        was_complete, self._is_complete = self._is_complete, what in ("killed", "closed")
        match what, values:
            case "append", [list() as records]:
                self._appended = self.append(records)
            case "appended", [list() as positions, int() as offset]:
                wanted = [one.position for one in self._appended], self._appended[0].queue_offset
                require((positions, offset) == wanted, f"appended at {(positions, offset)}, not {wanted}")
            case "acknowledged", [int() as position]:
                self.acknowledged = max(self.acknowledged, position)
                return True
            case "recovered", [int() as end, int() as log_min]:
                count = sum(one.position < end for one in self.records)
                require(end in self.ends(count) or end == self.end, f"the log ends at {end} in the next life")
                left = f"a kill or a stop left {count} of {len(self.records)} records"
                require(not was_complete or count == len(self.records), left)
                self.cut(count, end, log_min)
                return True
            case "deleting", [int() as position]:
                self.min_high = max(self.min_high, position)
            case "deleted", [int() as log_min]:
                self.min_low = log_min
                return True
        return False

    def append(self, records: list[Record]) -> list[Placed]:
        """Records that are about to be appended together."""
        records = [self._completed(record) for record in records]
        size = sum(record.size for record in records)
        if size + BLANK_SIZE > self.file_size - self.end % self.file_size:
            self.end += -self.end % self.file_size or self.file_size * bool(self.end and not self._fits(size))
        placed = []
        for record in records:
            offset = self._next[record.topic, record.queue_id] if record.is_queued else 0
            placed.append(Placed(**{**record.__dict__, "queue_offset": offset, "position": self.end}))
            for key, _ in placed[-1].places:
                self._next[key] += placed[-1].count
            self.end += placed[-1].size
        self.records += placed
        return placed

    def _completed(self, record: Record) -> Record:
        """With what the store says in the properties of its offsets."""
        told = ""
        if record.sys_flag & INNER_BATCH:
            told = f"INNER_BASE\x01{self._next[record.topic, record.queue_id]}\x02"
        elif names := parse(record.properties).get("INNER_MULTI_DISPATCH"):
            offsets = ",".join(str(self._next[name, 0]) for name in names.split(","))
            told = f"INNER_MULTI_QUEUE_OFFSET\x01{offsets}\x02"
        return replace(record, properties=record.properties + told.encode())

    def _fits(self, size: int) -> bool:
        return size + BLANK_SIZE <= self.file_size

    def copy(self) -> "History":
        return replace(self, records=list(self.records), _next=Counter(self._next))

    def cut(self, count: int, end: int, log_min: int) -> None:
        """A recovery has kept the first `count` records, and from now on they may be seen by everybody."""
        for record in self.records[count:]:
            for key, _ in record.places:
                self._next[key] -= record.count
        del self.records[count:]
        self.end = self.acknowledged = end
        self.min_low = self.min_high = log_min

    def ends(self, count: int) -> set[int]:
        """Where a log with the first `count` records may end: behind the last one, or behind the blank that follows."""
        end = self.records[count - 1].position + self.records[count - 1].size if count else 0
        return {end, -(-end // self.file_size) * self.file_size}


def blank(size: int) -> bytes:
    """What the rest of a file starts with."""
    return size.to_bytes(4, "big") + BLANK.to_bytes(4, "big", signed=True)
