"""A full page cache, as on any machine on which a broker has run for a while.

On a virtual machine the first touch of memory that the host hasn't given out yet costs about 4 us a page, four times what
the kernel needs for a page of its own. Which server pays that is luck. So free memory is filled with clean cache first:
pages of a sparse file, which the kernel takes back at once when somebody writes.
"""

import os
import re
import time
from pathlib import Path
from types import TracebackType
from typing import Self

FREE_LEFT = 600 << 20
CHUNK = 1 << 20
LIMIT_S = 20
SPARSE_SIZE = 1 << 43


class PageCache:
    """Reads forward in a file without blocks, so that each byte read takes new memory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "sparse"
        self._at = 0

    def __enter__(self) -> Self:
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._file, SPARSE_SIZE)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._file)
        self._path.unlink()

    def fill(self) -> float:
        """Leave little free, as far as that goes in `LIMIT_S`; the seconds it took."""
        start = time.monotonic()
        buffer = bytearray(CHUNK)
        while (missing := _free() - FREE_LEFT) > 0 and time.monotonic() - start < LIMIT_S:
            for _ in range(max(1, min(missing, 256 * CHUNK) // CHUNK)):
                self._at += os.preadv(self._file, [buffer], self._at % SPARSE_SIZE)
        return time.monotonic() - start


def _free() -> int:
    found = re.search(r"^MemFree:\s*(\d+)", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) << 10 if found else 0
