"""How much memory there is for the page cache (StoreUtil.TOTAL_PHYSICAL_MEMORY_SIZE)."""

import os
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

_OWN_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


@cache
def size() -> int:
    """Bytes that the machine has, or this container or service may use: its page cache counts as its own."""
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_limits()])


def _limits() -> Iterator[int]:
    """What the process' control group and those above it may use. In a container the path is that of the host, or `/`; the
    limit is where the mount begins then."""
    for directory, path, names in _groups():
        group = directory / path.lstrip("/")
        for each in (group, *group.parents):
            if not each.is_relative_to(directory):
                break
            for name in names:
                with suppress(OSError):  # there is no such group, or it has no limit of this kind
                    text = (each / name).read_text().strip()
                    if text.isdigit():  # and not `max`
                        yield int(text)


def _groups() -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """Where the files of a hierarchy are, the path of the process' group in it, and files that hold limits."""
    with suppress(OSError):  # a system without control groups
        for line in _OWN_GROUPS.read_text().splitlines():
            _number, controllers, path = line.split(":", 2)
            if not controllers:  # version 2
                yield _MOUNT, path, ("memory.max", "memory.high")
            elif "memory" in controllers.split(","):
                yield _MOUNT / "memory", path, ("memory.limit_in_bytes",)
