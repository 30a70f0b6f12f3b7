"""Pulls that wait while the disk takes its time: each message wakes them once it is durable."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rockmq import _core
from rockmq.protocol import codec
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.admin import DeleteTopic
from rockmq.protocol.message import decode_stored
from rockmq.remoting.client import RemotingClient
from tests.unit.broker.conftest import running
from tests.unit.broker.test_messages import create_request, pull_request, send_request

pytestmark = pytest.mark.usefixtures("unswept")

WAIT_MS = 60_000


class Disk:
    """Forces when the test says so, in two steps as the core's flusher: the log first, then the loop hears of it."""

    def __init__(self) -> None:
        self._forced = 0

    def __call__(
        self, core: _core.Store, *, flushed: Callable[[int], None], interval_seconds: float | None, failed: object
    ) -> "Disk":
        assert interval_seconds is None
        self.core, self._flushed = core, flushed
        return self

    def force(self) -> None:
        self._forced = self.core.flush()

    def tell(self) -> None:
        self._flushed(self._forced)

    async def close(self) -> None:
        self.force()
        self.tell()

    async def appended(self, messages: int) -> None:
        """Wait until the log holds as many."""
        async with asyncio.timeout(30):
            while self.core.appended[0] < messages:
                await asyncio.sleep(0.01)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr("rockmq.store.message_store.Flusher", disk)
    return disk


def bodies(answer: codec.Command) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS
    return [message.body for message in decode_stored(answer.body)]


@pytest.mark.parametrize("queue_id", [0, -1])
async def test_a_message_that_was_forced_too_late_wakes_who_waits(
    tmp_path: Path, remote: RemotingClient, disk: Disk, queue_id: int
) -> None:
    """Its sender was told of a timeout: the core held that reply, or, for a queue of the broker's choice, the gate did."""
    async with running(tmp_path, flushDiskType="SYNC_FLUSH", syncFlushTimeout="600") as broker:
        await remote.ask(broker.address, create_request(queues=1), 5)
        pulled = asyncio.create_task(remote.invoke(broker.address, pull_request(suspend_ms=WAIT_MS), 20))
        await asyncio.sleep(0.1)
        answer = await remote.invoke(broker.address, send_request(b"late", queue_id=queue_id), 10)
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert not pulled.done()
        disk.force()
        disk.tell()
        assert bodies(await asyncio.wait_for(pulled, 15)) == [b"late"]


async def test_a_pull_that_waits_on_is_woken_by_what_came_between_two_forces(
    tmp_path: Path, remote: RemotingClient, disk: Disk
) -> None:
    """The first message woke it and doesn't match; the second came before that, and isn't durable then."""
    async with running(tmp_path, flushDiskType="SYNC_FLUSH") as broker:
        await remote.ask(broker.address, create_request(queues=1), 5)
        pulled = asyncio.create_task(remote.invoke(broker.address, pull_request(suspend_ms=WAIT_MS, tags="paid"), 20))
        await asyncio.sleep(0.1)
        sent = [asyncio.create_task(remote.invoke(broker.address, send_request(b"other", tag="sent"), 10))]
        await disk.appended(1)
        disk.force()
        sent.append(asyncio.create_task(remote.invoke(broker.address, send_request(b"wanted", tag="paid"), 10)))
        await disk.appended(2)
        disk.tell()
        assert (await sent[0]).code == ResponseCode.SUCCESS
        assert not pulled.done()
        disk.force()
        disk.tell()
        assert bodies(await asyncio.wait_for(pulled, 15)) == [b"wanted"]
        assert (await sent[1]).code == ResponseCode.SUCCESS


async def test_a_pull_that_begins_before_a_message_is_durable_is_woken(
    tmp_path: Path, remote: RemotingClient, disk: Disk
) -> None:
    async with running(tmp_path, flushDiskType="SYNC_FLUSH") as broker:
        await remote.ask(broker.address, create_request(queues=1), 5)
        sent = asyncio.create_task(remote.invoke(broker.address, send_request(b"wanted"), 10))
        await disk.appended(1)
        pulled = asyncio.create_task(remote.invoke(broker.address, pull_request(suspend_ms=WAIT_MS), 20))
        await asyncio.sleep(0.1)
        disk.force()
        disk.tell()
        assert bodies(await asyncio.wait_for(pulled, 15)) == [b"wanted"]
        assert (await sent).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("offset", [0, 1])
async def test_a_pull_that_waits_for_a_topic_that_is_deleted_is_told(
    tmp_path: Path, remote: RemotingClient, offset: int
) -> None:
    """Row 5.3: Apache tells it when its time is over. A topic of the same name may be there by then, with other queues."""
    async with running(tmp_path) as broker:
        await remote.ask(broker.address, create_request(queues=1), 5)
        for _ in range(offset):
            await remote.ask(broker.address, send_request(b"first"), 10)
        pulled = asyncio.create_task(remote.invoke(broker.address, pull_request(offset, suspend_ms=WAIT_MS), 20))
        await asyncio.sleep(0.1)
        assert not pulled.done()
        delete = codec.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopic(topic="T"))
        await asyncio.gather(remote.ask(broker.address, delete, 5), remote.ask(broker.address, create_request(queues=1), 5))
        answer = await asyncio.wait_for(pulled, 15)
        assert (answer.code, "topic[T] not exist" in (answer.remark or "")) == (ResponseCode.TOPIC_NOT_EXIST, True)
        await remote.ask(broker.address, send_request(b"again"), 10)
        assert bodies(await remote.invoke(broker.address, pull_request(suspend_ms=WAIT_MS), 5)) == [b"again"]


async def test_what_one_look_does_not_reach_is_asked_for_again_at_once(tmp_path: Path, remote: RemotingClient) -> None:
    """A pull woken by more messages that don't match than are looked at in one go doesn't wait for the next one."""
    async with running(tmp_path) as broker:
        await remote.ask(broker.address, create_request(queues=1), 5)
        pulled = asyncio.create_task(remote.invoke(broker.address, pull_request(suspend_ms=WAIT_MS, tags="paid"), 20))
        await asyncio.sleep(0.1)
        await asyncio.gather(
            *(remote.ask(broker.address, send_request(b"other", tag="sent"), 10) for _ in range(2000)),
            remote.ask(broker.address, send_request(b"wanted", tag="paid"), 10),
        )
        answer = await asyncio.wait_for(pulled, 15)
        while answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
            request = pull_request(int(answer.fields["nextBeginOffset"]), tags="paid")
            answer = await remote.invoke(broker.address, request, 5)
        assert bodies(answer) == [b"wanted"]
