"""Namespaces, and what else of its surroundings a client tells with every request (NamespaceUtil.java,
NamespaceRpcHook.java, DynamicalExtFieldRPCHook.java; clients' spec, 1.1).

The newer kind is two fields of each request. The older one stands before the names of topics and groups, as `tenant%orders`
and `%RETRY%tenant%billing`, and servers know nothing of it: so it is put there when a request leaves, and taken away from
what comes back. Within the client names are the user's.
"""

import os
import re
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, get_args

import msgspec

from rockmq.base.errors import ClientError, ProtocolError
from rockmq.protocol import json, properties, topics
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import EXCHANGES, Header
from rockmq.protocol.message import StoredMessage
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Handler

SEPARATOR = "%"
_LEGAL_NAMESPACE = re.compile("[A-Za-z0-9_-]+")
ZONE = (("ROCKETMQ_ZONE", "__ZONE_NAME"), ("ROCKETMQ_ZONE_MODE", "__ZONE_MODE"))
"""Variables of the environment, and the fields they travel in."""
_IN_BODIES: dict[int, set[str]] = {
    RequestCode.HEART_BEAT: {"groupName", "topic"},
    RequestCode.CHECK_CLIENT_CONFIG: {"group", "topic"},
    RequestCode.LOCK_BATCH_MQ: {"consumerGroup", "topic"},
    RequestCode.UNLOCK_BATCH_MQ: {"consumerGroup", "topic"},
    RequestCode.QUERY_ASSIGNMENT: {"consumerGroup", "topic"},
    RequestCode.BATCH_ACK_MESSAGE: {"c", "t"},
    RequestCode.SET_MESSAGE_REQUEST_MODE: {"consumerGroup", "topic"},
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: {"consumerGroup", "topic"},
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {"topicName"},
    RequestCode.GET_TOPIC_CONFIG: {"topicName", "topic"},
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: {"topic"},
    RequestCode.GET_ROUTEINFO_BY_TOPIC: {"topic"},
    RequestCode.GET_ALL_TOPIC_CONFIG: {"topicConfigTable", "topicName"},
    RequestCode.GET_TOPIC_STATS_INFO: {"topic"},
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {"topicList"},
    RequestCode.GET_TOPICS_BY_CLUSTER: {"topicList"},
    RequestCode.GET_UNIT_TOPIC_LIST: {"topicList"},
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: {"topicList"},
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: {"topicList"},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName"},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groupName"},
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: {"groupName"},
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {"subscriptionGroupTable", "groupName"},
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: {"group", "topic"},
    RequestCode.GET_CONSUMER_CONNECTION_LIST: {"subscriptionTable", "topic"},
    RequestCode.GET_ALL_PRODUCER_INFO: {"data"},
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: {"groupList"},
    RequestCode.QUERY_TOPICS_BY_CONSUMER: {"topicList"},
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: {"group", "topic"},
    RequestCode.GET_CONSUME_STATS: {"topic"},
    RequestCode.GET_BROKER_CONSUME_STATS: {"consumeStatsList", "topic"},
    RequestCode.QUERY_CONSUME_TIME_SPAN: {"topic"},
    RequestCode.GET_ALL_CONSUMER_OFFSET: {"offsetTable"},
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: {"topic"},
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: {"topic"},
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: {"topic"},
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: {"topic"},
    RequestCode.GET_CONSUMER_RUNNING_INFO: {"statusTable", "topic"},
    RequestCode.GET_TIMER_METRICS: {"timingCount"},
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: {"runtimeTable", "configTable"},
    RequestCode.GET_BROKER_LITE_INFO: {"topicMeta", "groupMeta"},
    RequestCode.GET_PARENT_TOPIC_INFO: {"topic", "groups"},
    RequestCode.GET_LITE_TOPIC_INFO: {"parentTopic", "group"},
    RequestCode.GET_LITE_CLIENT_INFO: {"parentTopic", "group"},
    RequestCode.GET_LITE_GROUP_INFO: {"parentTopic", "group"},
}
"""Requests whose names are in JSON bodies, theirs or those of their answers, and the members that hold names: as their text,
as texts of their list, or as the keys of their map. Keys that are queues hold members of their own."""


def request_fields(namespace: str | None) -> dict[str, str]:
    """The fields that every request of a client has: its namespace, and its zone as the environment says."""
    fields = {"nsd": "true", "ns": namespace} if namespace else {}
    return fields | {field: value for variable, field in ZONE if (value := os.environ.get(variable, "").strip())}


class Prefix:
    """The older kind of namespace: what goes before names, and away again."""

    def __init__(self, namespace: str) -> None:
        """Raises ClientError for what can't stand before a name."""
        if not _LEGAL_NAMESPACE.fullmatch(namespace):
            raise ClientError(f"namespace_v1={namespace!r}: expected letters, digits and any of _ -")
        self._prefix = namespace + SEPARATOR

    def put(self, name: str) -> str:
        """With the namespace, if it hasn't one; names of the system's never have."""
        kind, bare = _split(name)
        if not bare or bare.startswith(self._prefix) or _is_systems(bare):
            return name
        return f"{kind}{self._prefix}{bare}"

    def take(self, name: str) -> str:
        """Without the namespace."""
        kind, bare = _split(name)
        return kind + bare.removeprefix(self._prefix)

    # What leaves

    def outgoing_then(self, more: Callable[[Command], None] | None) -> Callable[[Command], None]:
        """`outgoing`, and `more` on what it made of a request."""

        def both(request: Command) -> None:
            self.outgoing(request)
            if more is not None:
                more(request)

        return both

    def outgoing(self, request: Command) -> None:
        """Put the namespace before all names of a request; once, however often it is sent."""
        fields = request.fields
        for attribute, key in _names(EXCHANGES[request.code].request):
            if name := fields.get(key):
                fields[key] = self.put(name)
                if attribute == "producer_group":
                    self._in_properties(request, name, fields[key])
        if (keys := _IN_BODIES.get(request.code)) and request.body:
            request.body = _renamed(request.body, keys, self.put)

    @staticmethod
    def _in_properties(request: Command, group: str, named: str) -> None:
        """A half message says who is to be asked about it."""
        for key in ("i", "properties"):
            if properties.PGROUP in (text := request.fields.get(key, "")):
                asked, end = properties.PGROUP + properties.NAME_END, properties.PAIR_END
                request.fields[key] = text.replace(asked + group + end, asked + named + end)

    # What comes back

    def answer(self, code: int, answer: Command) -> Command:
        """An answer to a request of this code, its body's names without the namespace. Raises ProtocolError."""
        if (keys := _IN_BODIES.get(code)) and answer.body:
            answer.body = _renamed(answer.body, keys, self.take)
        return answer

    def handler(self, handler: Handler) -> Handler:
        """A handler of servers' requests that gets their names without the namespace, and may answer so."""

        def handle(header: Header, request: Command, connection: Connection) -> Answer | Awaitable[Answer]:
            for attribute, _ in _names(type(header)):
                if name := getattr(header, attribute):
                    setattr(header, attribute, self.take(name))
            keys = _IN_BODIES.get(request.code)
            if keys and request.body:
                request.body = _renamed(request.body, keys, self.take)
            answer = handler(header, request, connection)
            if keys and isinstance(answer, Command) and answer.body:
                answer.body = _renamed(answer.body, keys, self.put)
            return answer

        return handle

    def stored(self, messages: list[StoredMessage]) -> list[StoredMessage]:
        """Messages that were read."""
        for message in messages:
            message.topic = self.take(message.topic)
            for key in (properties.RETRY_TOPIC, properties.PGROUP):
                if key in message.properties:
                    message.properties[key] = self.take(message.properties[key])
        return messages


def _split(name: str) -> tuple[str, str]:
    """What the name of a retry or dead-letter topic begins with, and the rest."""
    for kind in (topics.RETRY_PREFIX, topics.DLQ_PREFIX):
        if name.startswith(kind):
            return kind, name.removeprefix(kind)
    return "", name


def _is_systems(name: str) -> bool:
    return topics.is_system(name) or name in topics.SYSTEM_GROUPS or name.endswith(topics.reply_topic(""))


@cache
def _names(header: type[Header]) -> list[tuple[str, str]]:
    """(attribute, wire name) of a header's fields that hold topics and groups."""
    declared = msgspec.structs.fields(header)
    return [(field.name, field.encode_name) for field in declared if _kind(field.type) in ("topic", "group")]


def _kind(declared: Any) -> str | None:
    """What `header.Topic` and `header.Group` say of a type, also where it may be None."""
    for each in (declared, *get_args(declared)):
        extra = getattr(each, "extra", None)
        if extra:
            return str(extra.get("acl"))
        if each is not declared and (found := _kind(each)) is not None:
            return found
    return None


def _renamed(body: bytes, keys: set[str], rename: Callable[[str], str]) -> bytes:
    """The JSON text with the names under these keys renamed; keys that are objects stay so, as Java has them. Raises
    ProtocolError."""

    def walk(value: Any, *, named: bool = False) -> bytes:
        if isinstance(value, list):
            return b"[" + b",".join(walk(each, named=named) for each in value) + b"]"
        if isinstance(value, dict):
            members = (
                key_of(key, named) + b":" + walk(each, named=not named and key in keys) for key, each in value.items()
            )
            return b"{" + b",".join(members) + b"}"
        return json.encode(rename(value) if named and isinstance(value, str) else value)

    def key_of(key: str, named: bool) -> bytes:
        if key.startswith("{"):
            return walk(json.decode(key.encode(), Any, "key of a map"))
        # `topic@group` in tables of offsets: no name has that character.
        return json.encode("@".join(map(rename, key.split("@"))) if named else key)

    try:
        return walk(json.decode(body, Any, "body"))
    except RecursionError as error:
        raise ProtocolError(f"body: {error}") from None
