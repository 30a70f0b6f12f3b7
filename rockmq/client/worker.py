"""A program that consumes: handlers, and a `run` that ends in order when it is told to.

app = Worker("mq://broker.local")

@app.subscribe("orders", group="audit", ordered_by=lambda message: message.key, concurrency=32)
async def audit(message: ConsumedMessage) -> None: ...

asyncio.run(app.run())
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack

from rockmq.base.errors import ClientError
from rockmq.client.client import Client
from rockmq.client.consumer_options import ConsumerOptions
from rockmq.client.decoding import Body, Decode
from rockmq.client.delivery import ConsumedMessage
from rockmq.client.handlers import Handler, KeyOf, Workers
from rockmq.client.retries import Retry
from rockmq.client.subscription import Topics

SIGNALS = (signal.SIGTERM, signal.SIGINT)

R = TypeVar("R")


@dataclass(frozen=True)
class _Subscription:
    handler: Handler[Any]
    topics: Topics
    group: str
    concurrency: int
    workers: Workers
    retry: Retry | None
    ordered_by: KeyOf[Any] | None
    decode: Decode[Any] | None
    options: ConsumerOptions


class Worker:
    """Runs handlers until SIGTERM, Ctrl-C or `stop`. Made with a `Client` that isn't started, or with the address of a name
    server."""

    def __init__(self, client: Client | str | None = None) -> None:
        self._client = client
        self._subscriptions: list[_Subscription] = []
        self._stopped = asyncio.Event()

    def subscribe(
        self,
        topics: Topics,
        *,
        group: str,
        decode: Decode[Body] | None = None,
        concurrency: int = 20,
        workers: Workers = "threads",
        retry: Retry | None = None,
        ordered_by: KeyOf[Body] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Callable[[Callable[[ConsumedMessage[Body]], R]], Callable[[ConsumedMessage[Body]], R]]:
        """Decorates a handler of messages of these topics (`{"orders": "paid || refund"}`). Keywords are those of
        `Consumer.run` and of `Client.consumer`. Raises ClientError when the group has a handler already."""
        if any(group == each.group for each in self._subscriptions):
            raise ClientError(f"group {group!r} has a handler already: members of a group subscribe and work alike")

        def decorate(handler: Callable[[ConsumedMessage[Body]], R]) -> Callable[[ConsumedMessage[Body]], R]:
            said = _Subscription(handler, topics, group, concurrency, workers, retry, ordered_by, decode, options)
            self._subscriptions.append(said)
            return handler

        return decorate

    async def run(self) -> None:
        """Consume until stopped: then pull no more, let the handlers finish, commit, leave the groups, and return.

        On SIGTERM or Ctrl-C that happens if this runs in the main thread; a second one ends the process as it always would.
        Raises ClientError when no handler is subscribed, what `Consumer.start` raises, and what breaks a handler's runner.
        """
        if not self._subscriptions:
            raise ClientError("this worker has no handlers: decorate some with `subscribe`")
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._signals())
            client = self._client if isinstance(self._client, Client) else Client(self._client)
            mq = await stack.enter_async_context(client)
            async with asyncio.TaskGroup() as group:
                for each in self._subscriptions:
                    group.create_task(self._consume(mq, each), name=f"worker {each.group}")

    def stop(self) -> None:
        """Have `run` end in order. Call it from the event loop's thread."""
        self._stopped.set()

    async def _consume(self, mq: Client, said: _Subscription) -> None:
        async with mq.consumer(said.group, said.topics, decode=said.decode, **said.options) as consumer:
            run = consumer.run(
                said.handler, said.concurrency, workers=said.workers, retry=said.retry, ordered_by=said.ordered_by
            )
            async with asyncio.TaskGroup() as group:
                group.create_task(run, name=f"handlers of {said.group}")
                await self._stopped.wait()
                await consumer.close()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # signals are the main thread's
            return
        loop = asyncio.get_running_loop()

        def ignore() -> None:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

        def told() -> None:
            ignore()
            self.stop()

        for number in SIGNALS:
            loop.add_signal_handler(number, told)
        try:
            yield
        finally:
            ignore()
