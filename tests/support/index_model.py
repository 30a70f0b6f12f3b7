"""What index files should hold, in plain Python: lists of entries, no maps (IndexFile.java, IndexService.java)."""

import struct
from dataclasses import dataclass, field

from tests.support.model import java_hash

ROLLBACK = 12


def key_hash(text: str) -> int:
    value = abs(java_hash(text))
    return 0 if value >> 31 else value


@dataclass
class Entry:
    hash: int
    position: int
    seconds: int
    previous: int


@dataclass
class File:
    slots: int
    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_position: int = 0
    end_position: int = 0
    entries: list[Entry] = field(default_factory=list)

    def newest(self, slot: int, below: int) -> int:
        """The number of the newest entry of a slot before entry `below`; numbers begin with 1."""
        return next((n for n in range(below - 1, 0, -1) if self.entries[n - 1].hash % self.slots == slot), 0)

    def put(self, hashed: int, position: int, timestamp: int) -> None:
        passed = timestamp - self.begin_timestamp
        seconds = max(0, min(passed // 1000, 2**31 - 1)) if self.begin_timestamp > 0 else 0
        number = len(self.entries) + 1
        self.entries.append(Entry(hashed, position, seconds, self.newest(hashed % self.slots, number)))
        if number == 1:
            self.begin_timestamp, self.begin_position = timestamp, position
        self.end_timestamp, self.end_position = timestamp, position

    def encode(self, size: int) -> bytes:
        used = {entry.hash % self.slots for entry in self.entries}
        times = self.begin_timestamp, self.end_timestamp, self.begin_position, self.end_position
        header = struct.pack(">qqqqii", *times, len(used), len(self.entries) + 1)
        heads = struct.pack(f">{self.slots}i", *(self.newest(slot, len(self.entries) + 1) for slot in range(self.slots)))
        rows = (struct.pack(">iqii", e.hash, e.position, e.seconds, e.previous) for e in self.entries)
        return (header + heads + bytes(20) + b"".join(rows)).ljust(size, b"\0")

    def matches(self, begin: int, end: int) -> bool:
        low, high = self.begin_timestamp, self.end_timestamp
        return (begin < low and end > high) or low <= begin <= high or low <= end <= high


@dataclass
class Index:
    slots: int
    entries: int
    files: list[File] = field(default_factory=list)

    @property
    def file_size(self) -> int:
        return 40 + 4 * self.slots + 20 * self.entries

    def put(self, topic: str, properties: dict[str, str], sys_flag: int, position: int, timestamp: int) -> None:
        if sys_flag & ROLLBACK == ROLLBACK:
            return
        names = [properties["UNIQ_KEY"]] if "UNIQ_KEY" in properties else []
        names += [key for key in properties.get("KEYS", "").split(" ") if key]
        names += ["T#" + properties["TAGS"]] if "TAGS" in properties else []
        for name in names:
            last = self.files[-1] if self.files else None
            if last is None or len(last.entries) + 1 >= self.entries:
                begun = (last.end_timestamp, last.end_position) if last else (0, 0)
                self.files.append(File(self.slots, begun[0], begun[0], begun[1], begun[1]))
            self.files[-1].put(key_hash(f"{topic}#{name}"), position, timestamp)

    def find(self, topic: str, name: str, count_max: int, begin: int, end: int) -> list[int]:
        """Positions, newest first. The name of tags begins with `T#`."""
        found: list[int] = []
        hashed = key_hash(f"{topic}#{name}")
        for file in reversed(self.files):
            number = file.newest(hashed % self.slots, len(file.entries) + 1) if file.matches(begin, end) else 0
            while number and len(found) < count_max:
                entry = file.entries[number - 1]
                time = file.begin_timestamp + entry.seconds * 1000
                if entry.hash == hashed and begin <= time <= end:
                    found.append(entry.position)
                number = entry.previous if time >= begin else 0
            if file.begin_timestamp < begin or len(found) >= count_max:
                break
        return found
