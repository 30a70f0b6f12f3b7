"""Send many messages in one request, and read them back in batches.

Run it as `python examples/batch.py`.
"""

import asyncio
import os

from rockmq.client import Client, Message


async def main(name_server: str) -> None:
    async with Client(name_server) as mq:
        async with mq.producer("sensors-group") as producer:
            readings = [Message("readings", b"%d" % number, tag="temperature") for number in range(1000)]
            receipts = await producer.send_batch(readings)
            print(f"{len(receipts)} readings are stored from offset {receipts[0].queue_offset} of {receipts[0].queue}")

        async with mq.consumer("averages", "readings", from_where="first") as consumer:
            seen = 0
            while seen < len(readings):
                batch = await consumer.fetch(max_messages=200, timeout=5.0)
                if not batch:
                    break
                seen += len(batch)
                print(f"average of {len(batch)}: {sum(int(message.body) for message in batch) / len(batch)}")
                for message in batch:
                    await message.ack()


if __name__ == "__main__":
    asyncio.run(main(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")))
