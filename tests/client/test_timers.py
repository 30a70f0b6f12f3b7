"""Messages for later, and those that are taken back."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from rockmq.client import Client, Message
from tests.client.conftest import NewTopic


async def test_sent_for_later_and_taken_back(mq: Client, new_topic: NewTopic, unique: Callable[[str], str]) -> None:
    (queue,) = await new_topic(1)
    topic = queue.topic
    async with mq.producer(unique("pg")) as producer:
        begun = time.time()
        later = await producer.send(Message(topic, b"later"), delay=timedelta(seconds=1))
        gone = await producer.send(Message(topic, b"gone"), deliver_at=begun + 30)
        level = await producer.send(Message(topic, b"level", delay_level=1))
        now = await producer.send(Message(topic, b"now"), deliver_at=datetime.fromtimestamp(begun - 1, UTC))
        assert later.recall_handle
        assert gone.recall_handle
        assert level.recall_handle is None
        assert await producer.recall(gone.recall_handle) == gone.msg_id
    found: dict[str, tuple[bytes, int]] = {}
    at = 0
    while len(found) < 3:
        result = await mq.pull(queue, at, wait=10)
        found |= {message.msg_id: (message.body, message.store_timestamp) for message in result.messages}
        at = result.next_offset
    assert {msg_id: body for msg_id, (body, _) in found.items()} == {
        later.msg_id: b"later", level.msg_id: b"level", now.msg_id: b"now",
    }  # fmt: skip
    for msg_id in (later.msg_id, level.msg_id):
        assert found[msg_id][1] >= int(begun * 1000) + 900, "never earlier"
