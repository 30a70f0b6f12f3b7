"""Pulling (PullMessageRequestHeader.java, PullMessageResponseHeader.java; spec 4.2)."""

from msgspec import field

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Group, Header, Int, Long, Topic, TopicHeader, request, respelled


class PullResponse(Header):
    """The four required fields are there whatever the code: Java unboxes them without asking (spec, pitfall 2)."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    forbidden_type: Int | None = None


@request(RequestCode.PULL_MESSAGE, PullResponse)
class Pull(TopicHeader, kw_only=True):
    consumer_group: Group
    topic: Topic
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    sub_version: Long
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    request_source: Int | None = None
    proxy_client_id: str | None = field(default=None, name="proxyFrowardClientId")  # sic


LitePull = respelled(RequestCode.LITE_PULL_MESSAGE, Pull, {}, "LitePull")
