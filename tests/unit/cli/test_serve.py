import asyncio
import contextlib
import gc
import json
import re
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from rockmq.base.clock import SystemClock
from rockmq.base.logs import Flood
from rockmq.cli import serve
from rockmq.client import Client, Message
from rockmq.config import properties
from rockmq.protocol import codec
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.admin import UpdateBrokerConfig
from rockmq.remoting.client import RemotingClient
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


async def change(broker: str, changes: bytes) -> str:
    """Change a broker's configuration; what it says of that."""
    remote = RemotingClient()
    answer = await remote.ask(broker, codec.request(RequestCode.UPDATE_BROKER_CONFIG, UpdateBrokerConfig(), changes), 10)
    await remote.close()
    return answer.remark or ""


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


async def test_a_server_may_open_as_many_files_as_the_system_lets_it(started: Started, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        words = "--host", "127.0.0.1", "--port", "0", "--set", f"kvConfigPath={tmp_path / 'kv.json'}"
        async with started("namesrv", *words) as (process, _):
            assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


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
        given = "listenPort=0", "brokerIP1=127.0.0.1", "maxMsgsNumBatch=64"
        words = ("broker", "-c", str(config), *(word for each in given for word in ("--set", each)))
        async with started(*words) as (process, broker):
            assert broker["data"] == str(tmp_path / "store")
            assert await exchange(names["namesrv"], "orders") == b"hello"
            told = await change(broker["broker"], b"maxMsgsNumBatch=32\nshortPollingTimeMills=900")
            assert told.endswith(f"written to {config}; maxMsgsNumBatch until the broker ends: --set says otherwise")
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
        (("namesrv", "--set", "tls.test.mode.enable=false"), "expected tls.server.certPath and tls.server.keyPath"),
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


@pytest.mark.parametrize("error", [ValueError("not allowed to raise maximum limit"), PermissionError(1, "not permitted")])
def test_a_server_that_may_not_open_more_files_serves_with_few(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    class Idle:
        async def start(self) -> None:
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)

        async def close(self) -> None:
            pass

    def forbidden(number: int, limits: tuple[int, int]) -> None:
        raise error

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for few, told in (
            (256, [f"this process may open 256 files, and not the {before[1]} of its hard limit"]),
            (before[1], []),
        ):
            resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
            with monkeypatch.context() as patch:
                patch.setattr(resource, "setrlimit", forbidden)
                assert serve._run(lambda failed: Idle(), lambda role: "here", Flood(SystemClock())) == 0
            assert [each.getMessage().partition(" (ulimit -n): ")[0] for each in caplog.records] == told
            caplog.clear()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_a_start_has_made_is_searched_for_garbage_no_more() -> None:
    frozen: list[int] = []

    class Looking:
        async def start(self) -> None:
            asyncio.get_running_loop().call_soon(self._look)

        def _look(self) -> None:
            frozen.append(gc.get_freeze_count())
            signal.raise_signal(signal.SIGTERM)

        async def close(self) -> None:
            frozen.append(gc.get_freeze_count())

    assert serve._run(lambda failed: Looking(), lambda role: "here", Flood(SystemClock())) == 0
    assert frozen[0] > 10_000
    assert frozen[1] == 0


def test_a_store_that_fails_ends_the_server_loudly(capfd: pytest.CaptureFixture[str]) -> None:
    class Failing:
        closed = False

        def __init__(self, failed: Callable[[BaseException], None]) -> None:
            self._failed = failed

        async def start(self) -> None:
            asyncio.get_running_loop().call_later(0.05, self._failed, OSError(5, "Input/output error"))

        async def close(self) -> None:
            Failing.closed = True

    assert serve._run(Failing, lambda role: "broker=here", Flood(SystemClock())) == 1
    assert Failing.closed
    out, err = capfd.readouterr()
    assert out == "ready broker=here\n"
    assert err == "rockmq: the store failed, so this broker ended: [Errno 5] Input/output error\n"


async def test_the_log_is_one_object_in_a_line_and_louder_when_asked(started: Started, tmp_path: Path) -> None:
    """With what Apache's 2m-2s-sync says of a master, and something that has no effect."""
    given = "brokerRole=SYNC_MASTER", "brokerId=0", "deleteWhen=04", "fileReservedTime=48", "storePathIndex=/nowhere"
    words = [word for each in given for word in ("--set", each)]
    async with started("serve", "--data", str(tmp_path), *ANY_PORTS, "--log-format", "json", *words) as (process, fields):
        process.send_signal(signal.SIGUSR1)
        host, port = fields["broker"].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        peer = "{}:{}".format(*writer.get_extra_info("sockname"))
        writer.write(b"\xff" * 64)
        assert await reader.read() == b""
        writer.close()
        code, _, err = await ended(process, signal.SIGTERM)
    assert code == 0
    events = [json.loads(line) for line in err.splitlines()]
    said = {event["message"]: event for event in events}
    assert any("no effect in RockMQ: storePathIndex (its place is fixed" in message for message in said)
    assert any(message.startswith("brokerRole=SYNC_MASTER: no slave has a copy") for message in said)
    assert "the log begins with INFO now" in said
    (closed,) = (event for message, event in said.items() if message.startswith("closing the connection: "))
    assert (closed["level"], closed["logger"], closed["peer"]) == ("WARNING", "rockmq.remoting.connection", peer)


async def test_the_configuration_is_printed(rockmq: Command, tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName = broker-a\nflushDiskType = ASYNC_FLUSH\nbrokerRole = ASYNC_MASTER\n")
    secret = 'initAuthenticationUser={"username":"root","password":"hunter2"}'
    code, out, err = await rockmq("broker", "-c", str(file), "--set", secret, "--set", "logLevel=INFO", "--print-config")
    assert (code, err) == (0, "")
    shown = properties.read(out)
    assert (shown["brokerName"], shown["flushDiskType"], shown["fileReservedTime"]) == ("broker-a", "ASYNC_FLUSH", "72")
    assert (shown["initAuthenticationUser"], shown["logLevel"]) == ("******", "INFO")
    file.write_text("brokerNme = broker-a\n")
    code, out, err = await rockmq("broker", "-c", str(file), "--print-config")
    assert (code, out) == (1, "")
    assert "unknown key 'brokerNme'; did you mean 'brokerName'?" in err
    code, out, _ = await rockmq("namesrv", "--port", "19876", "--print-config")
    assert (code, properties.read(out)["listenPort"]) == (0, "19876")


async def test_a_store_has_one_owner(rockmq: Command, started: Started, tmp_path: Path) -> None:
    words = ("serve", "--data", str(tmp_path), *ANY_PORTS)
    async with started(*words):
        code, _, err = await rockmq(*words)
        assert code == 1
        assert "is in use by another broker" in err
