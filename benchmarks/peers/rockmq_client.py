"""RockMQ's client on RockMQ's broker. Variants: `one` sends each message in a request of its own, `linger` together
with what is sent in the same turn of the event loop."""

import asyncio
from collections import deque

from benchmarks.peers import meter
from benchmarks.peers.meter import BODY, FILL_MESSAGES, LOOK_EVERY, QUEUES, WARMUP_SECONDS, WINDOW, Meter, Task
from rockmq.client import Client, ConsumedMessage, Message, SendReceipt


async def send(task: Task) -> None:
    async with Client(task.server) as mq:
        await mq.create_topic(task.topic, QUEUES)
        async with mq.producer("bench", timeout=30, linger=0 if task.variant == "linger" else None) as producer:
            watch, count, measured = Meter(), 0, False
            waiting: deque[asyncio.Future[SendReceipt]] = deque()
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
                waiting.append(producer.send_nowait(Message(task.topic, BODY)))
            watch.tell(count)
            await asyncio.gather(*waiting)


async def consume(task: Task) -> None:
    async with Client(task.server) as mq:
        await mq.create_topic(task.topic, QUEUES)
        async with mq.producer("bench", timeout=30, linger=0) as producer:
            for at in range(0, task.amount, FILL_MESSAGES):
                count = min(FILL_MESSAGES, task.amount - at)
                await asyncio.gather(*(producer.send(Message(task.topic, BODY)) for _ in range(count)))
        done = asyncio.Event()
        watch, count = Meter(), 0

        async def handle(message: ConsumedMessage) -> None:
            nonlocal count
            if count == 0:
                watch.start()
            count += 1
            if count == task.amount:
                watch.tell(count - 1)
                done.set()

        async with mq.consumer("bench", [task.topic], from_where="first", max_in_flight=4096) as consumer:
            running = asyncio.create_task(consumer.run(handle))
            await done.wait()
            await consumer.close()
            await running


async def latency(task: Task) -> None:
    arrived = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        arrived.set()

    async with Client(task.server) as mq:
        await mq.create_topic(task.topic, QUEUES)
        async with mq.producer("bench") as producer, mq.consumer("bench", [task.topic], from_where="first") as consumer:
            running = asyncio.create_task(consumer.run(handle))
            await producer.send(Message(task.topic, BODY))
            await arrived.wait()
            await meter.rounds(lambda: producer.send(Message(task.topic, BODY)), arrived, task.amount)
            await consumer.close()
            await running


if __name__ == "__main__":
    meter.main({"send": send, "consume": consume, "latency": latency})
