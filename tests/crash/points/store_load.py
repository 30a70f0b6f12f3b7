"""`MessageStore` as a broker with sync flush uses it: sends, forces, upkeep and retention by its own clock, stops."""

import asyncio
import random
from itertools import pairwise
from pathlib import Path

from rockmq.store.message_store import Put
from tests.crash.points import load
from tests.crash.points.loop import LoopClock, SeededLoop
from tests.support.model import Record, batch
from tests.unit.core.stores import HOST, PEER
from tests.unit.store import stores

RETENTION_BYTES = 4 * load.LOG_FILE
OPERATIONS = 60
# Times that seldom fall together: work of one kind meets that of another as the seed has it, not always in the same way.
SETTINGS = {
    "mappedFileSizeCommitLog": load.LOG_FILE,
    "mappedFileSizeConsumeQueue": load.QUEUE_FILE,
    "mapperFileSizeBatchConsumeQueue": load.BATCH_QUEUE_FILE,
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "maxHashSlotNum": load.INDEX_SLOTS,
    "maxIndexNum": load.INDEX_ENTRIES,
    "flushIntervalConsumeQueue": 137,
    "flushConsumeQueueThoroughInterval": 411,
    "cleanResourceInterval": 611,
    "deleteCommitLogFilesInterval": 0,
    "scrubBytesPerSecond": 0,
    # What else is on this disk has no say.
    "diskSpaceWarningLevelRatio": 100,
    "cleanFileForciblyEnable": "false",
}


class Driven:
    """A started store, and how far it has said that it is on disk."""

    def __init__(self, root: Path, begin: int, settings: dict[str, object]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SeededLoop)
        self._loop = loop
        self.clock = LoopClock(loop, begin)
        self._flushed = asyncio.Event()
        self.store, _ = stores.made(
            root,
            {key: str(value) for key, value in (SETTINGS | settings).items()},
            self.clock,
            store_host=HOST,
            flushed=self._on_flushed,
            failed=self._on_failed,
        )

    @classmethod
    async def started(cls, root: Path, begin: int, **settings: object) -> "Driven":
        """Raises ConfigError."""
        driven = cls(root, begin, settings)
        await driven.store.start()
        driven.store.set_batch(load.BATCH_TOPIC)
        return driven

    def _on_flushed(self, position: int) -> None:
        self._flushed.set()

    def _on_failed(self, error: BaseException) -> None:
        raise AssertionError("no disk fails here") from error

    def append(self, one: Record) -> Put:
        return self.store.append(
            one.topic,
            one.queue_id,
            one.body,
            one.properties,
            born_host=one.born_host,
            born_timestamp=one.born_timestamp,
            flag=one.flag,
            sys_flag=one.sys_flag,
            light_queues=load.light_queues(one),
        )

    async def flush(self) -> int:
        """Have everything forced, as an acknowledgement waits for it: the position that the store tells."""
        wanted = self.store.core.max_position
        self._loop.forcing = True
        self.store.request_flush()
        while self.store.readable_limit < wanted:
            self._flushed.clear()
            await self._flushed.wait()
        self._loop.forcing = False
        return self.store.readable_limit


class StoreLoad:
    def __init__(self, root: Path, seed: str, first_number: int, now: int, tell: load.Tell) -> None:
        self._root = root
        self._choice = random.Random(seed)
        self._number = first_number
        self._begin = now
        self._tell = tell

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: SeededLoop(self._choice)) as runner:
            runner.run(self._run())

    async def _run(self) -> None:
        await self._start()
        steps = {self._append: 40, self._batch: 8, self._flush: 16, self._wait: 16, self._stop: 1}
        for step in self._choice.choices(list(steps), list(steps.values()), k=OPERATIONS):
            await step()
            self._tell_beginning()
        await self._close()

    async def _start(self) -> None:
        self._driven = await Driven.started(self._root, self._begin, retentionBytes=RETENTION_BYTES)
        core = self._driven.store.core
        self._log_min = core.min_position
        self._tell("recovered", core.max_position, core.min_position)
        self._tell_beginning()

    def _tell_beginning(self) -> None:
        """Which files retention has deleted, and which it may delete before the next append."""
        core = self._driven.store.core
        if core.min_position != self._log_min:
            self._log_min = core.min_position
            self._tell("deleted", self._log_min)
        may_go = [behind for (base, _), (behind, _) in pairwise(core.files()) if core.max_position - base > RETENTION_BYTES]
        if may_go:
            self._tell("deleting", may_go[-1])

    def _fresh(self, queue: tuple[str, int] | None = None) -> Record:
        self._number += 1
        return load.record(self._choice, self._number, self._driven.clock.now_ms(), queue=queue)

    async def _append(self) -> None:
        one = self._fresh()
        self._tell("append", [one])
        put = self._driven.append(one)
        self._tell("appended", [put.position], put.queue_offset)

    async def _batch(self) -> None:
        queue = self._choice.choice(load.TOPICS), self._choice.randrange(load.QUEUES)
        many = [self._fresh(queue) for _ in range(self._choice.randint(1, 4))]
        while sum(one.size for one in many) + 8 > load.LOG_FILE:
            many.pop()
        self._tell("append", many)
        body = batch((one.flag, one.body, one.properties) for one in many)
        positions, put = self._driven.store.append_batch(*queue, body, born_host=PEER, born_timestamp=many[0].born_timestamp)
        self._tell("appended", positions, put.queue_offset)

    async def _flush(self) -> None:
        self._tell("acknowledged", await self._driven.flush())

    async def _wait(self) -> None:
        await asyncio.sleep(self._choice.choice((0.01, 0.1, 0.3, 1.0)))

    async def _stop(self) -> None:
        await self._close()
        await self._start()

    async def _close(self) -> None:
        self._begin = self._driven.clock.now_ms()
        await self._driven.store.close()
        self._tell("closed")
