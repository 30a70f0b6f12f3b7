"""The format `rockmq` for streaming writes, which Spark has with Arrow from 4.1 on (`rockmq.spark.writer`)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from rockmq.spark.writer import Writer

if TYPE_CHECKING:
    import pyarrow as pa


class StreamWriter(Writer, DataSourceStreamArrowWriter):
    """Writes the batches of a query; one that comes again sends what is missing."""

    def write(self, batches: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query, batch = (context.getLocalProperty(key) for key in ("sql.streaming.queryId", "streaming.sql.batchId"))
        assert query is not None
        assert batch is not None
        return self.write_rows(query, batch, batches)

    def commit(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        self.all_written(messages)

    def abort(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        self.some_failed(messages)
