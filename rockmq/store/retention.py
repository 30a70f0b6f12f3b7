"""What is deleted from the log, and when (CleanCommitLogService in DefaultMessageStore.java, deleteExpiredFileByTime in
MappedFileQueue.java; store spec, 4.2).

Whole files go, from the oldest on, never the last one. The oldest is deleted when
- the log holds more than retentionBytes (beyond Apache), or
- no queue leads to a message in it any more, because of retentionBytesPerTopic (beyond Apache, `topic_bounds.py`), or
- it has expired, that is, its messages are older than fileReservedTime, and it is an hour of deleteWhen, or an operator has
  asked for it, or the disk's use is over diskMaxUsedSpaceRatio, or
- the disk's use is over diskSpaceCleanForciblyRatio or a write found no room, and cleanFileForciblyEnable allows it,
unless it holds messages that a group of retentionGroups hasn't got (beyond Apache, `held.py`).

Apache takes a file's time of change for the age of its messages; here it is the store time of the first message behind
it, which copying a store doesn't change. Apache deletes a whole round of files when a disk is too full; here the disk is
asked again before each. Queues follow the log: the core raises their minimum to the first message that is left.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Protocol, TypeVar

from rockmq import _core
from rockmq.base.clock import Clock
from rockmq.config.broker import Retention as Options
from rockmq.store.disk import DiskWatch
from rockmq.store.held import GroupOffsets, HeldMessages
from rockmq.store.topic_bounds import TopicBounds

log = logging.getLogger(__name__)

HOUR_MS = 3_600_000
ROUNDS_ASKED_FOR = 20
"""Rounds that delete expired files at any hour when an operator wants that (MAX_MANUAL_DELETE_FILE_TIMES)."""

T = TypeVar("T")


class InWorker(Protocol):
    """Runs work that may wait for the disk, away from the loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Retention:
    """Deletes old log files, a round each time `clean` is called; it never blocks the loop."""

    def __init__(self, options: Options, core: _core.Store, disk: DiskWatch, clock: Clock, in_worker: InWorker) -> None:
        """Raises ConfigError for a name in retentionGroups that no group has."""
        self._options = options
        self._core = core
        self._disk = disk
        self._clock = clock
        self._in_worker = in_worker
        self._rounds_asked_for = 0
        self._failing = False
        bound = options.retention_bytes_per_topic
        self._topics = None if bound is None else TopicBounds(core, bound)
        self._held = HeldMessages(options, core, disk)

    def hold_for_groups(self, offsets: GroupOffsets) -> None:
        """Where the groups of retentionGroups are. Until this is said nothing of theirs is deleted."""
        self._held.offsets = offsets

    async def bound_topics(self) -> None:
        """Hide what topics have over retentionBytesPerTopic. Raises StoreError."""
        if self._topics is not None:
            await self._in_worker(self._survey)

    def _survey(self) -> tuple[list[tuple[int, int]], int]:
        """The log's files, and the lowest position that a queue leads to where topics are bounded, which happens first. It
        may take long. Raises StoreError."""
        end = self._core.max_position  # before the files, so that it lies in none that isn't among them
        files = self._core.files()
        if self._topics is None:
            return files, 0
        self._topics.apply([base for base, _ in files], end)
        return files, self._core.lowest_position

    def topic_deleted(self, topic: str) -> None:
        """For the thread of the rounds."""
        if self._topics is not None:
            self._topics.delete(topic)

    def delete_expired(self) -> None:
        """Have files that have expired deleted at any hour, in the next rounds (executeDeleteFilesManually)."""
        self._rounds_asked_for = ROUNDS_ASKED_FOR

    async def clean(self) -> None:
        """Delete at most deleteFileBatchMax files, with a pause of deleteCommitLogFilesInterval between them."""
        try:
            await self._clean()
        except (_core.StoreError, OSError):
            # What couldn't be deleted is still in the log, and the next round tries again.
            if not self._failing:
                log.exception("old files of the log can't be deleted")
            self._failing = True
        else:
            self._failing = False
        finally:
            self._rounds_asked_for = max(0, self._rounds_asked_for - 1)

    async def _clean(self) -> None:
        may_go = self._expired_may_go() or self._forced() or self._over_bytes(self._core.min_position)
        if not may_go and self._topics is None:
            return
        files, lowest = await self._in_worker(self._survey)
        # Groups go on meanwhile, which holds less.
        first_held = await self._in_worker(partial(self._held.first, self._held.where()))
        deleted = 0
        for (base, _), (behind, behind_stored) in pairwise(files):
            if deleted:
                await asyncio.sleep(self._options.delete_commit_log_files_interval / 1000)
            reason = self._reason(base, behind, behind_stored, lowest)
            if reason is None or deleted == self._options.delete_file_batch_max:
                break
            if self._held.keeps(first_held, behind, self._core.max_position - base, reason):
                break
            for path in await self._in_worker(partial(self._core.delete_files_below, behind)):
                log.info("deleted %s: %s", path, reason)
            deleted += 1
            self._disk.look()
        if not deleted and self._disk.refusal is not None:
            log.debug("nothing to delete, though messages are refused: %s", self._disk.refusal)

    def _reason(self, base: int, behind: int, behind_stored: int, lowest: int) -> str | None:
        """Why the log's first file goes, None when it stays; `behind_stored` is when the first message behind it, at
        `behind`, was stored, -1 when there is none yet; `lowest` as of `_survey`."""
        over = self._over_bytes(base)
        if over is not None:
            return over
        if lowest >= behind:
            return "no queue leads to a message in it, with retentionBytesPerTopic"
        reserved = self._options.file_reserved_time
        expired = behind_stored >= 0 and behind_stored + reserved * HOUR_MS <= self._clock.now_ms()
        if expired and self._expired_may_go():
            return f"its messages are older than fileReservedTime={reserved} hours"
        return self._forced()

    def _over_bytes(self, base: int) -> str | None:
        bound = self._options.retention_bytes
        size = self._core.max_position - base
        return f"the log holds {size} bytes, over retentionBytes={bound}" if bound is not None and size > bound else None

    def _expired_may_go(self) -> bool:
        hour = datetime.fromtimestamp(self._clock.now_ms() / 1000).astimezone().hour
        return (
            hour in self._options.delete_hours
            or self._rounds_asked_for > 0
            or self._disk.out_of_room
            or self._disk.fullest().percent > self._options.disk_max_used_space_ratio
        )

    def _forced(self) -> str | None:
        """Why files go that haven't expired, None when they may stay."""
        if not self._options.clean_file_forcibly_enable:
            return None
        if self._disk.out_of_room:
            return "the disk has no room left"
        percent, bound = self._disk.fullest().percent, self._options.disk_space_clean_forcibly_ratio
        return f"{percent}% of the disk are used, over diskSpaceCleanForciblyRatio={bound}" if percent > bound else None
