import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Awaitable[Ended]]


@pytest.fixture
def rockmq() -> Command:
    """Runs `rockmq` as a process of its own, as users do."""

    async def run(*words: str, stdin: bytes = b"", timeout: float = 60) -> Ended:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rockmq.cli", *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(stdin), timeout)
        assert process.returncode is not None
        return Ended(process.returncode, out.decode(), err.decode())

    return run
