"""What a store directory looks like, found out from its files: ours or Apache's, running or not (store spec, 1.1).

Nothing here writes. The sizes of files are in no document of the store, so they are taken from the files themselves.
"""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rockmq.base.errors import ConfigError
from rockmq.config.broker import Store
from rockmq.store.files import is_locked

ENTRY_SIZE = 20
QUEUE_FILE_SIZE = 6_000_000
BATCH_QUEUE_FILE_SIZE = 13_800_000
INDEX_HEADER_SIZE = 40
INDEX_DEFAULT = (5_000_000, 20_000_000)
ENTRIES_PER_SLOT = 4
"""Of index files with Apache's default sizes, and with all that keep their ratio."""


class Layout(NamedTuple):
    """`log_files` are (first position, size) in order; `index_sizes` are (maxHashSlotNum, maxIndexNum), None when the files
    don't tell them."""

    root: Path
    log_directories: list[Path]
    log_files: list[tuple[int, int]]
    log_file_size: int
    queue_file_size: int
    batch_queue_file_size: int
    index_sizes: tuple[int, int] | None
    is_running: bool
    was_killed: bool
    delay_levels: list[int]

    @property
    def queues(self) -> Path:
        return self.root / "consumequeue"

    @property
    def batch_queues(self) -> Path:
        return self.root / "batchconsumequeue"

    @property
    def index_directory(self) -> Path:
        return self.root / "index"

    def log_file(self, base: int) -> Path:
        """The file that begins at a position; where it would be if it isn't there."""
        return _log_file(self.log_directories, base)

    @property
    def log_min(self) -> int:
        return self.log_files[0][0]


def find(directory: Path, options: Store | None = None) -> Layout:
    """The store in `directory`. Raises ConfigError when there is none. With a broker's `options` sizes are what they say;
    without, they are found out, and Apache's defaults where there is no file to find them out from."""
    root = directory
    if options is not None and (options.store_path_commit_log or options.read_only_commit_log_store_paths):
        log_directories = [Path(each) for each in (*options.log_directories, *options.read_only_log_directories)]
    else:
        log_directories = [root / "commitlog"]
    for each in log_directories:
        if not each.is_dir():
            hint = "" if options else "; if its log is elsewhere, or in several directories, give the broker's configuration"
            raise ConfigError(f"{directory} is no store: there is no directory {each}{hint}")
    files = log_files(log_directories)
    while files and files[-1][1] == 0:
        files.pop()  # a crash between making a file and giving it its size; a start drops it
    if not files:
        raise ConfigError(f"{' and '.join(map(str, log_directories))} has no log file, so there is nothing to read")
    running = is_locked(root / "lock")
    return Layout(
        root,
        log_directories,
        files,
        _usual(size for _, size in files),
        options.mapped_file_size_consume_queue
        if options
        else _usual(size for _, size in _some_queue_files(root / "consumequeue")) or QUEUE_FILE_SIZE,
        options.mapper_file_size_batch_consume_queue
        if options
        else _usual(size for _, size in _some_queue_files(root / "batchconsumequeue")) or BATCH_QUEUE_FILE_SIZE,
        (options.max_hash_slot_num, options.max_index_num) if options else _index_layout(root / "index"),
        running,
        not running and (root / "abort").exists(),
        (options or Store()).delay_levels,
    )


def is_number(name: str) -> bool:
    """Whether a name of a file is a number as a store writes it; Python takes other scripts' digits for some, too."""
    return name.isascii() and name.isdecimal()


def positions(directory: Path) -> list[tuple[int, int]]:
    """(first position, size) of the files of a log or queue, in order."""
    with os.scandir(directory) as entries:
        names = [each for each in entries if len(each.name) == 20 and is_number(each.name) and each.is_file()]
        return sorted((int(each.name), each.stat().st_size) for each in names)


def log_files(directories: list[Path]) -> list[tuple[int, int]]:
    """(first position, size) of the files of a log, in order. Raises ConfigError when two have one position."""
    found: dict[int, int] = {}
    for directory in directories:
        for base, size in positions(directory):
            if base in found:
                one = _log_file(directories, base)
                raise ConfigError(
                    f"{one} and {directory / one.name} are the same part of the log: keep the one that has its messages and "
                    "move the other out of these directories"
                )
            found[base] = size
    return sorted(found.items())


def _log_file(directories: list[Path], base: int) -> Path:
    paths = [directory / f"{base:020}" for directory in directories]
    return next((path for path in paths if path.exists()), paths[0])


def index_files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(each for each in directory.iterdir() if len(each.name) == 17 and is_number(each.name))


def _usual(sizes: Iterable[int]) -> int:
    counted = Counter(sizes)
    return counted.most_common(1)[0][0] if counted else 0


def _some_queue_files(queues: Path) -> list[tuple[int, int]]:
    """The files of the first queues: all of a store have one size, and there may be a million."""
    found: list[tuple[int, int]] = []
    for topic in sorted(queues.iterdir()) if queues.is_dir() else ():
        for queue in topic.iterdir() if topic.is_dir() else ():
            found += [file for file in positions(queue) if file[1]] if queue.is_dir() else []
            if len(found) > 100:
                return found
    return found


def _index_layout(directory: Path) -> tuple[int, int] | None:
    found = index_files(directory)
    if not found:
        return INDEX_DEFAULT
    for file in found:
        slots, rest = divmod(file.stat().st_size - INDEX_HEADER_SIZE, 4 + ENTRIES_PER_SLOT * ENTRY_SIZE)
        if rest == 0 and slots > 0:
            return slots, slots * ENTRIES_PER_SLOT
    return None
