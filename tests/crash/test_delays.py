"""A real broker that is killed while messages wait in it, and while it delivers them: each comes, at least once."""

import asyncio
import random
from collections import Counter
from pathlib import Path

from rockmq.base.errors import RemotingError
from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.message import decode_stored
from rockmq.remoting.client import RemotingClient
from tests.support.process import free_broker_port, free_port
from tests.support.server import serve
from tests.support.traffic import pull_request, send_request

SETTINGS = ("messageDelayLevel=1s 2s", "flushDelayOffsetInterval=100", "mappedFileSizeCommitLog=1048576")
LIVES = 4
SENDERS = 8


async def test_parked_messages_outlive_kills(tmp_path: Path) -> None:
    ports = {"namesrv_port": free_port(), "broker_port": free_broker_port()}
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    acknowledged: set[bytes] = set()
    for life in range(LIVES):
        with serve(tmp_path, *settings, **ports) as server:
            names = [b"%d/%d" % (life, each) for each in range(SENDERS)]
            senders = [asyncio.create_task(_park(server.broker, name, acknowledged)) for name in names]
            await asyncio.sleep(random.uniform(0.5, 2.5))
            server.kill()
            await asyncio.gather(*senders)
    assert len(acknowledged) > LIVES * SENDERS
    with serve(tmp_path, *settings, **ports) as server:
        remote = RemotingClient()
        async with asyncio.timeout(120):
            while not acknowledged <= (await _delivered(remote, server.broker)).keys():
                await asyncio.sleep(0.1)
        await asyncio.sleep(2.5)  # what nobody was told of may still be parked
        found = await _delivered(remote, server.broker)
        server.terminate()
        await remote.close()
    with serve(tmp_path, *settings, **ports) as server:
        remote = RemotingClient()
        await asyncio.sleep(2.5)
        assert await _delivered(remote, server.broker) == found, "after a stop in order nothing comes again"
        await remote.close()


async def _park(broker: str, name: bytes, acknowledged: set[bytes]) -> None:
    """Send messages of both levels until the broker is gone."""
    remote = RemotingClient()
    try:
        number = 0
        while True:
            body = b"%b/%d" % (name, number)
            request = send_request(body, 0)
            request.fields["i"] = f"DELAY\x01{1 + number % 2}\x02"
            await remote.ask(broker, request, 5)
            acknowledged.add(body)
            number += 1
    except RemotingError:
        pass  # the kill this test is about
    finally:
        await remote.close()


async def _delivered(remote: RemotingClient, broker: str) -> "Counter[bytes]":
    found: Counter[bytes] = Counter()
    offset = 0
    while True:
        answer = await remote.invoke(broker, pull_request(0, offset), 5)
        if answer.code != ResponseCode.SUCCESS:
            return found
        messages = decode_stored(answer.body, check_crc=True)
        found.update(message.body for message in messages)
        offset = messages[-1].queue_offset + 1
