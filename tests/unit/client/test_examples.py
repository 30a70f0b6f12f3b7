"""The examples run as they stand."""

import asyncio
import importlib.util
import os
import signal
from pathlib import Path
from types import ModuleType

import pytest

from rockmq import embedded
from rockmq.client import Client

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_producer_and_consumer(capsys: pytest.CaptureFixture[str]) -> None:
    async with embedded.serve(flush="ASYNC_FLUSH") as served:
        await example("producer").main(served.namesrv)
        assert "sent 100 orders to 4 queues" in capsys.readouterr().out
        consuming = asyncio.create_task(example("consumer").main(served.namesrv))
        out = ""
        async with asyncio.timeout(20):
            while out.count("\n") < 103:
                await asyncio.sleep(0.05)
                out += capsys.readouterr().out
        os.kill(os.getpid(), signal.SIGTERM)
        await consuming
        assert "paid: order 42 (queue" in out
        assert "created" not in out
        async with Client(served.namesrv) as mq:
            offsets = await mq.committed_offsets("billing", "orders")
            assert sum(offset or 0 for offset in offsets.values()) == 104


async def test_worker(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async with embedded.serve(flush="ASYNC_FLUSH") as served:
        await example("producer").main(served.namesrv)
        monkeypatch.setenv("NAMESRV_ADDR", served.namesrv)
        running = asyncio.create_task(example("worker").app.run())
        out = ""
        async with asyncio.timeout(60):
            while out.count("noted: ") < 104 or "charged: order 42" not in out:
                await asyncio.sleep(0.05)
                out += capsys.readouterr().out
        os.kill(os.getpid(), signal.SIGTERM)
        await running
        async with Client(served.namesrv) as mq:
            offsets = await mq.committed_offsets("audit", "orders")
            assert sum(offset or 0 for offset in offsets.values()) == 104


async def test_batch(capsys: pytest.CaptureFixture[str]) -> None:
    async with embedded.serve(flush="ASYNC_FLUSH") as served:
        await example("batch").main(served.namesrv)
    out = capsys.readouterr().out
    assert "1000 readings are stored from offset 0" in out
    assert "average of" in out


async def test_selector(capsys: pytest.CaptureFixture[str]) -> None:
    async with embedded.serve(flush="ASYNC_FLUSH") as served:
        await example("selector").main(served.namesrv)
    out = capsys.readouterr().out
    assert out.count("eu: queue 0") == 2
    assert "queue 0, offset 1: a visit from eu" in out


async def test_transactions(capsys: pytest.CaptureFixture[str]) -> None:
    async with embedded.serve(flush="ASYNC_FLUSH") as served:
        await asyncio.wait_for(example("transactions").main(served.namesrv), 20)
    out = capsys.readouterr().out
    assert (out.count("COMMIT"), out.count("ROLLBACK"), out.count("is shipped")) == (8, 2, 8)
    assert "order 4 is shipped" not in out
