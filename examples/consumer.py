"""Consume messages as a member of a group; start it several times and the members share the queues. Ctrl-C ends it in order.

Run it as `python examples/consumer.py`.
"""

import asyncio
import logging
import os
import signal

from rockmq.client import Client, ConsumedMessage


async def charge(message: ConsumedMessage) -> None:
    """The work. When it raises, the message is logged and delivered again later."""
    print(f"{message.tag}: {message.body.decode()} (queue {message.queue.queue_id}, offset {message.queue_offset})")


async def main(name_server: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    async with Client(name_server) as mq:
        async with mq.consumer("billing", {"orders": "paid || shipped"}, from_where="first") as consumer:
            running = asyncio.create_task(consumer.run(charge, concurrency=20))
            await stop.wait()
        # Leaving the block has waited for the handlers, stored the offsets and left the group.
        await running


async def by_hand(name_server: str) -> None:
    """The same without a handler: `process` acknowledges when the block ends well, and refuses when it raises."""
    async with Client(name_server) as mq, mq.consumer("billing", {"orders": "paid || shipped"}) as consumer:
        async for message in consumer:
            async with message.process(suppress=True):
                await charge(message)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(main(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")))
