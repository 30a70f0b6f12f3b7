"""Transactions of unmodified Java producers, whose half messages wait in a store that changes its broker."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rockmq.client import Client, Decision, Message, SendReceipt, StoredMessage
from tests.interop.test_store_moves import Moving, judge
from tests.support import apache
from tests.support.cluster import HASTE, Cluster, wait_for_route
from tests.support.events import events, wait_for
from tests.support.messages import content
from tests.support.process import Process, free_broker_port, free_port

COUNT = 4


@contextmanager
def producing(
    client: str, namesrv: str, topic: str, directory: Path, *, send: str = "", answers: str = ""
) -> Iterator[Process]:
    """A Java producer that has sent what it is to send, and answers what it is asked. `send` lists prefix:state."""
    batches = ",".join(f"{each.split(':')[0]}:{COUNT}:{each.split(':')[1]}" for each in send.split(",") if each)
    where = f"namesrv={namesrv}", f"topic={topic}", f"group={topic}-tx"
    name = f"Transactions-{len(list(directory.glob('*.out')))}"
    with apache.program(
        client, "Transactions", *where, f"send={batches}", f"answers={answers}", directory=directory, name=name
    ) as producer:
        wait_for(producer, "ready")
        yield producer


def keys(*prefixes: str) -> set[str]:
    return {content(prefix, i).key for prefix in prefixes for i in range(COUNT)}


def asked(producer: Process) -> set[str]:
    return {event["keys"] for event in events(producer, "asked")}


def wait_until_asked(producer: Process, wanted: set[str]) -> None:
    producer.wait_until(lambda: wanted <= asked(producer) or None, 60, f"asked about {sorted(wanted)}")


@pytest.mark.parametrize("client", apache.CLIENTS)
def test_another_producer_of_the_group_is_asked(shared: Cluster, client: str, tmp_path: Path) -> None:
    """What the first one couldn't decide before it died."""
    topic = f"orphans-{client.replace('.', '-')}"
    with producing(client, shared.namesrv, topic, tmp_path, send="a:unknown,b:unknown,c:commit,d:rollback"):
        pass
    with producing(client, shared.namesrv, topic, tmp_path, answers="a:commit,b:rollback") as heir:
        wait_until_asked(heir, keys("a", "b"))
        for event in events(heir, "asked"):
            prefix, _, index = event["keys"].rpartition("-key-")
            assert (event["topic"], event["body"].encode()) == (topic, content(prefix, int(index)).body)
            assert event["checks"] is not None
        assert asked(heir) == keys("a", "b")
        # Meanwhile the heir lives on: it says what it is asked before its answer is on its way.
        where = f"namesrv={shared.namesrv}", f"topic={topic}", f"group={topic}-consumers"
        with apache.program(client, "PushConsumer", *where, directory=tmp_path) as consumer:
            consumer.wait_until(lambda: len(events(consumer, "message")) >= 2 * COUNT or None, 60, "what was committed")
            got = Counter(event["keys"] for event in events(consumer, "message"))
            assert got == dict.fromkeys(keys("a", "c"), 1)


def test_pending_transactions_move_to_our_broker_and_back(tmp_path: Path) -> None:
    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        patient = HASTE | {"transactionCheckMax": "1000", "transactionOpBatchInterval": "60000"}
        moving = Moving("5.5.0", "5.5.0", tmp_path, names.address, **patient)
        where = "5.5.0", names.address, "moving", tmp_path
        with (
            moving.apaches(killed=True),
            producing(*where, send="a:commit,b:rollback,c:unknown,d:unknown") as first,
        ):
            wait_until_asked(first, keys("c", "d"))
        with moving.ours():
            wait_for_route(moving.namesrv, "moving")
            answers = "a:commit,b:rollback,c:commit"
            with producing(*where, send="e:commit,f:rollback,g:unknown,h:unknown", answers=answers) as second:
                wait_until_asked(second, keys("c", "d", "g", "h"))
                judge(moving.consume("early", keys("a", "c", "e")), {"a", "c", "e"})
                # Apache's broker had no time to note what is finished. What it has committed is found all the same.
                assert asked(second) - keys("b") == keys("c", "d", "g", "h")
        moving.properties |= HASTE
        with moving.apaches(killed=True):
            wait_for_route(moving.namesrv, "moving")
            everything = "a:commit,b:commit,c:commit,d:commit,e:commit,f:commit,g:commit,h:rollback"
            with producing(*where, answers=everything) as third:
                wait_until_asked(third, keys("d", "g", "h"))
                judge(moving.consume("late", keys("a", "c", "d", "e", "g")), {"a", "c", "d", "e", "g"})
                assert asked(third) == keys("d", "g", "h")


async def test_our_producer_at_apaches_broker(tmp_path: Path) -> None:
    asked: Counter[bytes] = Counter()

    async def check(message: StoredMessage) -> Decision:
        asked[message.body] += 1
        return Decision.COMMIT if asked[message.body] > 1 else Decision.UNKNOWN

    with ExitStack() as running:
        names = running.enter_context(apache.name_server(tmp_path / "namesrv", free_port()))
        running.enter_context(apache.broker(tmp_path / "broker", free_broker_port(), names.address, properties=HASTE))
        async with Client(names.address) as mq, mq.transaction_producer("tx", check) as producer:
            for decision in Decision:

                async def decide(receipt: SendReceipt, decision: Decision = decision) -> Decision:
                    return decision

                receipt = await producer.send_in_transaction(Message("ours", decision.name.encode()), decide)
                assert (receipt.decision, receipt.confirmed) == (decision, decision is not Decision.UNKNOWN)
            async with mq.consumer("g", "ours", from_where="first") as consumer:
                delivered = [await asyncio.wait_for(anext(consumer), 60) for _ in range(2)]
                assert {message.body for message in delivered} == {b"COMMIT", b"UNKNOWN"}
                assert await consumer.fetch(timeout=2) == []
    assert asked == {b"UNKNOWN": 2}
