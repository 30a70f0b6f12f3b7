"""Messages that a consumer gives up."""

import asyncio
from collections.abc import Iterable

from rockmq.client import Client, Message
from tests.support.cluster import Cluster, wait_for_route

PATIENCE_S = 60


def make(server: Cluster, group: str, topic: str, messages: Iterable[Message]) -> None:
    """Send messages to a topic, and have the group make dead letters of all that it gets there."""
    asyncio.run(_make(server.namesrv, group, topic, list(messages)))
    wait_for_route(server.namesrv, f"%DLQ%{group}")


async def _make(namesrv: str, group: str, topic: str, messages: list[Message]) -> None:
    async with Client(namesrv) as mq, mq.producer("givers", timeout=10) as producer:
        for message in messages:
            message.topic = topic
            await producer.send(message)
        async with mq.consumer(group, topic, from_where="first") as consumer, asyncio.timeout(PATIENCE_S):
            for _ in messages:
                await (await anext(consumer)).dead_letter()
