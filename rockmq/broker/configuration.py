"""A broker's options while it runs (AdminBrokerProcessor.updateBrokerConfig, Configuration.java).

A change is checked as a whole, written to the file that the broker was started with, and then in effect, in this order: a
value that isn't right, a key that needs a restart and a file that can't be written change nothing. In the file lines of keys
that change are replaced, and all others stay as they are; Apache's broker writes all keys anew, and loses comments.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

from rockmq.base import files
from rockmq.base.errors import StoreUnavailable
from rockmq.config import key, properties
from rockmq.config.broker import BrokerOptions

log = logging.getLogger(__name__)

BLACK_LIST = frozenset({"configBlackList", "brokerConfigPath"})
"""Keys that no request may change."""


class Configuration:
    def __init__(self, options: BrokerOptions, file: Path | None, overridden: Collection[str]) -> None:
        """`file` is where the options came from, None when changes last until the broker ends; those of the
        keys `overridden` do in any case, as a start takes their values from elsewhere."""
        self.options = options
        self._file = file
        self._overridden = overridden
        self._changing = asyncio.Lock()
        self.on_change: dict[str, Callable[[], Awaitable[None]]] = {}
        """What has to be done when a key has changed, beside that whoever asks for it sees the new value."""

    async def update(self, changes: Mapping[str, str]) -> str:
        """Change keys; what became of them, in words. Raises ConfigError when nothing was changed, StoreUnavailable when the
        file can't be written."""
        async with self._changing:
            newer = key.changed(self.options, changes)
            before, after = key.dump(self.options), key.dump(newer)
            differing = [name for name in changes if before.get(name) != after.get(name)]
            if self._file is not None and changes:
                await self._save(self._file, changes)
            key.adopt(self.options, newer)
            for name in differing:
                if (work := self.on_change.get(name)) is not None:
                    await work()
        told = ", ".join(f"{name}={after.get(name, '')}" for name in differing) or "nothing new"
        return f"in effect: {told}; {self._lasting(changes)}"

    def _lasting(self, names: Collection[str]) -> str:
        if self._file is None:
            return "until the broker ends"
        brief = ", ".join(name for name in names if name in self._overridden)
        return f"written to {self._file}" + (f"; {brief} until the broker ends: --set says otherwise" if brief else "")

    async def _save(self, file: Path, changes: Mapping[str, str]) -> None:
        try:
            await asyncio.to_thread(_rewrite, file, changes)
        except OSError as error:
            raise StoreUnavailable(f"nothing was changed: can't write {file}: {error.strerror or error}") from None


def _rewrite(file: Path, changes: Mapping[str, str]) -> None:
    file = file.resolve()  # of a symbolic link what it names is replaced
    files.save(file, properties.rewritten(file.read_bytes(), changes))
