"""Transactions on a real broker that is killed again and again: each ends in one way, the one its producer wants."""

import asyncio
import itertools
import os
import random
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from rockmq.base.errors import RemotingError
from rockmq.protocol import codec, json
from rockmq.protocol.bodies.client import HeartbeatData, ProducerData
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.client import HeartBeat
from rockmq.protocol.headers.send import SendResponse
from rockmq.protocol.headers.transaction import CheckTransactionState
from rockmq.protocol.message import decode_stored
from rockmq.remoting.client import RemotingClient
from rockmq.remoting.connection import Connection
from tests.support.process import free_broker_port, free_port
from tests.support.server import serve
from tests.support.traffic import QUEUES, read_queue, send_request
from tests.unit.broker.transaction_bench import COMMIT, GROUP, ROLLBACK, end_header, half_request

KILLS = max(3, int(os.environ.get("ROCKMQ_KILLS", "10")) // 3)
SEED = int(os.environ.get("ROCKMQ_KILL_SEED", random.randrange(1 << 32)))
WORKERS = 8
TIMEOUT_S = 5.0
SETTINGS = {
    "transactionCheckInterval": "200",
    "transactionTimeOut": "400",
    "transactionOpBatchInterval": "300",
    "transactionCheckMax": "1000000",
    "mappedFileSizeCommitLog": str(1 << 20),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "100000",
}


def wanted(body: bytes) -> int:
    """What its producer decides, whenever it is asked."""
    return ROLLBACK if int(body) % 3 == 0 else COMMIT


class Load:
    """Producers of one group, over all lives of the broker. Each body is prepared once."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.remote = RemotingClient({RequestCode.CHECK_TRANSACTION_STATE: self._asked})
        self.numbers = itertools.count()
        self.sent: set[int] = set()
        self.acknowledged: set[int] = set()
        self.asked = 0
        self.again = 0
        self.stopping = False

    def _asked(self, header: CheckTransactionState, request: Command, connection: Connection) -> None:
        [message] = decode_stored(request.body, check_crc=True)
        self.asked += 1
        connection.send_oneway(codec.request(RequestCode.END_TRANSACTION, end_header(header, wanted(message.body))))

    async def join(self) -> None:
        data = HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name=GROUP)])
        beat = codec.request(RequestCode.HEART_BEAT, HeartBeat(), json.encode(data))
        async with asyncio.timeout(120):
            while True:
                try:
                    await self.remote.ask(self.address, beat, TIMEOUT_S)
                except RemotingError:  # the connection to the broker's life before is noticed to be gone
                    continue
                return

    async def work(self) -> None:
        while not self.stopping:
            number = next(self.numbers)
            body = b"%d" % number
            self.sent.add(number)
            try:
                request = half_request(body, topic="T", queue_id=number % QUEUES, key=f"K{number}")
                request.fields["g"] = str(time.time_ns() // 1_000_000)
                half = decode(SendResponse, (await self.remote.ask(self.address, request, TIMEOUT_S)).fields)
            except RemotingError:
                await asyncio.sleep(0.02)
                continue
            self.acknowledged.add(number)
            if number % 4:  # the others leave it to the broker to ask
                await self.end(half, wanted(body))

    async def end(self, half: SendResponse, decision: int) -> None:
        """Say it until it is answered; the broker may have carried it out the first time."""
        while True:
            try:
                request = codec.request(RequestCode.END_TRANSACTION, end_header(half, decision))
                response = await self.remote.invoke(self.address, request, TIMEOUT_S)
            except RemotingError:
                self.again += 1
                await asyncio.sleep(0.02)
                continue
            if response.code != ResponseCode.SERVICE_NOT_AVAILABLE:
                assert response.code == ResponseCode.SUCCESS, response.remark
                return
            await asyncio.sleep(0.02)

    async def progress(self) -> None:
        """Wait until more is acknowledged: a kill is to hit something."""
        before = len(self.acknowledged)
        async with asyncio.timeout(120):
            while len(self.acknowledged) < before + WORKERS:
                await asyncio.sleep(0.01)

    async def settled(self) -> None:
        """Wait until nothing is pending, and all that was committed can be read."""
        async with asyncio.timeout(120):
            while True:
                response = await self.remote.ask(self.address, Command(RequestCode.GET_BROKER_RUNTIME_INFO, 0), TIMEOUT_S)
                if msgspec.json.decode(response.body)["table"]["transactionsPending"] == "0":
                    break
                await asyncio.sleep(0.05)
        # Nobody waits for the commits that answer a check, nor sees them before they are on disk. This lies behind them.
        await self.remote.ask(self.address, send_request(b"behind", 0, topic="Behind"), 60)

    async def judge(self) -> None:
        queues = [await read_queue(self.remote, self.address, each, topic="T") for each in range(QUEUES)]
        read = Counter(int(message.body) for queue in queues for message in queue)
        assert set(read.values()) <= {1}, f"stored twice: {[number for number, count in read.items() if count > 1]}"
        assert read.keys() <= {number for number in self.sent if wanted(b"%d" % number) == COMMIT}
        assert {number for number in self.acknowledged if wanted(b"%d" % number) == COMMIT} <= read.keys()


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_each_transaction_ends_in_one_way_over_kills(tmp_path: Path, flush: str) -> None:
    print(f"ROCKMQ_KILL_SEED={SEED}")
    chance = random.Random(SEED)
    ports = {"namesrv_port": free_port(), "broker_port": free_broker_port()}
    settings = [word for key, value in (SETTINGS | {"flushDiskType": flush}).items() for word in ("--set", f"{key}={value}")]
    load = Load(f"127.0.0.1:{ports['broker_port']}")
    workers: list[asyncio.Task[None]] = []
    for life in range(KILLS + 1):
        with serve(tmp_path, *settings, **ports) as server:
            await load.join()
            if not workers:
                workers = [asyncio.create_task(load.work()) for _ in range(WORKERS)]
            if life < KILLS:
                await load.progress()
                await asyncio.sleep(chance.uniform(0.3, 1.5))
                server.kill()
                continue
            load.stopping = True
            await asyncio.gather(*workers)
            await load.settled()
            await load.judge()
    with serve(tmp_path, *settings, **ports):  # and once more from the beginning
        await load.join()
        await load.settled()
        await load.judge()
    await load.remote.close()
    print(f"{len(load.acknowledged)} of {len(load.sent)} acknowledged, {load.asked} asked, {load.again} said again")
    assert len(load.acknowledged) > WORKERS
    assert load.asked
