"""Spans and metrics of OpenTelemetry, kept in memory."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from rockmq.client import Client, ClientError, ConsumerOptions, Message, MessageQueue
from rockmq.contrib.otel import OpenTelemetry
from rockmq.embedded import Server


class Telemetry:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.hook = OpenTelemetry(self.provider, MeterProvider([self.reader]))

    @property
    def tracer(self) -> trace.Tracer:
        return self.provider.get_tracer("test")

    def spans(self, name: str) -> list[ReadableSpan]:
        return [each for each in self.exporter.get_finished_spans() if each.name == name]

    def metric(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
async def mq(rockmq_server: Server, telemetry: Telemetry) -> AsyncIterator[Client]:
    async with Client(rockmq_server.namesrv, hooks=[telemetry.hook]) as mq:
        await mq.create_topic("orders", 1)
        yield mq


async def test_a_message_is_one_trace_from_who_sends_to_who_works(mq: Client, telemetry: Telemetry) -> None:
    async with mq.producer() as producer, mq.consumer("cg", ["orders"], from_where="first") as consumer:
        with telemetry.tracer.start_as_current_span("checkout") as checkout:
            receipt = await producer.send(Message("orders", b"hello", tag="paid", keys=["a", "b"]), key="customer")
        async with (await anext(consumer)).process() as message:
            assert "traceparent" in message.properties
            with telemetry.tracer.start_as_current_span("charge"):
                pass
        assert not trace.get_current_span().is_recording()
    (send,), (process,), (charge,) = (telemetry.spans(name) for name in ("send orders", "process orders", "charge"))
    assert send.parent is not None
    assert process.parent is not None
    assert charge.parent is not None
    assert send.parent.span_id == checkout.get_span_context().span_id
    assert process.parent.span_id == send.context.span_id
    assert [link.context.span_id for link in process.links] == [send.context.span_id]
    assert charge.parent.span_id == process.context.span_id
    assert {each.context.trace_id for each in (send, process, charge)} == {checkout.get_span_context().trace_id}
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    host, port = telemetry.spans("send orders")[0].attributes, None
    assert host is not None
    port = host["server.port"]
    assert dict(host) == {
        "messaging.system": "rocketmq",
        "messaging.destination.name": "orders",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.message.id": receipt.msg_id,
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.type": "fifo",
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ("a", "b"),
        "messaging.rocketmq.message.group": "customer",
        "messaging.destination.partition.id": "0",
        "server.address": "127.0.0.1",
        "server.port": port,
    }
    assert process.attributes is not None
    assert process.attributes["messaging.consumer.group.name"] == "cg"
    assert process.attributes["messaging.operation.type"] == "process"


async def test_what_a_broadcast_brings_isnt_said_to_be_a_clusters(mq: Client, telemetry: Telemetry, tmp_path: Path) -> None:
    options: ConsumerOptions = {"broadcast": True, "offsets_directory": tmp_path, "from_where": "first"}
    async with mq.producer() as producer, mq.consumer("cg", ["orders"], **options) as consumer:
        await producer.send(Message("orders", b"x"))
        await (await anext(consumer)).ack()
    (process,) = telemetry.spans("process orders")
    assert process.attributes is not None
    assert process.attributes.get("messaging.rocketmq.consumption_model") in (None, "broadcasting")


async def test_a_number_that_is_none_is_left_out(mq: Client, telemetry: Telemetry) -> None:
    """A broker takes any time from who says that it has taken it before."""
    times = ["7", "²", "7" * 5000]
    async with mq.producer() as producer, mq.consumer("cg", ["orders"], from_where="first") as consumer:
        for time in times:
            await producer.send(Message("orders", b"x", properties={"TIMER_DELIVER_MS": time, "TIMER_OUT_MS": "1"}))
            message = await anext(consumer)
            assert message.properties["TIMER_DELIVER_MS"] == time
            await message.ack()
    for name in ("send orders", "process orders"):
        found = [
            (each.attributes or {}).get("messaging.rocketmq.message.delivery_timestamp") for each in telemetry.spans(name)
        ]
        assert found == [7, None, None]


async def test_a_batch_has_links_to_its_messages(mq: Client, telemetry: Telemetry) -> None:
    async with mq.producer() as producer, mq.consumer("cg", ["orders"], from_where="first") as consumer:
        await producer.send_batch([Message("orders", b"%d" % number) for number in range(3)])
        for _ in range(3):
            await (await anext(consumer)).ack()
    created = [each.context.span_id for each in telemetry.spans("create orders")]
    assert len(set(created)) == 3
    (send,) = telemetry.spans("send orders")
    assert send.attributes is not None
    assert send.attributes["messaging.batch.message_count"] == 3
    assert [link.context.span_id for link in send.links] == created
    assert [each.parent.span_id for each in telemetry.spans("process orders") if each.parent is not None] == created


async def test_failures_are_told(mq: Client, telemetry: Telemetry) -> None:
    async with mq.producer() as producer, mq.consumer("cg", ["orders"], from_where="first") as consumer:
        await producer.send(Message("orders", b"x"))
        with pytest.raises(ZeroDivisionError):
            async with (await anext(consumer)).process():
                raise ZeroDivisionError("as asked for")
        await producer.send(Message("orders", b"x"))
        await (await anext(consumer)).nack()
    raised, refused = telemetry.spans("process orders")
    assert raised.attributes is not None
    assert refused.attributes is not None
    assert raised.attributes["error.type"] == "ZeroDivisionError"
    assert [event.name for event in raised.events] == ["exception"]
    assert refused.attributes["error.type"] == "refused"
    assert not raised.status.is_ok
    assert not refused.status.is_ok


async def test_a_send_that_fails(rockmq_server: Server, telemetry: Telemetry) -> None:
    async with Client(rockmq_server.namesrv, hooks=[telemetry.hook]) as mq, mq.producer(retries=0) as producer:
        with pytest.raises(ClientError, match="can't be sent to"):
            await producer.send(Message("orders", b"x"), queue=MessageQueue("orders", "nobody", 0))
        await producer.send_oneway(Message("orders", b"x"))
    failed, one_way = telemetry.exporter.get_finished_spans()
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "ClientError"
    assert one_way.status.is_ok or one_way.status.is_unset


async def test_metrics(mq: Client, telemetry: Telemetry) -> None:
    async with mq.producer() as producer, mq.consumer("cg", ["orders"], from_where="first") as consumer:
        await producer.send_batch([Message("orders", b"x")] * 3)
        for _ in range(3):
            await (await anext(consumer)).ack()
    (sent,) = telemetry.metric("messaging.client.sent.messages")
    (consumed,) = telemetry.metric("messaging.client.consumed.messages")
    (operation,) = telemetry.metric("messaging.client.operation.duration")
    (process,) = telemetry.metric("messaging.process.duration")
    assert (sent.value, consumed.value, operation.count, process.count) == (3, 3, 1, 3)
    assert consumed.attributes["messaging.consumer.group.name"] == "cg"
