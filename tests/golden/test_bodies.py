"""JSON bodies recorded from Apache's clients and servers against the declared bodies, and batches against our decoder."""

import json
from typing import Any

import pytest

from rockmq.protocol import json as lenient
from rockmq.protocol import properties
from rockmq.protocol.bodies import client, common, route
from rockmq.protocol.codec import encode_batch
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.message import decode_batch, decode_stored
from tests.golden.test_frames import INDEX, bytes_of
from tests.support import frames

DECLARED: dict[tuple[int, str], type] = {
    (RequestCode.HEART_BEAT, "request"): client.HeartbeatData,
    (RequestCode.GET_CONSUMER_LIST_BY_GROUP, "response"): client.ConsumerList,
    (RequestCode.LOCK_BATCH_MQ, "request"): client.LockBatchBody,
    (RequestCode.LOCK_BATCH_MQ, "response"): client.LockedQueues,
    (RequestCode.UNLOCK_BATCH_MQ, "request"): client.LockBatchBody,
    (RequestCode.CHECK_CLIENT_CONFIG, "request"): client.CheckClientBody,
    (RequestCode.GET_CONSUMER_CONNECTION_LIST, "response"): client.ConsumerConnections,
    (RequestCode.GET_ROUTEINFO_BY_TOPIC, "response"): route.TopicRouteData,
    (RequestCode.GET_BROKER_CLUSTER_INFO, "response"): route.ClusterInfo,
    (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "response"): route.TopicList,
    (RequestCode.REGISTER_BROKER, "request"): route.RegisterBody,
    (RequestCode.REGISTER_BROKER, "response"): common.KVTable,
    (RequestCode.QUERY_DATA_VERSION, "request"): common.DataVersion,
    (RequestCode.QUERY_DATA_VERSION, "response"): common.DataVersion,
}


def recorded(code: int, role: str) -> list[Any]:
    return [
        pytest.param(entry, id=entry["file"].removesuffix(".bin"))
        for entry in INDEX
        if (entry["requestCode"], entry["role"]) == (code, role) and entry["bodySize"]
    ]


def body_of(entry: dict[str, Any]) -> bytes:
    return frames.read(bytes_of(entry)).body


def lost(original: object, kept: object, where: str = "body") -> list[str]:
    """What is in the original JSON and not, or not so, in the kept."""
    if isinstance(original, dict) and isinstance(kept, dict):
        return [fault for key, value in original.items() for fault in lost(value, kept.get(key), f"{where}.{key}")]
    if isinstance(original, list) and isinstance(kept, list) and len(original) == len(kept):
        return [fault for i, value in enumerate(original) for fault in lost(value, kept[i], f"{where}[{i}]")]
    return [] if original == kept else [f"{where}: {original!r} became {kept!r}"]


@pytest.mark.parametrize(
    ("entry", "kind"), [(*param.values, kind) for key, kind in DECLARED.items() for param in recorded(*key)],
    ids=lambda value: value["file"].removesuffix(".bin") if isinstance(value, dict) else value.__name__,
)  # fmt: skip
def test_declared_body_keeps_every_field(entry: dict[str, Any], kind: type) -> None:
    body = body_of(entry)
    value: object = lenient.decode(body, kind, entry["file"])
    assert lost(json.loads(lenient.standard(body.decode())), json.loads(lenient.encode(value))) == []


def test_every_declared_body_was_recorded() -> None:
    assert [key for key in DECLARED if not recorded(*key)] == []


@pytest.mark.parametrize("entry", recorded(RequestCode.SEND_BATCH_MESSAGE, "request"))
def test_batch_is_taken_apart_and_put_together_again(entry: dict[str, Any]) -> None:
    body = body_of(entry)
    messages = decode_batch(body)
    assert encode_batch(messages) == body
    for _, content, text in messages:
        assert content.startswith(b"message-batch-")
        assert {"KEYS", "TAGS", "UNIQ_KEY", "index", "greeting"} <= set(properties.decode(text))


@pytest.mark.parametrize(
    "entry",
    [
        param
        for code in (
            RequestCode.PULL_MESSAGE,
            RequestCode.LITE_PULL_MESSAGE,
            RequestCode.QUERY_MESSAGE,
            RequestCode.VIEW_MESSAGE_BY_ID,
        )
        for param in recorded(code, "response")
    ],
)
def test_messages_of_an_answer_decode(entry: dict[str, Any]) -> None:
    messages = decode_stored(body_of(entry), check_crc=True)
    assert sum(message.size for message in messages) == entry["bodySize"]
    assert all(message.msg_id == message.properties["UNIQ_KEY"] for message in messages)
