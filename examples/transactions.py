"""Deliver an order only if it was booked.

Run it as `python examples/transactions.py`.
"""

import asyncio
import os

from rockmq.client import Client, Decision, Message, SendReceipt, StoredMessage

booked: set[str] = set()
"""In earnest a table in the database of the orders, written in the same transaction as the order itself."""


async def check(message: StoredMessage) -> Decision:
    """A broker that wasn't told what came of a transaction asks for it, maybe another process than the one that began it."""
    return Decision.COMMIT if message.msg_id in booked else Decision.ROLLBACK


async def book(receipt: SendReceipt) -> Decision:
    """Called when the broker has stored the message, where nobody sees it yet."""
    booked.add(receipt.msg_id)
    return Decision.COMMIT


async def refuse(receipt: SendReceipt) -> Decision:
    return Decision.ROLLBACK


async def main(name_server: str) -> None:
    async with Client(name_server) as mq, mq.transaction_producer("shop", check) as producer:
        for number in range(10):
            message = Message("bookings", b"%d" % number)
            result = await producer.send_in_transaction(message, refuse if number % 5 == 4 else book)
            print(f"order {number}: {result.decision.name}")

        async with mq.consumer("shipping", "bookings", from_where="first") as consumer:
            for _ in range(len(booked)):
                delivered = await anext(consumer)
                print(f"order {delivered.body.decode()} is shipped")
                await delivered.ack()


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")))
