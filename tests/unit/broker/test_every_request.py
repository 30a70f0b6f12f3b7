"""Every request a broker knows, with fields and bodies as they must not be: an answer in words each time, nothing that
nobody foresaw, and afterwards everything as before."""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

import msgspec
import pytest

from rockmq.broker.server import Broker
from rockmq.protocol import codec
from rockmq.protocol.codec import Command, encode_batch
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import EXCHANGES
from rockmq.remoting.client import RemotingClient
from tests.unit.broker.conftest import running
from tests.unit.broker.test_messages import create_request, pull_request, send_request, sent
from tests.unit.broker.transaction_bench import UNKNOWN, end_header, half_request

CASES = 200
"""For each request code."""
MEMORY_MAX_KIB = 400 << 10
"""What all of them may cost, this process being client and broker: some frames of the greatest size."""

GOOD: dict[str, str] = {
    "topic": "T",
    "b": "T",
    "consumerGroup": "g",
    "producerGroup": "g",
    "group": "g",
    "a": "g",
    "srcGroup": "g",
    "destGroup": "h",
    "queueId": "0",
    "e": "0",
    "defaultTopic": "TBW102",
    "c": "TBW102",
    "properties": "KEYS\x01k\x02",
    "i": "KEYS\x01k\x02",
    "subscription": "*",
    "sysFlag": "0",
    "maxMsgNums": "8",
    "maxNum": "8",
    "key": "k",
    "clientId": "c",
    "clientID": "c",
    "msgId": "7F00000100002A9F0000000000000000",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "invisibleTime": "1000",
    "extraInfo": "0 1 60000 0 0 broker-a 0 0",
    "recallHandle": "djEgVCBicm9rZXItYSAxIEE",
    "exp": "*",
}
"""What a field is when it isn't the one that is wrong; the others are 0 or false by their types, or left out."""

OTHER: dict[int, dict[str, str]] = {
    RequestCode.PULL_MESSAGE: {"sysFlag": "4"},
    RequestCode.LITE_PULL_MESSAGE: {"sysFlag": "20", "expressionType": "SQL92", "subscription": "a IS NULL"},
    RequestCode.POP_MESSAGE: {"exp": "a IS NULL", "expType": "SQL92", "initMode": "0"},
    RequestCode.SEND_BATCH_MESSAGE: {"m": "true"},
    RequestCode.DELETE_TOPIC_IN_BROKER: {"topic": "Doomed"},
    RequestCode.UPDATE_AND_CREATE_TOPIC: {"topic": "Made"},
    RequestCode.DELETE_SUBSCRIPTIONGROUP: {"groupName": "doomed"},
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: {"topic": "Doomed"},
    RequestCode.VIEW_BROKER_STATS_DATA: {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"},
}
QUEUE = {"topic": "T", "brokerName": "broker-a", "queueId": 0}
SUBSCRIPTION = {"topic": "T", "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1, "expressionType": "TAG"}
USER = {"username": "u", "password": "p", "userType": "Normal", "userStatus": "enable"}
RULE = {"resource": "Topic:a*", "actions": ["Pub"], "sourceIps": ["10.0.0.1"], "decision": "Allow"}
RULES = {"subject": "User:u", "policies": [{"policyType": "Custom", "entries": [RULE]}]}
VERSION = {"counter": 1, "stateVersion": 0, "timestamp": 5}
BATCH = encode_batch([(0, b"one", b"KEYS\x01k\x02"), (0, b"two", b"")])
BODIES: dict[int, Any] = {
    RequestCode.HEART_BEAT: {
        "clientID": "c",
        "producerDataSet": [{"groupName": "g"}],
        "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [SUBSCRIPTION]}],
    },
    RequestCode.LOCK_BATCH_MQ: {"consumerGroup": "g", "clientId": "c", "mqSet": [QUEUE]},
    RequestCode.UNLOCK_BATCH_MQ: {"consumerGroup": "g", "clientId": "c", "mqSet": [QUEUE]},
    RequestCode.CHECK_CLIENT_CONFIG: {"clientId": "c", "group": "g", "subscriptionData": SUBSCRIPTION},
    RequestCode.QUERY_ASSIGNMENT: {"topic": "T", "consumerGroup": "g", "clientId": "c", "strategyName": "AVG"},
    RequestCode.SET_MESSAGE_REQUEST_MODE: {"topic": "T", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {"groupName": "made", "consumeEnable": True, "brokerId": 0},
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {"groupConfigList": [{"groupName": "made", "brokerId": 0}]},
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {
        "topicConfigList": [
            {"topicName": "Made", "readQueueNums": 1, "perm": 6, "attributes": {"+message.type": "NORMAL"}, "order": False}
        ]
    },
    RequestCode.BATCH_ACK_MESSAGE: {
        "acks": [{"c": "g", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1, "b": "AQ=="}]
    },
    RequestCode.AUTH_CREATE_USER: USER,
    RequestCode.AUTH_UPDATE_USER: USER,
    RequestCode.AUTH_CREATE_ACL: RULES,
    RequestCode.AUTH_UPDATE_ACL: RULES,
    # What name servers are asked.
    RequestCode.REGISTER_BROKER: {
        "topicConfigSerializeWrapper": {
            "topicConfigTable": {"T": {"topicName": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}},
            "dataVersion": VERSION,
        },
        "filterServerList": ["10.0.0.1:1"],
    },
    RequestCode.QUERY_DATA_VERSION: VERSION,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: {
        "brokerDatas": [{"brokerAddrs": {"0": "10.0.0.1:1"}, "brokerName": "x", "cluster": "x"}],
        "queueDatas": [{"brokerName": "x", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4}],
    },
}
CONFIGURATION = b"shortPollingTimeMills=900\nmaxMsgsNumBatch=64\n"
BAD_CONFIGURATIONS = (
    "listenPort=1", "brokerPermission=8", "brokerPermission=", "brokerPermission=\\u00", "nobody=knows", "=", "x",
    "\n" * 5000, "shortPollingTimeMills=1\nlistenPort=1", "configBlackList=x", "sendMessageThreadPoolNums=4",
    "deleteWhen=24", "longPollingEnable=yes", "maxMsgsNumBatch=0", "maxMsgsNumBatch=" + "9" * 10_000, "a=b\n" * 10_000,
    "brokerRole=SLAVE",
)  # fmt: skip
BAD_TEXTS = (
    "", " ", "x", "-1", "1.5", "1e3", "NaN", "0x10", "true", "null", "2147483648", "-2147483649", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "99999999999999999999999", "%RETRY%", "%DLQ%g", "%LMQ%x", "../../etc",
    "a b", "ü", "\U0001f600", "\x00", "\x01\x02", "x" * 300, "y" * 70_000, "A\x01B\x02" * 5000, "a > 1 AND", "((((" * 500,
    "(" * 10_000 + "a = 1" + ")" * 10_000, "NOT " * 4000 + "a", "a IN (" + "'b'," * 4000 + "'b')", "a||" * 5000, "||" * 8000,
)  # fmt: skip
WRONG = ("x", "-1", "9223372036854775808")
"""What each field is once: for a number no number, below its bounds, above them."""
MILLION_PROPERTIES = "A\x01B\x02" * 1_000_000
BAD_BODIES = (
    b"", b"\x00", b"{", b"{}", b"[]", b"null", b"7", b'"x"', b"\xff\xfe", b"{" * 5000, b"[" * 100_000, b'{"a":' * 10_000,
    b'{"clientID":null}', b"\x00\x00\x00\x10" * 100,
)  # fmt: skip
BAD_VALUES = (None, "", "x", -1, 2**31, 2**63, 1.5, True, [], {}, [None], "x" * 1000)


def base(code: int) -> dict[str, str]:
    """Fields that are as they should be."""
    found = {}
    for field in msgspec.structs.fields(EXCHANGES[code].request):
        name = field.encode_name
        if name in GOOD:
            found[name] = GOOD[name]
        elif field.required:
            found[name] = "false" if field.type is bool else "0" if "int" in str(field.type) else "x"
    return found | OTHER.get(code, {})


def cases(code: int, dice: random.Random, more: dict[str, str]) -> Iterator[tuple[dict[str, str], bytes]]:
    good = base(code) | more
    names = [field.encode_name for field in msgspec.structs.fields(EXCHANGES[code].request)] or ["nothing"]
    body = json.dumps(BODIES[code]).encode() if code in BODIES else b"x"
    if code in (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG):
        body = CONFIGURATION
        yield from ((good, text.encode()) for text in BAD_CONFIGURATIONS)
    if code == RequestCode.SEND_BATCH_MESSAGE:
        body = BATCH
        yield from ((good, BATCH[:size]) for size in range(0, len(BATCH), 5))
    yield good, body
    for name in good:
        yield {key: value for key, value in good.items() if key != name}, body
    for name in names:
        yield from ((good | {name: wrong}, body) for wrong in WRONG)
    for name in {"i", "properties"} & set(names):
        yield good | {name: MILLION_PROPERTIES}, body
    for bad in BAD_BODIES:
        yield good, bad
    while True:
        if code in BODIES and dice.random() < 0.6:
            yield good, json.dumps(_spoiled(BODIES[code], dice)).encode()
        else:
            yield good | {dice.choice(names): dice.choice(BAD_TEXTS)}, body


def _spoiled(value: Any, dice: random.Random) -> Any:
    """A copy of a JSON value with one thing in it changed or missing."""
    if isinstance(value, dict) and value:
        key = dice.choice(list(value))
        if dice.random() < 0.2:
            return {name: each for name, each in value.items() if name != key}
        return value | {key: _spoiled(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.7:
        return [_spoiled(value[0], dice), *value[1:]]
    return dice.choice(BAD_VALUES)


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> list[int]:
    async def known() -> list[int]:
        async with running(tmp_path_factory.mktemp("codes")) as broker:
            return sorted(broker.request_codes)

    return asyncio.run(known())


@pytest.fixture
async def member() -> AsyncIterator[RemotingClient]:
    """A consumer that stays, about which others may ask."""
    client = RemotingClient()
    yield client
    await client.close()


async def ask(remote: RemotingClient, broker: Broker, code: int, fields: dict[str, str], body: bytes) -> Command:
    return await remote.invoke(broker.address, Command(code, 0, fields=dict(fields), body=body), 10)


async def test_bad_fields_and_bodies(
    tmp_path: Path, remote: RemotingClient, member: RemotingClient, codes: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    assert len(codes) > 40
    memory = getrusage(RUSAGE_SELF).ru_maxrss
    settings = {"enableLmq": "true", "enableMultiDispatch": "true", "enablePropertyFilter": "true"}
    async with running(tmp_path, **settings, recallMessageEnable="true") as broker:
        await remote.ask(broker.address, create_request(), 5)
        await sent(remote, broker, send_request(b"kept", queue_id=3))
        half = await sent(remote, broker, half_request(b"half"))
        decision = codec.request(RequestCode.END_TRANSACTION, end_header(half, UNKNOWN)).fields
        beat = json.dumps(BODIES[RequestCode.HEART_BEAT]).encode()
        await member.ask(broker.address, Command(RequestCode.HEART_BEAT, 0, body=beat), 5)
        known = {RequestCode.END_TRANSACTION: decision}
        faults = []
        for code in codes:
            seed = random.randrange(1 << 32)
            dice = random.Random(seed)
            for _, (fields, body) in zip(range(CASES), cases(code, dice, known.get(code, {})), strict=False):
                answer = await ask(remote, broker, code, fields, body)
                about = f"{RequestCode(code).name} seed {seed} fields {str(fields)[:300]} body {body[:100]!r}"
                if answer.code not in (ResponseCode.SUCCESS, ResponseCode.GO_AWAY):
                    assert answer.remark, about
                    assert len(answer.remark) < 100_000, about
                if any(record.getMessage().startswith("request ") for record in caplog.records):
                    faults.append(f"{about}: {answer.remark}")
                    caplog.clear()
        assert not faults, "answered by an error that nobody foresaw:\n" + "\n".join(faults[:20])
        pulled = await remote.ask(broker.address, pull_request(queue_id=3), 5)
        assert b"kept" in pulled.body, "and everybody else is served as before"
    assert getrusage(RUSAGE_SELF).ru_maxrss - memory < MEMORY_MAX_KIB
