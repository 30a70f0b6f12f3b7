"""Apache's client for Python (rocketmq-python-client) on Apache's proxy, by gRPC; the server is the addresses of name server
and proxy with a space between. It has an event loop in a thread of its own and calls handlers in threads: no coroutines."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
)

from benchmarks.peers import meter
from benchmarks.peers.meter import (
    BODY,
    FILL_MESSAGES,
    LOOK_EVERY,
    QUEUES,
    WARMUP_SECONDS,
    WINDOW,
    Meter,
    Task,
)
from rockmq import client
from rockmq.client.admin import GroupSettings

ARRIVAL_SECONDS = 60
CALL_SECONDS = 3
"""Its default, by which it also reckons how long the proxy may let it wait for messages."""
SEND_SECONDS = 30
ROUNDS_BEFORE = 20
"""Rounds that aren't measured; fewer than those of the others, as some take 20 s."""


class Listener(MessageListener):  # type: ignore[misc]
    def __init__(self, handle: Callable[[], None]) -> None:
        self._handle = handle

    def consume(self, message: Message) -> ConsumeResult:
        self._handle()
        return ConsumeResult.SUCCESS


def create(task: Task, fill: int = 0) -> ClientConfiguration:
    """Make the topic and the group, which begins at the first message as it couldn't do by itself, and put so many messages
    there by RockMQ's client, as this one would take long."""

    async def created() -> None:
        async with client.Client(task.server.split()[0]) as mq, mq.producer("fill", timeout=30, linger=0) as producer:
            queues = await mq.create_topic(task.topic, QUEUES)
            await mq.admin.groups.put(GroupSettings(group_of(task)))
            for queue in queues:
                await mq.commit(group_of(task), queue, 0)
            for at in range(0, fill, FILL_MESSAGES):
                count = min(FILL_MESSAGES, fill - at)
                await asyncio.gather(*(producer.send(client.Message(task.topic, BODY)) for _ in range(count)))

    asyncio.run(created())
    seconds = SEND_SECONDS if task.row == "send" else CALL_SECONDS
    return ClientConfiguration(task.server.split()[1], Credentials(), request_timeout=seconds)


def group_of(task: Task) -> str:
    return f"bench-{task.topic}"


def message_to(topic: str) -> Message:
    message = Message()
    message.topic, message.body = topic, BODY
    return message


def send(task: Task) -> None:
    producer = Producer(create(task), (task.topic,))
    producer.startup()
    watch, count, measured = Meter(), 0, False
    waiting: deque[Future[Any]] = deque()
    watch.start()
    while True:
        if len(waiting) >= WINDOW:
            waiting.popleft().result()
            count += 1
            if count % LOOK_EVERY == 0 and watch.seconds >= (task.amount if measured else WARMUP_SECONDS):
                if measured:
                    break
                measured, count = True, 0
                watch.start()
        waiting.append(producer.send_async(message_to(task.topic)))
    watch.tell(count)
    for future in waiting:
        future.result()
    producer.shutdown()


def consume(task: Task) -> None:
    configuration = create(task, task.amount)
    watch, lock, done = Meter(), threading.Lock(), threading.Event()
    count = 0

    def handle() -> None:
        nonlocal count
        with lock:
            if count == 0:
                watch.start()
            count += 1
            if count == task.amount:
                watch.tell(count - 1)
                done.set()

    consumer = PushConsumer(configuration, group_of(task), Listener(handle), {task.topic: FilterExpression()})
    consumer.startup()
    done.wait()
    consumer.shutdown()


def latency(task: Task) -> None:
    configuration = create(task)
    arrived = threading.Event()
    consumer = PushConsumer(configuration, group_of(task), Listener(arrived.set), {task.topic: FilterExpression()})
    producer = Producer(configuration, (task.topic,))
    consumer.startup()
    producer.startup()
    watch, latencies = Meter(), []
    for number in range(ROUNDS_BEFORE + task.amount):
        if number == ROUNDS_BEFORE:
            watch.start()
        arrived.clear()
        began = time.perf_counter()
        sending = producer.send_async(message_to(task.topic))
        if not arrived.wait(ARRIVAL_SECONDS):
            raise TimeoutError(f"message {number} hasn't arrived after {ARRIVAL_SECONDS} s")
        if number >= ROUNDS_BEFORE:
            latencies.append(time.perf_counter() - began)
        sending.result()
    watch.tell(task.amount, latencies)
    producer.shutdown()
    consumer.shutdown()


if __name__ == "__main__":
    {"send": send, "consume": consume, "latency": latency}[(task := meter.task()).row](task)
