"""What deletion waits for: the messages that groups haven't got yet (retentionGroups; beyond Apache).

A job that keeps messages elsewhere commits as a group how far it is. No file goes that a queue leads to at or behind such
an offset, whether it has expired or retentionBytes wants it gone, until the disk is used over retentionGroupsDiskRatio or
the log holds more than retentionGroupsBytes: then it goes, and the log says at which offset of which queue the group was.

A group holds the topics that it has committed an offset of, in all their queues on this broker: one without an offset from
its minimum on. Light queues, which lead to messages of other queues, hold nothing.
"""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from rockmq import _core
from rockmq.base.errors import ConfigError
from rockmq.config.broker import Retention as Options
from rockmq.protocol import topics
from rockmq.store.disk import DiskWatch

log = logging.getLogger(__name__)

GroupOffsets = Callable[[str], Mapping[str, Mapping[int, int]]]
"""{topic: {queue id: the next offset the group wants}} of a group."""

_ANYWHERE = 2**62
_RECORD_POSITION = slice(28, 36)
"""Where a record has its position in the log (CommitLog.java, MessageExtEncoder.java)."""


class First(NamedTuple):
    """The first message in the log that a group hasn't got, and who waits for it."""

    position: int
    words: str


class HeldMessages:
    """Says which files have to stay for groups. `offsets` is to be set before anything may be deleted."""

    def __init__(self, options: Options, core: _core.Store, disk: DiskWatch) -> None:
        """Raises ConfigError for a name that no group has."""
        self._options = options
        self._core = core
        self._disk = disk
        self.groups = options.held_groups
        self.offsets: GroupOffsets | None = None
        self._said = ""
        for group in self.groups:
            if (fault := topics.group_fault(group)) is not None:
                raise ConfigError(f"retentionGroups={options.retention_groups}: {fault}")

    def where(self) -> list[tuple[str, dict[str, dict[int, int]]]]:
        """Each group's offsets as they are now, for `first`, which works in another thread."""
        read = self.offsets or (lambda group: {})
        return [(group, {topic: dict(queues) for topic, queues in read(group).items()}) for group in self.groups]

    def first(self, where: list[tuple[str, dict[str, dict[int, int]]]]) -> First | None:
        """The first message that one of the groups hasn't got, None when they have all; a record of each queue is read."""
        if not self.groups:
            return None
        if self.offsets is None:
            return First(0, "groups whose offsets aren't loaded yet")
        queues: dict[str, list[tuple[int, int, int]]] = {}
        for topic, queue_id, low, high in self._core.queues():
            queues.setdefault(topic, []).append((queue_id, low, high))
        found: list[First] = []
        for group, topic, offsets in ((group, *each) for group, table in where for each in table.items()):
            for queue_id, low, high in queues.get(topic, ()):
                offset = max(offsets.get(queue_id, 0), low)
                position = self._position(topic, queue_id, offset, high)
                if position is not None:
                    found.append(First(position, f"group {group}, which is at offset {offset} of {topic}/{queue_id}"))
        return min(found, default=None)

    def _position(self, topic: str, queue_id: int, offset: int, high: int) -> int | None:
        """Of the first message there or behind it; None when nothing is left."""
        while offset < high:
            _, behind, _, _, count, buffers, _ = self._core.get(topic, queue_id, offset, 1, 1, _ANYWHERE, None)
            if count:
                return int.from_bytes(bytes(memoryview(buffers[0])[_RECORD_POSITION]), "big")
            if behind <= offset:
                break
            offset = behind
        return None

    def keeps(self, first: First | None, behind: int, log_bytes: int, reason: str) -> bool:
        """Whether the log's first file, which ends at `behind` and would go for that reason, has to stay; each change of the
        answer is logged."""
        if first is None or first.position >= behind:
            self._said = ""
            return False
        over = self._over(log_bytes)
        if over is None:
            self._say("kept", f"nothing is deleted, though {reason}: messages are held for {first.words}")
            return True
        self._say("lost", f"messages go that were held for {first.words}: {over}")
        return False

    def _over(self, log_bytes: int) -> str | None:
        """Why nothing is held any more."""
        bytes_max = self._options.retention_groups_bytes
        if bytes_max is not None and log_bytes > bytes_max:
            return f"the log holds {log_bytes} bytes, over retentionGroupsBytes={bytes_max}"
        ratio, percent = self._options.retention_groups_disk_ratio, self._disk.fullest().percent
        if percent > ratio:
            return f"{percent}% of the disk are used, over retentionGroupsDiskRatio={ratio}"
        if self._disk.out_of_room and ratio < 100:
            return "the disk has no room left"
        return None

    def _say(self, what: str, words: str) -> None:
        if what != self._said:
            self._said = what
            log.log(logging.ERROR if what == "lost" else logging.WARNING, "%s", words)
