"""Brokers that are slow or fail get no messages for a time."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from rockmq.base.errors import ResponseError
from rockmq.client import Client, Message, Producer
from rockmq.client.faults import Faults, isolation
from rockmq.protocol.codes import RequestCode, ResponseCode
from tests.support.clock import FakeClock
from tests.unit.client.fakes import FakeBroker, FakeNames, refusal

HELLO = Message("T", b"hello")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def producer(names: FakeNames, other: FakeBroker, clock: FakeClock) -> AsyncIterator[Producer]:
    """One that knows both brokers."""
    async with Client(names.address, clock=clock) as mq, mq.producer("pg", latency_fault_tolerance=True) as made:
        await asyncio.gather(*(made.send(HELLO) for _ in range(8)))
        yield made


def faults(producer: Producer) -> Faults:
    assert producer._faults is not None
    return producer._faults


async def brokers(producer: Producer, count: int = 16) -> set[str]:
    return {(await producer.send(HELLO)).queue.broker_name for _ in range(count)}


@pytest.mark.parametrize(
    ("latency", "seconds"),
    [
        (0, 0),
        (0.049, 0),
        (0.05, 0),
        (0.549, 0),
        (0.55, 2),
        (1.8, 5),
        (2.9, 5),
        (3, 6),
        (5, 10),
        (10, 10),
        (15, 30),
        (99, 30),
    ],
)
def test_the_table(latency: float, seconds: float) -> None:
    assert isolation(latency) == seconds


async def test_a_slow_broker_is_left_out_for_a_time(producer: Producer, clock: FakeClock) -> None:
    assert await brokers(producer) == {"a", "b"}
    target = next(
        each
        for each in producer._instance.routes.for_sending("T").targets  # type: ignore[union-attr]
        if each.queue.broker_name == "a"
    )
    faults(producer).answered(target, 0.6)
    assert await brokers(producer) == {"b"}
    faults(producer).answered(target, 0.01)
    assert await brokers(producer) == {"b"}, "an isolation can only be extended"
    clock.pass_ms(1999)
    assert await brokers(producer) == {"b"}
    clock.pass_ms(1)
    assert await brokers(producer) == {"a", "b"}


async def test_a_failed_one_for_ten_seconds(producer: Producer, broker: FakeBroker, clock: FakeClock) -> None:
    broker.on_send = lambda header, request: refusal(request, ResponseCode.SYSTEM_BUSY)
    assert await brokers(producer) == {"b"}
    broker.on_send = None
    assert await brokers(producer) == {"b"}
    assert not faults(producer).is_reachable("a")
    clock.pass_ms(10_000)
    assert await brokers(producer) == {"a", "b"}
    assert faults(producer).is_reachable("a"), "it has answered"


async def test_a_message_that_no_broker_takes_says_nothing_about_brokers(producer: Producer, broker: FakeBroker) -> None:
    broker.on_send = lambda header, request: refusal(request, ResponseCode.MESSAGE_ILLEGAL)
    results = await asyncio.gather(*(producer.send(HELLO) for _ in range(8)), return_exceptions=True)
    assert {type(result) for result in results if isinstance(result, Exception)} == {ResponseError}
    broker.on_send = None
    assert await brokers(producer) == {"a", "b"}


async def test_when_all_are_left_out_a_reachable_one_is_taken(
    producer: Producer, broker: FakeBroker, other: FakeBroker, clock: FakeClock
) -> None:
    targets = {each.queue.broker_name: each for each in producer._instance.routes.for_sending("T").targets}  # type: ignore[union-attr]
    faults(producer).answered(targets["a"], 20)
    faults(producer).failed(targets["b"])
    assert await brokers(producer) == {"a"}, "slow, but there"
    faults(producer).failed(targets["a"])
    assert await brokers(producer, 1) <= {"a", "b"}, "any is better than none"


async def test_the_detector_finds_out_who_is_back(producer: Producer, broker: FakeBroker, names: FakeNames) -> None:
    targets = {each.queue.broker_name: each for each in producer._instance.routes.for_sending("T").targets}  # type: ignore[union-attr]
    faults(producer).failed(targets["a"])
    await broker.stop()
    await faults(producer).detect()
    assert not faults(producer).is_reachable("a")
    await broker.start()
    await faults(producer).detect()
    assert faults(producer).is_reachable("a")
    assert not faults(producer).is_available("a"), "its isolation isn't over"
    asked = broker.count(RequestCode.GET_MAX_OFFSET)
    await faults(producer).detect()
    assert broker.count(RequestCode.GET_MAX_OFFSET) == asked, "who is reachable isn't asked"


async def test_a_broker_without_an_address_is_forgotten(producer: Producer, names: FakeNames, other: FakeBroker) -> None:
    targets = {each.queue.broker_name: each for each in producer._instance.routes.for_sending("T").targets}  # type: ignore[union-attr]
    faults(producer).failed(targets["a"])
    names.add("T", other)
    await producer._instance.routes.refresh()
    await faults(producer).detect()
    assert faults(producer).is_reachable("a")


async def test_it_is_off_unless_asked_for(mq: Client, broker: FakeBroker, other: FakeBroker) -> None:
    broker.on_send = lambda header, request: refusal(request, 2) if len(broker.headers) == 1 else None
    async with mq.producer("pg") as producer:
        assert producer._faults is None
        while len(broker.headers) < 3:
            await producer.send(HELLO)
