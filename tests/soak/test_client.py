"""The client at work for a long time, while brokers are killed, stand still and come back, connections break, members join
and leave, and the name server goes: nothing that was stored is lost, and nothing grows.

ROCKMQ_SOAK_SECONDS is how long (`make soak`: half an hour), ROCKMQ_SOAK_SEED what happens when.
"""

import asyncio
import logging
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from rockmq.base.errors import ResponseError, RockMQError
from rockmq.client import Client, ConsumedMessage, Message, PopMessage, StoredMessage
from rockmq.client.admin import GroupSettings
from tests.soak.figures import Figures, floor, growth
from tests.soak.ledger import Ledger
from tests.soak.servers import BROKERS, NAMES, Servers

SECONDS = float(os.environ.get("ROCKMQ_SOAK_SECONDS", "3"))
SEED = int(os.environ.get("ROCKMQ_SOAK_SEED", random.randrange(1 << 32)))
WAYS = ("pushed", "ordered", "popped", "pulled")
"""Topics, after the ways in which they are consumed; the groups have the same names."""
PER_SECOND = 5.0
"""Messages to each topic."""
ASK_SECONDS = 0.5
EVENT_SECONDS = min(12.0, SECONDS / 3)
VISIT_SECONDS = min(10.0, SECONDS / 4)
SAMPLE_SECONDS = min(5.0, SECONDS / 20)
WARM_UP_SECONDS = 300.0
"""What grows in the first minutes, at most a third of all, doesn't count: caches and pools fill."""
ARRIVE_SECONDS = 240.0
"""What came to a broker just before it died may come again after its invisible time, and after tries with their delays."""
GROWTH_MAX = {"rss_kib": 4 * 1024, "blocks": 6_000, "objects": 5_000, "tasks": 8, "files": 4, "sockets": 4}
"""From the least in the second third of what is left after the warm-up to the least in the last. In half an hour 10,000
messages lie between, so that a block for each would be too many; figures of the last hour make some 1,500."""


class Soak:
    """One client that does everything at once."""

    def __init__(self, servers: Servers, mq: Client) -> None:
        self.servers = servers
        self.mq = mq
        self.random = random.Random(SEED)
        self.ledgers = {topic: Ledger() for topic in WAYS}
        self.counts: Counter[str] = Counter()
        self.figures: list[tuple[float, Figures]] = []
        self.ending = asyncio.Event()

    @property
    def missing(self) -> dict[str, list[int]]:
        return {topic: missing for topic, ledger in self.ledgers.items() if (missing := ledger.missing)}

    def note(self, message: ConsumedMessage | PopMessage | StoredMessage) -> None:
        self.ledgers[message.topic].came(int(message.body.split()[0]))

    async def handle(self, message: ConsumedMessage | PopMessage) -> None:
        """Now and then a first try fails."""
        if message.reconsume_times == 0 and self.random.random() < 0.01:
            self.counts["refused"] += 1
            raise ValueError("not now")
        self.note(message)

    # What goes on all the time

    async def send(self, topic: str) -> None:
        ledger = self.ledgers[topic]
        async with self.mq.producer(f"to-{topic}", timeout=20, retries=100) as producer, asyncio.TaskGroup() as sends:
            while not self.ending.is_set():
                sends.create_task(self._send(topic, ledger, producer.send))
                await asyncio.sleep(self.random.expovariate(PER_SECOND))

    async def _send(self, topic: str, ledger: Ledger, send: Callable[[Message], Awaitable[object]]) -> None:
        number = ledger.begin()
        try:
            await send(Message(topic, b"%d %s" % (number, b"x" * self.random.randrange(2000))))
        except RockMQError:
            ledger.not_sent(number)
        else:
            ledger.sent(number)

    async def ask(self) -> None:
        async with self.mq.producer("asking") as producer:
            while not self.ending.is_set():
                await asyncio.sleep(ASK_SECONDS)
                question = os.urandom(8)
                try:
                    answer = await producer.request(Message("asked", question), timeout=3)
                except RockMQError:
                    self.counts["unanswered"] += 1
                else:
                    assert answer.body == question[::-1]
                    self.counts["answered"] += 1

    async def answer(self) -> None:
        async with self.mq.producer("answering") as producer, self.mq.consumer("asked", ["asked"]) as consumer:

            async def reply(message: ConsumedMessage) -> None:
                try:
                    await producer.reply(message, message.body[::-1])
                except ResponseError:
                    self.counts["nobody waits"] += 1

            await consumer.run(reply, concurrency=4)

    async def push(self, mq: Client) -> None:
        async with mq.consumer("pushed", ["pushed"], from_where="first") as consumer:
            await consumer.run(self.handle)

    async def order(self, mq: Client) -> None:
        async with mq.consumer("ordered", ["ordered"], from_where="first", order=True) as consumer:
            await consumer.run(self.handle)

    async def pop(self, mq: Client) -> None:
        async with mq.pop_consumer("popped", ["popped"], from_where="first", invisible=15) as consumer:
            await consumer.run(self.handle)

    async def pull(self, mq: Client) -> None:
        async with mq.lite_pull_consumer("pulled", ["pulled"], from_where="first") as consumer:
            while True:
                for message in await consumer.poll(timeout=1):
                    self.note(message)

    # What happens

    async def visit(self) -> None:
        """Another member of each group joins, stays for a while, and leaves."""
        while not self.ending.is_set():
            await asyncio.sleep(VISIT_SECONDS)
            async with Client(self.servers.namesrv) as other, running(*(way(other) for way in self.ways)):
                self.counts["visits"] += 1
                await asyncio.sleep(VISIT_SECONDS)

    @property
    def ways(self) -> list[Callable[[Client], Awaitable[None]]]:
        return [self.push, self.order, self.pop, self.pull]

    async def disturb(self) -> None:
        while not self.ending.is_set():
            await asyncio.sleep(EVENT_SECONDS * self.random.uniform(0.7, 1.3))
            broker = self.random.choice(BROKERS)
            happens = self.random.choices(("kill", "stop", "cut", "no names"), (4, 2, 3, 1))[0]
            self.counts[happens] += 1
            if happens == "kill":
                await self.servers.kill(broker)
                await asyncio.sleep(self.random.uniform(0, 2))
                await self.servers.start(broker)
            elif happens == "stop":
                await self.servers.stop_for(broker, self.random.uniform(0.5, 5))
            elif happens == "no names":
                await self.servers.kill(NAMES)
                await asyncio.sleep(self.random.uniform(0, 5))
                await self.servers.start(NAMES)
            else:
                for to in self.mq._instance.remoting.connected:
                    self.mq._instance.remoting.disconnect(to)

    async def watch(self) -> None:
        began = time.monotonic()
        while not self.ending.is_set():
            self.figures.append((time.monotonic() - began, Figures.now()))
            await asyncio.sleep(SAMPLE_SECONDS)

    # Its judgement

    def growth(self) -> dict[str, int]:
        """From the middle to the end of the time after the warm-up, of what never goes away again."""
        warm = min(WARM_UP_SECONDS, SECONDS / 3)
        third = (SECONDS - warm) / 3
        middle = [each for at, each in self.figures if warm + third <= at < warm + 2 * third]
        end = [each for at, each in self.figures if at >= warm + 2 * third]
        return growth(floor(middle), floor(end))

    def __str__(self) -> str:
        sent = {topic: f"{each.received} of {each.stored}" for topic, each in self.ledgers.items()}
        failed = sum(each.failed for each in self.ledgers.values())
        return f"{SECONDS:g} s, received of stored {sent}, {failed} sends failed, {dict(self.counts)}"


@asynccontextmanager
async def running(*work: Awaitable[None]) -> AsyncIterator[None]:
    """Run these beside a block, and cancel them at its end. An error of theirs ends the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_awaited(each)) for each in work]
        yield
        for task in tasks:
            task.cancel()


async def _awaited(work: Awaitable[None]) -> None:
    await work


class Errors(logging.Handler):
    """Keeps what the client logs as an error: it means something that nobody foresaw."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))


async def prepared(servers: Servers) -> None:
    """Topics and groups at both brokers."""
    await servers.start(NAMES)
    await servers.start(*BROKERS)
    async with Client(servers.namesrv) as mq:
        async with asyncio.timeout(60):
            while set((await mq.admin.brokers.clusters()).brokers) != set(BROKERS):
                await asyncio.sleep(0.05)
        for topic in (*WAYS, "asked"):
            await mq.create_topic(topic, 4, timeout=60)
            await mq.admin.groups.put(GroupSettings(topic))


async def test_nothing_is_lost_and_nothing_grows(tmp_path: Path) -> None:
    print(f"ROCKMQ_SOAK_SEED={SEED}")
    errors, log = Errors(), logging.getLogger("rockmq")
    # Thousands of warnings are what this is about; pytest would keep them all.
    log.addHandler(errors)
    log.propagate = False
    servers = Servers(tmp_path)
    try:
        await prepared(servers)
        before = Figures.now()
        async with AsyncExitStack() as stack:
            mq = await stack.enter_async_context(Client(servers.namesrv))
            soak = Soak(servers, mq)
            await stack.enter_async_context(running(soak.answer(), *(way(mq) for way in soak.ways)))
            async with asyncio.TaskGroup() as load:
                for work in (soak.ask(), soak.visit(), soak.disturb(), soak.watch(), *map(soak.send, WAYS)):
                    load.create_task(work)
                load.create_task(_end_after(SECONDS, soak))
            arrived_by = time.monotonic() + ARRIVE_SECONDS
            while soak.missing and time.monotonic() < arrived_by:
                await asyncio.sleep(0.05)
            print(soak)
            assert not soak.missing, "stored, and never received"
        after = Figures.now()
        print(f"before {before}, after {after}, growth {soak.growth()}")
        for at, each in soak.figures[:: max(1, len(soak.figures) // 12)]:
            print(f"{at:7.0f} s {each}")
        assert (after.tasks, after.sockets) == (before.tasks, before.sockets)
        assert all(ledger.stored for ledger in soak.ledgers.values())
        assert soak.counts["answered"]
        if SECONDS >= 2 * WARM_UP_SECONDS:
            grown = {what: by for what, by in soak.growth().items() if by > GROWTH_MAX[what]}
            assert not grown
        assert not errors.found
    finally:
        log.propagate = True
        log.removeHandler(errors)
        servers.close()


async def _end_after(seconds: float, soak: Soak) -> None:
    """That, and once a question was answered: in a short run each may be asked of a broker that is just killed."""
    await asyncio.sleep(seconds)
    answered_by = time.monotonic() + ARRIVE_SECONDS
    while not soak.counts["answered"] and time.monotonic() < answered_by:
        await asyncio.sleep(0.05)
    soak.ending.set()
