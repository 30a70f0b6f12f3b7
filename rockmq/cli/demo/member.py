"""A member of the group, as a process: consumes orders and notes each in a file before it acknowledges it.

Started by `Member`, with name server, topic, group and file as arguments; it ends when its standard input does, so that
none outlives the demo. A line of the file is `broker,queue,offset,order`.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from rockmq.cli import logs
from rockmq.cli.demo import orders
from rockmq.cli.demo.reconcile import Queue, Row
from rockmq.client import Client, Consumer

FETCH = 256
STOP_TIMEOUT = 20.0


class Member:
    """The demo's side of a member."""

    def __init__(self, name: str, namesrv: str, ledger: Path, log: Path) -> None:
        self.name = name
        self.ledger = ledger
        self.lines = 0
        self._read = 0
        ledger.touch()
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rockmq.cli.demo.member", namesrv, orders.TOPIC, orders.GROUP, str(ledger)],
                stdin=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def news(self) -> Iterator[Row]:
        """What it consumed since the last call."""
        with self.ledger.open("rb") as file:
            file.seek(self._read)
            whole, newline, _ = file.read().rpartition(b"\n")  # what is behind the last line end is being written
        self._read += len(whole) + len(newline)
        for line in whole.decode().splitlines():
            self.lines += 1
            broker, queue_id, offset, order = line.split(",")
            yield Row(Queue(broker, int(queue_id)), int(offset), int(order))

    def stop(self) -> int:
        """Let it commit and leave; its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


async def consume(namesrv: str, topic: str, group: str, ledger: Path) -> None:
    """Consume until standard input ends."""
    parent = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(parent), sys.stdin)
    with ledger.open("a") as file:
        async with Client(namesrv) as mq, mq.consumer(group, [topic], from_where="first") as consumer:
            work = asyncio.create_task(_work(consumer, file))
            stop = asyncio.create_task(parent.read())
            await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work  # it ends by an exception only
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


async def _work(consumer: Consumer, file: TextIO) -> None:
    while messages := await consumer.fetch(FETCH, None):
        for message in messages:
            queue = message.queue
            file.write(f"{queue.broker_name},{queue.queue_id},{message.queue_offset},{orders.number(message.body)}\n")
        file.flush()
        for message in messages:
            await message.ack()


if __name__ == "__main__":
    logs.to_stderr(1)
    asyncio.run(consume(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4])))
