"""Tables that live in one JSON document each, saved in batches (ConfigManager.java; store spec, 1.7)."""

import asyncio
import logging
from pathlib import Path
from typing import Protocol, TypeVar

from rockmq.base import files
from rockmq.base.errors import ConfigError, ProtocolError
from rockmq.protocol import json

log = logging.getLogger(__name__)

T = TypeVar("T")


def load(path: Path, kind: type[T]) -> T | None:
    """The document, else its backup, else None. Raises ConfigError when there is text but none of it can be read:
    going on with an empty table would lose what it says."""
    faults = []
    for each, text in files.candidates(path):
        try:
            return json.decode(text, kind, str(each))
        except ProtocolError as error:
            log.warning("%s", error)
            faults.append(str(error))
    if faults:
        raise ConfigError(f"neither {path} nor its backup can be read: {'; '.join(faults)}")
    return None


class Encodable(Protocol):
    def encode(self) -> str:
        """The whole table as text."""


class Saver:
    """Saves a table when told that it changed; changes that come while one save runs go out together in the next.

    `changed` returns an awaitable that is done when the change is on disk.
    """

    def __init__(self, path: Path, table: Encodable) -> None:
        self._path = path
        self._table = table
        self._waiting: list[asyncio.Future[None]] = []
        self._running: asyncio.Task[None] | None = None

    def changed(self) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name=f"save {self._path.name}")
        return future

    async def _run(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                error: Exception | None = None
                try:
                    await asyncio.to_thread(files.save, self._path, self._table.encode())
                except OSError as failure:
                    log.exception("%s can't be saved", self._path)
                    error = failure
                for future in waiting:
                    if future.done():
                        continue
                    if error is None:
                        future.set_result(None)
                    else:
                        future.set_exception(error)
                        future.exception()  # it may be that nobody waits; it is logged already
        finally:
            self._running = None

    async def close(self) -> None:
        """Finish what is being saved."""
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
