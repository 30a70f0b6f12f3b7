"""Messages in transactions: by a listener, as a block, and when the broker has to ask."""

import asyncio
from collections.abc import Callable

import pytest

from rockmq.client import Client, Decision, Message, SendReceipt, StoredMessage
from rockmq.protocol import properties
from tests.client.conftest import NewTopic
from tests.support.cluster import Cluster

UNASKED = {properties.CHECK_IMMUNITY_TIME: "60"}
"""Of messages that are decided at once: the broker isn't to ask about them, however slow the machine is. Apache's asks
a second after a message here, also when it knows the decision but hasn't noted it yet."""


async def test_what_is_committed_is_delivered(mq: Client, new_topic: NewTopic, unique: Callable[[str], str]) -> None:
    (queue,) = await new_topic(1)
    topic, group = queue.topic, unique("tx")
    asked: dict[str, StoredMessage] = {}

    async def check(message: StoredMessage) -> Decision:
        asked[message.msg_id] = message
        return Decision.COMMIT if message.body == b"commit later" else Decision.ROLLBACK

    async def execute(receipt: SendReceipt) -> Decision:
        return Decision.COMMIT

    async with mq.transaction_producer(group, check) as producer:
        async with producer.transaction(Message(topic, b"block", tag="t", keys=["k"], properties=UNASKED)) as committed:
            assert (await mq.pull(queue, 0)).messages == []
        assert committed.confirmed
        async with producer.transaction(Message(topic, b"by hand", properties=UNASKED)) as rolled_back:
            rolled_back.roll_back()
        assert rolled_back.confirmed
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(Message(topic, b"failed", properties=UNASKED)):
                raise ZeroDivisionError
        receipt = await producer.send_in_transaction(Message(topic, b"listener", properties=UNASKED), execute)
        assert receipt.confirmed
        opened = []
        for body in (b"commit later", b"roll back later"):
            async with producer.transaction(Message(topic, body)) as transaction:
                transaction.leave_open()
            opened.append(transaction.id)
        async with asyncio.timeout(30):
            while len(asked) < 2 or len((await mq.pull(queue, 0)).messages) < 3:
                await asyncio.sleep(0.05)
        found = (await mq.pull(queue, 0)).messages
    assert [message.body for message in found] == [b"block", b"listener", b"commit later"]
    assert [message.msg_id for message in found] == [committed.id, receipt.sent.msg_id, opened[0]]
    assert (found[0].tag, found[0].keys) == ("t", ["k"])
    assert set(asked) == set(opened)
    assert {message.topic for message in asked.values()} == {topic}


async def test_another_process_may_decide(
    mq: Client, peer: Cluster, new_topic: NewTopic, unique: Callable[[str], str]
) -> None:
    (queue,) = await new_topic(1)
    group = unique("tx")

    async def check(_: StoredMessage) -> Decision:
        return Decision.UNKNOWN

    async with mq.transaction_producer(group, check) as producer:
        halves = [await producer.send_half(Message(queue.topic, body), queue=queue) for body in (b"yes", b"no")]
    assert (await mq.pull(queue, 0)).messages == []
    async with Client(peer.namesrv) as other, other.transaction_producer(group, check) as producer:
        assert await producer.decide(halves[0], Decision.COMMIT)
        assert await producer.decide(halves[1], Decision.ROLLBACK)
        async with asyncio.timeout(30):
            while not (found := (await mq.pull(queue, 0)).messages):
                await asyncio.sleep(0.05)
    assert [(message.body, message.msg_id) for message in found] == [(b"yes", halves[0].msg_id)]
