"""Pop: messages by request, each to be acknowledged by itself (spec 4.7; PopMessageRequestHeader.java and its like)."""

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Group, Header, Int, Long, Topic, TopicHeader, request


class PopResponse(Header, kw_only=True):
    """The three texts are those of `rockmq.protocol.pop`."""

    pop_time: Long
    invisible_time: Long
    revive_qid: Int
    rest_num: Long
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@request(RequestCode.POP_MESSAGE, PopResponse)
class Pop(TopicHeader, kw_only=True):
    """Times in ms; `queue_id` -1 for all queues; `init_mode` 0: a new group begins at the beginning, 1: at the end."""

    consumer_group: Group
    topic: Topic
    queue_id: Int
    max_msg_nums: Int
    invisible_time: Long
    poll_time: Long
    born_time: Long
    init_mode: Int
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


@request(RequestCode.PEEK_MESSAGE, PopResponse)
class Peek(TopicHeader, kw_only=True):
    """`queue_id` -1 for all queues. Times in the answer are 0; `rest_num` counts what is peeked at, too."""

    consumer_group: Group
    topic: Topic
    queue_id: Int
    max_msg_nums: Int


@request(RequestCode.ACK_MESSAGE)
class Ack(TopicHeader, kw_only=True):
    consumer_group: Group
    topic: Topic
    queue_id: Int
    extra_info: str
    offset: Long


@request(RequestCode.BATCH_ACK_MESSAGE)
class BatchAck(Header):
    """All of it is in the body, `rockmq.protocol.bodies.pop.BatchAckBody`."""


class ChangeInvisibleTimeResponse(Header, kw_only=True):
    pop_time: Long
    invisible_time: Long
    revive_qid: Int


@request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ChangeInvisibleTimeResponse)
class ChangeInvisibleTime(TopicHeader, kw_only=True):
    consumer_group: Group
    topic: Topic
    queue_id: Int
    extra_info: str
    offset: Long
    invisible_time: Long
    suspend: bool = False


class NotificationResponse(Header, kw_only=True):
    has_msg: bool
    polling_full: bool = False


@request(RequestCode.NOTIFICATION, NotificationResponse)
class Notification(TopicHeader, kw_only=True):
    consumer_group: Group
    topic: Topic
    queue_id: Int
    poll_time: Long
    born_time: Long
    order: bool | None = None
    attempt_id: str | None = None
    exp_type: str | None = None
    exp: str | None = None


class PollingInfoResponse(Header):
    polling_num: Int


@request(RequestCode.POLLING_INFO, PollingInfoResponse)
class PollingInfo(TopicHeader, kw_only=True):
    consumer_group: Group
    topic: Topic
    queue_id: Int


@request(RequestCode.QUERY_ASSIGNMENT)
class QueryAssignment(TopicHeader):
    """All of it is in the body, `rockmq.protocol.bodies.pop.QueryAssignmentBody`."""


@request(RequestCode.SET_MESSAGE_REQUEST_MODE)
class SetRequestMode(TopicHeader):
    """All of it is in the body, `rockmq.protocol.bodies.pop.RequestMode`."""


@request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
class GetAllRequestModes(Header):
    pass
