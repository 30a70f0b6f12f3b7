"""Tables that live in one JSON document each (ConfigManager.java; store spec, 1.7): their text, and when it is saved."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from rockmq.base import files
from rockmq.base.errors import ConfigError, ProtocolError, StoreUnavailable
from rockmq.protocol import json

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0
PAUSE_PER_COST = 20
"""A save that nobody waits for comes so many times later than the last one took: a twentieth of the time is for saving."""
PAUSE_SECONDS_MAX = 60.0

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


def snapshot(table: Mapping[str, T]) -> Iterator[tuple[str, T]]:
    """The rows of a table as they are now. Not a list of pairs: 100,000 new objects at once make Python look through all it
    has for garbage, which holds up the loop for some 100 ms."""
    return zip(list(table), list(table.values()), strict=True)


def parts(members: dict[str, object], **tables: Iterable[tuple[str, object]]) -> Iterator[bytes]:
    """A document piece by piece, a row of its tables on each line. A piece is encoded when it is asked for: in the thread
    that saves, and no longer at a time than one row takes."""
    yield b"{"
    for name, value in members.items():
        yield b'\n"%b":%b,' % (name.encode(), msgspec.json.encode(value))
    before = b"\n"
    for table, rows in tables.items():
        yield b'%b"%b":{' % (before, table.encode())
        separator = b"\n"
        for key, row in rows:
            yield b"%b%b:%b" % (separator, msgspec.json.encode(key), msgspec.json.encode(row))
            separator = b",\n"
        yield b"\n}"
        before = b",\n"
    yield b"\n}\n"


def settle(waiting: Iterable["asyncio.Future[None]"], failure: str | None) -> None:
    """Tell all who wait that it is done, or StoreUnavailable with what went wrong."""
    for future in waiting:
        if future.done():
            continue
        if failure is None:
            future.set_result(None)
        else:
            future.set_exception(StoreUnavailable(failure))
            future.exception()  # it may be that nobody waits; it is logged already


async def save(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a document, away from the loop. Raises OSError; the old text is still there then."""
    await asyncio.to_thread(files.save_parts, path, pieces)


class Saver:
    """Says when a table is saved by `save`, which raises what goes wrong; changes that come while one save runs go out
    together in the next.

    `now` returns an awaitable that is done when the table is on disk. When it can't be written, whoever waits gets
    StoreUnavailable; it is tried again every `RETRY_SECONDS` until it is written. That it can't be is logged once, and once
    that it can be again.
    """

    def __init__(self, path: Path, save: Callable[[], Awaitable[None]]) -> None:
        self._path = path
        self._save = save
        self._changed = False
        self._waiting: list[asyncio.Future[None]] = []
        self._running: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._not_before = 0.0
        self._failing = False
        self._closing = False

    def later(self) -> None:
        """Save a change that nobody waits for, after a pause if the last save took long."""
        self._changed = True
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name=f"save {self._path.name}")

    def now(self) -> "asyncio.Future[None]":
        """Save a change as soon as the disk lets us."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._hurry.set()
        self.later()
        return future

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._changed:
                await self._pause()
                self._changed = False
                self._hurry.clear()
                waiting, self._waiting = self._waiting, []
                started = loop.time()
                failure = await self._try()
                ended = loop.time()
                pause = min(PAUSE_PER_COST * (ended - started), PAUSE_SECONDS_MAX)
                self._not_before = ended + (pause if failure is None else RETRY_SECONDS)
                settle(waiting, failure)
                if failure is not None and self._closing:
                    settle(self._waiting, failure)
                    return
                self._changed |= failure is not None
        finally:
            self._running = None

    async def _try(self) -> str | None:
        """Save; what went wrong."""
        try:
            await self._save()
        except Exception as error:  # whatever it is, whoever waits must hear of it
            if not self._failing:
                log.error("%s can't be saved; it is tried again until it can", self._path, exc_info=error)
            self._failing = True
            return f"{self._path} can't be saved: {error}"
        if self._failing:
            log.warning("%s can be saved again", self._path)
        self._failing = False
        return None

    async def _pause(self) -> None:
        left = self._not_before - asyncio.get_running_loop().time()
        if left > 0 and not self._closing:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), left)

    async def close(self) -> None:
        """Save what isn't saved yet; what can't be saved is tried a last time."""
        self._closing = True
        self._hurry.set()
        if self._running is not None:
            await asyncio.shield(self._running)  # who gives up waiting doesn't end the save
