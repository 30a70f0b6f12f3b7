"""Sending (SendMessageRequestHeader.java, SendMessageRequestHeaderV2.java, SendMessageResponseHeader; spec 4.1, 4.8)."""

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Group, Header, Int, Long, Topic, request, respelled


class SendResponse(Header):
    """`msg_id` is the offset id, `transaction_id` the unique key. MSG_REGION and TRACE_ON travel beside these fields."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


@request(RequestCode.SEND_MESSAGE, SendResponse)
class SendMessage(Header, kw_only=True):
    producer_group: Group
    topic: Topic
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int | None = None
    batch: bool | None = None
    bname: str | None = None


_LETTERS = {
    "producer_group": "a",
    "topic": "b",
    "default_topic": "c",
    "default_topic_queue_nums": "d",
    "queue_id": "e",
    "sys_flag": "f",
    "born_timestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsume_times": "j",
    "unit_mode": "k",
    "max_reconsume_times": "l",
    "batch": "m",
    "bname": "n",
}
SendMessageV2 = respelled(RequestCode.SEND_MESSAGE_V2, SendMessage, _LETTERS, "SendMessageV2")
SendBatchMessage = respelled(RequestCode.SEND_BATCH_MESSAGE, SendMessage, _LETTERS, "SendBatchMessage")
SendReply = respelled(RequestCode.SEND_REPLY_MESSAGE, SendMessage, {}, "SendReply")
SendReplyV2 = respelled(RequestCode.SEND_REPLY_MESSAGE_V2, SendMessage, _LETTERS, "SendReplyV2")


@request(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
class PushReply(Header, kw_only=True):
    """A reply on its way to who asked (ReplyMessageRequestHeader.java); hosts are `ip:port`."""

    producer_group: Group
    topic: Topic
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Long
