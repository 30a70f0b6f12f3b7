"""Clients and their groups (spec 4.4, 4.8)."""

from msgspec import field

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Group, Header, Int, Long, TopicHeader, request


@request(RequestCode.HEART_BEAT)
class HeartBeat(Header):
    """All of it is in the body, `rockmq.protocol.bodies.client.HeartbeatData`."""


@request(RequestCode.UNREGISTER_CLIENT)
class UnregisterClient(TopicHeader, kw_only=True):
    client_id: str = field(name="clientID")
    producer_group: Group | None = None
    consumer_group: Group | None = None


@request(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
class GetConsumerList(TopicHeader, kw_only=True):
    consumer_group: Group


@request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
class NotifyConsumerIdsChanged(TopicHeader, kw_only=True):
    consumer_group: Group


@request(RequestCode.LOCK_BATCH_MQ)
class LockBatch(TopicHeader):
    """The queues are in the body, `rockmq.protocol.bodies.client.LockBatchBody`."""


@request(RequestCode.UNLOCK_BATCH_MQ)
class UnlockBatch(TopicHeader):
    """As LockBatch."""


@request(RequestCode.CHECK_CLIENT_CONFIG)
class CheckClientConfig(Header):
    """The subscription to check is in the body, `rockmq.protocol.bodies.client.CheckClientBody`."""


@request(RequestCode.CONSUMER_SEND_MSG_BACK)
class SendMessageBack(TopicHeader, kw_only=True):
    """`offset` is the message's position in the commit log."""

    offset: Long
    group: Group
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int | None = None
