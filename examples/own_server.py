"""A name server and a broker inside this process: for tests, notebooks, and trying things out. Needs no running server."""

import asyncio

from rockmq import embedded
from rockmq.client import Client, Message


async def main() -> None:
    async with embedded.serve() as server, Client(server.namesrv) as mq, mq.producer() as producer:
        receipt = await producer.send(Message("greetings", b"hello"))
        found = await mq.pull(receipt.queue, receipt.queue_offset)
        print(found.messages[0].body.decode())


asyncio.run(main())
