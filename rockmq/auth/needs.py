"""What a request needs: actions on topics, groups or the cluster, of which any one is enough for each resource.

Apache has this in a switch (DefaultAuthorizationContextBuilder.java) and in annotations of header classes; here it is a
table of actions, and the resources are the fields that a header declares as names of topics and groups. A request that names
none, and each code that stands in no table, needs something of the cluster: what nobody thought of is refused.

Where Apache's broker lets everybody with a key do it (changes of its configuration and of groups, pops of several messages'
acknowledgements, assignments, message by id without a topic), this says what is needed. A retry topic stands for its group,
whatever group the sender says it has.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple, TypeVar, get_args

import msgspec

import rockmq.protocol.headers  # noqa: F401  fills EXCHANGES
from rockmq.protocol import json, topics
from rockmq.protocol.bodies.admin import GroupConfigs, TopicConfigs
from rockmq.protocol.bodies.client import HeartbeatData, LockBatchBody
from rockmq.protocol.bodies.common import GroupConfig
from rockmq.protocol.bodies.pop import BatchAckBody, QueryAssignmentBody, RequestMode
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import EXCHANGES

T = TypeVar("T")


class Action(StrEnum):
    """What a rule allows; All is every other one."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Kind(StrEnum):
    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"


class Need(NamedTuple):
    """One of these actions on a resource."""

    kind: Kind
    name: str
    actions: frozenset[Action]

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def _actions(*actions: Action) -> frozenset[Action]:
    return frozenset(actions)


PUB, SUB = _actions(Action.PUB), _actions(Action.SUB)
CREATE, UPDATE, DELETE, GET = (_actions(each) for each in (Action.CREATE, Action.UPDATE, Action.DELETE, Action.GET))
SUB_OR_GET, SUB_OR_UPDATE = SUB | GET, SUB | UPDATE
MAKE = CREATE | UPDATE


def needs(request: Command, cluster: str) -> list[Need]:
    """What a request needs; `cluster` is the broker's. Empty for what anybody may do who is known.

    Raises ProtocolError when a body that says it can't be read.
    """
    own = _OWN.get(request.code)
    if own is not None:
        return list(own(request))
    if (with_cluster := _WITH_CLUSTER.get(request.code)) is not None:
        return list(with_cluster(request, cluster))
    actions = _ACTIONS.get(request.code, UPDATE)
    found = [] if request.code in _OF_CLUSTER else list(_named(request, actions))
    return found or [Need(Kind.CLUSTER, cluster, actions)]


def topic(name: str, actions: frozenset[Action]) -> Need:
    """A topic, or the group that a retry topic is of."""
    if topics.is_retry(name):
        return Need(Kind.GROUP, name.removeprefix(topics.RETRY_PREFIX), actions)
    return Need(Kind.TOPIC, name, actions)


def group(name: str, actions: frozenset[Action]) -> Need:
    return Need(Kind.GROUP, name.removeprefix(topics.RETRY_PREFIX), actions)


def _named(request: Command, actions: frozenset[Action]) -> Iterable[Need]:
    for wire, make in _names(request.code):
        value = request.fields.get(wire)
        if value:
            yield make(value, actions)


_MAKERS = {"topic": topic, "group": group}


@cache
def _names(code: int) -> list[tuple[str, Callable[[str, frozenset[Action]], Need]]]:
    """The fields of a request's header that name topics and groups."""
    exchange = EXCHANGES.get(code)
    fields = msgspec.structs.fields(exchange.request) if exchange is not None else ()
    return [(field.encode_name, make) for field in fields if (make := _maker(field.type)) is not None]


def _maker(kind: Any) -> Callable[[str, frozenset[Action]], Need] | None:
    for part in (kind, *get_args(kind)):
        for note in getattr(part, "__metadata__", ()):
            if isinstance(note, msgspec.Meta) and note.extra is not None and note.extra.get("acl") in _MAKERS:
                return _MAKERS[note.extra["acl"]]
    return None


def _body(request: Command, kind: type[T]) -> T:
    return json.decode(request.body, kind, "body")


def _send(request: Command) -> Iterable[Need]:
    name = request.fields.get("topic" if request.code in _IN_FULL else "b", "")
    return [topic(name, SUB if topics.is_retry(name) else PUB)]


_IN_FULL = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})
"""Requests to send whose fields are whole words."""


def _reply(request: Command, cluster: str) -> Iterable[Need]:
    # It goes to the one client that asked, and the cluster's topic of replies is no application's.
    own = topic(topics.reply_topic(cluster), PUB)
    return [need for need in _send(request) if need != own]


def _consume_directly(request: Command, cluster: str) -> Iterable[Need]:
    # The handler compares the topic with the message's; who names none could have any message handed to a group.
    yield from _named(request, SUB)
    if not request.fields.get("topic"):
        yield Need(Kind.CLUSTER, cluster, SUB)


def _send_back(request: Command) -> Iterable[Need]:
    yield group(request.fields.get("group", ""), SUB)
    # Who could have any message stored anew for a group could read any; the handler compares it with the message's topic.
    if request.fields.get("originTopic"):
        yield topic(request.fields["originTopic"], SUB)


def _end_transaction(request: Command) -> Iterable[Need]:
    # The handler asks about the message's topic. Clients of 4.9 name none, and Java's that answer a check name the system's.
    name = request.fields.get("topic")
    return [topic(name, PUB)] if name and name != topics.TRANSACTION_HALF else []


def _heartbeat(request: Command) -> Iterable[Need]:
    for consumer in _body(request, HeartbeatData).consumer_data_set:
        yield group(consumer.group_name, SUB)
        for subscription in consumer.subscription_data_set:
            if not topics.is_retry(subscription.topic):
                yield topic(subscription.topic, SUB)


def _unregister(request: Command) -> Iterable[Need]:
    name = request.fields.get("consumerGroup")
    return [group(name, SUB)] if name else []


def _lock(request: Command) -> Iterable[Need]:
    body = _body(request, LockBatchBody)
    yield group(body.consumer_group, SUB)
    for name in dict.fromkeys(queue.topic for queue in body.mq_set):
        if not topics.is_retry(name):
            yield topic(name, SUB)


def _batch_ack(request: Command) -> Iterable[Need]:
    for part in _body(request, BatchAckBody).acks:
        yield group(part.consumer_group, SUB)
        yield topic(part.topic, SUB)


def _assignment(request: Command) -> Iterable[Need]:
    body = _body(request, QueryAssignmentBody)
    return [topic(body.topic, SUB), group(body.consumer_group, SUB)]


def _request_mode(request: Command) -> Iterable[Need]:
    body = _body(request, RequestMode)
    return [topic(body.topic, UPDATE), group(body.consumer_group, UPDATE)]


def _consume_stats(request: Command) -> Iterable[Need]:
    fields = request.fields
    yield group(fields.get("consumerGroup", ""), GET)
    for name in [fields.get("topic", ""), *fields.get("topicList", "").split(";")]:
        if name:
            yield topic(name, GET)


def _clone(request: Command) -> Iterable[Need]:
    fields = request.fields
    yield group(fields.get("srcGroup", ""), GET)
    yield group(fields.get("destGroup", ""), UPDATE)
    if fields.get("topic"):
        yield topic(fields["topic"], UPDATE)


def _update_group(request: Command) -> Iterable[Need]:
    return [group(_body(request, GroupConfig).group_name, MAKE)]


def _update_groups(request: Command) -> Iterable[Need]:
    return [group(each.group_name, MAKE) for each in _body(request, GroupConfigs).group_config_list]


def _create_topics(request: Command) -> Iterable[Need]:
    return [topic(each.topic_name, CREATE) for each in _body(request, TopicConfigs).topic_config_list]


def _anybody(_request: Command) -> Iterable[Need]:
    return []


_OWN: dict[int, Callable[[Command], Iterable[Need]]] = {
    RequestCode.SEND_MESSAGE: _send,
    RequestCode.SEND_MESSAGE_V2: _send,
    RequestCode.SEND_BATCH_MESSAGE: _send,
    RequestCode.CHECK_CLIENT_CONFIG: _anybody,
    RequestCode.CONSUMER_SEND_MSG_BACK: _send_back,
    RequestCode.END_TRANSACTION: _end_transaction,
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _unregister,
    RequestCode.LOCK_BATCH_MQ: _lock,
    RequestCode.UNLOCK_BATCH_MQ: _lock,
    RequestCode.BATCH_ACK_MESSAGE: _batch_ack,
    RequestCode.QUERY_ASSIGNMENT: _assignment,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _request_mode,
    RequestCode.GET_CONSUME_STATS: _consume_stats,
    RequestCode.CLONE_GROUP_OFFSET: _clone,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _update_group,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _update_groups,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _create_topics,
}

_WITH_CLUSTER: dict[int, Callable[[Command, str], Iterable[Need]]] = {
    RequestCode.SEND_REPLY_MESSAGE: _reply,
    RequestCode.SEND_REPLY_MESSAGE_V2: _reply,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _consume_directly,
}

_ACTIONS: dict[int, frozenset[Action]] = {
    RequestCode.PULL_MESSAGE: SUB,
    RequestCode.LITE_PULL_MESSAGE: SUB,
    RequestCode.POP_MESSAGE: SUB,
    RequestCode.PEEK_MESSAGE: SUB,
    RequestCode.ACK_MESSAGE: SUB,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: SUB,
    RequestCode.NOTIFICATION: SUB,
    RequestCode.RECALL_MESSAGE: PUB,
    RequestCode.QUERY_MESSAGE: SUB_OR_GET,
    RequestCode.VIEW_MESSAGE_BY_ID: SUB_OR_GET,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: SUB_OR_GET,
    RequestCode.QUERY_CONSUMER_OFFSET: SUB_OR_GET,
    RequestCode.UPDATE_CONSUMER_OFFSET: SUB_OR_UPDATE,
    # Apache's are for Get alone. Who may pull is told these with every pull, and needs them to begin.
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: SUB_OR_GET,
    RequestCode.GET_MAX_OFFSET: SUB_OR_GET,
    RequestCode.GET_MIN_OFFSET: SUB_OR_GET,
    RequestCode.GET_EARLIEST_MSG_STORETIME: SUB_OR_GET,
    RequestCode.UPDATE_AND_CREATE_TOPIC: CREATE,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: CREATE,
    RequestCode.DELETE_TOPIC_IN_BROKER: DELETE,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: DELETE,
    **dict.fromkeys(
        (
            RequestCode.POLLING_INFO,
            RequestCode.GET_TOPIC_CONFIG,
            RequestCode.GET_TOPIC_STATS_INFO,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
            RequestCode.QUERY_TOPICS_BY_CONSUMER,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
            RequestCode.QUERY_CONSUME_TIME_SPAN,
            RequestCode.QUERY_CONSUME_QUEUE,
            RequestCode.QUERY_CORRECTION_OFFSET,
            RequestCode.GET_ALL_TOPIC_CONFIG,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_ALL_CONSUMER_OFFSET,
            RequestCode.GET_ALL_DELAY_OFFSET,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
            RequestCode.GET_ALL_PRODUCER_INFO,
            RequestCode.GET_BROKER_CONFIG,
            RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.GET_BROKER_CONSUME_STATS,
            RequestCode.GET_BROKER_HA_STATUS,
            RequestCode.GET_BROKER_EPOCH_CACHE,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
            RequestCode.GET_TIMER_CHECK_POINT,
            RequestCode.GET_TIMER_METRICS,
            RequestCode.VIEW_BROKER_STATS_DATA,
            RequestCode.AUTH_GET_USER,
            RequestCode.AUTH_LIST_USER,
            RequestCode.AUTH_GET_ACL,
            RequestCode.AUTH_LIST_ACL,
        ),
        GET,
    ),
}

_OF_CLUSTER = frozenset({RequestCode.GET_PRODUCER_CONNECTION_LIST})
"""Their groups are producers', which are nobody's resource."""
