"""Say which queue a message goes to, and read queues without joining a group.

Run it as `python examples/selector.py`.
"""

import asyncio
import os
from collections.abc import Sequence

from rockmq.client import Client, Message, MessageQueue


def by_region(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    """Europe gets the first queue, everyone else shares the others."""
    if message.properties["region"] == "eu":
        return queues[0]
    return queues[1 + hash(message.properties["region"]) % (len(queues) - 1)]


async def main(name_server: str) -> None:
    async with Client(name_server) as mq:
        queues = await mq.create_topic("visits", queues=4)
        async with mq.producer("web") as producer:
            for region in ("eu", "us", "eu", "jp"):
                visit = Message("visits", f"a visit from {region}".encode(), properties={"region": region})
                receipt = await producer.send(visit, selector=by_region)
                print(f"{region}: queue {receipt.queue.queue_id}")

        for queue in queues:
            offset, end = await mq.min_offset(queue), await mq.max_offset(queue)
            while offset < end:
                result = await mq.pull(queue, offset)
                for message in result.messages:
                    print(f"queue {queue.queue_id}, offset {message.queue_offset}: {message.body.decode()}")
                offset = result.next_offset


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")))
