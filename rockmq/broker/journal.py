"""Changes of a table whose document is too large to be written for each of them (docs/adr/0008).

Beside the document `topics.json` lie `topics.json.journal.1`, `topics.json.journal.2` and so on, a change per line:

    CRC-32 of what follows the space, in hex; a space; JSON; a line feed

A change is forced before it is answered. When the document is going to be saved, `begin` opens the next number, and when it
is saved, `delete` takes away those that it covers: whatever is lost in between, document and journals together say it all.
A line that isn't whole was never answered, and is passed over. A number is never written again after an error: of what
failed part may be there, and a second fsync would report success for pages that are gone.
"""

import asyncio
import logging
import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from rockmq.base.errors import StoreUnavailable
from rockmq.base.files import sync_directory

log = logging.getLogger(__name__)


class Journal:
    """Appends changes in batches: those that come while one is forced go out together in the next."""

    def __init__(self, document: Path) -> None:
        self._prefix = document.name + ".journal."
        self._directory = document.parent
        self._number = max(self._numbers(), default=0) + 1
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._running: asyncio.Task[None] | None = None
        self._open: tuple[int, int] | None = None
        """Number and descriptor of the file written last."""
        self._failing = False

    def _numbers(self) -> list[int]:
        if not self._directory.exists():
            return []
        endings = (path.name.removeprefix(self._prefix) for path in self._directory.glob(self._prefix + "*"))
        return sorted(int(ending) for ending in endings if ending.isdecimal())

    def _path(self, number: int) -> Path:
        return self._directory / f"{self._prefix}{number}"

    def read(self) -> Iterator[bytes]:
        """The changes that are on disk, in order. Raises OSError."""
        for number in self._numbers():
            torn = 0
            for line in self._path(number).read_bytes().split(b"\n"):
                check, _, entry = line.partition(b" ")
                if check == _check(entry):
                    yield entry
                else:
                    torn += bool(line)
            if torn:
                log.warning("%s: %d lines aren't whole and are passed over", self._path(number), torn)

    def append(self, entry: bytes) -> "asyncio.Future[None]":
        """Write a change, JSON without a line feed: an awaitable that is done when it is on disk, or has
        StoreUnavailable."""
        assert b"\n" not in entry
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((b"%b %b\n" % (_check(entry), entry), future))
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name=f"journal {self._prefix}")
        return future

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                number = self._number
                error = await self._write(number, b"".join(line for line, _ in batch))
                for _, future in batch:
                    if future.done():
                        continue
                    if error is None:
                        future.set_result(None)
                    else:
                        future.set_exception(StoreUnavailable(f"{self._path(number)} can't be written: {error}"))
                        future.exception()  # it may be that nobody waits; it is logged already
        finally:
            self._running = None

    async def _write(self, number: int, data: bytes) -> OSError | None:
        try:
            await asyncio.to_thread(self._force, number, data)
        except OSError as error:
            if not self._failing:
                log.exception("%s can't be written", self._path(number))
            self._failing = True
            self._number = max(self._number, number + 1)
            return error
        self._failing = False
        return None

    def _force(self, number: int, data: bytes) -> None:
        if self._open is None or self._open[0] != number:
            self._close()
            descriptor = os.open(self._path(number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._open = (number, descriptor)
            sync_directory(self._directory)
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

    def begin(self) -> int:
        """Have everything from now on go to the next number, which is returned; what is appended already is covered by a
        document that is made now."""
        self._number += 1
        return self._number

    async def delete(self, before: int) -> None:
        """Delete the files below a number: the document says what they say. Raises OSError."""
        await asyncio.to_thread(self._delete, before)

    def _delete(self, before: int) -> None:
        for number in self._numbers():
            if number < before:
                self._path(number).unlink()

    async def close(self) -> None:
        """Finish what is being written."""
        if self._running is not None:
            await self._running
        self._close()


def _check(entry: bytes) -> bytes:
    return b"%08x" % zlib.crc32(entry)
