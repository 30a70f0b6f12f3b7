"""Whether the store's disks have room, and why messages are refused when they haven't (CleanCommitLogService in
DefaultMessageStore.java; store spec, 4.2).

    taking    -> refusing   use of a disk is over diskSpaceWarningLevelRatio, or a write found no room
    refusing  -> taking     neither is so any more: use is at or below the ratio, and what the write wanted is free

Only taking is refused; reading, deleting and what is already in the log go on. Each change is logged once.

A log in several directories has room as long as one of them has: its use is that of the least used. New files are made in
those that are used up to diskSpaceCleanForciblyRatio and have room for one; if there is none, in those that have room.
"""

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rockmq import _core
from rockmq.config.broker import Retention

log = logging.getLogger(__name__)

LOOK_SECONDS = 3.0
ROOM = 1 << 20
"""Bytes left for what is small beside a log file: queues, checkpoint, documents."""


class Usage(NamedTuple):
    """A file system as `statvfs` tells it, in bytes; `path` is the directory that was asked for."""

    path: Path
    total: int
    used: int
    free: int
    inodes_free: bool

    @property
    def percent(self) -> int:
        """Use of what ordinary users can have, rounded up (UtilAll.getDiskPartitionSpaceUsedPercent)."""
        entire = self.used + self.free
        return -(-self.used * 100 // entire) if entire else 0

    def has_room(self, size: int) -> bool:
        """For a file of so many bytes."""
        return self.free >= size and self.inodes_free


def usage(path: Path) -> Usage:
    """Raises OSError when the file system can't be asked."""
    found = os.statvfs(path)
    size = found.f_frsize
    # File systems without a fixed number of inodes say that they have none at all.
    inodes_free = found.f_files == 0 or found.f_favail > 0
    used = (found.f_blocks - found.f_bfree) * size
    return Usage(path, found.f_blocks * size, used, found.f_bavail * size, inodes_free)


def is_full(error: BaseException) -> bool:
    """Whether a write failed only because it found no room: nothing is lost then, and it can be tried again."""
    return isinstance(error, _core.StoreFull) or (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT))


def _fullest(log_usages: list[Usage], rest: Usage) -> Usage:
    return max(min(log_usages, key=_percent), rest, key=_percent)


def _percent(each: Usage) -> int:
    return each.percent


class DiskWatch:
    """Looks at the disks of some directories; `refusal` is why no messages are taken, None when they are.

    `changed` is called when messages begin to be refused and when they are taken again.
    """

    def __init__(
        self,
        options: Retention,
        log_directories: Sequence[Path],
        root: Path,
        log_file_room: int,
        *,
        changed: Callable[[], None],
        retarget: Callable[[Sequence[Path]], None],
        has_next_log_file: Callable[[], bool],
    ) -> None:
        """`retarget` is told where new log files are to be made, whenever that changes; at first in all of the log's
        directories. `log_file_room` are the bytes one needs; `has_next_log_file` tells whether the next one is there
        already. Raises OSError when a directory isn't there."""
        self._options = options
        self._log_directories = log_directories
        self._root = root
        self._log_file_room = log_file_room
        self.log_targets = log_directories
        by_disk: dict[int, Path] = {}
        for path in (*log_directories, root):
            by_disk.setdefault(os.stat(path).st_dev, path)
        self._names = [str(path) for path in by_disk.values()]
        self._changed = changed
        self._retarget = retarget
        self._has_next_log_file = has_next_log_file
        self._blind = False
        self._wanted: tuple[str, int] | None = None
        self.refusal: str | None = None

    def fullest(self) -> Usage:
        """What the ratios are about: the least used of the log's disks, or that of the rest if it is used more. Raises
        OSError."""
        return _fullest(*self._usages())

    def _usages(self) -> tuple[list[Usage], Usage]:
        return [usage(path) for path in self._log_directories], usage(self._root)

    def has_log_room(self) -> bool:
        """Whether a new log file would have room. Raises OSError."""
        return any(usage(path).has_room(self._log_file_room) for path in self.log_targets)

    @property
    def out_of_room(self) -> bool:
        """Whether a write found no room, and what it wanted isn't free yet."""
        return self._wanted is not None

    def ran_out(self, error: BaseException | str, wanted: int = ROOM) -> None:
        """A write found no room; messages are taken again when `wanted` bytes are free, or at once if new log files now get
        another place."""
        with contextlib.suppress(OSError):  # then `look` tells
            if self._choose_targets(self._usages()[0]):
                return
        if self._wanted is None or self._wanted[1] < wanted:
            self._wanted = (str(error), wanted)
        self._set(self._no_room(*self._wanted))

    def look(self) -> None:
        """Ask the disks and decide. Called every `LOOK_SECONDS`."""
        try:
            log_usages, rest = self._usages()
        except OSError as error:
            if not self._blind:
                log.exception("the use of the store's disk can't be found out: %s", error)
            self._blind = True
            return
        self._blind = False
        self._choose_targets(log_usages)
        if self._wanted is not None:
            # Only the log asks for more than that, for its next file: the room it waits for may have become that file.
            wanted = self._wanted[1]
            log_has_room = any(each.has_room(wanted) for each in log_usages) or (wanted > ROOM and self._has_next_log_file())
            if rest.has_room(min(wanted, ROOM)) and log_has_room:
                self._wanted = None
        fullest = _fullest(log_usages, rest)
        bound = self._options.disk_space_warning_level_ratio
        if self._wanted is not None:
            self._set(self._no_room(*self._wanted))
        elif fullest.percent > bound:
            self._set(
                f"the disk of {fullest.path} is full: {fullest.percent}% are used, over diskSpaceWarningLevelRatio={bound}; "
                "messages are taken again when it has room"
            )
        else:
            self._set(None)

    def _choose_targets(self, log_usages: list[Usage]) -> bool:
        """Whether new log files are made elsewhere from now on."""
        roomy = [each for each in log_usages if each.has_room(self._log_file_room)]
        preferred = [each for each in roomy if each.percent <= self._options.disk_space_clean_forcibly_ratio]
        targets = [each.path for each in preferred or roomy]
        if not targets or targets == self.log_targets:
            return False
        log.warning("new files of the log are made in %s", " and ".join(map(str, targets)))
        self.log_targets = targets
        self._retarget(targets)
        return True

    def _no_room(self, error: str, wanted: int) -> str:
        paths = " or ".join(self._names)
        try:
            percent = f"{self.fullest().percent}% are used"
        except OSError as failure:
            percent = f"its use can't be found out: {failure}"
        return f"the disk of {paths} is full: {percent}, {error}; messages are taken again when {wanted} bytes are free"

    def _set(self, refusal: str | None) -> None:
        before, self.refusal = self.refusal, refusal
        if (before is None) == (refusal is None):
            return
        if refusal is not None:
            log.critical("messages are refused: %s", refusal)
        else:
            log.warning("the disk of %s has room again, messages are taken", " and ".join(self._names))
        self._changed()
