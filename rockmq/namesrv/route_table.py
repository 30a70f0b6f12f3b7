"""Which brokers live, and which topics they serve (RouteInfoManager.java; protocol spec, 3.3).

Pure data: no IO, and the clock is handed in. A connection is only told apart from others here, never used.

What holds at every moment:
1. A broker has at least one address; the last address gone, its queues and its place in the cluster go too.
2. An address serves one broker under one id; the table of the living has exactly the addresses of the brokers.
3. Queues belong to a broker that is known; a topic has queues on at least one broker.
4. A refused registration changes nothing.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET

from rockmq.base.clock import Clock
from rockmq.base.errors import RockMQError
from rockmq.protocol.bodies.common import DataVersion, TopicConfig
from rockmq.protocol.bodies.route import BrokerData, BrokerMemberGroup, ClusterInfo, QueueData, TopicRouteData

log = logging.getLogger(__name__)

MASTER_ID = 0
PERM_WRITE = 2
PERM_READ = 4
SILENCE_MS_MAX = 120_000
"""A broker silent for so long is gone, unless its registration declares another time."""
BROKERS_MAX = 10_000
"""Addresses that may be registered at once."""
TOPICS_MAX = 1_000_000
"""Topics with a route."""


class RegistrationRefused(RockMQError):
    """A registration that can't be taken; the table is as it was."""

    def __init__(self, text: str, *, retriable: bool = False) -> None:
        super().__init__(text)
        self.retriable = retriable


@dataclass(slots=True, frozen=True, kw_only=True)
class Registration:
    """What a broker says of itself. `acting_master` is None where the broker is too old to know of it."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    ha_address: str = ""
    zone: str | None = None
    timeout_ms: int | None = None
    acting_master: bool | None = None
    version: DataVersion = field(default_factory=DataVersion)
    topics: Mapping[str, TopicConfig] = field(default_factory=dict)
    filter_servers: list[str] = field(default_factory=list)
    mappings: Mapping[str, Any] = field(default_factory=dict)
    """Static topics' queues, passed on to clients as they came."""


@dataclass(slots=True, frozen=True)
class Master:
    """What a slave is told of its master; empty for a master, and while there is none."""

    address: str | None = None
    ha_address: str | None = None


@dataclass(slots=True)
class _Broker:
    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    acting_master: bool = False
    zone: str | None = None
    queues: dict[str, QueueData] = field(default_factory=dict)
    mappings: dict[str, Any] = field(default_factory=dict)

    def data(self) -> BrokerData:
        addresses = {str(each): self.addresses[each] for each in sorted(self.addresses)}
        return BrokerData(
            broker_addrs=addresses,
            broker_name=self.name,
            cluster=self.cluster,
            enable_acting_master=self.acting_master,
            zone_name=UNSET if self.zone is None else self.zone,
        )


@dataclass(slots=True)
class _Live:
    cluster: str
    broker_name: str
    seen: float
    timeout: float
    version: DataVersion
    connection: object
    ha_address: str
    filter_servers: list[str]


class RouteTable:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._brokers: dict[str, _Broker] = {}
        self._clusters: dict[str, set[str]] = {}
        self._living: dict[str, _Live] = {}  # by address
        self._topics: dict[str, dict[str, QueueData]] = {}
        self.expired = 0
        """Brokers that fell silent."""

    # Brokers

    def register(self, registration: Registration, connection: object, *, drop_missing: bool = False) -> Master:
        """Take a registration that came by `connection`; a slave learns its master. Raises RegistrationRefused.

        With `drop_missing` the broker's topics that the registration lacks are dropped, otherwise kept.
        """
        it = registration
        known = self._brokers.get(it.broker_name)
        held = known.addresses.get(it.broker_id) if known is not None else None
        before = self._living.get(it.address)
        if held is not None and held != it.address and self._is_newer(held, it.version):
            # A deposed master that doesn't know it yet. It is told nothing, as by Apache, and loses its place.
            log.warning("a registration is ignored: the broker at %s has a newer state", held, extra=_about(it))
            self._forget(it.address)
            return Master()
        moved = before is not None and (before.cluster, before.broker_name) != (it.cluster, it.broker_name)
        self._check(it, is_new=held is None or moved)
        if moved:
            self._forget(it.address)

        broker = self._enter(it)
        self._living[it.address] = _Live(
            cluster=it.cluster,
            broker_name=it.broker_name,
            seen=self._clock.monotonic(),
            timeout=(SILENCE_MS_MAX if it.timeout_ms is None else it.timeout_ms) / 1000,
            version=it.version,
            connection=connection,
            ha_address=it.ha_address,
            filter_servers=it.filter_servers,
        )
        if before is None:
            log.info("a broker registered with %d topics", len(it.topics), extra=_about(it))
        if it.broker_id == MASTER_ID or (it.acting_master is not None and it.broker_id == min(broker.addresses)):
            changed = held is None or moved or before is None or before.version != it.version
            self._take_topics(broker, it, everything=changed, drop_missing=drop_missing)
        return Master() if it.broker_id == MASTER_ID else self._master_of(broker)

    def _is_newer(self, address: str, version: DataVersion) -> bool:
        live = self._living.get(address)
        return live is not None and live.version.state_version > version.state_version

    def _check(self, it: Registration, *, is_new: bool) -> None:
        if is_new and len(it.topics) == 1:
            raise RegistrationRefused(
                f"register broker failed: {_title(it)} at {it.address} isn't registered yet, so its first registration "
                "must carry all its topics, not one",
                retriable=True,
            )
        if it.address not in self._living and len(self._living) >= BROKERS_MAX:
            raise RegistrationRefused(f"register broker failed: {BROKERS_MAX} brokers are registered, the bound")
        if len(self._topics) + len(it.topics) > TOPICS_MAX:
            fresh = sum(topic.topic_name not in self._topics for topic in it.topics.values())
            if len(self._topics) + fresh > TOPICS_MAX:
                raise RegistrationRefused(
                    f"register broker failed: {len(self._topics)} topics and {fresh} new ones exceed the bound {TOPICS_MAX}"
                )

    def _enter(self, it: Registration) -> _Broker:
        """The broker, with the address under this id and no other."""
        broker = self._brokers.get(it.broker_name)
        if broker is None:
            broker = self._brokers[it.broker_name] = _Broker(it.cluster, it.broker_name)
        elif broker.cluster != it.cluster:
            log.warning("a broker's name is also used in cluster %s", broker.cluster, extra=_about(it))
        self._clusters.setdefault(it.cluster, set()).add(it.broker_name)
        # A slave that became master keeps its address and changes its id.
        for each in [each for each, address in broker.addresses.items() if address == it.address]:
            del broker.addresses[each]
        replaced = broker.addresses.get(it.broker_id)
        if replaced is not None:
            log.warning("a broker moves from %s", replaced, extra=_about(it))
            self._living.pop(replaced, None)
        broker.addresses[it.broker_id] = it.address
        broker.acting_master = bool(it.acting_master)
        broker.zone = it.zone
        return broker

    def _take_topics(self, broker: _Broker, it: Registration, *, everything: bool, drop_missing: bool) -> None:
        if drop_missing and not it.mappings:
            named = {topic.topic_name for topic in it.topics.values()}
            for name in [name for name in broker.queues if name not in named]:
                self._drop_queues(broker, name)
        read_only = it.broker_id != MASTER_ID and broker.acting_master
        for topic in it.topics.values():
            if everything or topic.topic_name not in broker.queues:
                queues = QueueData(
                    broker_name=broker.name,
                    perm=topic.perm & ~PERM_WRITE if read_only else topic.perm,
                    read_queue_nums=topic.read_queue_nums,
                    topic_sys_flag=topic.topic_sys_flag,
                    write_queue_nums=topic.write_queue_nums,
                )
                self._put_queues(broker, topic.topic_name, queues)
        if everything:
            broker.mappings.update(it.mappings)

    def _master_of(self, broker: _Broker) -> Master:
        address = broker.addresses.get(MASTER_ID)
        live = self._living.get(address) if address is not None else None
        return Master(address, live.ha_address) if live is not None else Master()

    def unregister(self, cluster: str, address: str) -> None:
        """Take a broker's word that it leaves."""
        live = self._living.get(address)
        if live is not None and live.cluster == cluster:
            self._forget(address)

    def heartbeat(self, cluster: str, address: str) -> None:
        """A registered broker lives; of others nothing is known, so nothing happens."""
        live = self._living.get(address)
        if live is not None and live.cluster == cluster:
            live.seen = self._clock.monotonic()

    def version(self, cluster: str, address: str) -> DataVersion | None:
        """The version of the topic table that a broker registered last."""
        live = self._living.get(address)
        return live.version if live is not None and live.cluster == cluster else None

    def brokers_by_cluster(self) -> dict[str, int]:
        """How many addresses are registered."""
        return Counter(live.cluster for live in self._living.values())

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    def expire(self) -> list[object]:
        """Forget the brokers that were silent too long; the connections they had registered by."""
        now = self._clock.monotonic()
        expired = [(address, live) for address, live in self._living.items() if now - live.seen > live.timeout]
        for address, live in expired:
            silent = {"broker": live.broker_name, "address": address}
            log.warning("a broker is gone: silent for %.0f s", now - live.seen, extra=silent)
            self._forget(address)
        self.expired += len(expired)
        return [live.connection for _, live in expired]

    def connection_lost(self, connection: object) -> None:
        """Forget the brokers whose latest registration came by this connection."""
        for address in [address for address, live in self._living.items() if live.connection is connection]:
            gone = {"broker": self._living[address].broker_name, "address": address}
            log.warning("a broker is gone: its connection was lost", extra=gone)
            self._forget(address)

    def _forget(self, address: str) -> None:
        live = self._living.pop(address, None)
        broker = self._brokers.get(live.broker_name) if live is not None else None
        if broker is None:
            return
        for each in [each for each, held in broker.addresses.items() if held == address]:
            del broker.addresses[each]
        if broker.addresses:
            if broker.acting_master and MASTER_ID not in broker.addresses:
                for queues in broker.queues.values():
                    queues.perm &= ~PERM_WRITE
            return
        for name in list(broker.queues):
            self._drop_queues(broker, name)
        del self._brokers[broker.name]
        for cluster in [cluster for cluster, names in self._clusters.items() if broker.name in names]:
            self._clusters[cluster].discard(broker.name)
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        log.info("a broker has no address left", extra={"broker": broker.name})

    # Topics

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Add a topic's queues by hand. Raises RegistrationRefused when a broker isn't registered; nothing is added then."""
        queues = list(queues)
        for each in queues:
            if each.broker_name not in self._brokers:
                raise RegistrationRefused(f"register topic failed: broker {each.broker_name!r} isn't registered here")
        if topic not in self._topics and len(self._topics) >= TOPICS_MAX:
            raise RegistrationRefused(f"register topic failed: {TOPICS_MAX} topics are registered, the bound")
        for each in queues:
            self._put_queues(self._brokers[each.broker_name], topic, each)

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, in one cluster or in all; a broker that still has it brings it back."""
        for name in list(self._topics.get(topic, ())):
            if cluster is None or name in self._clusters.get(cluster, ()):
                self._drop_queues(self._brokers[name], topic)

    def wipe_write_permission(self, broker_name: str) -> int:
        """Take the write permission of all topics of a broker; how many. Its next changed registration undoes this."""
        return self._change_permission(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_permission(self, broker_name: str) -> int:
        """Make all topics of a broker readable and writable; how many."""
        return self._change_permission(broker_name, lambda _: PERM_READ | PERM_WRITE)

    def _change_permission(self, broker_name: str, change: Callable[[int], int]) -> int:
        broker = self._brokers.get(broker_name)
        if broker is None:
            return 0
        for queues in broker.queues.values():
            queues.perm = change(queues.perm)
        return len(broker.queues)

    def _put_queues(self, broker: _Broker, topic: str, queues: QueueData) -> None:
        broker.queues[topic] = queues
        self._topics.setdefault(topic, {})[broker.name] = queues

    def _drop_queues(self, broker: _Broker, topic: str) -> None:
        broker.queues.pop(topic, None)
        broker.mappings.pop(topic, None)
        on = self._topics[topic]
        on.pop(broker.name, None)
        if not on:
            del self._topics[topic]

    # Questions

    def route(self, topic: str) -> TopicRouteData | None:
        """Where a topic is; None when no broker has it."""
        on = self._topics.get(topic)
        if not on:
            return None
        brokers = [self._brokers[name] for name in on]
        mappings = {broker.name: broker.mappings[topic] for broker in brokers if topic in broker.mappings}
        return TopicRouteData(
            broker_datas=[broker.data() for broker in brokers],
            filter_server_table=dict(self._filter_servers(brokers)),
            queue_datas=list(on.values()),
            topic_queue_mapping_by_broker=mappings or UNSET,
        )

    def _filter_servers(self, brokers: list[_Broker]) -> Iterator[tuple[str, list[str]]]:
        for broker in brokers:
            for address in broker.addresses.values():
                live = self._living.get(address)
                if live is not None and live.filter_servers:
                    yield address, live.filter_servers

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            broker_addr_table={name: broker.data() for name, broker in self._brokers.items()},
            cluster_addr_table={cluster: sorted(names) for cluster, names in self._clusters.items()},
        )

    def member_group(self, cluster: str, broker_name: str) -> BrokerMemberGroup:
        """The addresses of a broker's group; none when it isn't known."""
        broker = self._brokers.get(broker_name)
        addresses = broker.data().broker_addrs if broker is not None else {}
        return BrokerMemberGroup(broker_addrs=addresses, broker_name=broker_name, cluster=cluster)

    def topics(self) -> list[str]:
        return list(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        """The topics of a cluster's brokers, each once; none for a cluster that isn't known."""
        names = self._clusters.get(cluster, ())
        return list(dict.fromkeys(topic for name in sorted(names) for topic in self._brokers[name].queues))

    def topics_with_flags(self, wanted: Callable[[int], bool]) -> list[str]:
        """The topics whose `topicSysFlag`, on the first broker that has them, is wanted."""
        return [topic for topic, on in self._topics.items() if wanted(next(iter(on.values())).topic_sys_flag)]

    def system_topics(self) -> list[str]:
        """Clusters and brokers: topics named like them are the system's."""
        return list(
            dict.fromkeys(name for cluster in self._clusters for name in (cluster, *sorted(self._clusters[cluster])))
        )

    def any_address(self) -> str | None:
        """The address of some broker."""
        return next((address for broker in self._brokers.values() for address in broker.addresses.values()), None)

    def broker_names(self) -> list[str]:
        return list(self._brokers)


def within_zone(route: TopicRouteData, zone: str) -> TopicRouteData:
    """The route without brokers of other zones; one without a master stays, so that its slaves can be read from."""
    outside = {
        broker.broker_name: broker
        for broker in route.broker_datas
        if str(MASTER_ID) in broker.broker_addrs and (broker.zone_name or "").lower() != zone.lower()
    }
    gone = {address for broker in outside.values() for address in broker.broker_addrs.values()}
    return TopicRouteData(
        broker_datas=[broker for broker in route.broker_datas if broker.broker_name not in outside],
        filter_server_table={address: found for address, found in route.filter_server_table.items() if address not in gone},
        order_topic_conf=route.order_topic_conf,
        queue_datas=[queues for queues in route.queue_datas if queues.broker_name not in outside],
        topic_queue_mapping_by_broker=route.topic_queue_mapping_by_broker,
    )


def _about(it: Registration) -> dict[str, object]:
    return {"broker": it.broker_name, "broker_id": it.broker_id, "cluster": it.cluster, "address": it.address}


def _title(it: Registration) -> str:
    return f"{it.broker_name}:{it.broker_id} of {it.cluster}"
