"""Quotas of topics and clients."""

import asyncio
from pathlib import Path

from rockmq.broker.server import Broker
from rockmq.protocol.codes import ResponseCode
from rockmq.remoting.client import RemotingClient
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import options, running
from tests.unit.broker.test_messages import create_request, send_request


async def test_a_topic_takes_so_many_messages_a_second(tmp_path: Path, remote: RemotingClient) -> None:
    clock = FakeClock()
    broker = Broker(options(tmp_path), clock)
    await broker.start()

    async def until_refused(topic: str, bound: int) -> tuple[int, str]:
        """How many are taken before one is refused, and with which words."""
        for count in range(bound):
            answer = await remote.invoke(broker.address, send_request(b"x", topic=topic), 5)
            if answer.code != ResponseCode.SUCCESS:
                assert answer.code == ResponseCode.FLOW_CONTROL
                return count, answer.remark or ""
            await asyncio.sleep(0.005)  # so that what came is looked at
        return bound, ""

    try:
        await remote.ask(broker.address, create_request("Bound", attributes="+send.quota=10"), 5)
        await remote.ask(broker.address, create_request("Free"), 5)
        count, words = await until_refused("Bound", 200)
        assert 10 <= count < 60
        assert "quota of 10 messages a second" in words
        assert "try again in" in words
        assert await until_refused("Free", 20) == (20, "")
        clock.seconds += 60
        await asyncio.sleep(0.2)
        count, _ = await until_refused("Bound", 200)
        assert count >= 10, "time makes up for it, by no more than a second's"
        await remote.ask(broker.address, create_request("Bound", attributes="-send.quota"), 5)
        assert await until_refused("Bound", 50) == (50, "")
        for wrong in ("0", "x", "-1", "1.5", "9" * 12, "9" * 4301):
            answer = await remote.invoke(broker.address, create_request("Bound", attributes=f"+send.quota={wrong}"), 5)
            assert answer.code == ResponseCode.INVALID_PARAMETER
            assert "messages a second" in (answer.remark or "")
    finally:
        await broker.close()


async def test_queues_that_come_back_use_up_no_quota(tmp_path: Path, remote: RemotingClient) -> None:
    """What they have was sent long ago."""
    async with running(tmp_path) as broker:
        await remote.ask(broker.address, create_request(queues=8), 5)
        for _ in range(100):
            await remote.ask(broker.address, send_request(b"x", queue_id=7), 5)
        for queues in (8, 4, 8):
            await remote.ask(broker.address, create_request(queues=queues, attributes="+send.quota=10"), 5)
            await asyncio.sleep(0.2)
        answer = await remote.invoke(broker.address, send_request(b"x"), 5)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def test_a_quota_survives_a_restart(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        await remote.ask(broker.address, create_request("Bound", attributes="+send.quota=5"), 5)
    async with running(tmp_path) as broker:
        codes = set()
        for _ in range(200):
            codes.add((await remote.invoke(broker.address, send_request(b"x", topic="Bound"), 5)).code)
            await asyncio.sleep(0.002)
        assert codes == {ResponseCode.SUCCESS, ResponseCode.FLOW_CONTROL}


async def test_a_client_over_its_quota_is_read_from_later_and_others_arent_held_up(tmp_path: Path) -> None:
    clock = FakeClock()
    broker = Broker(options(tmp_path, clientSendQuota="100000"), clock)
    await broker.start()
    greedy, modest = RemotingClient(), RemotingClient()
    try:
        await modest.ask(broker.address, create_request(), 5)
        await greedy.ask(broker.address, send_request(bytes(400_000)), 5)
        await asyncio.sleep(0.2)
        waiting = asyncio.create_task(greedy.ask(broker.address, send_request(b"x"), 20))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        await modest.ask(broker.address, send_request(b"x"), 5)
        clock.seconds += 4
        await waiting
    finally:
        await greedy.close()
        await modest.close()
        await broker.close()
