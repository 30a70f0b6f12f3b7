"""What clients and tools ask a name server (spec 3.1)."""

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Cluster, Header, Int, Topic, TopicHeader, request


@request(RequestCode.GET_ROUTEINFO_BY_TOPIC)
class GetRouteInfo(TopicHeader, kw_only=True):
    topic: Topic
    accept_standard_json_only: bool | None = None


@request(RequestCode.GET_BROKER_CLUSTER_INFO)
class GetClusterInfo(Header):
    pass


class ValueResponse(Header):
    value: str | None = None


@request(RequestCode.PUT_KV_CONFIG)
class PutKV(Header, kw_only=True):
    namespace: str
    key: str
    value: str


@request(RequestCode.GET_KV_CONFIG, ValueResponse)
class GetKV(Header, kw_only=True):
    namespace: str
    key: str


@request(RequestCode.DELETE_KV_CONFIG)
class DeleteKV(Header, kw_only=True):
    namespace: str
    key: str


@request(RequestCode.GET_KVLIST_BY_NAMESPACE)
class GetKVList(Header, kw_only=True):
    namespace: str


@request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
class GetAllTopics(Header):
    pass


@request(RequestCode.GET_TOPICS_BY_CLUSTER)
class GetTopicsByCluster(Header, kw_only=True):
    cluster: Cluster


@request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
class GetSystemTopics(Header):
    pass


@request(RequestCode.DELETE_TOPIC_IN_NAMESRV)
class DeleteTopicInNamesrv(TopicHeader, kw_only=True):
    topic: Topic
    cluster_name: Cluster | None = None


class WipeResponse(Header):
    wipe_topic_count: Int


@request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeResponse)
class WipeWritePerm(Header, kw_only=True):
    broker_name: str


class AddResponse(Header):
    add_topic_count: Int


@request(RequestCode.ADD_WRITE_PERM_OF_BROKER, AddResponse)
class AddWritePerm(Header, kw_only=True):
    broker_name: str


@request(RequestCode.REGISTER_TOPIC_IN_NAMESRV)
class RegisterTopic(TopicHeader, kw_only=True):
    """The queues are in the body, `rockmq.protocol.bodies.route.TopicRouteData`."""

    topic: Topic


@request(RequestCode.GET_UNIT_TOPIC_LIST)
class GetUnitTopics(Header):
    pass


@request(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)
class GetUnitSubTopics(Header):
    pass


@request(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
class GetUnitSubWithoutUnitTopics(Header):
    pass


@request(RequestCode.UPDATE_NAMESRV_CONFIG)
class UpdateNamesrvConfig(Header):
    """The changes are in the body, as Java properties text."""


@request(RequestCode.GET_NAMESRV_CONFIG)
class GetNamesrvConfig(Header):
    pass
