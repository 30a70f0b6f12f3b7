"""What brokers pass between clients: replies, and what administrators ask of consumers (protocol spec, 4.1, 4.8 and 5)."""

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest

from rockmq import embedded
from rockmq.base.errors import InvalidMessage, RequestTimeout, ResponseError
from rockmq.client import Client, ConsumedMessage, Message
from rockmq.protocol import codec
from rockmq.protocol import properties as names
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.admin import (
    CloneGroupOffset,
    ConsumeDirectly,
    GetBrokerRuntimeInfo,
    GetConsumerRunningInfo,
    GetGroupStatus,
    ResetOffset,
)
from rockmq.protocol.headers.offset import QueryConsumerOffset
from rockmq.remoting.client import RemotingClient
from tests.support import wire


@pytest.fixture
async def served() -> AsyncIterator[embedded.Server]:
    async with embedded.serve(flush="ASYNC_FLUSH") as server:
        yield server


@pytest.fixture
async def mq(served: embedded.Server) -> AsyncIterator[Client]:
    async with Client(served.namesrv) as client:
        await client.create_topic("orders", 1)
        yield client


async def ask(
    remote: RemotingClient, served: embedded.Server, code: RequestCode, header: object, body: bytes = b""
) -> Command:
    return await remote.invoke(served.broker, codec.request(code, header, body), 5)  # type: ignore[arg-type]


async def sent(mq: Client, count: int) -> list[str]:
    """Offset ids of messages that were sent."""
    async with mq.producer("pg") as producer:
        return [(await producer.send(Message("orders", b"%d" % number))).offset_id for number in range(count)]


async def offset_of(remote: RemotingClient, served: embedded.Server, group: str) -> int | None:
    header = QueryConsumerOffset(consumer_group=group, topic="orders", queue_id=0, set_zero_if_not_found=False)
    answer = await ask(remote, served, RequestCode.QUERY_CONSUMER_OFFSET, header)
    return int(answer.fields["offset"]) if answer.code == 0 else None


# Requests and replies


async def test_a_request_gets_its_reply(served: embedded.Server, mq: Client) -> None:
    async with Client(served.namesrv) as other, other.producer("answers") as answers, other.consumer("g", "orders") as asked:

        async def answer(message: ConsumedMessage) -> None:
            await answers.reply(message, b"answer to " + message.body)

        working = asyncio.create_task(asked.run(answer))
        async with mq.producer("questions") as producer:
            bodies = [b"question %d" % number for number in range(20)]
            replies = await asyncio.gather(*(producer.request(Message("orders", body), timeout=10) for body in bodies))
            assert [reply.body for reply in replies] == [b"answer to " + body for body in bodies]
            big = await producer.request(Message("orders", b"x" * 100_000), timeout=10)
            assert len(big.body) == 100_010, "compressed on its way"
        working.cancel()
    async with mq.consumer("audit", "DefaultCluster_REPLY_TOPIC", from_where="first") as stored:
        assert len(await stored.fetch(32)) == 21, "replies are stored too"


async def test_a_request_that_nobody_answers(mq: Client) -> None:
    async with mq.producer("questions") as producer:
        with pytest.raises(RequestTimeout, match="no reply"):
            await producer.request(Message("orders", b"?"), timeout=0.3)
        async with mq.consumer("g", "orders", from_where="first") as consumer:
            message = await anext(consumer)
            message.stored.properties.pop("CORRELATION_ID")
            with pytest.raises(InvalidMessage, match="asks for no reply"):
                await producer.reply(message, b"late")


async def test_an_empty_reply_arrives_and_is_not_stored(served: embedded.Server, mq: Client) -> None:
    raw = await wire.RawClient.connect(served.broker)
    async with mq.producer("questions") as producer, mq.consumer("g", "orders", from_where="first") as asked:
        waiting = asyncio.create_task(producer.request(Message("orders", b"?"), timeout=10))
        question = await anext(asked)
        carried = {name: question.properties[name] for name in (names.CORRELATION_ID, names.REPLY_TO_CLIENT)}
        fields = wire.send_fields("DefaultCluster_REPLY_TOPIC", i=names.encode(carried).decode())
        response = await raw.ask(wire.request(RequestCode.SEND_REPLY_MESSAGE_V2, fields, b""))
        assert response["code"] == ResponseCode.SUCCESS, response
        assert (await waiting).body == b""
    async with mq.consumer("audit", "DefaultCluster_REPLY_TOPIC", from_where="first") as stored:
        assert await stored.fetch(1, timeout=0.2) == []
    raw.writer.close()


async def test_a_reply_to_somebody_who_is_gone(served: embedded.Server, mq: Client) -> None:
    async with Client(served.namesrv) as asker, asker.producer("questions") as producer:
        with pytest.raises(RequestTimeout):
            await producer.request(Message("orders", b"?"), timeout=0.3)
    async with mq.consumer("g", "orders", from_where="first") as consumer, mq.producer("answers") as answers:
        with pytest.raises(ResponseError, match=r"channel of <.*> not found"):
            await answers.reply(await anext(consumer), b"late", timeout=0.5)


@pytest.mark.parametrize(
    ("changes", "body", "code", "words"),
    [
        ({"b": "nowhere"}, b"x", ResponseCode.TOPIC_NOT_EXIST, "nowhere"),
        ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, b"x", ResponseCode.NO_PERMISSION, "takes no messages"),
        ({"i": None}, b"x", ResponseCode.SYSTEM_ERROR, "REPLY_TO_CLIENT"),
        ({}, bytes(4 * 1024 * 1024 + 1), ResponseCode.MESSAGE_ILLEGAL, "maxMessageSize"),
        ({"g": "soon"}, b"x", ResponseCode.INVALID_PARAMETER, "born_timestamp|`g`|\\$.g"),
        ({"e": None}, b"x", ResponseCode.INVALID_PARAMETER, "`e`"),
    ],
)
async def test_bad_replies(
    served: embedded.Server, changes: dict[str, object], body: bytes, code: ResponseCode, words: str
) -> None:
    client = await wire.RawClient.connect(served.broker)
    fields = wire.send_fields("DefaultCluster_REPLY_TOPIC", **changes)
    response = await client.ask(wire.request(RequestCode.SEND_REPLY_MESSAGE_V2, fields, body))
    assert response["code"] == code, response
    assert re.search(words, str(response["remark"])), response["remark"]
    client.writer.close()


# What administrators ask of consumers


async def test_a_consumer_is_asked_through_the_broker(served: embedded.Server, mq: Client, remote: RemotingClient) -> None:
    ids = await sent(mq, 5)
    async with mq.consumer("g", "orders", from_where="first") as consumer:
        taken = [await anext(consumer) for _ in range(5)]
        await taken[0].ack()
        running = GetConsumerRunningInfo(consumer_group="g", client_id=mq.client_id)
        answer = await ask(remote, served, RequestCode.GET_CONSUMER_RUNNING_INFO, running)
        assert answer.code == 0
        assert b'"mqTable":{{"brokerName":' in answer.body
        status = GetGroupStatus(topic="orders", group="g")
        answer = await ask(remote, served, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status)
        assert answer.body.startswith(b'{"consumerTable":{"%b":{{"brokerName":' % mq.client_id.encode())
        assert answer.body.endswith(b',"queueId":0,"topic":"orders"}:1}}}')

        directly = ConsumeDirectly(consumer_group="g", client_id=mq.client_id, msg_id=ids[3], topic="orders")
        for end, result in ((ConsumedMessage.ack, "CR_SUCCESS"), (ConsumedMessage.nack, "CR_LATER")):
            asked = asyncio.create_task(ask(remote, served, RequestCode.CONSUME_MESSAGE_DIRECTLY, directly))
            handed = await anext(consumer)
            assert (handed.body, handed.queue_offset) == (b"3", 3)
            await end(handed)
            body = json.loads((await asked).body)
            assert (body["consumeResult"], body["order"], body["autoCommit"]) == (result, False, True)
        answer = await ask(remote, served, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status)
        assert answer.body.endswith(b":1}}}"), "nothing moved by that"


async def test_consumers_that_cannot_be_asked(served: embedded.Server, mq: Client, remote: RemotingClient) -> None:
    (msg_id,) = await sent(mq, 1)
    running = GetConsumerRunningInfo(consumer_group="g", client_id="nobody")
    answer = await ask(remote, served, RequestCode.GET_CONSUMER_RUNNING_INFO, running)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "The Consumer <g> <nobody> not online")
    status = GetGroupStatus(topic="orders", group="g")
    answer = await ask(remote, served, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, status)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    async with mq.consumer("g", "orders"):
        for wrong, words in ((None, "not an offset message id"), ("7F", "not an offset"), (msg_id[:-1] + "7", "no message")):
            header = ConsumeDirectly(consumer_group="g", client_id=mq.client_id, msg_id=wrong)
            answer = await ask(remote, served, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
            assert answer.code != 0
            assert words in (answer.remark or "")


# Offsets


async def test_a_group_that_is_online_goes_on_where_it_is_told(
    served: embedded.Server, mq: Client, remote: RemotingClient
) -> None:
    await sent(mq, 5)
    async with mq.consumer("g", "orders", from_where="first") as consumer:
        for message in [await anext(consumer) for _ in range(5)]:
            await message.ack()
        await consumer.commit()
        header = ResetOffset(topic="orders", group="g", timestamp=0, is_force=True)
        answer = await ask(remote, served, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert answer.body.endswith(b'"queueId":0,"topic":"orders"}:0}}')
        await consumer.commit()  # what it thinks to be right undoes nothing
        async with asyncio.timeout(30):
            assert [(await anext(consumer)).body for _ in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_offsets_are_set_and_cloned_for_groups_that_are_away(
    served: embedded.Server, mq: Client, remote: RemotingClient
) -> None:
    await sent(mq, 5)
    async with mq.consumer("g", "orders"):
        pass

    async def reset(**fields: int) -> Command:
        wanted = {"timestamp": 0, "is_force": True} | fields
        header = ResetOffset(topic="orders", group="g", **wanted)  # type: ignore[arg-type]
        return await ask(remote, served, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)

    assert (await reset(queue_id=0, offset=3)).code == 0
    assert await offset_of(remote, served, "g") == 3
    assert (await reset(timestamp=-1)).code == 0
    assert await offset_of(remote, served, "g") == 5
    assert (await reset(queue_id=0, offset=6)).remark == "Target offset 6 not in consume queue range [0-5]"
    assert (await reset(queue_id=1)).code == ResponseCode.INVALID_PARAMETER
    assert await offset_of(remote, served, "g") == 5
    for topic, group, code in (
        ("none", "g", ResponseCode.TOPIC_NOT_EXIST),
        ("orders", "none", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ):
        header = ResetOffset(topic=topic, group=group, timestamp=0, is_force=True)
        assert (await ask(remote, served, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)).code == code

    clone = CloneGroupOffset(src_group="g", dest_group="h", topic="orders", offline=True)
    assert (await ask(remote, served, RequestCode.CLONE_GROUP_OFFSET, clone)).code == 0
    assert await offset_of(remote, served, "h") == 5
    assert await offset_of(remote, served, "i") is None


# Groups whose members differ


async def test_unequal_subscriptions_are_told(
    served: embedded.Server, mq: Client, remote: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def told() -> tuple[str, str | None]:
        answer = await ask(remote, served, RequestCode.GET_BROKER_RUNTIME_INFO, GetBrokerRuntimeInfo())
        table = json.loads(answer.body)["table"]
        return table["unequalSubscriptionGroups"], table.get("unequalSubscriptions")

    async with Client(served.namesrv) as other, mq.consumer("g", {"orders": "a"}):
        assert await told() == ("0", None)
        async with other.consumer("g", {"orders": "b"}):
            assert await told() == ("1", "g")
            (record,) = [each for each in caplog.records if "different things" in each.message]
            assert mq.client_id in record.message
            assert other.client_id in record.message
        assert await told() == ("0", None)
