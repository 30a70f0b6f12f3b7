"""Sends the orders and looks on while they are consumed; on the way a second member joins, and the server is killed.

What is kept of a send is its receipt, and only of one that says the message is on disk. A send that ends in an error may
or may not have been stored; its order is sent again until a receipt comes, as a shop would do.
"""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rockmq.base.errors import ClientError, RockMQError
from rockmq.cli.demo import orders
from rockmq.cli.demo.member import Member
from rockmq.cli.demo.orders import Plan
from rockmq.cli.demo.reconcile import Queue, Row
from rockmq.cli.demo.server import Server
from rockmq.client import Client, Producer, SendStatus

QUEUES = 8
JOIN_AT = 0.25
KILL_AT = 0.5
AWAY_SECONDS = 0.5
SEND_AGAIN_SECONDS = 0.1
WATCH_SECONDS = 0.1
PATIENCE_SECONDS = 60.0
"""So long nothing may be acknowledged, or consumed, before the demo gives up waiting and reconciles what there is."""


@dataclass
class Records:
    """What was seen from outside the server."""

    acknowledged: dict[int, tuple[Queue, int]] = field(default_factory=dict)
    consumed: list[Row] = field(default_factory=list)
    by_member: dict[str, int] = field(default_factory=dict)
    ends: dict[Queue, int] = field(default_factory=dict)
    send_errors: int = 0
    send_seconds: float = 0.0
    consume_seconds: float = 0.0


@dataclass(frozen=True)
class Watcher:
    """Who wants to know: numbers of orders acknowledged and consumed so far, and what happens in words."""

    acknowledged: Callable[[int], None]
    consumed: Callable[[int], None]
    event: Callable[[str], None]


class Traffic:
    def __init__(self, plan: Plan, server: Server, folder: Path, watcher: Watcher) -> None:
        self._plan = plan
        self._server = server
        self._folder = folder
        self._watcher = watcher
        self._members: list[Member] = []
        self._consumed_orders: set[int] = set()
        self._last_progress = time.monotonic()
        self._awaited = 0
        self._reached = asyncio.Event()
        self.records = Records()

    async def run(self) -> Records:
        """All of it; returns when every order is acknowledged and consumed, or nothing moves any more."""
        async with Client(self._server.namesrv) as mq:
            await mq.create_topic(orders.TOPIC, QUEUES)
            try:
                self._join("first member")
                async with mq.producer("shop") as producer:
                    await self._send_all(producer)
                await self._until_consumed()
                for queue in await mq.queues(orders.TOPIC):
                    place = Queue(queue.broker_name, queue.queue_id)
                    self.records.ends[place] = await mq.max_offset(queue)
            finally:
                for member in self._members:
                    code = await asyncio.to_thread(member.stop)
                    if code:
                        self._watcher.event(f"the {member.name} ended with code {code}, see {self._folder / 'members.log'}")
            self._look()
        return self.records

    # Sending

    async def _send_all(self, producer: Producer) -> None:
        """Raises RockMQError when the server doesn't come back or nothing is acknowledged any more."""
        started = time.monotonic()
        sellers = [asyncio.create_task(self._sell(producer, seller)) for seller in range(self._plan.sellers)]
        events = asyncio.create_task(self._events())
        watching = asyncio.create_task(self._watch())
        try:
            done, _ = await asyncio.wait([events, *sellers], return_when=asyncio.FIRST_EXCEPTION)
            self.records.send_seconds = time.monotonic() - started
            for task in done:
                task.result()
        finally:
            for task in (watching, events, *sellers):
                task.cancel()
            await asyncio.gather(watching, events, *sellers, return_exceptions=True)

    async def _sell(self, producer: Producer, seller: int) -> None:
        acknowledged = self.records.acknowledged
        customer = orders.customer(seller)
        for order in self._plan.of(seller):
            message = orders.message(self._plan, order)
            while True:
                try:
                    receipt = await producer.send(message, key=customer)
                    if receipt.status is SendStatus.OK:
                        break
                    error: RockMQError = ClientError(f"order {order}: {receipt.status.meaning}")
                except RockMQError as failed:
                    error = failed
                self.records.send_errors += 1
                if time.monotonic() - self._last_progress > PATIENCE_SECONDS:
                    raise error
                await asyncio.sleep(SEND_AGAIN_SECONDS)
            acknowledged[order] = Queue(receipt.queue.broker_name, receipt.queue.queue_id), receipt.queue_offset
            self._last_progress = time.monotonic()
            if len(acknowledged) >= self._awaited:
                self._reached.set()

    # What happens on the way

    async def _events(self) -> None:
        await self._until_acknowledged(JOIN_AT)
        self._join("second member")
        self._watcher.event("a second member joins the group")
        at = await self._until_acknowledged(KILL_AT)
        await asyncio.to_thread(self._server.kill)
        self._watcher.event(f"the server is killed (SIGKILL) with {at:,} orders acknowledged")
        await asyncio.sleep(AWAY_SECONDS)
        seconds = await asyncio.to_thread(self._server.start)
        self._watcher.event(f"it is started again on the same data, and ready after {seconds:.2f} s")
        self._last_progress = time.monotonic()

    async def _until_acknowledged(self, share: float) -> int:
        """Wait for that share of the orders; how many there are by then."""
        self._awaited = math.ceil(share * self._plan.orders)
        self._reached.clear()
        if len(self.records.acknowledged) < self._awaited:
            await self._reached.wait()
        return len(self.records.acknowledged)

    def _join(self, name: str) -> None:
        ledger = self._folder / f"consumed-{len(self._members) + 1}.csv"
        self._members.append(Member(name, self._server.namesrv, ledger, self._folder / "members.log"))

    # Looking on

    async def _watch(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(WATCH_SECONDS)

    async def _until_consumed(self) -> None:
        """Until the members have had every order, or nothing comes any more."""
        started = self._last_progress = time.monotonic()
        while len(self._consumed_orders) < self._plan.orders:
            self._look()
            if time.monotonic() - self._last_progress > PATIENCE_SECONDS:
                self._watcher.event(f"nothing was consumed for {PATIENCE_SECONDS:.0f} s; giving up waiting")
                break
            await asyncio.sleep(WATCH_SECONDS)
        self.records.consume_seconds = self.records.send_seconds + time.monotonic() - started

    def _look(self) -> None:
        records = self.records
        for member in self._members:
            news = list(member.news())
            if news:
                records.consumed += news
                records.by_member[member.name] = member.lines
                self._consumed_orders.update(row.order for row in news)
                self._last_progress = time.monotonic()
        self._watcher.acknowledged(len(records.acknowledged))
        self._watcher.consumed(len(self._consumed_orders))
