"""Tables that live in one JSON document each, saved in batches (ConfigManager.java; store spec, 1.7)."""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import Protocol, TypeVar

from rockmq.base import files
from rockmq.base.errors import ConfigError, ProtocolError, StoreUnavailable
from rockmq.protocol import json

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0

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


class Document:
    """A file that a table is saved to. That it can't be written is logged once, and once that it can be again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._failing = False

    async def save(self, text: str) -> OSError | None:
        """Write the text, away from the loop; the error when that failed, and the old text is still there."""
        try:
            await asyncio.to_thread(files.save, self.path, text)
        except OSError as error:
            if not self._failing:
                log.exception("%s can't be saved; it is tried again until it can", self.path)
            self._failing = True
            return error
        if self._failing:
            log.warning("%s can be saved again", self.path)
        self._failing = False
        return None


class Saver:
    """Saves a table when told that it changed; changes that come while one save runs go out together in the next.

    `changed` returns an awaitable that is done when the change is on disk. When it can't be written, whoever waits gets
    StoreUnavailable; the table as it is in memory is tried again every `RETRY_SECONDS` until it is written.
    """

    def __init__(self, path: Path, table: Encodable) -> None:
        self._document = Document(path)
        self._table = table
        self._waiting: list[asyncio.Future[None]] = []
        self._running: asyncio.Task[None] | None = None
        self._again = asyncio.Event()
        self._closing = False

    def changed(self) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._again.set()
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name=f"save {self._document.path.name}")
        return future

    async def _run(self) -> None:
        try:
            error: OSError | None = None
            while self._waiting or (error is not None and not self._closing):
                if error is not None:
                    await self._pause()
                self._again.clear()
                waiting, self._waiting = self._waiting, []
                error = await self._document.save(self._table.encode())
                for future in waiting:
                    if future.done():
                        continue
                    if error is None:
                        future.set_result(None)
                    else:
                        future.set_exception(StoreUnavailable(f"{self._document.path} can't be saved: {error}"))
                        future.exception()  # it may be that nobody waits; it is logged already
        finally:
            self._running = None

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._again.wait(), RETRY_SECONDS)

    async def close(self) -> None:
        """Finish what is being saved; what can't be saved is tried a last time."""
        self._closing = True
        self._again.set()
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
