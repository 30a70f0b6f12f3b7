"""Messages of a queue one after the other, with brokers' locks."""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.broker import queue_locks
from rockmq.client import Client, ConsumedMessage, Consumer, Message, MessageQueue, locks
from tests.client.conftest import NewTopic
from tests.support import apache, cluster
from tests.support.events import events
from tests.support.jars import CLIENTS
from tests.support.process import free_broker_port, free_port

Unique = Callable[[str], str]
PATIENCE = 60


async def send(mq: Client, queues: list[MessageQueue], count: int, first: int = 0) -> None:
    """So many numbered messages to each queue."""
    async with mq.producer("pg") as producer:
        for number in range(first, first + count):
            await asyncio.gather(*(producer.send(Message(each.topic, b"%d" % number), queue=each) for each in queues))


async def until(condition: Callable[[], object], told: str = "") -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.02)


async def test_in_order_over_failures(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    queues = await new_topic(3)
    await send(mq, queues, 20)
    done: dict[int, list[int]] = defaultdict(list)
    failed: set[int] = set()
    running: set[int] = set()

    async def handle(message: ConsumedMessage) -> None:
        number = message.queue.queue_id
        assert number not in running
        running.add(number)
        await asyncio.sleep(0)
        running.discard(number)
        if message.queue_offset == 5 and number not in failed:
            failed.add(number)
            raise ValueError("the first time")
        done[number].append(int(message.body))

    group = unique("ordered")
    async with mq.consumer(group, queues[0].topic, order=True, from_where="first", suspend=0.01) as consumer:
        run = asyncio.create_task(consumer.run(handle))
        await until(lambda: sum(map(len, done.values())) == 60)
    await run
    assert done == {number: list(range(20)) for number in range(3)}
    assert failed == {0, 1, 2}
    assert list((await mq.committed_offsets(group, queues[0].topic)).values()) == [20, 20, 20]


async def test_by_hand(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    (queue,) = await new_topic(1)
    await send(mq, [queue], 5)
    async with mq.consumer(unique("ordered"), queue.topic, order=True, from_where="first") as consumer:
        found = []
        async for message in consumer:
            async with message.process():
                assert await consumer.fetch(timeout=0) == []
                found.append(int(message.body))
            if len(found) == 5:
                break
        assert found == [0, 1, 2, 3, 4]


async def test_after_the_last_try_it_is_a_dead_letter(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    (queue,) = await new_topic(1)
    await send(mq, [queue], 2)
    group = unique("ordered")
    tries: list[tuple[bytes, int]] = []

    async def handle(message: ConsumedMessage) -> None:
        tries.append((message.body, message.reconsume_times))
        if message.body == b"0":
            raise ValueError("always")

    async with mq.consumer(
        group, queue.topic, order=True, from_where="first", max_reconsume_times=2, suspend=0.01
    ) as consumer:
        run = asyncio.create_task(consumer.run(handle))
        await until(lambda: (b"1", 0) in tries)
        async with mq.consumer(unique("undertaker"), f"%DLQ%{group}", from_where="first") as undertaker:
            dead = await asyncio.wait_for(anext(undertaker), PATIENCE)
            assert (dead.body, dead.properties["RETRY_TOPIC"]) == (b"0", queue.topic)
            await dead.ack()
    await run
    assert tries[:4] == [(b"0", 0), (b"0", 1), (b"0", 2), (b"1", 0)]


async def test_members_take_over_from_each_other_in_order(
    mq: Client, peer: cluster.Cluster, new_topic: NewTopic, unique: Unique
) -> None:
    queues = await new_topic(4)
    topic, group = queues[0].topic, unique("ordered")
    work = Work()
    await send(mq, queues, 20)
    async with Client(peer.namesrv) as second:
        one = mq.consumer(group, topic, order=True, from_where="first")
        await one.start()
        runs = [asyncio.create_task(one.run(work))]
        two = second.consumer(group, topic, order=True, from_where="first")
        await two.start()
        runs.append(asyncio.create_task(two.run(work)))
        await until(lambda: len(of(one, topic)) == len(of(two, topic)) == 2)
        assert not set(of(one, topic)) & set(of(two, topic))
        await send(mq, queues, 20, 20)
        await until(lambda: work.total >= 160)
        await two.close()
        await until(lambda: len(of(one, topic)) == 4)
        await send(mq, queues, 5, 40)
        await until(lambda: work.total >= 180)
        await one.close()
        await asyncio.gather(*runs)
    assert work.done == {number: list(range(45)) for number in range(4)}, "each message once, and in order"


class Work:
    """A handler for several consumers: notes what it did, and that nothing of a queue overlaps."""

    def __init__(self) -> None:
        self.done: dict[int, list[int]] = defaultdict(list)
        self.running: set[int] = set()

    @property
    def total(self) -> int:
        return sum(map(len, self.done.values()))

    async def __call__(self, message: ConsumedMessage) -> None:
        number = message.queue.queue_id
        assert number not in self.running, "two members work on the same queue"
        self.running.add(number)
        await asyncio.sleep(0.002)
        self.running.discard(number)
        self.done[number].append(int(message.body))


def of(consumer: Consumer, topic: str) -> list[MessageQueue]:
    return [queue for queue in consumer.queues if queue.topic == topic]


async def test_java_members_share_with_us(tmp_path: Path) -> None:
    if missing := apache.available():
        pytest.skip(missing)
    async with embedded.serve(flush="ASYNC_FLUSH") as served, Client(served.namesrv) as mq:
        await share_with_java(mq, served.namesrv, tmp_path)


async def share_with_java(mq: Client, namesrv: str, tmp_path: Path) -> None:
    topic = "orders"
    queues = await mq.create_topic(topic, 4)
    work = Work()
    async with mq.consumer("g", topic, order=True, from_where="first") as ours:
        run = asyncio.create_task(ours.run(work))
        # Java's client first shares queues out a second after its start, when its first regular heartbeat is on its way,
        # too. The heartbeat that is to tell the new version of its subscription is left out then, and brokers of either kind
        # refuse its pulls until the next one (MQClientInstance.sendHeartbeatToAllBrokerWithLockV2): not after 30 s here.
        where = f"namesrv={namesrv}", f"topic={topic}", "group=g", "orderly=true", "heartbeatMs=500"
        java = await asyncio.to_thread(apache.program, CLIENTS[-1], "PushConsumer", *where, directory=tmp_path)
        await send(mq, queues, 20)
        await until(lambda: len(of(ours, topic)) == 2)
        await send(mq, queues, 20, 20)
        await until(lambda: work.total + len(events(java, "message")) >= 160)
        await asyncio.to_thread(java.terminate)
        await until(lambda: len(of(ours, topic)) == 4)
        await send(mq, queues, 5, 40)
        await until(lambda: all(work.done[number][-1:] == [44] for number in range(4)))
    await run
    theirs: dict[int, list[int]] = defaultdict(list)
    for event in events(java, "message"):
        theirs[event["queueId"]].append(event["queueOffset"])
    assert len(theirs) == 2
    for number in range(4):
        assert work.done[number] == sorted(work.done[number]), "in order"
        assert theirs[number] == sorted(theirs[number])
        assert sorted(work.done[number] + theirs[number]) == list(range(45)), "each message once"


# A member that is killed. Brokers keep its locks for a minute; these are told to for three seconds.

LOCK_SECONDS = 3


@pytest.fixture(params=["rockmq", "apache"])
async def forgetful(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The name server of a broker whose locks are soon too old."""
    if request.param == "rockmq":
        monkeypatch.setattr(queue_locks, "EXPIRY_SECONDS", float(LOCK_SECONDS))
        async with embedded.serve(flush="ASYNC_FLUSH") as served:
            yield served.namesrv
        return
    if missing := apache.available():
        pytest.skip(missing)
    context = _apache(tmp_path)
    address = await asyncio.to_thread(next, context)
    try:
        yield address
    finally:
        await asyncio.to_thread(next, context, None)


def _apache(directory: Path) -> Iterator[str]:
    flag = f"-Drocketmq.broker.rebalance.lockMaxLiveTime={LOCK_SECONDS * 1000}"
    with (
        apache.name_server(directory / "names", free_port()) as names,
        apache.broker(directory / "broker", free_broker_port(), names.address, jvm=[flag]),
    ):
        cluster.wait_for_route(names.address, "TBW102")
        yield names.address


MEMBER = """
import asyncio, sys
from rockmq.client import Client

async def main(namesrv, group, topic):
    async with Client(namesrv) as mq, mq.consumer(group, topic, order=True, from_where="first") as consumer:
        print("started", flush=True)
        async def handle(message):
            print(message.queue.queue_id, message.body.decode(), flush=True)
            await asyncio.sleep(0.02)
        await consumer.run(handle)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.flaky(reruns=0)
async def test_one_of_three_members_is_killed(forgetful: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on with its queues in order, from where it was."""
    monkeypatch.setattr(locks, "RENEW_SECONDS", 0.5)
    work = Work()
    async with Client(forgetful) as first, Client(forgetful) as second:
        queues = await first.create_topic("orders", 6)
        members = [client.consumer("billing", "orders", order=True, from_where="first") for client in (first, second)]
        for member in members:
            await member.start()
        runs = [asyncio.create_task(member.run(work)) for member in members]
        killed = await asyncio.create_subprocess_exec(
            sys.executable, "-c", MEMBER, forgetful, "billing", "orders", stdout=asyncio.subprocess.PIPE
        )
        assert killed.stdout is not None
        assert await asyncio.wait_for(killed.stdout.readline(), PATIENCE) == b"started\n"
        await until(lambda: [len(of(member, "orders")) for member in members] == [2, 2])
        sending = asyncio.create_task(send(first, queues, 60))
        theirs: dict[int, list[int]] = defaultdict(list)
        while sum(map(len, theirs.values())) < 20:
            number, body = (await asyncio.wait_for(killed.stdout.readline(), PATIENCE)).split()
            theirs[int(number)].append(int(body))
        killed.kill()
        for line in (await killed.stdout.read()).splitlines():
            number, body = line.split()
            theirs[int(number)].append(int(body))
        await killed.wait()
        await sending
        await until(lambda: all(work.done[number][-1:] == [59] for number in range(6)))
        for member in members:
            await member.close()
        await asyncio.gather(*runs)
    for number in range(6):
        mine = work.done[number]
        assert mine == list(range(mine[0], 60)), "in order, and none twice by those who live"
        assert number in theirs or mine[0] == 0
    for number, bodies in theirs.items():
        assert bodies == list(range(len(bodies)))
        assert work.done[number][0] <= len(bodies), "nothing is left out"


async def test_the_offset_moves_by_hand(mq: Client, new_topic: NewTopic, unique: Unique) -> None:
    (queue,) = await new_topic(1)
    await send(mq, [queue], 10)
    group = unique("ordered")
    done: list[int] = []

    async def handle(message: ConsumedMessage) -> None:
        number = int(message.body)
        done.append(number)
        if number == 3:
            await message.commit()
        elif number == 6 and done.count(6) == 1:
            await message.rollback()

    async with mq.consumer(group, queue.topic, order=True, auto_commit=False, from_where="first", suspend=0.01) as consumer:
        run = asyncio.create_task(consumer.run(handle))
        await until(lambda: 9 in done)
        assert done == [0, 1, 2, 3, 4, 5, 6, 4, 5, 6, 7, 8, 9]
        await consumer.commit()
        assert await mq.committed_offsets(group, queue.topic) == {queue: 4}
    await run
    async with mq.consumer(group, queue.topic, order=True, auto_commit=False) as consumer:
        batch = []
        while len(batch) < 6:
            message = await asyncio.wait_for(anext(consumer), PATIENCE)
            batch.append(int(message.body))
            await message.ack()
        assert batch == list(range(4, 10)), "what wasn't committed comes again"
        await send(mq, [queue], 1, 10)
        await (await asyncio.wait_for(anext(consumer), PATIENCE)).commit()
    assert await mq.committed_offsets(group, queue.topic) == {queue: 11}
