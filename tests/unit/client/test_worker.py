"""Programs that consume until they are told to stop."""

import asyncio
import os
import signal

import pytest

from rockmq.base.errors import ClientError
from rockmq.client import Client, ConsumedMessage, Worker
from tests.unit.client.fakes import FakeBroker, FakeNames
from tests.unit.client.test_consumer import until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_in_order(names: FakeNames, broker: FakeBroker, number: int) -> None:
    broker.stored["T", 0] = [b"x"] * 3
    app = Worker(f"mq://{names.address}")
    done: list[int] = []
    begun: list[int] = []

    @app.subscribe("T", group="g", concurrency=1, from_where="first")
    async def handle(message: ConsumedMessage) -> None:
        begun.append(message.queue_offset)
        if len(begun) == 2:
            os.kill(os.getpid(), number)
        await asyncio.sleep(0.1)
        done.append(message.queue_offset)

    before = signal.getsignal(number)
    await asyncio.wait_for(app.run(), 10)
    assert done == begun == [0, 1], "what is begun is finished, and nothing more is begun"
    assert broker.offsets["g", "T", 0] == 2
    assert signal.getsignal(number) in (before, signal.SIG_DFL, signal.default_int_handler)


async def test_several_handlers(names: FakeNames, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"a", b"b"]
    app = Worker(Client(names.address, instance_name="worker"))
    got: dict[str, list[bytes]] = {"one": [], "two": []}

    @app.subscribe({"T": "*"}, group="one", from_where="first", order=True)
    async def first(message: ConsumedMessage) -> None:
        got["one"].append(message.body)

    @app.subscribe("T", group="two", from_where="first", ordered_by=lambda message: message.key)
    def second(message: ConsumedMessage) -> None:
        got["two"].append(message.body)

    with pytest.raises(ClientError, match="has a handler already"):
        app.subscribe("T", group="two")
    running = asyncio.create_task(app.run())
    await until(lambda: all(len(each) == 2 for each in got.values()))
    app.stop()
    await asyncio.wait_for(running, 10)
    assert got["one"] == [b"a", b"b"]
    assert sorted(got["two"]) == [b"a", b"b"]
    assert {broker.offsets[group, "T", 0] for group in got} == {2}


async def test_what_breaks_one_handler_ends_all(names: FakeNames, broker: FakeBroker) -> None:
    app = Worker(names.address)
    app.subscribe("T", group="fine")(lambda _: None)
    app.subscribe("T", group="broken", workers="processes")(lambda _: None)
    with pytest.raises(ExceptionGroup) as raised:
        await asyncio.wait_for(app.run(), 10)
    assert raised.group_contains(ClientError, match="another process")


async def test_a_worker_without_handlers() -> None:
    with pytest.raises(ClientError, match="no handlers"):
        await Worker("127.0.0.1").run()
