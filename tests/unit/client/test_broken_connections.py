"""What networks and broken peers do to connections, and what comes of it."""

import asyncio
import logging
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rockmq.base.errors import ConnectError, ConnectionLost, ProtocolError, RequestTimeout, RockMQError
from rockmq.client import Client, ConsumedMessage, Message, MessageQueue, Producer, outcomes
from rockmq.client import consumer as consumer_module
from rockmq.client import instance as runtime
from rockmq.protocol import codec, properties
from rockmq.protocol.bodies.route import BrokerData
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.compression import Compression
from rockmq.protocol.headers.pull import Pull
from rockmq.protocol.headers.send import PushReply, SendMessage
from rockmq.remoting.connection import Connection
from tests.support.clock import FakeClock, SteppingClock
from tests.support.proxy import Proxy, once, with_body, with_opaque
from tests.unit.client.fakes import FakeBroker, FakeNames, pulled, record


@pytest.fixture
async def proxy(names: FakeNames, broker: FakeBroker) -> AsyncIterator[Proxy]:
    """Stands before broker a, where the route leads."""
    async with Proxy(broker.address) as started:
        names.routes["T"].broker_datas = [BrokerData(broker_name="a", cluster="c", broker_addrs={"0": started.address})]
        yield started


@pytest.fixture
async def producer(proxy: Proxy, mq: Client) -> AsyncIterator[Producer]:
    """Connected, so that what comes back next is the answer to a send."""
    async with mq.producer("pg") as made:
        await made.send(Message("T", b"first"))
        await mq._instance.heartbeat()
        yield made


async def test_an_answer_with_an_unknown_opaque_is_nobodys(producer: Producer, proxy: Proxy) -> None:
    proxy.on_reply = once(lambda data: with_opaque(data, 4711))
    with pytest.raises(RequestTimeout):
        await producer.send(Message("T", b"x"), timeout=0.2)
    assert (await producer.send(Message("T", b"y"))).queue.topic == "T"
    assert proxy.accepted == 1, "the connection is as good as before"


async def test_a_late_answer_is_nobodys(producer: Producer, proxy: Proxy, broker: FakeBroker) -> None:
    proxy.passing.clear()
    with pytest.raises(RequestTimeout, match="it may have been stored"):
        await producer.send(Message("T", b"late"), timeout=0.2)
    proxy.passing.set()
    receipt = await producer.send(Message("T", b"in time"))
    assert broker.stored["T", receipt.queue.queue_id][receipt.queue_offset] == b"in time"
    assert proxy.accepted == 1


async def test_answers_that_change_places(producer: Producer, proxy: Proxy, broker: FakeBroker) -> None:
    held: list[bytes] = []

    def swap(data: bytes) -> bytes:
        held.append(data)
        return b"".join(reversed(held)) if len(held) == 2 else b""

    proxy.on_reply = swap
    sent = [Message("T", b"%d" % number) for number in range(2)]
    receipts = await asyncio.gather(*map(producer.send, sent))
    proxy.on_reply = None
    for message, receipt in zip(sent, receipts, strict=True):
        assert broker.stored["T", receipt.queue.queue_id][receipt.queue_offset] == message.body


async def test_half_a_frame_and_then_the_end(producer: Producer, proxy: Proxy, broker: FakeBroker) -> None:
    proxy.bytes_left = 20
    await producer.send(Message("T", b"x"))
    assert broker.bodies().count(b"x") == 2, "stored, and sent again as nobody could know that"
    assert proxy.accepted == 2


async def test_half_a_frame_and_then_silence(
    producer: Producer, proxy: Proxy, mq: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "API_TIMEOUT", 0.8)  # that of the heartbeat which finds out
    proxy.bytes_left, proxy.silent = 20, True
    with pytest.raises(RequestTimeout):
        await producer.send(Message("T", b"x"), timeout=0.1)
    await producer.send(Message("T", b"y"), timeout=20)
    assert proxy.accepted == 2, "the silent connection was given up"


async def test_silence_is_found_out_without_heartbeats(proxy: Proxy, mq: Client, broker: FakeBroker) -> None:
    """A client that only reads sends none."""
    queue = MessageQueue("T", "a", 0)
    broker.stored["T", 0] = [b"x"]
    await mq.pull(queue, 0)
    proxy.bytes_left, proxy.silent = 20, True
    with pytest.raises(RequestTimeout):
        await mq.pull(queue, 0, timeout=0.1)
    assert proxy.accepted == 1, "so short a silence says nothing"
    with pytest.raises(RequestTimeout):
        await mq.pull(queue, 0, timeout=1.1)
    assert (await mq.pull(queue, 0)).max_offset == 1
    assert proxy.accepted == 2


async def test_answers_that_are_no_frames(producer: Producer, proxy: Proxy, mq: Client) -> None:
    proxy.on_reply = lambda data: b"HTTP/1.1 400 Bad Request\r\n\r\n"
    with pytest.raises(ConnectionLost, match=rf"what {proxy.address} sends is not RocketMQ's protocol: .*length"):
        await producer.send(Message("T", b"x"), timeout=1)
    proxy.on_reply = None
    await producer.send(Message("T", b"y"))


async def test_a_port_where_somebody_else_listens() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(f"127.0.0.1:{port}") as mq:
        with pytest.raises(ConnectError, match=rf"127.0.0.1:{port} closed .* without any answer: is it a RocketMQ server"):
            await mq.queues("T")


async def test_a_broker_that_refuses_and_comes_back(producer: Producer, proxy: Proxy) -> None:
    await proxy.stop()
    with pytest.raises(ConnectError, match="Connect call failed"):
        await producer.send(Message("T", b"x"), timeout=0.5)
    sending = producer.send_nowait(Message("T", b"y"), timeout=10)
    await proxy.start()
    await sending


async def test_a_record_with_another_magic(mq: Client, broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    records = [record("T", 0, offset, b"%d" % offset) for offset in range(2)]
    damaged = records[1][:4] + b"\0\0\0\0" + records[1][8:]
    answers = [[records[0], damaged], records]

    def answer(header: Pull, request: Command, connection: Connection) -> Command | str:
        if header.queue_id or header.queue_offset:
            return "silence"
        return pulled(request, 0, answers.pop(0) if len(answers) > 1 else answers[0], 2)

    broker.on_pull = answer
    with pytest.raises(ProtocolError, match="no whole record at byte 93"):
        _ = (await mq.pull(MessageQueue("T", "a", 0), 0)).messages
    answers.insert(0, [records[0], damaged])
    with caplog.at_level(logging.ERROR, "rockmq.client"):
        async with mq.consumer("cg", "T", from_where="first") as consumer:
            assert [(await anext(consumer)).body for _ in range(2)] == [b"0", b"1"], "nothing is skipped"
    assert "what queue 0 of T on a answered can't be read, trying again: stored messages" in caplog.text


def compressed(offset: int, body: bytes) -> bytes:
    """A record whose sysFlag says zlib."""
    made = record("T", 0, offset, body, {"UNIQ_KEY": f"ID{offset}"})
    return made[:36] + (0x301).to_bytes(4, "big") + made[40:]


async def test_a_body_that_does_not_decompress(mq: Client, broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    records = [compressed(0, zlib.compress(b"good")), compressed(1, b"no zlib"), compressed(2, zlib.compress(b"fine"))]
    broker.on_pull = lambda header, request, connection: (
        "silence" if header.queue_id or header.queue_offset else pulled(request, 0, records, 3)
    )
    with pytest.raises(ProtocolError, match=r"message ID1 \(offset 1 of queue 0 of T\): body can't be decompressed"):
        _ = (await mq.pull(MessageQueue("T", "a", 0), 0)).messages
    seen: list[bytes] = []

    async def handle(message: ConsumedMessage) -> None:
        seen.append(message.body)

    async with mq.consumer("cg", "T", from_where="first") as consumer:
        running = asyncio.create_task(consumer.run(handle))
        while len(seen) < 2 or "ID1" not in caplog.text:
            await asyncio.sleep(0.01)
        assert seen == [b"good", b"fine"], "the others aren't held up by it"
        assert "body can't be decompressed" in caplog.text
        await consumer.close()
        await running
    assert broker.offsets["cg", "T", 0] == 1, "it isn't acknowledged: a later try, or the dead letter topic, has it"


async def test_a_lite_pull_raises_what_does_not_decompress(mq: Client, broker: FakeBroker) -> None:
    records = [compressed(0, zlib.compress(b"good")), compressed(1, b"no zlib"), compressed(2, zlib.compress(b"fine"))]
    broker.on_pull = lambda header, request, connection: (
        "silence"
        if header.queue_id or header.queue_offset == 3
        else pulled(request, header.queue_offset, records[header.queue_offset :], 3)
    )
    queue = MessageQueue("T", "a", 0)
    told = r"message ID1 \(offset 1 of queue 0 of T\): body can't be decompressed"

    async def read() -> None:
        async with mq.lite_pull_consumer("cg", from_where="first") as consumer:
            await consumer.assign([queue])
            assert [message.body for message in await consumer.poll()] == [b"good"]
            await consumer.poll()

    with pytest.raises(ProtocolError, match=told):
        await read()
    assert broker.offsets["cg", "T", 0] == 1, "it comes again"
    async with mq.lite_pull_consumer("cg", from_where="first") as consumer:
        await consumer.assign([queue])
        with pytest.raises(ProtocolError, match=told):
            await anext(consumer)
        assert (await anext(consumer)).body == b"fine"
        assert consumer.position(queue) == 3
    async with mq.lite_pull_consumer("other", from_where="first", decode=bytes.decode) as decoding:
        await decoding.assign([queue])
        good, bad, fine = await decoding.poll()
        assert (good.body, fine.body) == ("good", "fine")
        with pytest.raises(ProtocolError, match=told):
            _ = bad.body


async def test_clock_steps_change_no_deadline(names: FakeNames, broker: FakeBroker) -> None:
    clock = FakeClock()
    async with Client(names.address, clock=clock) as mq, mq.producer("pg") as producer:
        for step in (3_600_000, -7_200_000, 0):
            sending = producer.send_nowait(Message("T", b"x"))
            clock.pass_ms(step)
            await sending
        assert len({receipt.born_timestamp for receipt in broker.headers}) == 3
        broker.on_send = lambda header, request: "silence"
        sending = producer.send_nowait(Message("T", b"x"), timeout=0.2)
        clock.pass_ms(-3_600_000)
        with pytest.raises(RequestTimeout):
            await sending


async def test_a_clock_that_steps_disturbs_nothing(
    names: FakeNames, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sends, heartbeats, tries, and offsets go on at their pace while the wall clock jumps to and fro."""
    monkeypatch.setattr(runtime, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(consumer_module, "PERSIST_SECONDS", 0.05)
    monkeypatch.setattr(outcomes, "REDELIVER_SECONDS", 0.05)
    clock = SteppingClock()
    seen: list[bytes] = []
    ids: list[str] = []

    async def handle(message: ConsumedMessage) -> None:
        seen.append(message.body)
        if seen.count(message.body) == 1:
            raise ValueError("tried again")  # the broker takes nothing back, so it is here that it comes again

    def answer(header: Pull, request: Command, connection: Connection) -> Command | str | None:
        if header.queue_offset < len(broker.stored.get((header.topic, header.queue_id), [])):
            return None
        waiting.append((header, request, connection))
        return "silence"

    waiting: list[tuple[Pull, Command, Connection]] = []
    broker.on_pull = answer
    async with (
        Client(names.address, clock=clock) as mq,
        mq.producer("pg") as producer,
        mq.consumer("cg", "T", from_where="first") as consumer,
    ):
        running = asyncio.create_task(consumer.run(handle))
        for turn, step in enumerate((3_600_000, -7_200_000, 40 * 86_400_000, -40 * 86_400_000, 3_600_000)):
            clock.ahead_ms += step
            broker.beats.clear()
            ids.append((await producer.send(Message("T", b"%d" % turn), queue=MessageQueue("T", "a", 0))).msg_id)
            for parked in [each for each in waiting if each[0].topic == "T" and each[0].queue_id == 0]:
                waiting.remove(parked)
                header, request, connection = parked
                bodies = broker.stored["T", 0][header.queue_offset :]
                records = [record("T", 0, header.queue_offset + number, body) for number, body in enumerate(bodies)]
                connection.answer(request, pulled(request, header.queue_offset, records, turn + 1))
            async with asyncio.timeout(20):
                while seen.count(b"%d" % turn) < 2 or broker.offsets.get(("cg", "T", 0)) != turn + 1 or not broker.beats:
                    await asyncio.sleep(0.01)
        await consumer.close()
        await running
    assert len(set(ids)) == 5
    assert len(seen) == 10


def push(header: SendMessage, body: bytes, sys_flag: int = 0) -> Command:
    """A broker's request with the reply to what was sent with that header."""
    carried = properties.decode((header.properties or "").encode())
    given = {key: carried[key] for key in (properties.CORRELATION_ID, properties.REPLY_TO_CLIENT)}
    pushed = PushReply(
        producer_group="far",
        topic=header.topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=header.queue_id,
        sys_flag=sys_flag,
        born_timestamp=1,
        flag=0,
        properties=properties.encode(given | {properties.UNIQ_KEY: "ID"}).decode(),
        reconsume_times=0,
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
        store_timestamp=1,
    )
    return codec.request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, pushed, body)


async def test_a_reply_that_does_not_decompress(mq: Client, broker: FakeBroker) -> None:
    store = broker._handlers[RequestCode.SEND_MESSAGE_V2]
    told: asyncio.Future[ResponseCode | int] = asyncio.get_running_loop().create_future()

    async def stored(header: SendMessage, request: Command, connection: Connection) -> Any:
        answer = await connection.invoke(push(header, b"no zlib", Compression.ZLIB.flags), 20)
        told.set_result(answer.code)
        return store(header, request, connection)

    broker.handle(RequestCode.SEND_MESSAGE_V2, stored)
    async with mq.producer("pg") as producer:
        with pytest.raises(ProtocolError, match=r"message ID \(the reply to a request\): body can't be decompressed"):
            await producer.request(Message("T", b"?"), timeout=20)
    assert await told == ResponseCode.INVALID_PARAMETER


async def test_a_reply_that_comes_too_late_is_nobodys(
    mq: Client, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[SendMessage, Connection]] = []
    store = broker._handlers[RequestCode.SEND_MESSAGE_V2]

    def stored(header: SendMessage, request: Command, connection: Connection) -> Any:
        asked.append((header, connection))
        return store(header, request, connection)

    broker.handle(RequestCode.SEND_MESSAGE_V2, stored)

    async def reply(number: int, body: bytes) -> None:
        header, connection = asked[number]
        answer = await connection.invoke(push(header, body), 20)
        assert answer.code == ResponseCode.SUCCESS

    async with mq.producer("pg") as producer:
        with pytest.raises(RequestTimeout, match="no reply"):
            await producer.request(Message("T", b"first?"), timeout=0.2)
        asking = asyncio.create_task(producer.request(Message("T", b"second?"), timeout=20))
        async with asyncio.timeout(20):
            while len(asked) < 2:
                await asyncio.sleep(0.01)
        await reply(0, b"of the first")
        assert "nobody waits for any more" in caplog.text
        assert not asking.done()
        await reply(1, b"of the second")
        assert (await asking).body == b"of the second"


async def test_a_cut_during_each_kind_of_call(proxy: Proxy, mq: Client, broker: FakeBroker) -> None:
    queue = MessageQueue("T", "a", 0)
    await mq.queues("T")
    async with mq.producer("pg", retries=0) as producer:
        await producer.send(Message("T", b"first"))
        proxy.passing.clear()
        calls: dict[str, asyncio.Future[object]] = {
            name: asyncio.ensure_future(call)
            for name, call in {
                "send": producer.send(Message("T", b"x")),
                "batch": producer.send_batch([Message("T", b"x")] * 2),
                "request": producer.request(Message("T", b"x")),
                "pull": mq.pull(queue, 0),
                "offset": mq.max_offset(queue),
                "commit": mq.commit("cg", queue, 1),
            }.items()
        }
        asked = len(broker.asked)
        while len(broker.asked) < asked + len(calls):
            await asyncio.sleep(0.01)
        proxy.cut()
        for name, call in calls.items():
            with pytest.raises(ConnectionLost, match="was lost"):
                await call
            assert call.done(), name
        proxy.passing.set()
        await producer.send_oneway(Message("T", b"after"))
        assert (await mq.pull(queue, 0)).max_offset >= 0


async def test_errors_are_ours(proxy: Proxy, mq: Client, producer: Producer) -> None:
    """Whatever bytes come back, a call ends with an error of the tree or with an answer."""
    noise = iter([b"\0" * 64, b"\xff" * 64, b"\0\0\0\x08\0\0\0\x04abcd", b"\x7f\xff\xff\xff", b"\0\0\0\x04\0\0\0\0"] * 4)
    proxy.on_reply = lambda data: next(noise, data)
    for number in range(5):
        try:
            await producer.send(Message("T", b"%d" % number), timeout=0.3)
        except RockMQError as error:
            assert str(error)
    proxy.on_reply = lambda data: with_body(data, lambda body: body)
    await producer.send(Message("T", b"end"))
