"""RockMQ and Apache Spark: the data source `rockmq`, a session helper, and offsets of streaming queries for consumer groups
(spark spec, sections 1 to 3 and 6).

    from rockmq.spark import session

    spark = session("orders")
    orders = spark.read.format("rockmq").option("nameServer", "localhost:9876").option("topic", "orders").load()

`pyspark_rockmq` makes the format known to Spark; nothing needs to be imported for it. PySpark comes with
`pip install 'rockmq[spark]'`; without it this package can be imported and says so when a session is asked for.
"""

from typing import TYPE_CHECKING

from rockmq.spark.start import session

if TYPE_CHECKING:
    from rockmq.spark.group_offsets import commit_offsets

__all__ = ["commit_offsets", "session"]


def __getattr__(name: str) -> object:
    """What needs PySpark, when it is asked for."""
    if name == "commit_offsets":
        from rockmq.spark.group_offsets import commit_offsets

        return commit_offsets
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
