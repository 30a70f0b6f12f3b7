"""Tests with the fixtures, a server of one's own, and the bridges to frameworks, from a typed program."""

from datetime import timedelta
from typing import assert_type

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from taskiq import AsyncBroker

import rockmq.contrib.kombu
from rockmq import embedded
from rockmq.base.virtual_time import VirtualTime
from rockmq.client import Client, Message
from rockmq.contrib.otel import OpenTelemetry
from rockmq.contrib.taskiq import RockMQBroker
from rockmq.embedded import Server


async def test_tomorrow(rockmq_server: Server, rockmq_client: Client, rockmq_time: VirtualTime) -> None:
    assert_type(rockmq_server.namesrv, str)
    async with rockmq_client.producer() as producer:
        await producer.send(Message("orders", b"1"), delay=timedelta(days=1))
    await rockmq_time.advance(timedelta(days=1))


async def own_server() -> None:
    time = VirtualTime()
    async with embedded.serve(flush="ASYNC_FLUSH", properties={"timerPrecisionMs": "100"}, clock=time) as server:
        assert_type(server, Server)
        async with Client(server.namesrv, hooks=[OpenTelemetry(TracerProvider(), MeterProvider())], clock=time) as mq:
            await mq.queues("orders")


broker = RockMQBroker("10.0.0.1:9876", topic="tasks")
as_any_broker: AsyncBroker = broker


@broker.task
async def ship(order: int) -> str:
    return f"order {order}"


async def main() -> None:
    await broker.startup()
    await ship.kiq(1)
    await broker.shutdown()
    assert rockmq.contrib.kombu.DEFAULT_PORT
