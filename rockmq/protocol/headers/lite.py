"""What administrators ask of lite topics, new in Apache's 5.5 (LiteManagerProcessor.java)."""

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Group, Header, Int, Topic, request


@request(RequestCode.GET_BROKER_LITE_INFO)
class GetLiteBroker(Header):
    pass


@request(RequestCode.GET_PARENT_TOPIC_INFO)
class GetLiteParent(Header, kw_only=True):
    topic: Topic


@request(RequestCode.GET_LITE_TOPIC_INFO)
class GetLiteTopic(Header, kw_only=True):
    parent_topic: Topic
    lite_topic: str


@request(RequestCode.GET_LITE_CLIENT_INFO)
class GetLiteClient(Header, kw_only=True):
    """At most `max_count` names of lite topics, which has to be more than 0."""

    parent_topic: Topic
    group: Group
    client_id: str
    max_count: Int


@request(RequestCode.GET_LITE_GROUP_INFO)
class GetLiteGroup(Header, kw_only=True):
    """Of one lite topic, or of the `top_k` in which the group is most behind."""

    group: Group
    lite_topic: str | None = None
    top_k: Int = 0


@request(RequestCode.TRIGGER_LITE_DISPATCH)
class TriggerLiteDispatch(Header, kw_only=True):
    """Without a client to all of the group."""

    group: Group
    client_id: str | None = None
