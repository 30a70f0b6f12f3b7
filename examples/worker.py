"""A program that consumes with two handlers until it is told to stop; then it finishes what it works on, commits and leaves.

Run it as `python examples/worker.py`, and end it by Ctrl-C or SIGTERM.
"""

import asyncio
import logging
import os

from rockmq.client import ConsumedMessage, Worker, backoff

app = Worker(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"))


@app.subscribe(
    {"orders": "paid || shipped"},
    group="billing",
    from_where="first",
    concurrency=32,
    ordered_by=lambda message: message.key,
    retry=backoff(1, 60, jitter=True),
)
async def charge(message: ConsumedMessage) -> None:
    """Orders of the same key one after the other. When it raises, the message comes again after a pause that grows."""
    print(f"charged: {message.body.decode()}")


@app.subscribe("orders", group="audit", from_where="first", order=True, max_reconsume_times=5)
def audit(message: ConsumedMessage) -> None:
    """Each queue in order, on a thread; a message that fails holds up its queue, six times at most."""
    print(f"noted: {message.body.decode()}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    asyncio.run(app.run())
