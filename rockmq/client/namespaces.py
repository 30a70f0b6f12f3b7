"""Namespaces, and what else of its surroundings a client tells with every request (NamespaceUtil.java,
NamespaceRpcHook.java, DynamicalExtFieldRPCHook.java; clients' spec, 1.1).

The newer kind is two fields of each request. The older one stands before the names of topics and groups, as `tenant%orders`
and `%RETRY%tenant%billing`, and servers know nothing of it: so it is put there when a request leaves, and taken away from
what comes back. Within the client names are the user's.
"""

import os
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, get_args

import msgspec

from rockmq.protocol import properties, topics
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import EXCHANGES, Header
from rockmq.protocol.message import StoredMessage
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer, Handler

SEPARATOR = "%"
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
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName"},
}
"""Requests whose names are in JSON bodies, of their answers too, and the keys they stand under."""


def request_fields(namespace: str | None) -> dict[str, str]:
    """The fields that every request of a client has: its namespace, and its zone as the environment says."""
    fields = {"nsd": "true", "ns": namespace} if namespace else {}
    return fields | {field: value for variable, field in ZONE if (value := os.environ.get(variable, "").strip())}


class Prefix:
    """The older kind of namespace: what goes before names, and away again."""

    def __init__(self, namespace: str) -> None:
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
        """An answer to a request of this code, its body's names without the namespace."""
        if (keys := _IN_BODIES.get(code)) and answer.body:
            answer.body = _renamed(answer.body, keys, self.take)
        return answer

    def handler(self, handler: Handler) -> Handler:
        """A handler of servers' requests that gets their names without the namespace."""

        def handle(header: Header, request: Command, connection: Connection) -> Answer | Awaitable[Answer]:
            for attribute, _ in _names(type(header)):
                if name := getattr(header, attribute):
                    setattr(header, attribute, self.take(name))
            return handler(header, request, connection)

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
    def walk(value: Any) -> Any:
        if isinstance(value, list):
            return [walk(each) for each in value]
        if isinstance(value, dict):
            return {
                key: rename(each) if key in keys and isinstance(each, str) else walk(each) for key, each in value.items()
            }
        return value

    return msgspec.json.encode(walk(msgspec.json.decode(body)))
