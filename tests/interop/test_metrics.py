"""Metrics beside those of Apache's Prometheus exporter, after the same load."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from rockmq.client import Client, Decision, Message
from rockmq.metrics import names
from tests.support import cluster
from tests.support.metrics import Family, scrape
from tests.support.process import free_port

IDENTITY = {"brokerClusterName": "metrics", "brokerName": "broker-a"}

NOT_HERE = frozenset(
    {
        # Requests don't queue here, and pops leave no messages of their own: docs/metrics.md.
        "rocketmq_processor_watermark",
        "rocketmq_pop_buffer_scan_time_consume_milliseconds",
        "rocketmq_pop_checkpoint_buffer_size",
        "rocketmq_pop_offset_buffer_size",
        "rocketmq_pop_revive_in_message_total",
        "rocketmq_pop_revive_lag_milliseconds",
        "rocketmq_pop_revive_latency_milliseconds",
        "rocketmq_pop_revive_out_message_total",
        "rocketmq_pop_revive_retry_messages_total",
        "target_info",
    }
)
SAME_VALUES = (
    "rocketmq_broker_permission",
    "rocketmq_messages_in_total",
    "rocketmq_throughput_in_total",
    "rocketmq_message_size",
    "rocketmq_messages_out_total",
    "rocketmq_throughput_out_total",
    "rocketmq_producer_connections",
    "rocketmq_consumer_connections",
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_inflight_messages",
    "rocketmq_consumer_ready_messages",
    "rocketmq_send_to_dlq_messages_total",
    "rocketmq_half_messages",
    "rocketmq_commit_messages_total",
    "rocketmq_rollback_messages_total",
    "rocketmq_finish_message_latency_milliseconds",
    "rocketmq_storage_dispatch_behind_bytes",
    "rocketmq_timing_messages",
    "rocketmq_timer_enqueue_total",
    "rocketmq_timer_dequeue_total",
)
OF_APACHE_ALONE = ("CID_RMQ_SYS_TRANS", "rmq_sys_REVIVE_LOG_metrics")
"""What its broker reads for itself, and where it notes what was popped."""
SETTLED = {"rocketmq_timer_dequeue_total": 1, "rocketmq_consumer_inflight_messages": 3, "rocketmq_commit_messages_total": 1}
"""Metrics, and how many series they have when all is done that the load brings about."""


async def load(namesrv: str, stack: AsyncExitStack) -> None:
    """Sends of all kinds, and a consumer and a pop consumer in the middle of their work, for the length of the stack."""
    mq = await stack.enter_async_context(Client(namesrv))
    for topic in ("plain", "order", "delay", "timer", "trans", "pop"):
        await mq.create_topic(topic, 1)
    producer = await stack.enter_async_context(mq.producer("shop", compression="none"))
    for number in range(10):
        await producer.send(Message("plain", b"x" * (100 if number < 7 else 5000)))
    await producer.send_batch([Message("plain", b"y" * 50) for _ in range(5)])
    for _ in range(3):
        await producer.send(Message("order", b"z" * 100, properties={"__SHARDINGKEY": "k"}))
    await producer.send(Message("delay", b"d" * 100, delay_level=1))
    for delay_ms in (3_600_000, 1_500):
        await producer.send(Message("timer", b"t" * 100, properties={"TIMER_DELAY_MS": str(delay_ms)}))

    async def undecided(message: object) -> Decision:
        return Decision.UNKNOWN

    deciding = await stack.enter_async_context(mq.transaction_producer("bank", undecided, compression="none"))
    for decision in (Decision.COMMIT, Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN):

        async def decide(receipt: object, decision: Decision = decision) -> Decision:
            return decision

        await deciding.send_in_transaction(Message("trans", b"t" * 100), decide)

    consumer = await stack.enter_async_context(mq.consumer("group", ["plain"], from_where="first"))
    messages = [await anext(consumer) for _ in range(8)]
    for message in messages[:6]:
        await message.ack()
    await messages[6].dead_letter()
    await messages[7].retry(1.0)
    await consumer.commit()

    for _ in range(5):
        await producer.send(Message("pop", b"p" * 100))
    popping = await stack.enter_async_context(mq.pop_consumer("popping", ["pop"], from_where="first", max_in_flight=3))
    popped = [await anext(popping) for _ in range(3)]
    await popped[0].ack()


async def settled(address: str) -> dict[str, Family]:
    """What is told when it doesn't change any more."""
    before: object = None
    async with asyncio.timeout(90):
        while True:
            found = await scrape(address)
            now = {name: values_of(found[name]) for name in SAME_VALUES if name in found}
            if now == before and all(len(now.get(name, ())) >= count for name, count in SETTLED.items()):
                return found
            before = now
            await asyncio.sleep(2)


def labels_of(family: Family) -> set[frozenset[str]]:
    """The sets of labels that series have, less the one that Apache's exporter adds to each."""
    return {frozenset(dict(labels)) - {"otel_scope_name"} for _, labels in family.samples}


def values_of(family: Family) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (name, frozenset(each for each in labels if each[0] != "otel_scope_name")): number
        for (name, labels), number in family.samples.items()
        if not any(value in OF_APACHE_ALONE for _, value in labels)
    }


async def test_metrics_are_those_of_apaches_broker(tmp_path: Path) -> None:
    told = {}
    for kind in ("rockmq", "apache"):
        port = free_port()
        exporter = {
            "metricsExporterType": "PROM",
            "metricsPromExporterHost": "127.0.0.1",
            "metricsPromExporterPort": str(port),
        }
        with cluster.started(kind, tmp_path / kind, {**IDENTITY, **exporter}) as server:
            async with AsyncExitStack() as stack:
                await load(server.namesrv, stack)
                told[kind] = await settled(f"127.0.0.1:{port}")
    ours, theirs = told["rockmq"], told["apache"]
    assert theirs.keys() - ours.keys() <= NOT_HERE
    declared = {metric.name: metric for metric in names.BROKER}
    for name in theirs.keys() - NOT_HERE:
        assert ours[name].kind == theirs[name].kind == declared[name].kind, name
        assert declared[name].source, name
        if name != "rocketmq_rpc_latency_milliseconds":
            assert labels_of(ours[name]) == labels_of(theirs[name]), name
    for name in SAME_VALUES:
        assert values_of(ours[name]) == values_of(theirs[name]), name
