"""Changes of a table whose document is too large to be written for each of them (docs/adr/0008).

`rockmq/store/journal.py` says what is in the files, and which of them is read.

A change is forced before it is answered. When the document is going to be saved, `begin` opens the next number, and when it
is saved, `finish` takes away those that it covers: whatever is lost in between, document and journals together say it all.
A number is never written again after an error: of what failed part may be there, and a second fsync would report success
for pages that are gone.
"""

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rockmq.base.files import sync_directory
from rockmq.broker.documents import settle
from rockmq.protocol.bodies.common import DataVersion
from rockmq.store.journal import JournalFiles, line

log = logging.getLogger(__name__)

FOLLOWED_MAX = 16
"""Versions in a first line. More come together only while saves fail, nearly all before they touch the document."""


class Journal:
    """Appends changes in batches: those that come while one is forced go out together in the next."""

    def __init__(self, document: Path, version: DataVersion) -> None:
        """`version` is what the document on disk has."""
        self._followed = [version]
        """What a document may have that is found later: the version on disk, and those being saved."""
        self._files = JournalFiles(document)
        self._number = max(self._files.numbers(), default=0) + 1
        self._begun = self._number
        """Number that `begin` gave last."""
        self._is_empty = True
        """Whether no change came since then."""
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._running: asyncio.Task[None] | None = None
        self._open: tuple[int, int] | None = None
        """Number and descriptor of the file written last."""
        self._failing = False

    def read(self) -> Iterator[bytes]:
        """The changes on disk that follow the document, in order; to be called before anything else. Raises OSError,
        ConfigError."""
        (version,) = self._followed
        for path in (yield from self._files.changes(version)):
            aside = path.with_name(path.name + ".unrelated")
            log.error("%s follows another document than the one here (%s): ignored, and kept as %s", path, version, aside)
            path.replace(aside)

    def append(self, entry: bytes) -> "asyncio.Future[None]":
        """Write a change, JSON without a line feed: an awaitable that is done when it is on disk, or has
        StoreUnavailable."""
        assert b"\n" not in entry
        self._is_empty = False
        return self._write_later(line(entry))

    def _write_later(self, text: bytes) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((text, future))
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name=f"journal of {self._files.document}")
        return future

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                number = self._number
                first = line(msgspec.json.encode(self._followed))
                settle(
                    (future for _, future in batch), await self._write(number, first, b"".join(text for text, _ in batch))
                )
        finally:
            self._running = None

    async def _write(self, number: int, first: bytes, changes: bytes) -> str | None:
        """Write to a file; what went wrong."""
        try:
            await asyncio.to_thread(self._force, number, first, changes)
        except Exception as error:  # whatever it is, whoever waits must hear of it
            if not self._failing:
                log.error("%s can't be written", self._files.path(number), exc_info=error)
            self._failing = True
            self._number = max(self._number, number + 1)
            return f"{self._files.path(number)} can't be written: {error}"
        self._failing = False
        return None

    def _force(self, number: int, first: bytes, changes: bytes) -> None:
        if not changes and not self._files.numbers():
            return  # there is nothing that a document has to be told apart from
        data = changes
        if self._open is None or self._open[0] != number:
            self._close()
            data = first + changes
            descriptor = os.open(self._files.path(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._open = (number, descriptor)
            sync_directory(self._files.document.parent)
        _, descriptor = self._open
        left = memoryview(data)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fdatasync(descriptor)

    def _close(self) -> None:
        if self._open is not None:
            _, descriptor = self._open
            self._open = None
            os.close(descriptor)

    def begin(self, version: DataVersion) -> "asyncio.Future[None]":
        """Have everything from now on go to the next number; what is appended already is covered by a document of `version`
        that is made now, and may be saved when the awaitable is done. That has StoreUnavailable as `append`."""
        if version not in self._followed:
            self._followed = [*self._followed[:1], *self._followed[1:][2 - FOLLOWED_MAX :], version]
        self._number += 1
        self._begun = self._number
        self._is_empty = True
        # Were the next file made by its first change, nothing would say until then that the document covers those before.
        return self._write_later(b"")

    async def finish(self) -> None:
        """The document is saved: delete the files that it covers. Raises OSError."""
        del self._followed[:-1]
        if self._is_empty:
            self._begun += 1
            self._number = max(self._number, self._begun)
        await asyncio.to_thread(self._delete, self._begun)

    def _delete(self, before: int) -> None:
        for number in self._files.numbers():
            if number < before:
                self._files.path(number).unlink()

    async def close(self) -> None:
        """Finish what is being written."""
        if self._running is not None:
            await asyncio.shield(self._running)  # who gives up waiting doesn't end the write
        self._close()
