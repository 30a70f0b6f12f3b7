"""Opening what is there: where to begin reading the log, and telling whoever waits how far that is.

What a recovery reads is bounded by what wasn't surely on disk before, not by the size of the log (store spec, 4.1). The
core does the reading, and goes back further by itself for queues that have lost entries.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rockmq.store.checkpoint import Checkpoint

log = logging.getLogger(__name__)

PROGRESS_SECONDS = 2.0
"""How long opening may take before something is said about it, and then between two lines."""
GIB = 1 << 30


def start(files: list[tuple[int, int]], checkpoint: Checkpoint, *, was_killed: bool, now: int) -> int:
    """Where to read the log from; `files` are (first position, store time of the first record or -1), `now` is in ms.

    A checkpoint of ours tells a position below which everything was on disk, so that no clock has a say; that the log still
    reaches up to there the core finds out. One of Apache's tells a time, which is all there is after a kill, and a time that
    is yet to come vouches for nothing: then it is the newest file whose first record is older.
    """
    first = files[0][0] if files else 0
    if checkpoint.position is not None:
        return max(checkpoint.position, first)
    if was_killed:
        bound = checkpoint.safe if checkpoint.safe <= now else 0
        safe = [position for position, stored in files if 0 < stored <= bound]
    else:
        safe = [position for position, stored in files if stored >= 0]
    return max(safe, default=first)


async def telling(opening: Awaitable[None], progress: Callable[[], tuple[int, int]]) -> None:
    """Wait for `opening`, with a line about its `progress` (bytes read, bytes in all) every `PROGRESS_SECONDS`."""
    task = asyncio.ensure_future(opening)
    try:
        while not (await asyncio.wait([task], timeout=PROGRESS_SECONDS))[0]:
            read, total = progress()
            log.info("recovering: %.1f of %.1f GiB of log read", read / GIB, total / GIB)
        await task
    finally:
        task.cancel()
