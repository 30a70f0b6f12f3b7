"""Makes `spark.read.format("rockmq")` known: Spark looks into every top-level module `pyspark_*` for a `DefaultSource`."""

from rockmq.spark.source import RockMQSource as DefaultSource

__all__ = ["DefaultSource"]
