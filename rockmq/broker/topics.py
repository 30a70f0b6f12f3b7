"""The topics of this broker (TopicConfigManager.java; store spec, 1.7; protocol spec, 4.1 and 7.7).

Kept in `config/topics.json` in Apache's shape. Every change goes to disk before whoever asked for it is answered, to the
name servers, and to the core, which appends to ordinary topics by itself.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct, field

from rockmq.base.clock import Clock
from rockmq.broker.documents import Saver, load
from rockmq.config.broker import BrokerOptions
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import DataVersion, TopicConfig
from rockmq.protocol.flags import Permission
from rockmq.store.message_store import MessageStore

QUEUES_MAX = 65_536
"""Queues a topic may have: each costs memory in every route that names it."""


class _Document(Struct, rename="camel"):
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class TopicTable:
    """All topics by name. `on_change` is called after each change of the table."""

    def __init__(self, directory: Path, options: BrokerOptions, clock: Clock) -> None:
        """Raises ConfigError when the document can't be read."""
        self._options = options
        self._clock = clock
        path = directory / "topics.json"
        document = load(path, _Document) or _Document()
        self._topics = document.topic_config_table
        self.version = document.data_version
        self._saver = Saver(path, self)
        self._store: MessageStore | None = None
        self.on_change: list[Callable[[], None]] = []

    def encode(self) -> str:
        document = _Document(self._topics, self.version)
        return msgspec.json.format(msgspec.json.encode(document, order="sorted"), indent=1).decode()

    def create_system_topics(self) -> None:
        """Create what a broker always has, as far as it is missing, and announce a new version of the table."""
        identity, wanted = self._options.identity, self._options.topics
        both = Permission.READ | Permission.WRITE
        system = {
            topics.SELF_TEST: (1, both),
            topics.BENCHMARK: (1024, both),
            identity.broker_cluster_name: (
                16,
                Permission.INHERIT | (both if wanted.cluster_topic_enable else 0),
            ),
            identity.broker_name: (1, Permission.INHERIT | (both if wanted.broker_topic_enable else 0)),
            topics.OFFSET_MOVED: (1, both),
            topics.SCHEDULE: (18, both),
            f"{identity.broker_cluster_name}_REPLY_TOPIC": (1, both),
            topics.TRANSACTION_HALF: (1, both),
            topics.TRANSACTION_OP: (1, both),
        }
        if wanted.auto_create_topic_enable:
            system[topics.TEMPLATE] = (wanted.default_topic_queue_nums, both | Permission.INHERIT)
        if wanted.trace_topic_enable:
            system[wanted.msg_trace_topic_name] = (1, both)
        for name, (queues, perm) in system.items():
            if name not in self._topics:
                self._topics[name] = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        # A restart must look like a change: name servers may have forgotten us or hold another broker's table.
        self.version = self.version.advanced(self._clock.now_ms())
        self._saver.changed()

    def attach(self, store: MessageStore) -> None:
        """Tell the store, now and after each change, which topics take ordinary sends."""
        self._store = store
        for config in self._topics.values():
            self._tell_store(config)

    def _tell_store(self, config: TopicConfig) -> None:
        if self._store is None:
            return
        if self.is_ordinary(config):
            multi_tag = config.topic_filter_type == "MULTI_TAG"
            self._store.set_ordinary(config.topic_name, config.write_queue_nums, multi_tag)
        else:
            self._store.clear_ordinary(config.topic_name)

    def is_ordinary(self, config: TopicConfig) -> bool:
        """Whether a plain message to this topic needs no decision."""
        name = config.topic_name
        broker_writable = self._options.topics.broker_permission & Permission.WRITE
        return bool(
            config.perm & Permission.WRITE
            and broker_writable
            and name not in topics.SEND_FORBIDDEN
            and not topics.is_retry_or_dlq(name)
            and not topics.is_system(name)
            and config.attributes.get("queue.type", "SimpleCQ") == "SimpleCQ"
            and topics.topic_fault(name) is None
        )

    def get(self, name: str) -> TopicConfig | None:
        return self._topics.get(name)

    def all(self) -> dict[str, TopicConfig]:
        return self._topics

    def put(self, config: TopicConfig) -> "asyncio.Future[None] | None":
        """Create or change a topic: an awaitable that is done when it is on disk, None when it is as it was."""
        if self._topics.get(config.topic_name) == config:
            return None
        self._topics[config.topic_name] = config
        return self._changed(config)

    def delete(self, name: str) -> "asyncio.Future[None] | None":
        if self._topics.pop(name, None) is None:
            return None
        if self._store is not None:
            self._store.clear_ordinary(name)
        return self._changed(None)

    def _changed(self, config: TopicConfig | None) -> "asyncio.Future[None]":
        self.version = self.version.advanced(self._clock.now_ms())
        if config is not None:
            self._tell_store(config)
        saved = self._saver.changed()
        for callback in self.on_change:
            callback()
        return saved

    def inherit(self, name: str, template_name: str, queues: int) -> TopicConfig | None:
        """What a missing topic would be by its template, None when the template forbids or doesn't exist
        (TopicConfigManager.createTopicInSendMessageMethod)."""
        template = self._topics.get(template_name)
        if template is None or not template.perm & Permission.INHERIT:
            return None
        if template_name == topics.TEMPLATE and not self._options.topics.auto_create_topic_enable:
            return None
        count = max(1, min(queues, template.write_queue_nums))
        return TopicConfig(
            topic_name=name,
            read_queue_nums=count,
            write_queue_nums=count,
            perm=template.perm & ~Permission.INHERIT,
            topic_filter_type=template.topic_filter_type,
        )

    def ensure_retry(self, group: str, queues: int) -> None:
        """Create `%RETRY%group` if it is missing; a consumer looks for its route right after its first heartbeat."""
        name = topics.retry_topic(group)
        if name not in self._topics and topics.topic_fault(name) is None:
            self.put(TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6))

    async def close(self) -> None:
        await self._saver.close()
