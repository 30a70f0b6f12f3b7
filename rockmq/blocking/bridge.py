"""How threads use the asyncio client: its event loop runs in a thread of its own, and each call waits for it there.

Callbacks of the user's run in threads of a pool, `CALLBACKS_MAX` at a time, with the context variables of what calls them.
"""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from rockmq.base.errors import ClientClosed, ClientError

CALLBACKS_MAX = 128
CLOSE_TIMEOUT = 10.0
CLOSED = "this client is closed"

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W", covariant=True)


class Portal:
    """The loop's thread, from the making of a client to its close."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="rockmq client", daemon=True)
        self._pool = concurrent.futures.ThreadPoolExecutor(CALLBACKS_MAX, thread_name_prefix="rockmq callback")
        self.closed = False
        """Whether it was closed; nothing can be called any more."""
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.run_until_complete(_cancel_all())
            self._loop.close()

    def run(self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of the coroutine that `work` makes. A thread that is interrupted meanwhile cancels it."""
        self._check()
        coroutine = work(*args, **kwargs)
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # closed this very moment
            coroutine.close()
            raise ClientClosed(CLOSED) from None
        try:
            return future.result()
        except BaseException as error:
            future.cancel()  # a KeyboardInterrupt, for one; what has ended isn't touched
            if isinstance(error, concurrent.futures.CancelledError) and self.closed:
                raise ClientClosed(CLOSED) from None
            raise

    def call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function that is called in the loop."""

        async def called() -> T:
            return work(*args, **kwargs)

        return self.run(called)

    def start(
        self, work: Callable[P, "asyncio.Future[T]"], *args: P.args, **kwargs: P.kwargs
    ) -> "concurrent.futures.Future[T]":
        """The future that `work` makes, as one that threads can wait for."""
        found: concurrent.futures.Future[T] = concurrent.futures.Future()

        def ended(future: "asyncio.Future[T]") -> None:
            if future.cancelled():
                found.cancel()
            elif not found.set_running_or_notify_cancel():
                future.exception()
            elif (error := future.exception()) is not None:
                found.set_exception(error)
            else:
                found.set_result(future.result())

        self.call(lambda: work(*args, **kwargs).add_done_callback(ended))
        return found

    def callback(self, function: Callable[..., T]) -> Callable[..., Awaitable[T]]:
        """A user's function as the client calls it: it runs in a thread, and has ended when this has."""

        async def called(*args: object) -> T:
            run = partial(contextvars.copy_context().run, function, *(wrap(each, self) for each in args))
            running = self._loop.run_in_executor(self._pool, run)
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                # The thread can't be stopped: nobody else gets what it works on before it has ended.
                await asyncio.wait([running])
                raise

        return called

    def function(self, function: Callable[..., T]) -> Callable[..., T]:
        """A user's function that the client itself calls in threads or processes, or calls in the loop as it is quick."""
        return _Function(function, self)

    @contextlib.contextmanager
    def context(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """An asynchronous context manager for threads."""
        entered = self.run(_coroutine(manager.__aenter__))
        try:
            yield entered
        except BaseException as error:
            if not self.run(_coroutine(manager.__aexit__), type(error), error, error.__traceback__):
                raise
        else:
            self.run(_coroutine(manager.__aexit__), None, None, None)

    def close(self) -> None:
        """Stop the thread. Idempotent; harmless in a child process."""
        if self.closed:
            return
        self.closed = True
        if os.getpid() != self._pid:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_TIMEOUT)
        self._pool.shutdown(wait=False)

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise ClientError("this client was made before a fork: make one in the child process")
        if self.closed:
            raise ClientClosed(CLOSED)
        if threading.current_thread() is self._thread:
            raise ClientError("the loop's own thread can't wait for the loop")


async def _cancel_all() -> None:
    """End what still runs, so that nobody waits for it for ever."""
    running = asyncio.all_tasks() - {asyncio.current_task()}
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def _coroutine(method: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    async def called(*args: P.args, **kwargs: P.kwargs) -> T:
        return await method(*args, **kwargs)

    return called


class _Function(Generic[T]):
    """Calls a function with what threads get for the arguments. In another process it is the function itself."""

    def __init__(self, function: Callable[..., T], portal: Portal) -> None:
        self._function = function
        self._portal = portal

    def __call__(self, *args: object) -> T:
        return self._function(*(wrap(each, self._portal) for each in args))

    def __reduce__(self) -> tuple[Any, ...]:
        return _same, (self._function,)


def _same(function: Callable[..., T]) -> Callable[..., T]:
    return function


class Wrapper(Generic[W]):
    """An object of the asyncio client, for threads."""

    def __init__(self, wrapped: W, portal: Portal) -> None:
        self._wrapped = wrapped
        self._portal = portal

    def __repr__(self) -> str:
        return repr(self._wrapped)


WRAPPERS: dict[type, type[Wrapper[Any]]] = {}
"""Which class stands for which of the asyncio client."""


def wrap(value: Any, portal: Portal) -> Any:
    """A value of the asyncio client as threads get it."""
    if isinstance(value, list):
        return [wrap(each, portal) for each in value]
    wrapper = WRAPPERS.get(type(value))
    if wrapper is None:
        return value
    made = wrapper.__new__(wrapper)
    Wrapper.__init__(made, value, portal)
    return made


def unwrap(value: Any) -> Any:
    """What the asyncio client knows of a value."""
    return value._wrapped if isinstance(value, Wrapper) else value
