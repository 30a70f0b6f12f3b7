"""Power cuts at every point of a random load: nothing acknowledged is lost, nothing comes to be (see CONTRIBUTING.md).

ROCKMQ_CRASH_IMAGES is how many images of the disk to recover, ROCKMQ_CRASH_SEED the case to run.
"""

import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.crash.points import checker, documents, syscalls
from tests.crash.points.history import History
from tests.crash.points.load import LOG_FILE, TWO
from tests.crash.points.run import Case, Kind, Worker

IMAGES = int(os.environ.get("ROCKMQ_CRASH_IMAGES", "5000"))
SEED = os.environ.get("ROCKMQ_CRASH_SEED")
KINDS: list[tuple[Kind[Any], float]] = [
    (Kind("core", lambda: History(LOG_FILE), checker.check), 0.4),
    (Kind("spread", lambda: History(LOG_FILE), partial(checker.check, directories=TWO)), 0.1),
    (Kind("store", lambda: History(LOG_FILE), checker.check_store), 0.3),
    (Kind("documents", documents.Tables, documents.check), 0.2),
]
"""With the part of the images that each gets."""


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


@pytest.mark.parametrize(("kind", "share"), KINDS, ids=[kind.name for kind, _ in KINDS])
def test_a_power_cut_loses_nothing_acknowledged(process: Worker, scratch: Path, kind: Kind[Any], share: float) -> None:
    images = left = round(IMAGES * share)
    first = int(SEED) if SEED is not None else random.randrange(1 << 32)
    seed, points, began = first, 0, time.monotonic()

    def count() -> bool:
        nonlocal left
        left -= 1
        return left >= 0

    print(f"first seed {first}")
    while left > 0:
        case = Case(kind, seed, scratch, count)
        case.run(process)
        points += case.point
        seed += 1
        if SEED is not None:
            break
    taken = images - max(left, 0)
    print(f"{kind.name}: {taken} images of {points} points, seeds {first} … {seed - 1}, {time.monotonic() - began:.1f} s")
