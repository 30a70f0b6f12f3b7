"""A real broker under load, killed and stopped at random on the same files: it loses nothing acknowledged, invents nothing.

ROCKMQ_KILLS is how often it is killed (SIGKILL) or stopped for a while (SIGSTOP, SIGCONT), ROCKMQ_KILL_SEED what the run's
choices come from. Where a signal hits can't be repeated; a power cut at every point is tested in `test_points.py`.
"""

import asyncio
import itertools
import os
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rockmq.base.errors import RemotingError, RequestTimeout
from rockmq.protocol import codec
from rockmq.protocol.codec import encode_batch
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.offset import OffsetResponse, QueryConsumerOffset, UpdateConsumerOffset
from rockmq.protocol.headers.send import SendResponse
from rockmq.protocol.message import decode_stored
from rockmq.remoting.client import RemotingClient
from tests.support.process import free_broker_port, free_port
from tests.support.server import Server, serve
from tests.support.traffic import QUEUES, TOPIC, pull_request, read_queue, send_request

KILLS = int(os.environ.get("ROCKMQ_KILLS", "10"))
SEED = int(os.environ.get("ROCKMQ_KILL_SEED", random.randrange(1 << 32)))
SENDERS = 16
GROUP = "readers"
LOG_FILE_SIZE = 1 << 20
"""Small, so that every run rolls over some files."""
TIMEOUT_S = 0.7
"""Shorter than most stops."""
PROGRESS_TIMEOUT_S = 120.0

Queue = tuple[str, int]
Place = tuple[int, int, str]
"""Queue id, queue offset, offset id."""


@dataclass
class Load:
    """What clients have sent, were told and have read, over all lives of the broker. Every body is sent once."""

    random: random.Random
    address: str = ""
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    topics: list[str] = field(default_factory=lambda: [TOPIC])
    sent: set[tuple[str, bytes]] = field(default_factory=set)
    acknowledged: dict[tuple[str, bytes], Place] = field(default_factory=dict)
    timeouts: int = 0
    consumed: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By queue id and offset, what the group got of the first topic."""
    given: dict[int, int] = field(default_factory=dict)
    """By queue id, the offset behind all that the group got."""
    found: dict[Queue, list[bytes]] = field(default_factory=dict)

    async def send(self) -> None:
        """Send singles and batches, until the broker is gone. What isn't answered in time isn't sent again."""
        remote = RemotingClient()
        try:
            for number in self.numbers:
                topic, queue_id = self.random.choice((TOPIC, self.topics[-1])), self.random.randrange(QUEUES)
                bodies = [b"%d/%d " % (number, part) + b"x" * (number % 700) for part in range(number % 5 or 1)]
                batch = len(bodies) > 1
                body = encode_batch((0, each, b"UNIQ_KEY\x01U\x02") for each in bodies) if batch else bodies[0]
                self.sent |= {(topic, each) for each in bodies}
                try:
                    request = send_request(body, queue_id, batch=batch, topic=topic)
                    stored = decode(SendResponse, (await remote.ask(self.address, request, TIMEOUT_S)).fields)
                except RequestTimeout:
                    self.timeouts += 1
                    continue
                for part, (each, offset_id) in enumerate(zip(bodies, stored.msg_id.split(","), strict=True)):
                    self.acknowledged[topic, each] = (stored.queue_id, stored.queue_offset + part, offset_id)
        except RemotingError:
            pass  # the kill this test is about
        finally:
            await remote.close()

    async def consume(self) -> None:
        """As a group: go on behind the committed offset of each queue, and commit what came, until the broker is gone."""
        remote = RemotingClient()
        try:
            for queue_id in itertools.cycle(range(QUEUES)):
                try:
                    offset = await self.committed(remote, queue_id)
                    response = await remote.invoke(self.address, pull_request(queue_id, offset), TIMEOUT_S)
                    if response.code != ResponseCode.SUCCESS:
                        await asyncio.sleep(0.01)
                        continue
                    for number, message in enumerate(decode_stored(response.body, check_crc=True), offset):
                        assert message.queue_offset == number
                        assert self.consumed.setdefault((queue_id, number), message.body) == message.body
                        self.given[queue_id] = max(self.given.get(queue_id, 0), number + 1)
                        offset = number + 1
                    update = UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, commit_offset=offset)
                    await remote.ask(self.address, codec.request(RequestCode.UPDATE_CONSUMER_OFFSET, update), TIMEOUT_S)
                except RequestTimeout:
                    self.timeouts += 1
        except RemotingError:
            pass  # as above
        finally:
            await remote.close()

    async def committed(self, remote: RemotingClient, queue_id: int) -> int:
        """Where the group goes on, which is never behind what it was given."""
        query = QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id, set_zero_if_not_found=False)
        response = await remote.invoke(self.address, codec.request(RequestCode.QUERY_CONSUMER_OFFSET, query), TIMEOUT_S)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return 0
        offset = decode(OffsetResponse, response.fields).offset
        assert 0 <= offset <= self.given.get(queue_id, 0)
        return offset

    async def check(self) -> None:
        """All that was acknowledged is where it was said to be, and queues hold what was sent, once and without a gap. Reads
        what has come since the last check."""
        remote = RemotingClient()
        places: dict[tuple[str, bytes], Place] = {}
        known = {topic for topic, _ in self.acknowledged}
        for topic, queue_id in itertools.product(known, range(QUEUES)):
            bodies = self.found.setdefault((topic, queue_id), [])
            for message in await read_queue(remote, self.address, queue_id, topic=topic, start=len(bodies)):
                assert message.queue_offset == len(bodies)
                assert (topic, message.body) in self.sent, "nobody has sent this"
                assert (topic, message.body) not in places, "stored twice, though every send was tried once"
                places[topic, message.body] = (queue_id, message.queue_offset, message.offset_id)
                bodies.append(message.body)
        await remote.close()
        for queue, bodies in self.found.items():
            assert len(bodies) == len(set(bodies)), f"stored twice in {queue}"
        wrong = [
            key
            for key, (queue_id, offset, offset_id) in self.acknowledged.items()
            if self.found[key[0], queue_id][offset : offset + 1] != [key[1]]
            or places.get(key, (queue_id, offset, offset_id)) != (queue_id, offset, offset_id)
        ]
        assert not wrong, f"{len(wrong)} of {len(self.acknowledged)} acknowledged messages are missing or elsewhere"
        for (queue_id, offset), body in self.consumed.items():
            assert self.found[TOPIC, queue_id][offset] == body, "consumed, and now another message"

    async def progress(self) -> None:
        """Wait until something more is acknowledged."""
        before = len(self.acknowledged)
        async with asyncio.timeout(PROGRESS_TIMEOUT_S):
            while len(self.acknowledged) == before:
                await asyncio.sleep(0.02)

    async def live(self, server: Server, signals: int) -> int:
        """Load a broker that was just started, stop it some times, and kill it; how many signals of `signals` it took."""
        self.address = server.broker
        self.topics.append(f"T{len(self.topics)}")
        tasks = [asyncio.create_task(self.send()) for _ in range(SENDERS)] + [asyncio.create_task(self.consume())]
        for number in range(1, signals + 1):
            await self.progress()
            await asyncio.sleep(self.random.uniform(0, 0.8))
            if number == signals or self.random.random() < 0.6:
                server.kill()
                await asyncio.gather(*tasks)
                return number
            os.kill(server.pid, signal.SIGSTOP)
            await asyncio.sleep(self.random.uniform(0.1, 2 * TIMEOUT_S))
            os.kill(server.pid, signal.SIGCONT)
        raise AssertionError("the last signal kills")


@pytest.mark.parametrize(
    ("flush", "directories", "signals"),
    [
        ("SYNC_FLUSH", ("commitlog",), KILLS),
        ("SYNC_FLUSH", ("commitlog", "commitlog-b"), max(2, KILLS // 5)),
        ("ASYNC_FLUSH", ("commitlog",), max(2, KILLS // 5)),
    ],
)
async def test_nothing_acknowledged_is_lost_by_kills_and_stops(
    tmp_path: Path, flush: str, directories: tuple[str, ...], signals: int
) -> None:
    """The process dies, the machine goes on: page cache survives, so even async flush must lose nothing."""
    print(f"ROCKMQ_KILL_SEED={SEED}")
    ports = {"namesrv_port": free_port(), "broker_port": free_broker_port()}
    logs = [tmp_path / "data" / each for each in directories]
    keys = {
        "flushDiskType": flush,
        "mappedFileSizeCommitLog": LOG_FILE_SIZE,
        "storePathCommitLog": ",".join(map(str, logs)),
    }
    settings = [word for key, value in keys.items() for word in ("--set", f"{key}={value}")]
    load, left = Load(random.Random(SEED)), signals
    # On a slow machine it takes more than these until a second file is begun.
    while left or not _has_rolled(logs):
        with serve(tmp_path, *settings, **ports) as server:
            load.address = server.broker
            await load.check()
            left -= await load.live(server, max(left, 1))
            left = max(left, 0)
    load.found.clear()  # once more from the beginning
    with serve(tmp_path, *settings, **ports) as server:
        load.address = server.broker
        await load.check()
    assert load.consumed
    assert sum(map(len, load.found.values())) >= len(load.acknowledged) > SENDERS
    print(f"{signals} signals, {len(load.topics)} topics, {len(load.acknowledged)} acknowledged, {load.timeouts} timeouts")


def _has_rolled(logs: list[Path]) -> bool:
    """Whether there is more than one log file, and one in each directory."""
    files = [len(list(each.iterdir())) for each in logs]
    return sum(files) > 1 and all(files)
