"""Consumers that are far behind, and what Java clients are told then."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.protocol.message import decode_stored
from rockmq.remoting.client import RemotingClient
from tests.interop.conftest import SERVERS
from tests.support import apache, cluster
from tests.support.events import events, wait_for, wait_for_keys
from tests.support.messages import content
from tests.support.traffic import pull_request, send_request

COUNT = 20


def produce(client: str, namesrv: str, topic: str, directory: Path) -> set[str]:
    """Messages in one queue; their keys."""
    arguments = f"namesrv={namesrv}", f"topic={topic}", "prefix=m", f"count={COUNT}", "queues=1"
    with apache.program(client, "Producer", *arguments, directory=directory) as producer:
        assert producer.wait(60) == 0, producer.tail()
    return {content("m-sync", index).key for index in range(COUNT)}


@pytest.mark.parametrize("client", apache.CLIENTS)
@pytest.mark.parametrize("kind", SERVERS)
def test_who_reads_from_disk_is_sent_to_a_slave_and_served_where_there_is_none(
    kind: str, client: str, tmp_path: Path
) -> None:
    settings = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}
    with cluster.started(kind, tmp_path, settings) as server:
        produce(client, server.namesrv, "slow", tmp_path)
        offsets = [0, 1, 2, COUNT, 3]
        where = f"namesrv={server.namesrv}", "topic=slow", "group=slow-group", f"offsets={','.join(map(str, offsets))}"
        with apache.program(client, "Puller", *where, directory=tmp_path) as puller:
            assert puller.wait(60) == 0, puller.tail()
            pulled = [(each["status"], each["messages"], each["suggested"]) for each in events(puller, "pulled")]
        found = ("FOUND", 1, 1)
        assert pulled == [found, found, found, ("NO_NEW_MSG", 0, 0), found]


@pytest.mark.parametrize("kind", SERVERS)
async def test_an_answer_from_disk_has_its_own_bounds(kind: str, tmp_path: Path) -> None:
    settings = {
        "accessMessageInMemoryMaxRatio": "0",
        "maxTransferCountOnMessageInDisk": "5",
        "maxTransferBytesOnMessageInDisk": "10000",
    }
    with cluster.started(kind, tmp_path, settings) as server:
        remote = RemotingClient()
        for size in [10] * 10 + [4000] * 10:
            await remote.ask(server.broker, send_request(bytes(size), 0), 10)
        counts = []
        for offset in (0, 8, 10, 19):
            answer = await remote.ask(server.broker, pull_request(0, offset), 10)
            counts.append(len(decode_stored(answer.body)))
        await remote.close()
    assert counts == [5, 4, 2, 1]


@pytest.mark.parametrize("client", apache.CLIENTS)
async def test_a_group_that_is_too_far_behind_is_refused_until_an_operator_allows_it(
    client: str, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rockmq.broker.server.SLOW_LOOK_SECONDS", 0.1)
    settings = {"disableConsumeIfConsumerReadSlowly": "true", "consumerFallbehindThreshold": "1000"}
    async with embedded.serve(tmp_path / "data", properties=settings) as server:
        await asyncio.to_thread(_refused_and_allowed, client, server, unique("slow-group"), tmp_path)


def _refused_and_allowed(client: str, server: embedded.Server, group: str, directory: Path) -> None:
    keys = produce(client, server.namesrv, "slow", directory)
    where = f"namesrv={server.namesrv}", "topic=slow", f"group={group}"
    zeros = ",".join(["0"] * 50)
    with apache.program(client, "Puller", *where, f"offsets={zeros}", "pauseMs=200", directory=directory) as puller:
        [refused, *_] = wait_for(puller, "failed")
    assert refused["error"].startswith(
        f"org.apache.rocketmq.client.exception.MQBrokerException: CODE: 16  DESC: subscription group no permission, {group}"
    )
    with apache.program(client, "PushConsumer", *where, directory=directory) as consumer:
        wait_for(consumer, "queues")
        allowing = ["updateSubGroup", "-b", server.broker, "-g", group, "-s", "true"]
        assert events(consumer, "message") == []
        done = apache.mqadmin(*allowing, namesrv=server.namesrv, directory=directory)
        assert f"create subscription group to {server.broker} success" in done.stdout, done.stdout + done.stderr
        wait_for_keys(consumer, keys)
        consumer.terminate()
