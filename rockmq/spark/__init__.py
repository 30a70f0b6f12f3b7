"""RockMQ and Apache Spark: the data source `rockmq`, a session helper and the archive (spark spec, sections 1 to 4).

    from rockmq.spark import spark_session

    spark = spark_session("orders")
    orders = spark.read.format("rockmq").option("nameServer", "localhost:9876").option("topic", "orders").load()

`pyspark_rockmq` makes the format known to Spark; nothing needs to be imported for it. PySpark comes with
`pip install 'rockmq[spark]'`; without it this package can be imported and says so when a session is asked for.
"""

from rockmq.spark.session import spark_session

__all__ = ["spark_session"]
