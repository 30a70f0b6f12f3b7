"""The bound on what is on its way."""

import asyncio
import contextlib

from hypothesis import given
from hypothesis import strategies as st

from rockmq.client.in_flight import InFlight


async def soon() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_bounds_by_count_and_by_bytes() -> None:
    bound = InFlight(2, 100)
    assert bound.take_nowait(60)
    assert not bound.take_nowait(50)
    assert bound.take_nowait(40)
    assert not bound.take_nowait(0)
    bound.give_back(60)
    assert bound.take_nowait(60)


def test_a_giant_goes_alone() -> None:
    bound = InFlight(10, 100)
    assert bound.take_nowait(5000)
    assert not bound.take_nowait(1)
    bound.give_back(5000)
    assert bound.bytes == 0


async def test_turns_come_in_the_order_of_asking() -> None:
    bound = InFlight(1, 100)
    await bound.take(1)
    order: list[int] = []

    async def ask(number: int) -> None:
        await bound.take(1)
        order.append(number)

    tasks = [asyncio.create_task(ask(number)) for number in range(3)]
    await soon()
    assert not bound.take_nowait(1), "nobody overtakes those who wait"
    for _ in tasks:
        bound.give_back(1)
        await soon()
    assert order == [0, 1, 2]


async def test_who_gives_up_waiting_holds_up_nobody() -> None:
    bound = InFlight(2, 100)
    await bound.take(90)
    large = asyncio.create_task(bound.take(50))
    small = asyncio.create_task(bound.take(5))
    await soon()
    assert not small.done(), "it waits behind the large one"
    large.cancel()
    await soon()
    assert small.done()
    assert (bound.messages, bound.bytes) == (2, 95)


async def test_cancelled_in_the_moment_of_its_turn() -> None:
    bound = InFlight(1, 100)
    await bound.take(1)
    first = asyncio.create_task(bound.take(1))
    second = asyncio.create_task(bound.take(1))
    await soon()
    bound.give_back(1)
    first.cancel()
    await soon()
    assert first.cancelled()
    assert second.done()
    assert not second.cancelled()
    assert bound.messages == 1


@given(st.lists(st.tuples(st.sampled_from(["take", "give", "cancel"]), st.integers(1, 60)), max_size=60))
def test_never_over_the_bounds_and_nothing_is_lost(steps: list[tuple[str, int]]) -> None:
    asyncio.run(play(steps))


async def play(steps: list[tuple[str, int]]) -> None:
    bound = InFlight(4, 100)
    held: list[int] = []
    waiting: list[asyncio.Task[None]] = []

    async def ask(size: int) -> None:
        await bound.take(size)
        held.append(size)

    for act, size in steps:
        if act == "take":
            waiting.append(asyncio.create_task(ask(size)))
        elif act == "give" and held:
            bound.give_back(held.pop(0))
        elif act == "cancel" and waiting:
            waiting.pop(size % len(waiting)).cancel()
        await soon()
        assert (bound.messages, bound.bytes) == (len(held), sum(held))
        assert bound.messages <= 4
        assert bound.bytes <= 100
    while held or any(not task.done() for task in waiting):
        assert held, "somebody waits although nothing is in flight"
        bound.give_back(held.pop(0))
        await soon()
    for task in waiting:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert (bound.messages, bound.bytes) == (0, 0)
