"""Which topics have batch queues when their queues are lost (ConsumeQueueStore.findOrCreateConsumeQueue).

Recovery and repair know such a topic by its directory below `batchconsumequeue`. Where the directory is gone, the topic's
attribute in `config/topics.json` tells, as it does to Apache's broker for every message that it dispatches, with what a
journal says behind it; and where all of them are gone, so does an inner batch of a topic that was made after the last that
they tell. One that is older, of a topic they don't name, is of one that was deleted. A document that names none and has no
time tells nothing: whoever wrote it may not know of batch queues.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from rockmq.base import files
from rockmq.base.errors import ConfigError, ProtocolError
from rockmq.protocol import json, topics
from rockmq.protocol.bodies.common import DataVersion, TopicConfig
from rockmq.store.journal import JournalFiles, TopicChange


class BatchTopics(NamedTuple):
    """Topics that are said to have batch queues, and the time (ms) up to which that is said: None where nothing does."""

    names: list[str]
    at: int | None


class _Dated(msgspec.Struct, rename="camel"):
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)


class _Document(_Dated, rename="camel"):
    topic_config_table: dict[str, TopicConfig] = {}


def documented(root: Path) -> BatchTopics:
    """What `config/topics.json` and its journal tell; nothing where they can't be read, which others tell."""
    path = root / "config" / "topics.json"
    document, at = _document(path)
    version = document.data_version
    names = {name for name, topic in document.topic_config_table.items() if topic.has_batch_queues}
    try:
        for entry in JournalFiles(path).changes(version):
            change = TopicChange.read(path, entry)
            if change.data_version.counter <= version.counter:
                continue
            version = change.data_version
            at = version.timestamp
            if change.config is not None and change.config.has_batch_queues:
                names.add(change.topic)
            else:
                names.discard(change.topic)
    except ConfigError:
        return BatchTopics([], None)
    return BatchTopics(sorted(name for name in names if topics.topic_fault(name) is None), at)


def _document(path: Path) -> tuple[_Document, int | None]:
    """The document, without topics if none of them has batch queues, and its time."""
    for each, text in files.candidates(path):
        try:
            if b"BatchCQ" not in text:
                version = json.decode(text, _Dated, str(each)).data_version
                return _Document(data_version=version), version.timestamp or None
            document = json.decode(text, _Document, str(each))
        except ProtocolError:
            continue
        # Documents of old brokers, and those that people write, have no time.
        return document, document.data_version.timestamp or each.stat().st_mtime_ns // 1_000_000
    return _Document(), None


def to_recover(root: Path) -> BatchTopics:
    """Those that a start may go by, which aren't those that have simple queues: which is right isn't known then."""
    named = documented(root)
    return named._replace(names=[name for name in named.names if not any((root / "consumequeue" / name).glob("*/*"))])
