"""What a Python worker of Spark's does once, with its first task of ours: without it, upkeep takes longer than the work.

Spark's daemon collects garbage after every task, before the worker takes the next one, and looks at a hundred thousand
objects of imported modules then: some 40 ms, where a task of a small micro-batch takes 10. And glibc gives the memory of a
batch back to the system as soon as it is free: taking it anew for the next one, page by page, costs more than to encode it.
"""

import ctypes
import functools
import gc

KEPT_BYTES = 64 << 20
"""So much memory, once needed, is kept for the next batch."""
_LARGE_BYTES = 32 << 20
"""From this size on memory is taken from the system for itself; glibc allows no more."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of glibc's malloc.h."""


@functools.cache
def settle() -> None:
    gc.collect()
    gc.freeze()
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
