"""Bodies that are decoded: what `decode` may be, what a message's body is then, and what becomes of those that can't be."""

import asyncio
import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pytest

from rockmq.base.errors import ClientError, InvalidMessage, ProtocolError
from rockmq.client import Client, ConsumedMessage, Decode, Message, PopMessage, PulledMessage, Worker
from rockmq.client.decoding import Decoder
from rockmq.protocol.message import decode_stored
from tests.unit.client.fakes import FakeBroker, FakeNames, record
from tests.unit.client.test_consumer import until
from tests.unit.client.test_handlers import sent_back
from tests.unit.client.test_pop import PopBroker, popping

__all__ = ["popping"]


@dataclass
class Order:
    number: int


class Paid(msgspec.Struct):
    number: int


class Shipped(TypedDict):
    number: int


GOOD, BAD = b'{"number": 7}', b'{"number": "seven"}'


# What may decode


@pytest.mark.parametrize(
    ("decode", "body", "expected"),
    [
        (Order, GOOD, Order(7)),
        (Paid, GOOD, Paid(7)),
        (Shipped, GOOD, {"number": 7}),
        (list[Order], b"[" + GOOD + b"]", [Order(7)]),
        (Order | None, b"null", None),
        (bytes.decode, b"seven", "seven"),
        (len, b"seven", 5),
    ],
)
def test_types_and_functions_decode(decode: Decode[Any], body: bytes, expected: object) -> None:
    (stored,) = decode_stored(record("T", 0, 0, body))
    decoder = Decoder(decode)
    assert decoder(stored) == expected
    assert pickle.loads(pickle.dumps(decoder))(stored) == expected


@pytest.mark.parametrize("decode", [object, "Order", Order | Paid, 7])
def test_what_cannot_decode_is_refused_at_once(decode: Any) -> None:
    with pytest.raises(ClientError, match="decode="):
        Decoder(decode)


@pytest.mark.parametrize("decode", [Order, lambda body: 1 // 0])
def test_a_body_that_does_not_decode_names_its_message(decode: Any) -> None:
    (stored,) = decode_stored(record("T", 0, 3, BAD, {"UNIQ_KEY": "ABC"}))
    with pytest.raises(ProtocolError, match=r"message ABC: its body") as caught:
        PulledMessage(stored, Decoder(decode)).body  # noqa: B018
    assert caught.value.__cause__ is not None


def test_a_message_of_an_object() -> None:
    message = Message.json("T", Order(7), tag="paid", keys=["7"], properties={"region": "eu"}, delay_level=2)
    assert message == Message("T", b'{"number":7}', "paid", ["7"], {"region": "eu"}, delay_level=2)
    with pytest.raises(InvalidMessage, match="object can't be sent as JSON"):
        Message.json("T", object())


# Consumers


async def test_bodies_are_decoded_once(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [GOOD, GOOD]
    async with mq.consumer("g", "T", from_where="first", decode=Order) as consumer:
        (message,) = await consumer.fetch(1, timeout=5)
        assert message.body == Order(7)
        assert message.body is message.body
        assert message.stored.body == GOOD
        message.put_back()
        async for again in consumer:
            async with again.process() as same:
                assert same.body == Order(7)
            if again.queue_offset == 1:
                break
    assert broker.offsets["g", "T", 0] == 2


async def test_a_body_that_does_not_decode_is_raised_in_the_block(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [BAD]
    async with mq.consumer("g", "T", from_where="first", decode=Order) as consumer:
        message = await anext(consumer)
        with pytest.raises(ProtocolError, match=message.msg_id):
            async with message.process():
                assert message.body.number
    assert sent_back(broker) == [("0", "0")]


async def test_handlers_get_what_decodes_and_the_rest_is_refused(
    mq: Client, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.stored["T", 0] = [GOOD, BAD, GOOD]
    numbers: list[int] = []
    at_once = asyncio.Event()

    async def handle(message: ConsumedMessage[Order]) -> None:
        numbers.append(message.body.number)
        if len(numbers) == 2:
            at_once.set()

    async with mq.consumer("g", "T", from_where="first", decode=Order) as consumer:
        run = asyncio.create_task(consumer.run(handle))
        await asyncio.wait_for(at_once.wait(), 10)
        await until(lambda: sent_back(broker))
    await run
    assert numbers == [7, 7]
    assert sent_back(broker) == [("1", "0")]
    assert "its body can't be decoded as Order" in caplog.text


async def test_functions_and_batches(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [GOOD] * 4
    numbers: list[int] = []

    def handle(message: ConsumedMessage[Order]) -> None:
        numbers.append(message.body.number)

    async def work(batch: list[ConsumedMessage[Order]]) -> None:
        numbers.extend(message.body.number for message in batch)

    async with mq.consumer("g", "T", from_where="first", decode=Order) as consumer:
        run = asyncio.create_task(consumer.run(handle, ordered_by=lambda message: message.body.number))
        await until(lambda: len(numbers) == 4)
    await run
    async with mq.consumer("h", "T", from_where="first", decode=Order) as consumer:
        run = asyncio.create_task(consumer.run_batches(work))
        await until(lambda: len(numbers) == 8)
    await run
    assert numbers == [7] * 8


async def test_what_is_refused_is_sent_anew_as_it_came(mq: Client, names: FakeNames, broker: FakeBroker) -> None:
    names.add("%RETRY%g", broker)  # for what the broker itself doesn't take back
    broker.stored["T", 0] = [BAD]
    async with mq.consumer("g", "T", from_where="first", decode=Order) as consumer:
        await (await anext(consumer)).nack()
    assert broker.bodies("%RETRY%g") == [BAD]


def in_a_process(message: ConsumedMessage[Order] | PopMessage[Order]) -> None:
    """A handler for processes; what it had is to be seen in a file."""
    with open(message.properties["file"], "a") as file:
        file.write(f"{os.getpid()} {message.body.number}\n")


async def test_processes_decode_for_themselves(mq: Client, popping: PopBroker, tmp_path: Path) -> None:
    path = tmp_path / "done"
    popping.put(GOOD, file=str(path))
    async with mq.pop_consumer("g", ["T"], decode=Order) as consumer:
        run = asyncio.create_task(consumer.run(in_a_process, 1, workers="processes"))
        await until(lambda: popping.acknowledged == [0], 60)
    await run
    process, number = path.read_text().split()
    assert (process != str(os.getpid()), number) == (True, "7")


async def test_what_processes_cannot_have_is_told_at_once(mq: Client, broker: FakeBroker) -> None:
    async with mq.consumer("g", "T", decode=lambda body: Order(len(body))) as consumer:
        with pytest.raises(ClientError, match="can't be sent to another process"):
            await consumer.run(in_a_process, workers="processes")


async def test_pops(mq: Client, popping: PopBroker) -> None:
    popping.put(GOOD, BAD)
    async with mq.pop_consumer("g", ["T"], decode=Order) as consumer:
        good, bad = await consumer.fetch(2, timeout=10)
        assert good.body == Order(7)
        await good.ack()
        with pytest.raises(ProtocolError, match=bad.msg_id):
            async with bad.process():
                assert bad.body.number
        await until(lambda: popping.acknowledged == [0] and popping.changes)


async def test_lite_pulls(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [GOOD, BAD]
    async with mq.lite_pull_consumer("g", ["T"], from_where="first", decode=Order) as consumer:
        good, bad = await consumer.poll(10)
        assert (good.body, good.stored.queue_id, bad.queue_offset) == (Order(7), 0, 1)
        with pytest.raises(ProtocolError, match=bad.msg_id):
            bad.body  # noqa: B018
        await consumer.commit()
    assert broker.offsets["g", "T", 0] == 2


async def test_workers(names: FakeNames, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [GOOD]
    app = Worker(names.address)
    found: list[Order] = []

    @app.subscribe("T", group="g", from_where="first", decode=Order, ordered_by=lambda message: message.body.number)
    async def handle(message: ConsumedMessage[Order]) -> None:
        found.append(message.body)
        app.stop()

    await asyncio.wait_for(app.run(), 30)
    assert found == [Order(7)]
