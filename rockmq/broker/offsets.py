"""How far each group has consumed each queue (ConsumerOffsetManager.java), in `config/consumerOffset.json`.

The document maps `topic@group` to {queue id: offset}; Apache writes the queue ids without quotes, which is read here too.

With light queues all of it is in `lmqConsumerOffset.json` (LmqConsumerOffsetManager.java), and what groups of light queues
have consumed in a table of its own, which maps `topic@group` to the offset in queue 0. Apache reads the one of the two that
enableLmq says, however old it is. Here the newer one by its `dataVersion` is gone on with, which has the time of each save;
Apache's has that of its beginning, or of some commit since.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from rockmq.base.clock import Clock
from rockmq.base.errors import ConfigError
from rockmq.broker.documents import Saver, load, parts, save, snapshot
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import DataVersion
from rockmq.protocol.header import Int, Long

log = logging.getLogger(__name__)

LONG_MAX = 2**63 - 1
SEPARATOR = "@"
LIGHT_SEPARATOR = SEPARATOR + topics.LIGHT_PREFIX
"""Before the group of a row of light queues."""


class _Document(Struct, rename="camel"):
    offset_table: dict[str, dict[Int, Long]] = field(default_factory=dict)
    lmq_offset_table: dict[str, Long] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class ConsumerOffsets:
    """Committed offsets: the next message a group wants of a queue."""

    def __init__(self, directory: Path, clock: Clock, *, light: bool = False) -> None:
        """`light` is whether there are light queues. Raises ConfigError when the document can't be read."""
        self._clock = clock
        self._light = light
        names = ("consumerOffset.json", "lmqConsumerOffset.json")
        self._path, other = directory / names[light], directory / names[not light]
        document, self._changed = _newer(self._path, other)
        self._version = document.data_version
        self._table: dict[str, dict[str, dict[int, int]]] = {}
        """By topic and group."""
        for key, queues in document.offset_table.items():
            topic, group = _split(key)
            self._table.setdefault(topic, {})[group] = queues
        for key, offset in document.lmq_offset_table.items():
            topic, group = _split(key)
            self._table.setdefault(topic, {})[group] = {0: offset}
        self._resets: dict[tuple[str, str, int], int] = {}
        """By group, topic and queue: where a consumer is to go on, which hasn't been told yet."""
        self._saver = Saver(self._path, self._save)

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset, None when there is none; a stored negative means none (protocol spec, pitfall 15)."""
        offset = self._table.get(topic, {}).get(group, {}).get(queue_id)
        return offset if offset is not None and offset >= 0 else None

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset as given; going backwards is allowed, it is how offsets are reset."""
        queues = self._table.setdefault(topic, {}).setdefault(group, {})
        # Consumers tell where they are again and again; what they told before is no reason to write the document.
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self._changed = True

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset, and have who consumes the queue told of it (ConsumerOffsetManager.assignResetOffset)."""
        self.commit(group, topic, queue_id, offset)
        self._resets[group, topic, queue_id] = offset

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset waits to be told; what the consumer commits until then is from before."""
        return (group, topic, queue_id) in self._resets

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset of a reset that waits to be told; it doesn't any more."""
        return self._resets.pop((group, topic, queue_id), None) if self._resets else None

    def clone(self, source: str, group: str, topic: str) -> None:
        """Set a group's offsets of a topic to another group's, if that has some."""
        for queue_id, offset in list(self._table.get(topic, {}).get(source, {}).items()):
            self.commit(group, topic, queue_id, offset)

    def by_group(self, group: str) -> dict[str, dict[int, int]]:
        """{topic: {queue id: offset}} of a group."""
        return {topic: groups[group] for topic, groups in self._table.items() if group in groups}

    def groups(self, topic: str) -> list[str]:
        """The groups that have offsets of a topic."""
        return list(self._table.get(topic, ()))

    def by_topic(self, topic: str) -> Mapping[str, Mapping[int, int]]:
        """{group: {queue id: offset}} of a topic."""
        return self._table.get(topic, {})

    def topics(self) -> list[str]:
        """The topics that groups have offsets of."""
        return list(self._table)

    def delete_group(self, group: str) -> None:
        for topic in [topic for topic, groups in self._table.items() if groups.pop(group, None) is not None]:
            self._changed = True
            if not self._table[topic]:
                del self._table[topic]
        for key in [key for key in self._resets if key[0] == group]:
            del self._resets[key]

    def delete_topic(self, topic: str) -> None:
        self._changed |= self._table.pop(topic, None) is not None
        for key in [key for key in self._resets if key[1] == topic]:
            del self._resets[key]

    def flush(self) -> None:
        """Have the document written if something changed since the last time."""
        if self._changed:
            self._changed = False
            self._saver.later()

    def pieces(self) -> Iterator[bytes]:
        """The document as it is now, with all in one table, see `parts`."""
        return parts({"dataVersion": self._version}, offsetTable=_rows(snapshot(self._table)))

    async def _save(self) -> None:
        self._version = DataVersion(
            state_version=self._version.state_version,
            timestamp=max(self._clock.now_ms(), self._version.timestamp),
            counter=min(self._version.counter + 1, LONG_MAX),
        )
        members: dict[str, object] = {"dataVersion": self._version}
        if not self._light:
            await save(self._path, parts(members, offsetTable=_rows(snapshot(self._table))))
            return
        # This one first: what changes meanwhile may then be in both, but not in none.
        light = ((key, queues[0]) for key, queues in _rows(snapshot(self._table), light=True))
        plain = _rows(snapshot(self._table), light=False)
        await save(self._path, parts(members, lmqOffsetTable=light, offsetTable=plain))

    async def close(self) -> None:
        """Write what isn't written yet."""
        self.flush()
        await self._saver.close()


def _newer(own: Path, other: Path) -> tuple[_Document, bool]:
    """The document to go on with, and whether it is the other one, which has to be saved as ours. Raises ConfigError."""
    document = load(own, _Document)
    try:
        elsewhere = load(other, _Document)
    except ConfigError as error:
        log.warning("%s; nothing of it is needed as long as enableLmq stays as it is", error)
        elsewhere = None
    if elsewhere is None:
        return document or _Document(), False
    if document is not None and _newness(document) >= _newness(elsewhere):
        return document, False
    log.warning("enableLmq was changed: consumer offsets are those of %s, the newest there are", other)
    return elsewhere, True


def _newness(document: _Document) -> tuple[int, int]:
    return document.data_version.timestamp, document.data_version.counter


def _split(key: str) -> tuple[str, str]:
    """Topic and group of a row. Names of light queues may hold a separator."""
    topic, separator, group = key.rpartition(LIGHT_SEPARATOR)
    if separator:
        return topic, topics.LIGHT_PREFIX + group
    topic, _, group = key.rpartition(SEPARATOR)
    return topic, group


def _rows(
    table: Iterable[tuple[str, dict[str, dict[int, int]]]], *, light: bool | None = None
) -> Iterator[tuple[str, dict[int, int]]]:
    """The document's rows, made one by one in the thread that saves; with `light` only those of light queues, or the others.
    A topic's groups are taken in one step, as commits go on; what they change meanwhile is saved again the next time."""
    for topic, groups in table:
        for group, queues in list(groups.items()):
            # Apache keeps one offset for all queues there.
            if light is None or light == (topics.is_light(group) and queues.keys() == {0}):
                yield f"{topic}{SEPARATOR}{group}", queues
