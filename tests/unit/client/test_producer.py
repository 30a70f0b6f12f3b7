"""Sends against brokers that refuse, stay silent, break connections and come back."""

import asyncio
import random
import time
from collections import Counter

import pytest

from rockmq.base.errors import (
    BatchIncomplete,
    ClientClosed,
    ClientError,
    ConnectError,
    InvalidMessage,
    RequestTimeout,
    ResponseError,
    RouteNotFound,
    TooManyInFlight,
)
from rockmq.client import Client, Message, MessageQueue, Producer, SendReceipt, SendStatus
from rockmq.protocol import properties as names_of
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.compression import decompress
from rockmq.protocol.headers.send import SendMessage
from tests.unit.client.fakes import FakeBroker, FakeNames, refusal

HELLO = Message("T", b"hello", tag="paid", keys=["42", "x"], properties={"a": "b"}, flag=3)


@pytest.fixture
async def producer(mq: Client) -> Producer:
    made = mq.producer("pg")
    await made.start()
    return made


def carried(header: SendMessage) -> dict[str, str]:
    assert header.properties is not None
    return names_of.decode(header.properties.encode())


async def test_what_a_send_carries(producer: Producer, broker: FakeBroker) -> None:
    begun = time.time()
    receipt = await producer.send(HELLO)
    (header,) = broker.headers
    assert (header.producer_group, header.topic, header.flag, header.sys_flag) == ("pg", "T", 3, 0)
    assert (header.default_topic, header.default_topic_queue_nums, header.bname) == ("TBW102", 4, "a")
    assert (header.reconsume_times, header.unit_mode, header.batch) == (0, False, False)
    assert begun - 0.01 < header.born_timestamp / 1000 < time.time() + 0.01
    assert carried(header) == {"a": "b", "TAGS": "paid", "KEYS": "42 x", "UNIQ_KEY": receipt.msg_id}
    assert len(receipt.msg_id) == 32
    assert receipt.queue == MessageQueue("T", "a", header.queue_id)
    assert (receipt.offset_id, receipt.queue_offset, receipt.status) == ("A0", 0, SendStatus.OK)
    assert HELLO.properties == {"a": "b"}, "the caller's message stays as it was"


async def test_queues_take_turns(producer: Producer, broker: FakeBroker, other: FakeBroker) -> None:
    for _ in range(16):
        await producer.send(HELLO)
    queues = Counter((header.bname, header.queue_id) for header in broker.headers + other.headers)
    assert queues == {(name, number): 2 for name in "ab" for number in range(4)}


async def test_a_key_goes_to_one_queue_and_is_told(producer: Producer, broker: FakeBroker, other: FakeBroker) -> None:
    receipts = [await producer.send(HELLO, key="TagA") for _ in range(5)]
    assert {receipt.queue for receipt in receipts} == {MessageQueue("T", "b", 2598919 % 8 - 4)}
    assert carried(other.headers[0])["__SHARDINGKEY"] == "TagA"


async def test_a_queue_or_a_selector(producer: Producer, broker: FakeBroker) -> None:
    assert (await producer.send(HELLO, queue=MessageQueue("T", "a", 2))).queue.queue_id == 2
    assert (await producer.send(HELLO, selector=lambda queues, _: queues[-1])).queue.queue_id == 3
    with pytest.raises(ClientError, match="can't be sent to"):
        await producer.send(HELLO, queue=MessageQueue("T", "a", 9))
    with pytest.raises(ZeroDivisionError):
        await producer.send(HELLO, selector=lambda queues, _: queues[1 // 0])
    with pytest.raises(ClientError, match="picked None: expected one of the queues"):
        await producer.send(HELLO, selector=lambda queues, _: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(InvalidMessage, match="one of"):
        await producer.send(HELLO, key="k", queue=MessageQueue("T", "a", 2))


# What is refused before anything is sent


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (Message("", b"x"), "topic is empty"),
        (Message("bad topic", b"x"), "characters other than"),
        (Message("x" * 128, b"x"), "128 characters"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "broker's own"),
        (Message("T", b""), "body is empty"),
        (Message("T", "text"), "must be bytes"),  # type: ignore[arg-type]
        (Message("T", b"x" * (4 * 1024 * 1024 + 1)), "4194305 bytes"),
        (Message("T", b"x", properties={"k": "a\x02b"}), "separator"),
        (Message("T", b"x", properties={"k": "v" * 32_767}), "bound is 32767"),
        (Message("T", b"x", properties={"TRAN_MSG": "true"}), "send_in_transaction"),
        (Message("T", b"x", properties={"amount": 3}), "property 'amount' is 3: expected text"),  # type: ignore[dict-item]
        (Message("T", b"x", tag=3), "property 'TAGS' is 3: expected text"),  # type: ignore[arg-type]
        (Message("T", b"x", keys=[1, 2]), r"keys are \[1, 2\]: expected texts"),  # type: ignore[list-item]
    ],
)
async def test_invalid_messages(producer: Producer, broker: FakeBroker, message: Message, fault: str) -> None:
    with pytest.raises(InvalidMessage, match=fault):
        await producer.send(message)
    assert not broker.headers


async def test_the_largest_body_passes(mq: Client, broker: FakeBroker) -> None:
    async with mq.producer("pg", compression="none") as producer:
        await producer.send(Message("T", b"x" * (4 * 1024 * 1024)), timeout=10)
    assert len(broker.bodies()[0]) == 4 * 1024 * 1024


# Compression


@pytest.mark.parametrize(("kind", "flags"), [("zlib", 0x301), ("lz4", 0x101), ("zstd", 0x201)])
async def test_compression(mq: Client, broker: FakeBroker, kind: str, flags: int) -> None:
    body = b"a long story " * 1000
    async with mq.producer("pg", compression=kind) as producer:  # type: ignore[arg-type]
        await producer.send(Message("T", body))
        await producer.send(Message("T", body[:4095]))
    assert [header.sys_flag for header in broker.headers] == [flags, 0]
    sent = broker.asked[[request.code for request in broker.asked].index(RequestCode.SEND_MESSAGE_V2)].body
    assert len(sent) < len(body)
    assert decompress(flags, sent) == body


async def test_a_level_of_compression(mq: Client, broker: FakeBroker) -> None:
    body = b"".join(b"%d " % (number * number) for number in range(5000))
    for level in (1, 9):
        async with mq.producer("pg", compression_level=level) as producer:
            await producer.send(Message("T", body))
    least, most = [request.body for request in broker.asked if request.code == RequestCode.SEND_MESSAGE_V2]
    assert len(most) < len(least) < len(body)


async def test_what_does_not_shrink_stays_as_it_is(producer: Producer, broker: FakeBroker) -> None:
    noise = random.Random(1).randbytes(5000)
    await producer.send(Message("T", noise))
    assert broker.headers[0].sys_flag == 0
    assert broker.bodies() == [noise]


# Status and refusal


@pytest.mark.parametrize("status", list(SendStatus))
async def test_statuses(producer: Producer, broker: FakeBroker, status: SendStatus) -> None:
    broker.on_send = lambda header, request: broker.store(header, request, status)
    receipt = await producer.send(HELLO)
    assert receipt.status is status
    assert receipt.durability == "unknown"
    assert receipt.status.meaning
    assert len(broker.headers) == 1


@pytest.mark.parametrize("code", [17, 14, 1, 2, 16, 204, 205, 1500])
async def test_these_codes_are_tried_at_another_broker(
    producer: Producer, broker: FakeBroker, other: FakeBroker, code: int
) -> None:
    broker.on_send = lambda header, request: refusal(request, code)
    for _ in range(8):
        assert (await producer.send(HELLO)).queue.broker_name == "b"
    assert 1 <= len(broker.headers) <= 8, "after a refusal the next attempt goes to the other broker at once"


async def test_other_codes_are_final(producer: Producer, broker: FakeBroker) -> None:
    broker.on_send = lambda header, request: refusal(request, ResponseCode.MESSAGE_ILLEGAL, "too odd")
    with pytest.raises(ResponseError, match="too odd") as caught:
        await producer.send(HELLO)
    assert (caught.value.code, caught.value.address, caught.value.retriable) == (13, broker.address, False)
    assert len(broker.headers) == 1


async def test_attempts_end(producer: Producer, broker: FakeBroker) -> None:
    broker.on_send = lambda header, request: refusal(request, ResponseCode.SYSTEM_BUSY, "busy")
    with pytest.raises(ResponseError) as caught:
        await producer.send(HELLO)
    assert caught.value.retriable
    assert len(broker.headers) == 3
    assert "3 attempts" in caught.value.__notes__[0]
    assert len({carried(header)["UNIQ_KEY"] for header in broker.headers}) == 1, "it stays the same message"


async def test_a_later_attempt_succeeds(producer: Producer, broker: FakeBroker) -> None:
    broker.on_send = lambda header, request: refusal(request, 2) if len(broker.headers) < 3 else None
    assert (await producer.send(HELLO)).status is SendStatus.OK


async def test_one_deadline_for_all_attempts(mq: Client, broker: FakeBroker) -> None:
    broker.on_send = lambda header, request: refusal(request, 2)
    async with mq.producer("pg", retries=1000) as producer:
        with pytest.raises(ResponseError):
            await producer.send(HELLO, timeout=0.5)
    assert len(broker.headers) < 10


# Time


async def test_silence_ends_in_time(producer: Producer, broker: FakeBroker) -> None:
    broker.on_send = lambda header, request: "silence"
    begun = time.monotonic()
    longer = producer.send_nowait(HELLO, timeout=60)
    with pytest.raises(RequestTimeout, match="may have been stored"):
        await producer.send(HELLO, timeout=0.2)
    assert time.monotonic() - begun > 0.15
    assert not longer.done()
    longer.cancel()


async def test_a_close_that_is_cancelled_leaves_the_group(mq: Client, broker: FakeBroker) -> None:
    broker.on_send = lambda header, request: "silence"
    async with mq.producer("pg") as producer:
        sending = producer.send_nowait(HELLO, timeout=60)
        while not broker.headers:
            await asyncio.sleep(0.01)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0.01)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(ClientClosed):
            await sending
        assert broker.count(RequestCode.UNREGISTER_CLIENT) == 1


async def test_deadlines_in_any_order(producer: Producer, broker: FakeBroker) -> None:
    broker.on_send = lambda header, request: "silence"
    ended: list[float] = []

    async def wait(timeout: float) -> None:
        with pytest.raises(RequestTimeout):
            await producer.send(HELLO, timeout=timeout)
        ended.append(timeout)

    await asyncio.gather(wait(0.6), wait(0.2), wait(0.4))
    assert ended == [0.2, 0.4, 0.6]


async def test_a_late_answer_is_nobodys(producer: Producer, broker: FakeBroker) -> None:
    await producer.send(HELLO)
    late = asyncio.get_running_loop().create_future()
    broker.on_send = lambda header, request: late if len(broker.headers) == 2 else None
    with pytest.raises(RequestTimeout):
        await producer.send(HELLO, timeout=0.1)
    while len(broker.headers) < 2:
        await asyncio.sleep(0.01)
    second = next(request for request in reversed(broker.asked) if request.code == RequestCode.SEND_MESSAGE_V2)
    late.set_result(broker.store(broker.headers[1], second))
    receipts = [await producer.send(HELLO) for _ in range(3)]
    assert len({receipt.msg_id for receipt in receipts}) == 3
    assert not leftovers(producer)


async def test_cancelling_drops_only_its_own(producer: Producer, broker: FakeBroker) -> None:
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def answer(header: SendMessage, request: Command) -> Command:
        await asyncio.shield(gate)
        return broker.store(header, request)

    broker.on_send = lambda header, request: answer(header, request)
    sends = [asyncio.create_task(producer.send(Message("T", b"%d" % number), key="k")) for number in range(20)]
    while len(broker.headers) < 20:
        await asyncio.sleep(0.01)
    for number in range(0, 20, 2):
        sends[number].cancel()
    await asyncio.sleep(0)
    gate.set_result(None)
    results = await asyncio.gather(*sends, return_exceptions=True)
    for number, result in enumerate(results):
        if number % 2 == 0:
            assert isinstance(result, asyncio.CancelledError)
        else:
            assert broker.bodies()[result.queue_offset] == b"%d" % number, "each gets its own receipt"  # type: ignore[union-attr]
    await producer.flush()
    assert not leftovers(producer)


# Connections


async def test_a_lost_connection_is_tried_again(producer: Producer, broker: FakeBroker) -> None:
    def cut(header: SendMessage, request: Command) -> str | None:
        if len(broker.headers) > 1:
            return None
        for connection in list(broker.connections):
            connection.transport.abort()
        return "silence"

    broker.on_send = cut
    assert (await producer.send(HELLO)).status is SendStatus.OK
    assert len(broker.headers) == 2


async def test_the_other_broker_takes_over(producer: Producer, broker: FakeBroker, other: FakeBroker) -> None:
    await producer.send(HELLO)
    await broker.stop()
    receipts = [await producer.send(HELLO) for _ in range(8)]
    assert {receipt.queue.broker_name for receipt in receipts} == {"b"}


async def test_a_broker_that_is_gone(producer: Producer, broker: FakeBroker) -> None:
    await broker.stop()
    with pytest.raises(ConnectError, match="can't connect"):
        await producer.send(HELLO, timeout=0.5)


async def test_sends_wait_for_a_broker_that_comes_back(mq: Client, broker: FakeBroker) -> None:
    async with mq.producer("pg", retries=100, timeout=20) as producer:
        await producer.send(HELLO)
        await broker.stop()
        sends = asyncio.gather(*(producer.send(HELLO) for _ in range(50)))
        await asyncio.sleep(0.3)
        await broker.start()
        assert len(await sends) == 50
        assert len(broker.bodies()) == 51


async def test_many_sends_leave_in_few_writes(producer: Producer, broker: FakeBroker) -> None:
    await producer.send(HELLO)
    receipts = await asyncio.gather(*(producer.send(Message("T", b"%d" % number)) for number in range(500)))
    assert len({(receipt.queue, receipt.queue_offset) for receipt in receipts}) == 500
    assert sorted(broker.bodies()) == sorted([b"hello", *(b"%d" % number for number in range(500))])


async def test_heartbeats_name_the_group(mq: Client, broker: FakeBroker) -> None:
    async with mq.producer("pg") as producer:
        await producer.send(HELLO)
        while not broker.beats:
            await asyncio.sleep(0.01)
        assert [each.group_name for each in broker.beats[0].producer_data_set] == ["pg"]
        assert broker.beats[0].client_id == mq.client_id
    assert broker.count(RequestCode.UNREGISTER_CLIENT) == 1


# Routes


async def test_an_unknown_topic(producer: Producer, broker: FakeBroker, names: FakeNames) -> None:
    with pytest.raises(RouteNotFound, match=f"{names.address} says 'No topic route"):
        await producer.send(Message("nowhere", b"x"))


async def test_a_new_topic_borrows_the_template(producer: Producer, broker: FakeBroker, names: FakeNames) -> None:
    names.add("TBW102", broker, queues=8, perm=7)
    queues = {(await producer.send(Message("new", b"x"))).queue.queue_id for _ in range(8)}
    assert queues == {0, 1, 2, 3}, "at most four of the template's queues"
    names.add("new", broker, queues=6)
    async with asyncio.timeout(60):  # its own route is used as soon as there is one
        while {(await producer.send(Message("new", b"x"))).queue.queue_id for _ in range(6)} != set(range(6)):
            await asyncio.sleep(0.05)


async def test_a_template_that_creates_nothing(producer: Producer, broker: FakeBroker, names: FakeNames) -> None:
    names.add("TBW102", broker, perm=6)
    with pytest.raises(RouteNotFound, match="no broker creates topics"):
        await producer.send(Message("new", b"x"))


async def test_the_next_name_server_is_asked(names: FakeNames, broker: FakeBroker) -> None:
    for _ in range(4):  # whichever it begins with
        async with Client(f"127.0.0.1:1;{names.address}") as mq, mq.producer("pg") as producer:
            await producer.send(HELLO)


async def test_no_name_server_answers() -> None:
    async with Client("127.0.0.1:1;127.0.0.1:2") as mq, mq.producer("pg") as producer:
        with pytest.raises(ConnectError, match=r"no name server answers.*127\.0\.0\.1:[12]: .*127\.0\.0\.1:[12]: "):
            await producer.send(HELLO, timeout=0.5)


async def test_first_sends_ask_for_the_route_once(producer: Producer, broker: FakeBroker, names: FakeNames) -> None:
    await asyncio.gather(*(producer.send(HELLO) for _ in range(50)))
    assert names.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 1


# Batches, one-way, futures


async def test_a_batch(producer: Producer, broker: FakeBroker) -> None:
    receipts = await producer.send_batch([Message("T", b"%d" % number, tag="t") for number in range(3)], key="k")
    (header,) = broker.headers
    assert header.batch is True
    assert broker.count(RequestCode.SEND_BATCH_MESSAGE) == 1
    assert [receipt.queue_offset for receipt in receipts] == [0, 1, 2]
    assert [receipt.offset_id for receipt in receipts] == ["A0", "A1", "A2"]
    assert len({receipt.msg_id for receipt in receipts}) == 3
    assert broker.bodies() == [b"0", b"1", b"2"]


async def test_a_batch_over_the_bound_is_cut(mq: Client, broker: FakeBroker) -> None:
    async with mq.producer("pg", message_size_max=1000) as producer:
        receipts = await producer.send_batch([Message("T", b"%03d" % number * 100) for number in range(7)], key="k")
    assert len(broker.headers) == 4
    assert [receipt.queue_offset for receipt in receipts] == list(range(7))
    assert broker.bodies() == [b"%03d" % number * 100 for number in range(7)]


async def test_a_batch_of_which_a_part_fails(mq: Client, broker: FakeBroker) -> None:
    broker.on_send = lambda header, request: refusal(request, 13, "enough") if len(broker.headers) > 2 else None
    async with mq.producer("pg", message_size_max=1000) as producer:
        with pytest.raises(BatchIncomplete, match="first 4 of 7") as caught:
            await producer.send_batch([Message("T", b"x" * 300) for _ in range(7)])
    assert caught.value.stored == 4
    assert isinstance(caught.value.__cause__, ResponseError)


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([Message("T", b"x"), Message("U", b"x")], "one topic"),
        ([Message("T", b"x", properties={"DELAY": "3"})], "DELAY"),
        ([Message("T", b"x", delay_level=3)], "DELAY"),
        ([Message("T", b"x"), Message("T", b"x", properties={"WAIT": "false"})], "agree"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
        ([Message("T", b"")], "empty"),
    ],
)
async def test_batches_that_can_not_be(producer: Producer, broker: FakeBroker, messages: list[Message], fault: str) -> None:
    with pytest.raises(InvalidMessage, match=fault):
        await producer.send_batch(messages)
    assert not broker.headers


async def test_an_empty_batch_is_nothing(producer: Producer, broker: FakeBroker) -> None:
    assert await producer.send_batch([]) == []


async def test_oneway(producer: Producer, broker: FakeBroker) -> None:
    await producer.send_oneway(HELLO)
    await producer.send(HELLO)
    assert [request.is_oneway for request in broker.asked if request.code == RequestCode.SEND_MESSAGE_V2] == [True, False]


async def test_futures(producer: Producer, broker: FakeBroker) -> None:
    futures = [producer.send_nowait(HELLO) for _ in range(100)]
    assert not any(future.done() for future in futures)
    await producer.flush()
    assert all(future.result().status is SendStatus.OK for future in futures)


async def test_binary_headers(names: FakeNames, broker: FakeBroker) -> None:
    async with Client(names.address, serializer="binary") as mq, mq.producer("pg") as producer:
        await producer.send(HELLO)
    assert {request.serializer for request in broker.asked} == {1}


# Bounds and the end


async def test_sends_wait_for_room(names: FakeNames, broker: FakeBroker) -> None:
    waiting: list[asyncio.Future[None]] = []

    async def answer(header: SendMessage, request: Command) -> Command:
        waiting.append(asyncio.get_running_loop().create_future())
        await waiting[-1]
        return broker.store(header, request)

    broker.on_send = lambda header, request: answer(header, request)
    async with Client(names.address, max_in_flight=4) as mq, mq.producer("pg", timeout=10) as producer:
        sends = [asyncio.create_task(producer.send(HELLO)) for _ in range(10)]
        while len(broker.headers) < 4:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert len(broker.headers) == 4
        with pytest.raises(TooManyInFlight, match="4 of 4 messages"):
            producer.send_nowait(HELLO)
        with pytest.raises(TooManyInFlight, match="in time"):
            await producer.send(HELLO, timeout=0.1)
        while not all(send.done() for send in sends):
            for future in waiting:
                if not future.done():
                    future.set_result(None)
            await asyncio.sleep(0.01)
        await asyncio.gather(*sends)
        assert not leftovers(producer)


async def test_close_waits_for_what_is_on_its_way(mq: Client, broker: FakeBroker) -> None:
    async with mq.producer("pg") as producer:
        future = producer.send_nowait(HELLO)
    assert future.done()
    assert future.result().status is SendStatus.OK
    with pytest.raises(ClientClosed):
        await producer.send(HELLO)


async def test_a_drain_waits_so_long_and_no_longer(mq: Client, broker: FakeBroker) -> None:
    producer = mq.producer("pg", timeout=30)
    await producer.start()
    await producer.send(HELLO)
    late: list[Command] = []

    def answer(header: SendMessage, request: Command) -> str | None:
        late.append(request)
        return "silence" if len(late) == 1 else None

    broker.on_send = answer
    futures = [producer.send_nowait(HELLO) for _ in range(3)]
    await producer.drain(1.0)
    assert producer.closed
    assert [future.exception() is None for future in futures] == [False, True, True]
    with pytest.raises(ClientClosed, match="may have been stored"):
        futures[0].result()
    with pytest.raises(ClientClosed):
        producer.send_nowait(HELLO)
    assert broker.count(RequestCode.UNREGISTER_CLIENT) == 1
    assert not leftovers(producer)


async def test_sends_that_wait_for_room_go_before_a_close(names: FakeNames, broker: FakeBroker) -> None:
    async with Client(names.address, max_in_flight=1) as mq, mq.producer("pg") as producer:
        sends = [asyncio.create_task(producer.send(HELLO)) for _ in range(5)]
        await asyncio.sleep(0)
        await producer.close()
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(result, SendReceipt) for result in results)
        assert len(broker.bodies()) == 5


async def test_a_client_closes_its_producers(names: FakeNames, broker: FakeBroker) -> None:
    async with Client(names.address) as mq:
        producer = mq.producer("pg")
        with pytest.raises(ClientClosed, match="not started"):
            await producer.send(HELLO)
        await producer.start()
        future = producer.send_nowait(HELLO)
    assert future.result().status is SendStatus.OK
    with pytest.raises(ClientClosed):
        mq.producer("pg")


async def test_a_client_must_be_entered(names: FakeNames) -> None:
    with pytest.raises(ClientClosed, match="async with"):
        Client(names.address).producer("pg")


def leftovers(producer: Producer) -> object:
    """What a producer and its connections still keep of sends."""
    instance = producer._instance
    pending = {to: channel.connection._pending for to, channel in instance._channels.items() if channel.connection._pending}
    sender = producer._sender
    assert sender is not None
    return pending or sender.active or instance.in_flight.messages or instance.in_flight.bytes
