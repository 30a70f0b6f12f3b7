"""The cluster as the source sees it: ends of queues when planning, pulls in the tasks."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from rockmq.base.errors import RequestTimeout
from rockmq.client import Client, MessageQueue
from rockmq.client.pull import PullResult
from rockmq.spark.options import ReadOptions
from rockmq.spark.pulling import Pull
from rockmq.spark.ranges import Bounds

T = TypeVar("T")

PULL_BYTES_MAX = 1 << 20
"""Bytes asked for in one pull. Apache's brokers have a bound of their own, 256 KiB."""

ASKED_AT_ONCE = 64
"""Queues asked for their ends at a time."""


def connected(options: ReadOptions) -> Client:
    """A client, for use with `async with`."""
    return Client(options.name_server, serializer="binary")


async def topic_bounds(options: ReadOptions) -> dict[MessageQueue, Bounds]:
    """The ends of all readable queues of the topics. Raises RouteNotFound, ResponseError, RemotingError."""
    turns = asyncio.Semaphore(ASKED_AT_ONCE)

    async def ask(client: Client, queue: MessageQueue) -> Bounds:
        async with turns:
            # In this order the first offset can't be behind the end, whatever comes or expires meanwhile.
            first = await client.min_offset(queue)
            return Bounds(first, await client.max_offset(queue))

    try:
        async with asyncio.timeout(options.timeout), connected(options) as client:
            queues = [queue for topic in options.topics for queue in await client.queues(topic)]
            bounds = await asyncio.gather(*(ask(client, queue) for queue in queues))
    except TimeoutError:
        topics = ", ".join(options.topics)
        text = f"{options.name_server} and its brokers didn't tell the offsets of {topics} within {options.timeout:g} s"
        raise RequestTimeout(text) from None
    return dict(zip(queues, bounds, strict=True))


def pull_from(client: Client, queue: MessageQueue, options: ReadOptions) -> Pull:
    """How to pull that queue."""

    async def pull(offset: int, count: int) -> PullResult:
        return await client.pull(queue, offset, count, PULL_BYTES_MAX, options.timeout, tags=options.tags)

    return pull


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, also for callers inside a running event loop (notebooks)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    results: list[T] = []
    errors: list[BaseException] = []

    def apart() -> None:
        try:
            results.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001  (handed to the caller)
            errors.append(error)

    thread = threading.Thread(target=apart, name="rockmq plan")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
