"""Messages that are sent one by one and travel together, against fakes and RockMQ's own broker."""

import asyncio

import pytest

from rockmq import embedded
from rockmq.base.errors import ClientError, InvalidMessage, ResponseError, TooManyInFlight
from rockmq.client import Client, Message, MessageQueue, SendReceipt, SendStatus
from rockmq.protocol import properties as names_of
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.message import decode_batch
from tests.unit.client.fakes import FakeBroker, FakeNames, refusal


def sends(broker: FakeBroker) -> list[int]:
    """How many messages came in each request, in their order."""
    found = []
    for header, request in zip(broker.headers, filter(is_send, broker.asked), strict=True):
        found.append(request.body.count(b"UNIQ_KEY") if header.batch else 1)
    return found


def is_send(request: object) -> bool:
    return getattr(request, "code", 0) in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


async def test_what_is_sent_in_one_turn_travels_together(mq: Client, broker: FakeBroker) -> None:
    async with mq.producer("pg", linger=0) as producer:
        receipts = await asyncio.gather(*(producer.send(Message("T", b"%d" % number, tag="t")) for number in range(50)))
        assert sends(broker) == [50]
        (header,) = broker.headers
        assert names_of.decode((header.properties or "").encode()) == {"TAGS": "t"}
        assert broker.bodies() == [b"%d" % number for number in range(50)]
        assert [receipt.queue_offset for receipt in receipts] == list(range(50))
        assert [receipt.offset_id for receipt in receipts] == [f"A{number}" for number in range(50)]
        assert len({receipt.msg_id for receipt in receipts}) == 50
        assert {receipt.queue for receipt in receipts} == {MessageQueue("T", "a", header.queue_id)}
        assert mq._instance.in_flight.messages == mq._instance.in_flight.bytes == 0


async def test_bodies_alone_and_messages_with_more_travel_in_their_order(mq: Client, broker: FakeBroker) -> None:
    sent = [
        Message("T", b"%d" % number, keys=f"k{number}" if number % 3 == 1 else (), flag=number % 2) for number in range(9)
    ]
    async with mq.producer("pg", linger=0) as producer:
        receipts = await asyncio.gather(*map(producer.send, sent))
        assert sends(broker) == [9]
        found = decode_batch(next(filter(is_send, broker.asked)).body)
    assert [(flag, body) for flag, body, _ in found] == [(each.flag, each.body) for each in sent]
    carried = [names_of.decode(text) for _, _, text in found]
    assert [each["UNIQ_KEY"] for each in carried] == [receipt.msg_id for receipt in receipts]
    assert len({receipt.msg_id for receipt in receipts}) == 9
    assert [each.get("KEYS") for each in carried] == [each.keys or None for each in sent]


@pytest.mark.parametrize("flag", [2**31, "1"])
async def test_a_flag_that_is_none_fails_its_own_message(mq: Client, broker: FakeBroker, flag: int) -> None:
    async with mq.producer("pg", linger=0) as producer:
        first, last = (asyncio.create_task(producer.send(Message("T", body))) for body in (b"first", b"last"))
        await asyncio.sleep(0)
        with pytest.raises(InvalidMessage, match="flag is"):
            await producer.send(Message("T", b"bad", flag=flag))
        await asyncio.gather(first, last)
        assert broker.bodies() == [b"first", b"last"]


async def test_all_of_a_batch_that_cannot_be_made_are_told(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object) -> None:
        raise OverflowError("too much")

    async with mq.producer("pg", linger=0) as producer:
        monkeypatch.setattr(producer._composer, "batch", fails)
        futures = [producer.send_nowait(Message("T", b"x")) for _ in range(3)]
        found = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(each) for each in found] == [OverflowError] * 3
        assert mq._instance.in_flight.messages == mq._instance.in_flight.bytes == 0


async def test_a_batch_waits_for_its_linger_and_a_flush_ends_the_wait(mq: Client, broker: FakeBroker) -> None:
    async with mq.producer("pg", linger=1.0) as producer:
        futures = [producer.send_nowait(Message("T", b"x")) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert not broker.headers
        await producer.flush()
        assert [future.result().status for future in futures] == [SendStatus.OK] * 3
        assert sends(broker) == [3]
        await producer.send(Message("T", b"x"))
        assert sends(broker) == [3, 1]


async def test_a_full_batch_leaves_at_once(mq: Client, broker: FakeBroker) -> None:
    async with mq.producer("pg", linger=3.0, batch_bytes=1000) as producer:
        futures = [producer.send_nowait(Message("T", b"x" * 300)) for _ in range(5)]
        while len(broker.headers) < 2:
            await asyncio.sleep(0.01)
        assert sends(broker) == [2, 2]
        await futures[3]
        assert not futures[4].done()
    assert futures[4].done(), "a close sends what waits"


async def test_messages_of_different_kinds_travel_apart(mq: Client, broker: FakeBroker) -> None:
    queue = MessageQueue("T", "a", 2)
    async with mq.producer("pg", linger=0) as producer:
        await producer.send(Message("T", b"so that the route is known"))
        broker.headers.clear()
        broker.asked.clear()
        kinds: list[tuple[Message, dict[str, object]]] = [
            (Message("T", b"1"), {}),
            (Message("T", b"2", tag="t"), {}),
            (Message("T", b"3", properties={"WAIT": "false"}), {}),
            (Message("T", b"4"), {"queue": queue}),
            (Message("T", b"5"), {"key": "TagA"}),
            (Message("T", b"6"), {"selector": lambda queues, _: queues[-1]}),
        ]
        futures = [producer.send_nowait(message, **how) for _ in range(2) for message, how in kinds]  # type: ignore[arg-type]
        receipts = await asyncio.gather(*futures)
    # Key and selector lead to the same queue.
    assert sorted(sends(broker)) == [2, 2, 2, 2, 4]
    assert {receipt.queue.queue_id for receipt in receipts[3::6]} == {2}
    assert {receipt.queue.queue_id for receipt in receipts[4::6] + receipts[5::6]} == {3}
    assert [header.properties for header in broker.headers].count("WAIT\x01false\x02") == 1


@pytest.mark.parametrize(
    ("message", "how"),
    [
        (Message("T", b"x", delay_level=3), {}),
        (Message("T", b"x"), {"delay": 3}),
        (Message("T", b"x"), {"timeout": 2.0}),
        (Message("T", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}), {}),
        (Message("T", b"x", properties={"PGROUP": "pg"}), {}),
        (Message("T", b"x" * 5000), {}),
        (Message("T", b"x" * 900), {}),
        (Message("T", b"x", properties={"a": "b" * 900}), {}),
    ],
)
async def test_these_go_by_themselves(mq: Client, broker: FakeBroker, message: Message, how: dict[str, float]) -> None:
    async with mq.producer("pg", linger=0, batch_bytes=900) as producer:
        await asyncio.gather(*(producer.send(message, **how) for _ in range(2)))  # type: ignore[arg-type]
    assert [header.batch for header in broker.headers] == [False, False]


async def test_invalid_messages_wait_for_nothing(mq: Client, broker: FakeBroker) -> None:
    async with mq.producer("pg", linger=0) as producer:
        for message in (Message("bad topic", b"x"), Message("T", b""), Message("T", None)):  # type: ignore[arg-type]
            with pytest.raises(InvalidMessage):
                await producer.send(message)
        with pytest.raises(ZeroDivisionError):
            await producer.send(Message("T", b"x"), selector=lambda queues, _: queues[1 // 0])
        with pytest.raises(ClientError, match="can't be sent to"):
            await producer.send(Message("T", b"x"), queue=MessageQueue("T", "a", 9))
    assert not broker.headers


async def test_each_message_gets_the_error_of_its_batch(mq: Client, broker: FakeBroker) -> None:
    broker.on_send = lambda header, request: refusal(request, ResponseCode.MESSAGE_ILLEGAL, "too odd")
    async with mq.producer("pg", linger=0) as producer:
        errors = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(3)), return_exceptions=True)
        assert len(set(map(id, errors))) == 3
        for error in errors:
            assert isinstance(error, ResponseError)
            assert (error.code, error.address) == (ResponseCode.MESSAGE_ILLEGAL, broker.address)
        assert mq._instance.in_flight.messages == 0


async def test_a_batch_is_tried_at_another_broker(mq: Client, broker: FakeBroker, other: FakeBroker) -> None:
    broker.on_send = lambda header, request: refusal(request, ResponseCode.SYSTEM_BUSY)
    async with mq.producer("pg", linger=0) as producer:
        for _ in range(8):
            receipts = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(3)))
            assert {receipt.queue.broker_name for receipt in receipts} == {"b"}


async def test_who_goes_away_sends_nothing(mq: Client, broker: FakeBroker) -> None:
    async with mq.producer("pg", linger=0.2) as producer:
        tasks = [asyncio.create_task(producer.send(Message("T", b"%d" % number))) for number in range(4)]
        await asyncio.sleep(0)
        for task in tasks[:2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(result, SendReceipt) for result in results] == [False, False, True, True]
        assert broker.bodies() == [b"2", b"3"]
        alone = asyncio.create_task(producer.send(Message("T", b"alone")))
        await asyncio.sleep(0)
        alone.cancel()
        await producer.flush()
        assert mq._instance.in_flight.messages == mq._instance.in_flight.bytes == 0
    assert broker.bodies() == [b"2", b"3"]


async def test_the_bound_in_flight_holds_for_what_waits(names: FakeNames, broker: FakeBroker) -> None:
    async with Client(names.address, max_in_flight=4) as mq, mq.producer("pg", linger=1.0, timeout=30) as producer:
        receipts = asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(10)))
        await asyncio.sleep(0)
        with pytest.raises(TooManyInFlight, match="4 of 4"):
            producer.send_nowait(Message("T", b"x"))
        assert len(await receipts) == 10
        assert sends(broker) == [4, 4, 2], "who waits for room isn't kept waiting by what waits for others"


async def test_a_close_sends_also_what_waits_for_room(names: FakeNames, broker: FakeBroker) -> None:
    async with Client(names.address, max_in_flight=2) as mq, mq.producer("pg", linger=2.0) as producer:
        waiting = [asyncio.create_task(producer.send(Message("T", b"x"))) for _ in range(5)]
        await asyncio.sleep(0)
        await producer.close()
        assert len(await asyncio.gather(*waiting)) == 5
    assert sends(broker) == [2, 2, 1]


@pytest.mark.parametrize(
    ("option", "value"), [("linger", -1), ("linger", 3.1), ("batch_bytes", 0), ("batch_bytes", 1 << 22)]
)
async def test_options_out_of_bounds(mq: Client, option: str, value: float) -> None:
    with pytest.raises(ClientError, match=f"{option} is {value}: expected"):
        mq.producer("pg", **{option: value})  # type: ignore[arg-type]


async def test_batches_of_a_real_broker() -> None:
    async with embedded.serve(flush="ASYNC_FLUSH") as served, Client(served.namesrv) as mq:
        await mq.create_topic("orders", 4)
        async with mq.producer("pg", linger=0) as producer:
            sent = [Message("orders", b"%d" % number, keys=[str(number)]) for number in range(1000)]
            receipts = await asyncio.gather(*(producer.send(message, key=message.keys[0]) for message in sent))
        found = {}
        for queue in await mq.queues("orders"):
            at = 0
            while (result := await mq.pull(queue, at)).messages:
                for message in result.messages:
                    found[message.msg_id] = (queue, message.queue_offset, message.offset_id, message.body)
                at = result.next_offset
        assert found == {
            receipt.msg_id: (receipt.queue, receipt.queue_offset, receipt.offset_id, message.body)
            for receipt, message in zip(receipts, sent, strict=True)
        }
