"""Names with a namespace before them. That both kinds of broker are content with it is in tests/client."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq.client import Client, ClientError, MessageQueue
from rockmq.client.namespaces import Prefix
from rockmq.protocol import codec, json
from rockmq.protocol.bodies.admin import ConsumerRunningInfo
from rockmq.protocol.bodies.client import ConsumerStatus, LockBatchBody, LockedQueues
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.admin import GetConsumerRunningInfo, GetConsumerStatus, ResetConsumerOffset
from rockmq.protocol.headers.client import LockBatch
from tests.unit.client.fakes import FakeBroker, FakeNames

NAMES = st.text(alphabet="abc%_-", min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("orders", "tenant%orders"),
        ("%RETRY%billing", "%RETRY%tenant%billing"),
        ("%DLQ%billing", "%DLQ%tenant%billing"),
        ("tenant%orders", "tenant%orders"),
        ("other%orders", "tenant%other%orders"),
        ("TBW102", "TBW102"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_wheel_timer", "rmq_sys_wheel_timer"),
        ("TOOLS_CONSUMER", "TOOLS_CONSUMER"),
        ("DefaultCluster_REPLY_TOPIC", "DefaultCluster_REPLY_TOPIC"),
        ("", ""),
    ],
)
def test_where_it_goes(name: str, named: str) -> None:
    assert Prefix("tenant").put(name) == named


def test_names_in_bodies() -> None:
    prefix = Prefix("tenant")
    queue = MessageQueue("orders", "a", 0)
    lock = LockBatchBody(consumer_group="billing", client_id="billing", mq_set=[queue])
    asked = codec.request(RequestCode.LOCK_BATCH_MQ, LockBatch(), json.encode(lock))
    for _ in range(2):  # as when it is sent again
        prefix.outgoing(asked)
        told = json.decode(asked.body, LockBatchBody, "lock")
        assert (told.consumer_group, told.client_id) == ("tenant%billing", "billing")
        assert told.mq_set == [MessageQueue("tenant%orders", "a", 0)]
    locked = codec.reply(asked, body=json.encode(LockedQueues(queues=told.mq_set)))
    answer = prefix.answer(RequestCode.LOCK_BATCH_MQ, locked)
    assert json.decode(answer.body, LockedQueues, "locked").queues == [queue]
    body = b'{"brokerName":"a","acks":[{"c":"billing","t":"orders","q":1}]}'
    acks = Command(RequestCode.BATCH_ACK_MESSAGE, 1, body=body)
    prefix.outgoing(acks)
    assert acks.body == b'{"brokerName":"a","acks":[{"c":"tenant%billing","t":"tenant%orders","q":1}]}'


@pytest.mark.parametrize("namespace", ["a b", "a%", "ä", "a/b"])
def test_what_is_no_namespace(namespace: str) -> None:
    with pytest.raises(ClientError, match="expected letters, digits"):
        Client("127.0.0.1:1", namespace_v1=namespace)


def queue(topic: str) -> str:
    return MessageQueue(topic, "a", 0).key()


MINE, OTHERS, BARE = queue("t%orders"), queue("u%x"), queue("orders")


@pytest.mark.parametrize(
    ("code", "servers", "users"),
    [
        (
            RequestCode.GET_TOPICS_BY_CLUSTER,
            '{"topicList":["t%orders","%DLQ%t%g","u%x"]}',
            '{"topicList":["orders","%DLQ%g","u%x"]}',
        ),
        (
            RequestCode.GET_TOPIC_STATS_INFO,
            '{"offsetTable":{' + MINE + ':{"maxOffset":1}}}',
            '{"offsetTable":{' + BARE + ':{"maxOffset":1}}}',
        ),
        (
            RequestCode.GET_ALL_CONSUMER_OFFSET,
            '{"offsetTable":{"t%orders@t%g":{0:1},"%RETRY%t%g@t%g":{"0":1}}}',
            '{"offsetTable":{"orders@g":{"0":1},"%RETRY%g@g":{"0":1}}}',
        ),
        (
            RequestCode.GET_ALL_TOPIC_CONFIG,
            '{"topicConfigTable":{"t%topicName":{"topicName":"t%topicName"}}}',
            '{"topicConfigTable":{"topicName":{"topicName":"topicName"}}}',
        ),
        (
            RequestCode.GET_BROKER_CONSUME_STATS,
            '{"consumeStatsList":[{"t%topic":[{"offsetTable":{' + MINE + ":1," + OTHERS + ":2}}]}]}",
            '{"consumeStatsList":[{"topic":[{"offsetTable":{' + BARE + ":1," + OTHERS + ":2}}]}]}",
        ),
        (
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
            '{"consumerTable":{"t%client":{' + MINE + ":1}}}",
            '{"consumerTable":{"t%client":{' + BARE + ":1}}}",
        ),
        (
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            '{"subscriptionTable":{"t%orders":{"topic":"t%orders","subString":"t%s"}}}',
            '{"subscriptionTable":{"orders":{"topic":"orders","subString":"t%s"}}}',
        ),
    ],
)
def test_names_in_what_administrators_are_told(code: int, servers: str, users: str) -> None:
    answer = Command(code, 1, body=servers.encode())
    assert Prefix("t").answer(code, answer).body.decode() == users


async def test_what_brokers_ask_and_are_told_has_their_names(names: FakeNames, broker: FakeBroker) -> None:
    names.routes["t%T"] = names.routes["T"]
    broker.offsets = {("t%cg", "t%T", number): 5 for number in range(4)}
    queue = MessageQueue("t%T", "a", 0)
    async with Client(names.address, namespace_v1="t") as mq, mq.consumer("cg", "T") as consumer:
        (connection,) = broker.connections
        asked = codec.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatus(topic="t%T", group="t%cg"))
        answer = await connection.invoke(asked, 20)
        status = json.decode(answer.body, ConsumerStatus, "status")
        assert answer.body.startswith(b'{"messageQueueTable":{{"')  # as Java's broker reads it
        assert status.message_queue_table[queue.key()] == 5
        info = codec.request(
            RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfo(consumer_group="t%cg", client_id=mq.client_id)
        )
        told = json.decode((await connection.invoke(info, 20)).body, ConsumerRunningInfo, "info")
        assert queue.key() in told.mq_table
        assert {each.topic for each in told.subscription_set} == {"t%T", "%RETRY%t%cg"}
        body = b'{"offsetTable":' + json.object_map({queue.key(): 2}) + b"}"
        reset = codec.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetConsumerOffset(topic="t%T", group="t%cg"), body)
        connection.send_oneway(reset)
        async with asyncio.timeout(20):
            while not any(pull.queue_offset == 2 and pull.queue_id == 0 for pull in broker.pulls):
                await asyncio.sleep(0.01)
        assert MessageQueue("T", "a", 0) in consumer.queues


@given(NAMES, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_what_is_put_there_is_taken_away(bare: str, kind: str) -> None:
    prefix = Prefix("tenant")
    named = prefix.put(kind + bare)
    assert prefix.take(named) == kind + bare
    assert prefix.put(named) == named, "once, however often a request is sent"
    assert Prefix("other").take(named) == named
