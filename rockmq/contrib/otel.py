"""Spans and metrics of OpenTelemetry, by its conventions for messaging and RocketMQ (`pip install rockmq[otel]`).

    async with Client("127.0.0.1:9876", hooks=[OpenTelemetry()]) as mq:
        ...

A send is a span `send <topic>`, whose context travels in the message's properties (`traceparent`, as W3C says, or as the
global propagator is set). A message of a batch has a span `create <topic>` of its own, to which that of the batch has a
link. What a consumer makes of a message is a span `process <topic>` that goes on with the message's context, and is the
current one inside a handler or a `process` block. Only the API is needed here: without an SDK all of it does nothing.
"""

import time
from collections.abc import Mapping
from importlib.metadata import version

from opentelemetry import context, metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from rockmq.base import address
from rockmq.client.hooks import Consumption, Ended, Hook, Send
from rockmq.protocol import properties as names

Attributes = dict[str, AttributeValue]


class OpenTelemetry(Hook):
    """A hook for `Client(hooks=[...])`. Providers that aren't given are the global ones."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("rockmq", version("rockmq"), tracer_provider)
        meter = metrics.get_meter("rockmq", version("rockmq"), meter_provider)
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Messages that were sent.")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Messages that were taken.")
        self._operation = meter.create_histogram(
            "messaging.client.operation.duration", "s", "How long sends take, up to the broker's answer."
        )
        self._process = meter.create_histogram("messaging.process.duration", "s", "How long the application has a message.")

    def batching(self, topic: str, properties: dict[str, str]) -> None:
        attributes = _common(topic, "create") | _message(properties)
        with self._tracer.start_as_current_span(f"create {topic}", kind=SpanKind.PRODUCER, attributes=attributes):
            propagate.inject(properties)

    def sending(self, send: Send) -> Ended:
        common = _common(send.topic, "send")
        attributes: Attributes = dict(common)
        links: list[Link] = []
        kind = SpanKind.PRODUCER
        if send.is_batch:
            attributes["messaging.batch.message_count"] = len(send.messages)
            links = [link for each in send.messages for link in _link(each.properties)]
            kind = SpanKind.CLIENT
        else:
            (message,) = send.messages
            attributes |= {"messaging.message.id": message.msg_id, "messaging.message.body.size": message.size}
            attributes |= _message(message.properties)
        span = self._tracer.start_span(f"send {send.topic}", kind=kind, attributes=attributes, links=links)
        if not send.is_batch:
            propagate.inject(send.messages[0].properties, trace.set_span_in_context(span))
        began = time.monotonic()

        def ended() -> None:
            if send.broker:
                host, port = address.split(send.broker)
                span.set_attributes({"server.address": host, "server.port": port})
            if send.receipt is not None:
                span.set_attribute("messaging.destination.partition.id", str(send.receipt.queue.queue_id))
            measured = common | _failed(span, send.error)
            span.end()
            self._sent.add(len(send.messages), measured)
            self._operation.record(time.monotonic() - began, measured)

        return ended

    def consuming(self, consumption: Consumption) -> Ended:
        message = consumption.message
        common = _common(message.topic, "process") | {"messaging.consumer.group.name": consumption.group}
        attributes: Attributes = {
            **common,
            **_message(message.properties),
            "messaging.message.id": message.msg_id,
            "messaging.message.body.size": len(message.body),
            "messaging.destination.partition.id": str(consumption.queue.queue_id),
        }
        found = propagate.extract(message.properties)
        span = self._tracer.start_span(
            f"process {message.topic}", found, SpanKind.CONSUMER, attributes, links=_link(message.properties)
        )
        consumption.notes[self] = span
        began = time.monotonic()

        def ended() -> None:
            measured = common | _failed(span, consumption.error, refused=not consumption.succeeded)
            span.end()
            self._consumed.add(1, measured)
            self._process.record(time.monotonic() - began, measured)

        return ended

    def processing(self, consumption: Consumption) -> Ended:
        span: Span = consumption.notes[self]
        token = context.attach(trace.set_span_in_context(span))

        def left() -> None:
            # Who enters and leaves in two contexts, as threads do, has nothing to go back to.
            if trace.get_current_span() is span:
                context.detach(token)

        return left


def _common(topic: str, operation: str) -> Attributes:
    return {
        "messaging.system": "rocketmq",
        "messaging.destination.name": topic,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }


def _message(found: Mapping[str, str]) -> Attributes:
    attributes: Attributes = {"messaging.rocketmq.message.type": _type(found)}
    if names.TAGS in found:
        attributes["messaging.rocketmq.message.tag"] = found[names.TAGS]
    if names.KEYS in found:
        attributes["messaging.rocketmq.message.keys"] = found[names.KEYS].split()
    if names.SHARDING_KEY in found:
        attributes["messaging.rocketmq.message.group"] = found[names.SHARDING_KEY]
    for name, key in _NUMBERS.items():
        number = names.number(found.get(name))
        if number is not None:
            attributes[key] = number
    return attributes


_NUMBERS = {
    names.DELAY: "messaging.rocketmq.message.delay_time_level",
    names.TIMER_DELIVER_MS: "messaging.rocketmq.message.delivery_timestamp",
}


def _type(found: Mapping[str, str]) -> str:
    if names.TRAN_MSG in found:
        return "transaction"
    if names.DELAY in found or any(wish in found for wish in names.TIMER_WISHES):
        return "delay"
    return "fifo" if names.SHARDING_KEY in found else "normal"


def _link(properties: Mapping[str, str]) -> list[Link]:
    """To the span in which a message was made, if that is known."""
    made = trace.get_current_span(propagate.extract(properties, Context())).get_span_context()
    return [Link(made)] if made.is_valid else []


def _failed(span: Span, error: BaseException | None, *, refused: bool = False) -> Attributes:
    """Note a failure in a span; the attribute that tells it."""
    if error is None and not refused:
        return {}
    kind = type(error).__qualname__ if error is not None else "refused"
    if error is not None:
        span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, str(error) if error is not None else None))
    span.set_attribute("error.type", kind)
    return {"error.type": kind}
