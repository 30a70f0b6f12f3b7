"""Signed requests."""

import asyncio
import hashlib
import hmac
from base64 import b64encode

import pytest

from rockmq.base.errors import ResponseError
from rockmq.client import Client, Key, Message
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode
from tests.unit.client.fakes import FakeBroker, FakeNames, refusal

KEY = Key("alice", "wonder land")


def is_signed(request: Command, secret: str = KEY.secret) -> bool:
    """As a broker checks it (DefaultAuthenticationContextBuilder.java): a second reading of the rule."""
    signed = "".join(value for name, value in sorted(request.fields.items()) if name != "Signature").encode() + request.body
    expected = b64encode(hmac.new(secret.encode(), signed, hashlib.sha1).digest()).decode()
    return request.fields.get("AccessKey") == KEY.access and request.fields.get("Signature") == expected


def test_a_key_hides_its_secret() -> None:
    assert repr(Key("alice", "s3cret", "t0ken")) == "Key(access='alice')"


async def test_every_request_is_signed(names: FakeNames, broker: FakeBroker) -> None:
    async with Client(names.address, auth=KEY) as mq:
        async with mq.producer("pg") as producer:
            await producer.send(Message("T", b"one", tag="ä"))
            await producer.send_batch([Message("T", b"two"), Message("T", b"three")])
            await producer.send_oneway(Message("T", b"four"))
        async with mq.consumer("cg", "T", from_where="first") as consumer:
            for _ in range(4):
                await (await anext(consumer)).ack()
    kinds = {
        RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT, RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
    }  # fmt: skip
    assert kinds <= {request.code for request in broker.asked}
    assert any(request.is_oneway and is_signed(request) for request in broker.asked)
    unsigned = [request for fake in (names, broker) for request in fake.asked if not is_signed(request)]
    assert unsigned == []


async def test_a_repeated_attempt_is_signed_anew(names: FakeNames, broker: FakeBroker) -> None:
    refused = iter([True])
    broker.on_send = lambda header, request: "silence" if next(refused, False) else None
    async with Client(names.address, auth=Key(KEY.access, KEY.secret, "token")) as mq, mq.producer("pg") as producer:
        sending = producer.send_nowait(Message("T", b"x"))
        while not broker.headers:
            await asyncio.sleep(0.01)
        for connection in broker.connections:
            connection.transport.abort()
        await sending
    sends = [request for request in broker.asked if request.code == RequestCode.SEND_MESSAGE_V2]
    assert len(sends) == 2
    assert all(is_signed(request) and request.fields["SecurityToken"] == "token" for request in sends)


async def test_binary_headers_are_signed_too(names: FakeNames, broker: FakeBroker) -> None:
    async with Client(names.address, auth=KEY, serializer="binary") as mq, mq.producer("pg") as producer:
        await producer.send(Message("T", b"x"))
    assert all(map(is_signed, broker.asked))


async def test_a_wrong_secret_is_told(names: FakeNames, broker: FakeBroker) -> None:
    broker.on_send = lambda header, request: None if is_signed(request) else refusal(request, 16, "check signature failed.")
    async with Client(names.address, auth=Key("alice", "wrong")) as mq, mq.producer("pg", timeout=0.5) as producer:
        with pytest.raises(ResponseError, match=r"code 16: check signature failed") as caught:
            await producer.send(Message("T", b"x"))
        assert caught.value.address == broker.address


async def test_namespace_and_zone_go_with_every_request(
    names: FakeNames, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETMQ_ZONE", "z1")
    async with Client(names.address, auth=KEY, namespace="tenant") as mq, mq.producer("pg") as producer:
        await producer.send(Message("T", b"x"))
    assert names.asked
    assert broker.asked
    for fake in (names, broker):
        for request in fake.asked:
            assert (request.fields["nsd"], request.fields["ns"], request.fields["__ZONE_NAME"]) == ("true", "tenant", "z1")
            assert is_signed(request)
