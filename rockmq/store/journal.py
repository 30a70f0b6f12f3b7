"""The journal of a document: what has changed since it was saved (docs/adr/0008). `broker/journal.py` writes it.

Beside the document `topics.json` lie `topics.json.journal.1`, `topics.json.journal.2` and so on, lines of

    CRC-32 of what follows the space, in hex; a space; JSON; a line feed

The first line of a file is a list of versions: of the document that was on disk when the file was begun, and of those that
were being saved. Each line behind it is a change. What is to be done again begins with the first file that names the
document's version; if none does, the document has another history (a backup, or another broker that wrote it), and nothing
is. A line that isn't whole was never answered, and is passed over.
"""

import logging
import re
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import TypeVar

import msgspec

from rockmq.base.errors import ConfigError, ProtocolError
from rockmq.protocol import json
from rockmq.protocol.bodies.common import DataVersion, TopicConfig

T = TypeVar("T")

log = logging.getLogger(__name__)

_NUMBER = re.compile("[1-9][0-9]*")
"""How a file of ours ends: as `int` would spell it, or another file would be looked for."""


class TopicChange(msgspec.Struct, rename="camel"):
    """What is in a line of the journal of topics; without `config` the topic was deleted. One whose version isn't above the
    document's counter is in that already: it may have been saved since without the journal."""

    topic: str
    data_version: DataVersion
    config: TopicConfig | None = None

    @classmethod
    def read(cls, document: Path, entry: bytes) -> "TopicChange":
        """Raises ConfigError for a line that is whole and makes no sense: it was answered, and what it says isn't known."""
        return _read(document, entry, cls)


class JournalFiles:
    """The files beside `document`. Methods raise OSError; `changes` raises ConfigError, too."""

    def __init__(self, document: Path) -> None:
        self.document = document
        self._prefix = document.name + ".journal."

    def numbers(self) -> list[int]:
        directory = self.document.parent
        if not directory.exists():
            return []
        endings = (path.name.removeprefix(self._prefix) for path in directory.glob(self._prefix + "*"))
        return sorted(int(ending) for ending in endings if _NUMBER.fullmatch(ending))

    def path(self, number: int) -> Path:
        return self.document.with_name(f"{self._prefix}{number}")

    def changes(self, version: DataVersion) -> Generator[bytes, None, set[Path]]:
        """The changes that follow a document of `version`, in order; returned are the files of others, if none follows."""
        follows = False
        passed_over = set()
        for number in self.numbers():
            for entry in self._whole_lines(number):
                if entry.startswith(b"["):
                    follows = follows or version in _read(self.document, entry, list[DataVersion])
                elif follows:
                    yield entry
                else:
                    passed_over.add(self.path(number))
        return set() if follows else passed_over

    def _whole_lines(self, number: int) -> list[bytes]:
        whole, torn = [], 0
        for text in self.path(number).read_bytes().split(b"\n"):
            check, _, entry = text.partition(b" ")
            if check == _check(entry):
                whole.append(entry)
            else:
                torn += bool(text)
        if torn:
            log.warning("%s: %d lines aren't whole and are passed over", self.path(number), torn)
        return whole


def _read(document: Path, entry: bytes, kind: type[T]) -> T:
    try:
        return json.decode(entry, kind, f"the journal of {document}")
    except ProtocolError as error:
        raise ConfigError(f"{error}, in {entry[:100]!r}") from None


def line(entry: bytes) -> bytes:
    """A line of a journal. `entry` is JSON without a line feed."""
    return b"%b %b\n" % (_check(entry), entry)


def _check(entry: bytes) -> bytes:
    return b"%08x" % zlib.crc32(entry)
