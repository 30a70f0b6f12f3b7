"""Keep the topic `orders` as Parquet files in ./archive and look at them. Run it again: it adds what came since."""

import os

from rockmq.pipeline.archive import archive
from rockmq.spark import session

NAMESRV = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")

spark = session("archive")
written = archive(spark, NAMESRV, "orders", "archive")
print(f"{written.rows} messages archived in {len(written.files)} files")
spark.read.parquet(str(written.root)).groupBy("tags").count().show()
spark.stop()
