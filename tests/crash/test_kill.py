"""A real broker under load, killed with SIGKILL and started again on the same files: nothing acknowledged is missing."""

import asyncio
import itertools
from pathlib import Path

import pytest

from rockmq.base.errors import RemotingError
from rockmq.protocol.header import decode
from rockmq.protocol.headers.send import SendResponse
from rockmq.protocol.message import encode_batch
from rockmq.remoting.client import RemotingClient
from tests.support.process import free_broker_port, free_port
from tests.support.server import serve
from tests.support.traffic import QUEUES, read_queue, send_request

SENDERS = 16
LOG_FILE_SIZE = 1 << 20
"""Small, so that every run rolls over some files."""

Acknowledged = dict[bytes, tuple[int, int, str]]
"""Body -> (queue id, queue offset, offset id)."""


async def send_until_lost(address: str, sender: int, numbers: "itertools.count[int]", acknowledged: Acknowledged) -> None:
    """Send singles and batches, one at a time, until the broker is gone; note what it acknowledged."""
    remote = RemotingClient()
    try:
        for number in numbers:
            queue_id = (sender + number) % QUEUES
            bodies = [b"%d/%d/%d " % (sender, number, part) + b"x" * (number % 700) for part in range(number % 5 or 1)]
            batch = len(bodies) > 1
            body = encode_batch((0, each, b"UNIQ_KEY\x01U\x02") for each in bodies) if batch else bodies[0]
            response = await remote.ask(address, send_request(body, queue_id, batch=batch), 5)
            stored = decode(SendResponse, response.fields)
            for part, (each, offset_id) in enumerate(zip(bodies, stored.msg_id.split(","), strict=True)):
                acknowledged[each] = (stored.queue_id, stored.queue_offset + part, offset_id)
    except RemotingError:
        pass  # the kill this test is about
    finally:
        await remote.close()


async def check(address: str, acknowledged: Acknowledged) -> int:
    """Every acknowledged message is where the acknowledgement said, once, and queues have no gap; messages stored."""
    remote = RemotingClient()
    found: Acknowledged = {}
    for queue_id in range(QUEUES):
        for offset, message in enumerate(await read_queue(remote, address, queue_id)):
            assert message.queue_offset == offset
            assert message.body not in found, "stored twice, though every send was tried once"
            found[message.body] = (queue_id, offset, message.offset_id)
    await remote.close()
    missing = {body: where for body, where in acknowledged.items() if found.get(body) != where}
    assert not missing, f"{len(missing)} of {len(acknowledged)} acknowledged messages are missing or elsewhere"
    return len(found)


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_nothing_acknowledged_is_lost_by_kills(tmp_path: Path, flush: str) -> None:
    """The process dies, the machine goes on: page cache survives, so even async flush must lose nothing."""
    ports = {"namesrv_port": free_port(), "broker_port": free_broker_port()}
    settings = ("--set", f"flushDiskType={flush}", "--set", f"mappedFileSizeCommitLog={LOG_FILE_SIZE}")
    acknowledged: Acknowledged = {}
    numbers = [itertools.count() for _ in range(SENDERS)]
    for seconds in (1.0, 0.3, 2.0, 0.7):
        with serve(tmp_path, *settings, **ports) as server:
            if acknowledged:
                await check(server.broker, acknowledged)
            before = len(acknowledged)
            senders = [
                asyncio.create_task(send_until_lost(server.broker, sender, counter, acknowledged))
                for sender, counter in enumerate(numbers)
            ]
            await asyncio.sleep(seconds)
            server.kill()
            await asyncio.gather(*senders)
            assert len(acknowledged) > before
    with serve(tmp_path, *settings, **ports) as server:
        stored = await check(server.broker, acknowledged)
    assert stored >= len(acknowledged)
    assert len(list((tmp_path / "data" / "commitlog").iterdir())) > 1
