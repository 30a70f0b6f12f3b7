"""Consumers with as many queues as anybody has."""

import asyncio
import os
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.client import Client, Message, MessageQueue
from rockmq.client.offsets import ASKING_MAX, Offsets
from rockmq.protocol.codes import RequestCode
from tests.unit.client.fakes import FakeBroker

TOPICS, QUEUES = 10, 1000
MEMORY_MAX = 200 * 1024 * 1024
"""Twice what it takes, with what the broker in this process keeps of 10,000 waiting pulls."""


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_ten_thousand_queues_in_one_consumer() -> None:
    async with embedded.serve(flush="ASYNC_FLUSH") as served, Client(served.namesrv) as mq:
        made = {topic: await mq.create_topic(topic, QUEUES) for topic in (f"orders-{number}" for number in range(TOPICS))}
        chosen = [queue for queues in made.values() for queue in (queues[0], queues[-1])]
        before = resident()
        async with mq.consumer("g", list(made), from_where="first") as consumer, mq.producer("pg") as producer:
            async with asyncio.timeout(60):
                while len(consumer.queues) <= TOPICS * QUEUES:  # the retry topic's is one more
                    await asyncio.sleep(0.2)
                for queue in chosen:
                    await producer.send(Message(queue.topic, b"x"), queue=queue)
                for _ in chosen:
                    await (await anext(consumer)).ack()
            assert len(asyncio.all_tasks()) < TOPICS * QUEUES + 200, "a task for each"
            assert resident() - before < MEMORY_MAX
        offsets = await mq.committed_offsets("g", chosen[-1].topic)
        assert [offsets[queue] for queue in chosen[-2:]] == [1, 1]
        assert set(offsets.values()) == {0, 1}


async def test_a_broker_that_stores_nothing_is_not_asked_for_each_of_many(
    mq: Client, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.handle(RequestCode.UPDATE_CONSUMER_OFFSET, lambda *_: None)
    await mq.queues("T")
    offsets = {MessageQueue("T", "a", number): number for number in range(1000)}
    await Offsets(mq._instance, "g", "last").commit(offsets, timeout=0.1)
    assert broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) <= ASKING_MAX
    assert caplog.text.count("1000 queues aren't stored") == 1
