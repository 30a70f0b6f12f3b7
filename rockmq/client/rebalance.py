"""Which queues are ours (RebalanceImpl.java, RebalanceService.java; clients' spec, 3.2).

Every member asks for the group's members, works out its own share, gives up what isn't in it and takes what is new.
Nothing changes when routes or members can't be had. Two rules of our own keep duplicates rare, and don't disturb members
that are Java clients:
- What is given up is committed after its handlers had a moment to end, and in company a new queue's offset is asked for
  only after that moment.
- When a broker comes back, all members connect again one by one; shares are worked out when they had time to.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping

from rockmq.base.errors import RemotingError, RockMQError, RouteNotFound
from rockmq.client.instance import Instance
from rockmq.client.offsets import Offsets
from rockmq.client.process_queue import ProcessQueue
from rockmq.client.pull import Backoff
from rockmq.client.routes import TopicRoute
from rockmq.protocol import allocate, json, topics
from rockmq.protocol.bodies.client import ConsumerList
from rockmq.protocol.bodies.common import MessageQueue, SubscriptionData
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.client import GetConsumerList

log = logging.getLogger(__name__)

PERIOD_SECONDS = 20.0
UNSETTLED_SECONDS = 1.0
GAP_SECONDS = 0.2
"""Between two rounds, however often members change."""

RETURN_SECONDS = 2.0
"""How long shares stay after a lost broker is back."""

TAKE_OVER_SECONDS = 0.5
"""How long another member has to commit what it gives up; longer than it waits for its handlers."""


class Rebalancer:
    """Keeps `queues` at this client's share. `opened` is told a queue to pull, `give_up` ends queues and commits them."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        offsets: Offsets,
        *,
        opened: Callable[[ProcessQueue], None],
        give_up: Callable[[Collection[ProcessQueue]], Awaitable[None]],
    ) -> None:
        self._instance = instance
        self._group = group
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._opened = opened
        self._give_up = give_up
        self._wanted = asyncio.Event()
        self._not_before = 0.0
        self._missing = Backoff(UNSETTLED_SECONDS, PERIOD_SECONDS)
        self._unknown: set[str] = set()
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

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # In turns, because the time may be put off while we wait for it.
            while (wait := self._not_before - loop.time()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(wait)
            self._wanted.clear()
            try:
                pause = await self._round()
            except Exception:  # without rounds a consumer stands still and nobody knows
                log.exception("sharing the queues of group %s failed, trying again", self._group)
                pause = UNSETTLED_SECONDS
            self._not_before = max(self._not_before, loop.time() + GAP_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wanted.wait()

    async def _round(self) -> float:
        """Make the queues ours that should be; seconds until the next round when nothing happens before."""
        shares: dict[str, list[MessageQueue]] = {}
        members: dict[str, list[str]] = {}
        failed = missing = False
        for topic in self._subscriptions:
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
        failed |= not await self._apply(shares, company)
        if failed:
            return UNSETTLED_SECONDS
        self.settled.set()
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
        return allocate.averagely(sorted(route.readable), members[asked], self._instance.client_id)

    async def _apply(self, shares: dict[str, list[MessageQueue]], company: bool) -> bool:
        """Give up and take; whether every queue of the shares is ours now."""
        ours = {queue for share in shares.values() for queue in share}
        lost = [queue for queue in self.queues if queue.topic in shares and queue not in ours]
        new = sorted(ours - self.queues.keys())
        if lost:
            log.info("group %s gives up %s", self._group, _listed(lost))
            # They stay among ours until all is stored, so that a close in between stores them too.
            await self._give_up([self.queues[queue] for queue in lost])
            for queue in lost:
                del self.queues[queue]
        if not new:
            if lost:
                self._instance.heartbeat_soon()
            return True
        if company:
            await asyncio.sleep(TAKE_OVER_SECONDS)
        taken = await asyncio.gather(*map(self._take, new))
        log.info("group %s takes %s", self._group, _listed([queue for queue in new if queue in self.queues]))
        self._instance.heartbeat_soon()
        return all(taken)

    async def _take(self, queue: MessageQueue) -> bool:
        try:
            start = await self._offsets.start_of(queue)
        except RockMQError as error:
            log.warning("where to begin in queue %d of %s isn't known, trying again: %s", queue.queue_id, queue.topic, error)
            return False
        self.open(queue, start)
        return True

    def open(self, queue: MessageQueue, offset: int) -> None:
        """Begin a queue at an offset."""
        process_queue = self.queues[queue] = ProcessQueue(queue, offset)
        self._opened(process_queue)


def _listed(queues: Collection[MessageQueue]) -> str:
    by_broker: dict[str, list[str]] = {}
    for queue in queues:
        by_broker.setdefault(f"{queue.topic} on {queue.broker_name}", []).append(str(queue.queue_id))
    return "; ".join(f"{name}: {', '.join(numbers)}" for name, numbers in by_broker.items()) or "nothing"
