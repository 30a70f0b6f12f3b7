"""The client for threads, from a typed program."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import assert_type

from rockmq.blocking import (
    Client,
    ConsumedMessage,
    Consumer,
    LitePullConsumer,
    PopMessage,
    Producer,
    Transaction,
    TransactionProducer,
)
from rockmq.client import (
    Decision,
    Message,
    MessageQueue,
    PulledMessage,
    PullResult,
    SendReceipt,
    Sql,
    StateChange,
    StoredMessage,
    backoff,
)
from rockmq.client.admin import GroupProgress, TopicSettings


def noticed(change: StateChange) -> None:
    print(change.state)


def last(queues: Sequence[MessageQueue], message: Message) -> MessageQueue:
    return queues[-1]


def send(producer: Producer) -> None:
    assert_type(producer.send(Message("orders", b"1"), key="customer"), SendReceipt)
    assert_type(producer.send_nowait(Message("orders", b"1"), selector=last), Future[SendReceipt])
    assert_type(producer.send_batch([Message("orders", b"1")]), list[SendReceipt])
    assert_type(producer.request(Message("orders", b"1")), Message)
    producer.send(Message("orders", b"1"), deliver_at=datetime.now(UTC))
    producer.flush()


def decide(receipt: SendReceipt) -> Decision:
    return Decision.COMMIT


def check(message: StoredMessage) -> Decision:
    return Decision.ROLLBACK


def in_transactions(producer: TransactionProducer) -> None:
    assert_type(producer.send_in_transaction(Message("orders", b"1"), decide).confirmed, bool)
    with producer.transaction(Message("orders", b"2")) as transaction:
        assert_type(transaction, Transaction)
        transaction.leave_open()


def work(message: ConsumedMessage) -> None:
    assert_type(message.body, bytes)
    message.ack()


def work_on_some(messages: list[ConsumedMessage]) -> None:
    for message in messages:
        message.nack()


def encode(message: PopMessage) -> None:
    message.extend(60)


def consume(mq: Client) -> None:
    with mq.consumer("billing", {"orders": Sql("amount > 1")}, from_where="first", max_in_flight=10) as consumer:
        for message in consumer:
            assert_type(message, ConsumedMessage)
            with message.process(retry=backoff(1, 60)) as same:
                assert_type(same, ConsumedMessage)
            break
        assert_type(consumer.fetch(10, timeout=1), list[ConsumedMessage])
        consumer.run(work, concurrency=4, ordered_by=lambda message: message.key)
        consumer.run_batches(work_on_some)
    with mq.pop_consumer("encoding", ["videos"]) as popping:
        with next(popping).process() as popped:
            assert_type(popped, PopMessage)
        popping.run(encode)


@dataclass
class Order:
    number: int


def charge(message: ConsumedMessage[Order]) -> None:
    assert_type(message.body, Order)


def decode(mq: Client, producer: Producer) -> None:
    producer.send(Message.json("orders", Order(42)))
    with mq.consumer("billing", "orders", decode=Order, max_in_flight=10) as consumer:
        assert_type(consumer, Consumer[Order])
        for message in consumer:
            assert_type(message, ConsumedMessage[Order])
            with message.process() as same:
                assert_type(same.body, Order)
            break
        assert_type(consumer.fetch(), list[ConsumedMessage[Order]])
        consumer.run(charge, ordered_by=lambda message: message.body.number)
        consumer.run(work)  # type: ignore[arg-type]  # it is for bytes
    assert_type(mq.consumer("g", "t"), Consumer)
    with mq.pop_consumer("g", "t", decode=bytes.decode) as popping:
        assert_type(next(popping), PopMessage[str])
    with mq.lite_pull_consumer("g", decode=Order, queue_messages_max=10) as reading:
        assert_type(reading, LitePullConsumer[PulledMessage[Order]])
        assert_type(next(reading).body, Order)


def read(mq: Client) -> None:
    with mq.lite_pull_consumer("charts") as consumer:
        assert_type(consumer, LitePullConsumer)
        assert_type(consumer.poll(1), list[StoredMessage])
    (queue, *_) = mq.queues("readings")
    assert_type(mq.pull(queue, 0), PullResult)


def administer(mq: Client) -> None:
    mq.admin.topics.put(TopicSettings("orders"))
    assert_type(mq.admin.groups.progress("billing"), GroupProgress)


with Client("10.0.0.1:9876") as mq:
    mq.on_state(noticed)
    with mq.producer("shop") as producer, mq.transaction_producer("bookings", check) as bookings:
        send(producer)
        in_transactions(bookings)
        decode(mq, producer)
    consume(mq)
    read(mq)
    administer(mq)
