"""Tasks of taskiq, with a worker process."""

import asyncio
from datetime import timedelta

import pytest
from taskiq import AckableMessage, BrokerMessage

from rockmq.base.virtual_time import VirtualTime
from rockmq.client import Client, ClientClosed, ConnectError, Message
from rockmq.contrib.taskiq import RockMQBroker
from rockmq.embedded import Server
from rockmq.protocol import properties
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.compression import Compression
from rockmq.protocol.headers.send import SendMessageV2
from tests.unit.contrib.processes import python, run


async def test_the_example(rockmq_server: Server) -> None:
    words = "-m", "taskiq", "worker", "taskiq_tasks:broker", "--workers", "1"
    async with python(*words, namesrv=rockmq_server.namesrv) as worker:
        await run("taskiq_tasks.py", namesrv=rockmq_server.namesrv)
        await worker.until("order 1 is charged after 1 retry")
        await worker.until("order 1 is shipped")
        await worker.end()


def task(label: str | None = None, **labels: str) -> BrokerMessage:
    return BrokerMessage(task_id="42", task_name="t", message=b"{}", labels=labels)


async def test_what_isnt_acknowledged_comes_again(rockmq_server: Server) -> None:
    for must_be_acknowledged in (False, True):
        broker = RockMQBroker(rockmq_server.namesrv)
        broker.is_worker_process = True
        await broker.startup()
        if not must_be_acknowledged:
            await broker.kick(task())
        async with asyncio.timeout(20):
            taken = await anext(broker.listen())
        assert isinstance(taken, AckableMessage)
        assert taken.data == b"{}"
        if must_be_acknowledged:
            await taken.ack()  # type: ignore[misc]
        await broker.shutdown()
    async with Client(rockmq_server.namesrv) as mq:
        assert sum(offset or 0 for offset in (await mq.committed_offsets("taskiq", "taskiq")).values()) == 1


async def test_a_task_that_does_not_decompress_is_a_dead_letter(
    rockmq_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    broker = RockMQBroker(rockmq_server.namesrv)
    broker.is_worker_process = True
    await broker.startup()
    async with Client(rockmq_server.namesrv) as mq:
        queue = (await mq.queues("taskiq"))[0]
        header = SendMessageV2(
            producer_group="pg",
            topic=queue.topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=Compression.ZLIB.flags,
            born_timestamp=0,
            flag=0,
            properties=properties.encode({properties.UNIQ_KEY: "ID"}).decode(),
            reconsume_times=0,
        )
        await mq._instance.ask(rockmq_server.broker, RequestCode.SEND_MESSAGE_V2, header, b"no zlib")
        async with mq.producer() as producer:
            await producer.send(Message("taskiq", b"{}"), queue=queue)
        async with asyncio.timeout(20):
            taken = await anext(broker.listen())
        assert isinstance(taken, AckableMessage)
        assert taken.data == b"{}"
        assert "message ID (offset 0 of queue 0 of taskiq): body can't be decompressed" in caplog.text
        (dead,) = await mq.queues("%DLQ%taskiq")
        assert await mq.max_offset(dead) == 1
    await broker.shutdown()


async def test_a_delay_is_the_brokers(rockmq_time: VirtualTime, rockmq_server: Server) -> None:
    broker = RockMQBroker(client=Client(rockmq_server.namesrv, clock=rockmq_time))
    broker.is_worker_process = True
    await broker.startup()
    await broker.kick(task(delay="3600"))
    listening = asyncio.ensure_future(anext(broker.listen()))
    await asyncio.sleep(0.1)
    assert not listening.done()
    await rockmq_time.advance(timedelta(hours=1, seconds=1))
    await (await asyncio.wait_for(listening, 20)).ack()  # type: ignore[misc]
    await broker.shutdown()


async def test_a_start_without_a_server_leaves_nothing_behind() -> None:
    broker = RockMQBroker("127.0.0.1:1")
    with pytest.raises(ConnectError):
        await broker.startup()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_it_says_that_it_wasnt_started() -> None:
    broker = RockMQBroker("127.0.0.1:1")
    with pytest.raises(ClientClosed, match="startup"):
        await broker.kick(task())
    with pytest.raises(ClientClosed, match="as a worker"):
        await anext(broker.listen())
