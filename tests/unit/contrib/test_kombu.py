"""Kombu's queues, and tasks of Celery with a worker process."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import Connection, Exchange, Queue
from kombu.common import Broadcast
from kombu.exceptions import ChannelError, OperationalError

import rockmq.contrib.kombu
from rockmq.blocking import Client as Sender
from rockmq.client import Client, Message
from rockmq.embedded import Server
from tests.unit.contrib.processes import python, run

WORKER = "-m", "celery", "-A", "celery_tasks", "worker", "--loglevel", "INFO", "--concurrency", "1"


async def test_the_example(rockmq_server: Server) -> None:
    async with python(*WORKER, namesrv=rockmq_server.namesrv) as worker:
        await run("celery_tasks.py", namesrv=rockmq_server.namesrv)
        await worker.until("order 1 is charged after 1 retry")
        await worker.until("order 1 is shipped")
        await worker.end()
        assert worker.process.returncode == 0, worker.seen
    async with Client(rockmq_server.namesrv) as mq:
        assert sum(offset or 0 for offset in (await mq.committed_offsets("celery", "celery")).values()) == 3


async def test_a_task_whose_worker_is_killed_is_done_by_another(rockmq_server: Server, tmp_path: Path) -> None:
    (tmp_path / "celery_tasks.py").write_text(
        """
import os, time
from celery import Celery
import rockmq.contrib.kombu
app = Celery("celery_tasks", broker=f"rockmq://{os.environ['NAMESRV_ADDR']}")

@app.task(acks_late=True)
def work():
    print("begun", flush=True)
    time.sleep(float(os.environ.get("TAKES", "0")))
    print("ended", flush=True)

if __name__ == "__main__":
    work.delay()
"""
    )
    where = {"namesrv": rockmq_server.namesrv, "directory": tmp_path}
    async with python(*WORKER, "--pool", "solo", **where, TAKES="600") as worker:  # type: ignore[arg-type]
        await run("celery_tasks.py", namesrv=rockmq_server.namesrv, directory=tmp_path)
        await worker.until("begun")
        worker.process.send_signal(signal.SIGKILL)
        await worker.process.wait()
    async with python(*WORKER, "--pool", "solo", **where) as worker:  # type: ignore[arg-type]
        await worker.until("ended")


Test = Callable[[Any], None]


async def kombu(test: Test, server: Server, **options: Any) -> None:
    """Use a connection in a thread, beside the server's loop."""

    def use() -> None:
        with Connection(f"rockmq://{server.namesrv}", transport_options=options) as connection:
            test(connection)

    await asyncio.wait_for(asyncio.to_thread(use), 60)


async def test_acknowledge_requeue_and_reject(rockmq_server: Server) -> None:
    def test(connection: Any) -> None:
        with connection.SimpleQueue("orders") as orders:
            for text in ("one", "two"):
                orders.put({"order": text})
            taken = {message.payload["order"]: message for message in (orders.get(timeout=20), orders.get(timeout=20))}
            taken["one"].ack()
            taken["two"].reject()
            with pytest.raises(orders.Empty):
                orders.get(timeout=0.1)

    await kombu(test, rockmq_server, queue_name_prefix="shop.")
    async with Client(rockmq_server.namesrv) as mq:
        assert len(await mq.queues("shop_orders")) == 8
        (queue,) = await mq.queues("%DLQ%shop_orders")
        assert b"orders" in (await mq.pull(queue, 0)).messages[0].body


FOREIGN = (
    b"not JSON",
    b"[]",
    b"1" * 5000,
    b"[" * 100_000,
    b'{"__type__": "datetime", "__value__": "x"}',
    b'{"__type__": "decimal", "__value__": "x"}',
    b'{"__type__": "bytes", "__value__": 3}',
    b'{"properties": {"delivery_info": {"routing_key": []}}}',
    b'{"body": "abc", "properties": {"body_encoding": "base64", "delivery_info": {"routing_key": "orders"}}}',
    b'{"body": "YQ==", "properties": {"body_encoding": "rot13", "delivery_info": {"routing_key": "orders"}}}',
    b'{"body": 7, "properties": {"body_encoding": "base64", "delivery_info": {"routing_key": "orders"}}}',
    b'{"body": "YQ==", "headers": [1], "properties": {"delivery_info": {"routing_key": "orders"}}}',
)


async def test_what_somebody_else_has_sent_becomes_a_dead_letter(rockmq_server: Server) -> None:
    def test(connection: Any) -> None:
        with connection.SimpleQueue("orders") as orders:
            orders.put({"order": 1})
            message = orders.get(timeout=20)
            assert message.payload == {"order": 1}
            message.ack()

    async with Client(rockmq_server.namesrv) as mq, mq.producer() as producer:
        await mq.create_topic("orders", 1)
        for body in FOREIGN:
            await producer.send(Message("orders", body))
        await kombu(test, rockmq_server)
        (queue,) = await mq.queues("%DLQ%orders")
        assert [each.body for each in (await mq.pull(queue, 0)).messages] == list(FOREIGN)


async def test_a_topic_exchange_and_a_purge(rockmq_server: Server) -> None:
    def test(connection: Any) -> None:
        exchange = Exchange("events", "topic")
        channel = connection.channel()
        paid, every = Queue("paid", exchange, "orders.paid"), Queue("every", exchange, "orders.*")
        for queue in (paid, every):
            queue(channel).declare()
        producer = connection.Producer(channel)
        producer.publish({"order": 1}, exchange=exchange, routing_key="orders.paid")
        producer.publish({"order": 2}, exchange=exchange, routing_key="orders.sent")
        assert every(channel).purge() == 2
        with connection.SimpleQueue(paid) as found:
            message = found.get(timeout=20)
            assert message.payload == {"order": 1}
            message.ack()
        assert every(channel).get() is None

    await kombu(test, rockmq_server)


async def test_a_consumer_is_called_back(rockmq_server: Server) -> None:
    def test(connection: Any) -> None:
        seen = []

        def received(body: Any, message: Any) -> None:
            seen.append(body)
            message.ack()

        orders = Queue("orders", Exchange("orders"), "orders")
        with connection.Consumer([orders], callbacks=[received], prefetch_count=1):
            producer = connection.Producer()
            for number in range(3):
                producer.publish(number, exchange="orders", routing_key="orders", declare=[orders])
            end = time.monotonic() + 20
            while len(seen) < 3 and time.monotonic() < end:
                connection.drain_events(timeout=5)
        assert sorted(seen) == [0, 1, 2]

    await kombu(test, rockmq_server)


async def test_a_task_for_later_waits_at_the_broker(rockmq_server: Server) -> None:
    def test(connection: Any) -> None:
        orders = Queue("orders", Exchange("orders"), "orders")
        due = datetime.now(UTC) + timedelta(seconds=1)
        producer = connection.Producer()
        producer.publish("x", exchange="orders", routing_key="orders", declare=[orders], headers={"eta": due.isoformat()})
        got = orders(connection.channel())
        message = None
        end = time.monotonic() + 20
        while message is None and time.monotonic() < end:
            message = got.get()
            time.sleep(0.02)
        assert message is not None
        assert datetime.now(UTC) >= due
        message.ack()

    await kombu(test, rockmq_server)


def everything(consumer: Any, seen: list[Any], count: int) -> None:
    """Drain until so many messages came."""
    end = time.monotonic() + 20
    while len(seen) < count and time.monotonic() < end:
        with contextlib.suppress(TimeoutError):
            consumer.connection.drain_events(timeout=0.1)
    assert len(seen) == count


async def test_a_fanout_reaches_all_who_are_there(rockmq_server: Server) -> None:
    news = Exchange("news", "fanout")

    def test(connection: Any) -> None:
        producer = connection.Producer()
        producer.publish("nobody hears it", exchange=news, declare=[news])
        seen: list[list[str]] = [[], []]
        with connection.clone() as second, contextlib.ExitStack() as stack:
            listeners = []
            for each, heard in zip((connection, second), seen, strict=True):
                queue = Broadcast("news", unique=True)
                consumer = each.Consumer(
                    [queue], callbacks=[lambda body, message, to=heard: (to.append(body), message.ack())]
                )
                listeners.append(stack.enter_context(consumer))
            for number in range(3):
                producer.publish(f"number {number}", exchange=news)
            for listener, heard in zip(listeners, seen, strict=True):
                everything(listener, heard, 3)
                assert heard == ["number 0", "number 1", "number 2"]

    await kombu(test, rockmq_server)
    async with Client(rockmq_server.namesrv) as mq:
        assert len(await mq.queues("fanout_news")) == 1


async def test_of_a_fanout_nobody_gets_what_somebody_else_has_sent(rockmq_server: Server) -> None:
    def test(connection: Any) -> None:
        channel = connection.channel()
        queue = Broadcast("news", unique=True)(channel)
        queue.declare()
        with Sender(rockmq_server.namesrv) as mq, mq.producer() as sender:
            for body in FOREIGN:
                sender.send(Message("fanout_news", body))
        connection.Producer(channel).publish("news", exchange="news")
        message = None
        end = time.monotonic() + 20
        while message is None and time.monotonic() < end:
            message = queue.get()
            time.sleep(0.02)
        assert message is not None
        assert message.payload == "news"

    await kombu(test, rockmq_server)


async def test_queues_of_a_fanout_are_purged_and_deleted(rockmq_server: Server) -> None:
    def test(connection: Any) -> None:
        channel = connection.channel()
        first, second = (Broadcast("news", unique=True)(channel) for _ in range(2))
        for queue in (first, second):
            queue.declare()
        producer = connection.Producer(channel)
        for number in range(2):
            producer.publish(number, exchange="news")
        assert first.purge() == 2
        assert second.get().payload == 0
        second.delete()
        producer.publish("more", exchange="news")
        assert first.get().payload == "more"
        assert first.get() is None

    await kombu(test, rockmq_server)


async def test_workers_are_controlled_and_answer(rockmq_server: Server) -> None:
    app = Celery("celery_tasks", broker=f"rockmq://{rockmq_server.namesrv}")

    def ask(name: str) -> Any:
        return app.control.inspect(destination=[name], timeout=20)

    names = "a@one", "b@two"
    async with contextlib.AsyncExitStack() as stack:
        commands = [(*WORKER, "--pool", "solo", "-n", name) for name in names]
        workers = [await stack.enter_async_context(python(*each, namesrv=rockmq_server.namesrv)) for each in commands]
        for worker in workers:
            await worker.until("ready.")
        for name in names:
            assert await asyncio.to_thread(ask(name).ping) == {name: {"ok": "pong"}}
        registered = await asyncio.to_thread(ask("a@one").registered)
        assert "celery_tasks.ship" in registered["a@one"]
        await asyncio.to_thread(app.control.shutdown, ["b@two"])
        assert await asyncio.wait_for(workers[1].process.wait(), 30) == 0
    await asyncio.to_thread(app.pool.force_close_all)
    await asyncio.to_thread(app.close)


async def test_what_it_cant_do_it_says(rockmq_server: Server) -> None:
    def test(connection: Any) -> None:
        with pytest.raises(ChannelError, match="direct, topic and fanout"):
            Exchange("all", "headers")(connection.channel()).declare()
        with pytest.raises(ChannelError, match="'shared' is shared"):
            Queue("shared", Exchange("all", "fanout"))(connection.channel()).declare()
        queue = Queue("orders", Exchange("orders"), "orders")
        with pytest.raises(ChannelError, match="acknowledged"):
            connection.Consumer([queue], no_ack=True).consume()

    await kombu(test, rockmq_server)
    with pytest.raises(OperationalError), Connection("rockmq://127.0.0.1:1") as connection:
        await asyncio.to_thread(connection.ensure_connection, max_retries=1, interval_start=0)


def test_an_eta_is_kept_to_what_brokers_take() -> None:
    now = datetime.now(UTC)
    due = rockmq.contrib.kombu._due
    assert due(None) is None
    soon = now + timedelta(minutes=5)
    assert due(soon.isoformat()) == pytest.approx(soon.timestamp())
    assert due(soon.replace(tzinfo=None).isoformat()) == pytest.approx(soon.timestamp())
    far = due((now + timedelta(days=30)).isoformat())
    assert far is not None
    assert far - now.timestamp() < timedelta(days=3).total_seconds()
