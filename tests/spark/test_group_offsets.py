"""Offsets of streams for consumer groups, without Spark: what is recognized, and that brokers learn it."""

import asyncio
import logging
from functools import partial
from pathlib import Path

import pytest

from rockmq.base.clock import SystemClock
from rockmq.client import Client, MessageQueue
from rockmq.spark import group_offsets
from rockmq.spark.group_offsets import Committer, parse_source_offset
from rockmq.spark.options import ConnectionOptions
from rockmq.spark.ranges import offsets_json
from tests.spark.conftest import create, fill
from tests.spark.test_batch_read import numbered
from tests.support import server
from tests.support.process import free_broker_port, free_port
from tests.unit.client.conftest import broker, names
from tests.unit.client.fakes import FakeBroker, FakeNames

__all__ = ["broker", "names"]

PATIENCE_S = 60
ONE, TWO = (MessageQueue("orders", "broker-a", number) for number in (0, 11))


def test_our_own_offsets_are_recognized() -> None:
    assert parse_source_offset(offsets_json({TWO: 5, ONE: 3})) == {ONE: 3, TWO: 5}
    assert parse_source_offset("{}") == {}


@pytest.mark.parametrize("text", ["None", "null", "7", '{"orders": {"0": 5}}', '{"a": {"b": {"no number": 1}}}', ""])
def test_offsets_of_other_sources_are_none(text: str) -> None:
    assert parse_source_offset(text) == {}


async def told(namesrv: str, group: str, offset: int) -> None:
    """Wait until the broker says so."""
    async with Client(namesrv) as mq, asyncio.timeout(PATIENCE_S):
        while [*(await mq.committed_offsets(group, "orders")).values()] != [offset]:
            await asyncio.sleep(0.05)


async def test_a_broker_that_was_away_is_told_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_offsets, "RETRY_SECONDS", 0.1)
    serve = partial(server.serve, tmp_path, namesrv_port=free_port(), broker_port=free_broker_port())
    with serve() as started:
        await create(started.namesrv, "orders", 1)
        await fill(started.namesrv, "orders", {0: numbered(10)})
        async with Client(started.namesrv) as mq:
            (queue,) = await mq.queues("orders")
        committer = Committer("reports", ConnectionOptions(name_server=started.namesrv), SystemClock())
        await committer.start()
        committer.want({queue: 3})
        await told(started.namesrv, "reports", 3)
        started.kill()
        committer.want({queue: 7})
    with serve() as started:
        await told(started.namesrv, "reports", 7)
        async with Client(started.namesrv) as mq:
            await mq.commit("reports", queue, 1)
        committer.repeat()
        await told(started.namesrv, "reports", 7)
        await committer.close()


async def test_a_topic_without_a_route_keeps_no_other_from_being_committed(
    names: FakeNames, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_offsets, "RETRY_SECONDS", 0.1)
    committer = Committer("reports", ConnectionOptions(name_server=names.address), SystemClock())

    async def stored(topic: str, offset: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while broker.offsets.get(("reports", topic, 0)) != offset:
                await asyncio.sleep(0.02)

    await committer.start()
    with caplog.at_level(logging.WARNING):
        committer.want({MessageQueue("gone", "a", 0): 5, MessageQueue("T", "a", 0): 3})
        await stored("T", 3)
        committer.want({MessageQueue("T", "a", 0): 4})
        await stored("T", 4)
        broker.offsets.clear()
        committer.repeat()
        await stored("T", 4)
    assert caplog.text.count("no name server has a route for gone") == 1
    names.add("gone", broker)
    committer.repeat()
    await stored("gone", 5)
    await committer.close()
