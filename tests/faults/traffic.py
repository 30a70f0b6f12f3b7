"""A server under test, what it has acknowledged, and whether that is still there."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from rockmq.protocol import codec, json
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.send import SendResponse
from rockmq.remoting.client import RemotingClient
from tests.support import traffic
from tests.support.process import free_broker_port, free_port
from tests.support.server import Server, serve

_TEMPORARY = (ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLUSH_DISK_TIMEOUT)


class Traffic:
    """Sends numbered messages one by one and notes which were acknowledged, at (queue id, queue offset)."""

    def __init__(self) -> None:
        self.remote = RemotingClient()
        self.address = ""
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self._number = 0

    async def go_to(self, address: str) -> None:
        """Talk to that server from now on, by a fresh connection."""
        await self.remote.close()
        self.remote = RemotingClient()
        self.address = address

    async def send(self, size: int = 100, *, timeout: float = 20) -> codec.Command:
        """The answer to the next message, whatever it is."""
        self._number += 1
        body = b"%d " % self._number + b"x" * size
        request = traffic.send_request(body, self._number % traffic.QUEUES)
        response = await self.remote.invoke(self.address, request, timeout)
        if response.code == ResponseCode.SUCCESS:
            stored = decode(SendResponse, response.fields)
            self.acknowledged[body] = (stored.queue_id, stored.queue_offset)
        return response

    async def sent(self, count: int, size: int = 100) -> None:
        for _ in range(count):
            response = await self.send(size)
            assert response.code == ResponseCode.SUCCESS, response.remark

    async def send_until(self, code: ResponseCode, within: float, size: int = 100) -> str:
        """Send until the answer is that, for so many seconds at most; its remark."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            response = await self.send(size)
            if response.code == code:
                return response.remark or ""
            assert response.code in _TEMPORARY, response.remark
            await asyncio.sleep(0.01)
        raise AssertionError(f"no {code.name} within {within} s; the last answer was {response.code}: {response.remark}")

    async def check(self) -> None:
        """Every acknowledged message is where the acknowledgement said."""
        found: dict[bytes, tuple[int, int]] = {}
        for queue_id in range(traffic.QUEUES):
            for offset, message in enumerate(await traffic.read_queue(self.remote, self.address, queue_id)):
                found[message.body] = (queue_id, offset)
        missing = {body for body, where in self.acknowledged.items() if found.get(body) != where}
        assert not missing, f"{len(missing)} of {len(self.acknowledged)} acknowledged messages are missing or elsewhere"

    async def pull(self) -> None:
        """Read the beginning of a queue."""
        response = await self.remote.invoke(self.address, traffic.pull_request(1, 0), 20)
        assert response.code == ResponseCode.SUCCESS, response.remark

    async def runtime(self) -> dict[str, str]:
        response = await self.remote.ask(self.address, codec.request(RequestCode.GET_BROKER_RUNTIME_INFO), 10)
        table: dict[str, str] = json.decode(response.body, dict[str, dict[str, str]], "runtime info")["table"]
        return table


class Broker:
    """`rockmq serve` with the same store and ports again and again; `data` is its store."""

    def __init__(self, directory: Path, environment: Mapping[str, str] | None = None, **settings: str) -> None:
        self._directory = directory
        self._environment = environment
        self._words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        self._ports = {"namesrv_port": free_port(), "broker_port": free_broker_port()}
        self.data = directory / "data"

    @contextlib.asynccontextmanager
    async def running(self, traffic: Traffic) -> AsyncIterator[Server]:
        with serve(self._directory, *self._words, environment=self._environment, **self._ports) as server:
            await traffic.go_to(server.broker)
            yield server


async def until(condition: Callable[[], bool], within: float, what: str) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {within} s"
        await asyncio.sleep(0.05)


def said(server: Server, text: str) -> int:
    """How often the server has logged that."""
    return server.process.err.read_text(encoding="utf-8", errors="replace").count(text)
