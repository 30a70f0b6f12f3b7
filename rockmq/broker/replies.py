"""Answers that wait for the durability gate."""

import asyncio
from collections.abc import Callable

from rockmq.broker.durability import DurabilityGate
from rockmq.protocol.codec import Command
from rockmq.remoting.dispatch import Answer


def after(gate: DurabilityGate, position: int, answer: Callable[[bool], Command]) -> "asyncio.Future[Answer]":
    """A future of `answer(durable)`, given when everything below `position` is durable or that has taken too long."""
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def deliver(durable: bool) -> None:
        if not future.done():
            future.set_result(answer(durable))

    gate.when_durable(position, deliver)
    return future
