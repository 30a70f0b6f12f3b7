import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from rockmq.cli import serve
from rockmq.client import Client, Message
from tests.unit.cli.conftest import Command

READY_SECONDS_MAX = 30
ANY_PORTS = ("--namesrv-port", "0", "--broker-port", "0")

Started = Callable[..., AbstractAsyncContextManager[tuple[asyncio.subprocess.Process, dict[str, str]]]]


@pytest.fixture
def started() -> Started:
    """A server process and the fields of its ready line."""

    @contextlib.asynccontextmanager
    async def start(*words: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, dict[str, str]]]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rockmq.cli", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            line = (await asyncio.wait_for(process.stdout.readline(), READY_SECONDS_MAX)).decode()
            word, *fields = line.split()
            assert word == "ready"
            yield process, dict(field.split("=", 1) for field in fields)
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    return start


async def ended(process: asyncio.subprocess.Process, number: signal.Signals) -> tuple[int, bytes, bytes]:
    """(exit code, the rest of standard output, standard error) after a signal."""
    process.send_signal(number)
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    return process.returncode, out, err


async def exchange(namesrv: str, topic: str) -> bytes:
    """Send a message and read it back."""
    async with Client(namesrv) as mq, mq.producer() as producer:
        receipt = await producer.send(Message(topic, b"hello"))
        return (await mq.pull(receipt.queue, receipt.queue_offset)).messages[0].body


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_serve_says_ready_serves_and_ends_in_order(started: Started, tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "data"
    async with started("serve", "--data", str(data), *ANY_PORTS) as (process, fields):
        assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d*", fields["namesrv"])
        assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d*", fields["broker"])
        assert fields["data"] == str(data)
        assert await exchange(fields["namesrv"], "orders") == b"hello"
        assert (data / "abort").exists()
        assert await ended(process, number) == (0, b"", b"")
    assert not (data / "abort").exists()


async def test_what_was_acknowledged_survives_a_kill(started: Started, tmp_path: Path) -> None:
    words = ("serve", "--data", str(tmp_path), *ANY_PORTS)
    async with started(*words) as (process, fields):
        await exchange(fields["namesrv"], "orders")
        await ended(process, signal.SIGKILL)
    async with started(*words) as (_, fields), Client(fields["namesrv"]) as mq:
        found = [message.body for queue in await mq.queues("orders") for message in (await mq.pull(queue, 0)).messages]
        assert found == [b"hello"]


async def test_several_run_side_by_side(started: Started, tmp_path: Path) -> None:
    async with (
        started("serve", "--data", str(tmp_path / "a"), *ANY_PORTS) as (_, a),
        started("serve", "--data", str(tmp_path / "b"), *ANY_PORTS) as (_, b),
    ):
        assert await exchange(a["namesrv"], "orders") == b"hello"
        async with Client(b["namesrv"]) as mq:
            with pytest.raises(Exception, match="no route"):
                await mq.queues("orders")


async def test_namesrv_and_broker_as_two_processes(started: Started, tmp_path: Path) -> None:
    kept = f"kvConfigPath={tmp_path / 'kv.json'}"
    config = tmp_path / "broker.conf"
    async with started("namesrv", "--host", "127.0.0.1", "--port", "0", "--set", kept) as (_, names):
        config.write_text(
            "# as Apache ships it, less the address\n"
            "brokerClusterName = DefaultCluster\n"
            "brokerName = broker-a\n"
            "brokerId = 0\n"
            "deleteWhen = 04\n"
            "fileReservedTime = 48\n"
            "storePathIndex = /nowhere\n"
            "brokerRole = ASYNC_MASTER\n"
            "flushDiskType = ASYNC_FLUSH\n"
            f"namesrvAddr = {names['namesrv']}\n"
            f"storePathRootDir = {tmp_path / 'store'}\n"
        )
        words = ("broker", "-c", str(config), "--set", "listenPort=0", "--set", "brokerIP1=127.0.0.1")
        async with started(*words) as (process, broker):
            assert broker["data"] == str(tmp_path / "store")
            assert await exchange(names["namesrv"], "orders") == b"hello"
            code, _, err = await ended(process, signal.SIGTERM)
            assert code == 0
            assert b"no effect in RockMQ: storePathIndex" in err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("serve", "--set", "flushDisktype=x"), "unknown key 'flushDisktype'; did you mean 'flushDiskType'?"),
        (("serve", "--set", "flushDiskType=x"), "expected one of SYNC_FLUSH, ASYNC_FLUSH"),
        (("serve", "--set", "listenPort=1"), "listenPort can't be set here"),
        (("serve", "--set", "flushDiskType"), "expected key=value"),
        (("serve", "--host", "192.0.2.1"), "can't listen on 192.0.2.1:9876"),
        (("broker", "-c", "/nonexistent/broker.conf"), "/nonexistent/broker.conf: No such file or directory"),
        (("broker", "--set", "brokerRole=SLAVE"), "not built yet"),
        (("namesrv", "--set", "tls.server.mode=enforcing"), "not built yet"),
    ],
)
async def test_what_cannot_be_served_ends_with_one_line(
    rockmq: Command, tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    if words[0] == "serve":
        words = (*words, "--data", str(tmp_path))
    code, out, err = await rockmq(*words)
    assert code == 1
    assert out == ""
    assert err.startswith("rockmq: ")
    assert reason in err
    assert err.count("\n") == 1


def test_a_store_that_fails_ends_the_server_loudly(capfd: pytest.CaptureFixture[str]) -> None:
    class Failing:
        closed = False

        def __init__(self, failed: Callable[[BaseException], None]) -> None:
            self._failed = failed

        async def start(self) -> None:
            asyncio.get_running_loop().call_later(0.05, self._failed, OSError(5, "Input/output error"))

        async def close(self) -> None:
            Failing.closed = True

    assert serve._run(Failing, lambda role: "broker=here") == 1
    assert Failing.closed
    out, err = capfd.readouterr()
    assert out == "ready broker=here\n"
    assert err == "rockmq: the store failed, so this broker ended: [Errno 5] Input/output error\n"


async def test_a_store_has_one_owner(rockmq: Command, started: Started, tmp_path: Path) -> None:
    words = ("serve", "--data", str(tmp_path), *ANY_PORTS)
    async with started(*words):
        code, _, err = await rockmq(*words)
        assert code == 1
        assert "is in use by another broker" in err
