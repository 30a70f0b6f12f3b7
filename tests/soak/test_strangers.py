"""A peer that opens thousands of connections and says little or nothing on them: nobody else notices, and each costs little.

ROCKMQ_CONNECTIONS is how many (`make soak`: 10,000), half of them silent, half in a frame that never ends; a fifth as many
speak TLS. That those who stay so are closed is shown by `tests/unit/remoting`.
"""

import asyncio
import os
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from rockmq.protocol.codes import ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.send import SendResponse
from rockmq.remoting.client import RemotingClient
from tests.support.server import Server, serve
from tests.support.traffic import send_request

CONNECTIONS = int(os.environ.get("ROCKMQ_CONNECTIONS", "400"))
SILENT, SECURE = CONNECTIONS // 2, CONNECTIONS // 5
SLOW = CONNECTIONS - SILENT
OVER = 50
"""Beyond the bound."""
AT_ONCE = 100
SENDS = 50
"""Others' messages that are stored before it goes on, after each step."""
BYTES_MAX = {"silent": 8 << 10, "slow": 16 << 10, "secure": 64 << 10}
"""Memory of the broker for each of a kind; few are too few to say."""
COUNTED_MIN = 1_000
BEGUN = b"\x00\x10\x00\x00\x00\x00\x01\x00{"
"""Of a frame of a mebibyte: its length, that of its header, a byte of that."""


@pytest.fixture
def many_files() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


class Others:
    """A producer that goes on all the time."""

    def __init__(self, to: str) -> None:
        self._to = to
        self.stored: list[int] = []
        """Queue offsets, in the order of the answers."""

    async def _send(self) -> None:
        remote = RemotingClient()
        try:
            while True:
                answer = await remote.invoke(self._to, send_request(b"%d" % len(self.stored), 0), 60)
                assert answer.code == ResponseCode.SUCCESS, answer.remark
                self.stored.append(decode(SendResponse, answer.fields).queue_offset)
        finally:
            await remote.close()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self._send())
            yield
            task.cancel()

    async def go_on(self) -> None:
        end = len(self.stored) + SENDS
        async with asyncio.timeout(120):
            while len(self.stored) < end:
                await asyncio.sleep(0.001)


def resident(server: Server) -> int:
    """Bytes."""
    status = Path(f"/proc/{server.pid}/statm").read_text(encoding="ascii")
    anonymous = int(status.split()[1]) - int(status.split()[2])  # without the files of the store
    return anonymous * resource.getpagesize()


def files_of(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


@pytest.mark.usefixtures("many_files")
async def test_a_peer_with_thousands_of_connections_harms_nobody(tmp_path: Path) -> None:
    bound = CONNECTIONS + SECURE + 1
    settings = [f"connectionsMax={bound}", "serverChannelMaxIdleTimeSeconds=3600", "metricsExporterType=DISABLE"]
    words = [word for setting in settings for word in ("--set", setting)]
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    with serve(tmp_path, *words) as server, ExitStack() as stack:
        host, port = server.broker.rsplit(":", 1)
        others = Others(server.broker)
        costs: dict[str, float] = {}

        async def until_files(count: int) -> None:
            async with asyncio.timeout(120):
                while files_of(server) < count:
                    await asyncio.sleep(0.01)

        async def opened(kind: str, count: int, open_one: Callable[[], socket.socket]) -> list[socket.socket]:
            files, memory = files_of(server), resident(server)
            made: list[socket.socket] = []
            while len(made) < count:
                made += [stack.enter_context(open_one()) for _ in range(min(AT_ONCE, count - len(made)))]
                await until_files(files + len(made))
                await others.go_on()
            costs[kind] = (resident(server) - memory) / count
            return made

        def silent() -> socket.socket:
            return socket.create_connection((host, int(port)))

        def slow() -> socket.socket:
            made = silent()
            made.sendall(BEGUN)
            return made

        async with others.at_work():
            await others.go_on()
            await opened("silent", SILENT, silent)
            begun = await opened("slow", SLOW, slow)
            for _ in range(2):
                for each in begun:
                    each.sendall(b" ")
                await others.go_on()
            writers = []
            memory = resident(server)
            while len(writers) < SECURE:
                opening = (asyncio.open_connection(host, int(port), ssl=tls) for _ in range(min(20, SECURE - len(writers))))
                writers += [writer for _, writer in await asyncio.gather(*opening)]
                await others.go_on()
            costs["secure"] = (resident(server) - memory) / SECURE
            for _ in range(OVER):
                with silent() as refused:
                    refused.settimeout(60)
                    assert refused.recv(1) == b""
            await others.go_on()
            print("bytes of memory for a connection:", {kind: round(cost) for kind, cost in costs.items()})
            said = server.process.err.read_text(encoding="utf-8")
            assert f"refusing a connection: {bound} connections are open, the bound (connectionsMax)" in said
            stack.close()
            for writer in writers:
                writer.transport.abort()
            async with asyncio.timeout(120):
                while files_of(server) >= SILENT:
                    await asyncio.sleep(0.01)
            await others.go_on()
        assert others.stored == list(range(len(others.stored))), "nothing is lost, or stored twice"
        if CONNECTIONS >= COUNTED_MIN:
            assert all(costs[kind] < most for kind, most in BYTES_MAX.items()), costs
