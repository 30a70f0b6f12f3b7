"""What Spark's driver does with a write, without Spark."""

import pickle
import subprocess
import sys
from pathlib import Path

from pyspark.sql.types import BinaryType, StructField, StructType

from rockmq.spark.ledger import Attempt, Done, Ledger, Work, identify
from rockmq.spark.write_options import WriteOptions
from rockmq.spark.writer import BatchWriter, Written

SCHEMA = StructType([StructField("body", BinaryType())])


def test_who_plans_or_commits_loads_no_client(tmp_path: Path) -> None:
    """Spark has a process for each, which does nothing before its imports are done."""
    options = WriteOptions(name_server="a:1", topic="orders", ledger=str(tmp_path))
    writer = BatchWriter(SCHEMA, options, False)
    written = Written(Work(options, "job", "job", Attempt(0, "run", 0), identify(tmp_path)), Done(1, 1, 0, 0))
    (tmp_path / "pickled").write_bytes(pickle.dumps((writer, written)))
    program = """
import pickle, sys
import pyspark_rockmq
with open(sys.argv[1], "rb") as file:
    writer, written = pickle.load(file)
writer.commit([written])
print([name for name in sys.modules if name.startswith("rockmq.client")])
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "pickled")], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_a_job_that_failed_leaves_notes_if_somebody_can_come_back_for_them(tmp_path: Path) -> None:
    for job in ("", "load"):
        options = WriteOptions(name_server="a:1", topic="orders", ledger=str(tmp_path), job_id=job)
        writer = BatchWriter(SCHEMA, options, False)
        notes = Ledger(tmp_path, writer._job, "job")
        notes.open(identify(tmp_path))
        notes.fence("orders", Attempt(0, "run", 0), {})

        writer.abort([None])

    assert sorted(path.name for path in tmp_path.iterdir()) == ["ledger.json", "load"]
