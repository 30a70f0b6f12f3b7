"""A broker of ours with many topics under Apache's own name server: it is told in pieces, and of changes only."""

import asyncio
from pathlib import Path

import pytest

from rockmq.broker.topics import WHOLE_MAX
from rockmq.protocol import codec
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.admin import CreateTopic
from rockmq.remoting.client import RemotingClient
from tests.support import apache, server
from tests.support.cluster import route, wait_for_route
from tests.support.process import eventually, free_broker_port, free_port

MANY = 2 * WHOLE_MAX + 300


async def create(broker: str, topics: list[str], queues: int) -> None:
    remote = RemotingClient()
    for start in range(0, len(topics), 200):
        requests = (
            CreateTopic(topic=topic, default_topic="TBW102", read_queue_nums=queues, write_queue_nums=queues, perm=6)
            for topic in topics[start : start + 200]
        )
        await asyncio.gather(
            *(remote.ask(broker, codec.request(RequestCode.UPDATE_AND_CREATE_TOPIC, each), 30) for each in requests)
        )
    await remote.close()


def queues(namesrv: str, topic: str) -> int:
    (found,) = wait_for_route(namesrv, topic)["queueDatas"]
    number: int = found["readQueueNums"]
    return number


@pytest.mark.parametrize("drops", ["false", "true"])
def test_many_topics_reach_apaches_name_server(tmp_path: Path, drops: str) -> None:
    port, topics = free_port(), [f"t{number}" for number in range(MANY)]
    properties = {"deleteTopicWithBrokerRegistration": drops}
    configuration = tmp_path / "broker.conf"
    configuration.write_text(
        f"brokerIP1=127.0.0.1\nlistenPort={free_broker_port()}\nnamesrvAddr=127.0.0.1:{port}\n"
        f"storePathRootDir={tmp_path / 'store'}\nmappedFileSizeCommitLog={1 << 24}\n"
    )
    with (
        apache.name_server(tmp_path / "names", port, properties=properties) as names,
        server.broker(tmp_path / "broker", configuration) as broker,
    ):
        asyncio.run(create(broker.broker, topics, 4))
        assert all(queues(names.address, topic) == 4 for topic in topics[::50])
        asyncio.run(create(broker.broker, ["t7"], 9))
        eventually(lambda: queues(names.address, "t7") == 9, 60, "the change on the name server")
        assert all(queues(names.address, topic) == 4 for topic in topics[1::50])
        names.kill()
        with apache.name_server(tmp_path / "again", port, properties=properties) as again:
            wait_for_route(again.address, topics[-1])
            assert all(queues(again.address, topic) == 4 for topic in topics[1::50])
            assert queues(again.address, "t7") == 9
            broker.terminate()
            eventually(lambda: route(again.address, "t7") is None, 60, "the broker gone from the route")
