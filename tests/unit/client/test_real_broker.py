"""The client against RockMQ's own name server and broker."""

import asyncio
import contextlib
import functools
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.base.errors import InvalidMessage, ResponseError, RockMQError, RouteNotFound
from rockmq.client import Client, ConsumedMessage, ConsumerOptions, Message, MessageQueue, PullStatus, Sql
from rockmq.client.pull import SUSPEND_MS
from rockmq.protocol import codec
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.send import SendMessageV2
from rockmq.remoting.client import RemotingClient
from tests.support import process, server


@pytest.fixture
async def mq() -> AsyncIterator[Client]:
    async with embedded.serve(flush="ASYNC_FLUSH") as served, Client(served.namesrv) as client:
        await client.create_topic("orders", 4)
        yield client


async def send(mq: Client, count: int, topic: str = "orders", tag: str = "paid") -> set[str]:
    async with mq.producer("pg") as producer:
        messages = [Message(topic, b"%d" % number, tag=tag, keys=[str(number)]) for number in range(count)]
        receipts = await asyncio.gather(*(producer.send(message) for message in messages))
    return {receipt.msg_id for receipt in receipts}


async def test_there_and_back(mq: Client) -> None:
    body = "grüß dich 你好 ".encode() * 1000
    begun = time.time()
    async with mq.producer("pg") as producer:
        sent = Message("orders", body, tag="paid", keys=["42", "43"], properties={"who": "me"}, flag=7)
        receipt = await producer.send(sent)
    async with mq.consumer("billing", {"orders": "paid"}, from_where="first") as consumer:
        message = await anext(consumer)
        async with message.process():
            assert (message.body, message.tag, message.keys) == (body, "paid", ["42", "43"])
            assert message.properties["who"] == "me"
            assert message.stored.flag == 7
            assert (message.msg_id, message.queue, message.queue_offset) == (receipt.msg_id, receipt.queue, 0)
            assert message.stored.offset_id == receipt.offset_id
            assert message.reconsume_times == 0
            assert begun - 0.01 < message.store_timestamp / 1000 < time.time() + 0.01


async def test_a_count_of_tries_that_is_at_its_end_stops_no_queue() -> None:
    """A producer may say that its message was tried as often as a number can tell."""
    async with embedded.serve(flush="ASYNC_FLUSH") as served, Client(served.namesrv) as mq:
        (queue,) = await mq.create_topic("orders", 1)
        header = SendMessageV2(
            producer_group="pg", topic="orders", default_topic="TBW102", default_topic_queue_nums=1, queue_id=0, sys_flag=0,
            born_timestamp=0, flag=0, properties="", reconsume_times=2**31 - 1,
        )  # fmt: skip
        remote = RemotingClient()
        await remote.ask(served.broker, codec.request(RequestCode.SEND_MESSAGE_V2, header, b"bad"), 10)
        await remote.close()
        async with mq.producer("pg") as producer:
            await producer.send(Message("orders", b"good"), queue=queue)
        options: ConsumerOptions = {"order": True, "max_reconsume_times": 2, "suspend": 0.01, "from_where": "first"}
        async with mq.consumer("g", ["orders"], **options) as consumer:
            bad = await anext(consumer)
            assert (bad.body, bad.reconsume_times) == (b"bad", 2**31 - 1)
            await bad.nack()
            good = await asyncio.wait_for(anext(consumer), 10)
            assert good.body == b"good"
            await good.ack()


async def test_expressions() -> None:
    filtering = {"enablePropertyFilter": "true"}
    async with embedded.serve(flush="ASYNC_FLUSH", properties=filtering) as served, Client(served.namesrv) as mq:
        (queue,) = await mq.create_topic("orders", 1)
        async with mq.producer("pg") as producer:
            for amount in range(6):
                await producer.send(Message("orders", b"%d" % amount, tag="paid", properties={"amount": str(amount)}))
        wanted = Sql("amount BETWEEN 2 AND 3 OR amount = 5 AND TAGS = 'paid'")
        async with mq.consumer("billing", {"orders": wanted}, from_where="first") as consumer:
            found = set()
            while len(found) < 3:
                message = await anext(consumer)
                found.add(message.body)
                await message.ack()
            assert found == {b"2", b"3", b"5"}
            assert await consumer.fetch(timeout=0.2) == []
        result = await mq.pull(queue, 0, tags=Sql("amount > 4"))
        assert ([message.body for message in result.messages], result.next_offset) == ([b"5"], 6)
        with pytest.raises(ResponseError, match=r"code 23: .*isn't complete"):
            await mq.consumer("wrong", {"orders": Sql("amount >")}).start()


async def test_a_broker_that_does_not_filter_says_so(mq: Client) -> None:
    with pytest.raises(ResponseError, match=r"code 1: .*enablePropertyFilter is off"):
        await mq.consumer("billing", {"orders": Sql("amount > 4")}).start()


async def test_tags(mq: Client) -> None:
    for tag in ("paid", "refund", "open"):
        await send(mq, 5, tag=tag)
    async with mq.consumer("billing", {"orders": "paid || refund"}, from_where="first") as consumer:
        tags: Counter[str | None] = Counter()
        while tags.total() < 10:
            for message in await consumer.fetch():
                tags[message.tag] += 1
                await message.ack()
        assert tags == {"paid": 5, "refund": 5}
        assert await consumer.fetch(timeout=0.2) == []
    assert sum(offset or 0 for offset in (await mq.committed_offsets("billing", "orders")).values()) == 15


async def test_many_queues(mq: Client) -> None:
    before = len(asyncio.all_tasks())
    queues = await mq.create_topic("wide", 2000)
    async with mq.consumer("billing", "wide", from_where="first") as consumer, mq.producer("pg") as producer:
        async with asyncio.timeout(30):
            while not set(queues) <= set(consumer.queues):
                await asyncio.sleep(0.02)
        assert len(asyncio.all_tasks()) - before < 2000 + 20, "a task for each queue, and few besides"
        for queue in (queues[0], queues[1234], queues[-1]):
            await producer.send(Message("wide", b"x"), queue=queue)
            message = await asyncio.wait_for(anext(consumer), 10)
            assert message.queue == queue
            await message.ack()


@pytest.fixture
def unswept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that doesn't look at what waits, as it would every 5 s."""
    monkeypatch.setattr("rockmq.broker.server.SWEEP_SECONDS", 3600.0)


@pytest.mark.usefixtures("unswept")
async def test_an_arriving_message_ends_the_waiting_pull(mq: Client) -> None:
    async with mq.producer("pg") as producer, mq.consumer("billing", "orders") as consumer:
        for _ in range(2):
            async with asyncio.timeout(SUSPEND_MS / 1000 - 1):
                await producer.send(Message("orders", b"x"))
                await (await anext(consumer)).ack()


async def test_members_share_and_take_over(mq: Client) -> None:
    first_names = mq._instance.names.addresses
    got: Counter[str] = Counter()

    async def handle(message: ConsumedMessage) -> None:
        got[message.keys[0]] += 1

    async with Client(first_names) as second:
        one = mq.consumer("billing", "orders", from_where="first")
        two = second.consumer("billing", "orders", from_where="first")
        await one.start()
        await two.start()
        runs = [asyncio.create_task(member.run(handle)) for member in (one, two)]
        async with asyncio.timeout(10):
            while not len(topic_queues(one.queues)) == len(topic_queues(two.queues)) == 2:
                await asyncio.sleep(0.02)
        assert not set(one.queues) & set(two.queues)
        await send(mq, 400)
        async with asyncio.timeout(20):
            while len(got) < 400:
                await asyncio.sleep(0.02)
        await two.close()
        async with asyncio.timeout(10):
            while len(topic_queues(one.queues)) < 4:
                await asyncio.sleep(0.02)
        await one.close()
        await asyncio.gather(*runs)
    assert set(got.values()) == {1}, "in order nothing is delivered twice"


def topic_queues(queues: list[MessageQueue]) -> list[MessageQueue]:
    return [queue for queue in queues if queue.topic == "orders"]


async def test_a_group_goes_on_where_it_was(mq: Client) -> None:
    await send(mq, 40)
    bodies: Counter[bytes] = Counter()
    for _ in range(4):
        async with mq.consumer("billing", "orders", from_where="first", max_in_flight=10) as consumer:
            taken = 0
            async for message in consumer:
                async with message.process():
                    bodies[message.body] += 1
                    taken += 1
                if taken == 10:
                    break
    assert bodies == dict.fromkeys((b"%d" % number for number in range(40)), 1)


async def test_from_a_time(mq: Client) -> None:
    await send(mq, 8)
    await asyncio.sleep(0.05)
    then = datetime.now(UTC)
    await asyncio.sleep(0.05)
    async with mq.producer("pg") as producer:
        await producer.send(
            Message("orders", b"later"), queue=MessageQueue("orders", (await mq.queues("orders"))[0].broker_name, 0)
        )
    queue = (await mq.queues("orders"))[0]
    offset = await mq.offset_by_time(queue, int(then.timestamp() * 1000))
    (message,) = (await mq.pull(queue, offset)).messages
    assert message.body == b"later"


async def test_batches(mq: Client) -> None:
    async with mq.producer("pg") as producer:
        receipts = await producer.send_batch([Message("orders", b"%d" % number, tag="t") for number in range(50)])
    assert len({receipt.offset_id for receipt in receipts}) == 50
    result = await mq.pull(receipts[0].queue, 0, max_messages=50)
    assert [message.msg_id for message in result.messages] == [receipt.msg_id for receipt in receipts][
        : len(result.messages)
    ]


async def test_a_topic_is_created_by_its_first_send(mq: Client) -> None:
    await send(mq, 10, topic="fresh")
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(RouteNotFound):
                queues = await mq.queues("fresh")
                break
            await asyncio.sleep(0.05)
    assert len(queues) == 4
    assert sum(await asyncio.gather(*map(mq.max_offset, queues))) == 10


async def test_offsets_and_plain_reading(mq: Client) -> None:
    ids = await send(mq, 40)
    found: set[str] = set()
    for queue in await mq.queues("orders"):
        low, high = await mq.min_offset(queue), await mq.max_offset(queue)
        assert (low, high) == (0, 10)
        at = low
        while at < high:
            result = await mq.pull(queue, at, max_messages=4)
            assert result.status is PullStatus.FOUND
            assert (result.min_offset, result.max_offset) == (low, high)
            assert len(result.messages) == 4 or result.next_offset == high
            found |= {message.msg_id for message in result.messages}
            at = result.next_offset
        assert (await mq.pull(queue, high)).status is PullStatus.NO_NEW
        moved = await mq.pull(queue, high + 100)
        assert (moved.status, moved.next_offset) == (PullStatus.OFFSET_MOVED, high)
        assert (await mq.pull(queue, 0, max_bytes=1)).next_offset == 1, "at least one message"
        assert (await mq.pull(queue, 0, tags="other")).status is PullStatus.NO_MATCHED
    assert found == ids
    with pytest.raises(RouteNotFound):
        await mq.queues("nowhere")


async def test_a_pull_can_wait(mq: Client) -> None:
    queue = (await mq.queues("orders"))[0]
    waiting = asyncio.create_task(mq.pull(queue, 0, wait=10))
    await asyncio.sleep(0.1)
    async with mq.producer("pg") as producer:
        await producer.send(Message("orders", b"x"), queue=queue)
    assert [message.body for message in (await waiting).messages] == [b"x"]


async def test_offsets_of_a_group(mq: Client) -> None:
    queues = await mq.queues("orders")
    assert await mq.committed_offsets("g", "orders") == dict.fromkeys(queues)
    await mq.commit("g", queues[1], 17)
    assert (await mq.committed_offsets("g", "orders"))[queues[1]] == 17
    await mq.commit("g", queues[1], 3)
    assert (await mq.committed_offsets("g", "orders"))[queues[1]] == 3


async def test_creating_topics(mq: Client) -> None:
    assert len(await mq.create_topic("wide", 12)) == 12
    assert len(await mq.create_topic("wide", 16)) == 16
    with pytest.raises(ResponseError):
        await mq.create_topic("SELF_TEST_TOPIC", 4)
    with pytest.raises(RouteNotFound, match="no cluster 'moon'"):
        await mq.create_topic("other", 4, cluster="moon")


async def test_binary_headers() -> None:
    async with embedded.serve(flush="ASYNC_FLUSH") as served, Client(served.namesrv, serializer="binary") as mq:
        await mq.create_topic("orders", 4)
        await send(mq, 10)
        async with mq.consumer("billing", "orders", from_where="first") as consumer:
            for _ in range(10):
                await (await anext(consumer)).ack()


async def test_a_broker_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    """Nothing that was acknowledged is missing, and both members go on by themselves."""
    serve = functools.partial(
        server.serve, tmp_path, namesrv_port=process.free_port(), broker_port=process.free_broker_port()
    )
    got: Counter[str] = Counter()
    sent: set[str] = set()
    failed: list[RockMQError] = []

    async def handle(message: ConsumedMessage) -> None:
        got[message.keys[0]] += 1

    with contextlib.ExitStack() as stack:
        served = await asyncio.to_thread(stack.enter_context, serve())
        async with Client(served.namesrv) as first, Client(served.namesrv) as second:
            await first.create_topic("orders", 4)
            members = [client.consumer("billing", "orders", from_where="first") for client in (first, second)]
            for member in members:
                await member.start()
            runs = [asyncio.create_task(member.run(handle)) for member in members]
            async with first.producer("pg", timeout=60, retries=200) as producer:
                numbers = iter(range(3000))

                async def worker() -> None:
                    for number in numbers:
                        try:
                            await producer.send(Message("orders", b"x", keys=[str(number)]))
                        except RockMQError as error:
                            failed.append(error)
                        else:
                            sent.add(str(number))

                workers = [asyncio.create_task(worker()) for _ in range(50)]
                while len(sent) < 1000:
                    await asyncio.sleep(0.01)
                served.kill()
                await asyncio.to_thread(stack.enter_context, serve())
                await asyncio.gather(*workers)
            async with asyncio.timeout(30):
                while not sent <= got.keys():
                    await asyncio.sleep(0.05)
            for member in members:
                await member.close()
            await asyncio.gather(*runs)
            queues = await first.committed_offsets("billing", "orders")
            assert list(queues.values()) == [await first.max_offset(queue) for queue in queues]
    assert not failed
    assert len(sent) == 3000


# Later


QUICK = {"messageDelayLevel": "1s 2s 1s 2s"}
"""A refused message begins at level 3."""


async def test_delayed_messages_come_later() -> None:
    async with embedded.serve(properties=QUICK) as served, Client(served.namesrv) as mq:
        await mq.create_topic("orders", 1)
        async with mq.producer("pg") as producer, mq.consumer("billing", "orders", from_where="first") as consumer:
            with pytest.raises(InvalidMessage, match="delay_level"):
                await producer.send(Message("orders", b"x", delay_level=-1))
            await producer.send(Message("orders", b"2 s", delay_level=2))
            await producer.send(Message("orders", b"1 s", delay_level=1))
            await producer.send(Message("orders", b"now"))
            messages = [await anext(consumer) for _ in range(3)]
            assert [message.body for message in messages] == [b"now", b"1 s", b"2 s"]
            _, one, two = (message.store_timestamp - message.born_timestamp for message in messages)
            assert one >= 900
            assert two >= 1900


async def test_what_fails_is_tried_again_and_its_dead_letter_can_be_read() -> None:
    async with embedded.serve(properties=QUICK) as served, Client(served.namesrv) as mq:
        await mq.create_topic("orders", 1)
        async with mq.producer("pg") as producer:
            receipt = await producer.send(Message("orders", b"bad", tag="paid", keys=["7"], delay_level=1))
        async with mq.consumer("billing", {"orders": "paid"}, from_where="first") as consumer:
            message = await anext(consumer)
            with contextlib.suppress(ValueError):
                async with message.process():
                    raise ValueError("the first time fails")
            again = await anext(consumer)
            assert (again.topic, again.body, again.reconsume_times) == ("orders", b"bad", 1)
            assert again.msg_id == receipt.msg_id
            assert again.store_timestamp - message.store_timestamp >= 900
            await again.nack(delay_level=-1)
        async with mq.consumer("undertaker", "%DLQ%billing", from_where="first") as consumer:
            dead = await anext(consumer)
            assert (dead.body, dead.keys, dead.tag, dead.reconsume_times) == (b"bad", ["7"], "paid", 2)
            assert dead.properties["RETRY_TOPIC"] == "orders"
            await dead.ack()
