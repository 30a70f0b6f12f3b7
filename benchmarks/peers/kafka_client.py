"""aiokafka on Kafka. Variants of `send`: its defaults, and `batches`, with `linger_ms` and `max_batch_size` raised."""

import asyncio
from collections import deque
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from benchmarks.peers import meter
from benchmarks.peers.meter import BODY, FILL_MESSAGES, LOOK_EVERY, QUEUES, WARMUP_SECONDS, WINDOW, Meter, Task

BATCHES: dict[str, Any] = {"linger_ms": 1, "max_batch_size": 64 * 1024}


async def create(task: Task) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=task.server)
    await admin.start()
    await admin.create_topics([NewTopic(task.topic, QUEUES, 1)])
    await admin.close()


def producer_of(task: Task) -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=task.server, acks=1, **(BATCHES if task.variant == "batches" else {}))


async def send(task: Task) -> None:
    await create(task)
    async with producer_of(task) as producer:
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
            waiting.append(await producer.send(task.topic, BODY))
        watch.tell(count)
        await asyncio.gather(*waiting)


async def handle(message: object) -> None:
    """The empty handler of a user."""


async def consume(task: Task) -> None:
    await create(task)
    async with AIOKafkaProducer(bootstrap_servers=task.server, acks=1, **BATCHES) as producer:
        for at in range(0, task.amount, FILL_MESSAGES):
            count = min(FILL_MESSAGES, task.amount - at)
            await asyncio.gather(*[await producer.send(task.topic, BODY) for _ in range(count)])
    watch, count = Meter(), 0
    async with AIOKafkaConsumer(
        task.topic, bootstrap_servers=task.server, group_id="bench", auto_offset_reset="earliest"
    ) as consumer:
        async for message in consumer:
            if count == 0:
                watch.start()
            await handle(message)
            count += 1
            if count == task.amount:
                break
        watch.tell(count - 1)


async def latency(task: Task) -> None:
    await create(task)
    arrived = asyncio.Event()
    async with (
        AIOKafkaProducer(bootstrap_servers=task.server, acks=1) as producer,
        AIOKafkaConsumer(
            task.topic, bootstrap_servers=task.server, group_id="bench", auto_offset_reset="earliest"
        ) as consumer,
    ):

        async def take() -> None:
            async for _ in consumer:
                arrived.set()

        taking = asyncio.create_task(take())
        await producer.send_and_wait(task.topic, BODY)
        await arrived.wait()
        await meter.rounds(lambda: producer.send_and_wait(task.topic, BODY), arrived, task.amount)
        taking.cancel()


if __name__ == "__main__":
    meter.main({"send": send, "consume": consume, "latency": latency})
