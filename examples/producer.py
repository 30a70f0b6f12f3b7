"""Send messages: one by one, keyed so that they stay in order, and many at once.

Run it as `python examples/producer.py`.
"""

import asyncio
import os

from rockmq.client import Client, Message


async def main(name_server: str) -> None:
    async with Client(name_server) as mq, mq.producer("orders-group") as producer:
        receipt = await producer.send(Message("orders", b"order 42", tag="paid", keys=["42"]), timeout=3.0)
        print(f"{receipt.msg_id} is at offset {receipt.queue_offset} of {receipt.queue}: {receipt.status.meaning}")

        # Messages with one key go to one queue; awaited one after the other they are read in this order.
        for step in ("created", "paid", "shipped"):
            await producer.send(Message("orders", f"order 43 {step}".encode(), tag=step), key="43")

        # Many at once: `send` waits by itself when too much is on its way.
        orders = [Message("orders", b"order %d" % number, tag="paid") for number in range(100, 200)]
        receipts = await asyncio.gather(*map(producer.send, orders))
        print(f"sent {len(receipts)} orders to {len({each.queue for each in receipts})} queues")


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")))
