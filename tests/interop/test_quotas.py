"""Topics that take so many messages a second, and what Java producers are told of it (beyond Apache)."""

import asyncio
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.client import Client
from rockmq.client.admin import TopicSettings
from rockmq.protocol.codes import ResponseCode
from tests.support import apache
from tests.support.events import Event, events

QUOTA, COUNT = 20, 100


@pytest.mark.parametrize("client", apache.CLIENTS)
async def test_a_producer_over_the_quota_is_told_when_to_try_again(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A quick producer has sent all before the next look otherwise, and none is quick on a slow disk.
    monkeypatch.setattr("rockmq.broker.server.QUOTA_LOOK_SECONDS", 0.005)
    async with embedded.serve(tmp_path / "data", flush="ASYNC_FLUSH") as server, Client(server.namesrv) as mq:
        await mq.admin.topics.put(TopicSettings("bound", 1, 1, attributes={"send.quota": str(QUOTA)}))
        (queue,) = await mq.queues("bound")
        refused, sent = await asyncio.to_thread(produce, client, server.namesrv, tmp_path)
        assert await mq.max_offset(queue) == COUNT, "what was refused isn't stored"
    assert refused
    for each in refused:
        assert f"CODE: {int(ResponseCode.FLOW_CONTROL)} " in each["error"]
        assert f"quota of {QUOTA} messages a second; try again in" in each["error"]
    assert sorted(each["index"] for each in sent) == list(range(COUNT))


def produce(client: str, namesrv: str, directory: Path) -> tuple[list[Event], list[Event]]:
    """What was refused, and what was sent."""
    arguments = f"namesrv={namesrv}", "topic=bound", f"count={COUNT}", "retry=true"
    with apache.program(client, "Producer", *arguments, directory=directory) as producer:
        assert producer.wait(60) == 0, producer.tail()
        return events(producer, "failed"), events(producer, "sent")
