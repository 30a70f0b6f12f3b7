"""Calling handlers: coroutines in the event loop, functions on threads or in processes of their own, messages of one key one
after the other.
"""

import asyncio
import contextlib
import inspect
import logging
import pickle
import signal
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, Generic, Literal, TypeVar, cast

from rockmq.base.errors import ClientError
from rockmq.client.decoding import Body, Decoder
from rockmq.client.delivery import AnyMessage, ConsumedMessage
from rockmq.client.pop_message import AnyPop
from rockmq.client.received import State
from rockmq.client.retries import Retry

log = logging.getLogger(__name__)

Handler = Callable[[ConsumedMessage[Body]], Awaitable[object] | object]
"""Works on a message: a coroutine function, or a function that may block. Its result matters only with
`auto_commit=False`, where it may be a `Decision`."""

BatchHandler = Callable[[list[ConsumedMessage[Body]]], Awaitable[object] | object]
"""The same for some messages of one queue."""

KeyOf = Callable[[ConsumedMessage[Body]], Hashable]
"""What messages have in common that are worked on one after the other; None for those that needn't wait."""

Workers = Literal["threads", "processes"]
"""Where functions that may block are called."""

M = TypeVar("M", bound=AnyMessage | AnyPop)
T = TypeVar("T")
Argument = AnyMessage | AnyPop | list[AnyMessage] | list[AnyPop]
Call = Callable[[T], Awaitable[object]]
Decide = Callable[[Any, object], Awaitable[None]]
"""Told a message, or a batch, and what its handler has returned."""


@contextlib.asynccontextmanager
async def callable_in_loop(
    handler: Callable[[T], Awaitable[object] | object],
    workers: Workers,
    concurrency: int,
    name: str,
    decoder: Decoder[Any] | None,
    decide: Decide | None,
) -> AsyncIterator[Call[T]]:
    """The handler as something to await, and `decide` done with what it returns. Raises ClientError for one that can't be
    called in another process, or whose messages can't go there, as they are decoded by what can't."""
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        if workers == "processes":
            raise ClientError(f"{handler!r} is a coroutine function: those run in the event loop, not in processes")
        coroutine = cast("Call[T]", handler)
        yield coroutine if decide is None else partial(_decided, coroutine, decide)
        return
    calls = _Calls(handler, workers, concurrency, name, decoder, decide)
    try:
        yield calls
    finally:
        await calls.close()


async def _decided(call: Call[T], decide: Decide, argument: T) -> None:
    await decide(argument, await call(argument))


class _Calls:
    """A function called on threads or in processes, one for each caller at a time."""

    def __init__(
        self,
        handler: Callable[[Any], object],
        workers: Workers,
        concurrency: int,
        name: str,
        decoder: Decoder[Any] | None,
        decide: Decide | None,
    ) -> None:
        self._handler = handler
        self._decide = decide
        self._workers = workers
        self._concurrency = concurrency
        self._name = name
        self._running = 0
        if workers == "processes":
            for needed in (handler, decoder):
                try:
                    pickle.dumps(needed)
                except Exception as error:  # whatever a pickler of somebody's raises  # noqa: BLE001
                    raise ClientError(f"{needed!r} can't be sent to another process: {error}") from None
        elif workers != "threads":
            raise ClientError(f"workers={workers!r}: expected 'threads' or 'processes'")
        self._pool = self._make()

    def _make(self) -> Executor:
        if self._workers == "threads":
            return ThreadPoolExecutor(self._concurrency, thread_name_prefix=f"{self._name} handler")
        # Imported here, as it takes a while that most programs needn't spend.
        import multiprocessing
        from concurrent.futures import ProcessPoolExecutor

        # Forking a process that has threads and an event loop is asking for trouble.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self._concurrency, mp_context=context, initializer=_ignore_interrupts)

    async def __call__(self, argument: Any) -> None:
        pool = self._pool
        try:
            job = pool.submit(_call, self._handler, argument)
            running = asyncio.wrap_future(job)
            self._running += 1
            running.add_done_callback(self._ended)
            try:
                result = await asyncio.shield(running)
            except asyncio.CancelledError:
                if not job.cancel():
                    await self._finish(running, argument)
                raise
        except BrokenExecutor as error:
            if self._pool is pool:
                log.error("a process that works for group %s died; others take its place", self._name)
                self._pool = self._make()
                pool.shutdown(wait=False)
            raise RuntimeError("the process that worked on it died") from error
        if inspect.isawaitable(result):
            result = await result
        if self._decide is not None:
            await self._decide(argument, result)

    async def _finish(self, running: "asyncio.Future[object]", argument: Argument) -> None:
        """Work that can't be stopped goes on: its messages mustn't be delivered to somebody else before it ends. Who can't
        wait cancels once more."""
        await asyncio.wait([running])
        if running.exception() is None:
            if self._decide is not None:
                await self._decide(argument, running.result())
            for message in argument if isinstance(argument, list) else [argument]:
                if message.state is State.DELIVERED:
                    await message.ack()

    def _ended(self, running: "asyncio.Future[object]") -> None:
        self._running -= 1
        if not running.cancelled():
            running.exception()  # whoever waited has it; when all have gone away, it is nobody's

    async def close(self) -> None:
        if self._running:  # left alone by one who couldn't wait
            self._pool.shutdown(wait=False, cancel_futures=True)
        else:
            await asyncio.to_thread(self._pool.shutdown)


def _call(handler: Callable[[Any], object], argument: object) -> object:
    try:
        return handler(argument)
    except StopIteration as error:
        raise RuntimeError("the handler raised StopIteration") from error  # which no future can carry


def _ignore_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal; the one that started this one says when to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class Lines(Generic[M]):
    """Gives workers messages so that those of one key are worked on one after the other.

    What waits behind a message of the same key is with the application, so the bound on that is the bound here.
    """

    def __init__(self, call: Call[M], retry: Retry | None, key_of: Callable[[M], Hashable]) -> None:
        self._call: Call[M] = call
        self._retry = retry
        self._key_of: Callable[[M], Hashable] = key_of
        self._lines: dict[Hashable, deque[M]] = {}

    async def work(self, take: Callable[[], Awaitable[M | None]]) -> None:
        """Work on one message after the other, until there are no more."""
        while (message := await take()) is not None:
            await self._take(message)

    async def _take(self, message: M) -> None:
        """Work on the message and on those of its key that come meanwhile; or leave it to the worker that has its key."""
        key: Hashable = None
        line: deque[M] | None = None
        try:
            key = self._key_of(message)
            line = self._lines.get(key)
        except Exception as error:  # a fault in the application's function, like one in its handler
            async with message.process(retry=self._retry, suppress=True):
                raise ClientError(f"the key of {message!r} can't be had") from error
            return
        if key is None:
            await self._work_on(message)
            return
        if line is not None:
            line.append(message)
            return
        line = self._lines[key] = deque([message])
        try:
            while line:
                await self._work_on(line.popleft())
        finally:
            del self._lines[key]
            for waiting in reversed(line):
                waiting.put_back()

    async def _work_on(self, message: M) -> None:
        if message.withdrawn:
            message.put_back()  # another member gets it
            return
        async with message.process(retry=self._retry, suppress=True):
            await self._call(message)
