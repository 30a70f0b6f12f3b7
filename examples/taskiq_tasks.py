"""Tasks of taskiq (`pip install rockmq[taskiq]`): sent by this program, done by a worker.

taskiq worker taskiq_tasks:broker        in examples/
python examples/taskiq_tasks.py
"""

import asyncio
import os
from datetime import timedelta

from taskiq import Context, SmartRetryMiddleware, TaskiqDepends

from rockmq.contrib.taskiq import RockMQBroker

broker = RockMQBroker(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"))
broker.add_middlewares(SmartRetryMiddleware(default_delay=1))


@broker.task
async def ship(order: int) -> None:
    print(f"order {order} is shipped", flush=True)


@broker.task(retry_on_error=True)
async def charge(order: int, context: Context = TaskiqDepends()) -> None:  # noqa: B008
    """Fails at first; it comes again a second later."""
    tried = int(context.message.labels.get("_retries", 0))
    if not tried:
        raise ConnectionError("the bank doesn't answer")
    print(f"order {order} is charged after {tried} retry", flush=True)


async def main() -> None:
    await broker.startup()
    await charge.kiq(1)
    await ship.kicker().with_labels(delay=timedelta(seconds=2).total_seconds()).kiq(1)
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
