"""The format `rockmq` for writes: what Spark calls, and when (spark spec, 1.2 and 6).

    planning process, for each micro-batch anew     writer made: options checked, the ledger's id, a run of its own
    executors, on a pickled copy                    write(): one task for each partition
    driver's commit process                         commit(): the batch is done and its rows are not sent again

`delivery=fenced`, the default with a ledger: each row once, over failed tasks, kills and replays. `atLeastOnce`: what a
failure leaves in doubt is sent again. `transactional`: nobody sees any row of a batch before all are stored.

The client is imported where rows are sent: who plans or commits needs none, and begins in a third of the time without.
"""

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from rockmq.base.errors import ConfigError
from rockmq.spark.ledger import Attempt, Done, Ledger, Work, identify
from rockmq.spark.worker import settle
from rockmq.spark.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_JOB = "job"
"""What stands for the number of the batch in a batch job, which is one."""


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver: whose rows, and what became of them."""

    work: Work
    done: Done


class Writer:
    """What both kinds of writers have in common."""

    def __init__(self, schema: "StructType", options: WriteOptions, overwrite: bool) -> None:
        from rockmq.spark.write_columns import check_schema

        if overwrite:
            raise ConfigError("a topic can only be appended to: expected mode('append'), or outputMode append or update")
        check_schema(schema, options)
        self._options = options
        self._run = uuid.uuid4().hex
        self._ledger = identify(Path(options.ledger)) if options.ledger else ""

    def write_rows(self, scope: str, batch: str, batches: "Iterator[pa.RecordBatch]") -> Written:
        from rockmq.spark.write_task import write

        settle()
        context = TaskContext.get()
        assert context is not None
        attempt = Attempt(context.partitionId(), self._run, context.taskAttemptId())
        work = Work(self._options, scope, batch, attempt, self._ledger)
        return Written(work, write(work, batches))

    def all_written(self, messages: "Sequence[WriterCommitMessage | None]") -> Ledger | None:
        written = [message for message in messages if isinstance(message, Written)]
        if not written or not self._ledger:
            return None
        notes = written[0].work.notes()
        if notes.done() is not None:
            return notes
        if self._options.transactional:
            from rockmq.spark import halves

            sent = {str(each.work.attempt): each.done.sent for each in written}
            asyncio.run(halves.deliver(self._options, notes, sent))
        done = [message.done for message in written]
        notes.mark_done(
            Done(
                rows=sum(each.rows for each in done),
                sent=sum(each.sent for each in done),
                found=sum(each.found for each in done),
                bad=sum(each.bad for each in done),
            )
        )
        return notes

    def some_failed(self, messages: "Sequence[WriterCommitMessage | None]") -> None:
        """What is fenced stays: a replay reads it back. What is in transactions is taken back as far as it is known."""
        written = [message for message in messages if isinstance(message, Written)]
        if written and self._options.transactional:
            from rockmq.spark import halves

            asyncio.run(halves.give_up(self._options, written[0].work.notes()))


class BatchWriter(Writer, DataSourceArrowWriter):
    """Writes a DataFrame once; a job that is done again under its `jobId` sends what is missing."""

    def __init__(self, schema: "StructType", options: WriteOptions, overwrite: bool) -> None:
        super().__init__(schema, options, overwrite)
        self._job = options.job_id or self._run

    def write(self, batches: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return self.write_rows(self._job, _JOB, batches)

    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        notes = self.all_written(messages)
        if notes is not None:
            self._forget()

    def abort(self, messages: "list[WriterCommitMessage | None]") -> None:
        self.some_failed(messages)
        self._forget()

    def _forget(self) -> None:
        """Nobody comes back under the id of a run."""
        if self._ledger and not self._options.job_id:
            Ledger(Path(self._options.ledger), self._job, _JOB).forget()
