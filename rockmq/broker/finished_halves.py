"""What is told of finished half messages: op messages, and the progress behind them (TransactionalOpBatchService.java).

The core keeps what is untold, and writes an op message when there is enough for one; the rest comes with `flush`, every
`transactionOpBatchInterval` and at the stop. The progress is saved when all that it relies on is forced, also with async
flush: the next start reads from it.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from rockmq.base.errors import StoreUnavailable
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.half_messages import finished_in
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.protocol import codec, topics
from rockmq.store.message_store import MessageStore

if TYPE_CHECKING:
    from rockmq import _core

log = logging.getLogger(__name__)

READ_COUNT = 32
READ_BYTES = 1 << 20


class FinishedHalves:
    """Tells which half messages of `table` are finished."""

    def __init__(
        self, store: MessageStore, table: "_core.Transactions", gate: DurabilityGate, offsets: ConsumerOffsets
    ) -> None:
        self._store = store
        self._table = table
        self._gate = gate
        self._offsets = offsets
        self._progress = (0, 0)
        """(half, op): offsets below which nothing is of interest, as they are saved."""
        self._waiting: tuple[int, int, int] | None = None
        """(position, half, op): progress that is saved when the log is on disk up to there; one at a time."""

    async def load(self) -> tuple[int, int, set[int]]:
        """(progress, end) of the half messages' queue, and which from there on are finished."""
        half_begin, half_end = self._left(topics.TRANSACTION_HALF)
        op_begin, op_end = self._left(topics.TRANSACTION_OP)
        self._progress = (half_begin, op_begin)
        done: set[int] = set()
        offset = op_begin
        while offset < op_end:
            result = self._store.get(topics.TRANSACTION_OP, 0, offset, READ_COUNT, READ_BYTES, None)
            for found in codec.decode_records(b"".join(result.buffers)):
                said = finished_in(found)
                # Whatever a damaged record says of itself.
                self._table.note_told(max(found[4], offset), max(said, default=0))
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

    def flush(self) -> None:
        """As `tell`; what the store doesn't take now is tried again by the next call."""
        try:
            self.tell()
        except StoreUnavailable as error:
            log.warning("%d finished transactions aren't noted as finished yet: %s", self._table.untold, error)

    def tell(self) -> None:
        """Write op messages of all that is untold, and save the progress. Raises StoreUnavailable."""
        end, watched = self._store.tell_finished(self._table)
        if end:
            self._store.request_flush()
        if watched:
            self._gate.wake_when_durable(topics.TRANSACTION_OP, 0, end)
        self._save_progress()

    def _save_progress(self) -> None:
        self._settle()
        half, op = self._table.progress
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
