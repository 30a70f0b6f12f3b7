"""Consumer groups and their settings (SubscriptionGroupManager.java; store spec, 1.7), in
`config/subscriptionGroup.json`."""

import asyncio
import logging
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from msgspec import Struct, field

from rockmq.base.clock import Clock
from rockmq.base.errors import StoreUnavailable
from rockmq.broker.documents import Saver, load, parts, save, snapshot
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import DataVersion, GroupConfig
from rockmq.protocol.header import Int

log = logging.getLogger(__name__)

CREATED_MAX = 100_000
"""Groups up to which missing ones are created by themselves; each costs some 1,000 bytes."""
FORBIDDEN_MAX = 100_000
"""Topics of groups that these may not read."""
FORBIDDEN_READ = 1 << 2
"""The bit for reading (PermName.INDEX_PERM_READ)."""


class _Document(Struct, rename="camel"):
    subscription_group_table: dict[str, GroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, Int]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class GroupTable:
    """All groups by name; `find` creates a missing one where that is allowed."""

    def __init__(self, directory: Path, *, auto_create: bool, light: bool = False, clock: Clock) -> None:
        """With `light`, groups of light queues exist by their names. Raises ConfigError when the document can't be read."""
        self.auto_create = auto_create
        """Whether `find` creates."""
        self._light = light
        self._clock = clock
        self._path = directory / "subscriptionGroup.json"
        self._document = load(self._path, _Document) or _Document()
        self._saver = Saver(self._path, self._save)
        self._is_full = False
        for name in topics.SYSTEM_GROUPS:
            self.all().setdefault(name, GroupConfig(group_name=name))

    def pieces(self) -> Iterator[bytes]:
        """The document as it is now, see `parts`."""
        members = {"dataVersion": self.version, "forbiddenTable": self._document.forbidden_table}
        return parts(members, subscriptionGroupTable=snapshot(self.all()))

    async def _save(self) -> None:
        await save(self._path, self.pieces())

    def all(self) -> dict[str, GroupConfig]:
        return self._document.subscription_group_table

    @property
    def version(self) -> DataVersion:
        return self._document.data_version

    def exists(self, name: str) -> bool:
        """Whether a group is there, which `find` may change."""
        return name in self.all() or (self._light and topics.is_light(name))

    def find(self, name: str) -> GroupConfig | None:
        """The group's settings; None when it doesn't exist and may not be created."""
        if self._light and topics.is_light(name):  # LmqSubscriptionGroupManager.java
            return GroupConfig(group_name=name) if topics.light_fault(name) is None else None
        found = self.all().get(name)
        if found is None and self.auto_create and topics.group_fault(name) is None:
            if len(self.all()) >= CREATED_MAX:
                if not self._is_full:
                    log.error("there are %d groups: no more are created by themselves", CREATED_MAX, extra={"group": name})
                self._is_full = True
                return None
            found = self.all()[name] = GroupConfig(group_name=name)
            self._advance()
            # Nobody waits for this: a group that is lost in a crash is created again by its next heartbeat.
            self._saver.later()
        return found

    def put(self, config: GroupConfig) -> "asyncio.Future[None]":
        """Create or change a group; done when that is on disk, else StoreUnavailable."""
        self.all()[config.group_name] = config
        self._advance()
        return self._saver.now()

    def put_many(self, configs: Iterable[GroupConfig]) -> "asyncio.Future[None]":
        """As `put`, of several."""
        self.all().update((each.group_name, each) for each in configs)
        self._advance()
        return self._saver.now()

    def delete(self, name: str) -> "asyncio.Future[None] | None":
        """Forget a group, and what it may not read; done when that is on disk, None when there is no such group."""
        forbidden = self._document.forbidden_table.pop(name, None)
        if self.all().pop(name, None) is None and forbidden is None:
            return None
        self._is_full = False
        self._advance()
        return self._saver.now()

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Whether a group may not read a topic (SubscriptionGroupManager.getForbidden)."""
        table = self._document.forbidden_table
        return bool(table) and bool(table.get(group, {}).get(topic, 0) & FORBIDDEN_READ)

    def forbid(self, group: str, topic: str, forbidden: bool) -> "asyncio.Future[None]":
        """Let a group not read a topic, or let it read that again; done when that is on disk. Other bits stay as they are,
        and what is forbidden of other topics. Raises StoreUnavailable when there are too many."""
        table = self._document.forbidden_table
        of_group = table.get(group, {})
        bits = of_group.get(topic, 0)
        bits = bits | FORBIDDEN_READ if forbidden else bits & ~FORBIDDEN_READ
        if bits and topic not in of_group and sum(map(len, table.values())) >= FORBIDDEN_MAX:
            raise StoreUnavailable(f"there are {FORBIDDEN_MAX} topics that groups may not read already, the bound")
        rest = {name: each for name, each in of_group.items() if name != topic} | ({topic: bits} if bits else {})
        if rest:
            table[group] = rest
        else:
            table.pop(group, None)
        self._advance()
        return self._saver.now()

    def forbidden(self, names: Container[str]) -> dict[str, dict[str, int]]:
        """What these groups may not read, as bits by topic."""
        return {group: each for group, each in self._document.forbidden_table.items() if group in names}

    def disable_consume(self, name: str) -> bool:
        """Let a group read nothing more; False when there is nothing to change."""
        found = self.all().get(name)
        if found is None or not found.consume_enable:
            return False
        found.consume_enable = False
        self._advance()
        self._saver.later()
        return True

    def _advance(self) -> None:
        self._document.data_version = self.version.advanced(self._clock.now_ms())

    async def close(self) -> None:
        await self._saver.close()
