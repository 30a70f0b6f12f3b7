"""What is wrong is told to whoever sent it, and costs nobody else anything."""

import asyncio
import logging
import struct
from pathlib import Path

import pytest

from rockmq.broker.server import Broker
from rockmq.protocol.codec import FRAME_SIZE_MAX, encode_batch
from rockmq.protocol.codes import RequestCode, ResponseCode
from tests.support.wire import RawClient, frame, request, send_fields
from tests.unit.broker.conftest import running

V2 = RequestCode.SEND_MESSAGE_V2
BODY_MAX = 4 << 20


async def create_topic(client: RawClient, topic: str, queues: int = 4) -> None:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
    assert (await client.ask(request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)))["code"] == ResponseCode.SUCCESS


async def stored(client: RawClient, topic: str = "T") -> int:
    """Messages in the topic's first four queues."""
    total = 0
    for queue_id in range(4):
        header = await client.ask(request(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": str(queue_id)}))
        fields = header["extFields"]
        assert isinstance(fields, dict)
        total += int(fields["offset"])
    return total


BAD_FRAMES = {
    "frame length beyond the limit": (struct.pack(">i", FRAME_SIZE_MAX - 3) + b"\0" * 100, "16777212"),
    "frame length near the largest integer": (struct.pack(">i", 2**31 - 1) + b"\0" * 100, "2147483647"),
    "negative frame length": (struct.pack(">i", -5) + b"\0" * 100, "-5"),
    "frame length too small for a header length": (struct.pack(">i", 3) + b"\0" * 100, "3"),
    "header longer than the frame": (frame(b"{}", length=6, head=5000), "5000"),
    "unknown serializer": (frame(b"{}", serializer=7), "7"),
    "header that is not JSON": (frame(b"this is no JSON"), "header"),
    "header that ends early": (frame(b'{"code":10,"extFields":{"a":'), "header"),
    "binary header too short": (frame(b"\0" * 20, serializer=1), "header"),
    "binary header with a field beyond its end": (
        frame(struct.pack(">hbhiiii", 10, 0, 479, 1, 0, 0, 12) + b"\0\1a\x7f\xff\xff\xff" + b"\0" * 5, serializer=1),
        "header",
    ),
}


@pytest.mark.parametrize("case", BAD_FRAMES)
async def test_frame_that_cannot_be_trusted_closes_its_connection_only(
    broker: Broker, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    data, names = BAD_FRAMES[case]
    good = await RawClient.connect(broker.address)
    await create_topic(good, "T")
    bad = await RawClient.connect(broker.address)
    with caplog.at_level(logging.WARNING, "rockmq.remoting"):
        await bad.send(request(V2, send_fields(), b"before") + data)
        header, _ = await bad.response()
        assert header["code"] == ResponseCode.SUCCESS, "what came before the bad frame is answered"
        assert await bad.closed()
    reasons = [record.getMessage() for record in caplog.records if "closing the connection" in record.getMessage()]
    assert len(reasons) == 1
    assert names in reasons[0]
    assert (await good.ask(request(V2, send_fields(), b"after")))["code"] == ResponseCode.SUCCESS
    assert await stored(good) == 2
    good.close()
    bad.close()


BATCH = encode_batch([(0, b"one", b""), (0, b"two", b"")])
REFUSED = {
    "missing topic": (send_fields(b=None), b"x", ResponseCode.INVALID_PARAMETER, "`b`"),
    "missing queue id": (send_fields(e=None), b"x", ResponseCode.INVALID_PARAMETER, "`e`"),
    "queue id that is no number": (send_fields(e="two"), b"x", ResponseCode.INVALID_PARAMETER, "$.e"),
    "queue id beyond 32 bits": (send_fields(e=str(2**31)), b"x", ResponseCode.INVALID_PARAMETER, "2147483647"),
    "born timestamp that is no number": (send_fields(g="now"), b"x", ResponseCode.INVALID_PARAMETER, "$.g"),
    "topic over its bound": (send_fields(b="t" * 128), b"x", ResponseCode.INVALID_PARAMETER, "127"),
    "topic with illegal characters": (send_fields(b="no good"), b"x", ResponseCode.INVALID_PARAMETER, "no good"),
    "topic of the system": (send_fields(b="SCHEDULE_TOPIC_XXXX"), b"x", ResponseCode.NO_PERMISSION, "SCHEDULE_TOPIC_XXXX"),
    "queue id out of range": (send_fields(e="4"), b"x", ResponseCode.INVALID_PARAMETER, "0 to 3"),
    "empty body": (send_fields(), b"", ResponseCode.MESSAGE_ILLEGAL, "empty"),
    "body over 4 MiB": (send_fields(), bytes(BODY_MAX + 1), ResponseCode.MESSAGE_ILLEGAL, str(BODY_MAX)),
    "properties over their bound": (
        send_fields(i="KEYS\x01" + "k" * 32_700 + "\x02"),
        b"x",
        ResponseCode.MESSAGE_ILLEGAL,
        "32767",
    ),
    "properties that a crash could have torn": (
        send_fields(i="a\x01" + "\0" * 16 + "b\x02"),
        b"x",
        ResponseCode.MESSAGE_ILLEGAL,
        "torn",
    ),
    "batch over 4 MiB": (
        send_fields(m="true"),
        encode_batch([(0, bytes(BODY_MAX), b""), (0, b"two", b"")]),
        ResponseCode.MESSAGE_ILLEGAL,
        str(BODY_MAX),
    ),
    "unknown template topic": (send_fields(b="NEW", c="NOTHING"), b"x", ResponseCode.TOPIC_NOT_EXIST, "NOTHING"),
    "inner batch flag": (send_fields(f="192"), b"x", ResponseCode.MESSAGE_ILLEGAL, "inner batch"),
    "inner batch without its flag": (
        send_fields(i="INNER_NUM\x012\x02"),
        b"x",
        ResponseCode.MESSAGE_ILLEGAL,
        "INNER_NUM",
    ),
    "batch with a transaction's flag": (send_fields(m="true", f="4"), BATCH, ResponseCode.MESSAGE_ILLEGAL, "transactional"),
    "batch with a transaction's property": (
        send_fields(m="true", i="TRAN_MSG\x01TRUE\x02"),
        BATCH,
        ResponseCode.MESSAGE_ILLEGAL,
        "transactional",
    ),
    "delayed batch": (send_fields(m="true", i="DELAY\x013\x02"), BATCH, ResponseCode.MESSAGE_ILLEGAL, "DELAY"),
    "message for light queues": (
        send_fields(i="INNER_MULTI_DISPATCH\x01%LMQ%a\x02"),
        b"x",
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        "light queues",
    ),
    "delay level that is no number": (send_fields(i="DELAY\x01soon\x02"), b"x", ResponseCode.MESSAGE_ILLEGAL, "DELAY"),
    **{
        f"batch with {key}": (
            send_fields(m="true"),
            encode_batch([(0, b"one", b""), (0, b"two", f"TAGS\x01a\x02{key}\x01{value}\x02".encode())]),
            ResponseCode.MESSAGE_ILLEGAL,
            "light queues",
        )
        for key, value in (("INNER_MULTI_DISPATCH", "%LMQ%a"), ("INNER_MULTI_QUEUE_OFFSET", "7"))
    },
    "batch cut off": (
        send_fields(m="true"),
        BATCH[:-3],
        ResponseCode.MESSAGE_ILLEGAL,
        "batch",
    ),
    "batch with a lying body length": (
        send_fields(m="true"),
        struct.pack(">iiiii", 40, 0, 0, 0, 2**31 - 1) + bytes(20),
        ResponseCode.MESSAGE_ILLEGAL,
        "batch",
    ),
    "batch with properties that a crash could have torn": (
        send_fields(m="true"),
        encode_batch([(0, b"one", b""), (0, b"two", b"a\x01" + bytes(16) + b"b\x02")]),
        ResponseCode.MESSAGE_ILLEGAL,
        "properties",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_bad_send_is_refused_with_field_and_bound(broker: Broker, case: str) -> None:
    fields, body, code, names = REFUSED[case]
    client = await RawClient.connect(broker.address)
    await create_topic(client, "T")
    header = await client.ask(request(V2, fields, body, opaque=77))
    assert (header["code"], header["opaque"]) == (code, 77)
    assert names in str(header["remark"])
    assert await stored(client) == 0
    assert (await client.ask(request(V2, send_fields(), b"good")))["code"] == ResponseCode.SUCCESS, "the connection lives"
    client.close()


async def test_a_retry_topic_takes_no_batch(broker: Broker) -> None:
    """Row 2.5."""
    client = await RawClient.connect(broker.address)
    await create_topic(client, "%RETRY%g")
    header = await client.ask(request(V2, send_fields(b="%RETRY%g", e="0", m="true"), BATCH))
    assert (header["code"], "%RETRY%g" in str(header["remark"])) == (ResponseCode.MESSAGE_ILLEGAL, True)
    client.close()


async def test_topic_is_not_created_without_auto_create(tmp_path: Path) -> None:
    async with running(tmp_path, autoCreateTopicEnable="false") as broker:
        client = await RawClient.connect(broker.address)
        header = await client.ask(request(V2, send_fields(b="UNKNOWN"), b"x"))
        assert header["code"] == ResponseCode.TOPIC_NOT_EXIST
        assert "autoCreateTopicEnable" in str(header["remark"])
        client.close()


@pytest.mark.parametrize("code", [9999, 371, -1, *range(200_070, 200_080)])
async def test_unknown_code_is_told_as_not_supported(broker: Broker, code: int) -> None:
    client = await RawClient.connect(broker.address)
    header = await client.ask(request(code, {"any": "thing"}))
    assert header["code"] == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert str(code) in str(header["remark"])
    client.close()


async def test_a_lite_topic_is_refused(broker: Broker) -> None:
    """The kind of topic that 5.5 has for the codes from 200070 on."""
    client = await RawClient.connect(broker.address)
    fields = {"topic": "L", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6"}
    fields |= {"topicFilterType": "SINGLE_TAG", "attributes": "+message.type=LITE"}
    header = await client.ask(request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))
    assert header["code"] == ResponseCode.INVALID_PARAMETER
    assert "message.type=LITE is not built" in str(header["remark"])
    client.close()


@pytest.mark.parametrize(
    ("changes", "code", "names"),
    [
        ({"queueId": "9"}, ResponseCode.INVALID_PARAMETER, "0 to 3"),
        ({"queueId": "-1"}, ResponseCode.INVALID_PARAMETER, "0 to 3"),
        ({"topic": "NOTHING"}, ResponseCode.TOPIC_NOT_EXIST, "NOTHING"),
        ({"queueOffset": "far"}, ResponseCode.INVALID_PARAMETER, "queueOffset"),
        ({"consumerGroup": "bad group"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "bad group"),
        ({"sysFlag": "0", "consumerGroup": "silent"}, ResponseCode.SUBSCRIPTION_NOT_EXIST, "heartbeat"),
    ],
)
async def test_bad_pull_is_refused(broker: Broker, changes: dict[str, object], code: int, names: str) -> None:
    client = await RawClient.connect(broker.address)
    await create_topic(client, "T")
    fields: dict[str, object] = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subVersion": "0",
        "subscription": "*",
    }
    header = await client.ask(request(RequestCode.PULL_MESSAGE, fields | changes))
    assert header["code"] == code
    assert names in str(header["remark"])
    client.close()


@pytest.mark.parametrize(
    "body", [b"", b"no json", b"[]", b'{"clientID":5}', b'{"clientID":"c","producerDataSet":[{}]}', b"{" * 500]
)
async def test_bad_heartbeat_is_refused(broker: Broker, body: bytes) -> None:
    client = await RawClient.connect(broker.address)
    header = await client.ask(request(RequestCode.HEART_BEAT, {}, body))
    assert header["code"] == ResponseCode.INVALID_PARAMETER
    assert "heartbeat" in str(header["remark"])
    client.close()


async def test_client_that_stops_reading_is_not_read_from(broker: Broker) -> None:
    """Its answers wait within bounds, its further requests stay in its own socket, and others are served."""
    good = await RawClient.connect(broker.address)
    await create_topic(good, "T")
    for _ in range(8):
        await good.ask(request(V2, send_fields(), bytes(1 << 20)))
    stuck = await RawClient.connect(broker.address)
    stuck.writer.transport.set_write_buffer_limits(high=1 << 16)
    fields: dict[str, object] = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subVersion": "0",
        "subscription": "*",
        "maxMsgBytes": str(8 << 20),
    }
    stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
    pull = request(RequestCode.PULL_MESSAGE, fields | {"padding": "x" * 20_000})
    blocked = False
    for _ in range(2_000):
        stuck.writer.write(pull)
        try:
            async with asyncio.timeout(0.5):
                await stuck.writer.drain()
        except TimeoutError:
            blocked = True
            break
    assert blocked, "the broker went on reading requests whose answers nobody takes"
    assert (await good.ask(request(V2, send_fields(), b"x")))["code"] == ResponseCode.SUCCESS
    stuck.writer.transport.abort()
    good.close()
