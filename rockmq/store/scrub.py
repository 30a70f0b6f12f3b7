"""The scrub: reads the log's cold files again and again, slowly, so that a damage is known before somebody needs what it hit
(beyond Apache).

A step checks `STEP_BYTES` of records, CRC and structure, in the store's worker and without the GIL, then waits until its
bytes are within scrubBytesPerSecond. All files but the one written now count as cold. A round begins a day after
the last one began; a store that has nothing cold is looked at once a minute. The place is kept in `config/scrub.json`,
written once a minute of reading and at the end, so a kill repeats a minute at most.

A fault is logged once per place, and counted for the runtime info. Nothing is mended: that is for the operator to decide.
"""

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from rockmq import _core
from rockmq.base import files
from rockmq.base.clock import Clock
from rockmq.base.errors import ProtocolError
from rockmq.protocol import json
from rockmq.store.retention import InWorker

log = logging.getLogger(__name__)

STEP_BYTES = 1 << 20
IDLE_SECONDS = 60.0
ROUND_MS = 24 * 3_600_000
PLACES_MAX = 1000
"""Places whose fault was logged that are remembered; over it none is logged any more in this process."""


Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Place(Struct, rename="camel"):
    position: Number
    round_began: Number
    last_round: Number


class Scrub:
    """`run` never ends by itself. `scrubbed` are the bytes read, `faults` the places found, `last_round` when the last round
    ended (ms, 0: never), since the process began or, for the last, ever."""

    def __init__(self, core: _core.Store, path: Path, bytes_per_second: int, clock: Clock, in_worker: InWorker) -> None:
        self._core = core
        self._path = path
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._in_worker = in_worker
        self._places: set[tuple[str, int]] = set()
        self.scrubbed = 0
        self.faults = 0
        self.last_round = 0
        self._began = 0
        self._position = 0
        self._unsaved = 0
        self._load()

    def _load(self) -> None:
        for path, text in files.candidates(self._path):
            try:
                found = json.decode(text, _Place, str(path))
            except ProtocolError as error:
                log.warning("the scrub begins anew: %s", error)
            else:
                self._position, self._began, self.last_round = found.position, found.round_began, found.last_round
                return

    async def run(self) -> None:
        """Scrub until cancelled."""
        while True:
            if self._position == 0 and self._clock.now_ms() < self._began + ROUND_MS:
                await asyncio.sleep(IDLE_SECONDS)
                continue
            try:
                read = await self._step()
            except (_core.StoreError, OSError) as error:
                log.error("the log can't be scrubbed: %s", error)
                read = 0
            await asyncio.sleep(read / self._bytes_per_second if read else IDLE_SECONDS)

    async def _step(self) -> int:
        """Check a piece; how many bytes were read, 0 when there is nothing cold to read now."""
        if self._position == 0:
            self._began = self._clock.now_ms()
        before = max(self._position, self._core.min_position)
        size = min(STEP_BYTES, self._bytes_per_second)
        after, told, more = await self._in_worker(partial(self._core.scrub, before, size))
        for fault in told:
            self._tell(fault)
        self.faults += more
        if after == before:
            if not self._position:
                self._began = 0  # nothing is cold yet
                return 0
            self._position, self.last_round = 0, self._clock.now_ms()
            log.info("the scrub has read all cold files of the log: %d faults so far", self.faults)
            await self.save()
            return 0
        self._position = after
        # A file whose end is a hole is left at once.
        read = min(after - before, 2 * size)
        self.scrubbed += read
        self._unsaved += read
        if self._unsaved >= self._bytes_per_second * 60:
            await self.save()
        return read

    def _tell(self, fault: "_core.Fault") -> None:
        kind, path, byte, count, expected, found, queue = fault
        if (path, byte) in self._places or len(self._places) >= PLACES_MAX:
            return
        self._places.add((path, byte))
        self.faults += 1
        of = f" of {queue[0]}, queue {queue[1]}" if queue else ""
        log.critical(
            "the log is damaged: %s, byte %d, %d bytes%s: %s: expected %s, found %s. Restore the file from a replica or "
            "backup; `rockmq store verify` tells what else is wrong",
            path, byte, count, of, kind, expected, found,
        )  # fmt: skip

    async def save(self) -> None:
        """Remember the place, if there is a new one. What can't be saved is only read again."""
        if not self._unsaved:
            return
        self._unsaved = 0
        text = json.encode(_Place(self._position, self._began, self.last_round)).decode()
        try:
            await self._in_worker(partial(files.save, self._path, text))
        except OSError as error:
            log.warning("the scrub's place can't be saved: %s", error)
