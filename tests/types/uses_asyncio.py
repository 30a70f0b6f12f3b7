"""The asyncio client, from a typed program."""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypedDict, assert_type

from rockmq.client import (
    BatchIncomplete,
    BrokerFilter,
    Client,
    ClientStats,
    ConsumedMessage,
    Consumer,
    ConsumerOptions,
    Decision,
    Handler,
    Hook,
    Key,
    LitePullConsumer,
    LitePullOptions,
    Message,
    MessageQueue,
    PartDone,
    PopMessage,
    Producer,
    PulledMessage,
    PullResult,
    PullStatus,
    ResponseError,
    RockMQError,
    SendReceipt,
    SendStatus,
    Sql,
    State,
    StateChange,
    StoredMessage,
    Transaction,
    TransactionProducer,
    TransactionReceipt,
    Worker,
    allocate,
    backoff,
    select_by_hash,
    select_by_random,
)
from rockmq.client.admin import GroupProgress, GroupSettings, RuntimeInfo, TopicRoute, TopicSettings
from rockmq.client.hooks import Consumption, Ended, Send


class Counting(Hook):
    def __init__(self) -> None:
        self.sent = 0
        self.worked_on: list[str] = []

    def sending(self, send: Send) -> Ended | None:
        def ended() -> None:
            if send.receipt is not None:
                self.sent += len(send.messages)

        return ended

    def consuming(self, consumption: Consumption) -> Ended | None:
        return lambda: self.worked_on.append(consumption.message.msg_id)


def noticed(change: StateChange) -> None:
    if change.state is State.DISCONNECTED:
        print(change.role, change.address)


def client() -> Client:
    mq = Client(
        ["10.0.0.1:9876", "10.0.0.2:9876"],
        tls=ssl.create_default_context(),
        auth=Key("access", "secret"),
        namespace="shop",
        instance_name="billing-1",
        serializer="binary",
        trace=True,
        hooks=[Counting()],
    )
    mq.on_state(noticed)
    return mq


def last(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    return queues[-1]


async def send(producer: Producer, queue: MessageQueue) -> None:
    message = Message("orders", b"1", tag="paid", keys=["1", "2"], properties={"region": "eu"})
    receipt = await producer.send(message, key="customer", timeout=1.5)
    assert_type(receipt, SendReceipt)
    assert_type(receipt.status is SendStatus.OK, bool)
    assert_type(receipt.queue, MessageQueue)
    assert_type(receipt.recall_handle, str | None)
    future = producer.send_nowait(message, queue=queue)
    assert_type(future, "asyncio.Future[SendReceipt]")
    for selector in (last, select_by_hash(42), select_by_random):
        await producer.send(message, selector=selector)
    await producer.send(message, delay=timedelta(hours=1))
    later = await producer.send(message, deliver_at=datetime.now(UTC))
    if later.recall_handle is not None:
        assert_type(await producer.recall(later.recall_handle), str)
    try:
        assert_type(await producer.send_batch([message, message]), list[SendReceipt])
    except BatchIncomplete as error:
        assert_type(error.stored, int)
    except ResponseError as error:
        print(error.code, error.remark, error.retriable)
    await producer.send_oneway(message, selector=last)
    assert_type(await producer.request(message, timeout=3), Message)
    await producer.flush()
    await producer.drain(timeout=5)


async def decide(receipt: SendReceipt) -> Decision:
    return Decision.COMMIT if receipt.msg_id else Decision.UNKNOWN


async def check(message: StoredMessage) -> Decision:
    return Decision.ROLLBACK if message.properties.get("amount") is None else Decision.COMMIT


async def in_transactions(producer: TransactionProducer) -> None:
    assert_type(await producer.send_in_transaction(Message("orders", b"1"), decide), TransactionReceipt)
    async with producer.transaction(Message("orders", b"2"), key="customer") as transaction:
        assert_type(transaction, Transaction)
        transaction.roll_back()
    assert_type(transaction.decision, Decision)


async def work(message: ConsumedMessage) -> None:
    assert_type(message.body, bytes)
    assert_type(message.key, str | None)
    assert_type(message.stored, StoredMessage)
    await message.retry(timedelta(minutes=1))


def compute(message: ConsumedMessage) -> int:
    return len(message.body)


async def work_on_some(messages: list[ConsumedMessage]) -> None:
    for done, message in enumerate(messages):
        if not message.keys:
            raise PartDone(done)


async def consume(mq: Client) -> None:
    options: ConsumerOptions = {"order": True, "suspend": 0.5, "offsets_directory": Path("offsets")}
    async with mq.consumer("billing", {"orders": "paid || refund", "sales": Sql("amount > 1")}, **options) as consumer:
        assert_type(consumer, Consumer)
        async for message in consumer:
            assert_type(message, ConsumedMessage)
            async with message.process(retry=backoff(1, 60, jitter=True)) as same:
                assert_type(same, ConsumedMessage)
            break
        for message in await consumer.fetch(max_messages=10, timeout=None):
            await message.ack()
        await consumer.run(work, concurrency=4, ordered_by=lambda message: message.key)
        await consumer.run(compute, workers="processes", retry=backoff(1, 60))
        await consumer.run_batches(work_on_some, max_messages=16)
        await consumer.subscribe("more", BrokerFilter("by_region"))
    other = mq.consumer("audit", "orders", allocate=allocate.in_a_circle, from_where=datetime.now(UTC), broadcast=True)
    await other.start()
    assert_type(other.queues, list[MessageQueue])
    await other.close()


@dataclass
class Order:
    number: int


class Payment(TypedDict):
    amount: int


async def charge(message: ConsumedMessage[Order]) -> None:
    assert_type(message.body, Order)
    assert_type(message.stored.body, bytes)


async def charge_some(messages: list[ConsumedMessage[Order]]) -> None:
    for message in messages:
        await message.ack()


async def note(message: ConsumedMessage[object]) -> None:
    print(message.body)


async def encode_order(message: PopMessage[Order]) -> None:
    await message.extend(message.body.number)


def sized(body: bytes) -> int:
    return len(body)


async def decode(mq: Client, producer: Producer) -> None:
    await producer.send(Message.json("orders", Order(42), tag="paid", keys=["42"]))
    async with mq.consumer("billing", {"orders": "paid"}, decode=Order, max_in_flight=256) as consumer:
        assert_type(consumer, Consumer[Order])
        async for message in consumer:
            assert_type(message, ConsumedMessage[Order])
            async with message.process(retry=backoff(1, 60, jitter=True)) as same:
                assert_type(same.body, Order)
            await producer.reply(message, b"done")
            break
        assert_type(await consumer.fetch(), list[ConsumedMessage[Order]])
        await consumer.run(charge, ordered_by=lambda message: message.body.number)
        await consumer.run(note)
        await consumer.run_batches(charge_some)
        await consumer.run(work)  # type: ignore[arg-type]  # it is for bytes
    assert_type(mq.consumer("g", "t", decode=None), Consumer)
    assert_type(mq.consumer("g", "t", decode=bytes.decode), Consumer[str])
    assert_type(mq.consumer("g", "t", decode=sized), Consumer[int])
    assert_type(mq.consumer("g", "t", decode=list[Order]), Consumer[list[Order]])
    assert_type(mq.consumer("g", "t", decode=Payment), Consumer[Payment])
    async with mq.pop_consumer("g", "t", decode=Order) as popping:
        assert_type(await anext(popping), PopMessage[Order])
        await popping.run(encode_order)
    async with mq.lite_pull_consumer("g", decode=Order) as reading:
        assert_type(reading, LitePullConsumer[PulledMessage[Order]])
        async for found in reading:
            assert_type(found.body, Order)
    handler: Handler = work
    other: Handler[Order] = charge
    print(handler, other)


async def listen(won: list[MessageQueue], lost: list[MessageQueue]) -> None:
    print(len(won), len(lost))


def decided(message: ConsumedMessage) -> Decision:
    return Decision.COMMIT if message.keys else Decision.ROLLBACK


async def in_order(mq: Client) -> None:
    async with mq.consumer("ledger", "orders", order=True, auto_commit=False, on_rebalance=listen) as consumer:
        await consumer.run(decided, workers="processes")
    bounds: LitePullOptions = {"queue_messages_max": 100, "allocate": allocate.in_a_circle, "on_rebalance": listen}
    mq.lite_pull_consumer("charts", "orders", **bounds)


async def pop(mq: Client) -> None:
    async def encode(message: PopMessage) -> None:
        await message.extend(300)

    async with mq.pop_consumer("encoding", ["videos"], invisible=30, order=True) as consumer:
        async with (await anext(consumer)).process(suppress=True) as message:
            assert_type(message, PopMessage)
        await consumer.run(encode)


def changed(topic: str, queues: list[MessageQueue]) -> None:
    print(topic, len(queues))


async def read(mq: Client) -> None:
    async with mq.lite_pull_consumer("charts", auto_commit=False, on_queues=changed) as consumer:
        await consumer.assign(assert_type(await mq.light_queues("orders", "alice"), list[MessageQueue]))
        assert_type(Message("orders", b"x").also_in("alice", "bob"), Message)
        for found in await consumer.poll():
            assert_type(found.light_queues, dict[str, int])
        assert_type(consumer, LitePullConsumer)
        queues = await mq.queues("readings")
        await consumer.assign(queues)
        await consumer.seek(queues[0], 5)
        assert_type(await consumer.poll(timeout=1), list[StoredMessage])
        await consumer.commit({queues[0]: 7})
        assert_type(await consumer.committed(queues[0]), int | None)
    result = await mq.pull(queues[0], await mq.min_offset(queues[0]), wait=1.0, tags=Sql("amount > 1"))
    assert_type(result, PullResult)
    assert_type(result.status is PullStatus.FOUND, bool)
    assert_type(result.messages, list[StoredMessage])
    assert_type(await mq.committed_offsets("charts", "readings"), dict[MessageQueue, int | None])


async def administer(mq: Client) -> None:
    await mq.admin.topics.put(TopicSettings("orders", read_queues=4, attributes={"message.type": "NORMAL"}))
    assert_type(await mq.admin.topics.route("orders"), TopicRoute)
    progress = await mq.admin.groups.progress("billing")
    assert_type(progress, GroupProgress)
    assert_type(progress.lag, int)
    assert_type(await mq.admin.groups.get("billing"), dict[str, GroupSettings])
    assert_type(await mq.admin.brokers.runtime_info("broker-a"), RuntimeInfo)
    assert_type(await mq.admin.messages.by_key("orders", "1"), list[StoredMessage])
    assert_type(await mq.admin.name_servers.get_kv("shop", "a"), str | None)


app = Worker("mq://10.0.0.1")


@app.subscribe("orders", group="audit", concurrency=8, order=True)
async def audit(message: ConsumedMessage) -> None:
    print(message.msg_id)


@app.subscribe({"orders": "paid"}, group="statistics", workers="processes", max_reconsume_times=3)
def count(message: ConsumedMessage) -> int:
    return len(message.body)


@app.subscribe("orders", group="shipping", decode=Order, ordered_by=lambda message: message.body.number)
async def ship(message: ConsumedMessage[Order]) -> None:
    assert_type(message.body, Order)


async def main() -> None:
    async with client() as mq:
        queues = await mq.create_topic("orders", 4, order=True)
        async with (
            mq.producer("shop", durability="disk", compression="zstd", linger=0.01, retry_codes=[215]) as producer,
            mq.transaction_producer("bookings", check, timeout_per_attempt=0.5) as bookings,
        ):
            await send(producer, queues[0])
            await in_transactions(bookings)
            await decode(mq, producer)
        try:
            await asyncio.gather(consume(mq), in_order(mq), pop(mq), read(mq), administer(mq))
        except RockMQError as error:
            assert_type(error.retriable, bool)
        stats = mq.stats()
        assert_type(stats, ClientStats)
        print(stats.lag, stats.sends["orders"].latency.quantile(0.99), count(await anext(mq.consumer("g", ["t"]))))
    await app.run()
