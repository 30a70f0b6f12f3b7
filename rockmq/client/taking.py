"""What consumers have in common that hand out messages to be ended one by one: how an application takes them, and how
handlers are called for them."""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Generic, Self, TypeVar

from rockmq.client.decoding import Decode, Decoder
from rockmq.client.delivery import AnyMessage
from rockmq.client.handlers import Call, Decide, Lines, Workers, callable_in_loop
from rockmq.client.instance import Instance
from rockmq.client.member import GroupMember
from rockmq.client.offsets import FromWhere
from rockmq.client.pop_message import AnyPop
from rockmq.client.retries import Retry
from rockmq.client.subscription import Topics
from rockmq.protocol.bodies.client import DirectResult
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.message import StoredMessage
from rockmq.remoting.dispatch import Refusal

HANDED_MAX = 64
"""Messages that administrators have handed to a consumer, and that wait for what the application makes of them."""

M = TypeVar("M", bound=AnyMessage | AnyPop, covariant=True)


class Taking(GroupMember, Generic[M]):
    """A member of a group that hands out messages."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        topics: Topics,
        *,
        decode: Decode[Any] | None,
        from_where: FromWhere,
        drain_timeout: float,
        broadcast: bool = False,
    ) -> None:
        super().__init__(instance, group, topics, from_where=from_where, broadcast=broadcast)
        self._decoder = Decoder(decode) if decode is not None else None
        self._decide: Decide | None = None
        """If what handlers return matters."""
        self._drain_timeout = drain_timeout
        self._concurrency = 0
        """Of all handlers that run."""
        self._handed: set[asyncio.Future[DirectResult]] = set()

    @abstractmethod
    async def _take(self) -> M | None:
        """The next message, when there is one and the bounds allow; None when closed."""

    @abstractmethod
    def _take_nowait(self) -> M | None:
        """The same if there is one."""

    @abstractmethod
    async def _take_batch(self, count: int) -> list[M]:
        """The next message and up to so many of its kind that follow it; none when closed."""

    @abstractmethod
    def _hand(self, message: StoredMessage) -> "asyncio.Future[DirectResult]":
        """Hand out a message that an administrator has sent; what the application makes of it."""

    @abstractmethod
    def _working(self, batch: list[M], retry: Retry | None) -> AbstractAsyncContextManager[M]:
        """The block around the work on a batch. What it raises is logged."""

    async def close(self, drain_timeout: float | None = None) -> None:
        """Take nothing more from brokers, wait for what is being worked on, tell them how far that is, leave the group.

        Whoever calls it meanwhile waits for that, too. `drain_timeout` is how many seconds to wait for handlers and
        `process` blocks, instead of what was said when the consumer was made.
        """
        if drain_timeout is not None:
            self._drain_timeout = drain_timeout
        try:
            await super().close()
        finally:
            for ended in self._handed:
                if not ended.done():
                    ended.set_result(DirectResult(consume_result="CR_LATER", spent_time_mills=0))

    def __aiter__(self) -> Self:
        return self

    async def _next(self) -> M:
        message = await self._take()
        if message is None:
            raise StopAsyncIteration
        return message

    async def _fetch(self, max_messages: int, timeout: float | None) -> list[M]:
        self._check_started()
        await asyncio.sleep(0)  # who always finds something mustn't starve what brings it
        first = self._take_nowait()
        if first is None:
            try:
                async with asyncio.timeout(timeout):
                    first = await self._take()
            except TimeoutError:
                return []
        found = [] if first is None else [first]
        while found and len(found) < max_messages and (message := self._take_nowait()) is not None:
            found.append(message)
        return found

    async def _run_each(
        self,
        handler: Callable[[M], Awaitable[object] | object],
        concurrency: int,
        workers: Workers,
        retry: Retry | None,
        ordered_by: Callable[[M], Hashable] | None,
    ) -> None:
        async with callable_in_loop(handler, workers, concurrency, self.group, self._decoder, self._decide) as call:
            lines = Lines(call, retry, ordered_by) if ordered_by is not None else None
            worker = partial(self._work, call, retry) if lines is None else partial(lines.work, self._take)
            await self._run(worker, concurrency)

    async def _work(self, call: Call[M], retry: Retry | None) -> None:
        """Work on one message after the other, until the consumer is closed."""
        while (message := await self._take()) is not None:
            async with message.process(retry=retry, suppress=True):
                await call(message)

    async def _run_batches(
        self,
        handler: Callable[[list[M]], Awaitable[object] | object],
        max_messages: int,
        concurrency: int,
        workers: Workers,
        retry: Retry | None,
    ) -> None:
        async with callable_in_loop(handler, workers, concurrency, self.group, self._decoder, self._decide) as call:

            async def worker() -> None:
                while batch := await self._take_batch(max_messages):
                    async with self._working(batch, retry):
                        await call(batch)

            await self._run(worker, concurrency)

    async def _run(self, worker: Callable[[], Coroutine[None, None, None]], concurrency: int) -> None:
        self._concurrency += concurrency
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(concurrency):
                    group.create_task(worker(), name=f"{self.group} handler {number}")
        finally:
            self._concurrency -= concurrency

    async def consume_directly(self, message: StoredMessage) -> DirectResult:
        if len(self._handed) >= HANDED_MAX:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"{HANDED_MAX} messages that were handed to this consumer wait for its handlers"
            )
        ended = self._hand(message)
        self._handed.add(ended)
        try:
            return await ended
        finally:
            self._handed.discard(ended)
