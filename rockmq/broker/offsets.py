"""How far each group has consumed each queue (ConsumerOffsetManager.java), in `config/consumerOffset.json`.

The document maps `topic@group` to {queue id: offset}; Apache writes the queue ids without quotes, which is read here too.
"""

from pathlib import Path

import msgspec
from msgspec import Struct, field

from rockmq.broker.documents import Document, load
from rockmq.protocol.bodies.common import DataVersion
from rockmq.protocol.header import Int, Long

SEPARATOR = "@"


class _Document(Struct, rename="camel"):
    offset_table: dict[str, dict[Int, Long]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class ConsumerOffsets:
    """Committed offsets: the next message a group wants of a queue."""

    def __init__(self, directory: Path) -> None:
        """Raises ConfigError when the document can't be read."""
        self._file = Document(directory / "consumerOffset.json")
        self._document = load(self._file.path, _Document) or _Document()
        self._table = self._document.offset_table
        self._changed = False

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset, None when there is none; a stored negative means none (protocol spec, pitfall 15)."""
        offset = self._table.get(f"{topic}{SEPARATOR}{group}", {}).get(queue_id)
        return offset if offset is not None and offset >= 0 else None

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an offset as given; going backwards is allowed, it is how offsets are reset."""
        self._table.setdefault(f"{topic}{SEPARATOR}{group}", {})[queue_id] = offset
        self._changed = True

    def by_group(self, group: str) -> dict[str, dict[int, int]]:
        """{topic: {queue id: offset}} of a group."""
        ending = SEPARATOR + group
        return {key.removesuffix(ending): queues for key, queues in self._table.items() if key.endswith(ending)}

    def delete_topic(self, topic: str) -> None:
        beginning = topic + SEPARATOR
        for key in [key for key in self._table if key.startswith(beginning)]:
            del self._table[key]
            self._changed = True

    async def save(self) -> None:
        """Write the document if something changed since the last time; what can't be written is tried the next time."""
        if not self._changed:
            return
        self._changed = False
        document = msgspec.json.format(msgspec.json.encode(self._document), indent=1).decode()
        saved = False
        try:
            saved = await self._file.save(document) is None
        finally:
            self._changed |= not saved
