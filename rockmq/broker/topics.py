"""The topics of this broker (TopicConfigManager.java; store spec, 1.7; protocol spec, 4.1 and 7.7).

Kept in `config/topics.json` in Apache's shape. Every change goes to disk before whoever asked for it is answered, to the
name servers, and to the core, which appends to ordinary topics by itself. A small table is saved whole for each change; of a
larger one the change goes to a journal, and the document follows (docs/adr/0008).

A new topic takes messages when it is on disk: after a crash a message must not be there and its topic unknown. Taking topics
back from their queues at a start would be no help: queues don't tell the settings of their topic, and one whose deletion was
cut short would come back.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct, field

from rockmq.base.clock import Clock
from rockmq.base.errors import StoreUnavailable
from rockmq.broker.documents import Saver, load, parts, save, snapshot
from rockmq.broker.journal import Journal
from rockmq.config.broker import BrokerOptions
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import DataVersion, TopicConfig
from rockmq.protocol.flags import Permission
from rockmq.store.journal import TopicChange
from rockmq.store.message_store import MessageStore

TOPICS_MAX = 500_000
"""Topics that there may be, but for those of the system; more aren't created, whoever asks. Each costs some 1,000 bytes."""
QUEUES_MAX = 65_536
"""Queues a topic may have: each costs memory in every route that names it."""

UNIT_SUBSCRIPTION = 2
"""The bit of topicSysFlag that says that units subscribe to it (TopicSysFlag.java)."""
WHOLE_MAX = 1000
"""Topics up to which a change saves, and tells name servers, the whole table: some milliseconds."""


class _Document(Struct, rename="camel"):
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class TopicTable:
    """All topics by name. `on_change` is called with the name of each topic that was created, changed or deleted."""

    def __init__(self, directory: Path, options: BrokerOptions, clock: Clock) -> None:
        """Raises ConfigError when the document can't be read."""
        self._options = options
        self._clock = clock
        self._path = directory / "topics.json"
        document = load(self._path, _Document) or _Document()
        self._topics = document.topic_config_table
        self.version = document.data_version
        self._journal = Journal(self._path, self.version)
        self._saver = Saver(self._path, self._save)
        self._unsaved: dict[str, asyncio.Future[None]] = {}
        """Of each topic whose last change isn't on disk, when that will be, or that it failed."""
        self._new: set[str] = set()
        """Topics that were never on disk."""
        self._replay()
        self._store: MessageStore | None = None
        self.closed: set[str] = set()
        """Topics that take no messages for now."""
        self.on_change: list[Callable[[str], None]] = []

    def _replay(self) -> None:
        """Bring the table to where the journal ends."""
        for entry in self._journal.read():
            change = TopicChange.read(self._path, entry)
            if change.data_version.counter <= self.version.counter:
                continue
            self.version = change.data_version
            if change.config is not None:
                self._topics[change.topic] = change.config
            else:
                self._topics.pop(change.topic, None)

    def pieces(self) -> Iterator[bytes]:
        """The document as it is now, see `parts`."""
        return parts({"dataVersion": self.version}, topicConfigTable=snapshot(self._topics))

    async def _save(self) -> None:
        begun = self._journal.begin(self.version)
        pieces = self.pieces()
        await begun
        await save(self._path, pieces)
        await self._journal.finish()

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
            topics.reply_topic(identity.broker_cluster_name): (1, both),
            topics.TRANSACTION_HALF: (1, both),
            topics.TRANSACTION_OP: (1, both),
        }
        if self._options.timers.timer_wheel_enable:
            system[topics.TIMER] = (1, both)
        if wanted.auto_create_topic_enable:
            system[topics.TEMPLATE] = (wanted.default_topic_queue_nums, both | Permission.INHERIT)
        if wanted.trace_topic_enable:
            system[wanted.msg_trace_topic_name] = (1, both)
        for name, (queues, perm) in system.items():
            if name not in self._topics:
                self._topics[name] = TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm)
        # A restart must look like a change: name servers may have forgotten us or hold another broker's table.
        self.version = self.version.advanced(self._clock.now_ms())
        self._saver.later()

    def attach(self, store: MessageStore) -> None:
        """Tell the store, now and after each change, which topics take ordinary sends."""
        self._store = store
        for config in self._topics.values():
            self._tell_store(config)

    async def permission_changed(self) -> None:
        """brokerPermission is another one: tell the store of all topics, and make the table a new version."""
        self.version = self.version.advanced(self._clock.now_ms())
        self._saver.later()
        for number, config in enumerate(list(self._topics.values()), 1):
            if self._topics.get(config.topic_name) is config:
                self._tell_store(config)
            if number % WHOLE_MAX == 0:
                await asyncio.sleep(0)

    def _tell_store(self, config: TopicConfig) -> None:
        if self._store is None:
            return
        if config.has_batch_queues:
            self._store.set_batch(config.topic_name)
        elif self.is_ordinary(config) and not self.is_new(config.topic_name):
            multi_tag = config.topic_filter_type == "MULTI_TAG"
            self._store.set_ordinary(config.topic_name, config.write_queue_nums, multi_tag)
        else:
            self._store.clear_ordinary(config.topic_name)

    def is_ordinary(self, config: TopicConfig) -> bool:
        """Whether a plain message to this topic needs no decision."""
        name = config.topic_name
        if name in self.closed:
            return False
        broker_writable = self._options.topics.broker_permission & Permission.WRITE
        return bool(
            config.perm & Permission.WRITE
            and broker_writable
            and name not in topics.SEND_FORBIDDEN
            and not topics.is_retry_or_dlq(name)
            and not topics.is_system(name)
            and not config.has_batch_queues
            and topics.topic_fault(name) is None
        )

    def set_closed(self, name: str, closed: bool) -> None:
        """Have a topic take no messages, or take them again."""
        if closed:
            self.closed.add(name)
        else:
            self.closed.discard(name)
        config = self._topics.get(name)
        if config is not None and not config.has_batch_queues:
            self._tell_store(config)

    def is_new(self, name: str) -> bool:
        """Whether a topic isn't on disk yet; `put` as it is says when it will be."""
        return name in self._new

    def is_saved(self, name: str) -> bool:
        return self.get(name) is not None and not self.is_new(name)

    def get(self, name: str) -> TopicConfig | None:
        if self.is_light(name):
            fault = topics.light_fault(name)
            return TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1) if fault is None else None
        return self._topics.get(name)

    def is_light(self, name: str) -> bool:
        """Light queues are topics with no entry in the table (LmqTopicConfigManager.java)."""
        return self._options.store.light_queues and topics.is_light(name)

    def all(self) -> dict[str, TopicConfig]:
        return self._topics

    def put(self, config: TopicConfig) -> "asyncio.Future[None] | None":
        """Create or change a topic: an awaitable that is done when it is on disk, None when it is as it was. A light queue
        is what it is.

        Raises ConfigError when it is to have batch queues and has simple ones, StoreUnavailable when there are too many.
        """
        if self.is_light(config.topic_name):
            return None
        held = self._topics.get(config.topic_name)
        if held == config:
            return self._as_it_was(config.topic_name, config)
        if held is None and len(self._topics) >= TOPICS_MAX and not topics.is_system(config.topic_name):
            raise StoreUnavailable(f"the topic {config.topic_name} isn't created: there are {TOPICS_MAX} already, the bound")
        if config.has_batch_queues and self._store is not None:
            self._store.set_batch(config.topic_name)  # may refuse it
        if held is None:
            self._new.add(config.topic_name)
        self._topics[config.topic_name] = config
        self._tell_store(config)
        return self._changed(config.topic_name, config, held)

    def delete(self, name: str) -> "asyncio.Future[None] | None":
        held = self._topics.pop(name, None)
        if held is None:
            return self._as_it_was(name, None)
        self._new.discard(name)
        if self._store is not None:
            self._store.clear_ordinary(name)
        return self._changed(name, None, held)

    def _as_it_was(self, name: str, config: TopicConfig | None) -> "asyncio.Future[None] | None":
        """Of a change that was made before: when that is on disk. One that couldn't be written is written again."""
        saved = self._unsaved.get(name)
        if saved is None:
            return None
        return self._changed(name, config) if saved.done() else asyncio.shield(saved)

    def _changed(self, name: str, config: TopicConfig | None, held: TopicConfig | None = None) -> "asyncio.Future[None]":
        with_batches = any(each is not None and each.has_batch_queues for each in (config, held))
        saved = self._save_change(name, config, whole=with_batches)
        self._unsaved[name] = saved
        saved.add_done_callback(partial(self._saved, name))
        return saved

    def _saved(self, name: str, saved: "asyncio.Future[None]") -> None:
        if self._unsaved.get(name) is saved and not saved.cancelled() and saved.exception() is None:
            del self._unsaved[name]
            if name in self._new:
                self._new.remove(name)
                self._tell_store(self._topics[name])

    def _save_change(self, name: str, config: TopicConfig | None, *, whole: bool) -> "asyncio.Future[None]":
        """`whole`: the document has to say it, since Apache's broker reads no journal, and doesn't start when it finds batch
        queues of a topic that it takes for one with simple queues, or the other way round."""
        self.version = self.version.advanced(self._clock.now_ms())
        for callback in self.on_change:
            callback(name)
        if whole or len(self._topics) <= WHOLE_MAX:
            return self._saver.now()
        self._saver.later()
        return self._journal.append(msgspec.json.encode(TopicChange(name, self.version, config)))

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

    def retry(self, group: str, queues: int, *, is_unit: bool = False) -> TopicConfig:
        """The group's retry topic, or what it will be (TopicConfigManager.createTopicInSendMessageBackMethod)."""
        name = topics.retry_topic(group)
        return self.get(name) or TopicConfig(
            topic_name=name,
            read_queue_nums=queues,
            write_queue_nums=queues,
            topic_sys_flag=UNIT_SUBSCRIPTION if is_unit else 0,
        )

    def dead_letters(self, group: str) -> TopicConfig:
        """The group's dead-letter topic, or what it will be."""
        name = topics.dead_letter_topic(group)
        return self.get(name) or TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1)

    def saved(self, config: TopicConfig) -> "asyncio.Future[None] | None":
        """Have a topic be there: None when it is on disk, else an awaitable that is done when it is."""
        return None if self.is_saved(config.topic_name) else self.put(self.get(config.topic_name) or config)

    def ensure_retry(self, group: str, queues: int) -> None:
        """Create `%RETRY%group` if it is missing; a consumer looks for its route right after its first heartbeat."""
        name = topics.retry_topic(group)
        if name not in self._topics and topics.topic_fault(name) is None:
            self.put(TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6))

    async def close(self) -> None:
        """Leave a whole document and no journal."""
        await self._saver.close()
        await self._journal.close()
