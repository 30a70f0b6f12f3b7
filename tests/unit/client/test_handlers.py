"""Handlers that raise, hang, block, are cancelled, work on batches, or in other processes."""

import asyncio
import os
import threading
from collections import Counter
from typing import Any

import pytest

from rockmq.base.errors import ClientError
from rockmq.client import Client, ConsumedMessage, PartDone, backoff, outcomes
from rockmq.protocol import codec
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.headers.client import SendMessageBack
from tests.unit.client.fakes import FakeBroker
from tests.unit.client.test_consumer import until


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that only cost time here."""
    monkeypatch.setattr(outcomes, "REDELIVER_SECONDS", 0.1)


def sent_back(broker: FakeBroker) -> list[tuple[str, str]]:
    """Offset (each message of the fakes takes 1000 bytes of the log) and delay level."""
    return [
        (each.fields["offset"].removesuffix("000"), each.fields["delayLevel"])
        for each in broker.asked
        if each.code == RequestCode.CONSUMER_SEND_MSG_BACK
    ]


# Functions


async def test_functions_run_on_threads_side_by_side(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"%d" % number for number in range(6)]
    together = threading.Barrier(3)
    done: list[bytes] = []

    def handle(message: ConsumedMessage) -> None:
        assert threading.current_thread() is not threading.main_thread()
        together.wait(10)
        done.append(message.body)

    async with mq.consumer("g", "T", from_where="first") as member:
        run = asyncio.create_task(member.run(handle, 3))
        await until(lambda: len(done) == 6, 10)
    await run
    assert sorted(done) == broker.stored["T", 0]
    assert broker.offsets["g", "T", 0] == 6


async def test_a_function_that_raises(mq: Client, broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.stored["T", 0] = [b"x", b"y"]
    tries: Counter[bytes] = Counter()

    def handle(message: ConsumedMessage) -> None:
        tries[message.body] += 1
        if tries[message.body] == 1:
            raise StopIteration if message.body == b"x" else ValueError

    async with mq.consumer("g", "T", from_where="first") as member:
        run = asyncio.create_task(member.run(handle, retry=backoff(5, 60)))
        await until(lambda: tries == {b"x": 2, b"y": 2})
    await run
    assert sorted(sent_back(broker)) == [("0", "2"), ("1", "2")], "5 s are level 2"
    assert "failed and will be delivered again" in caplog.text


async def test_a_cancelled_thread_comes_to_its_end_first(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"]
    begun, go_on = threading.Event(), threading.Event()

    def handle(message: ConsumedMessage) -> None:
        begun.set()
        go_on.wait(10)

    async with mq.consumer("g", "T", from_where="first") as member:
        run = asyncio.create_task(member.run(handle, 1))
        await until(begun.is_set)
        run.cancel()
        await asyncio.sleep(0.05)
        assert not run.done()
        assert await member.fetch(timeout=0.05) == [], "not delivered to two at a time"
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert await member.fetch(timeout=0.05) == [], "it was done after all"
    assert broker.offsets["g", "T", 0] == 1


FAILED = "failed once"


def in_a_process(message: ConsumedMessage) -> None:
    """A handler for processes; what it did is to be seen in a file."""
    body = message.body.decode()
    if body.startswith("die"):
        os._exit(1) if message.reconsume_times == 0 else None
    with open(message.properties["file"], "a") as file:
        file.write(f"{os.getpid()} {message.topic} {message.queue_offset} {message.key}\n")
    if body.startswith("raise") and message.reconsume_times == 0:
        raise KeyError(FAILED)


async def test_functions_run_in_processes(mq: Client, broker: FakeBroker, tmp_path: Any) -> None:
    from tests.unit.client.fakes import pulled, record

    path = tmp_path / "done"
    bodies = [b"raise", b"die", b"fine"]
    records = [record("T", 0, number, body, {"file": str(path), "KEYS": "k"}) for number, body in enumerate(bodies)]

    def answer(header: Any, request: Any, connection: Any) -> Any:
        if header.topic == "T" and header.queue_id == 0 and header.queue_offset == 0:
            return pulled(request, 0, records, 3)
        return "silence"

    broker.on_pull = answer
    async with mq.consumer("g", "T", from_where="first") as member:
        run = asyncio.create_task(member.run(in_a_process, 1, workers="processes"))
        await until(lambda: path.exists() and len(path.read_text().splitlines()) == 4, 30)
        await until(lambda: member._inbox.in_flight == 0)
    await run
    lines = [line.split() for line in path.read_text().splitlines()]
    assert sorted(line[2] for line in lines) == ["0", "0", "1", "2"]
    assert {tuple(line[1::2]) for line in lines} == {("T", "k")}
    assert str(os.getpid()) not in {line[0] for line in lines}
    assert broker.offsets["g", "T", 0] == 3


async def test_handlers_that_processes_can_not_have(mq: Client, broker: FakeBroker) -> None:
    async def asynchronous(message: ConsumedMessage) -> None: ...

    async with mq.consumer("g", "T") as member:
        with pytest.raises(ClientError, match="not in processes"):
            await member.run(asynchronous, workers="processes")
        with pytest.raises(ClientError, match="can't be sent to another process"):
            await member.run(lambda _: None, workers="processes")
        with pytest.raises(ClientError, match="'threads' or 'processes'"):
            await member.run(lambda _: None, workers="fibres")  # type: ignore[arg-type]


# Batches


async def test_batches_are_of_one_queue(mq: Client, broker: FakeBroker) -> None:
    for queue in range(4):
        broker.stored["T", queue] = [b"%d" % number for number in range(10)]
    batches: list[list[tuple[int, int]]] = []

    async def handle(batch: list[ConsumedMessage]) -> None:
        batches.append([(message.queue.queue_id, message.queue_offset) for message in batch])
        await asyncio.sleep(0.01)

    async with mq.consumer("g", "T", from_where="first") as member:
        run = asyncio.create_task(member.run_batches(handle, 4, 2))
        await until(lambda: sum(map(len, batches)) == 40)
    await run
    assert sorted(each for batch in batches for each in batch) == [
        (queue, offset) for queue in range(4) for offset in range(10)
    ]
    assert all(len({queue for queue, _ in batch}) == 1 for batch in batches)
    assert max(map(len, batches)) == 4
    assert {broker.offsets["g", "T", queue] for queue in range(4)} == {10}


@pytest.mark.parametrize(
    ("way", "refused"), [("raise", ["0", "1", "2"]), ("part", ["2"]), ("single", ["1"]), ("return", [])]
)
async def test_what_fails_of_a_batch(mq: Client, broker: FakeBroker, way: str, refused: list[str]) -> None:
    broker.stored["T", 0] = [b"x"] * 3
    calls = 0

    async def handle(batch: list[ConsumedMessage]) -> None:
        nonlocal calls
        calls += 1
        if calls > 1:
            return
        if way == "raise":
            raise ValueError
        if way == "part":
            raise PartDone(2)
        if way == "single":
            await batch[1].nack()

    async with mq.consumer("g", "T", from_where="first") as member:
        await until(lambda: len(member._inbox._ready) == 3)
        run = asyncio.create_task(member.run_batches(handle, 10, 1))
        await until(lambda: calls >= 1 and member._cache.messages == 0)
    await run
    assert sorted(offset for offset, _ in sent_back(broker)) == refused
    assert broker.offsets["g", "T", 0] == 3


def half(batch: list[ConsumedMessage]) -> None:
    raise PartDone(len(batch) // 2)


async def test_part_of_a_batch_in_order(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"] * 4
    async with mq.consumer("g", "T", from_where="first", order=True, suspend=30.0, drain_timeout=0) as member:
        await until(lambda: member._cache.messages == 4)
        run = asyncio.create_task(member.run_batches(half, 4, 1))
        await until(lambda: member._cache.messages == 2)
    await run
    assert broker.offsets["g", "T", 0] == 2


# Keys


async def test_messages_of_a_key_one_after_the_other(mq: Client, broker: FakeBroker) -> None:
    for queue in range(4):
        broker.stored["T", queue] = [b"abc"[number % 3 : number % 3 + 1] for number in range(9)]
    running: Counter[bytes] = Counter()
    together = 0
    done: list[tuple[bytes, int, int]] = []

    async def handle(message: ConsumedMessage) -> None:
        nonlocal together
        running[message.body] += 1
        assert running[message.body] == 1
        together = max(together, running.total())
        await asyncio.sleep(0.002)
        running[message.body] -= 1
        if message.queue_offset == 4 and message.reconsume_times == 0:
            raise ValueError
        done.append((message.body, message.queue.queue_id, message.queue_offset))

    async with mq.consumer("g", "T", from_where="first") as member:
        run = asyncio.create_task(member.run(handle, 8, ordered_by=lambda message: message.body))
        await until(lambda: len(done) == 36)
    await run
    assert together == 3
    for queue in range(4):
        for key in (b"a", b"c"):  # none of them failed
            assert [offset for body, number, offset in done if (body, number) == (key, queue)] == [
                offset for offset in range(9) if broker.stored["T", queue][offset] == key
            ]
    assert {broker.offsets["g", "T", queue] for queue in range(4)} == {9}


async def test_what_waits_behind_its_key_comes_again(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"%d" % number for number in range(4)]
    broken: list[bytes] = []

    def key_of(message: ConsumedMessage) -> object:
        if message.body == b"3" and not message.reconsume_times:
            broken.append(message.body)
            return []  # nothing to look up by
        return "key"

    async with mq.consumer("g", "T", from_where="first") as member:
        run = asyncio.create_task(member.run(lambda _: asyncio.sleep(100), 3, ordered_by=key_of))  # type: ignore[arg-type]
        await until(lambda: broken and member._inbox.in_flight == 3)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        bodies: list[bytes] = []
        while len(bodies) < 4:
            for message in await member.fetch():
                bodies.append(message.body)
                await message.ack()
    assert sorted(bodies) == broker.stored["T", 0]


# Work that hangs


async def test_what_hangs_is_sent_back_and_told(mq: Client, broker: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.stored["T", 0] = [b"hangs", b"fine"]
    told: list[str] = []

    async def handle(message: ConsumedMessage) -> None:
        if message.body == b"hangs" and not message.reconsume_times:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                told.append("cancelled")
                raise
        told.append(message.body.decode())

    async with mq.consumer("g", "T", from_where="first", consume_timeout=0.2) as member:
        run = asyncio.create_task(member.run(handle, 2))
        await until(lambda: len(told) == 3)
    await run
    assert told == ["fine", "cancelled", "hangs"]
    assert sent_back(broker) == [("0", "3")]
    assert "took too long" in caplog.text


async def test_a_block_that_hangs_gets_a_timeout(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"]
    async with mq.consumer("g", "T", from_where="first", consume_timeout=0.1) as member:
        message = await anext(member)
        with pytest.raises(TimeoutError, match="took too long"):
            async with message.process():
                await asyncio.sleep(100)
        with pytest.raises(ClientError, match="before"):
            await message.ack()
        async with (await anext(member)).process() as again:
            assert again.reconsume_times == 1
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_thread_that_hangs_keeps_its_worker(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"hangs", b"fine"]
    go_on = threading.Event()
    begun: list[bytes] = []

    def handle(message: ConsumedMessage) -> None:
        begun.append(message.body)
        if message.body == b"hangs":
            go_on.wait(10)

    async with mq.consumer("g", "T", from_where="first", consume_timeout=0.1) as member:
        run = asyncio.create_task(member.run(handle, 1))
        await until(lambda: sent_back(broker) == [("0", "3")])
        assert begun == [b"hangs"], "there is no thread for another"
        go_on.set()
        await until(lambda: begun == [b"hangs", b"fine", b"hangs"])
    await run
    assert broker.offsets["g", "T", 0] == 2


async def test_a_cancelled_block_is_not_mistaken_for_one_that_hangs(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"]
    async with mq.consumer("g", "T", from_where="first", consume_timeout=0.05) as member:
        message = await anext(member)

        async def work() -> None:
            async with message.process():
                await asyncio.sleep(100)

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        (block,) = message.process_queue.blocks
        task.cancel()
        block.interrupt()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await anext(member)).queue_offset == 0, "it wasn't ended, and comes again"


async def test_a_refusal_on_its_way_is_not_interrupted(mq: Client, broker: FakeBroker) -> None:
    """The handler has failed in time, but the broker is slow to take its message back."""
    broker.stored["T", 0] = [b"x"]
    go_on = asyncio.Event()

    async def slow(header: Any, request: Any, connection: Any) -> Any:
        await go_on.wait()
        return codec.reply(request)

    broker._dispatch._handlers[RequestCode.CONSUMER_SEND_MSG_BACK] = (SendMessageBack, slow)

    async def handle(message: ConsumedMessage) -> None:
        raise ValueError

    async with mq.consumer("g", "T", from_where="first", consume_timeout=0.1) as member:
        run = asyncio.create_task(member.run(handle, 1))
        await until(lambda: sent_back(broker))
        await asyncio.sleep(0.3)
        assert len(sent_back(broker)) == 1
        go_on.set()
        await until(lambda: member._cache.messages == 0)
        assert not run.done()
    await run
    assert broker.offsets["g", "T", 0] == 1


async def test_a_handler_that_raises_when_it_is_broken_off(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"]
    done: list[int] = []

    async def handle(message: ConsumedMessage) -> None:
        if not message.reconsume_times:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                raise ValueError("in its own words") from None
        done.append(message.reconsume_times)

    async with mq.consumer("g", "T", from_where="first", consume_timeout=0.1) as member:
        run = asyncio.create_task(member.run(handle, 1))
        await until(lambda: done == [1])
    await run
    assert broker.offsets["g", "T", 0] == 1
