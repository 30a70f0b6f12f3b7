"""What a client counts."""

import pytest

from rockmq.client import Client, Histogram, Message, MessageQueue, RequestTimeout
from rockmq.client.stats import BOUNDS, Work
from rockmq.protocol.codec import encode_batch
from tests.unit.client.fakes import FakeBroker, FakeNames, pulled, record


def test_a_histogram() -> None:
    work = Work()
    for seconds in (0.0005, 0.001, 0.03, 120):
        work.ended(seconds, done=1)
    work.ended(0.004, failed=2)
    found = work.snapshot()
    assert (found.done, found.failed, found.latency.count) == (4, 2, 5)
    assert found.latency.mean == pytest.approx(120.0355 / 5)
    assert [found.latency.quantile(part) for part in (0, 0.4, 0.5, 0.8, 1)] == [0.001, 0.001, 0.005, 0.05, float("inf")]
    with pytest.raises(ValueError, match="between 0 and 1"):
        found.latency.quantile(50)
    assert Histogram((0,) * (len(BOUNDS) + 1), 0.0).mean == 0


async def test_sends_are_counted_by_topic(mq: Client, broker: FakeBroker) -> None:
    async with mq.producer(retries=0) as producer:
        await producer.send(Message("T", b"1"))
        await producer.send_batch([Message("T", b"2")] * 3)
        broker.on_send = lambda header, request: "silence"
        with pytest.raises(RequestTimeout):
            await producer.send(Message("T", b"3"), timeout=0.05)
        waiting = producer.send_nowait(Message("T", b"1234"), timeout=30)
        stats = mq.stats()
        assert stats.in_flight == 1
        assert stats.in_flight_bytes > 4
        assert (stats.sends["T"].done, stats.sends["T"].failed, stats.sends["T"].latency.count) == (4, 1, 3)
        assert stats.sends["T"].latency.quantile(1) >= 0.05
        broker.on_send = None
        waiting.cancel()
        await broker.stop()


async def test_a_batch_that_came_encoded_counts_as_the_messages_in_it(mq: Client, broker: FakeBroker) -> None:
    body = encode_batch([(0, b"1", b""), (0, b"2", b"")])
    async with mq.producer(retries=0) as producer:
        await producer.send_encoded(body, MessageQueue("T", "a", 0), count=2)
        broker.on_send = lambda header, request: "silence"
        with pytest.raises(RequestTimeout):
            await producer.send_encoded(body, MessageQueue("T", "a", 0), count=2, timeout=0.05)
    assert (mq.stats().sends["T"].done, mq.stats().sends["T"].failed) == (2, 2)


async def test_consumption_and_queues(mq: Client, names: FakeNames, broker: FakeBroker) -> None:
    names.add("T", broker, queues=1)
    broker.offsets["cg", "T", 0] = 0
    broker.stored["T", 0] = [b"1", b"2", b"3"]
    records = [record("T", 0, offset, b"x") for offset in range(3)]
    broker.on_pull = lambda header, request, connection: (
        "silence" if header.queue_offset else pulled(request, 0, records, 10)
    )
    async with mq.consumer("cg", ["T"], max_in_flight=2) as consumer:
        first, second = await anext(consumer), await anext(consumer)
        await second.ack()
        (queue,) = [each for each in mq.stats().queues["cg"] if each.queue.topic == "T"]
        assert (queue.queue, queue.offset, queue.cached) == (MessageQueue("T", "a", 0), 0, 2)
        assert (queue.delivered, queue.lag, mq.stats().lag) == (1, 10, 10)
        assert queue.cached_bytes > 0
        await first.ack()
        stats = mq.stats()
        assert stats.consumption["cg", "T"].done == 2
        (queue,) = [each for each in stats.queues["cg"] if each.queue.topic == "T"]
        assert (queue.offset, queue.lag) == (2, 8)
        await (await anext(consumer)).nack()
        assert mq.stats().consumption["cg", "T"].failed == 1
    assert mq.stats().queues == {}
