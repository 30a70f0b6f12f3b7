"""What a broker that stops has told its clients: it is there when it starts again."""

import asyncio
from pathlib import Path

import pytest

from rockmq.base.errors import RemotingError
from rockmq.broker import server
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.server import Broker
from rockmq.protocol import codec
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.offset import UpdateConsumerOffset
from rockmq.remoting.client import RemotingClient
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import options, running
from tests.unit.broker.test_messages import create_request, pull_request, send_request


async def commit_until_stopped(broker: str, queue_id: int) -> int:
    """The last offset that was acknowledged."""
    remote = RemotingClient()
    acknowledged = 0
    try:
        while True:
            header = UpdateConsumerOffset(consumer_group="g", topic="T", queue_id=queue_id, commit_offset=acknowledged + 1)
            await remote.ask(broker, codec.request(RequestCode.UPDATE_CONSUMER_OFFSET, header), 5)
            acknowledged += 1
    except RemotingError:
        return acknowledged
    finally:
        await remote.close()


async def test_offsets_acknowledged_until_the_last_moment_are_saved(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        await remote.ask(broker.address, create_request(), 5)
        commits = [asyncio.create_task(commit_until_stopped(broker.address, queue_id)) for queue_id in range(4)]
        await asyncio.sleep(0.2)
        assert not any(commit.done() for commit in commits)
    acknowledged = await asyncio.gather(*commits)
    assert min(acknowledged) > 0
    saved = ConsumerOffsets(tmp_path / "config", FakeClock()).by_group("g")["T"]
    # One more may have been taken whose answer was on its way when the connection ended.
    assert all(saved[queue_id] - told in (0, 1) for queue_id, told in enumerate(acknowledged))


async def test_what_was_begun_is_answered(tmp_path: Path, remote: RemotingClient) -> None:
    """A send that waits for the disk, and a pull that waits for messages."""
    broker = Broker(options(tmp_path, flushDiskType="SYNC_FLUSH"))
    await broker.start()
    await remote.ask(broker.address, create_request(), 5)
    pulled = asyncio.create_task(remote.invoke(broker.address, pull_request(queue_id=1, suspend_ms=20_000), 10))
    senders = [RemotingClient() for _ in range(8)]
    sent = [asyncio.create_task(each.ask(broker.address, send_request(b"body"), 10)) for each in senders]
    while not any(each.done() for each in sent):
        await asyncio.sleep(0)
    await broker.close()
    assert (await pulled).code == ResponseCode.PULL_NOT_FOUND
    for outcome in await asyncio.gather(*sent, return_exceptions=True):
        # Whose request wasn't read yet has lost its connection.
        assert isinstance(outcome, RemotingError) or outcome.code == ResponseCode.SUCCESS  # type: ignore[union-attr]
    for each in senders:
        await each.close()


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_broker_with_nothing_to_do_stops_at_once(
    tmp_path: Path, remote: RemotingClient, flush: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, flushDiskType=flush) as broker:
        await remote.ask(broker.address, create_request(), 5)
        await remote.ask(broker.address, send_request(b"body"), 5)
    broker = Broker(options(tmp_path, flushDiskType=flush))
    await broker.start()
    monkeypatch.setattr(server, "FINISH_SECONDS", 600.0)
    async with asyncio.timeout(30):
        await broker.close()
