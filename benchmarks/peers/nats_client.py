"""nats-py on JetStream, with a stream in files; pipelined publishes by `publish_async`."""

import asyncio
from collections import deque
from typing import Any

import nats
from nats.aio.msg import Msg
from nats.js.api import ConsumerConfig, DeliverPolicy, StorageType

from benchmarks.peers import meter
from benchmarks.peers.meter import BODY, LOOK_EVERY, WARMUP_SECONDS, WINDOW, Meter, Task

FILL = 512


async def send(task: Task) -> None:
    connection = await nats.connect(task.server)
    stream = connection.jetstream(publish_async_max_pending=2 * WINDOW)
    await stream.add_stream(name=task.topic, subjects=[task.topic], storage=StorageType.FILE)
    watch, count, measured = Meter(), 0, False
    waiting: deque[asyncio.Future[Any]] = deque()
    watch.start()
    while True:
        if len(waiting) >= WINDOW:
            await waiting.popleft()
            count += 1
            if count % LOOK_EVERY == 0 and watch.seconds >= (task.amount if measured else WARMUP_SECONDS):
                if measured:
                    break
                measured, count = True, 0
                watch.start()
        waiting.append(await stream.publish_async(task.topic, BODY))
    watch.tell(count)
    await asyncio.gather(*waiting)
    await connection.close()


async def consume(task: Task) -> None:
    connection = await nats.connect(task.server)
    stream = connection.jetstream(publish_async_max_pending=2 * FILL)
    await stream.add_stream(name=task.topic, subjects=[task.topic], storage=StorageType.FILE)
    for at in range(0, task.amount, FILL):
        await asyncio.gather(*[await stream.publish_async(task.topic, BODY) for _ in range(min(FILL, task.amount - at))])
    done = asyncio.Event()
    watch, count = Meter(), 0

    async def handle(message: Msg) -> None:
        nonlocal count
        if count == 0:
            watch.start()
        count += 1
        if count == task.amount:
            watch.tell(count - 1)
            done.set()

    # The handler is called one message after the other, and each is acknowledged after it.
    config = ConsumerConfig(deliver_policy=DeliverPolicy.ALL, max_ack_pending=4096)
    await stream.subscribe(task.topic, durable="bench", cb=handle, config=config)
    await done.wait()
    await connection.close()


async def latency(task: Task) -> None:
    arrived = asyncio.Event()

    async def handle(message: Msg) -> None:
        arrived.set()

    connection = await nats.connect(task.server)
    stream = connection.jetstream()
    await stream.add_stream(name=task.topic, subjects=[task.topic], storage=StorageType.FILE)
    await stream.subscribe(task.topic, durable="bench", cb=handle)
    await meter.rounds(lambda: stream.publish(task.topic, BODY), arrived, task.amount)
    await connection.close()


if __name__ == "__main__":
    meter.main({"send": send, "consume": consume, "latency": latency})
