"""What the pages show is true: the Python in the README runs as it stands there, but for the address.

The examples are tried too: those of the client by tests/unit/client, the others here.
"""

import asyncio
import os
import random
import re
import sys
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.client import Client, Message
from tests.support.jars import QUICK_START

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples"
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHOWN = "127.0.0.1:9876"

pytest_plugins = ["pytester"]


def block(containing: str) -> str:
    (found,) = (each for each in BLOCKS if containing in each)
    return str(found)


async def run(*words: str, namesrv: str, timeout: float, directory: Path | None = None) -> str:
    """What a Python program prints."""
    environment = {**os.environ, "NAMESRV_ADDR": namesrv, "JDK_JAVA_OPTIONS": " ".join(QUICK_START)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE, env=environment, cwd=directory
    )
    out, _ = await asyncio.wait_for(process.communicate(), timeout)
    assert process.returncode == 0
    return out.decode()


async def run_block(code: str, namesrv: str, timeout: float) -> str:
    assert SHOWN in code
    return await run("-c", code.replace(SHOWN, namesrv), namesrv="", timeout=timeout)


async def test_the_client() -> None:
    async with embedded.serve() as server:
        assert '{"order": 2}' in await run_block(block("asyncio.run"), server.namesrv, 30)


def test_the_fixture(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(block("rockmq_server"))
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.spark
async def test_spark() -> None:
    pytest.importorskip("pyspark")
    async with embedded.serve() as server:
        async with Client(server.namesrv) as mq, mq.producer() as producer:
            await producer.send(Message("orders", b"hello", tag="paid"))
        shown = await run_block(block("rockmq.spark.session"), server.namesrv, 300)
    assert re.search(r"\|\s*0\|paid\|\s*hello\|", shown)


async def test_the_example_with_its_own_server() -> None:
    assert await run(str(EXAMPLES / "own_server.py"), namesrv="127.0.0.1:1", timeout=30) == "hello\n"


@pytest.mark.spark
async def test_the_example_that_archives(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    async with embedded.serve() as server:
        async with Client(server.namesrv) as mq, mq.producer() as producer:
            await producer.send(Message("orders", b"hello", tag="paid"))
        path = str(EXAMPLES / "archive_with_spark.py")
        out = await run(path, namesrv=server.namesrv, timeout=300, directory=tmp_path)
    assert out.startswith("1 messages archived in 1 files\n")
    assert re.search(r"\|paid\|\s*1\|", out)


@pytest.mark.spark
async def test_the_example_of_a_pipeline(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    async with embedded.serve() as server:
        path = str(EXAMPLES / "orders_pipeline.py")
        out = await run(path, namesrv=server.namesrv, timeout=400, directory=tmp_path)
    assert "2000 orders were sent\n" in out
    assert sum(map(int, re.findall(r"^\| *(?:tea|coffee|cups)\s*\|\s*(\d+)\|", out, re.MULTILINE))) == sold(1_980)
    assert "2000 orders are archived in 4 files\n2000 orders are replayed\n" in out
    assert "2000 sent, 2000 stored: nothing is wrong\n" in out
    assert "<svg" in (tmp_path / "orders-pipeline" / "sales.html").read_text()


def sold(orders: int) -> int:
    """Pieces that the example's shop sells with its first orders; 1,980 of them are in quarters of an hour that are over."""
    choose, pieces = random.Random(7), 0
    for _ in range(orders):
        choose.choice(["tea", "coffee", "cups"])
        pieces += choose.randint(1, 5)
        choose.randrange(50)
    return pieces


def test_there_is_no_other_block() -> None:
    assert len(BLOCKS) == 3
