"""What producers send, as it lies in the brokers' queues."""

import asyncio
import random
from collections.abc import Callable
from typing import Literal

import pytest

from rockmq.base.errors import ClientError
from rockmq.client import Client, Message, MessageQueue, SendReceipt, StoredMessage
from rockmq.protocol.codec import encode_batch
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.route import PutKV, UpdateNamesrvConfig
from tests.client.conftest import NewTopic
from tests.support.cluster import Cluster


async def everything(mq: Client, queues: list[MessageQueue], count: int) -> dict[str, tuple[MessageQueue, StoredMessage]]:
    """The messages of these queues, by id, once there are so many: Apache's broker has them in queues a moment later."""
    found: dict[str, tuple[MessageQueue, StoredMessage]] = {}
    offsets = dict.fromkeys(queues, 0)
    async with asyncio.timeout(20):
        while len(found) < count:
            for queue in queues:
                result = await mq.pull(queue, offsets[queue])
                found |= {message.msg_id: (queue, message) for message in result.messages}
                offsets[queue] = result.next_offset
    return found


async def agree(mq: Client, queues: list[MessageQueue], sent: list[tuple[SendReceipt, Message]]) -> None:
    """Assert that queues hold what was sent, each message where its receipt says."""
    found = await everything(mq, queues, len(sent))
    assert found.keys() == {receipt.msg_id for receipt, _ in sent}
    for receipt, message in sent:
        queue, stored = found[receipt.msg_id]
        assert (queue, stored.queue_offset, stored.offset_id) == (receipt.queue, receipt.queue_offset, receipt.offset_id)
        assert (stored.body, stored.tag, stored.keys) == (message.body, message.tag, list(message.keys))


async def test_messages_travel_together(mq: Client, new_topic: NewTopic, unique: Callable[[str], str]) -> None:
    queues = await new_topic()
    topic = queues[0].topic
    messages = [Message(topic, b"%d" % number, tag=f"t{number % 3}", keys=[f"k{number}"]) for number in range(300)]
    async with mq.producer(unique("pg"), linger=0.001) as producer:
        anywhere = await asyncio.gather(*map(producer.send, messages))
        keyed = await asyncio.gather(*(producer.send(message, key=message.keys[0]) for message in messages))
    await agree(mq, queues, [*zip(anywhere, messages, strict=True), *zip(keyed, messages, strict=True)])
    assert len({receipt.queue for receipt in anywhere}) < 4 or len({receipt.queue for receipt in keyed}) == 4


async def test_batches_are_cut_by_size(mq: Client, new_topic: NewTopic, unique: Callable[[str], str]) -> None:
    queues = await new_topic()
    messages = [Message(queues[0].topic, b"%03d" % number * 100, keys=["k"]) for number in range(20)]
    async with mq.producer(unique("pg"), message_size_max=2000) as producer:
        receipts = await producer.send_batch(messages)
        assert len({receipt.queue for receipt in receipts}) == 4, "each request takes its turn"
        together = await producer.send_batch(messages, queue=queues[2])
        assert [receipt.queue_offset for receipt in together] == list(
            range(together[0].queue_offset, together[0].queue_offset + 20)
        )
    await agree(mq, queues, [*zip(receipts, messages, strict=True), *zip(together, messages, strict=True)])


async def test_a_batch_may_come_encoded(mq: Client, new_topic: NewTopic, unique: Callable[[str], str]) -> None:
    queues = await new_topic()
    assert await mq.writable_queues(queues[0].topic) == queues
    body = encode_batch((0, b"%d" % number, b"UNIQ_KEY\x01U%d\x02" % number) for number in range(3))
    async with mq.producer(unique("pg")) as producer:
        first = await producer.send_encoded(body, queues[2])
        second = await producer.send_encoded(encode_batch([(0, b"3", b"UNIQ_KEY\x01U3\x02")]), queues[2])
        with pytest.raises(ClientError, match="can't be sent to"):
            await producer.send_encoded(body, MessageQueue(queues[0].topic, queues[0].broker_name, 9))
    assert (first.queue, first.queue_offset, second.queue_offset) == (queues[2], 0, 3)
    found = await everything(mq, queues, 4)
    assert [(each, queue, stored.queue_offset, stored.body) for each, (queue, stored) in found.items()] == [
        (f"U{number}", queues[2], number, b"%d" % number) for number in range(4)
    ]


@pytest.mark.parametrize("kind", ["zlib", "lz4", "zstd", "none"])
async def test_bodies_are_compressed(
    mq: Client, new_topic: NewTopic, unique: Callable[[str], str], kind: Literal["zlib", "lz4", "zstd", "none"]
) -> None:
    (queue,) = await new_topic(1)
    long = Message(queue.topic, b"a long story " * 1000)
    noise = Message(queue.topic, random.Random(1).randbytes(5000))
    short = Message(queue.topic, b"short")
    async with mq.producer(unique("pg"), compression=kind) as producer:
        receipts = [await producer.send(message) for message in (long, noise, short)]
    await agree(mq, [queue], list(zip(receipts, (long, noise, short), strict=True)))
    found = await everything(mq, [queue], 3)
    sizes = [found[receipt.msg_id][1].size for receipt in receipts]
    assert (sizes[0] < 2000) == (kind != "none")
    assert sizes[1] > 5000


async def test_an_order_topic_has_the_queues_of_its_configuration(
    mq: Client, new_topic: NewTopic, unique: Callable[[str], str]
) -> None:
    queues = await new_topic()
    topic, broker = queues[0].topic, queues[0].broker_name
    ask = mq._instance.names.ask
    await ask(mq._instance.request(RequestCode.UPDATE_NAMESRV_CONFIG, UpdateNamesrvConfig(), b"orderMessageEnable=true"), 5)
    conf = PutKV(namespace="ORDER_TOPIC_CONFIG", key=topic, value=f"{broker}:3")
    await ask(mq._instance.request(RequestCode.PUT_KV_CONFIG, conf), 5)
    async with asyncio.timeout(20):
        while (await mq._instance.routes.fetch(topic)).data.order_topic_conf != f"{broker}:3":
            await asyncio.sleep(0.05)
    async with mq.producer(unique("pg")) as producer:
        receipts = [await producer.send(Message(topic, b"x")) for _ in range(6)]
        assert sorted(receipt.queue.queue_id for receipt in receipts) == [0, 0, 1, 1, 2, 2]
        for key in ("TagA", "42", "polygenelubricants"):
            keyed = {(await producer.send(Message(topic, key.encode()), key=key)).queue.queue_id for _ in range(3)}
            assert keyed == {{"TagA": 2598919 % 3, "42": 1662 % 3, "polygenelubricants": 2**31 % 3}[key]}
    assert {queue for queue, _ in (await everything(mq, queues, 15)).values()} == set(queues[:3])


async def test_a_key_keeps_its_order(mq: Client, new_topic: NewTopic, unique: Callable[[str], str]) -> None:
    queues = await new_topic()
    async with mq.producer(unique("pg")) as producer:
        for step in (b"paid", b"packed", b"sent"):
            await asyncio.gather(*(producer.send(Message(queues[0].topic, step), key=f"{order}") for order in range(20)))
    steps: dict[str, list[bytes]] = {}
    for _, message in sorted((await everything(mq, queues, 60)).values(), key=lambda found: found[1].queue_offset):
        steps.setdefault(message.properties["__SHARDINGKEY"], []).append(message.body)
    assert steps == {f"{order}": [b"paid", b"packed", b"sent"] for order in range(20)}


async def test_receipts_state_their_durability(
    mq: Client, peer: Cluster, new_topic: NewTopic, unique: Callable[[str], str]
) -> None:
    """RockMQ's broker forces the log before it confirms, Apache's doesn't; neither has replicas here."""
    topic = (await new_topic())[0].topic
    async with mq.producer(unique("pg"), durability="memory") as producer:
        receipts = await asyncio.gather(*(producer.send(Message(topic, b"x")) for _ in range(5)))
        assert {receipt.durability for receipt in receipts} == {"memory" if peer.kind == "apache" else "disk"}
    async with mq.producer(unique("pg"), durability="replicated") as producer:
        with pytest.raises(ClientError, match="are to have durability 'replicated'"):
            await producer.send(Message(topic, b"x"))
