"""What the clients of either kind of broker rely on when connections break, brokers die, and the event loop stands still."""

import asyncio
import os
import select
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rockmq.base.errors import ProtocolError, RemotingError, RouteNotFound
from rockmq.client import (
    Client,
    ConsumedMessage,
    Consumer,
    Decision,
    Message,
    PopConsumer,
    SendReceipt,
    State,
    StateChange,
    StoredMessage,
)
from rockmq.client import instance as runtime
from rockmq.client.admin import GroupSettings
from rockmq.client.heartbeat import Beat
from rockmq.client.offsets import committed
from rockmq.client.pop import pop as pop_once
from rockmq.protocol import json, properties
from rockmq.protocol.bodies.client import LockBatchBody
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.compression import Compression
from rockmq.protocol.headers.client import GetConsumerList, LockBatch
from rockmq.protocol.headers.pop import Pop
from rockmq.protocol.headers.send import SendMessageV2
from tests.client.conftest import NewTopic, until_held
from tests.support import cluster
from tests.support.clock import SteppingClock
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


async def test_a_subscription_changes_though_the_clock_was_set_back(
    peer: cluster.Cluster, new_topic: NewTopic, unique: Callable[[str], str]
) -> None:
    """Brokers keep the newest subscription by its version, a time; and filter by it."""
    topic = (await new_topic(1))[0].topic
    clock = SteppingClock()
    async with (
        Client(peer.namesrv, clock=clock) as mq,
        mq.producer(unique("pg")) as producer,
        mq.consumer(unique("cg"), {topic: "one"}, from_where="first") as consumer,
    ):
        for tag in ("one", "two", "three"):
            await producer.send(Message(topic, tag.encode(), tag=tag))
            await consumer.subscribe(topic, tag)
            await _until_found(consumer, tag.encode())
            clock.ahead_ms -= 3_600_000


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


@pytest.mark.parametrize("stalled", [(2.0, 2.0), (31.0,)], ids=["longer than timeouts", "half a minute"])
async def test_a_loop_that_stands_still(
    stalled: tuple[float, ...],
    peer: cluster.Cluster,
    new_topic: NewTopic,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when a handler computes in the loop: it costs nobody a connection, a message, or an answer that has come."""
    (queue,) = await new_topic(1)
    if max(stalled) < runtime.HEARTBEAT_SECONDS:
        monkeypatch.setattr(runtime, "HEARTBEAT_SECONDS", 0.3)
        monkeypatch.setattr(runtime, "API_TIMEOUT", 1.0)
        monkeypatch.setattr(runtime, "RECONNECT_SECONDS", 0.3)
    told: list[StateChange] = []
    stalls = iter(stalled)

    async def handle(message: ConsumedMessage) -> None:
        if message.body.startswith(b"stall") and (seconds := next(stalls, None)):
            time.sleep(seconds)  # noqa: ASYNC251 - it is the point
        seen.append(message.body)

    seen: list[bytes] = []
    async with Client(peer.namesrv) as mq:
        mq.on_state(told.append)
        async with (
            mq.producer(unique("pg"), timeout=120, timeout_per_attempt=1.5) as producer,
            mq.consumer(unique("cg"), [queue.topic], from_where="first") as consumer,
        ):
            running = asyncio.create_task(consumer.run(handle))
            sent = []
            for turn in range(len(stalled)):
                bodies = [b"stall %d" % turn, *(b"%d %d" % (turn, number) for number in range(50))]
                sent += bodies
                await asyncio.gather(*(producer.send(Message(queue.topic, body)) for body in bodies))
                async with asyncio.timeout(120):
                    while not set(sent) <= set(seen):
                        await asyncio.sleep(0.01)
                await mq._instance.heartbeat()
            await consumer.close()
            await running
            assert (await mq.committed_offsets(consumer.group, queue.topic))[queue] == await mq.max_offset(queue)
    assert State.DISCONNECTED not in [change.state for change in told]


async def test_timers_of_half_a_minute_that_are_all_due_at_once(
    peer: cluster.Cluster, new_topic: NewTopic, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop's time leaps, as if it had stood still for half a minute: heartbeats, pulls, routes, locks are all late."""
    queues = await new_topic(2)
    loop = asyncio.get_running_loop()
    real, ahead = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: real() + ahead)
    topic, seen = queues[0].topic, set()
    async with (
        Client(peer.namesrv) as mq,
        mq.producer(unique("pg"), timeout=300, retries=100) as producer,
        mq.consumer(unique("cg"), [topic], from_where="first") as consumer,
        mq.consumer(unique("og"), [topic], from_where="first", order=True) as ordered,
    ):
        for turn in range(3):
            bodies = {b"%d %d" % (turn, number) for number in range(10)}
            sends = [producer.send_nowait(Message(topic, body)) for body in sorted(bodies)]
            await asyncio.sleep(0)
            ahead += 31.0
            await asyncio.gather(*sends)
            for each in (consumer, ordered):
                await _until_found(each, *bodies)
            seen |= bodies
    assert len(seen) == 30


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
    async with mq.lite_pull_consumer(unique("lite"), [queue.topic], from_where="first") as polling:
        with pytest.raises(ProtocolError, match=r"message ID \(offset 0 of queue 0"):
            await polling.poll(timeout=20)


MAGIC = bytes.fromhex("daa320a7")
"""In every record."""


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


async def test_records_that_are_damaged_on_their_way_are_read_again(
    way: Cuttable, new_topic: NewTopic, unique: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    (queue,) = await new_topic(1)
    damaged: list[bytes] = []

    def damage(data: bytes) -> bytes:
        if MAGIC not in data or damaged:
            return data
        damaged.append(data)
        return data.replace(MAGIC, bytes(4))

    async with Client(way.namesrv.address) as mq, mq.producer("pg") as producer:
        for number in range(3):
            await producer.send(Message(queue.topic, b"%d" % number))
        await until_held(mq, queue, 3)
        way.broker.on_reply = damage
        result = await mq.pull(queue, 0)
        with pytest.raises(ProtocolError, match="stored messages: no whole record at byte 0"):
            _ = result.messages
        damaged.clear()
        async with mq.consumer(unique("cg"), [queue.topic], from_where="first") as consumer:
            await _until_found(consumer, b"0", b"1", b"2")
        assert damaged
        told = f"what queue 0 of {queue.topic} on {queue.broker_name} answered can't be read, trying again: stored messages"
        assert caplog.text.count(told) == 1
        damaged.clear()
        async with mq.lite_pull_consumer(unique("lite"), [queue.topic], from_where="first") as polling:
            assert [(await anext(polling)).body for _ in range(3)] == [b"0", b"1", b"2"]
        assert damaged
        assert caplog.text.count(told) == 2


@pytest.mark.flaky(reruns=0)
@pytest.mark.parametrize("kind", ["rockmq", "apache"])
async def test_a_broker_killed_during_each_kind_of_call(kind: str, tmp_path: Path) -> None:
    """It is stopped first, so that all calls wait for it when it dies; and goes on when it is started again."""
    cluster.require(kind)
    checked: list[bytes] = []

    async def checker(message: StoredMessage) -> Decision:
        checked.append(message.body)
        return Decision.COMMIT

    with cluster.started(kind, tmp_path, {"recallMessageEnable": "true"}) as peer:

        async def execute(receipt: SendReceipt) -> Decision:
            os.kill(peer.pid, signal.SIGSTOP)
            return Decision.COMMIT

        async with Client(peer.namesrv) as mq, Client(peer.namesrv) as far, far.producer("far") as sender:
            (queue,) = await mq.create_topic("orders", 1)
            for topic in ("pushed", "ordered", "popped"):
                await mq.create_topic(topic, 1)
                await sender.send(Message(topic, b"before"))
            await sender.send(Message("pushed", b"refused"))
            await mq.admin.groups.put(GroupSettings("cg"))
            message = Message("orders", b"x")
            async with (
                far.consumer("pushing", ["pushed"], from_where="first") as pushing,
                far.consumer("ordering", ["ordered"], from_where="first", order=True) as ordering,
                far.pop_consumer("popping", ["popped"], from_where="first") as popping,
                far.lite_pull_consumer("polling", ["pushed"], from_where="first") as polling,
                mq.producer("pg", retries=0) as producer,
                mq.transaction_producer("tpg", checker) as transactions,
            ):
                members = (pushing, ordering, popping)
                held = [await anext(each) for each in members]
                refused = await anext(pushing)
                assert refused.body == b"refused"
                polled = [(await anext(polling)).body for _ in range(2)]
                receipt = await producer.send(message)
                later = await producer.send(message, delay=3600)
                assert later.recall_handle is not None
                ending = asyncio.create_task(
                    transactions.send_in_transaction(Message("orders", b"in a transaction"), execute)
                )
                async with asyncio.timeout(20):
                    while mq._instance.in_flight.messages or not _is_stopped(peer.pid):
                        await asyncio.sleep(0.01)
                pop = Pop(
                    consumer_group="other",
                    topic="popped",
                    queue_id=-1,
                    max_msg_nums=1,
                    invisible_time=60_000,
                    poll_time=0,
                    born_time=mq._instance.clock.now_ms(),
                    init_mode=0,
                )
                members_of = GetConsumerList(consumer_group="cg")
                lock = json.encode(LockBatchBody(consumer_group="cg", client_id=mq.client_id, mq_set=[queue]))
                calls = {
                    "send": producer.send(message),
                    "batch": producer.send_batch([message, message]),
                    "request": producer.request(message),
                    "pull": mq.pull(queue, 1),
                    "pull that waits": mq.pull(queue, 1, wait=10),
                    "pop": pop_once(mq._instance, peer.broker, queue.broker_name, pop, 30),
                    "offset": mq.max_offset(queue),
                    "offset by time": mq.offset_by_time(queue, 0),
                    "commit": mq.commit("cg", queue, 1),
                    "a group's offset": committed(mq._instance, "cg", queue, zero_if_young=False),
                    "recall": producer.recall(later.recall_handle),
                    "members": mq._instance.ask(peer.broker, RequestCode.GET_CONSUMER_LIST_BY_GROUP, members_of),
                    "lock": mq._instance.ask(peer.broker, RequestCode.LOCK_BATCH_MQ, LockBatch(), lock),
                    "message": mq.admin.messages.by_offset_id(receipt.offset_id),
                    "configuration": mq.admin.brokers.config(peer.broker),
                }
                waiting = {name: asyncio.ensure_future(call) for name, call in calls.items()}
                await producer.send_oneway(message)
                for each in held:
                    await each.ack()  # type: ignore[attr-defined]
                refusing = asyncio.create_task(refused.nack(1))
                channel = mq._instance.channel(peer.broker)
                assert channel is not None
                async with asyncio.timeout(20):
                    while len(channel.connection._pending) < len(calls) + 1:  # and the end of the transaction
                        await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)  # a heartbeat may be among them
                peer.crash()
                for name, call in waiting.items():
                    with pytest.raises(RemotingError, match="lost"):
                        await call
                    assert call.done(), name
                ended = await ending
                assert (ended.decision, ended.confirmed) == (Decision.COMMIT, False)

                async with mq.producer("patient", timeout=120) as patient:
                    sending = patient.send_nowait(Message("orders", b"after"))
                    await asyncio.to_thread(peer.start)
                    await sending
                    for topic in ("pushed", "ordered", "popped"):
                        await patient.send(Message(topic, b"after"))
                await mq.commit("cg", queue, 1)
                async with mq.consumer("cg", "orders") as consumer:
                    await _until_found(consumer, b"after", b"in a transaction")
                await refusing
                await _until_found(pushing, b"after", b"refused")
                for member in (ordering, popping):
                    await _until_found(member, b"after")
                async with asyncio.timeout(90):
                    while b"after" not in polled:
                        polled.append((await anext(polling)).body)
                assert polled == [b"before", b"refused", b"after"]
            assert set(checked) == {b"in a transaction"}, "the broker asked what came of it"


async def _until_found(consumer: Consumer | PopConsumer, *bodies: bytes) -> None:
    missing = set(bodies)
    async with asyncio.timeout(90):
        while missing:
            taken = await anext(consumer)
            async with taken.process() as message:  # type: ignore[attr-defined]
                missing.discard(message.body)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
