"""What a process has of everything, as time goes by."""

import asyncio
import gc
import os
import resource
import sys
from dataclasses import astuple, dataclass, fields


@dataclass(frozen=True)
class Figures:
    rss_kib: int
    blocks: int
    """Of Python's allocator: texts and numbers too, which are no objects to the collector."""
    objects: int
    tasks: int
    files: int
    sockets: int

    @classmethod
    def now(cls) -> "Figures":
        gc.collect()
        with open("/proc/self/statm") as statm:
            pages = int(statm.read().split()[1])
        descriptors = os.listdir("/proc/self/fd")
        return cls(
            pages * resource.getpagesize() // 1024,
            sys.getallocatedblocks(),
            len(gc.get_objects()),
            len(asyncio.all_tasks()),
            len(descriptors),
            sum(_is_socket(each) for each in descriptors),
        )


def floor(figures: list[Figures]) -> Figures:
    """The least of each: what comes and goes isn't in it, what is never given back is."""
    return Figures(*(min(values) for values in zip(*map(astuple, figures), strict=True)))


def growth(before: Figures, after: Figures) -> dict[str, int]:
    return {each.name: getattr(after, each.name) - getattr(before, each.name) for each in fields(Figures)}


def _is_socket(descriptor: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:")
    except OSError:  # the one of the directory itself
        return False
