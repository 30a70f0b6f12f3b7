"""Telling the application which queues its consumer has won and lost (MessageQueueListener.java)."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable

from rockmq.protocol.bodies.common import MessageQueue

log = logging.getLogger(__name__)

RebalanceListener = Callable[[list[MessageQueue], list[MessageQueue]], Awaitable[object] | object]
"""Told which queues were won and which were lost: a coroutine function, or a function that may block."""


class QueueListener:
    """Calls the listener, once at a time. What changes meanwhile is told by the next call, so it holds nothing up; a queue
    that was lost and won again is in both lists then."""

    def __init__(self, listener: RebalanceListener, group: str) -> None:
        self._listener = listener
        self._group = group
        self._won: set[MessageQueue] = set()
        self._lost: set[MessageQueue] = set()
        self._changed = asyncio.Event()

    def won(self, queues: Iterable[MessageQueue]) -> None:
        self._won.update(queues)
        self._changed.set()

    def lost(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            if queue in self._won:
                self._won.remove(queue)  # of which nobody has heard
            else:
                self._lost.add(queue)
        self._changed.set()

    async def run(self) -> None:
        """Tell, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            won, lost = sorted(self._won), sorted(self._lost)
            self._won.clear()
            self._lost.clear()
            if not won and not lost:
                continue
            try:
                await self._call(won, lost)
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is None or task.cancelling():
                    raise
                log.exception("what listens to the queues of group %s waited for what was cancelled", self._group)
            except Exception:  # a fault of the application's, which mustn't end what it listens to
                log.exception("what listens to the queues of group %s failed", self._group)

    async def _call(self, won: list[MessageQueue], lost: list[MessageQueue]) -> None:
        if inspect.iscoroutinefunction(self._listener):
            await self._listener(won, lost)
            return
        result = await asyncio.to_thread(self._listener, won, lost)
        if inspect.isawaitable(result):
            await result
