"""Calling a coroutine function for one message after the other.

Many handlers have nothing to wait for most of the time. So one is called for a run of messages of a queue, and the counting
and acknowledging of those it is done with is done once for all of them. The first that waits ends the run: it goes on in its
`process` block, and the messages behind it are left to others.
"""

import asyncio
import types
from collections.abc import Awaitable, Generator
from typing import Any, NamedTuple

from rockmq.client.delivery import AnyMessage, Inbox, Processing
from rockmq.client.handlers import Call
from rockmq.client.outcomes import Ended
from rockmq.client.received import State
from rockmq.client.retries import Retry
from rockmq.client.stats import BOUNDS

RUN_MAX = 256
RUN_SECONDS = BOUNDS[0]
"""When a run ends, so that others in the event loop get their turn. All but its last message took less."""

_DELIVERED, _DONE = State.DELIVERED, State.DONE


async def work(inbox: Inbox, outcome: Ended, call: Call[AnyMessage], retry: Retry | None) -> None:
    """Work on messages, each as in its `process` block, until the inbox is closed."""
    while (first := await inbox.take()) is not None:
        was_handed = first.outcome is not outcome  # by an administrator
        begun = Begun(first, _called(call, first)) if was_handed else _run(first, inbox, outcome, call)
        if begun is None:
            await asyncio.sleep(0)
        else:
            async with Processing([begun.message], retry, suppress=True):
                await begun.rest


class Begun(NamedTuple):
    """A message that is worked on, and what is left to do."""

    message: AnyMessage
    rest: Awaitable[object]


def _run(message: AnyMessage, inbox: Inbox, outcome: Ended, call: Call[AnyMessage]) -> Begun | None:
    """Work on a message that was taken, and on those of its queue that follow it, up to the first whose handler waits or
    raises, which is answered; or until it is time that others get their turn."""
    monotonic = inbox.clock.monotonic
    process_queue = message.process_queue
    process_queue.consumed_at = asyncio.get_running_loop().time()
    finished: list[AnyMessage] = []
    following = inbox.following(message, RUN_MAX)
    waits = False
    start = before = now = message.taken
    until = start + RUN_SECONDS

    async def steps_of_all() -> None:
        """One coroutine that awaits all handlers: that costs a third of stepping through each from outside."""
        nonlocal message, before, now
        for message in following:
            message.state = _DELIVERED
            message.taken = now
            await call(message)
            if waits:
                return  # its block does the rest
            before, now = now, monotonic()
            if message.state is _DELIVERED:  # otherwise its handler has ended it
                message.state = _DONE
                finished.append(message)
            if now > until:
                return

    begun: Begun | None = None
    steps = steps_of_all().__await__()
    try:
        waits_for = next(steps)
    except StopIteration:
        pass
    except BaseException as error:  # noqa: BLE001 - it belongs into the message's block
        begun = Begun(message, _raising(error))
    else:
        waits = True
        begun = Begun(message, _going_on(steps, waits_for))
    following.close()
    if finished:
        work = process_queue.topic_stats.work
        if now > until and finished[-1] is message:
            work.ended(now - before, done=1)
            work.ended_quickly(before - start, done=len(finished) - 1)
        else:
            work.ended_quickly(now - start, done=len(finished))
        outcome.finish(finished)
    return begun


async def _called(call: Call[AnyMessage], message: AnyMessage) -> None:
    await call(message)


async def _raising(error: BaseException) -> None:
    raise error


@types.coroutine
def _going_on(steps: Generator[Any, None, object], waits_for: object) -> Generator[Any, None, object]:
    """The rest of a coroutine that has begun to wait for something."""
    try:
        while True:
            try:
                yield waits_for
            except BaseException as error:  # noqa: BLE001 - whoever waits is told to stop
                waits_for = steps.throw(error)
            else:
                waits_for = next(steps)
    except StopIteration as ended:
        return ended.value
