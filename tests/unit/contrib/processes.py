"""Workers as processes of their own."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
PATIENCE = 30.0


class Worker:
    """A Python process; what it prints is in `seen`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.seen = ""

    async def until(self, text: str) -> None:
        """Wait until it has printed a text."""
        assert self.process.stdout is not None
        try:
            async with asyncio.timeout(PATIENCE):
                while text not in self.seen:
                    read = await self.process.stdout.read(4096)
                    assert read, f"it ended without {text!r}:\n{self.seen}"
                    self.seen += read.decode(errors="replace")
        except TimeoutError:
            raise AssertionError(f"it doesn't print {text!r}:\n{self.seen}") from None

    async def end(self) -> None:
        self.process.terminate()
        rest, _ = await asyncio.wait_for(self.process.communicate(), PATIENCE)
        self.seen += rest.decode(errors="replace")


@asynccontextmanager
async def python(*words: str, namesrv: str, directory: Path = EXAMPLES, **environment: str) -> AsyncIterator[Worker]:
    """A process for the length of a block, in `directory`, from which it can import too."""
    path = os.pathsep.join([str(ROOT), str(directory)])
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words,
        cwd=directory, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True,
        env={**os.environ, "PYTHONPATH": path, "NAMESRV_ADDR": namesrv, "PYTHONUNBUFFERED": "1", **environment},
    )  # fmt: skip
    worker = Worker(process)
    try:
        yield worker
    finally:
        if process.returncode is None:
            os.killpg(process.pid, 9)
            await process.communicate()


async def run(*words: str, namesrv: str, directory: Path = EXAMPLES) -> str:
    """What a program prints that ends by itself."""
    async with python(*words, namesrv=namesrv, directory=directory) as worker:
        out, _ = await asyncio.wait_for(worker.process.communicate(), PATIENCE)
        assert worker.process.returncode == 0, out.decode()
        return out.decode()
