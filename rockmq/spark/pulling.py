"""One range of a queue, pulled with several requests in flight and handed on in order.

Offsets are known, so requests needn't wait for each other: the range is cut into strides, one pull each, `IN_FLIGHT` at
a time. A server gives as many messages as it likes (Apache's 32 at most), so a stride that came short is pulled on from
where it ended once all before it is handed on, and the next strides are as long as what came. So no more than `IN_FLIGHT`
answers wait to be handed on (each of some `cluster.PULL_BYTES_MAX`), however slowly they are taken. With a tag filter the
server decides how far one answer reaches; then the next pull is only sent when the last has said so, one ahead of what is
being worked on.

What isn't there is told, never passed over: see `RangePuller._lost`.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol

from rockmq.base.errors import RockMQError
from rockmq.client.pull import PullResult, PullStatus
from rockmq.spark.ranges import ADVICE, DataLoss, Range, name

log = logging.getLogger(__name__)

IN_FLIGHT = 8
STRIDE_FIRST = 32
"""Messages of the first strides: no server gives less, unless they are large."""
SETTLED = 256
"""Full answers after one that came short, before longer strides are tried again."""
RETRY_SECONDS = (0.1, 0.5, 1.0, 2.0, 4.0)
"""Waits between tries of a pull that failed in a way that can pass (a broker that restarts, a lost connection); the last one
again and again, until the timeout is over."""
EMPTY_SECONDS = 0.1
"""Wait before asking again for offsets that the broker says exist but doesn't show yet."""


class Pull(Protocol):
    """Ask for up to `count` messages from `offset` on. Raises RockMQError."""

    async def __call__(self, offset: int, count: int) -> PullResult: ...


@dataclass(frozen=True, slots=True)
class Part:
    """The records of offsets start … end - 1, less those lost or filtered out; of a batch also messages around them."""

    start: int
    end: int
    records: bytes = field(repr=False)


class RangePuller:
    """Reads `wanted` through `pull`. `filtered` says that the server selects, so that gaps are no loss."""

    def __init__(
        self, pull: Pull, wanted: Range, *, batch_size: int, timeout: float, fail_on_data_loss: bool, filtered: bool
    ) -> None:
        self._pull = pull
        self._wanted = wanted
        self._batch_size = batch_size
        self._timeout = timeout
        self._strict = fail_on_data_loss
        self._filtered = filtered
        self._stride = min(batch_size, STRIDE_FIRST)
        self._settled = 0
        self._at = wanted.start

    def parts(self) -> AsyncIterator[Part]:
        """What the range holds, in order. Raises DataLoss, and RockMQError when a pull fails for good."""
        return self._one_ahead() if self._filtered else self._side_by_side()

    async def _side_by_side(self) -> AsyncIterator[Part]:
        strides: deque[tuple[asyncio.Task[Part], int]] = deque()
        try:
            while strides or self._at < self._wanted.end:
                while self._at < self._wanted.end and len(strides) < IN_FLIGHT:
                    end = min(self._at + self._stride, self._wanted.end)
                    strides.append((asyncio.create_task(self._next(self._at, end)), end))
                    self._at = end
                part = await strides[0][0]
                _, end = strides.popleft()
                if part.records:
                    self._adapt(part.end - part.start, is_full=part.end >= end)
                    yield part
                while part.end < end:
                    part = await self._next(part.end, end)
                    if part.records:
                        yield part
                # A hole that was jumped over may reach beyond this stride: nothing in it is asked for again.
                self._at = max(self._at, min(part.end, self._wanted.end))
        finally:
            await _drop(*(task for task, _ in strides))

    def _adapt(self, got: int, *, is_full: bool) -> None:
        """Full answers may be asked for more, short ones tell what the server gives."""
        if not is_full:
            self._stride, self._settled = got, SETTLED
        elif self._settled:
            self._settled -= 1
        else:
            self._stride = max(self._stride, min(self._batch_size, got * 2))

    async def _one_ahead(self) -> AsyncIterator[Part]:
        at, end = self._wanted.start, self._wanted.end
        coming = asyncio.create_task(self._next(at, end))
        try:
            while True:
                part = await coming
                if part.end >= end:
                    break
                coming = asyncio.create_task(self._next(part.end, end))
                if part.records:
                    yield part
            if part.records:
                yield part
        finally:
            await _drop(coming)

    async def _next(self, start: int, end: int) -> Part:
        """What one pull gives, at least one offset further on."""
        loop = asyncio.get_running_loop()
        # From the first answer on: the loop stands still while whoever reads has no use for more.
        deadline = None
        while True:
            answer = await self._ask(start, min(end - start, self._batch_size))
            if answer.next_offset > start:
                if answer.status is PullStatus.FOUND:
                    # A record that is a batch may reach beyond, and begin before.
                    return Part(start, min(answer.next_offset, end), answer.data)
                if answer.status is PullStatus.NO_MATCHED and self._filtered and answer.min_offset <= start:
                    return Part(start, answer.next_offset, b"")
                return self._lost(start, min(answer.next_offset, self._wanted.end), answer)
            deadline = deadline or loop.time() + self._timeout
            if answer.status is PullStatus.OFFSET_MOVED or loop.time() > deadline:
                return self._lost(start, self._wanted.end, answer)
            await asyncio.sleep(EMPTY_SECONDS)

    def _lost(self, start: int, end: int, answer: PullResult) -> Part:
        """Offsets that aren't there: an error, or with failOnDataLoss=false an empty part and a warning."""
        lost = Range(self._wanted.queue, start, end)
        if answer.min_offset > start:
            why = f"the queue starts at {answer.min_offset} now"
        elif answer.next_offset > start:
            why = f"the broker goes on at {answer.next_offset}"
        elif answer.status is PullStatus.OFFSET_MOVED:
            why = f"the queue ends at {answer.next_offset} now"
        else:
            why = f"for {self._timeout:g} s the broker shows nothing there, the queue ends at {answer.max_offset}"
        if self._strict:
            raise DataLoss(f"{lost} is lost: {why}. {ADVICE}")
        log.warning("%s is lost: %s; going on without it", lost, why)
        return Part(start, end, b"")

    async def _ask(self, offset: int, count: int) -> PullResult:
        loop = asyncio.get_running_loop()
        failing = None  # since when
        for wait in itertools.chain(RETRY_SECONDS, itertools.repeat(RETRY_SECONDS[-1])):
            try:
                return await self._pull(offset, count)
            except RockMQError as error:
                now = loop.time()
                failing = now if failing is None else failing
                if not error.retriable or now - failing >= self._timeout:
                    raise
                log.warning("pulling %s at %d: %s; trying again", name(self._wanted.queue), offset, error)
            await asyncio.sleep(wait)
        raise AssertionError("there is always a next try")


async def _drop(*tasks: "asyncio.Task[object]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
