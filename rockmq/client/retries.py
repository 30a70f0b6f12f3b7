"""When a refused message comes again: delay levels of brokers, and pauses that grow.

A broker can hold a refused message back for one of 18 times only (`messageDelayLevel`, in its default table). A wish in
seconds gets the nearest of these that isn't shorter, and 2 h at most.
"""

import random
from bisect import bisect_left
from collections.abc import Callable
from datetime import timedelta

from rockmq.base.errors import ClientError

LEVEL_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Of level 1, 2, ..."""

DEAD_LETTER = -1
"""The level by which a broker makes a message a dead letter at once."""

Retry = Callable[[int], float]
"""From the number of deliveries before this one to the seconds until the next."""


def seconds(delay: float | timedelta) -> float:
    """Raises ClientError for what is no time to wait."""
    wanted = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not 0 <= wanted < float("inf"):
        raise ClientError(f"a message can't be delivered again after {wanted} s: expected 0 or more")
    return wanted


def level_of(wanted: float) -> int:
    """The delay level nearest to so many seconds that isn't shorter, or else the longest."""
    return min(bisect_left(LEVEL_SECONDS, wanted) + 1, len(LEVEL_SECONDS))


def seconds_of(level: int) -> float:
    """How long the broker waits at a level of 1 or more; those over the last are like it."""
    return LEVEL_SECONDS[min(level, len(LEVEL_SECONDS)) - 1]


def backoff(first: float, most: float, *, jitter: bool = False) -> Retry:
    """`first` seconds after the first failure, twice as many after each further one, up to `most`. With `jitter` it is some
    time between half of that and all of it."""
    if not 0 < first <= most:
        raise ClientError(f"backoff({first}, {most}) makes no sense: expected 0 < first <= most")

    def pause(deliveries_before: int) -> float:
        wanted = min(first * 2.0 ** min(deliveries_before, 64), most)
        return wanted * random.uniform(0.5, 1.0) if jitter else wanted

    return pause
