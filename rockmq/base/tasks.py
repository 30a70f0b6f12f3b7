"""Tasks with an owner: a group that starts background work, reports a failure, and stops it in reverse order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from rockmq.base.clock import Clock, SystemClock, sleep

log = logging.getLogger(__name__)

T = TypeVar("T")


class Tasks:
    """Owns background tasks from start to `close`.

    A task that ends with an exception is logged at once and handed to `on_failure`, so that nothing dies unseen.
    `close` cancels the tasks in reverse order of their start and waits for each.
    """

    def __init__(self, on_failure: Callable[[BaseException], None] | None = None) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._on_failure = on_failure

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def every(
        self,
        seconds: float,
        work: Callable[[], Awaitable[object] | object],
        name: str,
        *,
        first: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Call `work` every so many seconds (the first time after `first`, else `seconds`), by the loop's time or by that of
        a clock; an exception is logged and the next turn tries again."""
        self.start(_repeat(seconds, work, name, seconds if first is None else first, clock or SystemClock()), name)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            log.error("task %s failed", task.get_name(), exc_info=error)
            if self._on_failure is not None:
                self._on_failure(error)

    async def close(self) -> None:
        try:
            for task in reversed(list(self._tasks)):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        finally:
            for task in self._tasks:  # what is left when this was itself cancelled
                task.cancel()

    async def __aenter__(self) -> "Tasks":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def shared(task: "asyncio.Task[T]", given_up: Exception) -> T:
    """The result of a task that others wait for too: to cancel this harms none of them. Raises what the task raised, and
    `given_up` if it was cancelled itself."""
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        waiter = asyncio.current_task()
        if task.cancelled() and (waiter is None or not waiter.cancelling()):
            raise given_up from None
        raise


async def _repeat(
    seconds: float, work: Callable[[], Awaitable[object] | object], name: str, first: float, clock: Clock
) -> None:
    await sleep(clock, first)
    while True:
        try:
            result = work()
            if isinstance(result, Awaitable):
                await result
        except Exception:
            # The next turn is the retry; whatever must not be retried reports through its own channel.
            log.exception("%s failed; next try in %s s", name, seconds)
        await sleep(clock, seconds)
