"""The format `rockmq` for `spark.read`: a Python data source (spark spec, section 1).

Spark makes the source in one process, plans in a second and reads in others; between them everything is pickled, so a
source and a reader hold options and no connection.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader

from rockmq.base.errors import NotSupported
from rockmq.spark import schema as columns
from rockmq.spark.batch_reader import BatchReader
from rockmq.spark.options import parse

if TYPE_CHECKING:
    from typing import NoReturn

    from pyspark.sql.types import StructType


class RockMQSource(DataSource):
    """Topics as tables. Options and columns: `rockmq.spark.options.ReadOptions`, `rockmq.spark.schema.COLUMNS`."""

    @classmethod
    def name(cls) -> str:
        return "rockmq"

    def schema(self) -> str:
        parse(self.options)  # a wrong option shall fail at load(), not at the first action
        return columns.DDL

    def reader(self, schema: "StructType") -> DataSourceReader:
        return BatchReader(parse(self.options), columns.project(schema))

    def streamReader(self, schema: "StructType") -> "NoReturn":
        raise NotSupported("streaming reads aren't built yet; spark.read.format('rockmq') reads batches")

    def writer(self, schema: "StructType", overwrite: bool) -> "NoReturn":
        raise NotSupported("writing isn't built yet; send with rockmq.client")

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "NoReturn":
        raise NotSupported("writing isn't built yet; send with rockmq.client")
