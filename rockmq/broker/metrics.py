"""What the broker tells of itself at `/metrics`, `/healthz` and `/readyz`.

Each source reads one part of the broker and gives samples piece by piece; `rockmq/metrics/names.py` says what they mean.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from rockmq.base.clock import Clock
from rockmq.broker.clients import Client, ClientTables
from rockmq.broker.creations import Creations
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.groups import GroupTable
from rockmq.broker.lag import ConsumerLag
from rockmq.broker.long_polling import LongPolling
from rockmq.broker.pop import Pops
from rockmq.broker.topics import TopicTable
from rockmq.broker.traffic import KINDS, Given, Key, Traffic, is_system
from rockmq.broker.transactions import Transactions
from rockmq.config.broker import BrokerOptions
from rockmq.metrics import names
from rockmq.metrics.samples import Ranges, Sample, yes
from rockmq.protocol import codec, topics
from rockmq.protocol.versions import description
from rockmq.remoting.dispatch import Dispatcher
from rockmq.remoting.figures import requests
from rockmq.remoting.server import RemotingServer
from rockmq.store.disk import Usage, usage
from rockmq.store.message_store import MessageStore
from rockmq.store.timers import TimerStore

TOPICS_AT_ONCE = 50
"""Topics whose counts are asked of the core at a time."""
SLOTS_AT_ONCE = 2_000
"""Slots of the wheel that are counted at a time."""
TRIES_MAX = 2_000
"""How often a scrape asks for slots once more because another thread is at work on the wheel; then it goes without them."""
REMOTING = "remoting"
DISK = ("disk", "local")
_CONSUME_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push", "CONSUME_POP": "pop"}

Samples = Iterator[Sample | None]


@dataclass(kw_only=True)
class BrokerMetrics:
    """All samples of a broker that serves."""

    options: BrokerOptions
    clock: Clock
    store: MessageStore
    topics: TopicTable
    groups: GroupTable
    clients: ClientTables
    traffic: Traffic
    lag: ConsumerLag
    transactions: Transactions
    timers: TimerStore | None
    pops: Pops
    gate: DurabilityGate
    long_polling: LongPolling
    server: RemotingServer
    dispatch: Dispatcher
    creations: Creations

    def samples(self) -> Samples:
        sources: tuple[Callable[[], Samples], ...] = (
            self._tables,
            self._incoming,
            self._outgoing,
            self._connections,
            self.lag.samples,
            self._transactions,
            self.creations.samples,
            self._requests,
            self._storage,
            self._timers,
            self._own,
        )
        for source in sources:
            yield from source()

    def _tables(self) -> Samples:
        yield names.PERMISSION, (), self.options.topics.broker_permission
        yield names.TOPICS, (), len(self.topics.all())
        yield names.GROUPS, (), len(self.groups.all())

    def _incoming(self) -> Samples:
        number = 0
        while told := self.store.core.traffic(number, TOPICS_AT_ONCE):
            number += len(told)
            for topic, counts, ends in told:
                # Those counted together belong to no topic.
                name = topic if topic is not None else ""
                for kind, messages, size, (total, sizes) in counts:
                    labels = (yes(topics.is_system(name)), KINDS[kind], name)
                    yield names.MESSAGES_IN, labels, messages
                    yield names.BYTES_IN, labels, size
                    yield names.MESSAGE_SIZE, labels, Ranges(sizes, total)
                if ends is not None:
                    committed, rolled_back, (seconds, latencies) = ends
                    if committed:
                        yield names.COMMITTED, (name,), committed
                        yield names.COMMIT_TIME, (name,), Ranges(latencies, seconds)
                    if rolled_back:
                        yield names.ROLLED_BACK, (name,), rolled_back
            yield None

    def _outgoing(self) -> Samples:
        messages, size = self.store.core.delivered
        if messages:
            labels = ("SCHEDULE_CONSUMER", "", "true", topics.SCHEDULE)
            yield names.MESSAGES_OUT, labels, messages
            yield names.BYTES_OUT, labels, size
        others: tuple[Key, Given] = (("", "", None), self.traffic.others)
        for (topic, group, is_retry), given in [*self.traffic.given.items(), others]:
            if given.messages:
                retry = "" if is_retry is None else yes(is_retry)
                labels = (group, retry, yes(is_system(topic, group)), topic)
                yield names.MESSAGES_OUT, labels, given.messages
                yield names.BYTES_OUT, labels, given.bytes
        for (group, topic), count in list(self.traffic.dead_letters.items()):
            yield names.DEAD_LETTERS, (group, yes(is_system(topic, group)), topic), count

    def _connections(self) -> Samples:
        producers: dict[tuple[str, str], int] = {}
        for name in list(self.clients.producers):
            for member in self.clients.producers.get(name, {}).values():
                told = _told(member)
                producers[told] = producers.get(told, 0) + 1
            yield None
        for (language, version), count in producers.items():
            yield names.PRODUCERS, (language, REMOTING, version), count
        for name in list(self.clients.consumers):
            group = self.clients.consumers.get(name)
            members: dict[tuple[str, str], int] = {}
            for member in group.members.values() if group is not None else ():
                told = _told(member)
                members[told] = members.get(told, 0) + 1
            for (language, version), count in members.items():
                assert group is not None
                mode = _CONSUME_MODES.get(group.consume_type, "unknown")
                yield names.CONSUMERS, (mode, name, yes(is_system("", name)), language, REMOTING, version), count
            yield None

    def _transactions(self) -> Samples:
        for each in self.transactions.by_topic():
            yield None if each is None else (names.HALVES, (each[0],), each[1])

    def _requests(self) -> Samples:
        yield from requests(self.dispatch)
        answered = sum(sum(histogram.ranges.counts) for histogram in self.dispatch.latencies.values())
        yield names.LANE, ("core",), self.store.core.taken
        yield names.LANE, ("python",), answered

    def _storage(self) -> Samples:
        core, now = self.store.core, self.clock.now_ms()
        behind = core.max_position - core.flushed_position
        yield names.FLUSH_BEHIND, DISK, behind
        yield names.DISPATCH_BEHIND, DISK, 0
        stored = core.first_timestamp()
        if stored is not None:
            yield names.RESERVE_TIME, DISK, max(0, now - stored)
        messages, size = core.appended
        yield names.LOG_MESSAGES, (), messages
        yield names.LOG_BYTES, (), size
        yield names.FLUSH_LAG, (), max(0, now - core.forced_until) / 1000 if behind and core.forced_until else 0
        by_disk: dict[int, Usage] = {}
        for path in (self.store.root, *self.store.log_directories):
            # A disk that fails has no figures; the others have theirs.
            with contextlib.suppress(OSError):
                by_disk.setdefault(os.stat(path).st_dev, usage(path))
        for disk in by_disk.values():
            if disk.path == self.store.root:
                yield names.STORAGE, DISK, disk.used
            yield names.DISK_TOTAL, (str(disk.path),), disk.total
            yield names.DISK_FREE, (str(disk.path),), disk.free
            yield names.DISK_RATIO, (str(disk.path),), disk.percent / 100
        yield names.DISK_WARNING, (), self.options.retention.disk_space_warning_level_ratio / 100
        yield names.TAKES, (), int(self.store.refusal is None)
        if self.store.scrub is not None:
            yield names.SCRUBBED, (), self.store.scrub.scrubbed
            yield names.SCRUB_FAULTS, (), self.store.scrub.faults
            yield names.SCRUB_ROUND, (), self.store.scrub.last_round / 1000

    def _timers(self) -> Samples:
        for topic, histogram in list(self.traffic.delays.items()):
            yield names.TIMER_DELAYS, (*DISK, topic), histogram.ranges
        timers = self.timers
        if timers is None:
            return
        now = self.clock.now_ms()
        yield names.TIMER_BEHIND, DISK, timers.behind
        first = self.store.store_timestamp(topics.TIMER, 0, timers.offset) if timers.behind else -1
        yield names.TIMER_BEHIND_MS, DISK, max(0, now - first) if first > 0 else 0
        yield names.TIMER_DUE, DISK, timers.pending
        yield names.TIMER_LATE_MS, DISK, max(0, now - timers.read_time) // 1000
        for metric, by_topic in (
            (names.TIMING, timers.pending_by),
            (names.TIMER_IN, dict(timers.enqueued_by)),
            (names.TIMER_OUT, dict(timers.delivered_by)),
        ):
            for topic, count in by_topic.items():
                if self.topics.get(topic) is not None:
                    yield metric, (*DISK, topic), count
        begin, tries = now // timers.step * timers.step, TRIES_MAX
        for low, high in pairwise((0, *names.TIMER_BOUNDS_SECONDS)):
            total, slot, end = 0, begin + low * 1000, begin + high * 1000
            while slot < end:
                to = min(end, slot + SLOTS_AT_ONCE * timers.step)
                found = timers.count_between(slot, to)
                if found is not None:
                    total, slot = total + found, to
                elif tries == 0:
                    return
                else:
                    tries -= 1
                yield None
            yield names.TIMER_SNAPSHOT, (*DISK, str(high)), total

    def _own(self) -> Samples:
        yield names.BUILD, (codec.SOFTWARE_VERSION,), 1
        yield names.WAITERS, ("core",), self.server.held
        yield names.WAITERS, ("python",), self.gate.waiting
        yield names.TURNS, (), self.server.turns
        yield names.CONNECTIONS, (), self.server.connection_count
        yield names.PARKED, (), self.long_polling.count
        yield names.POPPED, (), self.pops.in_flight


def _told(client: Client) -> tuple[str, str]:
    return client.language.lower(), description(client.version).lower()
