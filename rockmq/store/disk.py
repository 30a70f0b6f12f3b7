"""Whether the store's disks have room, and why messages are refused when they haven't (CleanCommitLogService.isSpaceFull
in DefaultMessageStore.java; store spec, 4.2).

    taking    -> refusing   use of a disk is over diskSpaceWarningLevelRatio, or a write found no room
    refusing  -> taking     neither is so any more: use is at or below the ratio, and what the write wanted is free

Only taking is refused; reading, deleting and what is already in the log go on. Each change is logged once.
"""

import errno
import logging
import os
from collections.abc import Callable, Iterable
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


class DiskWatch:
    """Looks at the disks of some directories; `refusal` is why no messages are taken, None when they are.

    `changed` is called when messages begin to be refused and when they are taken again.
    """

    def __init__(self, options: Retention, paths: Iterable[Path], changed: Callable[[], None]) -> None:
        """Raises OSError when a directory isn't there."""
        self._options = options
        by_disk: dict[int, Path] = {}
        for path in paths:
            by_disk.setdefault(os.stat(path).st_dev, path)
        self._paths = tuple(by_disk.values())
        self._changed = changed
        self._blind = False
        self._wanted: tuple[str, int] | None = None
        self.refusal: str | None = None

    def fullest(self) -> Usage:
        """The disk that is used most. Raises OSError."""
        return max(map(usage, self._paths), key=lambda each: each.percent)

    @property
    def out_of_room(self) -> bool:
        """Whether a write found no room, and what it wanted isn't free yet."""
        return self._wanted is not None

    def ran_out(self, error: BaseException | str, wanted: int = ROOM) -> None:
        """A write found no room; messages are taken again when `wanted` bytes are free."""
        if self._wanted is None or self._wanted[1] < wanted:
            self._wanted = (str(error), wanted)
        self._set(self._no_room(*self._wanted))

    def look(self) -> None:
        """Ask the disks and decide. Called every `LOOK_SECONDS`."""
        try:
            found = [usage(path) for path in self._paths]
        except OSError as error:
            if not self._blind:
                log.exception("the use of the store's disk can't be found out: %s", error)
            self._blind = True
            return
        self._blind = False
        if self._wanted is not None and all(each.free >= self._wanted[1] and each.inodes_free for each in found):
            self._wanted = None
        fullest = max(found, key=lambda each: each.percent)
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

    def _no_room(self, error: str, wanted: int) -> str:
        paths = " or ".join(map(str, self._paths))
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
            log.warning("the disk of %s has room again, messages are taken", " and ".join(map(str, self._paths)))
        self._changed()
