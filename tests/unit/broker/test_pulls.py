"""What a pull is given, and where a group begins (store spec, 5.1 to 5.3)."""

import asyncio
from pathlib import Path

import pytest

from rockmq.broker.server import Broker
from rockmq.protocol import json
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.pull import PullResponse
from rockmq.protocol.message import decode_stored
from rockmq.remoting.client import RemotingClient
from tests.unit.broker.conftest import running
from tests.unit.broker.test_messages import pull_request, send_request, sent

COMMIT = 1


def offset_query(**more: str) -> Command:
    fields = {"consumerGroup": "consumers", "topic": "T", "queueId": "0"}
    return Command(RequestCode.QUERY_CONSUMER_OFFSET, 0, fields=fields | more)


def group_request(config: dict[str, object]) -> Command:
    return Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, 0, body=json.encode(config))


async def count(remote: RemotingClient, broker: Broker, request: Command) -> int:
    return len(decode_stored((await remote.ask(broker.address, request, 5)).body))


async def test_an_answer_has_as_much_as_was_asked_for(tmp_path: Path, remote: RemotingClient) -> None:
    """Row 5.1: count, the request's bytes, and the broker's bounds."""
    async with running(tmp_path, maxTransferCountOnMessageInMemory="20") as broker:
        for _ in range(30):
            await sent(remote, broker, send_request(bytes(20_000)))
        assert await count(remote, broker, pull_request(count=3)) == 3
        assert await count(remote, broker, pull_request(count=-1)) == 12, "262,144 bytes, as in Apache"
        for size, messages in (("100", 1), ("70000", 3), (str(8 << 20), 20)):
            request = pull_request(count=30)
            request.fields["maxMsgBytes"] = size
            assert await count(remote, broker, request) == messages


async def test_an_answer_from_further_behind_has_its_own_bounds(tmp_path: Path, remote: RemotingClient) -> None:
    """Row 5.1: of messages and of bytes, whatever the request says; they change while the broker runs."""
    bounds = {"maxTransferCountOnMessageInDisk": "5", "maxTransferBytesOnMessageInDisk": "70000"}
    async with running(tmp_path, accessMessageInMemoryMaxRatio="0", **bounds) as broker:
        for size in [10] * 10 + [20_000] * 10:
            await sent(remote, broker, send_request(bytes(size)))
        request = pull_request(count=30)
        request.fields["maxMsgBytes"] = str(8 << 20)
        assert await count(remote, broker, request) == 5
        request.fields["queueOffset"] = "10"
        assert await count(remote, broker, request) == 3
        update = Command(RequestCode.UPDATE_BROKER_CONFIG, 0, body=b"maxTransferBytesOnMessageInDisk=100\n")
        await remote.ask(broker.address, update, 5)
        assert await count(remote, broker, request) == 1, "a message is given whatever its size"
    async with running(tmp_path, **bounds) as broker:
        request.fields["queueOffset"] = "0"
        assert await count(remote, broker, request) == 20, "40% of this machine's memory are more than some messages"


async def test_nothing_that_matches_is_asked_again_at_once_and_from_further_on(
    broker: Broker, remote: RemotingClient
) -> None:
    """Row 5.2: PULL_RETRY_IMMEDIATELY, and the fields of every answer."""
    for _ in range(3):
        await sent(remote, broker, send_request(b"x", tag="a"))
    response = await remote.invoke(broker.address, pull_request(1, tags="b"), 5)
    assert (response.code, response.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert decode(PullResponse, response.fields) == PullResponse(0, 3, 0, 3)


@pytest.mark.parametrize("offset", [0, 5])
async def test_clients_are_sent_to_no_other_broker(tmp_path: Path, remote: RemotingClient, offset: int) -> None:
    """Row 5.2: suggestWhichBrokerId without slaves to read from, whatever the group's brokerId."""
    (tmp_path / "config").mkdir()
    groups = (
        '{"subscriptionGroupTable":{"consumers":{"groupName":"consumers","brokerId":3,"whichBrokerWhenConsumeSlowly":1}}}'
    )
    (tmp_path / "config" / "subscriptionGroup.json").write_text(groups)
    async with running(tmp_path) as broker:
        await sent(remote, broker, send_request(b"x"))
        response = await remote.invoke(broker.address, pull_request(offset), 5)
        assert response.fields["suggestWhichBrokerId"] == "0"


async def test_who_is_far_behind_is_sent_to_a_slave(tmp_path: Path, remote: RemotingClient) -> None:
    """Row 5.2: which broker is suggested, as the group is configured, whether or not there is such a broker."""
    async with running(tmp_path, slaveReadEnable="true", accessMessageInMemoryMaxRatio="0") as broker:
        group = {"groupName": "consumers", "brokerId": 3, "whichBrokerWhenConsumeSlowly": 2**40}
        await remote.ask(broker.address, group_request(group), 5)
        await sent(remote, broker, send_request(b"x", tag="a"))
        for request, suggested in (
            (pull_request(0), 2**40),
            (pull_request(0, tags="b"), 2**40),
            (pull_request(1), 3),
            (pull_request(5), 3),
            (pull_request(0, queue_id=1), 3),
        ):
            response = await remote.invoke(broker.address, request, 5)
            assert response.fields["suggestWhichBrokerId"] == str(suggested)
    async with running(tmp_path, slaveReadEnable="true") as broker:
        response = await remote.invoke(broker.address, pull_request(0), 5)
        assert response.fields["suggestWhichBrokerId"] == "3", "40% of this machine's memory are more than a message"


async def test_a_group_that_is_too_far_behind_is_refused_until_it_is_allowed_again(
    tmp_path: Path, remote: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 5.2: the last read of each queue counts; pulls and pops are refused, also those that wait."""
    monkeypatch.setattr("rockmq.broker.server.SLOW_LOOK_SECONDS", 0.02)
    settings = {"disableConsumeIfConsumerReadSlowly": "true", "consumerFallbehindThreshold": "25000"}
    async with running(tmp_path, **settings) as broker:
        for _ in range(3):
            await sent(remote, broker, send_request(bytes(10_000)))
        waiting = asyncio.create_task(remote.invoke(broker.address, pull_request(3, suspend_ms=60_000), 20))
        assert await count(remote, broker, pull_request(1, count=1)) == 1
        await asyncio.sleep(0.1)
        assert await count(remote, broker, pull_request(1, count=1)) == 1, "20,000 bytes behind are allowed"
        assert await count(remote, broker, pull_request(0, count=1)) == 1
        await asyncio.sleep(0.1)
        response = await remote.invoke(broker.address, pull_request(2), 5)
        assert (response.code, response.remark) == (
            ResponseCode.NO_PERMISSION,
            "subscription group no permission, consumers",
        )
        await sent(remote, broker, send_request(b"new"))
        assert (await asyncio.wait_for(waiting, 15)).code == ResponseCode.NO_PERMISSION
    async with running(tmp_path) as broker:
        response = await remote.invoke(broker.address, pull_request(0), 5)
        assert response.code == ResponseCode.NO_PERMISSION, "a restart gives nothing back"
        await remote.ask(broker.address, group_request({"groupName": "consumers", "consumeEnable": True}), 5)
        assert await count(remote, broker, pull_request(0)) == 4
    async with running(tmp_path) as broker:
        assert await count(remote, broker, pull_request(0)) == 4


async def test_a_group_is_made_and_changed_as_asked(broker: Broker, remote: RemotingClient) -> None:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
    for group, remark in (
        ({"groupName": "a b"}, "characters other than"),
        ({"groupName": "g", "retryQueueNums": 65_537}, "the bounds are 0 and 65536"),
        ({"groupName": "g", "attributes": {"+x": "y"}}, "attributes of groups aren't built"),
    ):
        response = await remote.invoke(broker.address, group_request(group), 5)
        assert response.code == ResponseCode.INVALID_PARAMETER
        assert remark in (response.remark or "")
    await sent(remote, broker, send_request(b"x"))
    await remote.ask(broker.address, group_request({"groupName": "consumers", "consumeEnable": False}), 5)
    assert (await remote.invoke(broker.address, pull_request(), 5)).code == ResponseCode.NO_PERMISSION


async def test_a_pull_commits_what_its_flag_says(broker: Broker, remote: RemotingClient) -> None:
    """Row 5.2."""
    await sent(remote, broker, send_request(b"x"))
    for flag, offset, expected in ((0, "1", "0"), (COMMIT, "1", "1")):
        pull = pull_request()
        pull.fields |= {"sysFlag": str(4 | flag), "commitOffset": offset}
        await remote.ask(broker.address, pull, 5)
        assert (await remote.ask(broker.address, offset_query(), 5)).fields["offset"] == expected


async def test_a_group_without_an_offset_begins_where_the_queue_does_or_decides_itself(
    tmp_path: Path, remote: RemotingClient
) -> None:
    """Row 5.2: the first offset of a group."""
    async with running(tmp_path, mappedFileSizeCommitLog="65536", deleteWhen="0") as broker:
        await sent(remote, broker, send_request(b"x"))
        assert (await remote.ask(broker.address, offset_query(), 5)).fields["offset"] == "0"
        undecided = await remote.invoke(broker.address, offset_query(setZeroIfNotFound="false"), 5)
        assert undecided.code == ResponseCode.QUERY_NOT_FOUND
        for _ in range(3):
            await sent(remote, broker, send_request(bytes(50_000)))
    first = min((tmp_path / "commitlog").iterdir())
    first.unlink()
    async with running(tmp_path, mappedFileSizeCommitLog="65536") as broker:
        old = await remote.invoke(broker.address, offset_query(), 5)
        assert old.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.usefixtures("unswept")
async def test_without_long_polling_a_pull_waits_for_a_short_time(tmp_path: Path, remote: RemotingClient) -> None:
    """Row 5.3: the client's time doesn't count then; a message still ends the wait."""
    async with running(tmp_path, longPollingEnable="false", shortPollingTimeMills="600000") as broker:
        await sent(remote, broker, send_request(b"old"))
        waiting = asyncio.create_task(remote.invoke(broker.address, pull_request(1, suspend_ms=1), 20))
        await asyncio.sleep(0.05)
        await sent(remote, broker, send_request(b"new"))
        assert [message.body for message in decode_stored((await asyncio.wait_for(waiting, 15)).body)] == [b"new"]
    async with running(tmp_path / "none", longPollingEnable="false", shortPollingTimeMills="0") as broker:
        await sent(remote, broker, send_request(b"old"))
        response = await asyncio.wait_for(remote.invoke(broker.address, pull_request(1, suspend_ms=600_000), 20), 15)
        assert response.code == ResponseCode.PULL_NOT_FOUND
