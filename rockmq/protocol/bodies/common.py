"""Objects that stand in many bodies (protocol spec, 2.3)."""

from typing import Any

import msgspec
from msgspec import Struct

from rockmq.base.errors import ProtocolError
from rockmq.protocol.header import Int, Long


class Body(Struct, rename="camel"):
    """Base of all bodies."""


class MessageQueue(Struct, rename="camel", frozen=True, order=True):
    """A queue of a topic on a broker (MessageQueue.java); ordered by topic, broker name, queue id as in Java."""

    topic: str
    broker_name: str
    queue_id: Int

    def key(self) -> str:
        """The JSON text that stands for this queue as a map key; members in Java's order."""
        return msgspec.json.encode({"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}).decode()

    @classmethod
    def parse(cls, key: str) -> "MessageQueue":
        """A queue from a map key. Raises ProtocolError."""
        try:
            return msgspec.json.decode(key, type=cls, strict=False)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ProtocolError(f"{key[:200]!r} is not a message queue: {error}") from None


class DataVersion(Body, kw_only=True):
    """Says whether a table changed. Ordered by state version, counter, time; equal only when all three are."""

    state_version: Long = 0
    timestamp: Long = 0
    counter: Long = 0

    def advanced(self, now: int) -> "DataVersion":
        return DataVersion(state_version=self.state_version, timestamp=now, counter=self.counter + 1)


class TopicConfig(Body, kw_only=True):
    """One topic as its broker keeps it (TopicConfig.java)."""

    topic_name: str
    read_queue_nums: Int = 16
    write_queue_nums: Int = 16
    perm: Int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int = 0
    order: bool = False
    attributes: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def has_batch_queues(self) -> bool:
        return self.attributes.get("queue.type") == "BatchCQ"


class GroupConfig(Body, kw_only=True):
    """One group as its broker keeps it (SubscriptionGroupConfig.java)."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int = 1
    retry_max_times: Int = 16
    group_retry_policy: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "CUSTOMIZED"})
    broker_id: Long = 0
    which_broker_when_consume_slowly: Long = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int = 0
    consume_timeout_minute: Int = 15
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class SubscriptionData(Body, kw_only=True):
    """What a consumer wants of a topic (SubscriptionData.java)."""

    topic: str
    sub_string: str = "*"
    tags_set: list[str] = msgspec.field(default_factory=list)
    code_set: list[Int] = msgspec.field(default_factory=list)
    sub_version: Long = 0
    expression_type: str | None = "TAG"
    class_filter_mode: bool = False


class KVTable(Body, kw_only=True):
    table: dict[str, str] = msgspec.field(default_factory=dict)


class Connection(Body, kw_only=True):
    """One client of a group, for people."""

    client_id: str
    client_addr: str
    language: str
    version: int
