from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from rockmq.base.clock import Clock
from rockmq.broker import server
from rockmq.broker.durability import DurabilityGate
from rockmq.broker.server import Broker
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import load
from rockmq.remoting.client import RemotingClient
from tests.support.clock import FakeClock

SETTINGS = {
    "bindAddress": "127.0.0.1",
    "listenPort": "0",
    "brokerName": "broker-a",
    "namesrvAddr": "",
    "mappedFileSizeCommitLog": str(16 << 20),
    "flushDiskType": "ASYNC_FLUSH",
}


def options(root: Path, **settings: str) -> BrokerOptions:
    return load(BrokerOptions, SETTINGS | {"storePathRootDir": str(root)} | settings)


@asynccontextmanager
async def running(root: Path, clock: Clock | None = None, **settings: str) -> AsyncIterator[Broker]:
    """A broker in this loop, on a port of the system's choice."""
    broker = Broker(options(root, **settings), clock)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


@contextmanager
def slow_disk() -> Iterator[None]:
    """Meanwhile nobody hears that anything is forced."""
    late: list[tuple[DurabilityGate, int]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DurabilityGate, "advance", lambda gate, position: late.append((gate, position)))
        try:
            yield
        finally:
            patch.undo()
            for gate, position in late:
                gate.advance(position)


@pytest.fixture
def unswept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that don't look at what waits, as they would every 5 s: what ends it is what came."""
    monkeypatch.setattr(server, "SWEEP_SECONDS", 3600.0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as started:
        yield started


@pytest.fixture
async def remote() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    yield client
    await client.close()
