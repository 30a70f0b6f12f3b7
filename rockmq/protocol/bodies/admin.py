"""What brokers tell administrators (protocol spec, 5.1). Maps by queue have the queue's JSON text as key, see
`MessageQueue.parse`."""

from msgspec import field

from rockmq.protocol.bodies.common import (
    Body,
    DataVersion,
    GroupConfig,
    MessageQueue,
    SubscriptionData,
    TopicConfig,
)
from rockmq.protocol.header import Int, Long


class TopicConfigs(Body, kw_only=True):
    """Attributes to be set have a `+` before their names, those to be removed a `-`."""

    topic_config_list: list[TopicConfig]


class TopicOffset(Body, kw_only=True):
    min_offset: Long
    max_offset: Long
    last_update_timestamp: Long = 0


class TopicStatsTable(Body, kw_only=True):
    offset_table: dict[str, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


class OffsetWrapper(Body, kw_only=True):
    broker_offset: Long
    consumer_offset: Long
    pull_offset: Long = 0
    last_timestamp: Long = 0


class ConsumeStats(Body, kw_only=True):
    offset_table: dict[str, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


class ConsumeStatsList(Body, kw_only=True):
    broker_addr: str = ""
    total_diff: Long = 0
    total_inflight_diff: Long = 0
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)


class GroupConfigs(Body, kw_only=True):
    group_config_list: list[GroupConfig]


class GroupForbidden(Body, kw_only=True):
    group: str
    topic: str
    readable: bool


class LowestOffsets(Body, kw_only=True):
    """By queue id."""

    correction_offsets: dict[int, Long] = field(default_factory=dict)


class GroupTableBody(Body, kw_only=True):
    """`forbidden_table` has bits by group and topic (PermName.java)."""

    subscription_group_table: dict[str, GroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, Int]] = field(default_factory=dict)
    data_version: DataVersion | None = None


class GroupList(Body, kw_only=True):
    group_list: list[str] = field(default_factory=list)


class ProducerInfo(Body, kw_only=True):
    client_id: str
    remote_ip: str = field(name="remoteIP")
    language: str
    version: Int
    last_update_timestamp: Long


class ProducerTable(Body, kw_only=True):
    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


class GroupSubscription(Body, kw_only=True):
    group: str
    topic: str | None = None
    subscription_data: SubscriptionData | None = None


class TimeSpan(Body, kw_only=True):
    message_queue: MessageQueue
    min_time_stamp: Long
    max_time_stamp: Long
    consume_time_stamp: Long
    delay_time: Long


class TimeSpans(Body, kw_only=True):
    consume_time_span_set: list[TimeSpan] = field(default_factory=list)


class ConsumerOffsets(Body, kw_only=True):
    """By `topic@group`, offsets by queue id."""

    offset_table: dict[str, dict[int, Long]] = field(default_factory=dict)


class GroupStatus(Body, kw_only=True):
    """By client, offsets by queue."""

    consumer_table: dict[str, dict[str, Long]] = field(default_factory=dict)


class StatsItem(Body, kw_only=True):
    sum: Long = 0
    tps: float = 0.0
    average: float = field(default=0.0, name="avgpt")


class BrokerStatsData(Body, kw_only=True):
    stats_minute: StatsItem
    stats_hour: StatsItem
    stats_day: StatsItem


class HeldQueue(Body, kw_only=True):
    """A queue that a consumer has: where it stands, what waits in the client; 0 for what never happened."""

    commit_offset: int = 0
    cached_messages: int = field(default=0, name="cachedMsgCount")
    cached_mib: int = field(default=0, name="cachedMsgSizeInMiB")
    locked: bool = False
    dropped: bool = field(default=False, name="droped")
    last_locked: int = field(default=0, name="lastLockTimestamp")
    last_pulled: int = field(default=0, name="lastPullTimestamp")
    last_consumed: int = field(default=0, name="lastConsumeTimestamp")


class PoppedQueue(Body, kw_only=True):
    """What a consumer pops from; queue id -1 is all of a topic at a broker."""

    unacknowledged: int = field(default=0, name="waitAckCount")
    dropped: bool = field(default=False, name="droped")
    last_popped: int = field(default=0, name="lastPopTimestamp")


class ConsumeRates(Body, kw_only=True):
    """How a consumer does with a topic: ms for a pull and for a message, and numbers a second."""

    pull_ms: float = field(default=0.0, name="pullRT")
    pulled_per_second: float = field(default=0.0, name="pullTPS")
    consume_ms: float = field(default=0.0, name="consumeRT")
    consumed_per_second: float = field(default=0.0, name="consumeOKTPS")
    failed_per_second: float = field(default=0.0, name="consumeFailedTPS")
    failed_last_hour: float = field(default=0.0, name="consumeFailedMsgs")


class ConsumerRunningInfo(Body, kw_only=True):
    """What a client says of a consumer; it may be of any language, so nothing in it is certain."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[str, HeldQueue] = field(default_factory=dict)
    mq_pop_table: dict[str, PoppedQueue] = field(default_factory=dict)
    status_table: dict[str, ConsumeRates] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


class QueueEntry(Body, kw_only=True):
    """Where a message of a queue is in the log."""

    position: Long = field(name="physicOffset")
    size: Int = field(name="physicSize")
    tags_code: Long
    matches: bool = field(default=False, name="eval")
    """Whether the group that was asked for subscribes to it."""


class QueueEntries(Body, kw_only=True):
    """`first` and `end` are the offsets that the queue has; the subscription is that of the group that was asked for, and
    `filter_data` is for people."""

    first: Long = field(name="minQueueIndex")
    end: Long = field(name="maxQueueIndex")
    entries: list[QueueEntry] = field(default_factory=list, name="queueData")
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


class Replica(Body, kw_only=True):
    """A slave, as its master sees it; `behind` in bytes of the log."""

    address: str = field(name="addr")
    acknowledged: Long = field(name="slaveAckOffset")
    behind: Long = field(name="diff")
    in_sync: bool = False
    bytes_per_second: Long = field(default=0, name="transferredByteInSecond")
    sent_from: Long = field(default=0, name="transferFromWhere")


class Replication(Body, kw_only=True):
    """How a master's log gets to its slaves; `end` is the log's."""

    master: bool
    end: Long = field(name="masterCommitLogMaxOffset")
    slaves_in_sync: Int = field(default=0, name="inSyncSlaveNums")
    slaves: list[Replica] = field(default_factory=list, name="haConnectionInfo")
