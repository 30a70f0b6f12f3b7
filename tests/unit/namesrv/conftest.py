"""Name servers on ports of their own, and peers that talk to them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from rockmq.config.key import load
from rockmq.config.namesrv import NamesrvOptions
from rockmq.namesrv.server import NameServer
from tests.support.clock import FakeClock
from tests.unit.namesrv.peer import Peer

Start = Callable[..., Awaitable[NameServer]]
Connect = Callable[[NameServer], Peer]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def start(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Start]:
    servers: list[NameServer] = []

    async def started(**properties: str) -> NameServer:
        keys = {"listenPort": "0", "bindAddress": "127.0.0.1", "kvConfigPath": str(tmp_path / "kv.json")}
        server = NameServer(load(NamesrvOptions, keys | properties), clock)
        await server.start()
        servers.append(server)
        return server

    yield started
    for server in servers:
        await server.close()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    peers: list[Peer] = []

    def connected(server: NameServer) -> Peer:
        peers.append(Peer(server.address))
        return peers[-1]

    yield connected
    for peer in peers:
        await peer.remoting.close()
