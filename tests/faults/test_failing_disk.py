"""A real server whose system calls fail: what it has acknowledged is there when the disk is healthy again."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from rockmq.base.errors import RemotingError
from rockmq.protocol import codec
from rockmq.protocol.codes import ResponseCode
from tests.faults.conftest import Faults
from tests.faults.traffic import Broker, Traffic, said, until
from tests.support import traffic as requests
from tests.support.server import Server

EXIT_S = 60
INDEX = {"maxHashSlotNum": "10", "maxIndexNum": "40"}
"""Files so small that one is full, and the next is made, all the time."""
SMALL = {
    "mappedFileSizeCommitLog": str(1 << 20),
    "mappedFileSizeConsumeQueue": "20000",
    "flushIntervalConsumeQueue": "100",
    "flushConsumeQueueThoroughInterval": "200",
    "flushConsumerOffsetInterval": "200",
}


def failing(directory: Path, faults: Faults, **settings: str) -> Broker:
    return Broker(directory, faults.environment, **(SMALL | settings))


async def ended_by(server: Server, traffic: Traffic) -> str:
    """Send until the broker has ended itself; what it said."""
    with contextlib.suppress(RemotingError):
        while True:
            await traffic.send(timeout=5)
    assert await asyncio.to_thread(server.process.wait, EXIT_S) == 1
    return server.process.err.read_text(encoding="utf-8")


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_log_that_cant_be_forced_ends_the_broker(
    tmp_path: Path, faults: Faults, traffic: Traffic, flush: str
) -> None:
    broker = failing(tmp_path, faults, flushDiskType=flush)
    async with broker.running(traffic) as server:
        await traffic.sent(50)
        faults.set("msync eio - 0")
        said = await ended_by(server, traffic)
        assert "the store failed, so this broker ended" in said
        assert "can't sync" in said
        assert "Input/output error" in said
        assert (tmp_path / "data" / "abort").exists(), "the next start must check the log"
    faults.clear()
    async with broker.running(traffic):
        await traffic.check()
        await traffic.sent(10)
        await traffic.check()


@pytest.mark.parametrize("part", ["consumequeue", "checkpoint"])
@pytest.mark.parametrize("call", ["write", "fsync"])
async def test_queues_and_checkpoint_that_fail_end_the_broker(
    tmp_path: Path, faults: Faults, traffic: Traffic, part: str, call: str
) -> None:
    broker = failing(tmp_path, faults)
    async with broker.running(traffic) as server:
        await traffic.sent(50)
        faults.set(f"{call} eio /data/{part} 0")
        said = await ended_by(server, traffic)
        assert "the store failed, so this broker ended" in said
        assert "Input/output error" in said
    faults.clear()
    async with broker.running(traffic):
        await traffic.check()


async def test_a_slow_disk_delays_acknowledgements_and_nothing_else(
    tmp_path: Path, faults: Faults, traffic: Traffic
) -> None:
    broker = failing(tmp_path, faults, syncFlushTimeout="60000")
    async with broker.running(traffic):
        await traffic.sent(20)
        faults.set("msync hang - 0")
        sending = asyncio.create_task(traffic.send(timeout=60))
        for _ in range(20):
            await traffic.pull()
        assert not sending.done(), "acknowledged before it was on disk"
        faults.clear()
        assert (await sending).code == ResponseCode.SUCCESS
        await traffic.check()


@pytest.mark.parametrize("part", ["consumequeue", "checkpoint", "config", "index"])
async def test_what_isnt_the_log_may_be_slow_and_nobody_waits(
    tmp_path: Path, faults: Faults, traffic: Traffic, part: str
) -> None:
    broker = failing(tmp_path, faults, **INDEX)
    async with broker.running(traffic) as server:
        await traffic.sent(20)
        faults.set(f"fsync hang /data/{part} 0")
        creating = asyncio.create_task(
            traffic.remote.invoke(traffic.address, requests.send_request(b"x", 0, topic="orders"), 60)
        )
        for _ in range(10):
            await traffic.sent(20)
            await traffic.pull()
            await asyncio.sleep(0.05)
        if part == "config":
            assert not creating.done(), "a new topic is acknowledged when it is on disk"
        else:
            assert (await creating).code == ResponseCode.SUCCESS
        faults.clear()
        assert (await creating).code == ResponseCode.SUCCESS
        await traffic.check()
        server.kill()
    async with broker.running(traffic):
        await traffic.check()


async def test_an_index_that_fails_stops_no_message(tmp_path: Path, faults: Faults, traffic: Traffic) -> None:
    broker = failing(tmp_path, faults, **INDEX)
    async with broker.running(traffic) as server:
        await traffic.sent(5)
        faults.set("fsync eio /data/index 0")
        await traffic.sent(100)
        await until(lambda: said(server, "the index doesn't follow the log") == 1, 60, "said so")
        await traffic.sent(100)
        await traffic.check()
        server.kill()
    faults.clear()
    async with broker.running(traffic):
        await traffic.sent(10)
        await traffic.check()


async def test_a_sender_waits_for_a_slow_disk_as_long_as_configured(
    tmp_path: Path, faults: Faults, traffic: Traffic
) -> None:
    broker = failing(tmp_path, faults, syncFlushTimeout="700")
    async with broker.running(traffic):
        await traffic.sent(20)
        faults.set("msync hang - 0")
        # The disk is not done before the fault is taken away.
        assert (await traffic.send()).code == ResponseCode.FLUSH_DISK_TIMEOUT
        await traffic.pull()
        faults.clear()
        await traffic.send_until(ResponseCode.SUCCESS, 60)
        await traffic.check()


async def test_a_stop_lets_a_sender_wait_for_a_slow_disk_as_long_as_configured(
    tmp_path: Path, faults: Faults, traffic: Traffic
) -> None:
    """Also one whose queue the broker chooses, which no timeout of the stop's own cuts off."""
    broker = failing(tmp_path, faults)
    async with broker.running(traffic) as server:
        await traffic.sent(20)
        faults.set("msync hang - 0")
        sending = asyncio.create_task(traffic.remote.invoke(traffic.address, requests.send_request(b"x", -1), 20))
        await traffic.runtime()  # so the broker has what was sent on this connection before
        stopping = asyncio.create_task(asyncio.to_thread(server.process.terminate))
        assert (await sending).code == ResponseCode.FLUSH_DISK_TIMEOUT
        faults.clear()
        assert await stopping == 0
    async with broker.running(traffic):
        await traffic.check()


@pytest.mark.parametrize("queue_id", [0, -1])
async def test_a_stop_does_not_wait_for_a_force_that_has_failed(
    tmp_path: Path, faults: Faults, traffic: Traffic, queue_id: int
) -> None:
    """The core holds the reply, or the gate does for a queue that the broker chooses."""
    broker = failing(tmp_path, faults, syncFlushTimeout="600000")
    async with broker.running(traffic) as server:
        await traffic.sent(20)
        faults.set("msync hang - 0")
        sending = asyncio.create_task(traffic.remote.invoke(traffic.address, requests.send_request(b"x", queue_id), 60))
        await traffic.runtime()
        os.kill(server.pid, signal.SIGTERM)
        await asyncio.sleep(0.5)
        faults.set("msync eio - 0")
        assert await asyncio.to_thread(server.process.wait, EXIT_S) == 1
        with pytest.raises(RemotingError):
            await sending
        assert (tmp_path / "data" / "abort").exists(), "the next start must check the log"
    faults.clear()
    async with broker.running(traffic):
        await traffic.check()


async def test_short_writes_are_carried_on(tmp_path: Path, faults: Faults, traffic: Traffic) -> None:
    broker = failing(tmp_path, faults)
    async with broker.running(traffic) as server:
        await traffic.sent(20)
        faults.set("write short /data/ 7")
        for number in range(3):
            response = await traffic.remote.invoke(
                traffic.address, requests.send_request(b"x", 0, topic=f"topic-{number}"), 10
            )
            assert response.code == ResponseCode.SUCCESS, response.remark
        await traffic.sent(500)
        await asyncio.sleep(0.5)
        server.kill()
    faults.clear()
    async with broker.running(traffic):
        await traffic.check()
        config = (tmp_path / "data" / "config" / "topics.json").read_text()
        assert all(f'"topic-{number}"' in config for number in range(3))


@pytest.mark.parametrize("part", ["consumequeue", "checkpoint"])
async def test_without_room_for_small_files_messages_are_refused_for_a_while(
    tmp_path: Path, faults: Faults, traffic: Traffic, part: str
) -> None:
    broker = failing(tmp_path, faults)
    async with broker.running(traffic) as server:
        await traffic.sent(50)
        faults.set(f"write enospc {part} 0")
        remark = await traffic.send_until(ResponseCode.SERVICE_NOT_AVAILABLE, 60)
        assert "No space left on device" in remark
        assert str(tmp_path / "data") in remark
        await traffic.check()
        faults.clear()
        await traffic.send_until(ResponseCode.SUCCESS, 60)
        await traffic.check()
        server.kill()
    async with broker.running(traffic):
        await traffic.check()


async def test_a_full_disk_at_the_end_costs_only_the_clean_stop(tmp_path: Path, faults: Faults, traffic: Traffic) -> None:
    broker = failing(tmp_path, faults, flushIntervalConsumeQueue="60000")
    async with broker.running(traffic) as server:
        await traffic.sent(50)
        faults.set("write enospc consumequeue 0", "write enospc checkpoint 0", "write enospc config 0")
        await traffic.sent(50)
        assert await asyncio.to_thread(server.process.terminate) == 0
        assert "the next start repairs it" in server.process.err.read_text()
        assert (tmp_path / "data" / "abort").exists()
    faults.clear()
    async with broker.running(traffic):
        await traffic.check()


@pytest.mark.parametrize("fault", ["write enospc", "write eio", "fsync eio"])
async def test_documents_that_cant_be_saved_are_saved_later(
    tmp_path: Path, faults: Faults, traffic: Traffic, fault: str
) -> None:
    broker = failing(tmp_path, faults)
    async with broker.running(traffic) as server:
        await traffic.sent(10)
        faults.set(f"{fault} config 0")
        request = requests.send_request(b"x", 0, topic="orders")
        response = await traffic.remote.invoke(traffic.address, request, 10)
        assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "topics.json can't be saved" in (response.remark or "")
        await traffic.sent(10)
        response = await traffic.remote.invoke(traffic.address, requests.send_request(b"y", 0, topic="orders"), 10)
        assert response.code == ResponseCode.SERVICE_NOT_AVAILABLE, "a topic takes messages when it is on disk"
        await asyncio.sleep(6)
        assert said(server, "topics.json can't be saved; it is tried again until it can") == 1
        faults.clear()
        await until(lambda: said(server, "topics.json can be saved again") == 1, 60, "saving again")
        response = await traffic.remote.invoke(traffic.address, requests.send_request(b"z", 0, topic="orders"), 10)
        assert response.code == ResponseCode.SUCCESS
        server.kill()
    async with broker.running(traffic):
        await traffic.check()
        pulled = await traffic.remote.invoke(traffic.address, requests.pull_request(0, 0, topic="orders"), 10)
        assert pulled.code == ResponseCode.SUCCESS, "a topic that was acknowledged is still there"


async def test_the_shim_itself_bites(tmp_path: Path, faults: Faults, traffic: Traffic) -> None:
    """Without faults a server under the shim is an ordinary one: the other tests' failures come from their lines."""
    broker = failing(tmp_path, faults)
    async with broker.running(traffic) as server:
        await traffic.sent(10)
        assert isinstance(await traffic.send(), codec.Command)
        assert await asyncio.to_thread(server.process.terminate) == 0
        assert not (tmp_path / "data" / "abort").exists()
