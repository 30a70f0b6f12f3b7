"""What administrators ask a broker (spec 5.1)."""

from msgspec import field

from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Group, Header, Int, Long, Topic, TopicHeader, request


@request(RequestCode.UPDATE_AND_CREATE_TOPIC)
class CreateTopic(TopicHeader, kw_only=True):
    topic: Topic
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool | None = None


@request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
class CreateTopics(Header):
    """The topics are in the body, `rockmq.protocol.bodies.admin.TopicConfigs`."""


@request(RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC)
class CreateStaticTopic(CreateTopic, kw_only=True):
    """A broker's part of a static topic; its queues are in the body, `rockmq.protocol.bodies.static_topic.QueueMapping`.
    With `force` the broker takes it even if it has another mapping."""


class AllTopicConfigResponse(Header):
    total_topic_num: Int | None = None


@request(RequestCode.GET_ALL_TOPIC_CONFIG, AllTopicConfigResponse)
class GetAllTopicConfig(Header, kw_only=True):
    """4.x sends no field; 5.x pages with `topic_seq`."""

    topic_seq: Int | None = None
    data_version: str | None = None
    max_topic_num: Int | None = None


@request(RequestCode.GET_ALL_DELAY_OFFSET)
class GetAllDelayOffset(Header):
    """The answer's body is the document `delayOffset.json`."""


@request(RequestCode.GET_TOPIC_CONFIG)
class GetTopicConfig(TopicHeader, kw_only=True):
    topic: Topic


@request(RequestCode.GET_TOPIC_STATS_INFO)
class GetTopicStats(TopicHeader, kw_only=True):
    topic: Topic


@request(RequestCode.GET_CONSUME_STATS)
class GetConsumeStats(TopicHeader, kw_only=True):
    """`topic_list` has topics with `;` between them, for which it doesn't matter whether the group subscribes to them."""

    consumer_group: Group
    topic: Topic | None = None
    topic_list: Topic | None = None


@request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
class UpdateGroup(Header):
    pass


@request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST)
class UpdateGroups(Header):
    """The groups are in the body, `rockmq.protocol.bodies.admin.GroupConfigs`."""


@request(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN)
class UpdateForbidden(TopicHeader, kw_only=True):
    """Without `readable` it is only asked for."""

    group: Group
    topic: Topic
    readable: bool | None = None


@request(RequestCode.GET_BROKER_RUNTIME_INFO)
class GetBrokerRuntimeInfo(Header):
    pass


class BrokerConfigResponse(Header):
    version: str | None = None


@request(RequestCode.GET_BROKER_CONFIG, BrokerConfigResponse)
class GetBrokerConfig(Header):
    """The answer's body is Java properties text."""


@request(RequestCode.GET_CONSUMER_CONNECTION_LIST)
class GetConsumerConnections(TopicHeader, kw_only=True):
    consumer_group: Group


@request(RequestCode.GET_PRODUCER_CONNECTION_LIST)
class GetProducerConnections(TopicHeader, kw_only=True):
    producer_group: Group


@request(RequestCode.DELETE_TOPIC_IN_BROKER)
class DeleteTopic(TopicHeader, kw_only=True):
    topic: Topic


@request(RequestCode.GET_CONSUMER_RUNNING_INFO)
class GetConsumerRunningInfo(TopicHeader, kw_only=True):
    consumer_group: Group
    client_id: str
    jstack_enable: bool = field(default=False)


@request(RequestCode.CONSUME_MESSAGE_DIRECTLY)
class ConsumeDirectly(TopicHeader, kw_only=True):
    """`msg_id` is the offset id; a broker fills in the rest and the body for the consumer."""

    consumer_group: Group
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: Topic | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


@request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
class GetConsumerStatus(TopicHeader, kw_only=True):
    """Where a client is in the queues of a topic; `client_addr` is a client id."""

    topic: Topic
    group: Group
    client_addr: str | None = None


@request(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
class GetGroupStatus(GetConsumerStatus, kw_only=True):
    """The same of all clients of a group, or of the one that is named."""


@request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
class ResetOffset(TopicHeader, kw_only=True):
    """`timestamp` in ms, below 0 for the end; `offset` only with a `queue_id`, which below 0 means all queues."""

    topic: Topic
    group: Group
    timestamp: Long
    is_force: bool
    queue_id: Int = -1
    offset: Long | None = None


@request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
class ResetConsumerOffset(TopicHeader, kw_only=True):
    """A broker tells a consumer to go on elsewhere: `rockmq.protocol.bodies.client.ResetOffsets` says where."""

    topic: Topic
    group: Group
    timestamp: Long = -1
    is_force: bool = True


@request(RequestCode.CLONE_GROUP_OFFSET)
class CloneGroupOffset(TopicHeader, kw_only=True):
    src_group: Group
    dest_group: Group
    topic: Topic | None = None
    offline: bool = False


@request(RequestCode.DELETE_SUBSCRIPTIONGROUP)
class DeleteGroup(TopicHeader, kw_only=True):
    """With `clean_offset` the group's offsets go, too; brokers of 4.9 know it as `removeOffset`."""

    group_name: Group
    clean_offset: bool = False
    remove_offset: bool | None = None


class AllGroupConfigResponse(Header):
    total_group_num: Int | None = None


@request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, AllGroupConfigResponse)
class GetAllGroups(Header, kw_only=True):
    """4.x sends no field; 5.x pages with `group_seq`."""

    group_seq: Int | None = None
    data_version: str | None = None
    max_group_num: Int | None = None


@request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)
class GetGroup(TopicHeader, kw_only=True):
    group: Group


@request(RequestCode.GET_ALL_CONSUMER_OFFSET)
class GetAllConsumerOffsets(Header):
    """The answer's body is the document `consumerOffset.json`."""


@request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
class GetGroupsOfTopic(TopicHeader, kw_only=True):
    topic: Topic


@request(RequestCode.QUERY_TOPICS_BY_CONSUMER)
class GetTopicsOfGroup(TopicHeader, kw_only=True):
    group: Group


@request(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
class GetSubscription(TopicHeader, kw_only=True):
    group: Group
    topic: Topic | None = None


@request(RequestCode.QUERY_CONSUME_TIME_SPAN)
class GetTimeSpans(TopicHeader, kw_only=True):
    topic: Topic
    group: Group


@request(RequestCode.QUERY_CORRECTION_OFFSET)
class GetLowestOffsets(TopicHeader, kw_only=True):
    """Apache's broker deletes the offsets of `filter_groups` (with `,` between them), so don't name any."""

    topic: Topic
    compare_group: Group
    filter_groups: str | None = None


@request(RequestCode.GET_ALL_PRODUCER_INFO)
class GetAllProducers(Header):
    pass


@request(RequestCode.GET_BROKER_CONSUME_STATS)
class GetBrokerConsumeStats(Header, kw_only=True):
    is_order: bool


@request(RequestCode.UPDATE_BROKER_CONFIG)
class UpdateBrokerConfig(Header):
    """The changes are in the body, as Java properties text."""


@request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
class GetBrokersSystemTopics(Header):
    pass


@request(RequestCode.VIEW_BROKER_STATS_DATA)
class GetBrokerStats(Header, kw_only=True):
    stats_name: str
    stats_key: str


@request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
class CleanExpiredQueues(Header):
    pass


@request(RequestCode.CLEAN_UNUSED_TOPIC)
class CleanUnusedTopics(Header):
    pass


@request(RequestCode.DELETE_EXPIRED_COMMITLOG)
class DeleteExpiredLog(Header):
    pass


@request(RequestCode.QUERY_CONSUME_QUEUE)
class GetQueueEntries(TopicHeader, kw_only=True):
    topic: Topic
    queue_id: Int
    index: Long
    count: Int
    consumer_group: Group | None = None


@request(RequestCode.GET_BROKER_HA_STATUS)
class GetReplication(Header):
    pass


@request(RequestCode.GET_BROKER_EPOCH_CACHE)
class GetEpochs(Header):
    pass


@request(RequestCode.RESET_MASTER_FLUSH_OFFSET)
class SetMasterFlushOffset(Header, kw_only=True):
    """ResetMasterFlushOffsetHeader.java."""

    master_flush_offset: Long


@request(RequestCode.RESUME_CHECK_HALF_MESSAGE)
class ResumeChecks(Header, kw_only=True):
    """`msg_id` is an offset id."""

    topic: Topic | None = None
    msg_id: str
