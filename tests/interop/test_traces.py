"""Message trace of Apache's client through our broker, and ours as Apache's tools read it."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from rockmq.client import Client, Message
from tests.golden import traces
from tests.support import apache
from tests.support.cluster import Cluster


async def test_javas_client_tells_what_ours_is_compared_with(
    shared: Cluster, unique: Callable[[str], str], tmp_path: Path
) -> None:
    topic, trace, group, consumer_group = unique("traced"), unique("trace"), unique("pg"), unique("cg")
    async with Client(shared.namesrv) as mq:
        await mq.create_topic(topic, 1)
        (queue,) = await mq.create_topic(trace, 1)
        arguments = [f"topic={topic}", f"trace={trace}", f"group={group}", f"consumerGroup={consumer_group}"]
        with apache.program("5.5.0", "Traced", f"namesrv={shared.namesrv}", *arguments, directory=tmp_path) as java:
            assert await asyncio.to_thread(java.wait, 120) == 0, java.tail()
        messages = (await mq.pull(queue, 0, 32)).messages
    assert traces.records(messages, topic, group, consumer_group) == traces.RECORDS
    assert len({key for message in messages for key in message.keys}) == 7 + 7  # keys and ids


async def test_mqadmin_reads_our_trace_of_a_batch(shared: Cluster, unique: Callable[[str], str], tmp_path: Path) -> None:
    topic, trace, group, consumer_group = unique("traced"), unique("trace"), unique("pg"), unique("cg")
    async with Client(shared.namesrv, trace=trace) as mq:
        await mq.create_topic(topic, 1)
        await mq.create_topic(trace, 1)
        async with mq.producer(group) as producer:
            receipts = await producer.send_batch([Message(topic, b"%d" % number) for number in range(3)])
        async with mq.consumer(consumer_group, [topic], from_where="first") as consumer:
            for _ in receipts:
                await (await anext(consumer)).ack()
    words = "queryMsgTraceById", "-i", receipts[1].msg_id, "-t", trace
    printed = ""
    for _ in range(20):  # Apache's broker notes keys a moment later
        ran = await asyncio.to_thread(apache.mqadmin, *words, namesrv=shared.namesrv, directory=tmp_path)
        printed = ran.stdout
        if group in printed and consumer_group in printed:
            break
    assert printed.count("success") == 2, printed + ran.stderr
