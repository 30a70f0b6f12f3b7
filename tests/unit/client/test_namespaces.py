"""Names with a namespace before them. That both kinds of broker are content with it is in tests/client."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq.client import MessageQueue
from rockmq.client.namespaces import Prefix
from rockmq.protocol import codec, json
from rockmq.protocol.bodies.client import LockBatchBody, LockedQueues
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.client import LockBatch

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


@given(NAMES, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_what_is_put_there_is_taken_away(bare: str, kind: str) -> None:
    prefix = Prefix("tenant")
    named = prefix.put(kind + bare)
    assert prefix.take(named) == kind + bare
    assert prefix.put(named) == named, "once, however often a request is sent"
    assert Prefix("other").take(named) == named
