"""A name server and two brokers as processes, which are killed, stopped for a while, and started again on their files."""

import asyncio
import os
import signal
from contextlib import ExitStack
from pathlib import Path

from tests.support import server
from tests.support.process import free_broker_port, free_port

BROKERS = ("a", "b")
NAMES = "names"


class Servers:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names_port = free_port()
        self._stacks = {each: ExitStack() for each in (NAMES, *BROKERS)}
        self._running: dict[str, server.Server] = {}
        for each in BROKERS:
            keys = {
                "brokerName": each,
                "brokerIP1": "127.0.0.1",
                "listenPort": free_broker_port(),
                "namesrvAddr": self.namesrv,
                "storePathRootDir": directory / each / "store",
                "mappedFileSizeCommitLog": 1 << 24,
                "flushDiskType": "ASYNC_FLUSH",
                "diskMaxUsedSpaceRatio": 95,
            }
            (directory / f"{each}.conf").write_text("".join(f"{key}={value}\n" for key, value in keys.items()))

    @property
    def namesrv(self) -> str:
        return f"127.0.0.1:{self._names_port}"

    async def start(self, *names: str) -> None:
        await asyncio.gather(*(asyncio.to_thread(self._start, each) for each in names))

    def _start(self, name: str) -> None:
        place = self._directory / name
        started = (
            server.name_server(place, port=self._names_port)
            if name == NAMES
            else server.broker(place, self._directory / f"{name}.conf")
        )
        self._running[name] = self._stacks[name].enter_context(started)

    async def kill(self, name: str) -> None:
        """SIGKILL."""
        self._running[name].kill()
        await asyncio.to_thread(self._stacks[name].close)

    async def stop_for(self, name: str, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        os.kill(self._running[name].pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            os.kill(self._running[name].pid, signal.SIGCONT)

    def close(self) -> None:
        for stack in self._stacks.values():
            stack.close()
