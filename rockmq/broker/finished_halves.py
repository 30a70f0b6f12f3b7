"""What is told of finished half messages: op messages, and the progress behind them (TransactionalOpBatchService.java).

An offset waits until there are enough for a message, or until `flush`, which comes every `transactionOpBatchInterval` and at
the stop. The progress is saved when all that it relies on is forced, also with async flush: the next start reads from it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator

from rockmq.base.clock import Clock
from rockmq.base.errors import StoreUnavailable
from rockmq.broker.drafts import Draft, DraftWriter
from rockmq.broker.half_messages import OP_SEPARATOR, OP_TAG, finished_in
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.protocol import codec, ids, properties, topics
from rockmq.store.message_store import MessageStore

log = logging.getLogger(__name__)

READ_COUNT = 32
READ_BYTES = 1 << 20


class FinishedHalves:
    """Tells which half messages are finished. `pending_from` is the offset below which all are."""

    def __init__(
        self,
        store: MessageStore,
        writer: DraftWriter,
        offsets: ConsumerOffsets,
        clock: Clock,
        *,
        size_max: int,
        pending_from: Callable[[], int],
    ) -> None:
        self._store = store
        self._writer = writer
        self._offsets = offsets
        self._clock = clock
        self._size_max = size_max
        self._pending_from = pending_from
        self._unique_ids = ids.UniqueIds(store.store_host[:-4])
        self._untold: deque[int] = deque()
        self._untold_size = 0
        """Bytes that the untold will have in op messages."""
        self._told: deque[tuple[int, int]] = deque()
        """(offset of an op message, largest offset in it) of those that may still be of interest."""
        self._next_op = 0
        self._progress = (0, 0)
        """(half, op): offsets below which nothing is of interest, as they are saved."""
        self._waiting: tuple[int, int, int] | None = None
        """(position, half, op): progress that is saved when the log is on disk up to there; one at a time."""

    async def load(self) -> tuple[int, int, set[int]]:
        """(progress, end) of the half messages' queue, and which from there on are finished."""
        half_begin, half_end = self._left(topics.TRANSACTION_HALF)
        op_begin, self._next_op = self._left(topics.TRANSACTION_OP)
        self._progress = (half_begin, op_begin)
        done: set[int] = set()
        offset = op_begin
        while offset < self._next_op:
            result = self._store.get(topics.TRANSACTION_OP, 0, offset, READ_COUNT, READ_BYTES, None)
            for found in codec.decode_records(b"".join(result.buffers)):
                said = finished_in(found)
                self._told.append((found[4], max(said, default=-1)))
                done.update(each for each in said if each >= half_begin)
            if result.next_offset <= offset:
                break
            offset = result.next_offset
            await asyncio.sleep(0)
        return half_begin, half_end, done

    def _left(self, topic: str) -> tuple[int, int]:
        """(progress, end) of a queue of ours."""
        low, high = self._store.bounds(topic, 0)
        progress = self._offsets.query(topics.TRANSACTION_GROUP, topic, 0)
        return min(max(progress or 0, low), high), high

    def add(self, offset: int) -> None:
        """A half message is finished; what it came to is stored."""
        self._untold.append(offset)
        self._untold_size += _size(offset)
        if self._untold_size >= self._size_max:
            self.flush()

    def flush(self) -> None:
        """As `tell`; what the store doesn't take now is tried again by the next call."""
        try:
            self.tell()
        except StoreUnavailable as error:
            log.warning("%d finished transactions aren't noted as finished yet: %s", len(self._untold), error)

    def tell(self) -> None:
        """Write op messages of all that is untold, and save the progress. Raises StoreUnavailable."""
        while self._untold:
            told = list(self._fitting())
            put = self._writer.append(self._op(told))
            self._store.request_flush()
            self._next_op = put.queue_offset + 1
            self._told.append((put.queue_offset, max(told)))
            for _ in told:
                self._untold_size -= _size(self._untold.popleft())
        self._save_progress()

    def _fitting(self) -> Iterator[int]:
        """The first of the untold, as many as go into one message."""
        room = self._size_max
        for number, offset in enumerate(self._untold):
            room -= _size(offset)
            if room < 0 and number:
                return
            yield offset

    def _op(self, offsets: list[int]) -> Draft:
        return Draft(
            topic=topics.TRANSACTION_OP,
            queue_id=0,
            body="".join(f"{offset}{OP_SEPARATOR}" for offset in offsets).encode(),
            properties={properties.TAGS: OP_TAG, properties.UNIQ_KEY: self._unique_ids.make()},
            born_host=self._store.store_host,
            born_timestamp=self._clock.now_ms(),
        )

    def _save_progress(self) -> None:
        self._settle()
        half = self._pending_from()
        while self._told and self._told[0][1] < half:
            self._told.popleft()
        op = self._told[0][0] if self._told else self._next_op
        if self._waiting is None and (half, op) != self._progress:
            self._waiting = (self._store.core.max_position, half, op)
            self._store.request_flush()
            self._settle()

    def _settle(self) -> None:
        if self._waiting is None or self._waiting[0] > self._store.core.flushed_position:
            return
        _, half, op = self._waiting
        self._waiting = None
        self._progress = (half, op)
        self._offsets.commit(topics.TRANSACTION_GROUP, topics.TRANSACTION_HALF, 0, half)
        self._offsets.commit(topics.TRANSACTION_GROUP, topics.TRANSACTION_OP, 0, op)

    async def close(self) -> None:
        """Tell all, and save the progress, or the next start would have to find out what is finished."""
        self.flush()
        if self._waiting is not None:
            try:
                await self._store.force()
                self.tell()
            except StoreUnavailable as error:
                log.error("the progress of transactions isn't saved; the next start reads more: %s", error)


def _size(offset: int) -> int:
    return len(f"{offset}{OP_SEPARATOR}")
