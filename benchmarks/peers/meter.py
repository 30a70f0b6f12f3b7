"""What all the Python clients are measured by: the work, and the figures of this process."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

BODY = b"x" * 128
WINDOW = 1024
"""Sends that wait for their acknowledgement at a time."""
LOOK_EVERY = 64
"""Acknowledgements between two looks at the clock."""
QUEUES = 4
WARMUP_SECONDS = 2.0
WARMUP_ROUNDS = 300
FILL_MESSAGES = 20_000
"""Messages that are written together when a topic is filled."""


@dataclass(frozen=True)
class Task:
    """What the parent wants: `server` is an address, `topic` is new, `amount` are seconds, messages or rounds."""

    row: str
    server: str
    topic: str
    amount: int
    variant: str


class Meter:
    """Wall-clock and CPU time of this process, all its threads, from `start` to `tell`."""

    def start(self) -> None:
        self._began, self._cpu = time.perf_counter(), time.process_time()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def tell(self, messages: int, latencies: list[float] | None = None) -> None:
        """Print the figures; latencies are seconds."""
        seconds, cpu = self.seconds, time.process_time() - self._cpu
        found = {"messages": messages, "seconds": seconds, "cpu_seconds": cpu}
        if latencies:
            latencies.sort()
            found |= {"p50_us": latencies[len(latencies) // 2] * 1e6, "p99_us": latencies[len(latencies) * 99 // 100] * 1e6}
        print(json.dumps(found), flush=True)


async def rounds(send: Callable[[], Awaitable[object]], arrived: "asyncio.Event", count: int) -> None:
    """One message at a time, from the call of `send` to the handler, which sets `arrived`."""
    meter, latencies = Meter(), []
    for number in range(WARMUP_ROUNDS + count):
        if number == WARMUP_ROUNDS:
            meter.start()
        arrived.clear()
        began = time.perf_counter()
        sending = asyncio.ensure_future(send())
        await arrived.wait()
        if number >= WARMUP_ROUNDS:
            latencies.append(time.perf_counter() - began)
        await sending
    meter.tell(count, latencies)


def task() -> Task:
    """That of the command line."""
    row, server, topic, amount, variant = sys.argv[1:]
    return Task(row, server, topic, int(amount), variant)


def main(rows: dict[str, Callable[[Task], Coroutine[Any, Any, None]]]) -> None:
    """Do the row of the command line, on uvloop."""
    import uvloop

    wanted = task()
    uvloop.run(rows[wanted.row](wanted))
