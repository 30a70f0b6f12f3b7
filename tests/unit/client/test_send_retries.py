"""When a send is tried again, where, and what comes of it (clients' spec, 2.3)."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from rockmq.base.errors import ClientError, ConnectError, ConnectionLost, RemotingError, RequestTimeout, ResponseError
from rockmq.client import Client, Message, MessageQueue, SendStatus, routes
from rockmq.protocol.codec import Command
from rockmq.protocol.headers.send import SendMessage
from tests.unit.client.fakes import FakeBroker, FakeNames, refusal

BUSY, ILLEGAL, NOT_STORED = 2, 13, 4711
HELLO = Message("T", b"hello")

Step = int | str
"""What a broker does: answers with a code, is silent, or cuts the connection."""


def script(brokers: list[FakeBroker], steps: list[Step]) -> list[str]:
    """Have brokers do these steps, whichever of them is asked; the names of those that were asked, as they are."""
    asked: list[str] = []

    def doing(broker: FakeBroker) -> Callable[[SendMessage, Command], Any]:
        def do(header: SendMessage, request: Command) -> Any:
            step = steps[len(asked)]
            asked.append(broker.name)
            if step == "cut":
                for connection in list(broker.connections):
                    connection.transport.abort()
                return "silence"
            if step == "silence":
                return "silence"
            assert isinstance(step, int)
            return broker.store(header, request, step) if step in set(SendStatus) else refusal(request, step)

        return do

    for broker in brokers:
        broker.on_send = doing(broker)
    return asked


@pytest.mark.parametrize(
    ("options", "steps", "outcome"),
    [
        ({}, [0], SendStatus.OK),
        ({}, [10], SendStatus.FLUSH_DISK_TIMEOUT),
        ({}, [BUSY, 0], SendStatus.OK),
        ({}, [BUSY, BUSY, 12], SendStatus.FLUSH_SLAVE_TIMEOUT),
        ({}, [BUSY, BUSY, BUSY], ResponseError),
        ({}, ["cut", 0], SendStatus.OK),
        ({}, ["cut", "cut", "cut"], ConnectionLost),
        ({"timeout": 0.5}, ["silence"], RequestTimeout),
        ({}, [ILLEGAL], ResponseError),
        ({}, [BUSY, ILLEGAL], ResponseError),
        ({}, [NOT_STORED], ResponseError),
        ({"retry_codes": [NOT_STORED]}, [NOT_STORED, 0], SendStatus.OK),
        ({"retries": 0}, [BUSY], ResponseError),
        ({"retries": 4}, [BUSY, "cut", BUSY, BUSY, 0], SendStatus.OK),
        ({"timeout_per_attempt": 1.0}, ["silence", 0], SendStatus.OK),
        ({"timeout_per_attempt": 1.0}, ["silence", BUSY, 0], SendStatus.OK),
        ({"timeout_per_attempt": 0.2, "timeout": 1.0}, ["silence", "silence", "silence"], RequestTimeout),
        ({"retry_another_broker_when_not_store_ok": True}, [10, 0], SendStatus.OK),
        ({"retry_another_broker_when_not_store_ok": True}, [10, 11, 12], SendStatus.FLUSH_SLAVE_TIMEOUT),
        ({"retry_another_broker_when_not_store_ok": True}, [11, ILLEGAL], SendStatus.SLAVE_NOT_AVAILABLE),
        ({"retry_another_broker_when_not_store_ok": True}, [11, BUSY, BUSY], SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_attempts(
    mq: Client,
    broker: FakeBroker,
    other: FakeBroker,
    options: dict[str, Any],
    steps: list[Step],
    outcome: SendStatus | type[Exception],
) -> None:
    """Two brokers: each attempt goes to the one that wasn't asked just before."""
    asked = script([broker, other], steps)
    async with mq.producer("pg", **({"timeout": 20.0} | options)) as producer:
        if isinstance(outcome, SendStatus):
            assert (await producer.send(HELLO)).status is outcome
        else:
            with pytest.raises(outcome):
                await producer.send(HELLO)
        assert mq._instance.in_flight.messages == 0
    assert len(asked) == len(steps)
    assert all(before != after for before, after in itertools.pairwise(asked))


async def test_one_broker_is_asked_again_but_stores_once(mq: Client, broker: FakeBroker) -> None:
    asked = script([broker], [BUSY, 10])
    async with mq.producer("pg", retry_another_broker_when_not_store_ok=True) as producer:
        assert (await producer.send(HELLO)).status is SendStatus.FLUSH_DISK_TIMEOUT
    assert asked == ["a", "a"]


@pytest.mark.parametrize(
    "how", [{"queue": MessageQueue("T", "b", 1)}, {"key": "k"}, {"selector": lambda queues, _: queues[5]}]
)
async def test_what_has_a_queue_stays_with_its_broker(
    mq: Client, broker: FakeBroker, other: FakeBroker, how: dict[str, Any]
) -> None:
    asked = script([broker, other], [BUSY, BUSY, 10, 0])
    async with mq.producer("pg", retry_another_broker_when_not_store_ok=True) as producer:
        assert (await producer.send(HELLO, **how)).status is SendStatus.FLUSH_DISK_TIMEOUT
    assert len(asked) == 3
    assert len(set(asked)) == 1


async def test_a_late_answer_to_an_earlier_attempt_is_nobodys(mq: Client, broker: FakeBroker, other: FakeBroker) -> None:
    held: list[tuple[SendMessage, Command]] = []

    def answer(header: SendMessage, request: Command) -> Any:
        held.append((header, request))
        if len(held) == 1:
            return "silence"
        return None

    broker.on_send = other.on_send = answer
    async with mq.producer("pg", timeout_per_attempt=0.1) as producer:
        receipt = await producer.send(HELLO)
        assert receipt.status is SendStatus.OK
        header, request = held[0]
        first = broker if header.bname == "a" else other
        first.connections[0].write(first.store(header, request).encode())
        assert (await producer.send(HELLO)).msg_id != receipt.msg_id


async def test_a_moved_broker_is_found_by_the_attempts_there_are(
    mq: Client, broker: FakeBroker, names: FakeNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts that find nobody don't use up the retries before the route tells where the broker is now."""
    monkeypatch.setattr(routes, "SOON_SECONDS", 0.5)
    async with mq.producer("pg", timeout=20) as producer:
        await producer.send(HELLO)
        await broker.stop()
        sending = asyncio.gather(*(producer.send_nowait(Message("T", b"%d" % number)) for number in range(5)))
        broker.port = 0
        await broker.start()
        await asyncio.sleep(0.4)  # three attempts have failed by now
        assert not sending.done()
        names.add("T", broker)
        await sending
        assert sorted(broker.bodies()) == [b"0", b"1", b"2", b"3", b"4", b"hello"]


async def test_without_retries_nobody_waits_for_a_broker(mq: Client, broker: FakeBroker) -> None:
    async with mq.producer("pg", retries=0, timeout=3600) as producer:
        await producer.send(HELLO)
        await broker.stop()
        with pytest.raises(RemotingError):
            await producer.send(HELLO)
        with pytest.raises(ConnectError):
            await producer.send(HELLO)


@pytest.mark.parametrize("options", [{"retries": -1}, {"timeout_per_attempt": 0}])
async def test_options_that_can_not_be(mq: Client, options: dict[str, Any]) -> None:
    with pytest.raises(ClientError, match="expected"):
        mq.producer("pg", **options)
