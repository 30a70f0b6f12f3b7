"""How much memory there is for the page cache (StoreUtil.TOTAL_PHYSICAL_MEMORY_SIZE)."""

import os
from functools import cache
from pathlib import Path

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where a container finds how much of the machine's memory is its own: with control groups of version 2 and 1."""


@cache
def size() -> int:
    """Bytes that the machine has, or this container may use: its page cache counts as its own."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for path in _LIMITS:
        text = path.read_text().strip() if path.exists() else ""
        if text.isdigit():
            found.append(int(text))
    return min(found)
