"""A directory on a disk that may lose power: what is durable, what the page cache holds, and what a cut may leave.

Contents: a file has the content that was forced last and every one seen since. The kernel writes pages when it likes, so
after a cut each sector is that of any of these. Forcing a file (or a part, to whole pages) makes what is there now durable,
its size too. A sector is written as a whole.

Names: creating, renaming and deleting changes a directory, and becomes durable when the directory is forced. Before,
a cut may keep any part of it: the first so many changes, as a journal would, or any of them. A rename is one change.
"""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SECTOR, PAGE = 512, 4096
VERSIONS_MAX = 10
"""Contents of a file that are remembered; of more, those in the middle are forgotten."""
UNSEEN_MAX = 18
"""That less than this is missing of a sector, recovery doesn't see (`is_torn` in record.rs), nor that fields are which come
before the store time, if the sector ends with that: what nobody has acknowledged may then be there with zeros in them."""
STORE_HOST_AT = 64
MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")
DIRECTORY = -1
"""Stands for a directory where a file has its number."""

Names = dict[str, int]
"""Path below the root -> number of the file there (its inode), or DIRECTORY."""
Image = dict[str, bytes | None]
"""Path below the root -> content, None for a directory."""


@dataclass
class File:
    """`versions[0]` is durable, the last one is what the page cache holds."""

    versions: list[bytes]

    @property
    def is_dirty(self) -> bool:
        return len(self.versions) > 1

    def note(self, content: bytes, partly: random.Random | None = None) -> bool:
        """`partly`: the kernel may also have seen it when only the first bytes of what is new were there."""
        before = self.versions[-1]
        if content == before:
            return False
        if partly is not None and len(content) == len(before):
            differing = [at for at in range(0, len(content), 16) if content[at : at + 16] != before[at : at + 16]]
            cut = partly.randrange(differing[0], differing[-1] + 16)
            sector_end = cut + -cut % SECTOR
            if sector_end - cut < UNSEEN_MAX or _begins_record(content, sector_end - STORE_HOST_AT, cut):
                cut = sector_end
            self.versions.append(content[:cut] + before[cut:])
        self.versions.append(content)
        if len(self.versions) > VERSIONS_MAX:
            del self.versions[VERSIONS_MAX // 2]
        return True

    def force(self, start: int, end: int) -> None:
        now = self.versions[-1]
        start, end = start // PAGE * PAGE, -(-end // PAGE) * PAGE
        forced = now[start:end]
        # Earlier contents of what was forced can't come back, nor can an earlier size.
        padded = [version[: len(now)].ljust(len(now), b"\0") for version in self.versions]
        patched = [version[:start] + forced + version[end:] for version in padded]
        self.versions = [version for at, version in enumerate(patched) if at == 0 or version != patched[at - 1]]


@dataclass
class Change:
    """What one system call did to names: path -> (before, after), None where there is nothing."""

    names: dict[str, tuple[int | None, int | None]]


@dataclass
class Disk:
    root: Path
    files: dict[int, File] = field(default_factory=dict)
    durable: Names = field(default_factory=dict)
    current: Names = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    _partly: random.Random = field(default_factory=random.Random)

    @classmethod
    def of(cls, root: Path, seed: str) -> "Disk":
        """All that is there now is durable."""
        disk = cls(root, _partly=random.Random(seed))
        disk.look()
        disk.durable, disk.changes = dict(disk.current), []
        for file in disk.files.values():
            del file.versions[:-1]
        return disk

    def look(self) -> bool:
        """Take in what the page cache holds now; whether it has changed."""
        names: Names = {}
        changed = False
        for path, number in self._walk(self.root, ""):
            names[path] = number
            if number != DIRECTORY:
                # A file that no name led to before is a new one, even if it got the number of one that is gone.
                content = (self.root / path).read_bytes()
                if number in self.files:
                    changed |= self.files[number].note(content, self._partly if path.startswith("commitlog") else None)
                else:
                    self.files[number] = File([b"", content] if content else [b""])
        if names != self.current:
            paths = [path for path in {**self.current, **names} if self.current.get(path) != names.get(path)]
            self.changes.append(Change({path: (self.current.get(path), names.get(path)) for path in paths}))
            self.current = names
            changed = True
        return changed

    def _walk(self, directory: Path, prefix: str) -> Iterator[tuple[str, int]]:
        with os.scandir(directory) as entries:
            for entry in entries:
                path = prefix + entry.name
                if entry.is_dir():
                    yield path, DIRECTORY
                    yield from self._walk(directory / entry.name, path + "/")
                else:
                    yield path, entry.inode()

    def force_file(self, number: int, start: int = 0, end: int = 1 << 40) -> None:
        if number in self.files:
            file = self.files[number]
            file.force(start, min(end, len(file.versions[-1])))

    def force_directory(self, directory: str) -> None:
        """`directory` is a path below the root, "" for the root."""
        left = []
        for change in self.changes:
            mine = {path: names for path, names in change.names.items() if path.rpartition("/")[0] == directory}
            for path, (_, after) in mine.items():
                _set(self.durable, path, after)
            rest = {path: names for path, names in change.names.items() if path not in mine}
            if rest:
                left.append(Change(rest))
        self.changes = left
        used = {*self.durable.values(), *self.current.values()}
        used.update(number for change in left for each in change.names.values() for number in each if number is not None)
        self.files = {number: file for number, file in self.files.items() if number in used}

    def image(self, choice: random.Random) -> tuple[Image, str]:
        """What a cut now may leave, and a few words on what was chosen."""
        names, words = self._names(choice)
        how = choice.choice(["dropped", "kept", "pages", "sectors", "zeroed", "mixed", "mixed"])
        image: Image = {}
        told = [f"names {words}; contents {how}"]
        contents: dict[int, bytes] = {}
        for path, number in sorted(names.items()):
            parent = path.rpartition("/")[0]
            if parent and parent not in image:
                continue
            if number == DIRECTORY:
                image[path] = None
                continue
            if number not in contents:
                own = choice.choice(["dropped", "kept", "pages", "sectors", "zeroed"]) if how == "mixed" else how
                file = self.files[number]
                contents[number] = _content(file, own, choice) if file.is_dirty else file.versions[0]
                if file.is_dirty:
                    told.append(f"{path} {own}")
            image[path] = contents[number]
        return image, ", ".join(told)

    def _names(self, choice: random.Random) -> tuple[Names, str]:
        names = dict(self.durable)
        count = len(self.changes)
        how = choice.choice(["dropped", "kept", "first", "any"])
        first = {"dropped": 0, "kept": count, "first": choice.randint(0, count), "any": count}[how]
        left_out: set[str] = set()
        for change in self.changes[:first]:
            if how == "any" and (left_out & change.names.keys() or choice.random() < 0.4):
                left_out |= change.names.keys()
                continue
            for path, (_, after) in change.names.items():
                _set(names, path, after)
        return names, f"{how} ({first} of {count}, less {sorted(left_out)})" if left_out else f"{how} ({first} of {count})"


def _begins_record(log: bytes, start: int, end: int) -> bool:
    """Whether a record begins behind `start` and goes on at `end`."""
    return any(log.find(magic, max(0, start + 1) + 4, end) >= 0 for magic in MAGICS)


def _set(names: Names, path: str, number: int | None) -> None:
    if number is None:
        names.pop(path, None)
    else:
        names[path] = number


def _content(file: File, how: str, choice: random.Random) -> bytes:
    durable, now = file.versions[0], file.versions[-1]
    if how == "dropped":
        return durable
    if how == "kept":
        return now
    size = len(choice.choice(file.versions))
    unit = SECTOR if how == "sectors" else PAGE
    pieces = []
    for at in range(0, size, unit):
        versions = [version[at : at + unit].ljust(unit, b"\0") for version in file.versions]
        if how == "zeroed":
            # A place that was given to the file but never written holds zeros; nothing durable is there.
            never_written = not any(versions[0])
            pieces.append(bytes(unit) if never_written and choice.random() < 0.5 else versions[-1])
        elif choice.random() < 0.4:
            pieces.append(versions[-1])
        else:
            pieces.append(choice.choice(versions))
    return b"".join(pieces)[:size]


def write(image: Image, root: Path) -> None:
    """Make `root`, which is empty, such a directory."""
    for path, content in image.items():
        if content is None:
            os.mkdir(root / path)
        else:
            with open(root / path, "wb", buffering=0) as file:
                file.write(content)
