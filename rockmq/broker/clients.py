"""Who is connected: producers and consumers by group (ProducerManager.java, ConsumerManager.java).

A client is bound to a group by its heartbeats and unbound when it says so, when its connection ends, or when it has sent no
heartbeat for the expiry time. A change among a group's consumers is told to all of them, so that they share the queues anew.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rockmq.base.clock import Clock
from rockmq.protocol.bodies.client import ConsumerData, HeartbeatData
from rockmq.protocol.bodies.common import SubscriptionData
from rockmq.remoting.connection import Connection

log = logging.getLogger(__name__)

UNEQUAL_MAX = 100
"""Groups with unequal subscriptions that are named; all are counted."""
BINDINGS_MAX = 20_000
"""Groups, and subscriptions of them, that one connection may have."""


@dataclass(slots=True)
class Client:
    client_id: str
    connection: Connection
    language: str
    version: int
    seen: float
    access_key: str | None = None
    """Of a producer: who it is by its last heartbeat."""
    wanted: frozenset[tuple[str, str, str]] = frozenset()
    """What a consumer subscribed to by its last full heartbeat: topic, type and text of the expression."""


@dataclass(slots=True)
class _Bindings:
    """The groups of a connection."""

    producing: set[str] = field(default_factory=set)
    consuming: dict[str, int] = field(default_factory=dict)
    """With how many subscriptions, by its last full heartbeat."""


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a group and what they subscribed to; `fingerprint` belongs to heartbeat V2."""

    name: str
    consume_type: str
    message_model: str
    consume_from_where: str
    members: dict[Connection, Client] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    fingerprint: int = 0
    unequal: bool = False
    """Whether its members subscribe to different things, by which messages are lost: each gets only a part of the queues."""

    def find(self, client_id: str) -> Client | None:
        """The member with this id, the newest if it has reconnected."""
        return next((each for each in reversed(self.members.values()) if each.client_id == client_id), None)

    def ask_anew(self) -> None:
        """Have the next heartbeat V2 answered by a wish for all subscriptions. Apache's Java client sends new ones once, and
        not at all when another heartbeat is just on its way (MQClientInstance.sendHeartbeatToAllBrokerWithLockV2): what it
        pulls would be refused for ever."""
        self.fingerprint = 0

    def compare(self) -> None:
        """See whether all members want the same; a change is logged once."""
        wanted = {each.wanted for each in self.members.values() if each.wanted}
        if self.unequal == (len(wanted) > 1):
            return
        self.unequal = not self.unequal
        if not self.unequal:
            log.info("all members subscribe to the same again", extra={"group": self.name})
            return
        common = frozenset.intersection(*wanted)
        differing = {
            each.client_id: sorted(" ".join(one) for one in each.wanted - common)
            for each in self.members.values()
            if each.wanted
        }
        words = "members subscribe to different things and lose messages by that: %s"
        log.warning(words, differing, extra={"group": self.name})

    def client_ids(self) -> list[str]:
        """Each member once; a client that reconnected may hold two connections for a moment."""
        return sorted({client.client_id for client in self.members.values()})

    def subscribe(self, wanted: list[SubscriptionData]) -> bool:
        """Take over subscriptions: newer versions replace, topics that are no longer listed go. True when topics changed."""
        changed = False
        for subscription in wanted:
            held = self.subscriptions.get(subscription.topic)
            if held is None:
                changed = True
                self.subscriptions[subscription.topic] = subscription
            elif subscription.sub_version > held.sub_version:
                if (held.expression_type, held.sub_string) != (subscription.expression_type, subscription.sub_string):
                    log.warning(
                        "a subscription changes from %r to %r; members that differ lose messages",
                        held.sub_string,
                        subscription.sub_string,
                        extra={"group": self.name, "topic": subscription.topic},
                    )
                self.subscriptions[subscription.topic] = subscription
        topics = {subscription.topic for subscription in wanted}
        for topic in [topic for topic in self.subscriptions if topic not in topics]:
            del self.subscriptions[topic]
            changed = True
        return changed


class ClientTables:
    """Producers and consumers. `on_consumers_change` is called with a group whose members or topics changed."""

    def __init__(self, clock: Clock, expiry_seconds: float, on_consumers_change: Callable[[ConsumerGroup], None]) -> None:
        self._clock = clock
        self._expiry = expiry_seconds
        self._on_change = on_consumers_change
        self.producers: dict[str, dict[Connection, Client]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self._producer_ids: dict[str, Connection] = {}
        self._ids: dict[Connection, Counter[str]] = {}
        """In how many groups a connection produces, by the id that it says there."""
        self._bindings: dict[Connection, _Bindings] = {}

    def fault(self, connection: Connection, data: HeartbeatData) -> str | None:
        """Why a heartbeat is more than a connection may bind, None if it isn't."""
        held = self._bindings.get(connection) or _Bindings()
        producing = held.producing | {each.group_name for each in data.producer_data_set}
        consuming = held.consuming | {each.group_name: len(each.subscription_data_set) for each in data.consumer_data_set}
        count = len(producing) + len(consuming) + sum(consuming.values())
        if count <= BINDINGS_MAX:
            return None
        return f"the client would have {count} groups and subscriptions of them; the bound is {BINDINGS_MAX}"

    def _bound(self, connection: Connection) -> _Bindings:
        held = self._bindings.get(connection)
        if held is None:
            held = self._bindings[connection] = _Bindings()
            connection.on_close.append(self._lost)
        return held

    def _client(self, client_id: str, connection: Connection, language: str, version: int) -> Client:
        return Client(client_id, connection, language, version, self._clock.monotonic())

    def beat_producer(
        self,
        group: str,
        client_id: str,
        connection: Connection,
        language: str,
        version: int,
        *,
        access_key: str | None = None,
    ) -> None:
        self._bound(connection).producing.add(group)
        members = self.producers.setdefault(group, {})
        before = members.get(connection)
        member = members[connection] = self._client(client_id, connection, language, version)
        member.access_key = access_key
        if before is None or before.client_id != client_id:
            self._ids.setdefault(connection, Counter())[client_id] += 1
            if before is not None:
                self._release(before)
        self._producer_ids[client_id] = connection

    def _release(self, client: Client) -> None:
        """A connection produces under an id in one group less; after the last one the id isn't its own any more."""
        ids = self._ids[client.connection]
        ids[client.client_id] -= 1
        if ids[client.client_id]:
            return
        del ids[client.client_id]
        if not ids:
            del self._ids[client.connection]
        if self._producer_ids.get(client.client_id) is client.connection:
            del self._producer_ids[client.client_id]

    def producer(self, client_id: str) -> Connection | None:
        """The connection of a client that produces, if it has one here."""
        return self._producer_ids.get(client_id)

    def figures(self) -> dict[str, str]:
        """For the runtime information: groups whose members subscribe to different things."""
        unequal = sorted(group.name for group in self.consumers.values() if group.unequal)
        found = {"unequalSubscriptionGroups": str(len(unequal))}
        if unequal:
            found["unequalSubscriptions"] = ",".join(unequal[:UNEQUAL_MAX])
        return found

    def beat_consumer(
        self,
        data: ConsumerData,
        client_id: str,
        connection: Connection,
        language: str,
        version: int,
        *,
        fingerprint: int,
        without_subscriptions: bool,
    ) -> bool:
        """Bind a consumer; True when the group's subscriptions are known by another fingerprint, so that the client sends
        them in full. A heartbeat without subscriptions never takes any away (protocol spec, pitfall 18)."""
        group = self.consumers.get(data.group_name)
        if group is None:
            group = ConsumerGroup(data.group_name, data.consume_type, data.message_model, data.consume_from_where)
            self.consumers[data.group_name] = group
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from_where = data.consume_from_where
        changed = connection not in group.members
        before = group.members.get(connection)
        member = group.members[connection] = self._client(client_id, connection, language, version)
        bound = self._bound(connection).consuming
        if without_subscriptions:
            member.wanted = before.wanted if before is not None else frozenset()
            bound.setdefault(group.name, 0)
        else:
            changed |= group.subscribe(data.subscription_data_set)
            member.wanted = _wanted(data)
            bound[group.name] = len(data.subscription_data_set)
        if before is None or before.wanted != member.wanted:
            group.compare()
        differs = fingerprint == 0 or group.fingerprint != fingerprint
        group.fingerprint = fingerprint
        if changed:
            self._on_change(group)
        return differs

    def unregister_producer(self, group: str, connection: Connection) -> None:
        members = self.producers.get(group, {})
        client = members.pop(connection, None)
        if not members:
            self.producers.pop(group, None)
        if client is not None:
            self._bound(connection).producing.discard(group)
            self._release(client)

    def unregister_consumer(self, name: str, connection: Connection) -> None:
        group = self.consumers.get(name)
        if group is None or group.members.pop(connection, None) is None:
            return
        self._bound(connection).consuming.pop(name, None)
        if not group.members:
            del self.consumers[name]
        group.compare()
        self._on_change(group)

    def _lost(self, connection: Connection) -> None:
        held = self._bindings[connection]
        for name in list(held.producing):
            self.unregister_producer(name, connection)
        for name in list(held.consuming):
            self.unregister_consumer(name, connection)
        del self._bindings[connection]

    def expire(self) -> None:
        """Close the connections of clients that send no heartbeats any more; that unbinds them."""
        bound = self._clock.monotonic() - self._expiry
        members = [group.members for group in self.consumers.values()]
        for table in [*self.producers.values(), *members]:
            for client in list(table.values()):
                if client.seen < bound:
                    silent = {"client": client.client_id, "peer": client.connection.peer}
                    log.warning("closing a connection: no heartbeat for %g s", self._expiry, extra=silent)
                    client.connection.close()


def _wanted(data: ConsumerData) -> frozenset[tuple[str, str, str]]:
    return frozenset((each.topic, each.expression_type or "TAG", each.sub_string) for each in data.subscription_data_set)
