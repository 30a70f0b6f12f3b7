"""RockMQ's source and sink for Spark beside Spark's own for Kafka: `python benchmarks/spark.py [--quick] [--rows a,b]`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.support import others

if __name__ == "__main__":
    others.have_pyspark()
    from benchmarks.support.spark import main

    sys.exit(main())
