"""How fast a task's rows go, when the write says so."""

from collections.abc import Iterator

import pyarrow as pa

from rockmq.base.clock import Clock, sleep

PART_SECONDS = 0.1
"""Rows go in parts of so long, so that they come evenly."""


class Pace:
    """At most so many rows a second, 0 for as many as there are. Time in which nothing came isn't made up for."""

    def __init__(self, clock: Clock, rows_per_second: float) -> None:
        self._clock = clock
        self._rate = rows_per_second
        self._free = 0.0
        """When the next part may go."""

    def parts(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """A batch in parts, each to be sent when it is its `turn`."""
        size = max(1, int(self._rate * PART_SECONDS)) if self._rate else batch.num_rows
        if batch.num_rows <= size:
            yield batch
            return
        for at in range(0, batch.num_rows, size):
            yield batch.slice(at, size)

    async def turn(self, rows: int) -> None:
        """Wait until that many rows may go."""
        if not self._rate:
            return
        now = self._clock.monotonic()
        wait = self._free - now
        self._free = max(self._free, now) + rows / self._rate
        if wait > 0:
            await sleep(self._clock, wait)
