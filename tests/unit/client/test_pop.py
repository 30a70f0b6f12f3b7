"""Pop consumers, with a broker that does as told, and with a real one."""

import asyncio
import base64
import contextlib
import functools
import itertools
import os
import pickle
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.base.clock import SystemClock
from rockmq.base.errors import ProtocolError
from rockmq.client import BrokerFilter, Client, ClientClosed, ClientError, Message, PartDone, PopMessage, ResponseError
from rockmq.client.pop import received
from rockmq.protocol import codec, json, pop
from rockmq.protocol import properties as names_of
from rockmq.protocol.bodies.pop import BatchAckBody
from rockmq.protocol.bodies.route import TopicRouteData
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.client import HeartBeat, SendMessageBack, UnregisterClient
from rockmq.protocol.headers.pop import (
    Ack,
    BatchAck,
    ChangeInvisibleTime,
    ChangeInvisibleTimeResponse,
    Pop,
    PopResponse,
)
from rockmq.protocol.message import decode_stored
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer
from tests.support import process, server
from tests.unit.client.fakes import Fake, FakeBroker, FakeNames, record, refusal

ODD_NAME_HASHES = ("Aa", "BB")
"""Tags with the same hash code."""


class PopBroker(Fake):
    """Gives `records` of queue 0, then nothing; remembers what is acknowledged."""

    def __init__(self) -> None:
        super().__init__(
            {
                RequestCode.HEART_BEAT: self._fine,
                RequestCode.UNREGISTER_CLIENT: self._fine,
                RequestCode.POP_MESSAGE: self._pop,
                RequestCode.ACK_MESSAGE: self._ack,
                RequestCode.BATCH_ACK_MESSAGE: self._batch,
                RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
                RequestCode.CONSUMER_SEND_MSG_BACK: self._back,
            }
        )
        self.name = "a"
        self.records: list[bytes] = []
        self.next_offset = 0
        self.pops: list[Pop] = []
        self.refusals: list[int] = []
        self.acks: list[Ack] = []
        self.batches: list[BatchAckBody] = []
        self.changes: list[ChangeInvisibleTime] = []
        self.sent_back: list[SendMessageBack] = []
        self.hold_acks = asyncio.Event()
        self.hold_acks.set()
        self.hold_changes = asyncio.Event()
        self.hold_changes.set()
        self.knows_batches = True
        self.arrived = asyncio.Event()

    def put(self, *bodies: bytes, **carried: str) -> None:
        self.records += [record("T", 0, self.next_offset + at, body, carried) for at, body in enumerate(bodies)]
        self.arrived.set()

    @property
    def acknowledged(self) -> list[int]:
        """Offsets, however the broker was told."""
        parts = [part for batch in self.batches for part in batch.acks]
        many = [
            part.start_offset + bit for part in parts for bit in range(64) if int.from_bytes(part.bits, "little") >> bit & 1
        ]
        return sorted([*(ack.offset for ack in self.acks), *many])

    def _fine(self, header: HeartBeat | UnregisterClient, request: Command, connection: Connection) -> Command:
        return codec.reply(request)

    async def _pop(self, header: Pop, request: Command, connection: Connection) -> Answer:
        self.pops.append(header)
        if self.refusals:
            return refusal(request, self.refusals.pop(0))
        while not self.records:
            self.arrived.clear()
            await self.arrived.wait()
        taken, self.records = self.records[: header.max_msg_nums], self.records[header.max_msg_nums :]
        offsets = list(range(self.next_offset, self.next_offset + len(taken)))
        self.next_offset += len(taken)
        answer = PopResponse(
            pop_time=1000,
            invisible_time=header.invisible_time,
            revive_qid=3,
            rest_num=0,
            start_offset_info=pop.start_offsets([("T", 0, offsets[0])]),
            msg_offset_info=pop.message_offsets([("T", 0, offsets)]),
        )
        return codec.reply(request, header=answer, body=b"".join(taken))

    async def _ack(self, header: Ack, request: Command, connection: Connection) -> Command:
        self.acks.append(header)
        await self.hold_acks.wait()
        return codec.reply(request)

    async def _batch(self, header: BatchAck, request: Command, connection: Connection) -> Command:
        if not self.knows_batches:
            return refusal(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self.batches.append(json.decode(request.body, BatchAckBody, "batch"))
        return codec.reply(request)

    async def _change(self, header: ChangeInvisibleTime, request: Command, connection: Connection) -> Command:
        self.changes.append(header)
        await self.hold_changes.wait()
        answer = ChangeInvisibleTimeResponse(pop_time=2000, invisible_time=header.invisible_time, revive_qid=4)
        return codec.reply(request, header=answer)

    def _back(self, header: SendMessageBack, request: Command, connection: Connection) -> Command:
        self.sent_back.append(header)
        return codec.reply(request)


@pytest.fixture
async def popping(names: FakeNames) -> AsyncIterator[PopBroker]:
    fake = PopBroker()
    await fake.start()
    names.add("T", fake)  # type: ignore[arg-type]  # it has what a route needs
    yield fake
    await fake.stop()


async def until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


# One pop


def test_handles_are_put_together_of_the_answer() -> None:
    stored = decode_stored(record("T", 2, 7, b"a") + record("%RETRY%g_T", 0, 1, b"b") + record("T", 2, 9, b"c"), "broker-a")
    told = PopResponse(
        pop_time=100,
        invisible_time=60,
        revive_qid=5,
        rest_num=0,
        start_offset_info="0 2 6;1 0 1",
        msg_offset_info="0 2 7,9;1 0 1",
        order_count_info="0 2 0;0 qo2%9 4",
    )
    found = received(stored, "T", "broker-a", told)
    assert [handle.text for _, handle in found] == [
        "6 100 60 5 0 broker-a 2 7",
        "1 100 60 5 1 broker-a 0 1",
        "6 100 60 5 0 broker-a 2 9",
    ]
    assert [message.reconsume_times for message, _ in found] == [0, 0, 4]
    assert {message.topic for message, _ in found} == {"T"}
    assert {message.properties[names_of.FIRST_POP_TIME] for message, _ in found} == {"100"}


def test_a_handle_that_the_broker_wrote_is_kept() -> None:
    written = "8 90 60 1 2 broker-a 0 8"
    told = PopResponse(pop_time=100, invisible_time=60, revive_qid=5, rest_num=0)
    stored = decode_stored(record("T", 0, 8, b"a", {names_of.POP_CK: written, names_of.FIRST_POP_TIME: "1"}), "broker-a")
    ((message, handle),) = received(stored, "T", "broker-a", told)
    assert handle.text == written
    assert message.properties[names_of.FIRST_POP_TIME] == "1"


def test_light_queues_lie_in_others() -> None:
    told = PopResponse(
        pop_time=1, invisible_time=6, revive_qid=0, rest_num=0, start_offset_info="0 0 40", msg_offset_info="0 0 40"
    )
    ((message, handle),) = received(decode_stored(record("T", 3, 7, b"a"), "b"), "%LMQ%x", "b", told)
    assert (handle.queue_id, handle.offset, message.topic) == (0, 40, "%LMQ%x")


def test_more_messages_than_offsets_are_refused() -> None:
    told = PopResponse(
        pop_time=1, invisible_time=6, revive_qid=0, rest_num=0, start_offset_info="0 0 7", msg_offset_info="0 0 7"
    )
    with pytest.raises(ProtocolError, match="more messages"):
        received(decode_stored(record("T", 0, 7, b"a") + record("T", 0, 8, b"b"), "b"), "T", "b", told)


# Acknowledgements


async def test_acknowledgements_gather_while_one_is_under_way(mq: Client, popping: PopBroker) -> None:
    popping.next_offset = 100
    popping.put(*[b"x"] * 20)
    async with mq.pop_consumer("g", ["T"]) as consumer:
        messages = await consumer.fetch(20, timeout=10)
        popping.hold_acks.clear()
        for message in messages:
            await message.ack()
            await asyncio.sleep(0)
        assert consumer.in_flight == 20
        popping.hold_acks.set()
        await until(lambda: consumer.in_flight == 0)
    assert [ack.extra_info for ack in popping.acks] == ["100 1000 60000 3 0 a 0 100"]
    ((part,),) = (batch.acks for batch in popping.batches)
    assert (part.topic, part.retry, part.queue_id, part.start_offset) == ("T", "0", 0, 100)
    assert int.from_bytes(part.bits, "little") == sum(1 << bit for bit in range(1, 20))
    assert base64.b64encode(part.bits) == b"/v8P"


async def test_brokers_that_know_no_batches_are_told_one_by_one(mq: Client, popping: PopBroker) -> None:
    popping.knows_batches = False
    popping.put(*[b"x"] * 5)
    async with mq.pop_consumer("g", ["T"]) as consumer:
        for message in await consumer.fetch(5, timeout=10):
            await message.ack()
        await until(lambda: consumer.in_flight == 0)
        popping.put(*[b"x"] * 5)
        for message in await consumer.fetch(5, timeout=10):
            await message.ack()
    assert sorted(ack.offset for ack in popping.acks) == list(range(10))
    assert popping.count(RequestCode.BATCH_ACK_MESSAGE) == 1


async def test_an_acknowledgement_survives_the_loss_of_the_connection(mq: Client, popping: PopBroker) -> None:
    popping.put(b"x")
    async with mq.pop_consumer("g", ["T"]) as consumer:
        (message,) = await consumer.fetch(timeout=10)
        await popping.stop()
        await message.ack()
        await asyncio.sleep(0.05)
        await popping.start()
        await until(lambda: consumer.in_flight == 0)
    assert [ack.offset for ack in popping.acks] == [0]


async def test_an_acknowledgement_waits_for_the_new_handle(mq: Client, popping: PopBroker) -> None:
    """Also when who extended it was cancelled meanwhile."""
    popping.put(b"x")
    async with mq.pop_consumer("g", ["T"]) as consumer:
        (message,) = await consumer.fetch(timeout=10)
        popping.hold_changes.clear()
        extending = asyncio.create_task(message.extend(30))
        await until(lambda: popping.changes)
        extending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await extending
        await message.ack()
        popping.hold_changes.set()
        await until(lambda: consumer.in_flight == 0)
    assert [ack.extra_info for ack in popping.acks] == ["0 2000 30000 4 0 a 0 0"]


@pytest.mark.parametrize(("retry_flag", "topic"), [("0", "T"), ("1", "%RETRY%g_T"), ("2", "%RETRY%g+T")])
async def test_what_comes_again_is_acknowledged_in_its_retry_topic(
    mq: Client, popping: PopBroker, retry_flag: str, topic: str
) -> None:
    popping.put(b"x", **{names_of.POP_CK: f"7 90 60 1 {retry_flag} a 0 7"})
    async with mq.pop_consumer("g", ["T"]) as consumer:
        (message,) = await consumer.fetch(timeout=10)
        await message.extend(5)
        await message.ack()
    assert [(change.topic, change.extra_info) for change in popping.changes] == [(topic, f"7 90 60 1 {retry_flag} a 0 7")]
    assert [(ack.topic, ack.extra_info) for ack in popping.acks] == [(topic, f"7 2000 5000 4 {retry_flag} a 0 7")]


# What becomes of messages


async def test_delays_grow_with_the_tries(mq: Client, popping: PopBroker) -> None:
    popping.put(b"x", b"y")
    async with mq.pop_consumer("g", ["T"], max_reconsume_times=3) as consumer:
        first, second = await consumer.fetch(timeout=10)
        await first.nack()
        second.stored.reconsume_times = 2
        await second.nack()
    assert [change.invisible_time for change in popping.changes] == [10_000, 60_000]


async def test_delays_of_ones_own(mq: Client, popping: PopBroker) -> None:
    popping.put(*[b"x"] * 4)
    async with mq.pop_consumer("g", ["T"]) as consumer:
        first, second, third, fourth = await consumer.fetch(timeout=10)
        second.stored.reconsume_times = 3
        async with first.process(retry=lambda tries: 2**tries, suppress=True):
            raise ValueError("the application failed")
        async with second.process(retry=lambda tries: 2**tries, suppress=True):
            raise ValueError("the application failed")
        async with fourth.process(retry=lambda tries: 1 // tries, suppress=True):
            raise ValueError("the application failed")
        with pytest.raises(ClientError, match="0 or more"):
            await third.retry(-1)
        await third.retry(timedelta(minutes=5))
    assert [change.invisible_time for change in popping.changes] == [1_000, 8_000, 10_000, 300_000]


async def test_what_was_tried_too_often_is_a_dead_letter(mq: Client, popping: PopBroker) -> None:
    popping.put(b"x")
    async with mq.pop_consumer("g", ["T"], max_reconsume_times=3) as consumer:
        (message,) = await consumer.fetch(timeout=10)
        message.stored.reconsume_times = 3
        await message.retry(1)
    assert [(back.delay_level, back.offset, back.origin_topic) for back in popping.sent_back] == [(-1, 0, "T")]
    assert [ack.offset for ack in popping.acks] == [0]


async def test_an_interrupted_handler_leaves_the_message_to_others(mq: Client, popping: PopBroker) -> None:
    popping.put(b"x")
    async with mq.pop_consumer("g", ["T"]) as consumer:

        async def hang(message: PopMessage) -> None:
            await asyncio.Event().wait()

        run = asyncio.create_task(consumer.run(hang, 1))
        await until(lambda: consumer.in_flight == 1)
        await asyncio.sleep(0.01)
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        (message,) = await consumer.fetch(timeout=10)
        await message.ack()
    assert [ack.offset for ack in popping.acks] == [0]
    assert not popping.changes


async def test_nothing_goes_on_after_a_close_that_is_cancelled(mq: Client, popping: PopBroker) -> None:
    popping.put(b"x")
    consumer = mq.pop_consumer("g", ["T"])
    await consumer.start()
    (message,) = await consumer.fetch(timeout=10)
    async with message.process():
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0.05)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert "pops of g" not in [each.get_name() for each in asyncio.all_tasks()]


async def test_other_tags_with_the_same_hash_are_acknowledged_unseen(mq: Client, popping: PopBroker) -> None:
    popping.records = [record("T", 0, at, tag.encode(), {names_of.TAGS: tag}) for at, tag in enumerate(ODD_NAME_HASHES)]
    async with mq.pop_consumer("g", {"T": "Aa"}) as consumer:
        (message,) = await consumer.fetch(timeout=10)
        assert message.body == b"Aa"
        await message.ack()
    assert popping.acknowledged == [0, 1]
    assert (popping.pops[0].exp, popping.pops[0].exp_type) == ("Aa", "TAG")


async def test_no_more_is_popped_than_may_be_in_flight(mq: Client, popping: PopBroker) -> None:
    popping.put(*[b"x"] * 100)
    async with mq.pop_consumer("g", ["T"], max_in_flight=40) as consumer:
        await until(lambda: consumer.in_flight == 40)
        await asyncio.sleep(0.02)
        assert [header.max_msg_nums for header in popping.pops] == [32, 8]
        for message in await consumer.fetch(5, timeout=10):
            await message.ack()
        await until(lambda: consumer.in_flight == 40)
        await until(lambda: len(popping.records) == 55)


async def test_a_pop_goes_on_after_refusals(mq: Client, popping: PopBroker) -> None:
    popping.refusals = [ResponseCode.POLLING_FULL, ResponseCode.POLLING_TIMEOUT, ResponseCode.SYSTEM_ERROR]
    popping.put(b"x")
    async with mq.pop_consumer("g", ["T"]) as consumer:
        (message,) = await consumer.fetch(timeout=10)
        await message.ack()
    assert not popping.refusals


async def test_what_a_pop_brings_after_the_end_is_given_back(mq: Client, popping: PopBroker) -> None:
    async with mq.pop_consumer("g", ["T"]):
        await until(lambda: popping.pops)
    popping.put(b"x")
    await until(lambda: popping.changes)
    assert [(change.offset, change.invisible_time, change.suspend) for change in popping.changes] == [(0, 0, True)]


class LaterClock(SystemClock):
    """The real one, some time ahead."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


async def test_late_messages_arent_delivered(names: FakeNames, popping: PopBroker) -> None:
    clock = LaterClock()
    popping.put(b"late")
    async with Client(names.address, clock=clock) as mq, mq.pop_consumer("g", ["T"]) as consumer:
        await until(lambda: consumer.in_flight == 1)
        clock.ahead = 61
        popping.put(b"x")
        (message,) = await consumer.fetch(timeout=10)
        assert message.body == b"x"
        await message.ack()


async def test_a_topic_that_comes_later_is_popped_then(mq: Client, names: FakeNames, popping: PopBroker) -> None:
    route = names.routes.pop("T")
    async with mq.pop_consumer("g", ["T"]) as consumer:
        assert consumer.queues == []
        names.routes["T"] = route
        popping.put(b"x")
        (message,) = await consumer.fetch(timeout=10)
        await message.ack()


async def test_who_pops_what_changes_with_the_route(mq: Client, names: FakeNames, popping: PopBroker) -> None:
    async with mq.pop_consumer("g", ["T"]) as consumer:
        assert [queue.broker_name for queue in consumer.queues] == ["a"]
        route, names.routes["T"] = names.routes["T"], TopicRouteData()
        await mq._instance.routes.fetch("T")
        await until(lambda: consumer.queues == [])
        names.routes["T"] = route
        await mq._instance.routes.fetch("T")
        await until(lambda: consumer.queues)


# Wrong use


async def test_wrong_use_is_told(mq: Client, broker: FakeBroker) -> None:
    with pytest.raises(ClientError, match="invisible is 0 s"):
        mq.pop_consumer("g", ["T"], invisible=0)
    with pytest.raises(ClientError, match="max_in_flight"):
        mq.pop_consumer("g", ["T"], max_in_flight=0)
    with pytest.raises(ClientError, match="from_where"):
        mq.pop_consumer("g", ["T"], from_where="then")  # type: ignore[arg-type]
    consumer = mq.pop_consumer("g", ["T"])
    with pytest.raises(ClientClosed, match="not started"):
        await consumer.fetch()


async def test_filters_that_a_broker_lacks_stop_the_start() -> None:
    async with embedded.serve(flush="ASYNC_FLUSH") as served, Client(served.namesrv) as mq:
        await mq.create_topic("orders", 1)
        with pytest.raises(ResponseError):
            async with mq.pop_consumer("g", {"orders": BrokerFilter("none")}):
                raise AssertionError("it began")


# A real broker


async def test_a_late_message_comes_again_and_one_member_is_enough() -> None:
    async with embedded.serve(flush="ASYNC_FLUSH") as served, Client(served.namesrv) as mq:
        await mq.create_topic("orders", 1)
        async with mq.producer("pg") as producer:
            await producer.send(Message("orders", b"x"))
        async with mq.pop_consumer("g", ["orders"], from_where="first", invisible=1) as consumer:
            first = await anext(consumer)
            again = await anext(consumer)  # nobody acknowledged the first
            assert (again.msg_id, again.reconsume_times) == (first.msg_id, 1)
            await again.extend(60)
            await again.ack()
            await until(lambda: consumer.in_flight == 1)  # that of the first, which the application still has


async def test_a_broker_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    """What was popped and not acknowledged comes again, and the consumer goes on by itself."""
    serve = functools.partial(
        server.serve, tmp_path, namesrv_port=process.free_port(), broker_port=process.free_broker_port()
    )
    got: set[str] = set()

    async def handle(message: PopMessage) -> None:
        got.add(message.msg_id)

    with contextlib.ExitStack() as stack:
        served = await asyncio.to_thread(stack.enter_context, serve())
        async with Client(served.namesrv) as mq:
            await mq.create_topic("orders", 4)
            async with (
                mq.producer("pg", timeout=60, retries=200) as producer,
                mq.pop_consumer("g", ["orders"], from_where="first", invisible=5) as consumer,
            ):
                run = asyncio.create_task(consumer.run(handle))
                messages = (Message("orders", b"x") for _ in range(500))
                sent = {(await producer.send(message)).msg_id for message in itertools.islice(messages, 250)}
                served.kill()
                await asyncio.to_thread(stack.enter_context, serve())
                sent |= {(await producer.send(message)).msg_id for message in messages}
                async with asyncio.timeout(60):
                    while got != sent or consumer.in_flight:
                        await asyncio.sleep(0.05)
            await run


# Handlers of other kinds


async def test_functions_run_on_threads(mq: Client, popping: PopBroker) -> None:
    popping.put(*[b"%d" % number for number in range(6)])
    together = threading.Barrier(3)

    def handle(message: PopMessage) -> None:
        assert threading.current_thread() is not threading.main_thread()
        together.wait(10)
        if message.body == b"5":
            raise StopIteration

    async with mq.pop_consumer("g", ["T"]) as consumer:
        run = asyncio.create_task(consumer.run(handle, 3, retry=lambda tries: 7))
        await until(lambda: popping.acknowledged == [0, 1, 2, 3, 4] and popping.changes)
    await run
    assert [(change.offset, change.invisible_time) for change in popping.changes] == [(5, 7000)]


def in_a_process(message: PopMessage) -> None:
    """A handler for processes; what it had is to be seen in a file."""
    with open(message.properties["file"], "a") as file:
        file.write(f"{os.getpid()} {message.topic} {message.queue_offset} {message.handle.offset}\n")
    assert message.body == b"fine"


async def test_functions_run_in_processes(mq: Client, popping: PopBroker, tmp_path: Path) -> None:
    path = tmp_path / "done"
    popping.put(b"fine", b"bad", file=str(path))
    async with mq.pop_consumer("g", ["T"]) as consumer:
        run = asyncio.create_task(consumer.run(in_a_process, 1, workers="processes"))
        async with asyncio.timeout(60):
            while consumer.in_flight or not path.exists():
                await asyncio.sleep(0.02)
    await run
    lines = [line.split() for line in path.read_text().splitlines()]
    assert [line[1:] for line in lines] == [["T", "0", "0"], ["T", "1", "1"]]
    assert str(os.getpid()) not in {line[0] for line in lines}
    assert popping.acknowledged == [0]
    assert [change.offset for change in popping.changes] == [1]


async def test_a_copy_in_another_process_cannot_be_ended(mq: Client, popping: PopBroker) -> None:
    popping.put(b"x")
    async with mq.pop_consumer("g", ["T"]) as consumer:
        message = await anext(consumer)
        copy = pickle.loads(pickle.dumps(message))
        assert (copy.body, copy.handle, copy.withdrawn) == (b"x", message.handle, False)
        for end in (PopMessage.ack, PopMessage.nack, PopMessage.dead_letter):
            with pytest.raises(ClientError, match="copy of the message"):
                await end(pickle.loads(pickle.dumps(message)))
        with pytest.raises(ClientError, match="copy of the message"):
            await copy.extend(5)
        await message.ack()


@pytest.mark.parametrize(
    ("way", "done", "refused"),
    [("return", [0, 1, 2], []), ("raise", [], [0, 1, 2]), ("part", [0, 1], [2]), ("single", [0, 2], [1])],
)
async def test_what_becomes_of_a_batch(
    mq: Client, popping: PopBroker, way: str, done: list[int], refused: list[int]
) -> None:
    popping.put(b"x", b"y", b"z")

    async def handle(batch: list[PopMessage]) -> None:
        assert [message.queue_offset for message in batch] == [0, 1, 2]
        if way == "raise":
            raise ValueError
        if way == "part":
            raise PartDone(2)
        if way == "single":
            await batch[1].nack()

    async with mq.pop_consumer("g", ["T"]) as consumer:
        await until(lambda: consumer.in_flight == 3)
        run = asyncio.create_task(consumer.run_batches(handle, 10, 1))
        await until(lambda: consumer.in_flight == 0)
    await run
    assert popping.acknowledged == done
    assert sorted(change.offset for change in popping.changes) == refused


async def test_a_batch_has_one_topic(mq: Client, names: FakeNames, popping: PopBroker) -> None:
    names.add("U", popping)  # type: ignore[arg-type]  # it has what a route needs
    batches: list[list[str]] = []

    async def handle(batch: list[PopMessage]) -> None:
        batches.append([message.topic for message in batch])

    async with mq.pop_consumer("g", ["T", "U"]) as consumer:
        await until(lambda: len(popping.pops) == 2)
        for _ in range(3):
            pops = len(popping.pops)
            popping.put(b"x", b"y")  # for one of the two that wait
            await until(lambda before=pops: len(popping.pops) > before)
        run = asyncio.create_task(consumer.run_batches(handle, 10, 1))
        await until(lambda: consumer.in_flight == 0)
    await run
    assert sum(map(len, batches)) == 6
    assert all(len(set(batch)) == 1 for batch in batches)


async def test_a_batch_in_order(mq: Client, popping: PopBroker) -> None:
    """It is one turn of its queue: what is behind comes when it is acknowledged; broken off, it comes again as it was."""
    popping.put(*[b"x"] * 5)
    batches: list[list[int]] = []
    hang = asyncio.Event()

    async def handle(batch: list[PopMessage]) -> None:
        batches.append([message.queue_offset for message in batch])
        if len(batches) == 2:
            await hang.wait()

    async with mq.pop_consumer("g", ["T"], order=True) as consumer:
        await until(lambda: consumer.in_flight == 5)
        run = asyncio.create_task(consumer.run_batches(handle, 2, 3))
        await until(lambda: len(batches) == 2)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert batches == [[0, 1], [2, 3]]
        run = asyncio.create_task(consumer.run_batches(handle, 10, 3))
        await until(lambda: consumer.in_flight == 0)
    await run
    assert batches == [[0, 1], [2, 3], [2, 3, 4]]
    assert popping.acknowledged == [0, 1, 2, 3, 4]


async def test_one_after_the_other_by_key_and_no_late_ones(names: FakeNames, popping: PopBroker) -> None:
    clock = LaterClock()
    popping.put(b"a0", b"b0", b"a1", b"b1")
    running: set[bytes] = set()
    done: list[bytes] = []
    late = asyncio.Event()

    async def handle(message: PopMessage) -> None:
        key = message.body[:1]
        assert key not in running
        running.add(key)
        if len(running) == 2:
            clock.ahead = 61
            late.set()
        await late.wait()
        running.discard(key)
        done.append(message.body)

    async with Client(names.address, clock=clock) as mq, mq.pop_consumer("g", ["T"]) as consumer:
        await until(lambda: consumer.in_flight == 4)
        run = asyncio.create_task(consumer.run(handle, 4, ordered_by=lambda message: message.body[:1]))
        await until(lambda: consumer.in_flight == 0)
    await run
    assert sorted(done) == [b"a0", b"b0"], "the others waited until their time was over"


# What brokers refuse


async def test_an_acknowledgement_that_is_refused_takes_no_other_along(
    mq: Client, popping: PopBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse_many(header: BatchAck, request: Command, connection: Connection) -> Command:
        return refusal(request, ResponseCode.SYSTEM_ERROR)

    async def refuse_one(header: Ack, request: Command, connection: Connection) -> Command:
        if header.offset == 3:
            return refusal(request, ResponseCode.MESSAGE_ILLEGAL)
        return await popping._ack(header, request, connection)

    popping.handle(RequestCode.BATCH_ACK_MESSAGE, refuse_many)
    popping.handle(RequestCode.ACK_MESSAGE, refuse_one)
    popping.put(*[b"x"] * 8)
    async with mq.pop_consumer("g", ["T"]) as consumer:
        for message in await consumer.fetch(8, timeout=10):
            await message.ack()
        await until(lambda: consumer.in_flight == 0)
    assert popping.acknowledged == [0, 1, 2, 4, 5, 6, 7]
    assert caplog.text.count("comes again") == 1


async def test_what_was_never_worked_on_has_no_time_of_work(mq: Client, popping: PopBroker) -> None:
    """Tried too often elsewhere, it is made a dead letter unseen."""
    popping.records = [record("T", 0, 0, b"x", reconsume_times=5)]
    async with mq.pop_consumer("g", ["T"], max_reconsume_times=3) as consumer:
        await until(lambda: popping.acknowledged == [0] and consumer.in_flight == 0)
    assert all(work.latency.seconds < 60 for work in mq.stats().consumption.values())


async def test_a_route_that_changes_at_the_end_is_not_popped(mq: Client, names: FakeNames, popping: PopBroker) -> None:
    other = PopBroker()
    other.name = "b"
    await other.start()
    popping.put(b"x")
    async with mq.pop_consumer("g", ["T"]) as consumer:
        async with (await anext(consumer)).process():
            closing = asyncio.create_task(consumer.close())
            await until(lambda: consumer.closed)
            names.add("T", popping, other)  # type: ignore[arg-type]  # they have what a route needs
            await mq._instance.routes.fetch("T")
            await asyncio.sleep(0.05)
        await closing
    assert not other.pops
    await other.stop()
