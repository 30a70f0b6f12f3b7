"""Consumer groups and their settings (SubscriptionGroupManager.java; store spec, 1.7), in
`config/subscriptionGroup.json`."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, field

from rockmq.base.clock import Clock
from rockmq.broker.documents import Saver, load, parts, save, snapshot
from rockmq.protocol import topics
from rockmq.protocol.bodies.common import DataVersion, GroupConfig
from rockmq.protocol.header import Int


class _Document(Struct, rename="camel"):
    subscription_group_table: dict[str, GroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, Int]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


class GroupTable:
    """All groups by name; `find` creates a missing one where that is allowed."""

    def __init__(self, directory: Path, *, auto_create: bool, light: bool = False, clock: Clock) -> None:
        """With `light`, groups of light queues exist by their names. Raises ConfigError when the document can't be read."""
        self._auto_create = auto_create
        self._light = light
        self._clock = clock
        self._path = directory / "subscriptionGroup.json"
        self._document = load(self._path, _Document) or _Document()
        self._saver = Saver(self._path, self._save)
        for name in topics.SYSTEM_GROUPS:
            broadcast = name != "SELF_TEST_C_GROUP"
            self.all().setdefault(name, GroupConfig(group_name=name, consume_broadcast_enable=broadcast))

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
        if found is None and self._auto_create and topics.group_fault(name) is None:
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
