"""What is measured, and what it has to reach."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

QUEUES = 4


@dataclass(frozen=True)
class Goal:
    """Figures to reach against the contestant named in `against`; None where nothing was promised."""

    throughput_ratio: float | None = None
    cpu_ratio: float | None = None
    """How many times less server CPU per message."""
    mb_per_second: float | None = None
    """Or the loopback's own limit, when that is lower."""
    p999_ratio: float | None = None
    """How many times the other's p99.9 ours may be."""
    latency_ratio: float | None = None
    """How many times the other's p50 and p99 ours may be."""
    against: str = "apache"


@dataclass(frozen=True)
class Earlier:
    """A peer measured before on a machine of this kind: system, load, messages/s, CPU us per message."""

    system: str
    load: str
    messages_per_second: float
    cpu_us: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """One workload. `options` are those of the generator."""

    name: str
    title: str
    options: Mapping[str, object]
    goal: Goal
    mode: str = "send"
    ours: str = "ours"
    rivals: tuple[str, ...] = ("apache",)
    topics: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """How many topics there are, and queues of each, where that isn't one topic of `QUEUES`."""
    preload: Mapping[str, object] = field(default_factory=dict)
    unloaded: tuple[str, ...] = ()
    """Contestants that are measured without `preload`."""
    loopback: bool = False
    """Also measure the same exchange against a stub: what loopback and generator can do."""
    earlier: tuple[Earlier, ...] = ()
    seconds_max: float = 60
    beside: Mapping[str, object] = field(default_factory=dict)
    """A load of pulls that runs meanwhile and isn't counted, as options of the generator."""

    @property
    def topic(self) -> str:
        return "BENCH_" + self.name.replace("-", "_")

    def load(self, contestant: str) -> dict[str, Any]:
        """What the generator is told of the topics a contestant has."""
        return {"topic": self.topic, "queues": QUEUES, **self.topics.get(contestant, {})}

    @property
    def contestants(self) -> list[str]:
        return [self.ours, *self.rivals]

    @property
    def in_megabytes(self) -> bool:
        return self.goal.mb_per_second is not None


ROWS = (
    Row(
        name="64x1-json",
        title="send, 64 connections x 1 in flight, JSON header",
        options={"conns": 64, "window": 1, "serializer": "json"},
        goal=Goal(2.5, 5),
        loopback=True,
        earlier=(
            Earlier("Redis 7.0 Streams", "XADD, 64 x 1, AOF everysec", 71_869, 7.6),
            Earlier("NATS 2.15 JetStream", "sync publish, 64 x 1", 40_501, 22.3),
            Earlier("Kafka 4.3", "raw produce acks=all, 64 x 1", 21_312, 34.9),
        ),
    ),
    Row(
        name="8x64-binary",
        title="send, 8 connections x 64 in flight, binary header",
        options={"conns": 8, "window": 64, "serializer": "binary"},
        goal=Goal(10, 25),
        loopback=True,
        earlier=(
            Earlier("Redis 7.0 Streams", "XADD pipelined, 64 x 64", 197_035, 3.8),
            Earlier("NATS 2.15 JetStream", "async publish, 8 x 64", 146_765, 6.0),
            Earlier("Kafka 4.3", "Java producers, 8 x 64, client batches", 118_208, 4.0),
        ),
    ),
    Row(
        name="tls-8x64",
        title="send with TLS, 8 connections x 64 in flight, binary header",
        options={"conns": 8, "window": 64, "serializer": "binary", "tls": "true"},
        goal=Goal(3),
    ),
    Row(
        name="acl-8x64",
        title="signed sends to brokers with access control on, 8 connections x 64 in flight, binary header",
        options={"conns": 8, "window": 64, "serializer": "binary"},
        ours="ours-acl",
        rivals=("apache-acl",),
        goal=Goal(6, against="apache-acl"),
    ),
    Row(
        name="batch-32",
        title="send batches of 32, 8 connections x 4 in flight",
        options={"conns": 8, "window": 4, "batch": 32, "serializer": "binary"},
        goal=Goal(4, 10),
        earlier=(Earlier("Kafka 4.3", "raw batches of 32, 8 x 4", 393_240, 2.1),),
        seconds_max=6,  # half a gigabyte a second goes to the log
    ),
    Row(
        name="pull-32",
        title="pull 32, 4 queues interleaved in the log, 4 connections x 1",
        mode="pull",
        options={"conns": 4, "window": 1, "pull_max": 32, "serializer": "binary"},
        preload={"conns": 4, "window": 32, "messages": 400_000},
        goal=Goal(2, 3),
        earlier=(
            Earlier("Redis 7.0 Streams", "XREADGROUP COUNT 32, 4 x 1", 479_863, 0.9),
            Earlier("NATS 2.15 JetStream", "fetch 500, 4 consumers", 333_628, 2.8),
            Earlier("Kafka 4.3", "ConsumerPerformance", 1_350_494, 0.2),
        ),
    ),
    Row(
        name="pull-1000",
        title="pull 1,000 of 1 KiB, 4 queues, 4 connections x 1",
        mode="pull",
        options={"conns": 4, "window": 1, "pull_max": 1000, "max_bytes": 4 << 20, "size": 1024, "serializer": "binary"},
        preload={"conns": 4, "window": 4, "batch": 32, "size": 1024, "messages": 400_000},
        goal=Goal(mb_per_second=400),
        loopback=True,
    ),
    Row(
        name="sync-8x64",
        title="sync flush: send, 8 connections x 64 in flight, binary header",
        options={"conns": 8, "window": 64, "serializer": "binary"},
        ours="ours-sync",
        rivals=("apache", "apache-sync"),
        goal=Goal(1, against="apache"),
        earlier=(
            Earlier("Redis 7.0 Streams", "AOF always, XADD pipelined, 64 x 64", 163_613, 3.7),
            Earlier("NATS 2.15 JetStream", "sync_interval always, 8 x 64", 14_000, 29.8),
        ),
    ),
    Row(
        name="sync-64x1",
        title="sync flush: send, 64 connections x 1 in flight, JSON header",
        options={"conns": 64, "window": 1, "serializer": "json"},
        ours="ours-sync",
        rivals=("apache-sync",),
        goal=Goal(2, against="apache-sync"),
        earlier=(
            Earlier("Redis 7.0 Streams", "AOF always, XADD, 64 x 1", 18_506, 11.3),
            Earlier("NATS 2.15 JetStream", "sync_interval always, 64 x 1", 11_318, 47.8),
            Earlier("Kafka 4.3", "flush.messages=1, raw, 64 x 1", 8_949, 125.6),
        ),
    ),
    Row(
        name="rolling",
        title="send, 64 x 1, JSON header; a new log file some times a second, old ones deleted",
        options={"conns": 64, "window": 1, "serializer": "json"},
        ours="ours-rolling",
        rivals=("ours",),
        goal=Goal(p999_ratio=3, against="ours"),
    ),
    Row(
        name="topics",
        title="send to 100,000 topics x 4 queues in turn, 64 x 1, JSON header",
        options={"conns": 64, "window": 1, "serializer": "json"},
        ours="ours-many",
        rivals=("ours", "apache-many", "apache"),
        # Each queue gets its first message before.
        preload={"conns": 8, "window": 64, "messages": 400_000},
        # Apache keeps a file open for each queue, and with 40,000 hits the limit that most machines set.
        topics={
            "ours-many": {"topics": 100_000},
            "apache-many": {"topics": 10_000, "queues": 1},
            "ours": {"topics": 10},
            "apache": {"topics": 10},
        },
        goal=Goal(0.85, against="ours"),
    ),
    Row(
        name="tagged",
        title="send with a tag, 64 x 1, JSON header, beside a group that consumes another tag",
        options={"conns": 64, "window": 1, "serializer": "json", "property": "TAGS=paid"},
        beside={"conns": 4, "window": 1, "expression": "refund || open", "follow": "true", "group": "rockmq_tagged"},
        goal=Goal(4),
        loopback=True,
    ),
    Row(
        name="tagged-8x64",
        title="send with a tag, 8 x 64, binary header, beside a group that consumes another tag",
        options={"conns": 8, "window": 64, "serializer": "binary", "property": "TAGS=paid"},
        beside={"conns": 4, "window": 1, "expression": "refund || open", "follow": "true", "group": "rockmq_tagged"},
        goal=Goal(4),
        loopback=True,
    ),
    Row(
        name="sql",
        title="scan by SQL92 filters that match nothing, 4 connections x 1",
        mode="pull",
        options={
            "conns": 4,
            "window": 1,
            "serializer": "binary",
            "expression": "region = 'north' AND amount BETWEEN 100 AND 200 OR vip IS NOT NULL",
            "expression_type": "SQL92",
        },
        preload={"conns": 4, "window": 32, "messages": 400_000, "property": ("region=south", "amount=150")},
        goal=Goal(3),
    ),
    Row(
        name="delayed",
        title="send with delay level 1, 64 x 1, JSON header; what is due is delivered meanwhile",
        options={"conns": 64, "window": 1, "serializer": "json", "property": "DELAY=1"},
        goal=Goal(3),
    ),
    Row(
        name="timers",
        title="send beside 1,000,000 timers that wait for a day, 64 x 1, JSON header",
        options={"conns": 64, "window": 1, "serializer": "json"},
        ours="ours-timers",
        rivals=("ours",),
        preload={"conns": 8, "window": 64, "messages": 1_000_000, "property": "TIMER_DELAY_SEC=86400"},
        unloaded=("ours",),
        goal=Goal(0.95, against="ours"),
    ),
    Row(
        name="transactions",
        title="transactions: half message and commit, 64 x 1, JSON header",
        mode="transact",
        options={"conns": 64, "window": 1, "serializer": "json"},
        goal=Goal(3),
    ),
    Row(
        name="pop",
        title="pop 32 and acknowledge each, 16 connections x 1, JSON header",
        mode="pop",
        options={"conns": 16, "window": 1, "pull_max": 32},
        preload={"conns": 8, "window": 4, "batch": 32, "messages": 2_000_000, "serializer": "binary"},
        goal=Goal(2),
        seconds_max=4,  # each run is a new group, which has no more than was sent before
    ),
    Row(
        name="latency",
        title="one message at a time, from the send to a consumer whose pull waits",
        mode="latency",
        options={"serializer": "json"},
        goal=Goal(latency_ratio=0.5),
    ),
)
