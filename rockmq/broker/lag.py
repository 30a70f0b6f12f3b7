"""How far consumer groups are behind (ConsumerLagCalculator.java), of those that have members, for what they subscribe to.

Apache's broker estimates how many of the messages a filter takes, by default. Here all count.
"""

from collections.abc import Iterator

from rockmq.base.clock import Clock
from rockmq.broker.clients import ClientTables
from rockmq.broker.groups import GroupTable
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.pop import Pops
from rockmq.broker.topics import TopicTable
from rockmq.broker.traffic import Traffic, is_system
from rockmq.config.broker import Topics as TopicOptions
from rockmq.metrics import names
from rockmq.metrics.samples import Sample, yes
from rockmq.protocol import pop, topics
from rockmq.protocol.bodies.common import TopicConfig
from rockmq.protocol.flags import Permission
from rockmq.store.message_store import MessageStore

FOREVER = 2**63


class ConsumerLag:
    def __init__(
        self,
        clock: Clock,
        topic_table: TopicTable,
        groups: GroupTable,
        clients: ClientTables,
        offsets: ConsumerOffsets,
        pops: Pops,
        store: MessageStore,
        traffic: Traffic,
        options: TopicOptions,
    ) -> None:
        self._clock = clock
        self._topics = topic_table
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._pops = pops
        self._store = store
        self._traffic = traffic
        self._options = options

    def samples(self) -> Iterator[Sample | None]:
        for name in list(self._clients.consumers):
            group = self._clients.consumers.get(name)
            if group is None or not self._groups.exists(name):
                continue
            is_pop = group.consume_type == "CONSUME_POP"
            for topic in list(group.subscriptions):
                config = self._readable(topic)
                if config is None or topics.is_retry(topic):
                    continue
                yield from self._of(name, topic, config, is_pop=is_pop, retry_of=None)
                if is_pop:
                    retry = self._readable(pop.retry_topic(topic, name))
                    yield from self._of(name, topic, retry, is_pop=True, retry_of=topic)

    def _readable(self, topic: str) -> TopicConfig | None:
        config = self._topics.get(topic)
        usable = Permission.READ | Permission.WRITE
        return config if config is not None and config.perm & self._options.broker_permission & usable else None

    def _of(
        self, group: str, topic: str, config: TopicConfig | None, *, is_pop: bool, retry_of: str | None
    ) -> Iterator[Sample | None]:
        lag = in_flight = ready = 0
        unconsumed = unpulled = FOREVER
        for queue_id in range(config.write_queue_nums) if config is not None else ():
            assert config is not None
            name = config.topic_name
            low, end = self._store.bounds(name, queue_id)
            if is_pop:
                committed, pulled, out = self._popped(group, name, queue_id, end)
            else:
                committed, pulled, out = self._pulled(group, name, queue_id, end)
            lag += max(0, end - pulled) + out if is_pop else max(0, end - committed)
            in_flight += out
            ready += max(0, end - pulled)
            unconsumed = min(unconsumed, self._stored(name, queue_id, max(committed, low), end))
            unpulled = min(unpulled, self._stored(name, queue_id, max(pulled, low), end))
            yield None
        now = self._clock.now_ms()
        labels = (group, yes(retry_of is not None), yes(is_system(topic, group)), topic)
        yield names.LAG, labels, lag
        yield names.LAG_MS, labels, max(0, now - unconsumed)
        yield names.IN_FLIGHT, labels, in_flight
        yield names.QUEUEING_MS, labels, max(0, now - unpulled)
        yield names.READY, labels, ready

    def _pulled(self, group: str, topic: str, queue_id: int, end: int) -> tuple[int, int, int]:
        """(first message not acknowledged, first one that wasn't pulled, how many are between)."""
        committed = self._offsets.query(group, topic, queue_id)
        pulled = self._traffic.next_offset(group, topic, queue_id)
        if committed is None:
            committed = end
        if pulled is None:
            return committed, end, 0
        pulled = min(pulled, end)
        return committed, pulled, max(0, pulled - committed)

    def _popped(self, group: str, topic: str, queue_id: int, end: int) -> tuple[int, int, int]:
        key = (topic, group, queue_id)
        committed = self._offsets.query(group, topic, queue_id)
        if committed is None:
            return end, end, 0
        return committed, self._pops.next_offset(key), self._pops.held(key)

    def _stored(self, topic: str, queue_id: int, offset: int, end: int) -> int:
        """When a message was stored (ms); `FOREVER` when there is none."""
        stored = self._store.store_timestamp(topic, queue_id, offset) if offset < end else -1
        return stored if stored > 0 else FOREVER
