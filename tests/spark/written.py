"""What a topic holds, read without anything of the sink's: its judge."""

import asyncio
from collections import Counter
from collections.abc import Iterable

from rockmq.protocol.message import StoredMessage
from rockmq.remoting.client import RemotingClient
from tests.support.cluster import Cluster, wait_until_dispatched
from tests.support.traffic import read_queue


def stored(server: Cluster, topic: str, queues: int) -> list[list[StoredMessage]]:
    """The messages of each queue, in their order."""
    wait_until_dispatched(server)

    async def read() -> list[list[StoredMessage]]:
        remote = RemotingClient()
        try:
            return [await read_queue(remote, server.broker, queue, topic=topic) for queue in range(queues)]
        finally:
            await remote.close()

    return asyncio.run(read())


def bodies(server: Cluster, topic: str, queues: int) -> "Counter[str]":
    """How often each body is there."""
    return Counter(message.body.decode() for queue in stored(server, topic, queues) for message in queue)


def faults(server: Cluster, topic: str, queues: int, wanted: Iterable[str]) -> dict[str, list[str]]:
    """What is lost, what is there too often, and what of a key came out of order.

    Bodies are `key:number`, numbers of a key rise, and a key is its message's sharding key.
    """
    found = stored(server, topic, queues)
    counts = Counter(message.body.decode() for queue in found for message in queue)
    disorder = []
    places: dict[str, int] = {}
    for number, queue in enumerate(found):
        latest: dict[str, int] = {}
        for message in queue:
            key, _, text = message.body.decode().partition(":")
            if places.setdefault(key, number) != number or int(text) <= latest.get(key, -1):
                disorder.append(message.body.decode())
            latest[key] = int(text)
    expected = Counter(wanted)
    return {
        "lost": sorted((expected - counts).elements()),
        "repeated": sorted((counts - expected).elements()),
        "out of order": disorder,
    }


NONE: dict[str, list[str]] = {"lost": [], "repeated": [], "out of order": []}
