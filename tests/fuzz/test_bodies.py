"""Bodies of requests and answers, damaged: a ProtocolError, or a value that encodes back to an equal one."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from rockmq.base.errors import ProtocolError
from rockmq.protocol import bodies, json
from rockmq.protocol.bodies.admin import ConsumeRates, ConsumerRunningInfo, ConsumeStats, HeldQueue, OffsetWrapper
from rockmq.protocol.bodies.client import HeartbeatData
from rockmq.protocol.bodies.common import Body, MessageQueue
from rockmq.protocol.bodies.route import TopicRouteData
from tests.support.damage import damaged

QUEUE = MessageQueue("T", "b", 1)
BY_HAND: list[msgspec.Struct] = [
    json.decode(
        b'{"clientID":"c","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":"g","subscriptionDataSet":'
        b'[{"topic":"T","subString":"*","tagsSet":[],"codeSet":[1],"subVersion":1}]}],"heartbeatFingerprint":0}',
        HeartbeatData,
        "heartbeat",
    ),
    json.decode(
        b'{"brokerDatas":[{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"c"}],"filterServerTable":{},"queueDatas":'
        b'[{"brokerName":"b","perm":6,"readQueueNums":4,"writeQueueNums":4}]}',
        TopicRouteData,
        "route",
    ),
    ConsumerRunningInfo(properties={"a": "b"}, mq_table={QUEUE.key(): HeldQueue()}, status_table={"T": ConsumeRates()}),
    ConsumeStats(offset_table={QUEUE.key(): OffsetWrapper(broker_offset=7, consumer_offset=5)}, consume_tps=0.5),
]
"""Those whose keys are as only Java writes them, and one that the core looks into; the others have one of everything."""


def kinds() -> Iterator[type[msgspec.Struct]]:
    """All that are declared."""
    for module in pkgutil.iter_modules(bodies.__path__):
        for found in vars(importlib.import_module(f"{bodies.__name__}.{module.name}")).values():
            is_body = isinstance(found, type) and issubclass(found, msgspec.Struct) and found is not Body
            if is_body and found.__module__.endswith(f".{module.name}"):
                yield found


KINDS = sorted(kinds(), key=lambda kind: (kind.__module__, kind.__name__))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_bodies_are_read_or_refused(kind: type[msgspec.Struct]) -> None:
    by_hand = [body for body in BY_HAND if type(body) is kind]
    plain = [json.encode(body) for body in by_hand or [json.decode(json.encode(one(inspect.type_info(kind))), kind, "one")]]
    bare = [text.replace(b'{"', b"{").replace(b'":', b":").replace(b',"', b",") for text in plain]

    def check(data: bytes) -> None:
        try:
            read = json.decode(data, kind, "body")
        except ProtocolError as error:
            assert str(error).startswith("body: ")
            return
        assert json.decode(json.encode(read), kind, "body") == read

    damaged(plain + bare, check, tests=len(KINDS))


def one(kind: inspect.Type) -> Any:
    """A value of a type, with one of everything in it."""
    match kind:
        case inspect.StructType():
            return {each.encode_name: one(each.type) for each in kind.fields}
        case inspect.DictType():
            return {str(one(kind.key_type)): one(kind.value_type)}
        case inspect.ListType() | inspect.SetType():
            return [one(kind.item_type)]
        case inspect.UnionType():
            return one(next(each for each in kind.types if not isinstance(each, inspect.NoneType)))
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.EnumType():
            return next(iter(kind.cls)).value
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return max(kind.ge or 0, 5)
        case inspect.FloatType():
            return 0.5
        case inspect.BytesType():
            return "AQ=="
        case inspect.StrType() | inspect.AnyType():
            return "x"
    raise AssertionError(f"no value of {kind}")
