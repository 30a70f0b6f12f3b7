"""Where inputs become files."""

import logging
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture
def directory() -> Iterator[Path]:
    """In memory, as each input is a file. What is told of each isn't logged."""
    memory = Path("/dev/shm")
    logging.disable()
    with TemporaryDirectory(prefix="rockmq-fuzz-", dir=memory if memory.is_dir() else None) as path:
        yield Path(path)
    logging.disable(logging.NOTSET)
