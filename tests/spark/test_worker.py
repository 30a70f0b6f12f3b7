"""What a Python worker of Spark's does once."""

import subprocess
import sys

PROGRAM = """
import ctypes, gc, resource, sys
import rockmq.spark.batch_reader
from rockmq.spark.worker import settle
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        batch = [b"x" * (8 << 20) for _ in range(4)]
        del batch
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
settle()
known = len(gc.get_objects())
assert gc.get_freeze_count() > 10 * known, (gc.get_freeze_count(), known)
settle()
assert gc.get_freeze_count() > 10 * known
faults()
if hasattr(ctypes.CDLL(None), "mallopt"):
    found = faults()
    assert found < 5 * (32 << 20) / 4096 / 4, found
"""


def test_garbage_is_looked_for_in_what_is_new_and_memory_is_used_again() -> None:
    """Looked at where nothing else runs: it is for the whole process."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
