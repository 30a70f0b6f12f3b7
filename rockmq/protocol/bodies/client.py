"""What clients send in bodies: heartbeats, locks; and what they get about each other (spec 4.4)."""

from msgspec import field

from rockmq.protocol.bodies.common import Body, Connection, MessageQueue, SubscriptionData
from rockmq.protocol.header import Int, Long


class ProducerData(Body, kw_only=True):
    group_name: str


class ConsumerData(Body, kw_only=True):
    group_name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


class HeartbeatData(Body, kw_only=True):
    """`heartbeat_fingerprint` and `without_sub` belong to heartbeat V2: see protocol spec 4.4."""

    client_id: str = field(name="clientID")
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: Int = 0
    without_sub: bool = False


class ConsumerList(Body, kw_only=True):
    consumer_id_list: list[str] = field(default_factory=list)


class LockBatchBody(Body, kw_only=True):
    consumer_group: str
    client_id: str
    only_this_broker: bool = False
    mq_set: list[MessageQueue] = field(default_factory=list)


class LockedQueues(Body, kw_only=True):
    queues: list[MessageQueue] = field(default_factory=list, name="lockOKMQSet")


class CheckClientBody(Body, kw_only=True):
    client_id: str
    group: str
    namespace: str | None = None
    subscription_data: SubscriptionData


class ConsumerConnections(Body, kw_only=True):
    connection_set: list[Connection]
    subscription_table: dict[str, SubscriptionData]
    consume_type: str
    message_model: str
    consume_from_where: str


class ProducerConnections(Body, kw_only=True):
    connection_set: list[Connection]


class ConsumerStatus(Body, kw_only=True):
    """Where a client is, by queue (GetConsumerStatusBody.java)."""

    message_queue_table: dict[str, Long] = field(default_factory=dict)


class ResetOffsets(Body, kw_only=True):
    """Where a consumer is to go on, by queue (ResetOffsetBody.java)."""

    offset_table: dict[str, Long] = field(default_factory=dict)


class DirectResult(Body, kw_only=True):
    """What a consumer made of a message it was handed directly (ConsumeMessageDirectlyResult.java)."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str
    remark: str | None = None
    spent_time_mills: Int
