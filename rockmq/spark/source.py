"""The format `rockmq` for reads and writes, of batches and streams: a Python data source (spark spec, section 1).

Spark makes the source in one process, plans in a second and reads in others; between them everything is pickled, so a
source and a reader hold options and no connection.

What reads and writes is imported where it is asked for: in most of these processes nothing is, and each begins with the
imports.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql.datasource import DataSource

from rockmq.base.errors import NotSupported
from rockmq.spark import schema as columns
from rockmq.spark.options import check_read, convert, parse
from rockmq.spark.stream_options import StreamOptions, check_batch, parse_stream
from rockmq.spark.write_options import parse_write

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


class RockMQSource(DataSource):
    """Topics as tables, tables as messages.

    Options and columns: `ReadOptions`, `StreamOptions` and `rockmq.spark.schema.COLUMNS`; `WriteOptions` and
    `rockmq.spark.write_columns.COLUMNS`.
    """

    @classmethod
    def name(cls) -> str:
        return "rockmq"

    def schema(self) -> str:
        # A wrong option shall fail at load(), not at the first action; whether of a batch or a stream isn't known here.
        options = convert(StreamOptions, self.options)
        check_read(options)
        return columns.ddl(options)

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from rockmq.spark.batch_reader import BatchReader

        check_batch(self.options)
        options, projected = parse(self.options), columns.project(schema)
        if not options.push_filters:
            return BatchReader(options, projected)
        with _since("4.1", "option 'pushFilters' needs"):
            from rockmq.spark.pushdown import PushdownReader
        return PushdownReader(options, projected)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        options, projected = parse_stream(self.options), columns.project(schema)
        with _since("4.2", "streaming reads need"):  # pyspark.sql.streaming.datasource
            from rockmq.spark.stream_reader import StreamReader
        return StreamReader(options, projected)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from rockmq.spark.writer import BatchWriter

        return BatchWriter(schema, parse_write(self.options, streaming=False), overwrite)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        options = parse_write(self.options, streaming=True)
        with _since("4.1", "streaming writes need"):  # DataSourceStreamArrowWriter
            from rockmq.spark.stream_writer import StreamWriter
        return StreamWriter(schema, options, overwrite)


@contextlib.contextmanager
def _since(version: str, what: str) -> Iterator[None]:
    """Raises NotSupported when what is imported needs what this PySpark hasn't got yet."""
    try:
        yield
    except ImportError as error:
        if not (error.name or "").startswith("pyspark."):
            raise
        raise NotSupported(f"{what} Spark {version} or later, this is {pyspark.__version__}") from None
