"""Messages for later, sent and taken back by our client, over RockMQ's own broker."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from rockmq import embedded
from rockmq.base.errors import InvalidMessage, ResponseError
from rockmq.client import Client, Message
from rockmq.client.timers import timed
from rockmq.protocol.codes import ResponseCode

NOW = 1_700_000_000


def test_what_says_when() -> None:
    message = Message("T", b"x", properties={"a": "b", "TIMER_DELAY_SEC": "5"})
    assert timed(message, None, None) is message
    assert timed(message, 1.5, None).properties == {"a": "b", "TIMER_DELAY_MS": "1500"}
    assert timed(message, 0.1 + 0.2, None).properties["TIMER_DELAY_MS"] == "300"
    assert timed(message, timedelta(days=2), None).properties["TIMER_DELAY_MS"] == "172800000"
    assert timed(message, None, NOW + 0.5).properties == {"a": "b", "TIMER_DELIVER_MS": f"{NOW}500"}
    at = datetime.fromtimestamp(NOW, UTC)
    assert timed(message, None, at).properties["TIMER_DELIVER_MS"] == f"{NOW}000"
    assert message.properties == {"a": "b", "TIMER_DELAY_SEC": "5"}, "the caller's message stays as it was"
    with pytest.raises(InvalidMessage, match="not both"):
        timed(message, 1, at)
    with pytest.raises(InvalidMessage, match="zone"):
        timed(message, None, at.replace(tzinfo=None))
    with pytest.raises(InvalidMessage, match="time of inf s"):
        timed(message, float("inf"), None)
    with pytest.raises(InvalidMessage, match="delay_level=3"):
        timed(Message("T", b"x", delay_level=3), 1, None)


async def test_sent_for_later_and_taken_back() -> None:
    properties = {"timerPrecisionMs": "100", "recallMessageEnable": "true"}
    async with (
        embedded.serve(flush="ASYNC_FLUSH", properties=properties) as served,
        Client(served.namesrv) as mq,
        mq.producer("pg") as producer,
    ):
        begun = time.time()
        kept = await producer.send(Message("T", b"kept"), delay=1)
        gone = await producer.send(Message("T", b"gone"), deliver_at=begun + 1)
        now = await producer.send(Message("T", b"now"), deliver_at=datetime.fromtimestamp(begun - 1, UTC))
        assert kept.recall_handle
        assert gone.recall_handle
        assert now.recall_handle is None
        assert await producer.recall(gone.recall_handle) == gone.msg_id
        async with mq.consumer("g", "T", from_where="first") as consumer:
            messages = [await anext(consumer), await anext(consumer)]
            assert [message.body for message in messages] == [b"now", b"kept"]
            assert int(messages[1].properties["TIMER_DEQUEUE_MS"]) >= int(begun * 1000) + 1000
            assert messages[1].msg_id == kept.msg_id
            assert await consumer.fetch(timeout=0.5) == []
        with pytest.raises(ResponseError, match="time has come") as refused:
            await producer.recall(gone.recall_handle)
        assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
        with pytest.raises(InvalidMessage, match="recall handle"):
            await producer.recall("nonsense")


async def test_a_broker_that_takes_nothing_back_says_so() -> None:
    async with embedded.serve(flush="ASYNC_FLUSH") as served, Client(served.namesrv) as mq, mq.producer() as producer:
        receipt = await producer.send(Message("T", b"x"), delay=timedelta(hours=1))
        with pytest.raises(ResponseError, match="recallMessageEnable"):
            await producer.recall(receipt.recall_handle or "")
        at_once = await producer.send(Message("T", b"x"))
        with pytest.raises(InvalidMessage, match="None is no recall handle"):
            await producer.recall(at_once.recall_handle)  # type: ignore[arg-type]
        with pytest.raises(ResponseError, match="timerMaxDelaySec"):
            await producer.send(Message("T", b"x"), delay=timedelta(days=4))
