"""The messages of a store directory, for readers that are no broker: of one that is stopped, is running, or is a copy.

Nothing is written and nothing is locked. Reading stops where the log was surely on disk: at the end of a store that was
closed in order; else where its `checkpoint` says (rockmq.store.checkpoint), which a running broker saves about once a
minute. One that Apache's broker has saved tells a time instead of a position.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from rockmq import _core
from rockmq.base import files
from rockmq.base.errors import ConfigError, ProtocolError
from rockmq.protocol import json
from rockmq.store import layout
from rockmq.store.checkpoint import Checkpoint
from rockmq.store.get_result import Filter

_EVERYTHING = 2**62
"""A position behind all."""
_SHOWN_MAX = 20
"""Topics named in an error."""


class Read(NamedTuple):
    """`records` are whole stored records back to back, `next_offset` is where to go on. `faults` tell by file and byte which
    records aren't what the queue says; they are left out. `gone` is the position of the record at `next_offset`, if its log
    file isn't there."""

    next_offset: int
    records: bytes
    faults: list[str]
    gone: int | None


class StoreReader:
    """A store directory by topic and queue."""

    def __init__(self, root: Path) -> None:
        """Raises ConfigError when there is no store."""
        self._layout = found = layout.find(root)
        self._limit, self._before = _EVERYTHING, None
        if found.is_running or found.was_killed:
            checkpoint = Checkpoint.load(root / "checkpoint")
            if checkpoint.position is not None:
                self._limit = checkpoint.position
            else:
                self._before = checkpoint.physic

    @property
    def root(self) -> Path:
        return self._layout.root

    def topics(self) -> list[str]:
        """The topics that have queues."""
        roots = (self._layout.queues, self._layout.batch_queues)
        return sorted({each.name for root in roots if root.is_dir() for each in root.iterdir() if each.is_dir()})

    def queues(self, topic: str) -> list[int]:
        """The queues of a topic that have had a message. Raises ConfigError when there is no such topic."""
        for root in (self._layout.batch_queues / topic, self._layout.queues / topic):
            if root.is_dir():
                return sorted(int(each.name) for each in root.iterdir() if layout.is_number(each.name) and each.is_dir())
        if topic in self._configured():
            return []
        there = self.topics()
        shown = ", ".join(there[:_SHOWN_MAX]) + (f" and {len(there) - _SHOWN_MAX} more" if len(there) > _SHOWN_MAX else "")
        raise ConfigError(f"the store {self.root} has no topic {topic!r}; there are: {shown or 'none'}")

    def _configured(self) -> Iterable[str]:
        """The topics that the broker knows (TopicConfigManager.java); a store may be without its document."""
        for path, text in files.candidates(self.root / "config" / "topics.json"):
            with suppress(ProtocolError):
                return json.decode(text, _Topics, str(path)).topic_config_table
        return ()

    def queue(self, topic: str, queue_id: int) -> "QueueReader":
        return QueueReader(self._layout, topic, queue_id, self._limit, self._before)


class _Topics(msgspec.Struct, rename="camel"):
    topic_config_table: dict[str, msgspec.Raw] = {}


class QueueReader:
    """One queue. Everything raises ConfigError for files that can't be read."""

    def __init__(self, store: layout.Layout, topic: str, queue_id: int, limit: int, before: int | None) -> None:
        self._store = store
        self._limit = limit
        self._before = before
        is_batch = (store.batch_queues / topic).is_dir()
        self._core = _core.QueueReader(
            list(map(str, store.log_directories)),
            str(store.batch_queues if is_batch else store.queues),
            topic,
            queue_id,
            log_file_size=store.log_file_size,
            queue_file_size=store.batch_queue_file_size if is_batch else store.queue_file_size,
            is_batch=is_batch,
        )

    def bounds(self) -> tuple[int, int]:
        """The first offset that is there, and the one behind the last that is surely on disk."""
        with self._telling():
            log_files = layout.log_files(self._store.log_directories)
            first, end = self._core.bounds(log_files[0][0] if log_files else _EVERYTHING, self._limit)
            if self._before is not None:
                end = self._core.offset_by_time(self._before, first, end)
        return first, end

    def behind(self, gone: int) -> int:
        """The first offset in a log file that is there, behind the missing one of position `gone`; the end if none is."""
        with self._telling():
            bases = [base for base, _ in layout.log_files(self._store.log_directories) if base > gone]
            return self._core.bounds(min(bases, default=_EVERYTHING), self._limit)[0]

    def offset_by_time(self, timestamp: int) -> int:
        """The first message stored then (milliseconds since the epoch) or later; the end if there is none."""
        first, end = self.bounds()
        with self._telling():
            return self._core.offset_by_time(timestamp, first, end)

    def hold(self, start: int, end: int) -> None:
        """Have the log files of these messages open, so that they can be read even if they are deleted meanwhile."""
        with self._telling():
            self._core.hold(start, end)

    def read(
        self,
        offset: int,
        end: int,
        *,
        count_max: int,
        bytes_max: int,
        tag_codes: Sequence[int] | None = None,
        filter: Filter | None = None,
    ) -> Read:
        """Messages from `offset` on, as far as `count_max` entries of the queue and about `bytes_max` of records."""
        with self._telling():
            return Read(
                *self._core.read(offset, end, count_max=count_max, bytes_max=bytes_max, tag_codes=tag_codes, filter=filter)
            )

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (_core.StoreError, OSError) as error:
            raise ConfigError(f"the store {self._store.root} can't be read: {error}") from None
