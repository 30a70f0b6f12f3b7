"""The index of a store, in a thread of its own (IndexService.java; store spec, 3.5).

It follows the log: when a message is stored, the core only notes the hashes of its keys. Every `INTERVAL_SECONDS` what came
since is put into it, from those notes or, where they don't reach back, from the log, in steps between which a query may
come; a query first sees to it that all that may be read is in it. So queries miss nothing.

The core does that and writes the files; what is here is when, and by which clock a file is named.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from rockmq import _core
from rockmq.base.clock import Clock
from rockmq.base.errors import StoreUnavailable
from rockmq.base.tasks import Tasks
from rockmq.config.broker import Store as StoreOptions

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.1
STEP_BYTES = 16 << 20
"""Bytes of log that are read in one step."""
QUERY_WAIT_SECONDS = 2.0
"""How long a query waits for an index that is being made anew. Then it finds what is there, and the answer says how far."""
CLOSE_WAIT_SECONDS = 10.0
"""The same for a stop. What is missing then is put at the next start."""
QUERIES_MAX = 1024
"""Queries under way; over it they are refused."""
RESULT_BYTES_MAX = 16_000_000
"""Bytes of all messages of one answer, which has to fit into a frame; the oldest are left out."""

T = TypeVar("T")


class Found(NamedTuple):
    """Stored records, oldest first; store time and position of the last message in the index, 0 when nothing was found."""

    records: list[bytes]
    indexed_timestamp: int
    indexed_position: int


class MessageIndex:
    """The index files in `directory`, from `start` to `close`; making one reads the files' headers.

    `limit` is the position up to which messages may be read, `read` gives the record at a position, and `sealed` is told
    the end timestamp of each file that is full and forced.
    """

    def __init__(
        self,
        core: _core.Store,
        directory: Path,
        options: StoreOptions,
        *,
        trusted_until: int | None,
        clock: Clock,
        limit: Callable[[], int],
        read: Callable[[int], bytes | None],
        sealed: Callable[[int], Awaitable[None]],
    ) -> None:
        self._log = core
        self._core = _core.Index(
            core,
            str(directory),
            slots=options.max_hash_slot_num,
            entries=options.max_index_num,
            trusted_until=trusted_until,
        )
        self._clock = clock
        self._limit = limit
        self._read = read
        self._sealed = sealed
        self._sealed_until = 0
        self._log_min = 0
        self._asked = 0
        self._is_failing = False
        self._step_running: asyncio.Task[None] | None = None
        self._tasks = Tasks()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="index")

    def start(self) -> None:
        """Follow the log from now on."""
        if self._core.position < self._limit():
            log.info("the index goes on at %d, the log ends at %d", self._core.position, self._limit())
        self._tasks.every(INTERVAL_SECONDS, self._follow, "index")

    async def _follow(self) -> None:
        try:
            await self._catch_up(float("inf"), pausing=True)
            log_min = self._log.min_position
            if log_min != self._log_min:
                await self._in_thread(partial(self._core.delete_below, log_min))
                self._log_min = log_min
        except _core.StoreError as error:
            # Messages are safe without it, so the store goes on; said once, as the next turn will tell the same.
            if not self._is_failing:
                log.error("the index doesn't follow the log: %s", error)
            self._is_failing = True
        else:
            self._is_failing = False

    async def _catch_up(self, seconds: float, *, pausing: bool = False) -> None:
        """Put what may be read by now, or as much of it as that time allows; `pausing` takes at most half of the time, so
        that making a long index anew leaves disk and processor to those who send."""
        began = self._clock.monotonic()
        limit, deadline = self._limit(), began + seconds
        while self._core.position < limit and began < deadline:
            # Who comes while a step is under way waits for it, and then sees how far that one got.
            if self._step_running is None or self._step_running.done():
                self._step_running = asyncio.create_task(self._step(), name="index step")
            await asyncio.shield(self._step_running)
            if pausing and self._core.position < limit:
                await asyncio.sleep(self._clock.monotonic() - began)
            began = self._clock.monotonic()

    async def _step(self) -> None:
        now = self._clock.now_ms()
        name = f"{datetime.fromtimestamp(now // 1000).astimezone():%Y%m%d%H%M%S}{now % 1000:03d}"
        await self._in_thread(partial(self._core.catch_up, self._limit(), STEP_BYTES, name))
        sealed_until = self._core.sealed_until
        if sealed_until != self._sealed_until:
            self._sealed_until = sealed_until
            await self._sealed(sealed_until)

    async def reaches(self, position: int) -> bool:
        """Whether everything below `position`, which may be read by now, is in the index: waits for it a while. Raises
        StoreUnavailable when the index can't be written."""
        try:
            await self._catch_up(QUERY_WAIT_SECONDS)
        except _core.StoreError as error:
            raise StoreUnavailable(str(error)) from None
        return self._core.position >= position

    async def query(self, topic: str, key: str, count_max: int, begin: int, end: int, *, is_tag: bool) -> Found:
        """The newest `count_max` messages stored from `begin` to `end` (ms) under a key, or with tags, of that hash.

        Raises StoreUnavailable when there are too many queries, or when the index can't be written.
        """
        if self._asked >= QUERIES_MAX:
            raise StoreUnavailable(f"{QUERIES_MAX} queries are under way, and no more are taken")
        self._asked += 1
        try:
            await self._catch_up(QUERY_WAIT_SECONDS)
            return await self._in_thread(partial(self._look_up, topic, key, count_max, begin, end, is_tag))
        except _core.StoreError as error:
            raise StoreUnavailable(str(error)) from None
        finally:
            self._asked -= 1

    def _look_up(self, topic: str, key: str, count_max: int, begin: int, end: int, is_tag: bool) -> Found:
        found = self._core.find(topic, key, is_tag=is_tag, count_max=count_max, begin=begin, end=end)
        positions, indexed_timestamp, indexed_position = found
        if not positions:
            return Found([], 0, 0)
        records: list[bytes] = []
        size = 0
        for position in sorted(positions, reverse=True):
            record = self._read(position)
            if record is None:
                continue  # deleted with the log's oldest file
            size += len(record)
            if records and size > RESULT_BYTES_MAX:
                break
            records.append(record)
        return Found(records[::-1], indexed_timestamp, indexed_position)

    async def close(self, *, complete: bool) -> None:
        """End with the files forced; with `complete`, put what is missing before."""
        await self._tasks.close()
        if self._step_running is not None:
            await asyncio.wait([self._step_running])
        try:
            if complete:
                await self._catch_up(CLOSE_WAIT_SECONDS)
        except _core.StoreError as error:
            log.error("the index ends at %d, before the log: %s", self._core.position, error)
        try:
            await self._in_thread(self._core.close)
        except _core.StoreError as error:
            log.error("the index was not closed in order: %s", error)
        self._thread.shutdown(wait=True)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
