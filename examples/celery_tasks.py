"""Tasks of Celery (`pip install rockmq[celery]`): sent by this program, done by a worker.

celery -A celery_tasks worker        in examples/
python examples/celery_tasks.py
"""

import os

from celery import Celery, Task

import rockmq.contrib.kombu  # noqa: F401  # makes rockmq:// known

app = Celery("celery_tasks", broker=f"rockmq://{os.environ.get('NAMESRV_ADDR', '127.0.0.1:9876')}")
app.conf.broker_connection_retry_on_startup = True


@app.task(acks_late=True)
def ship(order: int) -> None:
    """Acknowledged when it is done: it comes again if the worker dies meanwhile."""
    print(f"order {order} is shipped", flush=True)


@app.task(bind=True, max_retries=3, default_retry_delay=1)
def charge(self: Task, order: int) -> None:
    """Fails at first; it comes again a second later."""
    if not self.request.retries:
        raise self.retry(exc=ConnectionError("the bank doesn't answer"))
    print(f"order {order} is charged after {self.request.retries} retry", flush=True)


def main() -> None:
    charge.delay(1)
    ship.apply_async((1,), countdown=2)


if __name__ == "__main__":
    main()
