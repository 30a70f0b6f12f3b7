"""What producers and consumers of one client share: identity, heartbeats, connections, and their end."""

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import rockmq
from rockmq.base.errors import ClientClosed, ClientError, RemotingError, ResponseError, RockMQError
from rockmq.client import Client, Message, MessageQueue, State, StateChange, routes
from rockmq.client import instance as runtime
from rockmq.client.heartbeat import Beat
from rockmq.protocol import codec
from rockmq.protocol.bodies.route import BrokerData
from rockmq.protocol.codes import RequestCode, ResponseCode
from tests.support.proxy import Proxy
from tests.unit.client.fakes import FakeBroker, FakeNames, refusal


async def until(condition: object, seconds: float = 20) -> None:
    assert callable(condition)
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


# Client ids


async def test_client_ids(names: FakeNames) -> None:
    async with Client(names.address) as one, Client(names.address) as two:
        assert one.client_id != two.client_id
        assert one.client_id.split("@")[1].startswith(f"{os.getpid()}#")
    named = Client(names.address, instance_name="DEFAULT", client_ip="10.0.0.7", unit_name="u1")
    assert named.client_id == "10.0.0.7@DEFAULT@u1"
    assert named._instance.unique_ids.make().startswith("0A000007")


async def test_one_client_of_an_id_at_a_time(names: FakeNames) -> None:
    async with Client(names.address, instance_name="orders") as first:
        second = Client(names.address, instance_name="orders")
        with pytest.raises(ClientError, match=rf"has a client {first.client_id} already"):
            await second.start()
        async with Client(names.address, instance_name="others"):
            pass
    async with second:
        assert second.client_id == first.client_id


def test_a_client_whose_loop_has_ended_is_in_nobodys_way() -> None:
    abandoned = []

    async def forget_to_close() -> None:
        client = Client("127.0.0.1:1", instance_name="forgotten")
        await client.start()
        abandoned.append(client)

    async def another() -> None:
        async with Client("127.0.0.1:1", instance_name="forgotten"):
            pass

    asyncio.run(forget_to_close())
    asyncio.run(another())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"instance_name": "a b"}, "instance_name='a b': expected letters"),
        ({"unit_name": "../x"}, "unit_name='../x': expected letters"),
        ({"serializer": "xml"}, "serializer is 'xml': expected 'json', 'binary'"),
        ({"max_in_flight": 0}, "max_in_flight=0, .*: expected 1 or more"),
        ({"client_ip": "no-such-host.invalid"}, "host name 'no-such-host.invalid' doesn't resolve"),
    ],
)
def test_options_that_can_not_be(options: dict[str, Any], told: str) -> None:
    with pytest.raises(RockMQError, match=told):
        Client("127.0.0.1:1", **options)


async def test_a_client_that_does_not_run(names: FakeNames, broker: FakeBroker) -> None:
    def calls(mq: Client) -> list[Coroutine[Any, Any, object]]:
        queue = MessageQueue("T", "a", 0)
        return [mq.queues("T"), mq.pull(queue, 0), mq.max_offset(queue), mq.create_topic("T"), mq.admin.topics.names()]

    mq = Client(names.address)
    for call in calls(mq):
        with pytest.raises(ClientClosed, match="was not started: use `async with`"):
            await call
    async with mq:
        assert await mq.queues("T")
    for call in calls(mq):
        with pytest.raises(ClientClosed, match="this client is closed"):
            await call


async def test_a_broker_in_place_of_a_name_server(broker: FakeBroker) -> None:
    async with Client(broker.address) as mq:
        with pytest.raises(ResponseError, match=rf"by {broker.address} .* not supported; is it a name server\?"):
            await mq.admin.topics.names()


async def test_a_compression_that_there_is_not(mq: Client) -> None:
    with pytest.raises(ClientError, match="compression is 'gzip': expected 'zlib', 'lz4', 'zstd', 'none'"):
        mq.producer("pg", compression="gzip")  # type: ignore[arg-type]


async def test_a_client_of_another_process_is_refused_after_a_fork(tmp_path: Path) -> None:
    script = tmp_path / "forks.py"
    script.write_text(
        textwrap.dedent("""
            import asyncio, faulthandler, os, traceback
            from rockmq import embedded
            from rockmq.client import Client, ClientClosed, Message

            def refused(call):
                try:
                    call()
                except ClientClosed as error:
                    return "after a fork" in str(error)
                return False

            async def main():
                async with embedded.serve(flush="ASYNC_FLUSH") as served, Client(served.namesrv, instance_name="x") as mq:
                    (queue,) = await mq.create_topic("T", 1)
                    async with mq.producer("pg") as producer, mq.consumer("cg", "T", from_where="first") as consumer:
                        await producer.send(Message("T", b"before"))
                        child = os.fork()
                        if child == 0:
                            faulthandler.dump_traceback_later(60, exit=True)
                            calls = [
                                lambda: producer.send_nowait(Message("T", b"x")),
                                lambda: producer.send(Message("T", b"x")).send(None),
                                lambda: mq.pull(queue, 0).send(None),
                                lambda: mq.max_offset(queue).send(None),
                                lambda: anext(consumer).send(None),
                                lambda: mq.producer("other"),
                            ]
                            async def own():
                                async with Client(served.namesrv, instance_name="x"):
                                    return True
                            answers = []
                            try:
                                answers += [refused(call) for call in calls]
                                answers.append(asyncio.Runner().run(own()))
                            except BaseException:
                                traceback.print_exc()
                            os._exit(0 if answers == [True] * 7 else 1)
                        _, status = await asyncio.to_thread(os.waitpid, child, 0)
                        await producer.send(Message("T", b"after"))
                        bodies = {(await anext(consumer)).body for _ in range(2)}
                        print(os.waitstatus_to_exitcode(status), sorted(bodies))

            asyncio.run(main())
        """)
    )
    command = [sys.executable, str(script)]
    environment = os.environ | {"PYTHONPATH": str(Path(rockmq.__file__).parent.parent)}
    ran = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    assert ran.stdout == "0 [b'after', b'before']\n", ran.stderr


# Heartbeats


async def test_heartbeats_are_short_for_brokers_that_know_the_rest(names: FakeNames, broker: FakeBroker) -> None:
    answer = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}
    beat = broker._heartbeat

    def told(header: object, request: codec.Command, connection: object) -> codec.Command:
        beat(header, request, connection)  # type: ignore[arg-type]
        return codec.reply(request, extra=answer)

    broker.handle(RequestCode.HEART_BEAT, told)
    async with Client(names.address) as mq, mq.consumer("cg", {"T": "paid"}):
        instance = mq._instance
        await instance.heartbeat(regular=True)
        broker.beats.clear()
        await instance.heartbeat(regular=True)
        (short,) = broker.beats
        assert short.without_sub
        assert short.heartbeat_fingerprint != 0
        assert [(each.group_name, each.subscription_data_set) for each in short.consumer_data_set] == [("cg", [])]

        async def next_one(*, regular: bool = True) -> tuple[bool, int]:
            broker.beats.clear()
            await instance.heartbeat(regular=regular)
            (beat,) = broker.beats
            return beat.without_sub, beat.heartbeat_fingerprint

        assert await next_one(regular=False) == (False, short.heartbeat_fingerprint), "something has happened: all of it"
        answer["IS_SUB_CHANGE"] = "true"
        assert (await next_one())[0]
        assert not (await next_one())[0], "the broker has heard otherwise from somebody"
        answer["IS_SUB_CHANGE"] = "false"
        await next_one()
        assert (await next_one())[0]
        broker.beats.clear()
        async with mq.producer("pg"):
            await until(lambda: broker.beats)
            assert not broker.beats[0].without_sub, "a group more"
            assert broker.beats[0].heartbeat_fingerprint != short.heartbeat_fingerprint
        await next_one()
        for connection in broker.connections:
            connection.transport.abort()
        await until(lambda: not instance.channel(broker.address))
        broker.beats.clear()
        await until(lambda: broker.beats)
        assert not broker.beats[0].without_sub, "a new connection begins with all of it"
        answer.clear()
        await instance.heartbeat()
        assert not (await next_one())[0], "a broker that knows nothing of it"


async def test_members_that_began_at_different_times_have_one_fingerprint(names: FakeNames, broker: FakeBroker) -> None:
    async with Client(names.address) as one, Client(names.address) as two, one.consumer("cg", "T"):
        await asyncio.sleep(0.005)
        async with two.consumer("cg", "T"):
            await one._instance.heartbeat()
            await two._instance.heartbeat()
            latest = {beat.client_id: beat.heartbeat_fingerprint for beat in broker.beats}
    assert len(latest) == 2
    assert len(set(latest.values())) == 1


async def test_no_heartbeat_is_the_last(
    names: FakeNames, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a heartbeat fails by, the next one comes: brokers would forget us."""
    monkeypatch.setattr(runtime, "HEARTBEAT_SECONDS", 0.05)
    async with Client(names.address) as mq, mq.producer("pg") as producer:
        await producer.send(Message("T", b"x"))
        monkeypatch.setattr(Beat, "__init__", lambda *_: 1 / 0)
        await until(lambda: caplog.text.count("a heartbeat failed") >= 2)
        monkeypatch.undo()
        broker.beats.clear()
        mq._instance.heartbeat_soon()
        await until(lambda: broker.beats)


# Connections


async def test_a_close_that_is_broken_off_leaves_nothing_open(names: FakeNames, broker: FakeBroker) -> None:
    before = asyncio.all_tasks()
    mq = Client(names.address)
    await mq.start()
    producer = mq.producer("pg")
    await producer.start()
    await producer.send(Message("T", b"x"))
    held = asyncio.Event()

    async def hold() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await held.wait()  # as something does that takes its time to end

    mq._instance.tasks.start(hold(), "holds the close up")
    closing = asyncio.create_task(mq.close())
    await until(lambda: mq._instance.closed)
    await asyncio.sleep(0.01)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    held.set()
    await until(lambda: not broker.connections and not names.connections)
    await until(lambda: not asyncio.all_tasks() - before)


async def test_changes_of_state_are_told(names: FakeNames, broker: FakeBroker) -> None:
    told: list[StateChange] = []

    def fails(change: StateChange) -> None:
        raise ValueError("the user's own fault")

    async with Client(names.address) as mq:
        mq.on_state(fails)
        mq.on_state(told.append)
        async with mq.producer("pg") as producer:
            await producer.send(Message("T", b"x"))
            assert told == [
                StateChange("name server", names.address, State.CONNECTED),
                StateChange("broker", broker.address, State.CONNECTED),
            ]
            told.clear()
            await broker.stop()
            await until(lambda: told)
            assert told == [StateChange("broker", broker.address, State.DISCONNECTED)]
            await broker.start()
            broker.beats.clear()
            await until(lambda: len(told) == 2)
            assert told[1] == StateChange("broker", broker.address, State.RECONNECTED), "without anybody asking for it"
            await until(lambda: broker.beats)
            await names.stop()
            await until(lambda: len(told) == 3)
            assert told[2] == StateChange("name server", names.address, State.DISCONNECTED)
    assert len(told) == 3, "its own end is no news to a client"


async def test_a_lost_consumer_is_known_again_before_it_pulls(names: FakeNames, broker: FakeBroker) -> None:
    async with Client(names.address) as mq, mq.consumer("cg", "T", from_where="first") as consumer:
        await broker.stop()
        broker.asked.clear()
        await broker.start()
        await until(lambda: broker.count(RequestCode.PULL_MESSAGE))
        assert broker.asked[0].code == RequestCode.HEART_BEAT
        assert [each.group_name for each in broker.beats[-1].consumer_data_set] == ["cg"]
        broker.stored["T", 0] = [b"x"]
        broker.on_pull = None
        for connection in broker.connections:
            connection.transport.abort()
        assert (await anext(consumer)).body == b"x"


async def test_a_broker_that_goes_away_is_asked_on_a_new_connection(names: FakeNames, broker: FakeBroker) -> None:
    async with Client(names.address) as mq, mq.producer("pg") as producer:
        await producer.send(Message("T", b"first"))
        (old,) = broker.connections
        waiting: list[codec.Command] = []
        broker.on_send = lambda header, request: waiting.append(request) or "silence"  # type: ignore[func-returns-value]
        slow = producer.send_nowait(Message("T", b"slow"), timeout=20)
        await until(lambda: waiting)
        goes = iter([True])
        broker.on_send = lambda header, request: refusal(request, ResponseCode.GO_AWAY) if next(goes, False) else None
        await producer.send(Message("T", b"x"))
        assert len(broker.connections) == 2
        assert not slow.done(), "what waits on the old connection isn't given up"
        old.answer(waiting[0], broker.store(broker.headers[1], waiting[0]))
        await slow
        await until(lambda: len(broker.connections) == 1)
        assert broker.connections != [old]


async def test_brokers_that_stand_in_no_route_are_left(names: FakeNames, broker: FakeBroker, other: FakeBroker) -> None:
    async with Client(names.address) as mq, mq.producer("pg") as producer:
        for _ in range(8):
            await producer.send(Message("T", b"x"))
        assert [len(each.connections) for each in (broker, other)] == [1, 1]
        names.add("T", broker)
        await mq._instance.routes.refresh()
        await until(lambda: not other.connections)
        assert len(broker.connections) == 1
        assert mq._instance._lost == set(), "nobody calls it any more"


async def test_brokers_at_a_new_address_are_found(names: FakeNames, broker: FakeBroker) -> None:
    """As after a restart in a container: the same broker, another address."""
    async with Client(names.address) as mq, mq.producer("pg", retries=100) as producer:
        await producer.send(Message("T", b"x"))
        await broker.stop()
        broker.port = 0
        await broker.start()
        names.routes["T"].broker_datas = [BrokerData(broker_name="a", cluster="c", broker_addrs={"0": broker.address})]
        await producer.send(Message("T", b"y"), timeout=20)
    assert sorted(broker.bodies()) == [b"x", b"y"]


async def test_who_reads_by_hand_finds_a_broker_at_a_new_address(
    names: FakeNames, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "SOON_SECONDS", 0.05)
    queue = MessageQueue("T", "a", 0)
    async with Client(names.address) as mq:
        broker.stored["T", 0] = [b"x"]
        calls = [lambda: mq.pull(queue, 0), lambda: mq.max_offset(queue), lambda: mq.commit("cg", queue, 1)]
        for call in calls:
            await call()  # type: ignore[operator]
            await broker.stop()
            broker.port = 0
            await broker.start()
            names.add("T", broker)
            with pytest.raises(RemotingError):
                await call()  # type: ignore[operator]
            await until(lambda: mq._instance.routes.address(queue) == broker.address)
            await call()  # type: ignore[operator]


async def test_calls_that_the_end_finds_waiting(names: FakeNames, broker: FakeBroker) -> None:
    async with Proxy(names.address) as proxy:
        proxy.passing.clear()
        mq = Client(proxy.address)
        await mq.start()
        waiting = asyncio.create_task(mq.queues("T"))
        await until(lambda: proxy.accepted)
        await mq.close()
        with pytest.raises(ClientClosed, match="this client is closed"):
            await waiting


# Many


async def test_a_thousand_producers(names: FakeNames, broker: FakeBroker) -> None:
    async with Client(names.address) as mq:
        producers = [mq.producer(f"pg-{number}") for number in range(1000)]
        for producer in producers:
            await producer.start()
        receipts = await asyncio.gather(*(producer.send(Message("T", b"x")) for producer in producers))
        assert len({receipt.msg_id for receipt in receipts}) == 1000
        await mq._instance.heartbeat()
        assert len(broker.beats[-1].producer_data_set) == 1000
        assert len(broker.connections) == 1
    assert broker.count(RequestCode.UNREGISTER_CLIENT) == 1000
    assert {header.producer_group for header in broker.headers} == {producer.group for producer in producers}


async def test_clients_leave_nothing_behind(names: FakeNames, broker: FakeBroker) -> None:
    async def use(times: int) -> None:
        for _ in range(times):
            broker.beats.clear()  # so that those before are no members any more
            async with Client(names.address) as mq:
                async with mq.producer("pg") as producer:
                    await producer.send(Message("T", b"x"))
                async with mq.consumer("cg", "T", from_where="first") as consumer:
                    await consumer.fetch(1)
        for fake in (names, broker):
            fake.asked.clear()
        for kept in (broker.headers, broker.pulls, broker.beats, broker.stored):
            kept.clear()
        await until(lambda: not broker.connections)
        await until(lambda: not names.connections)
        gc.collect()

    await use(5)
    tasks, files, objects = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd")), kinds()
    await use(200)
    assert len(asyncio.all_tasks()) == tasks
    assert len(os.listdir("/proc/self/fd")) == files
    grown = {kind: count - objects[kind] for kind, count in kinds().items() if count - objects[kind] >= 100}
    assert not grown


def kinds() -> Counter[str]:
    return Counter(type(each).__name__ for each in gc.get_objects())
