"""Offsets that brokers are told, and how they answer."""

import asyncio

import pytest

from rockmq.client import Client, MessageQueue, offsets
from rockmq.client.offsets import Offsets
from rockmq.protocol.codes import RequestCode, ResponseCode
from tests.unit.client.fakes import FakeBroker, refusal

QUEUE = MessageQueue("T", "a", 0)


@pytest.fixture
async def store(mq: Client, broker: FakeBroker) -> Offsets:
    """With a connection, which `tell` makes none of."""
    await mq.max_offset(QUEUE)
    return Offsets(mq._instance, "g", "last")


async def told(store: Offsets, offset: int) -> None:
    """Tell, and have the answer."""
    await store.tell({QUEUE: offset})
    async with asyncio.timeout(5):
        while store._telling:
            await asyncio.sleep(0.01)


async def test_an_answer_that_never_comes_holds_up_no_commit(
    store: Offsets, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "COMMIT_TIMEOUT", 0.3)
    broker.handle(RequestCode.UPDATE_CONSUMER_OFFSET, lambda *_: None)
    await store.tell({QUEUE: 1})
    await asyncio.sleep(0.1)
    broker.handle(RequestCode.UPDATE_CONSUMER_OFFSET, broker._update)
    async with asyncio.timeout(5):
        await store.store({QUEUE: 2})
    await told(store, 3)
    assert broker.offsets["g", "T", 0] == 3


async def test_a_refused_offset_is_told_again(store: Offsets, broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.handle(
        RequestCode.UPDATE_CONSUMER_OFFSET, lambda header, request, _: refusal(request, ResponseCode.SYSTEM_BUSY, "not now")
    )
    for _ in range(2):
        await told(store, 1)
    assert caplog.text.count("not now") == 1
    broker.handle(RequestCode.UPDATE_CONSUMER_OFFSET, broker._update)
    for _ in range(2):
        await told(store, 1)
    assert broker.offsets["g", "T", 0] == 1
    assert broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) == 3
