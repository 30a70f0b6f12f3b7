"""Power cuts at every point of a random load: nothing acknowledged is lost, nothing comes to be (see CONTRIBUTING.md).

ROCKMQ_CRASH_IMAGES is how many images of the disk to recover, ROCKMQ_CRASH_SEED the case to run, ROCKMQ_CRASH_POINT the
point of it.
"""

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.points import syscalls
from tests.crash.points.run import Case, Worker

IMAGES = int(os.environ.get("ROCKMQ_CRASH_IMAGES", "5000"))
SEED = os.environ.get("ROCKMQ_CRASH_SEED")
POINT = os.environ.get("ROCKMQ_CRASH_POINT")


@pytest.fixture
def process() -> Iterator[Worker]:
    if not syscalls.NUMBERS:
        pytest.skip("power cuts at system calls: needs Linux on x86-64 or ARM")
    started = Worker()
    yield started
    started.close()


@pytest.fixture
def scratch() -> Iterator[Path]:
    """In memory: images are many, and their syncs cost nothing there."""
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="rockmq-crash-", dir=memory if os.access(memory, os.W_OK) else None))
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_a_power_cut_loses_nothing_acknowledged(process: Worker, scratch: Path) -> None:
    left = IMAGES
    first = int(SEED) if SEED is not None else random.randrange(1 << 32)
    seed, points, began = first, 0, time.monotonic()

    def count() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    print(f"first seed {first}")
    while left > 0:
        case = Case(seed, scratch, count, int(POINT) if POINT is not None else None)
        case.run(process)
        points += case.point
        seed += 1
        if SEED is not None:
            break
    print(f"{IMAGES - max(left, 0)} images of {points} points, seeds {first} … {seed - 1}, {time.monotonic() - began:.1f} s")
