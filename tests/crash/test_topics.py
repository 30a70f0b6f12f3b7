"""A broker killed in the midst of creating, changing and deleting thousands of topics: what it acknowledged is there."""

import asyncio
import itertools
import json
from pathlib import Path

from rockmq.base.errors import RemotingError
from rockmq.protocol import codec
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.admin import CreateTopic, DeleteTopic, GetTopicConfig
from rockmq.remoting.client import RemotingClient
from tests.support.process import free_broker_port, free_port
from tests.support.server import Server, serve

COUNT = 5_000
CLIENTS = 64

Queues = dict[str, int]
"""Topic -> queues it has, 0 when it was deleted."""


async def change_until_lost(server: Server, numbers: "itertools.count[int]", acknowledged: Queues, tried: Queues) -> None:
    """Create topics; change every tenth, and delete every hundredth, right after."""
    remote = RemotingClient()
    try:
        for number in numbers:
            topic = f"topic-{number}"
            for queues in (4, 5) if number % 10 == 0 else (4,):
                header = CreateTopic(
                    topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6
                )
                tried[topic] = queues
                await remote.ask(server.broker, codec.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header), 10)
                acknowledged[topic] = queues
            if number % 100 == 0:
                tried[topic] = 0
                await remote.ask(
                    server.broker, codec.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopic(topic=topic)), 10
                )
                acknowledged[topic] = 0
            if len(acknowledged) >= COUNT:
                server.kill()
    except RemotingError:
        pass  # the kill this test is about
    finally:
        await remote.close()


async def queues_of(remote: RemotingClient, server: Server, topic: str) -> int:
    response = await remote.invoke(
        server.broker, codec.request(RequestCode.GET_TOPIC_CONFIG, GetTopicConfig(topic=topic)), 10
    )
    if response.code == ResponseCode.TOPIC_NOT_EXIST:
        return 0
    queues: int = json.loads(response.body)["readQueueNums"]
    return queues


async def check(server: Server, acknowledged: Queues, tried: Queues) -> None:
    remote = RemotingClient()
    found = dict(zip(tried, await asyncio.gather(*(queues_of(remote, server, topic) for topic in tried)), strict=True))
    await remote.close()
    # What was under way when it was killed may have happened or not.
    wrong = {topic for topic in tried if found[topic] not in {acknowledged.get(topic, 0), tried[topic]}}
    assert not wrong


async def test_no_change_of_a_topic_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    ports = {"namesrv_port": free_port(), "broker_port": free_broker_port()}
    acknowledged: Queues = {}
    tried: Queues = {}
    with serve(tmp_path, **ports) as server:
        numbers = itertools.count()
        await asyncio.gather(*(change_until_lost(server, numbers, acknowledged, tried) for _ in range(CLIENTS)))
    assert len(acknowledged) >= COUNT
    with serve(tmp_path, **ports) as server:
        await check(server, acknowledged, tried)
        server.terminate()
    assert not list((tmp_path / "data").rglob("topics.json.journal.*"))
    (document,) = (tmp_path / "data").rglob("topics.json")
    table = json.loads(document.read_text())["topicConfigTable"]
    kept = {topic for topic, queues in acknowledged.items() if queues and tried[topic]}
    assert kept <= table.keys()
