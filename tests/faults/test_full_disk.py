"""A real server on a small disk that really fills up."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from rockmq.protocol.codes import ResponseCode
from rockmq.store.checkpoint import Checkpoint
from tests.faults.traffic import Broker, Traffic, said, until
from tests.support.process import ProcessError
from tests.support.traffic import read_queue, send_request

MIB = 1 << 20
BODY = 60_000
SETTINGS = {
    "mappedFileSizeCommitLog": str(4 * MIB),
    "mappedFileSizeConsumeQueue": "20000",
    "flushIntervalConsumeQueue": "100",
    "flushConsumeQueueThoroughInterval": "200",
    "cleanResourceInterval": "100",
    "deleteCommitLogFilesInterval": "0",
}
RESUMES_S = 60
"""The broker looks every three seconds."""


def ballast(path: Path, size: int) -> None:
    """What somebody else has on the disk; 0 takes it away."""
    (path / "ballast").write_bytes(b"x" * size)


def fill(path: Path) -> None:
    """Let somebody else take the last byte of the disk."""
    with (path / "ballast").open("wb", buffering=0) as file:
        while _written(file.fileno()):
            pass


def _written(descriptor: int) -> bool:
    try:
        return os.write(descriptor, b"x" * 4096) > 0
    except OSError:
        return False


async def test_a_disk_without_room_refuses_messages_until_it_has_some(small_disk: Path, traffic: Traffic) -> None:
    """No bound is set, so it is the kernel that says no."""
    never = {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false"}
    broker = Broker(small_disk.parent, **(SETTINGS | never))
    ballast(small_disk, 10 * MIB)
    async with broker.running(traffic) as server:
        remark = await traffic.send_until(ResponseCode.SERVICE_NOT_AVAILABLE, RESUMES_S, BODY)
        assert str(small_disk) in remark
        assert "% are used" in remark
        assert "No space left on device" in remark
        for _ in range(50):
            assert (await traffic.send()).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert said(server, "messages are refused") == 1
        runtime = await traffic.runtime()
        assert runtime["takesMessages"] == "false"
        assert runtime["refusesMessagesBecause"] == remark
        await traffic.check()
        ballast(small_disk, 0)
        await traffic.send_until(ResponseCode.SUCCESS, RESUMES_S, BODY)
        assert said(server, "has room again") == 1
        assert (await traffic.runtime())["takesMessages"] == "true"
        await traffic.check()
        await traffic.send_until(ResponseCode.SERVICE_NOT_AVAILABLE, RESUMES_S, BODY)
        server.kill()
    async with broker.running(traffic):
        await traffic.check()
        await traffic.send_until(ResponseCode.SERVICE_NOT_AVAILABLE, RESUMES_S, BODY)
        await traffic.check()


async def test_the_next_file_may_take_all_the_room_there_is(small_disk: Path, traffic: Traffic) -> None:
    """Room comes back for one file of the log and not for two; it may be made ahead before anybody looks."""
    never = {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false", "messageIndexEnable": "false"}
    broker = Broker(small_disk.parent, **(SETTINGS | never))
    ballast(small_disk, 10 * MIB)
    async with broker.running(traffic):
        await traffic.send_until(ResponseCode.SERVICE_NOT_AVAILABLE, RESUMES_S, BODY)
        free = shutil.disk_usage(small_disk).free
        ballast(small_disk, 10 * MIB - (6 * MIB - free))
        await traffic.send_until(ResponseCode.SUCCESS, RESUMES_S, BODY)
        await traffic.sent(50, BODY)
        await traffic.check()


async def test_a_log_on_two_disks_goes_on_while_one_has_room(small_disk: Path, tmp_path: Path, traffic: Traffic) -> None:
    small, large = small_disk / "log", tmp_path / "large"
    never = {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false"}
    broker = Broker(tmp_path / "other", **(SETTINGS | never | {"storePathCommitLog": f"{small},{large}"}))
    async with broker.running(traffic) as server:
        await traffic.sent(200, BODY)
        before = len(names(small))
        assert before >= 1
        fill(small_disk)
        refused = [code for code in [(await traffic.send(BODY)).code for _ in range(400)] if code != ResponseCode.SUCCESS]
        assert refused == [], "the next file goes elsewhere"
        await traffic.check()
        assert len(names(small)) <= before + 1, "one may have been made ahead"
        assert len(names(large)) >= 6
        assert len(names(small) & names(large)) == 0
        server.kill()
    ballast(small_disk, 0)
    async with broker.running(traffic):
        await traffic.check()
        await traffic.sent(250, BODY)
        await traffic.check()
        assert len(names(small)) >= before + 1


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


async def test_a_disk_without_a_byte_left_loses_nothing(small_disk: Path, traffic: Traffic) -> None:
    """Not even queues and documents find room: entries stay in memory, and come from the log at the next start."""
    never = {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false"}
    broker = Broker(small_disk.parent, **(SETTINGS | never))
    async with broker.running(traffic) as server:
        await traffic.sent(20, BODY)
        fill(small_disk)
        await asyncio.sleep(1)
        for _ in range(50):
            await traffic.send(1000)
        await traffic.check()
        ballast(small_disk, 0)
        await traffic.send_until(ResponseCode.SUCCESS, RESUMES_S)
        server.kill()
    async with broker.running(traffic):
        await traffic.check()


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
@pytest.mark.parametrize("stopped", [False, True], ids=["killed", "stopped"])
async def test_a_broker_starts_on_a_disk_without_a_byte_left(
    small_disk: Path, traffic: Traffic, flush: str, stopped: bool
) -> None:
    """It serves what is there and refuses messages, and takes them again when there is room."""
    never = {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false", "flushDiskType": flush}
    # A kill takes the index away, and with it 20 MiB.
    broker = Broker(small_disk.parent, **(SETTINGS | never | {"messageIndexEnable": "false"}))
    async with broker.running(traffic) as server:
        await traffic.sent(100, BODY)
        await asyncio.sleep(1)
        if stopped:
            server.terminate()
        else:
            server.kill()
    fill(small_disk)
    async with broker.running(traffic):
        await traffic.check()
        await traffic.send_until(ResponseCode.SERVICE_NOT_AVAILABLE, RESUMES_S, BODY)
        await traffic.check()
        ballast(small_disk, 0)
        await traffic.send_until(ResponseCode.SUCCESS, RESUMES_S, BODY)
        await traffic.check()


async def test_a_start_without_room_loses_nothing(small_disk: Path, traffic: Traffic) -> None:
    """Queues that were never written stay in memory until there is some room."""
    # A start makes an index file anew that a kill has left, which gives room.
    never = {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false", "messageIndexEnable": "false"}
    unwritten = Broker(small_disk.parent, **(SETTINGS | never | {"flushIntervalConsumeQueue": "600000"}))
    async with unwritten.running(traffic) as server:
        await traffic.sent(50, BODY)
        server.kill()
    shutil.rmtree(small_disk / "consumequeue")
    fill(small_disk)
    broker = Broker(small_disk.parent, **(SETTINGS | never))
    async with broker.running(traffic):
        await traffic.check()
        remark = await traffic.send_until(ResponseCode.SERVICE_NOT_AVAILABLE, RESUMES_S)
        assert "No space left on device" in remark
        ballast(small_disk, 0)
        await traffic.send_until(ResponseCode.SUCCESS, RESUMES_S)
        await traffic.check()
    async with broker.running(traffic):
        await traffic.check()


async def test_what_a_checkpoint_vouches_for_is_made_again_before_anybody_is_served(
    small_disk: Path, traffic: Traffic
) -> None:
    """Queues that were on disk have to be there again: a start without room for them says so, and takes place when there is
    some."""
    never = {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false", "messageIndexEnable": "false"}
    broker = Broker(small_disk.parent, **(SETTINGS | never))
    async with broker.running(traffic) as server:
        await traffic.sent(50, BODY)
        async with asyncio.timeout(60):
            while not Checkpoint.load(small_disk / "checkpoint").position:
                await asyncio.sleep(0.1)
        server.kill()
    shutil.rmtree(small_disk / "consumequeue")
    fill(small_disk)
    with pytest.raises(ProcessError, match=r"(?s)can't be opened: can't \w+ .*consumequeue.*No space left on device"):
        async with broker.running(traffic):
            pass
    ballast(small_disk, 0)
    async with broker.running(traffic):
        await traffic.check()


async def test_over_the_warning_level_messages_are_refused(small_disk: Path, traffic: Traffic) -> None:
    """Row 4.2: the table of ratios."""
    # An index file is larger than this disk: what the attempt takes for a moment would be missing to the ballast.
    settings = SETTINGS | {"cleanFileForciblyEnable": "false", "messageIndexEnable": "false"}
    broker = Broker(small_disk.parent, **settings)
    async with broker.running(traffic):
        await traffic.sent(10, BODY)
        ballast(small_disk, 26 * MIB)
        remark = await traffic.send_until(ResponseCode.SERVICE_NOT_AVAILABLE, RESUMES_S)
        assert "diskSpaceWarningLevelRatio=90" in remark
        assert str(small_disk) in remark
        await traffic.check()
        ballast(small_disk, MIB)
        await traffic.send_until(ResponseCode.SUCCESS, RESUMES_S)
        await traffic.check()


async def test_forced_deletion_keeps_a_small_disk_usable(small_disk: Path, traffic: Traffic) -> None:
    broker = Broker(small_disk.parent, **SETTINGS)
    async with broker.running(traffic):
        stored = 0
        while stored < 3 * 32 * MIB:
            await traffic.send_until(ResponseCode.SUCCESS, RESUMES_S, BODY)
            stored += BODY
        runtime = await traffic.runtime()
        assert int(runtime["commitLogMinOffset"]) > 32 * MIB
        assert float(runtime["commitLogDiskRatio"]) <= 0.9


async def test_parked_messages_wait_for_room(small_disk: Path, traffic: Traffic) -> None:
    """Those that are due stay parked while the kernel says no, and then come by themselves, each once."""
    never = {"diskSpaceWarningLevelRatio": "100", "cleanFileForciblyEnable": "false", "messageIndexEnable": "false"}
    broker = Broker(small_disk.parent, **(SETTINGS | never | {"messageDelayLevel": "3s"}))
    parked = [b"%d " % number + b"x" * BODY for number in range(100)]
    async with broker.running(traffic) as server:
        requests = [send_request(body, 0) for body in parked]
        for request in requests:
            request.fields["i"] = "DELAY\x011\x02"
        # All before the first one is due, however long the disk takes.
        await asyncio.gather(*(traffic.remote.ask(traffic.address, request, 20) for request in requests))
        fill(small_disk)
        await until(lambda: said(server, "delayed messages wait on: ") > 0, RESUMES_S, "they wait")
        await asyncio.sleep(2)
        assert said(server, "delayed messages wait on: ") == 1
        before = await read_queue(traffic.remote, traffic.address, 0)
        assert len(before) < len(parked)
        ballast(small_disk, 0)
        async with asyncio.timeout(RESUMES_S):
            while len(found := await read_queue(traffic.remote, traffic.address, 0)) < len(parked):
                await asyncio.sleep(0.1)
        assert [message.body for message in found] == parked
        assert said(server, "delayed messages are delivered again") == 1
