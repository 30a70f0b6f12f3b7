"""`rockmq send`"""

import asyncio
import itertools
import json as jsonlib
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import BinaryIO

import typer

from rockmq.base.errors import ClientError
from rockmq.client import Message, SendReceipt, environment
from rockmq.config import properties as pairs

GROUP = "rockmq-cli"
IN_FLIGHT_MAX = 64
LINES_WAITING_MAX = 1_000


def run(
    namesrv: str,
    topic: str,
    body: str | None,
    *,
    tag: str | None,
    key: str | None,
    properties: Sequence[str],
    count: int,
    json: bool,
) -> int:
    """Send BODY `count` times, or each line of standard input."""
    given = pairs.arguments(properties)
    if body is None and sys.stdin.isatty():
        raise ClientError("nothing to send: give a BODY, or - to send each line of standard input")
    from_stdin = body is None or body == "-"
    if from_stdin and count != 1:
        raise ClientError("--count repeats a BODY; the lines of standard input are sent once each")
    template = Message(topic, b"", tag=tag, keys=key or (), properties=given)
    bodies = lines(sys.stdin.buffer) if from_stdin else _repeated((body or "").encode(), count)
    return asyncio.run(_send(namesrv, template, bodies, json=json))


async def _send(namesrv: str, template: Message, bodies: AsyncIterator[bytes], *, json: bool) -> int:
    say = _say_json if json else _say
    started = time.monotonic()
    sent = 0
    under_way: deque[asyncio.Task[SendReceipt]] = deque()
    async with environment.client(namesrv) as mq, mq.producer(GROUP) as producer:
        try:
            async for body in bodies:
                message = Message(template.topic, body, template.tag, template.keys, template.properties)
                under_way.append(asyncio.create_task(producer.send(message)))
                # The first alone: that nobody is there, or nobody knows the topic, is said once and not 64 times.
                while len(under_way) >= (IN_FLIGHT_MAX if sent else 1):
                    say(await under_way.popleft())
                    sent += 1
            while under_way:
                say(await under_way.popleft())
                sent += 1
        finally:
            # After an error others may have been stored; who reads the output shall know of them.
            for receipt in await asyncio.gather(*under_way, return_exceptions=True):
                if isinstance(receipt, SendReceipt):
                    say(receipt)
                    sent += 1
    if sent != 1 and not json:
        typer.echo(f"{sent} messages in {time.monotonic() - started:.1f} s", err=True)
    return 0


def _say(receipt: SendReceipt) -> None:
    queue = receipt.queue
    note = "" if receipt.status == 0 else f"  ({receipt.status.meaning})"
    typer.echo(f"{receipt.msg_id}  queue {queue.queue_id} of {queue.broker_name}, offset {receipt.queue_offset}{note}")


def _say_json(receipt: SendReceipt) -> None:
    fields = {
        "msgId": receipt.msg_id,
        "offsetId": receipt.offset_id,
        "broker": receipt.queue.broker_name,
        "queueId": receipt.queue.queue_id,
        "queueOffset": receipt.queue_offset,
        "status": receipt.status.name,
    }
    typer.echo(jsonlib.dumps(fields))


async def _repeated(body: bytes, count: int) -> AsyncIterator[bytes]:
    for each in itertools.repeat(body, count):
        yield each


async def lines(file: BinaryIO) -> AsyncIterator[bytes]:
    """The lines of a file that may be slow (a terminal, a pipe), while the event loop goes on. Empty ones are left out,
    as a message needs a body."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
    room = threading.Semaphore(LINES_WAITING_MAX)

    def read() -> None:
        for raw in file:
            if line := raw.rstrip(b"\r\n"):
                room.acquire()
                loop.call_soon_threadsafe(waiting.put_nowait, line)
        loop.call_soon_threadsafe(waiting.put_nowait, None)

    # A daemon, since nothing can wake it from a read when the command ends for another reason.
    threading.Thread(target=read, name="standard input", daemon=True).start()
    while (line := await waiting.get()) is not None:
        room.release()
        yield line
