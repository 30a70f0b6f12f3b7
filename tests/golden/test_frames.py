"""Frames recorded from Apache's clients, tools and servers (`capture.py`) against our codec and our declared headers."""

import json
from pathlib import Path
from typing import Any

import pytest

from rockmq import _core
from rockmq.protocol import header as headers
from rockmq.protocol import headers as declared
from rockmq.protocol.codec import FRAME_SIZE_MAX, Serializer, from_tuple
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import EXCHANGES, Header

FRAMES = Path(__file__).parent / "frames"
INDEX: list[dict[str, Any]] = json.loads((FRAMES / "index.json").read_text(encoding="utf-8"))
SERIALIZERS = {"json": Serializer.JSON, "rocketmq": Serializer.ROCKETMQ}
PEER = bytes(8)
# Travel beside any header and belong to none: the stream hook's mark on requests of pull consumers, what a broker adds to
# the answers of sends and heartbeats (protocol spec, 2.1, 4.1 and 4.4).
BESIDE = {"ReqT", "MSG_REGION", "TRACE_ON", "IS_SUB_CHANGE", "IS_SUPPORT_HEART_BEAT_V2"}
# Declared, but sent by nothing that the capture script runs.
UNRECORDED = {
    RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    RequestCode.GET_KVLIST_BY_NAMESPACE,
    RequestCode.GET_TOPICS_BY_CLUSTER,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    RequestCode.GET_UNIT_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    RequestCode.GET_BROKER_MEMBER_GROUP,
    RequestCode.BROKER_HEARTBEAT,
    RequestCode.RECALL_MESSAGE,  # sent by a client in tests/interop/test_timers.py
    RequestCode.SEND_REPLY_MESSAGE,  # sent by a client in tests/interop/test_other_clients.py
    RequestCode.PEEK_MESSAGE,  # Apache has no client that sends it
    RequestCode.NOTIFICATION,
    RequestCode.POLLING_INFO,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    # These are sent by our client, which tests/client shows beside Apache's broker.
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.DELETE_EXPIRED_COMMITLOG,
    RequestCode.QUERY_TOPICS_BY_CONSUMER,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_PRODUCER_INFO,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.QUERY_CORRECTION_OFFSET,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
    RequestCode.SWITCH_TIMER_ENGINE,
    RequestCode.POP_ROLLBACK,
    RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
    RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
    RequestCode.SET_COMMITLOG_READ_MODE,
    RequestCode.ADD_BROKER,
    RequestCode.REMOVE_BROKER,
    RequestCode.RESET_MASTER_FLUSH_OFFSET,
    RequestCode.GET_BROKER_EPOCH_CACHE,
    RequestCode.CONTROLLER_ELECT_MASTER,
    RequestCode.CONTROLLER_GET_METADATA_INFO,
    RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
    RequestCode.UPDATE_CONTROLLER_CONFIG,
    RequestCode.GET_CONTROLLER_CONFIG,
    RequestCode.CLEAN_BROKER_DATA,
    *(code for code in RequestCode if code.name.startswith("AUTH_") or "_LITE_" in code.name),
    RequestCode.GET_PARENT_TOPIC_INFO,
}
SUCCESS = 0

assert declared.__all__  # importing it fills EXCHANGES


def name_of(entry: dict[str, Any]) -> str:
    name: str = entry["file"].removesuffix(".bin")
    return name


every_frame = pytest.mark.parametrize("entry", INDEX, ids=name_of)


def bytes_of(entry: dict[str, Any]) -> bytes:
    return FRAMES.joinpath(entry["file"]).read_bytes()


def fed(chunk: bytes) -> "list[_core.Command]":
    replies, position, commands, woken, fault = _core.Lane(None, PEER, FRAME_SIZE_MAX).feed(chunk, 0)
    assert (replies, position, woken, fault) == (b"", 0, [], None)
    return commands


def header_of(entry: dict[str, Any]) -> type[Header]:
    """The declared type of the frame's fields."""
    exchange = EXCHANGES[entry["requestCode"]]
    return exchange.request if entry["role"] == "request" else exchange.response


@every_frame
def test_core_reads_what_was_recorded(entry: dict[str, Any]) -> None:
    data = bytes_of(entry)
    (command,) = fed(data)
    code, language, version, opaque, flag, serializer, remark, fields, body = command
    assert (code, language, version, opaque, flag, remark, fields) == (
        entry["code"],
        entry["language"],
        entry["version"],
        entry["opaque"],
        entry["flag"],
        entry["remark"],
        entry["fields"],
    )
    assert serializer == SERIALIZERS[entry["serializer"]]
    assert len(body) == entry["bodySize"]
    assert data.endswith(body)


@every_frame
def test_what_the_core_writes_reads_the_same(entry: dict[str, Any]) -> None:
    (read,) = map(from_tuple, fed(bytes_of(entry)))
    (again,) = map(from_tuple, fed(read.encode()))
    assert (again.code, again.opaque, again.flag, again.remark, again.fields, again.body, again.serializer) == (
        read.code,
        read.opaque,
        read.flag,
        read.remark,
        read.fields,
        read.body,
        read.serializer,
    )


@pytest.mark.parametrize("chunk_size", [1, 7, 100, 4_096])
def test_frames_are_cut_wherever_the_network_breaks_them(chunk_size: int) -> None:
    stream = b"".join(map(bytes_of, INDEX))
    lane = _core.Lane(None, PEER, FRAME_SIZE_MAX)
    commands = [
        command for at in range(0, len(stream), chunk_size) for command in lane.feed(stream[at : at + chunk_size], 0)[2]
    ]
    assert [(command[0], command[3]) for command in commands] == [(entry["code"], entry["opaque"]) for entry in INDEX]
    assert lane.buffered == 0


@pytest.mark.parametrize(
    "entry",
    # An error may come without its header: its remark says all.
    [entry for entry in INDEX if entry["requestCode"] in EXCHANGES and (entry["fields"] or entry["code"] == SUCCESS)],
    ids=name_of,
)
def test_declared_header_keeps_every_field(entry: dict[str, Any]) -> None:
    header = header_of(entry)
    value = headers.decode(header, entry["fields"])
    for attribute, key in headers.keys(header):
        if key in entry["fields"]:
            assert headers.text(getattr(value, attribute)) == entry["fields"][key]
    assert headers.encode(value) == {key: text for key, text in entry["fields"].items() if key not in BESIDE}


def test_every_declared_request_a_client_sends_was_recorded() -> None:
    """So that a new declaration meets the bytes of a real client, or is listed as one without."""
    assert set(EXCHANGES) - {entry["requestCode"] for entry in INDEX} == UNRECORDED
