"""What the clients of either kind of broker rely on when connections break, brokers die, and the event loop stands still."""

import asyncio
import os
import select
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from rockmq.base.errors import ProtocolError, RemotingError, RouteNotFound
from rockmq.client import Client, Decision, Message, SendReceipt, State, StateChange, StoredMessage
from rockmq.client.heartbeat import Beat
from rockmq.protocol import properties
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.compression import Compression
from rockmq.protocol.headers.send import SendMessageV2
from tests.client.conftest import NewTopic
from tests.support import cluster, server
from tests.support.process import free_broker_port, free_port
from tests.support.proxy import Proxy, with_body


async def test_members_that_send_short_heartbeats_stay_members(
    mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = (await new_topic(2))[0].topic
    instance = mq._instance
    bodies: list[bytes] = []
    understood = instance._understood.body

    def body(to: str, beat: Beat) -> bytes:
        bodies.append(understood(to, beat))
        return bodies[-1]

    monkeypatch.setattr(instance._understood, "body", body)
    async with (
        mq.producer(unique("pg")) as producer,
        mq.consumer(unique("cg"), {topic: "paid"}, from_where="first") as consumer,
    ):
        for _ in range(4):
            await instance.heartbeat(regular=True)
        assert b'"withoutSub":true' in bodies[-1]
        assert len(consumer.queues) >= 2
        await producer.send(Message(topic, b"x", tag="paid"))
        async with (await anext(consumer)).process() as message:
            assert message.body == b"x"


async def test_the_brokers_port_in_place_of_the_name_servers(peer: cluster.Cluster) -> None:
    async with Client(peer.broker) as mq:
        with pytest.raises(RouteNotFound, match=rf"{peer.broker} knows no routes, so it is no name server"):
            await mq.queues("orders")


async def test_a_loop_that_stood_still_takes_the_answers_that_came(mq: Client, new_topic: NewTopic) -> None:
    """Both the answer and the end of the timeout are there when the loop goes on."""
    (queue,) = await new_topic(1)
    async with mq.producer() as producer:
        await producer.send(Message(queue.topic, b"first"))
        sending = producer.send_nowait(Message(queue.topic, b"x"), timeout=0.4)
        await asyncio.sleep(0)  # it is written at the end of the turn
        channel = mq._instance.channel(next(iter(mq._instance.routes.addresses(slaves=False))))
        assert channel is not None
        socket = channel.connection.transport.get_extra_info("socket")  # type: ignore[attr-defined]
        time.sleep(0.5)  # noqa: ASYNC251 - it is the point
        select.select([socket], [], [], 20)
        assert (await sending).queue_offset == 1


async def test_a_body_that_does_not_decompress(
    mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Callable[[str], str]
) -> None:
    (queue,) = await new_topic(1)
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
    await mq._instance.ask(peer.broker, RequestCode.SEND_MESSAGE_V2, header, b"no zlib")
    async with mq.consumer(unique("cg"), [queue.topic], from_where="first") as consumer:
        for times in range(2):
            message = await anext(consumer)
            assert (message.msg_id, message.reconsume_times) == ("ID", times)
            with pytest.raises(ProtocolError, match=r"message ID .*: body can't be decompressed"):
                _ = message.body
            await message.nack(1)
    with pytest.raises(ProtocolError, match=r"message ID \(offset 0 of queue 0"):
        _ = (await mq.pull(queue, 0)).messages


@dataclass
class Cuttable:
    """The way to both servers of a peer."""

    namesrv: Proxy
    broker: Proxy


@pytest.fixture
async def way(peer: cluster.Cluster) -> AsyncIterator[Cuttable]:
    async with Proxy(peer.namesrv) as names, Proxy(peer.broker) as broker:
        names.on_reply = lambda data: with_body(
            data, lambda body: body.replace(f'"{peer.broker}"'.encode(), f'"{broker.address}"'.encode())
        )
        yield Cuttable(names, broker)


async def test_subscriptions_are_restored_and_sends_go_on(
    way: Cuttable, new_topic: NewTopic, unique: Callable[[str], str]
) -> None:
    topic = (await new_topic(2))[0].topic
    told: list[StateChange] = []
    found: set[bytes] = set()
    async with Client(way.namesrv.address) as mq:
        mq.on_state(told.append)
        async with (
            mq.producer("pg", timeout=30, retries=100) as producer,
            mq.consumer(unique("cg"), [topic], from_where="first") as consumer,
        ):
            for turn in range(3):
                sent = [Message(topic, b"%d %d" % (turn, number)) for number in range(20)]
                sending = [producer.send_nowait(message) for message in sent]
                await asyncio.sleep(0)
                way.broker.cut()
                await asyncio.gather(*sending)
                while not {message.body for message in sent} <= found:
                    async with (await anext(consumer)).process() as message:
                        found.add(message.body)
    states = [change.state for change in told if change.role == "broker"]
    assert states == [State.CONNECTED] + [State.DISCONNECTED, State.RECONNECTED] * 3


async def test_a_broker_killed_during_each_kind_of_call(tmp_path: Path) -> None:
    """It is stopped first, so that all calls wait for it when it dies; and goes on when it is started again."""
    ports = {"namesrv_port": free_port(), "broker_port": free_broker_port()}
    settings = [word for key, value in cluster.HASTE.items() for word in ("--set", f"{key}={value}")]
    checked: list[bytes] = []

    async def checker(message: StoredMessage) -> Decision:
        checked.append(message.body)
        return Decision.COMMIT

    with ExitStack() as stack:

        def start() -> server.Server:
            return stack.enter_context(server.serve(tmp_path, *settings, **ports))

        served = start()

        async def execute(receipt: SendReceipt) -> Decision:
            os.kill(served.pid, signal.SIGSTOP)
            return Decision.COMMIT

        async with Client(served.namesrv) as mq:
            (queue,) = await mq.create_topic("orders", 1)
            message = Message("orders", b"x")
            async with (
                mq.producer("pg", retries=0) as producer,
                mq.transaction_producer("tpg", checker) as transactions,
            ):
                await producer.send(message)
                ending = asyncio.create_task(
                    transactions.send_in_transaction(Message("orders", b"in a transaction"), execute)
                )
                async with asyncio.timeout(20):
                    while mq._instance.in_flight.messages or not _is_stopped(served.pid):
                        await asyncio.sleep(0.01)
                calls = {
                    "send": producer.send(message),
                    "batch": producer.send_batch([message, message]),
                    "request": producer.request(message),
                    "pull": mq.pull(queue, 1),
                    "offset": mq.max_offset(queue),
                    "commit": mq.commit("cg", queue, 1),
                }
                waiting = {name: asyncio.ensure_future(call) for name, call in calls.items()}
                await producer.send_oneway(message)
                channel = mq._instance.channel(served.broker)
                assert channel is not None
                async with asyncio.timeout(20):
                    while len(channel.connection._pending) < len(calls) + 1:  # and the end of the transaction
                        await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)  # a heartbeat may be among them
                served.kill()
                for name, call in waiting.items():
                    with pytest.raises(RemotingError, match="lost"):
                        await call
                    assert call.done(), name
                ended = await ending
                assert (ended.decision, ended.confirmed) == (Decision.COMMIT, False)

                async with mq.producer("patient", timeout=30, retries=100) as patient:
                    sending = patient.send_nowait(Message("orders", b"after"))
                    await asyncio.to_thread(start)
                    await sending
                await mq.commit("cg", queue, 1)
                found: set[bytes] = set()
                async with mq.consumer("cg", "orders") as consumer:
                    while not {b"after", b"in a transaction"} <= found:
                        async with (await anext(consumer)).process() as consumed:
                            found.add(consumed.body)
            assert checked == [b"in a transaction"], "the broker asked what came of it"


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
