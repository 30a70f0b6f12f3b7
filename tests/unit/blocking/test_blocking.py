"""The client for threads, on a real broker."""

import asyncio
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from rockmq.blocking import Client, ConsumedMessage, PopMessage
from rockmq.blocking.bridge import Portal
from rockmq.client import (
    ClientClosed,
    ClientError,
    Decision,
    InvalidMessage,
    Message,
    MessageQueue,
    RouteNotFound,
    SendReceipt,
    StoredMessage,
)
from rockmq.embedded import Server
from tests.support.process import eventually

ROOT = Path(__file__).resolve().parents[3]


async def in_thread(test: Callable[[str], object], server: Server) -> None:
    """Run a test as an ordinary program would, beside the server's loop."""
    await asyncio.wait_for(asyncio.to_thread(test, server.namesrv), 60)


async def test_the_classes_are_up_to_date() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "scripts" / "make_blocking.py"), "--check", env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert await process.wait() == 0


async def test_what_is_sent_is_consumed(rockmq_server: Server) -> None:
    def test(namesrv: str) -> None:
        with Client(namesrv) as mq:
            mq.create_topic("orders", 2)
            with mq.producer("pg") as producer:
                receipts = [producer.send(Message("orders", b"1")), *producer.send_batch([Message("orders", b"2")] * 2)]
                receipts += [each.result() for each in [producer.send_nowait(Message("orders", b"3")) for _ in range(5)]]
                assert producer.group == "pg"
            assert producer.closed
            found = set()
            with mq.consumer("cg", ["orders"], from_where="first") as consumer:
                assert len(consumer.queues) >= 2
                for message in consumer:
                    with message.process() as same:
                        assert same.msg_id == message.msg_id
                    found.add(message.msg_id)
                    if len(found) == len(receipts):
                        break
            assert found == {each.msg_id for each in receipts}
            offsets = mq.committed_offsets("cg", "orders")
            assert sum(each or 0 for each in offsets.values()) == len(receipts)

    await in_thread(test, rockmq_server)


async def test_handlers_run_in_threads_at_the_same_time(rockmq_server: Server) -> None:
    def test(namesrv: str) -> None:
        together = threading.Barrier(4)
        main = threading.get_ident()
        seen: queue.Queue[str] = queue.Queue()

        def handle(message: ConsumedMessage) -> None:
            assert threading.get_ident() != main
            together.wait(20)
            assert isinstance(message, ConsumedMessage)
            seen.put(message.msg_id)

        with Client(namesrv) as mq, mq.producer() as producer:
            mq.create_topic("orders", 1)
            sent = {producer.send(Message("orders", b"x")).msg_id for _ in range(4)}
            consumer = mq.consumer("cg", ["orders"], from_where="first")
            consumer.start()
            running = threading.Thread(target=consumer.run, args=(handle, 4))
            running.start()
            assert {seen.get(timeout=20) for _ in sent} == sent
            consumer.close()
            running.join(20)
            assert not running.is_alive()

    await in_thread(test, rockmq_server)


async def test_transactions_have_plain_functions(rockmq_server: Server) -> None:
    def execute(receipt: SendReceipt) -> Decision:
        return Decision.COMMIT

    def check(message: StoredMessage) -> Decision:
        return Decision.UNKNOWN

    def test(namesrv: str) -> None:
        with Client(namesrv) as mq, mq.transaction_producer("pg", check) as producer:
            mq.create_topic("orders", 1)
            done = producer.send_in_transaction(Message("orders", b"x"), execute)
            assert (done.decision, done.confirmed) == (Decision.COMMIT, True)

    await in_thread(test, rockmq_server)


async def test_many_threads_share_a_client(rockmq_server: Server) -> None:
    def test(namesrv: str) -> None:
        with Client(namesrv) as mq, mq.producer() as producer, ThreadPoolExecutor(8) as threads:
            mq.create_topic("orders", 4)
            receipts = list(threads.map(lambda number: producer.send(Message("orders", b"%d" % number)), range(200)))
            assert len({each.msg_id for each in receipts}) == 200

    await in_thread(test, rockmq_server)


async def test_errors_are_those_of_the_client(rockmq_server: Server) -> None:
    def test(namesrv: str) -> None:
        with Client(namesrv) as mq, mq.producer() as producer:
            with pytest.raises(InvalidMessage, match="empty"):
                producer.send(Message("orders", b""))
            with pytest.raises(InvalidMessage, match="empty"):
                producer.send_nowait(Message("orders", b""))
            with pytest.raises(RouteNotFound):
                mq.queues("nothing")
            with mq.consumer("cg", ["orders"], from_where="first") as consumer:
                producer.send(Message("orders", b"x"))
                with pytest.raises(ZeroDivisionError), next(consumer).process():
                    raise ZeroDivisionError
        for use in (lambda: mq.queues("orders"), lambda: producer.send(Message("orders", b"x")), mq.producer):
            with pytest.raises(ClientClosed):
                use()
        mq.close()
        producer.close()
        with pytest.raises(ClientError, match="serializer is 'none': expected 'json', 'binary'"):
            Client(namesrv, serializer="none")  # type: ignore[arg-type]
        eventually(lambda: not [each for each in threading.enumerate() if each.name.startswith("rockmq")], 20, "no threads")

    await in_thread(test, rockmq_server)


async def test_who_waits_while_another_thread_closes_is_told() -> None:
    def test() -> None:
        portal = Portal()
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(portal.run, asyncio.sleep, 600)
            while not waiting.running():
                time.sleep(0.01)
            portal.call(int)  # by now it waits, or will be told as well
            portal.close()
            with pytest.raises(ClientClosed):
                waiting.result(20)

    await asyncio.wait_for(asyncio.to_thread(test), 60)


async def test_a_child_process_is_told_to_make_its_own(rockmq_server: Server) -> None:
    script = """
import os, sys
from rockmq.blocking import Client
from rockmq.client import ClientError
with Client(sys.argv[1]) as mq:
    mq.create_topic("orders", 1)
    child = os.fork()
    if not child:
        try:
            mq.queues("orders")
        except ClientError as error:
            os._exit(0 if "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert mq.queues("orders")
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, rockmq_server.namesrv, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_an_interrupt_ends_the_call_and_the_client_in_order(rockmq_server: Server) -> None:
    script = """
import sys
from rockmq.blocking import Client
from rockmq.client import Message
with Client(sys.argv[1]) as mq, mq.producer() as producer:
    producer.send(Message("orders", b"x"))
    try:
        with mq.consumer("cg", ["orders"], from_where="first") as consumer:
            for message in consumer:
                message.ack()
                print("consumed", flush=True)
    except KeyboardInterrupt:
        print(sorted(filter(None, mq.committed_offsets("cg", "orders").values())))
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, rockmq_server.namesrv,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"consumed\n"
    await asyncio.sleep(0.1)  # until it waits for the next message; sooner would be as right
    process.send_signal(signal.SIGINT)
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert (out, process.returncode) == (b"[1]\n", 0)


async def test_a_handler_that_is_interrupted_ends_first(rockmq_server: Server) -> None:
    def test(namesrv: str) -> None:
        begun, ended = threading.Event(), threading.Event()

        def handle(message: ConsumedMessage) -> None:
            begun.set()
            time.sleep(0.2)
            ended.set()

        with Client(namesrv) as mq, mq.producer() as producer:
            mq.create_topic("orders", 1)
            producer.send(Message("orders", b"x"))
            with mq.consumer("cg", ["orders"], from_where="first") as consumer:
                running = threading.Thread(target=consumer.run, args=(handle, 1))
                running.start()
                assert begun.wait(20)
            assert ended.is_set()
            running.join(20)
            assert sum(filter(None, mq.committed_offsets("cg", "orders").values())) == 1

    await in_thread(test, rockmq_server)


async def test_handlers_commit_and_pop_in_threads(rockmq_server: Server) -> None:
    def test(namesrv: str) -> None:
        seen: list[bytes] = []
        popped: list[list[bytes]] = []
        done, all_popped = threading.Event(), threading.Event()

        def handle(message: ConsumedMessage) -> None:
            seen.append(message.body)
            if len(seen) == 2:
                message.rollback(0.05)
            elif message.body == b"2":
                message.commit()
                done.set()

        def work(batch: list[PopMessage]) -> None:
            popped.append([message.body for message in batch])
            if sum(map(len, popped)) == 3:
                all_popped.set()

        with Client(namesrv) as mq:
            mq.create_topic("orders", 1)
            with mq.producer("pg") as producer:
                producer.send_batch([Message("orders", b"%d" % number) for number in range(3)])
            ordered = mq.consumer("cg", ["orders"], order=True, auto_commit=False, from_where="first")
            with ordered as consumer, ThreadPoolExecutor() as pool:
                running = pool.submit(consumer.run, handle)
                assert done.wait(30)
                consumer.close()
                running.result(30)
            assert list(mq.committed_offsets("cg", "orders").values()) == [3]
            with mq.pop_consumer("pops", ["orders"], from_where="first") as pops, ThreadPoolExecutor() as pool:
                running = pool.submit(pops.run_batches, work, 10, 1)
                assert all_popped.wait(30)
                pops.close()
                running.result(30)
        assert seen == [b"0", b"1", b"0", b"1", b"2"]
        assert sorted(body for batch in popped for body in batch) == [b"0", b"1", b"2"]

    await in_thread(test, rockmq_server)


@dataclass
class Order:
    number: int


async def test_bodies_are_decoded_in_threads(rockmq_server: Server) -> None:
    def test(namesrv: str) -> None:
        handled: list[int] = []
        done, rebalanced = threading.Event(), threading.Event()

        def handle(message: ConsumedMessage[Order]) -> None:
            handled.append(message.body.number)
            done.set()

        def listen(won: list[MessageQueue], lost: list[MessageQueue]) -> None:
            assert mq.queues("orders"), "it may use the client"
            rebalanced.set()

        with Client(namesrv) as mq:
            mq.create_topic("orders", 1)
            with mq.producer("pg") as producer:
                producer.send(Message.json("orders", Order(7)))
            with mq.consumer("one", ["orders"], from_where="first", decode=Order, on_rebalance=listen) as consumer:
                with next(consumer).process() as message:
                    assert (message.body, message.stored.body) == (Order(7), b'{"number":7}')
                assert rebalanced.wait(30)
            with (
                mq.consumer("two", ["orders"], from_where="first", decode=Order) as consumer,
                ThreadPoolExecutor() as pool,
            ):
                running = pool.submit(consumer.run, handle, ordered_by=lambda message: message.body.number)
                assert done.wait(30)
                consumer.close()
                running.result(30)
            with mq.pop_consumer("three", ["orders"], from_where="first", decode=Order) as pops:
                (popped,) = pops.fetch(1, timeout=30)
                assert popped.body == Order(7)
                popped.ack()
            with mq.lite_pull_consumer("four", ["orders"], from_where="first", decode=Order) as lite:
                assert next(lite).body == Order(7)
        assert handled == [7]

    await in_thread(test, rockmq_server)


async def test_handlers_decide_by_what_they_return(rockmq_server: Server) -> None:
    def test(namesrv: str) -> None:
        done = threading.Event()

        def handle(message: ConsumedMessage) -> Decision | None:
            if message.body == b"2":
                done.set()
                return Decision.COMMIT
            return None

        with Client(namesrv) as mq:
            mq.create_topic("orders", 1)
            with mq.producer("pg") as producer:
                producer.send_batch([Message("orders", b"%d" % number) for number in range(3)])
            ordered = mq.consumer("cg", ["orders"], order=True, auto_commit=False, from_where="first")
            with ordered as consumer, ThreadPoolExecutor() as pool:
                running = pool.submit(consumer.run, handle)
                assert done.wait(30)
                consumer.close()
                running.result(30)
            assert list(mq.committed_offsets("cg", "orders").values()) == [3]

    await in_thread(test, rockmq_server)
