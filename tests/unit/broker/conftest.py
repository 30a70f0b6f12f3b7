from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rockmq.broker.server import Broker
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import load
from rockmq.remoting.client import RemotingClient

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
async def running(root: Path, **settings: str) -> AsyncIterator[Broker]:
    """A broker in this loop, on a port of the system's choice."""
    broker = Broker(options(root, **settings))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.close()


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path) as started:
        yield started


@pytest.fixture
async def remote() -> AsyncIterator[RemotingClient]:
    client = RemotingClient()
    yield client
    await client.close()
