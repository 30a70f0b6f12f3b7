"""Which queues are ours (RebalanceImpl.java, RebalanceService.java; clients' spec, 3.2).

Every member asks for the group's members, works out its own share, gives up what isn't in it and takes what is new.
Nothing changes when routes or members can't be had. Two rules of our own keep duplicates rare, and don't disturb members
that are Java clients:
- What is given up is committed after its handlers had a moment to end, and in company a new queue's offset is asked for
  only after that moment.
- When a broker comes back, all members connect again one by one; shares are worked out when they had time to.
An orderly member takes a queue when it has the broker's lock on it, so its predecessor has committed and given it up. In a
broadcast every queue is every member's.
"""

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import Awaitable, Callable, Collection, Mapping

from rockmq.base.errors import ClientClosed, ClientError, RemotingError, RockMQError, RouteNotFound
from rockmq.client.instance import Instance
from rockmq.client.locks import Locks
from rockmq.client.offsets import ASKING_MAX, OffsetStore
from rockmq.client.process_queue import ProcessQueue
from rockmq.client.pull import Backoff
from rockmq.client.queue_listener import QueueListener, RebalanceListener
from rockmq.client.routes import TopicRoute
from rockmq.protocol import allocate, json, topics
from rockmq.protocol.bodies.client import ConsumerList
from rockmq.protocol.bodies.common import MessageQueue, SubscriptionData
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.client import GetConsumerList

log = logging.getLogger(__name__)

PERIOD_SECONDS = 20.0
UNSETTLED_SECONDS = 1.0
UNLOCKED_SECONDS = 0.5
"""How soon locks that others have are asked for again."""
GAP_SECONDS = 0.2
"""Between two rounds, however often members change."""

RETURN_SECONDS = 2.0
"""How long shares stay after a lost broker is back."""

TAKE_OVER_SECONDS = 0.5
"""How long another member has to commit what it gives up; longer than it waits for its handlers."""

_CLOSED = "the consumer was closed meanwhile"


class Rebalancer:
    """Keeps `queues` at this client's share, which `strategy` works out; without one every queue is ours.

    `opened` is told a queue to pull. `give_up` ends queues and commits them, and marks them as dropped; those it can't end
    yet are given to it again in the next round. With `locks` a queue is taken when it is locked. The `listener` is the
    application's.
    """

    def __init__(
        self,
        instance: Instance,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        offsets: OffsetStore,
        *,
        opened: Callable[[ProcessQueue], None],
        give_up: Callable[[Collection[ProcessQueue]], Awaitable[None]],
        strategy: allocate.Strategy | None = allocate.averagely,
        locks: Locks | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        self._instance = instance
        self._group = group
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._opened = opened
        self._give_up = give_up
        self._strategy = strategy
        self._locks = locks
        self._listener = QueueListener(listener, group) if listener is not None else None
        self._waiting: list[asyncio.Future[None]] = []
        self._ended = False
        self._wanted = asyncio.Event()
        self._not_before = 0.0
        self._missing = Backoff(UNSETTLED_SECONDS, PERIOD_SECONDS)
        self._unknown: set[str] = set()
        """Topics of which it was told that their queues stay as they are."""
        self._unbegun: set[MessageQueue] = set()
        """Queues of which it was told that it isn't known where to begin."""
        self.settled = asyncio.Event()
        """Set when a round first got through for every topic that exists."""
        self.queues: dict[MessageQueue, ProcessQueue] = {}

    def wake(self) -> None:
        """Work out the shares soon."""
        self._wanted.set()

    def hold(self) -> None:
        """A broker is back: give the other members time to come back too."""
        self._not_before = asyncio.get_running_loop().time() + RETURN_SECONDS
        self._wanted.set()

    async def now(self) -> None:
        """Work out the shares, and wait until that is done. Raises ClientClosed."""
        if self._ended:
            raise ClientClosed(_CLOSED)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._wanted.set()
        await done

    async def run(self) -> None:
        """Keep the share up to date until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._listener is not None:
                    tasks.create_task(self._listener.run(), name=f"listener of {self._group}")
                await self._rounds()
        finally:
            self._ended = True
            for each in self._waiting:
                if not each.done():
                    each.set_exception(ClientClosed(_CLOSED))

    async def _rounds(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # In turns, because the time may be put off while we wait for it.
            while (wait := self._not_before - loop.time()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(wait)
            self._wanted.clear()
            asked = len(self._waiting)
            try:
                pause = await self._round()
            except Exception:  # without rounds a consumer stands still and nobody knows
                log.exception("sharing the queues of group %s failed, trying again", self._group)
                pause = UNSETTLED_SECONDS
            for each in self._waiting[:asked]:
                if not each.done():
                    each.set_result(None)
            del self._waiting[:asked]
            self._not_before = max(self._not_before, loop.time() + GAP_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wanted.wait()

    async def _round(self) -> float:
        """Make the queues ours that should be; seconds until the next round when nothing happens before."""
        shares: dict[str, list[MessageQueue]] = {}
        members: dict[str, list[str]] = {}
        failed = missing = False
        for topic in list(self._subscriptions):
            try:
                route = await self._instance.routes.get(topic)
                shares[topic] = await self._share(route, members)
            except RouteNotFound as error:
                missing = True
                if not topics.is_retry(topic) and self._missing.fresh:
                    log.warning("waiting for the topic to exist: %s", error)
            except RockMQError as error:
                failed = True
                self._complain(topic, error)
            else:
                self._unknown.discard(topic)
        company = any(len(ids) > 1 for ids in members.values())
        unlocked = await self._apply(shares, company)
        if failed or not all(queue in self.queues or self._is_away(queue) for share in shares.values() for queue in share):
            return UNLOCKED_SECONDS if unlocked else UNSETTLED_SECONDS
        self.settled.set()
        if any(each.leaving_since is not None for each in self.queues.values()):
            return UNSETTLED_SECONDS
        if missing:
            return self._missing.pause()
        self._missing.reset()
        return PERIOD_SECONDS

    def _complain(self, topic: str, error: RockMQError) -> None:
        """The first of a row of errors is told; before the group is settled they are part of its beginning."""
        if topic not in self._unknown:
            self._unknown.add(topic)
            level = logging.WARNING if self.settled.is_set() else logging.INFO
            log.log(level, "queues of %s stay as they are, trying again: %s", topic, error)

    async def _share(self, route: TopicRoute, members: dict[str, list[str]]) -> list[MessageQueue]:
        if self._strategy is None:
            return list(route.readable)
        addresses = sorted(route.masters() or route.all_addresses())
        if not addresses:
            raise RemotingError("no broker stands in the route")
        asked = random.choice(addresses)
        if asked not in members:
            header = GetConsumerList(consumer_group=self._group)
            answer = await self._instance.ask(asked, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            found = json.decode(answer.body, ConsumerList, "members of a group").consumer_id_list
            members[asked] = allocate.sort_clients(found)
        if self._instance.client_id not in members[asked]:
            # The broker has forgotten us, or doesn't know us yet; giving all up would only move the work around.
            self._instance.heartbeat_soon()
            raise RemotingError(f"{asked} doesn't know this member of {self._group} yet")
        share = list(self._strategy(sorted(route.readable), members[asked], self._instance.client_id))
        strange = set(share) - set(route.readable)
        if strange:
            raise ClientError(f"the allocation strategy gave queues that aren't in the route: {_listed(sorted(strange))}")
        return share

    async def _apply(self, shares: dict[str, list[MessageQueue]], company: bool) -> bool:
        """Give up and take; whether there are queues that others have locked."""
        ours = {queue for share in shares.values() for queue in share}
        lost = [queue for queue, process_queue in self.queues.items() if self._is_lost(process_queue, shares, ours)]
        if lost:
            log.info("group %s gives up %s", self._group, _listed(lost))
            leaving = [self.queues[queue] for queue in lost]
            # They stay among ours until all is stored, so that a close in between stores them too.
            await self._give_up(leaving)
            self.lose([each for each in leaving if each.dropped and self.queues.get(each.queue) is each])
        new = sorted(queue for queue in ours - self.queues.keys() if not self._is_away(queue))
        unlocked = False
        if self._locks is not None:
            await self._locks.unlock_others(ours | self.queues.keys())
            locked = await self._locks.lock(new)
            unlocked = None in locked.values()
            until = {queue: time for queue, time in locked.items() if time is not None}
        else:
            until = dict.fromkeys(new, math.inf)
            if new and company:
                await asyncio.sleep(TAKE_OVER_SECONDS)
        taken = await self._take(until)
        if taken:
            log.info("group %s takes %s", self._group, _listed(taken))
        if lost or taken:
            self._instance.heartbeat_soon()
        return unlocked

    def _is_away(self, queue: MessageQueue) -> bool:
        """Whether no broker has it now, as may be with a static topic's: it is taken when the route tells one."""
        return self._instance.routes.address(queue) is None

    def _is_lost(
        self, process_queue: ProcessQueue, shares: Mapping[str, list[MessageQueue]], ours: Collection[MessageQueue]
    ) -> bool:
        queue = process_queue.queue
        if process_queue.leaving_since is not None or queue.topic not in self._subscriptions:
            return True
        return queue.topic in shares and queue not in ours

    async def _take(self, until: Mapping[MessageQueue, float]) -> list[MessageQueue]:
        """Begin the queues of which it is known where."""
        one_by_one = asyncio.Semaphore(ASKING_MAX)

        async def take(queue: MessageQueue) -> bool:
            async with one_by_one:
                try:
                    start = await self._offsets.start_of(queue)
                except RockMQError as error:
                    if queue not in self._unbegun:
                        self._unbegun.add(queue)
                        log.warning("where to begin in queue %d of %s isn't known, trying again: %s",
                                    queue.queue_id, queue.topic, error)  # fmt: skip
                    return False
                self._unbegun.discard(queue)
                if queue.topic not in self._subscriptions:
                    return False  # unsubscribed meanwhile
                self.open(queue, start, until[queue])
                if self._listener is not None:
                    self._listener.won([queue])
                return True

        queues = list(until)
        taken = await asyncio.gather(*map(take, queues))
        if self._locks is not None and not all(taken):
            await self._locks.unlock([queue for queue, ours in zip(queues, taken, strict=True) if not ours])
        return [queue for queue, ours in zip(queues, taken, strict=True) if ours]

    def lose(self, process_queues: Collection[ProcessQueue]) -> None:
        """They were ours, and have ended."""
        for process_queue in process_queues:
            del self.queues[process_queue.queue]
        if self._listener is not None:
            self._listener.lost(each.queue for each in process_queues)

    def open(self, queue: MessageQueue, offset: int, locked_until: float = math.inf) -> None:
        """Begin a queue at an offset."""
        process_queue = self.queues[queue] = ProcessQueue(queue, offset)
        process_queue.locked_until = locked_until
        self._opened(process_queue)


def _listed(queues: Collection[MessageQueue]) -> str:
    """Queues for people; rows of neighbours as their first and last."""
    rows: dict[str, list[list[int]]] = {}
    for queue in sorted(queues):
        numbers = rows.setdefault(f"{queue.topic} on {queue.broker_name}", [])
        if numbers and numbers[-1][-1] == queue.queue_id - 1:
            numbers[-1][1:] = [queue.queue_id]
        else:
            numbers.append([queue.queue_id])
    return "; ".join(f"{name}: {', '.join('-'.join(map(str, row)) for row in numbers)}" for name, numbers in rows.items())
