"""Where topics live: routes as name servers tell them, and the queues that follow (MQClientInstance.java; spec 1.3).

Queues to send to: those of brokers whose topic is writable and that have a master (id 0), by broker name and queue id. Order
topics and static topics have the same ones whichever masters are away, so that a key keeps its queue.
Queues to read from: those of every broker whose topic is readable. A topic that no name server knows may be sent to by
the route of the template topic TBW102, with at most four queues a broker: the broker creates it on the first send. Of light
queues no name server knows: they are where the topics are whose messages are in them. Those of static topics have names of
their own: see `static_queues`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import NamedTuple

from rockmq.base.errors import (
    ClientClosed,
    ConnectError,
    ProtocolError,
    RemotingError,
    ResponseError,
    RockMQError,
    RouteNotFound,
)
from rockmq.base.tasks import Tasks, shared
from rockmq.client import static_queues
from rockmq.client.namesrv import NameServers
from rockmq.client.static_queues import QUEUES_MAX
from rockmq.protocol import codec, json, topics
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.bodies.route import QueueData, TopicRouteData
from rockmq.protocol.bodies.static_topic import QueuePlacement, StaticRoute
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.flags import Permission
from rockmq.protocol.headers.route import GetRouteInfo

log = logging.getLogger(__name__)

MASTER_ID = 0
REFRESH_SECONDS = 30.0
LOOKUP_TIMEOUT = 3.0
TEMPLATE_QUEUES_MAX = 4
LIGHT_QUEUES_MAX = 100_000
"""Names of light queues that a client keeps: those that were asked for last."""
SOON_SECONDS = 1.0
"""How long after a hint that a route is stale it is asked for again, however many hints come."""


class Target(NamedTuple):
    """A queue to send to, with what a send needs of it."""

    queue: MessageQueue
    queue_id: str
    broker_name: str
    """Of the broker that has the queue; of static topics the queue doesn't tell it."""
    address: str
    """Of its master; "" where there is none now."""


class TopicRoute:
    """One topic's route, worked out once."""

    def __init__(
        self,
        topic: str,
        data: TopicRouteData,
        *,
        template: bool = False,
        placements: Mapping[str, QueuePlacement] | None = None,
    ) -> None:
        self.topic = topic
        self.data = data
        self.template = template
        """True when this is the template's route, lent to a topic that doesn't exist yet."""
        self.brokers = {each.broker_name: _by_id(each.broker_addrs) for each in data.broker_datas}
        self._hosts = static_queues.hosts(topic, placements or {})
        """Of a static topic, the queues and which broker has them."""
        self.targets = self._targets()
        self.readable = tuple(self._hosts) or tuple(
            MessageQueue(topic, queues.broker_name, number)
            for queues in sorted(data.queue_datas, key=_broker_name)
            if queues.perm & Permission.READ
            for number in _numbers(queues.broker_name, queues.read_queue_nums)
        )

    def _targets(self) -> tuple[Target, ...]:
        order = self.data.order_topic_conf
        if isinstance(order, str) and order:
            counts = [(name, int(count)) for name, count in map(_pair, order.split(";"))]
        elif self._hosts:
            return self._at_masters(self._hosts.items())
        else:
            counts = [
                (queues.broker_name, queues.write_queue_nums)
                for queues in sorted(self.data.queue_datas, key=_broker_name)
                if queues.perm & Permission.WRITE and self.master(queues.broker_name)
            ]
        return self._at_masters(
            (MessageQueue(self.topic, name, number), name) for name, count in counts for number in _numbers(name, count)
        )

    def _at_masters(self, queues: Iterable[tuple[MessageQueue, str]]) -> tuple[Target, ...]:
        return tuple(Target(queue, str(queue.queue_id), name, self.master(name) or "") for queue, name in queues)

    @property
    def is_static(self) -> bool:
        return bool(self._hosts)

    def broker_of(self, queue: MessageQueue) -> str:
        """The name of the broker that has the queue; "" for one of a static topic that none has."""
        return self._hosts.get(queue, queue.broker_name)

    def master(self, broker_name: str) -> str | None:
        return self.brokers.get(broker_name, {}).get(MASTER_ID)

    def masters(self) -> set[str]:
        return {ids[MASTER_ID] for ids in self.brokers.values() if MASTER_ID in ids}

    def light_queues(self, name: str) -> list[MessageQueue]:
        """The light queues of that name, which brokers have beside those of this topic: queue 0 of each."""
        return [MessageQueue(name, broker_name, 0) for broker_name in sorted({*map(self.broker_of, self.readable)} - {""})]

    def all_addresses(self) -> set[str]:
        return {each for ids in self.brokers.values() for each in ids.values()}


def _broker_name(data: QueueData) -> str:
    return data.broker_name


def _numbers(broker_name: str, queues: int) -> range:
    """Those of a topic's queues at a broker. Raises ValueError for more than there can be."""
    if queues > QUEUES_MAX:
        raise ValueError(f"broker {broker_name} has {queues} queues, expected {QUEUES_MAX} at most")
    return range(queues)


def _by_id(addresses: dict[str, str]) -> dict[int, str]:
    return {int(number): each for number, each in addresses.items()}


def _pair(text: str) -> tuple[str, str]:
    name, _, count = text.partition(":")
    return name, count


class Routes:
    """The routes in use, kept fresh; `changed` is told the topic whose route is new or different."""

    def __init__(
        self, names: NameServers, tasks: Tasks, make_request: Callable[..., codec.Command], changed: Callable[[str], None]
    ) -> None:
        self._names = names
        self._tasks = tasks
        self._make_request = make_request
        self._changed = changed
        self._routes: dict[str, TopicRoute] = {}
        self._lent: dict[str, TopicRoute] = {}
        self._carriers: dict[str, set[str]] = {}
        """By light queue, the topics that it is beside; what was asked for last is last."""
        self._lookups: dict[tuple[str, str], asyncio.Task[TopicRoute]] = {}
        self._stale: dict[str, asyncio.TimerHandle] = {}
        self._addresses: frozenset[str] = frozenset()
        self._masters: frozenset[str] = frozenset()

    def start(self) -> None:
        self._tasks.every(REFRESH_SECONDS, self.refresh, "route refresh")

    def close(self) -> None:
        for timer in self._stale.values():
            timer.cancel()
        for lookup in self._lookups.values():
            lookup.cancel()

    # What is known

    def _behind(self, topic: str) -> Iterable[str]:
        """The topics whose routes tell where the queues are."""
        return self._carriers.get(topic, (topic,))

    def known(self, topic: str) -> list[TopicRoute]:
        """The topic's route, or those of the topics that light queues of that name are beside; none that isn't known."""
        return [self._routes[each] for each in self._behind(topic) if each in self._routes]

    def readable(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, or the light queues of that name, as far as they are known."""
        is_light = topic in self._carriers
        return sorted(
            {queue for route in self.known(topic) for queue in (route.light_queues(topic) if is_light else route.readable)}
        )

    async def light_queues(self, name: str, topic: str) -> list[MessageQueue]:
        """The light queues beside those of `topic`, which are found by its route, too, from now on. Raises RouteNotFound,
        RemotingError."""
        route = await self.fetch(topic)
        # The name that was asked for last is the last to be dropped.
        self._carriers[name] = self._carriers.pop(name, set()) | {topic}
        if len(self._carriers) > LIGHT_QUEUES_MAX:
            del self._carriers[next(iter(self._carriers))]
        return route.light_queues(name)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, or the light queues of that name, as they are now. Raises RouteNotFound, RemotingError."""
        for each in list(self._behind(topic)):
            await self.fetch(each)
        return self.readable(topic)

    def for_sending(self, topic: str) -> TopicRoute | None:
        """The topic's own route, or the template's that was lent to it."""
        return self._routes.get(topic) or self._lent.get(topic)

    def is_broker(self, address: str) -> bool:
        return address in self._addresses

    def addresses(self, *, slaves: bool) -> frozenset[str]:
        """Addresses of the brokers in all routes; without `slaves` just those of masters."""
        return self._addresses if slaves else self._masters

    def address(self, queue: MessageQueue, broker_id: int = MASTER_ID) -> str | None:
        """Where to read a queue: at the broker of that id, else the next one, else any (findBrokerAddressInSubscribe)."""
        known = self.known(queue.topic)
        ids = next((found for route in known if (found := route.brokers.get(route.broker_of(queue)))), None)
        if not ids:
            return None
        return ids.get(broker_id) or ids.get(broker_id + 1) or next(iter(ids.values()))

    def master(self, queue: MessageQueue) -> str | None:
        return next((found for route in self.known(queue.topic) if (found := route.master(route.broker_of(queue)))), None)

    def broker(self, queue: MessageQueue) -> str:
        """The name of the broker that has the queue, as far as it is known."""
        return next((found for route in self.known(queue.topic) if (found := route.broker_of(queue))), queue.broker_name)

    def nowhere(self, queue: MessageQueue) -> ConnectError:
        """Why a queue without an address can't be reached."""
        name = self.broker(queue)
        if name == queue.broker_name and static_queues.is_static(queue):
            return ConnectError(f"no broker says that it has queue {queue.queue_id} of {queue.topic}")
        return ConnectError(f"broker {name} stands in no route of {queue.topic}")

    # Asking

    async def get(self, topic: str) -> TopicRoute:
        """The route, asked for when it isn't known. Raises RouteNotFound, RemotingError."""
        known = self.known(topic)
        return known[0] if known else await self.fetch(topic)

    async def fetch(self, topic: str) -> TopicRoute:
        """Ask for the route now. Raises RouteNotFound, RemotingError."""
        return await shared(self._lookup(topic, self._fetch), ClientClosed("this client is closed"))

    def lookup_for_sending(self, topic: str) -> "asyncio.Task[TopicRoute]":
        """Ask for the route; a topic that doesn't exist is lent the template's. The task is shared: don't cancel it."""
        return self._lookup(topic, self._fetch_for_sending)

    async def get_for_sending(self, topic: str) -> TopicRoute:
        """As `get`, but a topic that doesn't exist is lent the template's route."""
        known = self.for_sending(topic)
        if known is not None:
            return known
        return await shared(self.lookup_for_sending(topic), ClientClosed("this client is closed"))

    def _lookup(self, topic: str, ask: Callable[[str], Coroutine[None, None, TopicRoute]]) -> "asyncio.Task[TopicRoute]":
        """One question at a time: who asks for the same topic meanwhile gets the same answer."""
        key = (topic, ask.__name__)
        lookup = self._lookups.get(key)
        if lookup is None:
            lookup = self._lookups[key] = asyncio.create_task(ask(topic), name=f"route of {topic}")
            lookup.add_done_callback(lambda _: self._lookups.pop(key, None))
            # When all who asked have gone away, the error is nobody's.
            lookup.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return lookup

    async def _fetch(self, topic: str) -> TopicRoute:
        request = self._make_request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfo(topic=topic, accept_standard_json_only=True)
        )
        try:
            answer = await self._names.ask(request, LOOKUP_TIMEOUT)
        except ResponseError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                text = f"no route for topic {topic!r}: {error.address} knows no routes, so it is no name server"
                raise RouteNotFound(f"{text} (it says {error.remark!r})") from None
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            text = f"no route for topic {topic!r}: name server {error.address} says {error.remark!r}"
            raise RouteNotFound(text) from None
        data = json.decode(answer.body, TopicRouteData, f"route of {topic}")
        placements = None
        if data.topic_queue_mapping_by_broker:
            placements = json.decode(answer.body, StaticRoute, f"route of static topic {topic}").placements
        try:
            route = TopicRoute(topic, data, placements=placements)
        except ValueError as error:
            raise ProtocolError(f"route of {topic}: {error}") from None
        self._apply(route)
        return route

    async def _fetch_for_sending(self, topic: str) -> TopicRoute:
        try:
            return await self._fetch(topic)
        except RouteNotFound as missing:
            try:
                template = await self._fetch(topics.TEMPLATE)
            except RouteNotFound:
                raise missing from None
        data = template.data
        few = [
            QueueData(
                broker_name=each.broker_name,
                perm=each.perm,
                read_queue_nums=min(TEMPLATE_QUEUES_MAX, each.read_queue_nums),
                write_queue_nums=min(TEMPLATE_QUEUES_MAX, each.read_queue_nums),
            )
            for each in data.queue_datas
            # Without the inherit bit a broker doesn't create topics by itself.
            if each.perm & Permission.INHERIT
        ]
        lent = TopicRoute(topic, TopicRouteData(broker_datas=data.broker_datas, queue_datas=few), template=True)
        if not lent.targets:
            raise RouteNotFound(f"no route for topic {topic!r}, and no broker creates topics by itself")
        self._lent[topic] = lent
        self.refresh_soon(topic)
        return lent

    def _apply(self, route: TopicRoute) -> None:
        self._lent.pop(route.topic, None)
        before = self._routes.get(route.topic)
        if before is not None and before.data == route.data:
            return
        self._routes[route.topic] = route
        # Brokers that stand in no route any more are forgotten with this.
        self._addresses = frozenset(each for known in self._routes.values() for each in known.all_addresses())
        self._masters = frozenset(each for known in self._routes.values() for each in known.masters())
        log.info("route of %s: %d queues to read, %d to send to", route.topic, len(route.readable), len(route.targets))
        self._changed(route.topic)

    async def refresh(self) -> None:
        """Ask for every route in use again; what can't be had stays as it was."""
        for topic in [*self._routes, *self._lent]:
            try:
                await self.fetch(topic)
            except RouteNotFound as error:
                log.info("%s", error)
            except RemotingError as error:
                log.warning("routes stay as they are: %s", error)
                return
            except RockMQError as error:
                log.warning("the route of %s stays as it is: %s", topic, error)

    def refresh_soon(self, topic: str) -> None:
        """Something hints that this route has changed: ask again, though not at every hint."""
        for each in self._behind(topic):
            if each not in self._stale:
                self._stale[each] = asyncio.get_running_loop().call_later(SOON_SECONDS, self._refresh_now, each)

    def _refresh_now(self, topic: str) -> None:
        del self._stale[topic]
        self._tasks.start(self._refresh_one(topic), f"route refresh of {topic}")

    async def _refresh_one(self, topic: str) -> None:
        try:
            await self.fetch(topic)
        except RouteNotFound:
            if topic in self._lent:
                self.refresh_soon(topic)
        except RockMQError as error:
            log.info("the route of %s stays as it is: %s", topic, error)
