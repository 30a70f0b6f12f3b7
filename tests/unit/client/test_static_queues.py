"""Queues of static topics, which stay what they are when they go from one broker to another."""

import asyncio
import logging
from functools import partial
from typing import Any

import pytest

from rockmq.client import (
    Client,
    ConnectError,
    Decision,
    Message,
    MessageQueue,
    NotSupported,
    ResponseError,
    SendReceipt,
    routes,
)
from rockmq.client.static_queues import hosts
from rockmq.protocol import codec
from rockmq.protocol.bodies.static_topic import QueuePlacement
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.flags import PullFlag
from rockmq.protocol.headers.pull import Pull, PullResponse
from rockmq.protocol.headers.send import SendMessage, SendResponse
from rockmq.remoting.connection import Connection
from tests.unit.client.fakes import FakeBroker, FakeNames, record, refusal

NAME = "__syslo__global__"


def placement(broker: str, *numbers: int, queues: int = 3, epoch: int = 1, scope: str = "__global__") -> QueuePlacement:
    current = {number: at for at, number in enumerate(numbers)}
    return QueuePlacement(topic="T", queues=queues, broker_name=broker, epoch=epoch, current=current, scope=scope)


def queue(number: int, name: str = NAME) -> MessageQueue:
    return MessageQueue("T", name, number)


def has(names: FakeNames, *placements: QueuePlacement) -> None:
    """Which broker has which queues, from now on."""
    names.routes["T"].topic_queue_mapping_by_broker = {each.broker_name: each for each in placements}


def bodies(broker: FakeBroker) -> dict[int, list[bytes]]:
    return {number: found for (_, number), found in broker.stored.items()}


def test_queues_are_numbered_through_all_brokers() -> None:
    found = hosts("T", {"a": placement("a", 0, 2), "b": placement("b", 1)})
    assert list(found.items()) == [(queue(0), "a"), (queue(1), "b"), (queue(2), "a")]


def test_the_newer_mapping_tells_who_has_a_queue() -> None:
    for placements in ({"a": placement("a", 0, 1, epoch=5), "b": placement("b", 1, epoch=6)},
                       {"b": placement("b", 1, epoch=6), "a": placement("a", 0, 1, epoch=5)}):  # fmt: skip
        assert hosts("T", placements) == {queue(0): "a", queue(1): "b", queue(2): ""}, "2 is nobody's"


def test_what_is_no_queue_of_the_topic_is_left_out() -> None:
    assert hosts("T", {"a": placement("a", 0, 7, queues=1)}) == {queue(0): "a"}
    assert hosts("T", {"a": QueuePlacement(topic="T", queues=1, broker_name="a", epoch=1)}) == {queue(0): ""}


def test_scopes_have_queues_of_their_own() -> None:
    found = hosts("T", {"a": placement("a", 0, queues=1), "b": placement("b", 0, queues=1, scope="east")})
    assert found == {queue(0): "a", queue(0, "__syslo__east"): "b"}


async def test_messages_go_where_their_queue_is(
    mq: Client, names: FakeNames, broker: FakeBroker, other: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the queue goes away meanwhile: who had it refuses, and the route tells who has it now."""
    monkeypatch.setattr(routes, "SOON_SECONDS", 0.05)
    has(names, placement("a", 0, 2), placement("b", 1))
    async with mq.producer("pg") as producer:
        receipts = [await producer.send(Message("T", b"%d" % number), queue=queue(number)) for number in range(3)]
        assert [receipt.queue for receipt in receipts] == [queue(0), queue(1), queue(2)]
        assert (bodies(broker), bodies(other)) == ({0: [b"0"], 2: [b"2"]}, {1: [b"1"]})
        assert [each.headers[0].bname for each in (broker, other)] == ["a", "b"]

        def moved(header: SendMessage, request: Command) -> Any:
            return refusal(request, ResponseCode.NOT_LEADER_FOR_QUEUE) if header.queue_id == 2 else None

        broker.on_send = moved
        has(names, placement("a", 0), placement("b", 1, 2, epoch=2))
        assert (await producer.send(Message("T", b"moved"), queue=queue(2))).queue == queue(2)
        assert bodies(other)[2] == [b"moved"]
        assert await mq.max_offset(queue(2)) == 1, "asked of b"
        async with mq.producer("once", retries=0) as once:
            has(names, placement("a", 0, 2, epoch=3), placement("b", 1))
            await mq._instance.routes.fetch("T")
            with pytest.raises(ResponseError) as refused:
                await once.send(Message("T", b"x"), queue=queue(2))
            assert refused.value.retriable


async def test_queues_take_turns_and_one_that_nobody_has_is_left_out(
    mq: Client, names: FakeNames, broker: FakeBroker, other: FakeBroker
) -> None:
    has(names, placement("a", 0, queues=4), placement("b", 1, 3, queues=4))
    assert await mq.queues("T") == [queue(number) for number in range(4)]
    assert await mq.writable_queues("T") == [queue(number) for number in range(4)], "keys are hashed to all of them"
    async with mq.producer("pg", linger=0) as producer:
        for _ in range(6):
            await producer.send(Message("T", b"x"))
    assert (bodies(broker), bodies(other)) == ({0: [b"x"] * 2}, {1: [b"x"] * 2, 3: [b"x"] * 2})


async def test_keys_keep_their_queues_while_a_broker_is_away(
    mq: Client, names: FakeNames, broker: FakeBroker, other: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message waits for the queue of its key, until its time is over or the route tells who has it."""
    monkeypatch.setattr(routes, "SOON_SECONDS", 0.05)
    has(names, placement("a", 0, 2), placement("b", 1))
    keyed = {"a": queue(1), "b": queue(2), "c": queue(0)}  # Java's hashes are 97, 98, 99
    async with mq.producer("pg") as producer:
        assert {key: (await producer.send(Message("T", b"x"), key=key)).queue for key in keyed} == keyed
        whole = names.routes["T"]
        names.add("T", broker)
        has(names, placement("a", 0, 2, epoch=2))
        await mq._instance.routes.fetch("T")
        for key in ("b", "c"):
            assert (await producer.send(Message("T", b"x"), key=key)).queue == keyed[key]
        with pytest.raises(ConnectError, match="no broker says that it has queue 1 of T"):
            await mq.max_offset(queue(1))
        for asked in (producer.send_oneway, partial(producer.send, timeout=0.3)):
            with pytest.raises(ConnectError, match="queue 1 of 'T' can't be sent to now: no broker says that it has it"):
                await asked(Message("T", b"x"), key="a")
        later = [asyncio.create_task(producer.send(Message("T", b"later"), timeout=30, **said)) for said in (
            {"key": "a"}, {"queue": queue(1)}, {"selector": lambda queues, _: queues[1]},
        )]  # fmt: skip
        picked = producer.send_nowait(Message("T", b"later"), key="a")
        await asyncio.sleep(0)
        names.routes["T"] = whole
        assert [(await each).queue for each in [*later, picked]] == [queue(1)] * 4
    assert bodies(other) == {1: [b"x", *[b"later"] * 4]}


async def test_consumers_take_the_queues_that_a_broker_has(
    mq: Client, names: FakeNames, broker: FakeBroker, other: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    has(names, placement("a", 0, 2), placement("b", 1))
    whole = names.routes["T"]
    names.add("T", broker)
    has(names, placement("a", 0, 2))
    async with mq.consumer("g", "T") as in_parallel, mq.consumer("og", "T", order=True) as in_order:
        for consumer in (in_parallel, in_order):
            assert [each for each in consumer.queues if each.topic == "T"] == [queue(0), queue(2)]
        names.routes["T"] = whole
        await mq._instance.routes.fetch("T")
        async with asyncio.timeout(10):
            while queue(1) not in in_parallel.queues or queue(1) not in in_order.queues:
                await asyncio.sleep(0.01)
    assert not [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


async def test_a_retry_goes_to_a_queue_of_another_broker(
    mq: Client, names: FakeNames, broker: FakeBroker, other: FakeBroker
) -> None:
    has(names, placement("a", 0, 1), placement("b", 2))
    broker.on_send = lambda header, request: refusal(request, ResponseCode.SYSTEM_BUSY)
    async with mq.producer("pg", latency_fault_tolerance=True) as producer:
        assert [(await producer.send(Message("T", b"x"))).queue for _ in range(4)] == [queue(2)] * 4
    assert len(broker.headers) <= 1, "from then on it is left out for a time"


def relocated(first: int) -> Any:
    """Answers pulls as a broker does in whose queue 0 a static queue goes on at that offset."""

    def answer(header: Pull, request: Command, connection: Connection) -> Any:
        start, end = header.queue_offset, first + 3
        if start >= end:
            return "silence"
        records = [record("T", 0, offset - first, b"%d" % offset) for offset in range(start, end)]
        found = PullResponse(0, end, 0, end, offset_delta=first)
        return codec.reply(request, header=found, body=b"".join(records))

    return answer


async def test_messages_have_the_place_that_they_have_in_the_static_queue(
    mq: Client, names: FakeNames, broker: FakeBroker, other: FakeBroker
) -> None:
    has(names, placement("a", 0, queues=2), placement("b", 1, queues=2))
    other.on_pull = relocated(100)
    found = (await mq.pull(queue(1), 100)).messages
    assert [(each.broker_name, each.queue_id, each.queue_offset) for each in found] == [
        (NAME, 1, at) for at in (100, 101, 102)
    ]
    other.offsets["g", "T", 1] = 100
    async with mq.consumer("g", "T") as consumer:
        async with asyncio.timeout(10):
            taken = [await anext(consumer) for _ in range(3)]
        assert [(each.queue, each.queue_offset, each.body) for each in taken] == [
            (queue(1), 100, b"100"), (queue(1), 101, b"101"), (queue(1), 102, b"102")
        ]  # fmt: skip
        await taken[0].ack()
        await taken[1].ack()
        names.add("%RETRY%g", broker)
        await taken[2].nack()
    assert other.offsets["g", "T", 1] == 103
    (sent,) = [header for header in broker.headers if header.topic == "%RETRY%g"]
    assert "RETRY_TOPIC\x01T\x02" in sent.properties, "a plain send: the record may be another broker's"


async def test_pulls_of_static_queues_commit_nothing(
    mq: Client, names: FakeNames, broker: FakeBroker, other: FakeBroker
) -> None:
    """Apache's brokers would store what a pull tells as an offset of their own queue, and be asked for it as one of ours."""
    has(names, placement("a", 0, queues=2), placement("b", 1, queues=2))
    other.on_pull = relocated(100)
    other.offsets["g", "T", 1] = 100
    async with mq.consumer("g", "T") as consumer, asyncio.timeout(10):
        await (await anext(consumer)).ack()
        while 103 not in (pulls := {header.queue_offset: header for header in other.pulls}):
            await asyncio.sleep(0.01)
    assert pulls.keys() == {100, 103}
    assert [(header.sys_flag & PullFlag.COMMIT_OFFSET, header.commit_offset) for header in pulls.values()] == [(0, 0)] * 2
    assert other.offsets["g", "T", 1] == 101, "told by itself"


async def test_locks_are_asked_of_who_has_the_queues(
    mq: Client, names: FakeNames, broker: FakeBroker, other: FakeBroker
) -> None:
    has(names, placement("a", 0, 2), placement("b", 1))
    async with mq.consumer("g", "T", order=True):
        async with asyncio.timeout(10):
            while len(broker.locks) + len(other.locks) < 3:
                await asyncio.sleep(0.01)
        assert (sorted(broker.locks), sorted(other.locks)) == ([queue(0), queue(2)], [queue(1)])
    assert not broker.locks
    assert not other.locks


async def test_a_transaction_is_decided_where_its_message_is(mq: Client, names: FakeNames, broker: FakeBroker) -> None:
    has(names, placement("a", 0, queues=1))
    offset_id = "7F00000100002A9F0000000000000539"
    broker.on_send = lambda header, request: codec.reply(
        request, header=SendResponse(msg_id=offset_id, queue_id=header.queue_id, queue_offset=42)
    )

    async def never(message: object) -> Decision:
        raise AssertionError("this isn't called")

    async def commit(receipt: SendReceipt) -> Decision:
        return Decision.COMMIT

    async with mq.transaction_producer("pg", never) as producer:
        assert (await producer.send_in_transaction(Message("T", b"x"), commit)).confirmed
        half = await producer.send_half(Message("T", b"y"))
        assert half.broker_name == "a"
        assert await producer.decide(half, Decision.ROLLBACK)
    assert [(header.bname, header.commit_log_offset) for header, _ in broker.ends] == [("a", 1337)] * 2


async def test_a_decision_that_is_refused_as_places_differ_is_the_checkers(
    mq: Client, names: FakeNames, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """Apache's brokers tell where a half message would be in a static queue that has been elsewhere before, and refuse that
    place when it is decided."""
    has(names, placement("a", 0, queues=1))
    broker.on_send = lambda header, request: codec.reply(
        request, header=SendResponse(msg_id="7F00000100002A9F0000000000000539", queue_id=header.queue_id, queue_offset=142)
    )
    code = ResponseCode.SYSTEM_ERROR
    broker.on_end = lambda header, request: refusal(request, code, "The transaction state table offset wrong")

    async def never(message: object) -> Decision:
        raise AssertionError("this isn't called")

    async def commit(receipt: SendReceipt) -> Decision:
        return Decision.COMMIT

    async with mq.transaction_producer("pg", never) as producer:
        assert not (await producer.send_in_transaction(Message("T", b"x"), commit)).confirmed
        async with producer.transaction(Message("T", b"x")) as transaction:
            pass
        assert not transaction.confirmed
        half = await producer.send_half(Message("T", b"y"))
        assert not await producer.decide(half, Decision.ROLLBACK)
        assert caplog.text.count("offset wrong") == 3
        code = ResponseCode.ILLEGAL_OPERATION
        with pytest.raises(ResponseError):
            await producer.decide(half, Decision.COMMIT)
        code = ResponseCode.SYSTEM_ERROR
        names.add("U", broker)
        with pytest.raises(ResponseError):
            await producer.send_in_transaction(Message("U", b"x"), commit)


async def test_pop_consumers_say_that_they_have_none(
    mq: Client, names: FakeNames, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    static = {"a": placement("a", 0, queues=1)}
    names.routes["T"].topic_queue_mapping_by_broker = static
    names.add("U", broker)
    refused = partial(pytest.raises, NotSupported, match="'T' is a static topic: brokers give its messages by pulls only")
    with refused():
        await mq.pop_consumer("g", "T").start()
    async with mq.pop_consumer("g", "U") as consumer, asyncio.timeout(10):
        with refused():
            await consumer.subscribe("T")
        names.routes["U"].topic_queue_mapping_by_broker = static
        await mq._instance.routes.fetch("U")
        while "is a static topic: brokers give its messages by pulls only" not in caplog.text:
            await asyncio.sleep(0.01)
