"""Asking brokers until a deadline: what may be asked again, and what a failed request has left behind."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from rockmq.base.errors import ClientError, ConnectError, RemotingError, ResponseError, RockMQError, RouteNotFound
from rockmq.protocol.codes import ResponseCode

T = TypeVar("T")

PAUSE_SECONDS = (0.1, 0.2, 0.5, 1.0)
"""Between tries; the last one again and again."""

ROUTE_SECONDS = 5.0
"""How long a topic without a route is waited for: one that was just made takes its broker a moment to tell. And one whose
broker says that it isn't writable: routes tell that a moment later."""

ToDo = Callable[[], Coroutine[Any, Any, None]]
"""Begun when it is called: what isn't, because something before it failed, leaves nothing behind."""


class Waiting:
    """Tries of one thing up to a deadline."""

    def __init__(self, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._deadline = self._begun + seconds
        self._tries = 0
        self._was_away = False
        """Whether a server didn't answer. A name server that comes back knows no topic until brokers tell it."""

    @property
    def left(self) -> float:
        """Seconds; some are always."""
        return max(0.1, self._deadline - self._loop.time())

    async def after(self, error: RockMQError) -> None:
        """Pause before the next try. Raises the error when it is too late for one."""
        pause = PAUSE_SECONDS[min(self._tries, len(PAUSE_SECONDS) - 1)]
        now = self._loop.time() + pause
        self._was_away |= isinstance(error, RemotingError)
        is_hopeless = _is_about_the_route(error) and not self._was_away and now > self._begun + ROUTE_SECONDS
        if now > self._deadline or is_hopeless:
            raise error
        self._tries += 1
        await asyncio.sleep(pause)

    async def until(self, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer to a question that changes nothing."""
        while True:
            try:
                return await ask()
            except RockMQError as error:
                if not (error.retriable or was_not_sent(error)):
                    raise
                await self.after(error)


_REFUSALS = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.NO_PERMISSION,
        ResponseCode.GO_AWAY,
    }
)
"""A broker that says so has stored nothing, and may take it later."""


def _is_about_the_route(error: RockMQError) -> bool:
    if isinstance(error, ResponseError):
        return error.code == ResponseCode.NO_PERMISSION
    return isinstance(error, RouteNotFound)


def was_not_sent(error: RockMQError) -> bool:
    """Whether a send has surely stored nothing, and trying again can help."""
    if isinstance(error, ResponseError):
        return error.code in _REFUSALS
    # A plain ClientError is what a queue gets whose broker isn't in the route now.
    return isinstance(error, (ConnectError, RouteNotFound)) or type(error) is ClientError


def is_in_doubt(error: RockMQError) -> bool:
    """Whether a send may have stored something or not."""
    if isinstance(error, ResponseError):
        return error.code == ResponseCode.SYSTEM_ERROR
    return isinstance(error, RemotingError) and not isinstance(error, ConnectError)


async def together(work: Iterable[ToDo]) -> None:
    """All of it at once; the first error ends the rest, and is raised as it is."""
    tasks = [asyncio.create_task(each()) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        await ended(*tasks)


async def ended(*tasks: "asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
