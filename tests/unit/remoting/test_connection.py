"""Connections over real sockets, both ends ours or one end made by hand."""

import asyncio
import os
import resource
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockmq.base.clock import SystemClock
from rockmq.base.errors import ConfigError, ConnectError, ConnectionLost, RemotingError, RequestTimeout, ResponseError
from rockmq.protocol import codec, headers  # noqa: F401 - declares the codes used here
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import Header
from rockmq.remoting.client import RemotingClient
from rockmq.remoting.connection import WRITE_BUFFER_MAX, Connection
from rockmq.remoting.dispatch import RUNNING_BYTES_MAX, Answer, Dispatcher, Handler, Refusal
from rockmq.remoting.server import FILES_KEPT, RemotingServer
from tests.support.wire import RawClient, request

CODE = RequestCode.GET_BROKER_RUNTIME_INFO
OTHER = RequestCode.GET_BROKER_CLUSTER_INFO


@asynccontextmanager
async def serving(handlers: dict[int, Handler], *, idle_seconds: float = 120) -> AsyncIterator[tuple[RemotingServer, str]]:
    dispatcher = Dispatcher(handlers)
    server = RemotingServer(
        "127.0.0.1",
        [0],
        lambda: Connection(dispatcher, SystemClock()),
        SystemClock(),
        idle_seconds=idle_seconds,
    )
    await server.start()
    try:
        yield server, f"127.0.0.1:{server.port}"
    finally:
        dispatcher.close()
        await server.close()


def echo(header: Header, command: Command, connection: Connection) -> Command:
    return codec.reply(command, body=command.body)


async def ask(client: RemotingClient, to: str, body: bytes, timeout: float = 5) -> bytes:
    return (await client.ask(to, codec.request(CODE, body=body), timeout)).body


@pytest.fixture
async def client() -> AsyncIterator[RemotingClient]:
    made = RemotingClient()
    yield made
    await made.close()


async def test_answers_find_their_questions_in_any_order(client: RemotingClient) -> None:
    async def slow_first(header: Header, command: Command, connection: Connection) -> Answer:
        await asyncio.sleep(0.2 - int(command.body) / 100)
        return codec.reply(command, body=command.body)

    async with serving({CODE: slow_first}) as (_, address):
        bodies = [b"%d" % number for number in range(20)]
        assert await asyncio.gather(*(ask(client, address, body) for body in bodies)) == bodies


async def test_cancelled_request_harms_no_other(client: RemotingClient) -> None:
    begun, go_on = 0, asyncio.Event()

    async def slow(header: Header, command: Command, connection: Connection) -> Answer:
        nonlocal begun
        begun += 1
        await go_on.wait()
        return codec.reply(command, body=command.body)

    async with serving({CODE: slow}) as (_, address):
        tasks = [asyncio.create_task(ask(client, address, b"%d" % number)) for number in range(10)]
        while begun < 10:
            await asyncio.sleep(0.001)
        for task in tasks[::2]:
            task.cancel()
        go_on.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [result for result in results if isinstance(result, bytes)] == [b"1", b"3", b"5", b"7", b"9"]
        assert await ask(client, address, b"after") == b"after"


Call = tuple[float, float | None, float]
"""After how many milliseconds it is answered, and cancelled if at all, and its timeout."""
CALLS = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 3]), st.sampled_from([None, None, 0, 1, 2, 3]), st.sampled_from([1, 3, 5000])),
    min_size=1,
    max_size=40,
)


@given(CALLS)
@settings(max_examples=50)
def test_a_cancelled_call_never_gets_anothers_answer(calls: list[Call]) -> None:
    asyncio.run(play(calls))


async def play(calls: list[Call]) -> None:
    async def answer(header: Header, command: Command, connection: Connection) -> Answer:
        await asyncio.sleep(calls[int(command.body)][0] / 1000)
        return codec.reply(command, body=command.body)

    async def call(client: RemotingClient, address: str, number: int, timeout_ms: float) -> bytes | None:
        try:
            return await ask(client, address, b"%d" % number, timeout_ms / 1000)
        except (RequestTimeout, ConnectError):
            return None

    client = RemotingClient()
    async with serving({CODE: answer}) as (_, address):
        loop = asyncio.get_running_loop()
        tasks = []
        for number, (_, cancel_ms, timeout_ms) in enumerate(calls):
            task = asyncio.create_task(call(client, address, number, timeout_ms))
            if cancel_ms is not None:
                loop.call_later(cancel_ms / 1000, task.cancel)
            tasks.append(task)
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for number, result in enumerate(results):
            cancelled = isinstance(result, asyncio.CancelledError) and calls[number][1] is not None
            timed_out = result is None and calls[number][2] < 5000
            assert cancelled or timed_out or result == b"%d" % number
        assert await ask(client, address, b"0") == b"0"
        connection = await client.connect(address)
        assert not connection._pending, "nothing is kept of calls that were given up"
        await client.close()


async def test_a_call_whose_loop_stood_still_takes_the_answer_that_came(client: RemotingClient) -> None:
    """The answer and the end of the timeout are found in the same turn of the loop."""
    async with serving({CODE: echo}) as (_, address):
        connection = await client.connect(address)
        asked = asyncio.create_task(connection.invoke(codec.request(CODE, body=b"x"), 0.05))
        await asyncio.sleep(0)
        connection._answered(Command(0, connection._opaque, 1, body=b"x"))
        time.sleep(0.1)  # noqa: ASYNC251 - it is the point
        assert (await asked).body == b"x"


async def test_a_retired_connection_ends_with_its_last_answer(client: RemotingClient) -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    async def held(header: Header, command: Command, connection: Connection) -> Answer:
        begun.set()
        await release.wait()
        return codec.reply(command, body=command.body)

    async with serving({CODE: held, OTHER: echo}) as (server, address):
        waiting = asyncio.create_task(ask(client, address, b"x"))
        await begun.wait()
        client.retire(address)
        assert client.connected == []
        await client.ask(address, codec.request(OTHER), 5)
        assert len(server.connections) == 2
        release.set()
        assert await waiting == b"x"
        async with asyncio.timeout(30):
            while len(server.connections) > 1:
                await asyncio.sleep(0.01)


async def test_the_end_closes_retired_connections_too(client: RemotingClient) -> None:
    begun = asyncio.Event()

    async def held(header: Header, command: Command, connection: Connection) -> Answer:
        begun.set()
        await asyncio.Event().wait()
        return None

    async with serving({CODE: held}) as (_, address):
        waiting = asyncio.create_task(ask(client, address, b"x"))
        await begun.wait()
        client.retire(address)
        await client.close()
        with pytest.raises(ConnectionLost):
            await waiting


async def test_one_attempt_to_connect_serves_all(client: RemotingClient) -> None:
    async with serving({CODE: echo}) as (server, address):
        first = asyncio.create_task(client.connect(address))
        others = [asyncio.create_task(client.connect(address)) for _ in range(10)]
        await asyncio.sleep(0)
        first.cancel()
        assert len(set(await asyncio.gather(*others))) == 1
        assert len(server.connections) == 1


async def test_errors_become_codes(client: RemotingClient) -> None:
    def refuse(header: Header, command: Command, connection: Connection) -> Answer:
        raise Refusal(ResponseCode.NO_PERMISSION, "not you")

    def fail(header: Header, command: Command, connection: Connection) -> Answer:
        raise ZeroDivisionError("oops")

    async with serving({CODE: refuse, OTHER: fail}) as (_, address):
        with pytest.raises(ResponseError, match="not you") as refused:
            await ask(client, address, b"")
        assert (refused.value.code, refused.value.address) == (ResponseCode.NO_PERMISSION, address)
        response = await client.invoke(address, codec.request(OTHER), 5)
        assert (response.code, response.remark) == (ResponseCode.SYSTEM_ERROR, "ZeroDivisionError: oops")


async def test_no_answer_is_a_timeout_and_the_connection_lives(client: RemotingClient) -> None:
    async def never(header: Header, command: Command, connection: Connection) -> Answer:
        if command.body == b"never":
            await asyncio.sleep(60)
        return codec.reply(command, body=command.body)

    async with serving({CODE: never}) as (server, address):
        with pytest.raises(RequestTimeout, match=r"GET_BROKER_RUNTIME_INFO \(28\) within 0\.\d+ s"):
            await ask(client, address, b"never", timeout=0.1)
        assert await ask(client, address, b"other") == b"other"
        assert len(server.connections) == 1


async def test_lost_connection_fails_what_waits_and_is_opened_again(client: RemotingClient) -> None:
    async def hang_up(header: Header, command: Command, connection: Connection) -> Answer:
        if command.body == b"hang up":
            connection.transport.abort()
        return codec.reply(command, body=command.body)

    async with serving({CODE: hang_up}) as (_, address):
        with pytest.raises(ConnectionLost):
            await ask(client, address, b"hang up")
        assert await ask(client, address, b"again") == b"again"


async def test_nobody_listens(client: RemotingClient) -> None:
    with pytest.raises(ConnectError, match=r"127\.0\.0\.1:1"):
        await ask(client, "127.0.0.1:1", b"")
    with pytest.raises(ConfigError, match="host:port"):
        await ask(client, "nonsense", b"")


async def test_server_that_goes_away_is_asked_once_more(client: RemotingClient) -> None:
    seen: list[Connection] = []

    def leaving(header: Header, command: Command, connection: Connection) -> Answer:
        seen.append(connection)
        code = ResponseCode.GO_AWAY if len(seen) == 1 else ResponseCode.SUCCESS
        return codec.reply(command, code, body=b"here")

    async with serving({CODE: leaving}) as (_, address):
        assert await ask(client, address, b"") == b"here"
    assert len(set(seen)) == 2


async def test_server_asks_its_client_on_the_same_connection() -> None:
    client = RemotingClient({OTHER: echo})

    async def ask_back(header: Header, command: Command, connection: Connection) -> Answer:
        answer = await connection.invoke(codec.request(OTHER, body=b"who?"), 5)
        return codec.reply(command, body=answer.body)

    async with serving({CODE: ask_back}) as (_, address):
        assert await ask(client, address, b"") == b"who?"
    await client.close()


async def test_port_that_is_taken_is_named() -> None:
    async with serving({}) as (server, _):
        second = RemotingServer("127.0.0.1", [server.port], lambda: Connection(Dispatcher({}), SystemClock()), SystemClock())
        with pytest.raises(ConfigError, match=str(server.port)):
            await second.start()


async def test_half_a_frame_then_silence_is_closed_by_the_sweep() -> None:
    async with serving({CODE: echo}, idle_seconds=10) as (server, address):
        silent, talking = await RawClient.connect(address), await RawClient.connect(address)
        await silent.send(request(CODE, {}, b"x" * 1000)[:500])
        for _ in range(5):
            server.sweep()
            await talking.ask(request(CODE, {}, b""))
        assert await silent.closed()
        assert len(server.connections) == 1
        talking.close()
        silent.close()


async def test_peer_that_does_not_read_is_cut_off() -> None:
    async with serving({CODE: echo}, idle_seconds=10) as (server, address):
        stuck = await RawClient.connect(address)
        stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(60):
            stuck.writer.write(request(CODE, {}, bytes(1 << 20)))
        async with asyncio.timeout(30):
            while not any(connection.transport.get_write_buffer_size() for connection in server.connections):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        held = [connection.transport.get_write_buffer_size() for connection in server.connections]
        assert max(held) < 8 << 20, "answers pile up although nobody takes them"
        for _ in range(4):
            server.sweep()
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            while server.connections:
                await asyncio.sleep(0.01)
        stuck.close()


async def test_much_goes_both_ways_at_once(client: RemotingClient) -> None:
    """More than is kept by either end, or by the system between them."""
    async with serving({CODE: echo}) as (_, address):
        bodies = [bytes([number]) * 200_000 for number in range(100)]
        assert await asyncio.gather(*(ask(client, address, body, 20) for body in bodies)) == bodies


async def test_a_client_may_have_much_to_send(client: RemotingClient) -> None:
    def brief(header: Header, command: Command, connection: Connection) -> Command:
        return codec.reply(command, body=b"%d" % len(command.body))

    async with serving({CODE: brief}) as (_, address):
        body = bytes(2 << 20)
        answers = await asyncio.gather(*(ask(client, address, body, 30) for _ in range(40)))
        assert set(answers) == {b"%d" % len(body)}


async def test_what_nobody_waits_for_any_more_does_not_pile_up(
    client: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    size = 4 << 20
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        asked = (ask(client, address, bytes(size), 0.3) for _ in range(WRITE_BUFFER_MAX // size + 8))
        failures = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(each, RemotingError) for each in failures)
    assert any("bytes are left unread" in record.getMessage() for record in caplog.records)


async def test_who_asks_for_more_than_is_answered_is_read_from_later() -> None:
    begun, go_on = 0, asyncio.Event()

    async def slow(header: Header, command: Command, connection: Connection) -> Answer:
        nonlocal begun
        begun += 1
        await go_on.wait()
        return codec.reply(command, body=command.body[:1])

    async with serving({CODE: slow, OTHER: echo}) as (_, address):
        greedy, modest, count = RemotingClient(), RemotingClient(), 40
        asked = [asyncio.create_task(ask(greedy, address, bytes(1 << 20), 60)) for _ in range(count)]
        async with asyncio.timeout(30):
            while begun * (1 << 20) < RUNNING_BYTES_MAX - (1 << 20):
                await asyncio.sleep(0.01)
        for _ in range(20):
            assert (await modest.ask(address, codec.request(OTHER), 30)).code == ResponseCode.SUCCESS
        assert begun < count - 10
        go_on.set()
        assert await asyncio.gather(*asked) == [b"\0"] * count
        await greedy.close()
        await modest.close()


async def test_some_files_of_the_process_are_for_no_connection(caplog: pytest.LogCaptureFixture) -> None:
    """A store that can't open its next file ends, whoever has opened the connections."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = [int(name) for name in os.listdir("/proc/self/fd")]
    room = max(used) + 20  # below it are holes, maybe, where files were closed
    resource.setrlimit(resource.RLIMIT_NOFILE, (room + FILES_KEPT, before[1]))
    try:
        async with serving({CODE: echo}) as (server, address):
            good = await RawClient.connect(address)
            await good.ask(request(CODE))
            others = [await RawClient.connect(address) for _ in range(room - len(used))]
            refused = others[-1]
            assert await refused.closed()
            assert len(server.connections) >= 2
            assert (
                f"the process may open {room + FILES_KEPT} files (ulimit -n), of which it keeps {FILES_KEPT}" in caplog.text
            )
            assert (await good.ask(request(CODE)))["code"] == ResponseCode.SUCCESS
            for each in (good, *others):
                each.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_connections_are_bounded() -> None:
    server = RemotingServer(
        "127.0.0.1",
        [0],
        lambda: Connection(Dispatcher({CODE: echo}), SystemClock()),
        SystemClock(),
        connections_max=2,
    )
    await server.start()
    address = f"127.0.0.1:{server.port}"
    served = [await RawClient.connect(address) for _ in range(2)]
    for each in served:
        await each.ask(request(CODE))
    refused = await RawClient.connect(address)
    assert await refused.closed()
    served.pop().close()
    async with asyncio.timeout(30):
        while len(server.connections) > 1:
            await asyncio.sleep(0.01)
    again = await RawClient.connect(address)
    assert (await again.ask(request(CODE)))["code"] == ResponseCode.SUCCESS
    for each in (*served, again, refused):
        each.close()
    await server.close()
