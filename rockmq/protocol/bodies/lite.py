"""Lite topics, of which a parent topic has very many (GetBrokerLiteInfoResponseBody.java and its neighbours)."""

from msgspec import field

from rockmq.protocol.bodies.admin import OffsetWrapper, TopicOffset
from rockmq.protocol.bodies.common import Body
from rockmq.protocol.header import Int, Long


class LiteBroker(Body, kw_only=True):
    """What a broker has of lite topics: their queues and how many they may be, subscriptions, sizes of its tables, parent
    topics with their `ttl` (`LiteParent`), and the groups of each."""

    store_type: str | None = None
    queues: Int = field(default=0, name="currentLmqNum")
    queues_max: Int = field(default=0, name="maxLmqNum")
    subscriptions: Int = field(default=0, name="liteSubscriptionCount")
    orders: Int = field(default=0, name="orderInfoCount")
    queue_table: Int = field(default=0, name="cqTableSize")
    offset_table: Int = field(default=0, name="offsetTableSize")
    events: Int = field(default=0, name="eventMapSize")
    ttls: dict[str, Int] = field(default_factory=dict, name="topicMeta")
    groups: dict[str, list[str]] = field(default_factory=dict, name="groupMeta")


class LiteParent(Body, kw_only=True):
    """A parent topic; `ttl` in minutes after which a lite topic without messages goes, -1 for never."""

    topic: str
    ttl: Int
    groups: list[str] = field(default_factory=list)
    queues: Int = field(default=0, name="lmqNum")
    lite_topics: Int = field(default=0, name="liteTopicCount")


class LiteSubscriber(Body, kw_only=True):
    client_id: str
    group: str


class LiteTopic(Body, kw_only=True):
    """A lite topic; `here` if this broker is the one for it."""

    parent_topic: str
    lite_topic: str
    subscribers: list[LiteSubscriber] = field(default_factory=list, name="subscriber")
    offsets: TopicOffset | None = field(default=None, name="topicOffset")
    here: bool = field(default=False, name="shardingToBroker")


class LiteClient(Body, kw_only=True):
    """A client's lite topics, -1 of them for a client that isn't there; times in ms, 0 or below for never."""

    parent_topic: str
    group: str
    client_id: str
    last_access: Long = field(default=0, name="lastAccessTime")
    last_consumed: Long = field(default=0, name="lastConsumeTime")
    lite_topics: Int = field(default=0, name="liteTopicCount")
    names: list[str] = field(default_factory=list, name="liteTopicSet")


class LiteLag(Body, kw_only=True):
    """How far a group is behind in a lite topic: messages, and when the first of them was stored (ms)."""

    lite_topic: str
    lag: Long = field(default=0, name="lagCount")
    earliest: Long = field(default=0, name="earliestUnconsumedTimestamp")


class LiteGroup(Body, kw_only=True):
    """How far a group is behind: in one lite topic, which then has `offsets`, or in all, with those where it is most behind,
    by messages and by time. -1 for what isn't known."""

    group: str
    parent_topic: str | None = None
    lite_topic: str | None = None
    lag: Long = field(default=0, name="totalLagCount")
    earliest: Long = field(default=0, name="earliestUnconsumedTimestamp")
    offsets: OffsetWrapper | None = field(default=None, name="liteTopicOffsetWrapper")
    most_messages: list[LiteLag] | None = field(default=None, name="lagCountTopK")
    oldest: list[LiteLag] | None = field(default=None, name="lagTimestampTopK")
