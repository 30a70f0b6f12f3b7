"""Shares that the broker hands out, and whether clients pull or pop (protocol spec, 4.7)."""

import json
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rockmq.broker.server import Broker
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.remoting.client import RemotingClient
from tests.support import wire
from tests.unit.broker.conftest import running
from tests.unit.broker.test_messages import create_request


class Members:
    """A group's clients, each with a connection of its own."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.clients: dict[str, wire.RawClient] = {}

    async def join(self, *client_ids: str) -> None:
        for client_id in client_ids:
            self.clients[client_id] = await wire.RawClient.connect(self.broker.address)
            consumer = {
                "groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "subscriptionDataSet": [], "unitMode": False,
            }  # fmt: skip
            beat = {"clientID": client_id, "producerDataSet": [], "consumerDataSet": [consumer]}
            head, _ = await self.ask(client_id, RequestCode.HEART_BEAT, beat)
            assert head["code"] == 0, head

    def close(self) -> None:
        for client in self.clients.values():
            client.close()

    async def ask(self, client_id: str, code: RequestCode, body: object) -> tuple[dict[str, Any], bytes]:
        client = self.clients[client_id]
        await client.send(wire.request(code, {}, json.dumps(body).encode()))
        while True:
            head, found = await client.response()
            if head["code"] != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                return head, found

    async def share(self, client_id: str, **changes: object) -> list[tuple[str, int, str]] | None:
        """Broker, queue and mode of each; None when the answer has none."""
        asked = {"topic": "T", "consumerGroup": "g", "clientId": client_id, "strategyName": "AVG"} | changes
        head, body = await self.ask(client_id, RequestCode.QUERY_ASSIGNMENT, asked)
        assert head["code"] == 0, head
        found = json.loads(body).get("messageQueueAssignments")
        if found is None:
            return None
        queues = [(each["messageQueue"], each["mode"]) for each in found]
        assert all(queue["topic"] == asked["topic"] for queue, _ in queues)
        return [(queue["brokerName"], queue["queueId"], mode) for queue, mode in queues]

    async def mode(self, **changes: object) -> dict[str, Any]:
        wanted = {"topic": "T", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 0} | changes
        head, _ = await self.ask("a", RequestCode.SET_MESSAGE_REQUEST_MODE, wanted)
        return head


@pytest.fixture
async def members(tmp_path: Path, remote: RemotingClient) -> AsyncIterator[Members]:
    async with running(tmp_path) as broker:
        await remote.ask(broker.address, create_request(queues=5), 5)
        with closing(Members(broker)) as joined:
            yield joined


def of(ids: list[int], mode: str = "PULL") -> list[tuple[str, int, str]]:
    return [("broker-a", queue_id, mode) for queue_id in ids]


async def test_clients_that_pull_share_the_queues(members: Members) -> None:
    await members.join("a", "b")
    assert await members.share("a") == of([0, 1, 2])
    assert await members.share("b") == of([3, 4])
    assert await members.share("b", strategyName="AVG_BY_CIRCLE") == of([1, 3])
    assert await members.share("a", messageModel="BROADCASTING") == of([0, 1, 2, 3, 4])
    assert await members.share("a", clientId="stranger") == []


async def test_what_is_not_known_leaves_the_client_what_it_has(members: Members) -> None:
    await members.join("a")
    assert await members.share("a", topic="nowhere") is None
    assert await members.share("a", consumerGroup="nobody") is None
    assert await members.share("a", strategyName="MACHINE_NEARBY") is None


async def test_clients_that_pop_take_from_all_queues_or_with_their_neighbours(members: Members) -> None:
    await members.join("a", "b", "c", "d")
    assert (await members.mode())["code"] == 0
    assert await members.share("c") == of([-1], "POP"), "each from all"
    assert (await members.mode(popShareQueueNum=1))["code"] == 0
    assert await members.share("a") == of([0, 1, 2], "POP"), "its own and those of b"
    assert await members.share("d") == of([4, 0, 1], "POP"), "its own and those of a"
    assert (await members.mode(popShareQueueNum=3))["code"] == 0
    assert await members.share("d") == of([-1], "POP"), "with all the others, so from all"


async def test_more_clients_than_queues_that_pop_share_one(members: Members) -> None:
    await members.join("a", "b", "c", "d", "e", "f")
    assert (await members.mode(popShareQueueNum=1))["code"] == 0
    assert await members.share("e") == of([4], "POP")
    assert await members.share("f") == of([0], "POP")


async def test_a_mode_outlives_the_broker(tmp_path: Path, remote: RemotingClient) -> None:
    expected = {"T": {"g": {"topic": "T", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 2}}}
    async with running(tmp_path) as broker:
        await remote.ask(broker.address, create_request(queues=5), 5)
        with closing(Members(broker)) as members:
            await members.join("a")
            assert (await members.mode(popShareQueueNum=2))["code"] == 0
    document = json.loads((tmp_path / "config" / "messageRequestMode.json").read_bytes())
    assert document["messageRequestModeMap"] == expected
    async with running(tmp_path) as broker:
        with closing(Members(broker)) as members:
            await members.join("a")
            head, body = await members.ask("a", RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, {})
            assert (head["code"], json.loads(body)["messageRequestModeMap"]) == (0, expected)
            assert await members.share("a") == of([-1], "POP")


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"topic": "%RETRY%g"}, ResponseCode.NO_PERMISSION, "retry topic"),
        ({"topic": "nowhere"}, ResponseCode.TOPIC_NOT_EXIST, "nowhere"),
        ({"mode": "PUSH"}, ResponseCode.INVALID_PARAMETER, "mode"),
        ({"popShareQueueNum": "many"}, ResponseCode.INVALID_PARAMETER, "popShareQueueNum"),
    ],
)
async def test_bad_modes(members: Members, changes: dict[str, object], code: ResponseCode, words: str) -> None:
    await members.join("a")
    head = await members.mode(**changes)
    assert head["code"] == code, head
    assert words in head["remark"]
