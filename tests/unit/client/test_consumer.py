"""Consumers against scripted brokers: what they ask, what they make of the answers, and how they leave."""

import asyncio
import json as plain_json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from rockmq.base.errors import ClientClosed, ClientError
from rockmq.client import (
    Client,
    Consumer,
    ConsumerOptions,
    MessageQueue,
    allocate,
    consumer,
    outcomes,
    pull,
    rebalance,
    routes,
    share,
    taking,
)
from rockmq.client.consumer_options import Options
from rockmq.client.delivery import ConsumedMessage
from rockmq.protocol import codec, json, properties
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.admin import ConsumeDirectly, GetConsumerRunningInfo, ResetConsumerOffset
from rockmq.protocol.headers.offset import QueryConsumerOffset, UpdateConsumerOffset
from rockmq.protocol.headers.pull import Pull
from rockmq.remoting.connection import Connection
from rockmq.remoting.dispatch import Answer
from tests.unit.client.fakes import FakeBroker, FakeNames, empty, pulled, record, refusal


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses that only cost time here."""
    monkeypatch.setattr(rebalance, "TAKE_OVER_SECONDS", 0.1)
    monkeypatch.setattr(rebalance, "GAP_SECONDS", 0.02)
    monkeypatch.setattr(rebalance, "RETURN_SECONDS", 0.3)
    monkeypatch.setattr(outcomes, "REDELIVER_SECONDS", 0.3)
    monkeypatch.setattr(share, "GIVE_UP_SECONDS", 0.2)


def topic_pulls(broker: FakeBroker) -> list[Pull]:
    return [header for header in broker.pulls if header.topic == "T"]


async def until(condition: object, timeout: float = 5) -> None:
    assert callable(condition)
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.01)


async def test_what_brokers_are_told(mq: Client, broker: FakeBroker) -> None:
    async with mq.consumer("g", {"T": "paid || refund"}, from_where="first") as member:
        assert [queue.queue_id for queue in member.queues] == [0, 1, 2, 3]
        beat = broker.beats[0]
        assert beat.client_id == mq.client_id
        (data,) = beat.consumer_data_set
        assert (data.group_name, data.consume_type, data.message_model) == ("g", "CONSUME_PASSIVELY", "CLUSTERING")
        assert data.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
        assert {each.topic: each.tags_set for each in data.subscription_data_set} == {
            "T": ["paid", "refund"],
            "%RETRY%g": [],
        }
        await until(lambda: len(topic_pulls(broker)) == 4)
        await asyncio.sleep(0.1)
        assert sorted(header.queue_id for header in topic_pulls(broker)) == [0, 1, 2, 3], "one waiting pull a queue"
        header = topic_pulls(broker)[0]
        assert (header.suspend_timeout_millis, header.sys_flag, header.queue_offset) == (15_000, 2, 0)
        assert header.sub_version == data.subscription_data_set[0].sub_version
        order = [request.code for request in broker.asked]
        assert order.index(RequestCode.HEART_BEAT) == 0, "a broker knows us before anything else is asked"
    assert broker.count(RequestCode.UNREGISTER_CLIENT) == 1


async def test_messages_and_offsets(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"%d" % number for number in range(100)]
    async with mq.consumer("g", "T", from_where="first") as member:
        got = []
        async for message in member:
            async with message.process():
                got.append(message.body)
            if len(got) == 100:
                break
        assert got == broker.stored["T", 0]
        await member.commit()
        assert broker.offsets["g", "T", 0] == 100
    assert broker.offsets["g", "T", 1] == 0


async def test_the_offset_waits_for_what_is_not_finished(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"] * 5
    async with mq.consumer("g", "T", from_where="first") as member:
        messages: list[ConsumedMessage] = []
        while len(messages) < 5:
            messages += await member.fetch(5)
        for message in messages:
            if message.queue_offset != 2:
                await message.ack()
    assert broker.offsets["g", "T", 0] == 2


async def test_pulls_commit_too(mq: Client, broker: FakeBroker) -> None:
    acknowledged = asyncio.Event()

    async def second(request: Command) -> Command:
        await acknowledged.wait()
        return pulled(request, 1, [record("T", 0, 1, b"x")], 2)

    def answer(header: Pull, request: Command, connection: Connection) -> object:
        if header.topic != "T" or header.queue_id or header.queue_offset > 1:
            return "silence"
        return second(request) if header.queue_offset else pulled(request, 0, [record("T", 0, 0, b"x")], 1)

    broker.on_pull = answer
    async with mq.consumer("g", "T", from_where="first") as member:
        (message,) = await member.fetch()
        await message.ack()
        acknowledged.set()
        await until(lambda: any(header.queue_offset == 2 for header in topic_pulls(broker)))
        pulls = [header for header in topic_pulls(broker) if header.queue_id == 0]
        assert [(header.sys_flag & 1, header.commit_offset) for header in pulls] == [(0, 0), (0, 0), (1, 1)]


@pytest.mark.parametrize(("stored", "from_where", "start"), [(3, "last", 3), (None, "last", 5), (None, "first", 0)])
async def test_where_a_group_begins(mq: Client, broker: FakeBroker, stored: int | None, from_where: str, start: int) -> None:
    broker.stored["T", 0] = [b"x"] * 5
    if stored is not None:
        broker.offsets["g", "T", 0] = stored
    async with mq.consumer("g", "T", from_where=from_where):  # type: ignore[arg-type]
        await until(lambda: any(header.queue_id == 0 for header in topic_pulls(broker)))
    assert next(header.queue_offset for header in topic_pulls(broker) if header.queue_id == 0) == start


async def test_that_a_start_isnt_known_is_told_once(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rebalance, "UNSETTLED_SECONDS", 0.05)
    asked = dict.fromkeys(range(4), 0)
    answer = broker._query

    def late(header: QueryConsumerOffset, request: Command, connection: Connection) -> Command:
        asked[header.queue_id] += 1
        if header.topic == "T" and asked[header.queue_id] < 4:
            return refusal(request, ResponseCode.SYSTEM_ERROR)
        return answer(header, request, connection)

    broker.handle(RequestCode.QUERY_CONSUMER_OFFSET, late)
    async with mq.consumer("g", "T") as member:
        assert len([queue for queue in member.queues if queue.topic == "T"]) == 4
    assert caplog.text.count("where to begin in queue") == 4, "once for each"


async def test_tags_are_compared_by_text(mq: Client, broker: FakeBroker) -> None:
    # "Aa" and "BB" have the same hash code in Java, so a broker passes both.
    def answer(header: Pull, request: Command, connection: Connection) -> object:
        if header.topic != "T" or header.queue_id or header.queue_offset:
            return "silence"
        records = [record("T", 0, n, b"%d" % n, {"TAGS": tag}) for n, tag in enumerate(["Aa", "BB", "Aa"])]
        return pulled(request, 0, [*records, record("T", 0, 3, b"3")], 4)

    broker.on_pull = answer
    async with mq.consumer("g", {"T": "Aa"}, from_where="first") as member:
        messages: list[ConsumedMessage] = []
        while len(messages) < 2:
            messages += await member.fetch()
        assert [message.body for message in messages] == [b"0", b"2"]
        for message in messages:
            await message.ack()
        assert await member.fetch(timeout=0.1) == []
    assert broker.offsets["g", "T", 0] == 4


async def test_answers_without_messages_move_on(mq: Client, broker: FakeBroker) -> None:
    def answer(header: Pull, request: Command, connection: Connection) -> object:
        if header.topic != "T" or header.queue_id or header.queue_offset >= 50:
            return "silence"
        return empty(request, ResponseCode.PULL_RETRY_IMMEDIATELY, header.queue_offset + 10)

    broker.on_pull = answer
    async with mq.consumer("g", "T", from_where="first"):
        await until(lambda: any(header.queue_offset == 50 for header in topic_pulls(broker)))
    assert broker.offsets["g", "T", 0] == 50


async def test_a_broker_that_holds_no_pulls_is_not_stormed(mq: Client, broker: FakeBroker) -> None:
    broker.on_pull = lambda header, request, _: empty(request, ResponseCode.PULL_NOT_FOUND, header.queue_offset)
    async with mq.consumer("g", "T", from_where="first"):
        await asyncio.sleep(1)
    assert len(topic_pulls(broker)) < 4 * 12


async def test_a_broker_that_finds_nothing_and_says_it_has_is_not_stormed(mq: Client, broker: FakeBroker) -> None:
    broker.on_pull = lambda header, request, _: pulled(request, header.queue_offset, [], 5)
    async with mq.consumer("g", "T", from_where="first"):
        await asyncio.sleep(0.5)
    assert len(topic_pulls(broker)) < 4 * 12


@pytest.mark.parametrize("code", [1, 2, 16, 17, 24, 25, 26, 209, 215])
async def test_refused_pulls_are_tried_again_with_pauses(mq: Client, broker: FakeBroker, code: int) -> None:
    broker.stored["T", 0] = [b"x"]
    broker.on_pull = lambda header, request, _: (
        refusal(request, code) if sum(each.queue_id == header.queue_id for each in topic_pulls(broker)) < 4 else None
    )
    async with mq.consumer("g", "T", from_where="first") as member:
        (message,) = await member.fetch(timeout=5)
        await message.ack()
        if code in (24, 25):
            assert len(broker.beats) > 1, "a broker that doesn't know us gets a heartbeat"


async def test_an_offset_the_broker_has_not(mq: Client, broker: FakeBroker) -> None:
    broker.offsets["g", "T", 0] = 500

    def answer(header: Pull, request: Command, connection: Connection) -> object:
        if header.topic != "T" or header.queue_id:
            return "silence"
        if header.queue_offset == 500:
            return empty(request, ResponseCode.PULL_OFFSET_MOVED, 20)
        return pulled(request, 20, [record("T", 0, 20, b"x")], 21) if header.queue_offset == 20 else "silence"

    broker.on_pull = answer
    async with mq.consumer("g", "T") as member:
        (message,) = await member.fetch(timeout=5)
        assert message.queue_offset == 20
        await until(lambda: broker.offsets["g", "T", 0] == 20)
        await message.ack()
    assert broker.offsets["g", "T", 0] == 21


async def test_answers_that_make_no_sense_are_survived(mq: Client, broker: FakeBroker) -> None:
    bad = [b"\x00\x00\x00\x05rubbish", record("T", 0, 0, b"x")[:-3], record("T", 0, 0, b"x") + record("T", 0, 0, b"y")]

    def answer(header: Pull, request: Command, connection: Connection) -> object:
        if header.topic != "T" or header.queue_id:
            return "silence"
        return pulled(request, 0, [bad.pop()], 1) if bad else None

    broker.stored["T", 0] = [b"x", b"y"]
    broker.on_pull = answer
    async with mq.consumer("g", "T", from_where="first") as member:
        bodies: set[bytes] = set()
        async with asyncio.timeout(20):
            while bodies != {b"x", b"y"}:
                for message in await member.fetch():
                    bodies.add(message.body)
                    await message.ack()


# Messages that fail


async def test_refused_messages_come_again_here_when_the_broker_does_not_take_them(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"bad", b"good"]
    async with mq.consumer("g", "T", from_where="first") as member:
        messages: list[ConsumedMessage] = []
        while len(messages) < 2:
            messages += await member.fetch()
        await messages[0].nack()
        await messages[1].ack()
        await member.commit()
        assert broker.offsets["g", "T", 0] == 0, "the refused one holds the offset"
        (again,) = await member.fetch(timeout=5)
        assert (again.body, again.reconsume_times) == (b"bad", 1)
        await again.nack()
        (again,) = await member.fetch(timeout=5)
        assert again.reconsume_times == 2
        await again.ack()
    assert broker.offsets["g", "T", 0] == 2
    back = [request.fields for request in broker.asked if request.code == RequestCode.CONSUMER_SEND_MSG_BACK]
    assert back[0]["originTopic"] == "T"
    assert back[0]["group"] == "g"
    assert back[0]["offset"] == "0"
    assert back[0]["maxReconsumeTimes"] == "16"


async def test_refused_messages_go_to_the_retry_topic_when_they_can_not_be_given_back(
    mq: Client, broker: FakeBroker, names: FakeNames
) -> None:
    names.add("%RETRY%g", broker, queues=1)
    broker.stored["T", 0] = [b"bad", b"worse"]
    async with mq.consumer("g", "T", from_where="first") as member:
        message, other = await member.fetch(timeout=5)
        await message.nack()
        await other.nack(-1)
        await member.commit()
        assert broker.offsets["g", "T", 0] == 2, "the retry topic has them"
    assert broker.stored["%RETRY%g", 0] == [b"bad", b"worse"]
    first, last = (header for header in broker.headers if header.topic == "%RETRY%g")
    found = properties.decode((first.properties or "").encode())
    assert (first.reconsume_times, first.max_reconsume_times, found["DELAY"]) == (1, 16, "3")
    assert (found["RETRY_TOPIC"], found["ORIGIN_MESSAGE_ID"]) == ("T", message.stored.offset_id)
    assert not found.keys() & {"RECONSUME_TIME", "MAX_RECONSUME_TIMES"}
    assert last.max_reconsume_times == 0, "no further try is wanted"


async def test_handlers_run_side_by_side_and_failures_are_repeated(mq: Client, broker: FakeBroker) -> None:
    for queue in range(4):
        broker.stored["T", queue] = [b"%d-%d" % (queue, number) for number in range(20)]
    running = most = 0
    done: list[bytes] = []
    failed: set[bytes] = set()

    async def handle(message: ConsumedMessage) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        if message.body.endswith(b"7") and message.body not in failed:
            failed.add(message.body)
            raise ValueError("the first time always fails")
        done.append(message.body)

    async with mq.consumer("g", "T", from_where="first") as member:
        run = asyncio.create_task(member.run(handle, concurrency=5))
        await until(lambda: len(done) == 80)
    await run
    assert most == 5
    assert sorted(done) == sorted(body for queue in range(4) for body in broker.stored["T", queue])
    assert {broker.offsets["g", "T", queue] for queue in range(4)} == {20}


async def test_a_cancelled_run_loses_nothing(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"%d" % number for number in range(10)]

    async def forever(message: ConsumedMessage) -> None:
        await asyncio.sleep(100)

    async with mq.consumer("g", "T", from_where="first") as member:
        run = asyncio.create_task(member.run(forever, concurrency=3))
        await until(lambda: member._inbox.in_flight == 3)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        bodies: set[bytes] = set()
        while len(bodies) < 10:
            for message in await member.fetch():
                bodies.add(message.body)
                await message.ack()
    assert broker.offsets["g", "T", 0] == 10


async def test_nothing_goes_on_after_a_close_that_is_cancelled(mq: Client, broker: FakeBroker) -> None:
    member = mq.consumer("g", "T")
    await member.start()
    await until(lambda: len(topic_pulls(broker)) == 4)
    closing = asyncio.create_task(member.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await asyncio.sleep(0)
    kinds = ("pull of", "rebalance of g", "offsets of g", "figures of g")
    assert not [each.get_name() for each in asyncio.all_tasks() if each.get_name().startswith(kinds)]
    assert broker.count(RequestCode.UNREGISTER_CLIENT) == 1


async def test_backpressure(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"] * 3000
    async with mq.consumer("g", "T", from_where="first", max_in_flight=10) as member:
        await until(lambda: len(member._inbox._ready) >= 1000)
        await asyncio.sleep(0.1)
        assert len(member._inbox._ready) < 1000 + pull.COUNT_MAX
        assert len(await member.fetch(100)) == 10
        assert await member.fetch(100, timeout=0.05) == []


# Sharing


async def test_two_members_share(names: FakeNames, broker: FakeBroker) -> None:
    async with Client(names.address) as first, Client(names.address) as second:
        one = await started(first)
        assert len(one.queues) == 4
        two = await started(second)
        await tell_members(broker)
        await until(lambda: len(one.queues) == len(two.queues) == 2)
        assert not set(one.queues) & set(two.queues)


async def test_who_hears_of_no_change_finds_out(mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may not tell its members of each other (notifyConsumerIdsChangedEnable), or what it tells may be lost."""
    monkeypatch.setattr(rebalance, "PERIOD_SECONDS", 0.3)
    member = await started(mq)
    assert len(member.queues) == 4
    broker.members = sorted([mq.client_id, "zzz"])
    await until(lambda: [queue.queue_id for queue in member.queues] == [0, 1])
    broker.members = [mq.client_id]
    await until(lambda: len(member.queues) == 4)


async def test_what_is_given_up_is_committed_when_its_handlers_have_ended(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 3] = [b"x"] * 3
    member = await started(mq, from_where="first")
    got = await member.fetch(3)
    while len(got) < 3:
        got += await member.fetch(3)
    broker.members = sorted([mq.client_id, "0"])  # the stranger sorts first and gets queues 0 and 1
    broker.members = sorted([mq.client_id, "zzz"])  # now it sorts last and gets 2 and 3
    await tell_members(broker)
    await asyncio.sleep(0.05)
    for message in got:
        await message.ack()
    await until(lambda: [queue.queue_id for queue in member.queues] == [0, 1])
    assert broker.offsets["g", "T", 3] == 3


async def test_unfinished_messages_of_a_lost_queue_do_not_matter(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 3] = [b"x"] * 3
    member = await started(mq, from_where="first")
    await until(lambda: len(member._inbox._ready) == 3)
    first, second = await member.fetch(2)
    await first.ack()
    broker.members = sorted([mq.client_id, "zzz"])
    await tell_members(broker)
    await until(lambda: [queue.queue_id for queue in member.queues] == [0, 1])
    assert broker.offsets["g", "T", 3] == 1
    await second.ack()
    await member.commit()
    assert broker.offsets["g", "T", 3] == 1
    assert await member.fetch(timeout=0.1) == []


async def test_members_that_can_not_be_had_change_nothing(mq: Client, broker: FakeBroker) -> None:
    member = await started(mq)
    broker.members = []
    await tell_members(broker)
    await asyncio.sleep(0.2)
    assert len(member.queues) == 4
    broker.members = ["stranger"]
    await tell_members(broker)
    await asyncio.sleep(0.2)
    assert len(member.queues) == 4


async def test_new_queues_are_taken(mq: Client, broker: FakeBroker, names: FakeNames) -> None:
    member = await started(mq)
    names.add("T", broker, queues=6)
    mq._instance.routes.refresh_soon("T")
    await until(lambda: len(member.queues) == 6)


async def test_new_queues_are_found_without_a_hint(
    names: FakeNames, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "REFRESH_SECONDS", 0.2)
    async with Client(names.address) as mq:
        member = await started(mq)
        names.add("T", broker, queues=6)
        await until(lambda: len(member.queues) == 6)


async def test_a_topic_that_comes_later(mq: Client, broker: FakeBroker, names: FakeNames) -> None:
    member = await started(mq, "Later")
    assert member.queues == []
    names.add("Later", broker)
    await until(lambda: len(member.queues) == 4)


async def test_a_broker_that_comes_back(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"before"]
    member = await started(mq, from_where="first")
    (message,) = await member.fetch()
    await message.ack()
    await broker.stop()
    await asyncio.sleep(0.5)
    tried = broker.count(RequestCode.PULL_MESSAGE)
    broker.stored["T", 0].append(b"after")
    broker.beats.clear()
    broker.asked.clear()
    await broker.start()
    (message,) = await member.fetch(timeout=5)
    assert message.body == b"after"
    await message.ack()
    assert tried <= 10
    codes = [request.code for request in broker.asked]
    assert codes.index(RequestCode.HEART_BEAT) < codes.index(RequestCode.PULL_MESSAGE)
    assert len(member.queues) == 4


async def test_members_have_time_to_come_back(mq: Client, broker: FakeBroker) -> None:
    """Right after a broker's return it knows only those who were quick; their shares must not grow for that moment."""
    broker.members = sorted([mq.client_id, "zzz"])
    member = await started(mq)
    assert [queue.queue_id for queue in member.queues] == [0, 1]
    await broker.stop()
    await asyncio.sleep(0.1)
    broker.members = [mq.client_id]
    await broker.start()
    await until(lambda: broker.connections)
    await tell_members(broker)
    await asyncio.sleep(0.1)
    broker.members = sorted([mq.client_id, "zzz"])
    await asyncio.sleep(0.5)
    assert [queue.queue_id for queue in member.queues] == [0, 1]
    assert broker.count(RequestCode.QUERY_CONSUMER_OFFSET) == 2


# Beginning and end


async def test_close_waits_for_handlers(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"] * 4
    finished: list[int] = []

    async def slow(message: ConsumedMessage) -> None:
        await asyncio.sleep(0.2)
        finished.append(message.queue_offset)

    async with mq.consumer("g", "T", from_where="first") as member:
        run = asyncio.create_task(member.run(slow, concurrency=2))
        await until(lambda: member._inbox.in_flight == 2)
    await run
    assert finished == [0, 1]
    assert broker.offsets["g", "T", 0] == 2
    with pytest.raises(StopAsyncIteration):
        await anext(member)
    assert await member.fetch() == []


async def test_close_does_not_wait_for_what_nobody_works_on(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"]
    async with asyncio.timeout(60), mq.consumer("g", "T", from_where="first", drain_timeout=600) as member:
        assert len(await member.fetch()) == 1
    assert broker.offsets["g", "T", 0] == 0


async def test_close_gives_up_on_handlers_that_hang(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"]
    async with mq.consumer("g", "T", from_where="first", drain_timeout=0.2) as member:
        run = asyncio.create_task(member.run(lambda _: asyncio.sleep(100), concurrency=1))
        await until(lambda: member._inbox.in_flight == 1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert broker.offsets["g", "T", 0] == 0


async def test_close_without_a_broker(mq: Client, broker: FakeBroker) -> None:
    async with asyncio.timeout(30), mq.consumer("g", "T", drain_timeout=600):
        await broker.stop()


async def test_start_without_a_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rockmq.client.member.START_TIMEOUT", 0.3)
    async with Client("127.0.0.1:1") as mq, mq.consumer("g", "T") as member:
        assert member.queues == []
        assert await member.fetch(timeout=0.1) == []


async def test_one_consumer_of_a_group_in_a_client(mq: Client, broker: FakeBroker) -> None:
    member = await started(mq)
    with pytest.raises(ClientError, match="already has a consumer"):
        await mq.consumer("g", "T").start()
    assert len(member.queues) == 4
    await member.close()
    again = await started(mq)
    assert len(again.queues) == 4


async def test_misuse(mq: Client, broker: FakeBroker) -> None:
    member = mq.consumer("g", "T")
    for call in (member.fetch(), anext(member), member.run(lambda _: asyncio.sleep(0), concurrency=1)):
        with pytest.raises((ClientClosed, ExceptionGroup)):
            await call
    with pytest.raises(ClientError, match="group"):
        mq.consumer("bad group", "T")
    with pytest.raises(ClientError, match="at least one"):
        mq.consumer("g", [])


# Other topics, other options


async def test_subscribing_and_unsubscribing(mq: Client, broker: FakeBroker, names: FakeNames) -> None:
    names.add("U", broker, queues=2)
    broker.stored["U", 0] = [b"u"]
    member = await started(mq, from_where="first")
    await member.subscribe("U", "red || blue")
    assert {queue.queue_id for queue in member.queues if queue.topic == "U"} == {0, 1}
    said = {each.topic: each.tags_set for each in broker.beats[-1].consumer_data_set[0].subscription_data_set}
    assert said == {"T": [], "U": ["blue", "red"], "%RETRY%g": []}
    assert await member.fetch(timeout=0.1) == [], "it has no tag"
    version = broker.beats[-1].consumer_data_set[0].subscription_data_set[-1].sub_version
    await asyncio.sleep(0.002)
    await member.subscribe("U", "green")
    fresh = broker.beats[-1].consumer_data_set[0].subscription_data_set[-1]
    assert (fresh.tags_set, fresh.sub_version > version) == (["green"], True)
    await until(lambda: [each.sub_version for each in broker.pulls if each.topic == "U"][-1] == fresh.sub_version)
    await member.unsubscribe("U")
    assert {queue.topic for queue in member.queues} == {"T"}
    assert "U" not in {each.topic for each in broker.beats[-1].consumer_data_set[0].subscription_data_set}
    assert broker.offsets["g", "U", 0] == 1
    with pytest.raises(ClientError, match="isn't subscribed to 'U'"):
        await member.unsubscribe("U")


async def test_closing_ends_a_subscribe_that_waits(mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance, "RETURN_SECONDS", 30.0)
    member = await started(mq)
    member.reconnected()  # shares are worked out in half a minute
    await asyncio.sleep(0)
    subscribing = asyncio.create_task(member.subscribe("T", "red"))
    await until(lambda: len(broker.beats) >= 3)
    await asyncio.sleep(0.05)
    assert not subscribing.done()
    await member.close()
    with pytest.raises(ClientClosed):
        await subscribing


async def test_options_have_the_types_and_bounds_they_say(mq: Client, broker: FakeBroker) -> None:
    assert get_type_hints(ConsumerOptions) == get_type_hints(Options)
    for wrong in ({"pull_batch": 0}, {"max_in_flight": 0}, {"suspend": 31.0}, {"consume_timeout": 0.0}):
        with pytest.raises(ClientError, match=f"{next(iter(wrong))}=.* is out of range"):
            mq.consumer("g", "T", **wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pul_batch"):
        mq.consumer("g", "T", pul_batch=5)  # type: ignore[call-arg]


async def test_pulls_as_told(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"] * 100
    async with mq.consumer("g", "T", from_where="first", pull_batch=7, topic_messages_max=40) as member:
        await until(lambda: len(member._inbox._ready) == 14)
        await asyncio.sleep(0.1)
        assert len(member._inbox._ready) == 14, "a quarter of 40 is reached by two pulls of seven"
        assert {header.max_msg_nums for header in broker.pulls} == {7}


async def test_a_pause_after_each_pull(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"] * 100
    async with mq.consumer("g", "T", from_where="first", pull_batch=1, pull_interval=0.1):
        await until(lambda: len(topic_pulls(broker)) >= 4)
        await asyncio.sleep(0.5)
        assert sum(header.queue_id == 0 for header in topic_pulls(broker)) < 10


async def test_another_strategy(mq: Client, broker: FakeBroker) -> None:
    broker.members = sorted([mq.client_id, "zzz"])
    async with mq.consumer("g", "T", allocate=allocate.in_a_circle) as member:
        assert [queue.queue_id for queue in member.queues] == [0, 2]
        member._share.rebalancer._strategy = lambda queues, clients, client: [MessageQueue("T", "nowhere", 7)]
        await member._share.rebalancer.now()
        assert [queue.queue_id for queue in member.queues] == [0, 2], "a strategy that makes no sense changes nothing"


async def test_max_reconsume_times(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x", b"y"]
    async with mq.consumer("g", "T", from_where="first", max_reconsume_times=3) as member:
        await (await anext(member)).nack()
        await (await anext(member)).dead_letter()
    back = [request.fields for request in broker.asked if request.code == RequestCode.CONSUMER_SEND_MSG_BACK]
    assert [(each["maxReconsumeTimes"], each["delayLevel"]) for each in back] == [("3", "0"), ("3", "-1")]


async def test_offsets_are_told_when_they_change(mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "PERSIST_SECONDS", 0.05)
    broker.stored["T", 0] = [b"x"]
    member = await started(mq, from_where="first")
    await until(lambda: broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) == 4)
    await asyncio.sleep(0.2)
    assert broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) == 4
    await (await anext(member)).ack()
    await until(lambda: broker.offsets["g", "T", 0] == 1)
    assert broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) == 5
    member.reconnected()
    await until(lambda: broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) == 9)


async def test_what_was_told_is_not_stored_behind_what_is_committed(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers with many threads may carry out two requests of one connection in either order."""
    monkeypatch.setattr(consumer, "PERSIST_SECONDS", 0.05)
    broker.stored["T", 0] = [b"x", b"y"]
    late: list[Callable[[], None]] = []

    def update(header: UpdateConsumerOffset, request: Command, connection: Connection) -> Answer | Awaitable[Answer]:
        if late or header.commit_offset != 1:
            return broker._update(header, request, connection)
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        late.append(lambda: answer.set_result(broker._update(header, request, connection)))
        return answer

    broker.handle(RequestCode.UPDATE_CONSUMER_OFFSET, update)
    member = await started(mq, from_where="first")
    await (await anext(member)).ack()
    await until(lambda: late)
    await (await anext(member)).ack()
    told = broker.count(RequestCode.UPDATE_CONSUMER_OFFSET)
    closing = asyncio.create_task(member.close())
    await until(lambda: broker.count(RequestCode.UPDATE_CONSUMER_OFFSET) >= told + 3)
    late[0]()
    await closing
    assert broker.offsets["g", "T", 0] == 2


# Broadcasts


async def test_a_broadcast_has_every_queue_and_a_file(names: FakeNames, broker: FakeBroker, tmp_path: Path) -> None:
    broker.stored["T", 0] = [b"bad", b"good"]
    broker.members = ["zzz"]
    async with Client(names.address) as mq:
        async with mq.consumer("g", "T", from_where="first", broadcast=True, offsets_directory=tmp_path) as member:
            assert [queue.queue_id for queue in member.queues] == [0, 1, 2, 3]
            (data,) = broker.beats[0].consumer_data_set
            assert (data.message_model, [each.topic for each in data.subscription_data_set]) == ("BROADCASTING", ["T"])
            await (await anext(member)).nack()
            await (await anext(member)).ack()
            with pytest.raises(ClientError, match="another consumer keeps its offsets"):
                async with Client(names.address) as other:
                    await other.consumer("g", "T", broadcast=True, offsets_directory=tmp_path).start()
        async with mq.consumer("g", "T", broadcast=True, offsets_directory=tmp_path) as member:
            assert await member.fetch(timeout=0.1) == [], "the file tells that all is done"
    for code in (
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    ):
        assert not broker.count(code)
    assert not any(header.sys_flag & 1 for header in broker.pulls), "pulls commit nothing"


async def test_a_broadcast_in_order(mq: Client, broker: FakeBroker, tmp_path: Path) -> None:
    broker.stored["T", 0] = [b"bad", b"good"]
    tries: list[tuple[bytes, int]] = []

    async def handle(message: ConsumedMessage) -> None:
        tries.append((message.body, message.reconsume_times))
        if message.body == b"bad":
            raise ValueError

    async with mq.consumer(
        "g", "T", from_where="first", broadcast=True, order=True, max_reconsume_times=1, suspend=0.01,
        offsets_directory=tmp_path,
    ) as member:  # fmt: skip
        run = asyncio.create_task(member.run(handle))
        await until(lambda: len(tries) == 3)
    await run
    assert tries == [(b"bad", 0), (b"bad", 1), (b"good", 0)]
    assert not broker.count(RequestCode.LOCK_BATCH_MQ)


# What administrators ask and tell


async def test_running_info(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x", b"bad"]
    member = await started(mq, from_where="first")
    run = asyncio.create_task(member.run(fails_at_bad, 7))
    await until(lambda: member._share.stats["T"].work.done + member._share.stats["T"].work.failed == 2)
    (connection,) = broker.connections
    header = GetConsumerRunningInfo(consumer_group="g", client_id=mq.client_id)
    answer = await connection.invoke(codec.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header), 3)
    assert answer.code == 0
    assert b'"mqTable":{{"brokerName":"a","queueId":0,"topic":"T"}:{"commitOffset":' in answer.body
    info = plain_json.loads(json.standard(answer.body.decode()))
    assert "jstack" not in info
    said = info["properties"]
    assert (said["PROP_CONSUMEORDERLY"], said["PROP_THREADPOOL_CORE_SIZE"], said["pull_batch"]) == ("false", "7", "256")
    status = info["statusTable"]["T"]
    assert status.keys() == {"pullRT", "pullTPS", "consumeRT", "consumeOKTPS", "consumeFailedTPS", "consumeFailedMsgs"}
    assert (status["consumeFailedMsgs"], status["consumeOKTPS"]) == (1, 1)
    (first,) = (each for key, each in info["mqTable"].items() if plain_json.loads(key)["queueId"] == 0)
    assert abs(first["lastConsumeTimestamp"] - mq._instance.clock.now_ms()) < 60_000
    header.jstack_enable = True
    stacks = ""
    async with asyncio.timeout(10):
        while "g handler 0 and 6 more" not in stacks:  # the one that failed is still sending its message back
            answer = await connection.invoke(codec.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header), 3)
            stacks = plain_json.loads(json.standard(answer.body.decode()))["jstack"]
    assert "MainThread" in stacks
    assert "test_running_info" in stacks
    header.consumer_group = "other"
    answer = await connection.invoke(codec.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header), 3)
    assert answer.code == 1
    await member.close()
    await run


async def fails_at_bad(message: ConsumedMessage) -> None:
    if message.body == b"bad":
        raise ValueError("bad")


@pytest.mark.parametrize(("body", "result"), [(b"x", "CR_SUCCESS"), (b"bad", "CR_THROW_EXCEPTION")])
@pytest.mark.parametrize("order", [False, True])
async def test_a_message_handed_out_by_an_administrator(
    mq: Client, broker: FakeBroker, body: bytes, result: str, order: bool
) -> None:
    async with mq.consumer("g", "T", order=order) as member:
        run = asyncio.create_task(member.run(fails_at_bad, 2))
        (connection,) = broker.connections
        header = ConsumeDirectly(consumer_group="g", client_id=mq.client_id, msg_id="1", broker_name="a")
        request = codec.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, record("T", 0, 9, body))
        found = plain_json.loads((await connection.invoke(request, 3)).body)
        assert (found["consumeResult"], found["order"], found["autoCommit"]) == (result, order, True)
        assert found["remark"] == ("ValueError: bad" if body == b"bad" else None)
    await run
    assert broker.offsets["g", "T", 0] == 0


@pytest.mark.parametrize("order", [False, True])
async def test_a_broker_has_us_go_on_elsewhere(mq: Client, broker: FakeBroker, order: bool) -> None:
    broker.stored["T", 0] = [b"%d" % number for number in range(10)]
    broker.offsets["g", "T", 0] = 8
    async with mq.consumer("g", "T", order=order) as member:
        old = await anext(member)
        assert old.queue_offset == 8
        (connection,) = broker.connections
        table = json.object_map({MessageQueue("T", "a", 0).key(): 3, MessageQueue("T", "b", 0).key(): 1})
        header = ResetConsumerOffset(topic="T", group="g")
        connection.send_oneway(
            codec.request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, b'{"offsetTable":' + table + b"}")
        )
        await until(lambda: broker.offsets["g", "T", 0] == 3)
        await old.ack()
        assert (await asyncio.wait_for(anext(member), 5)).queue_offset == 3
        assert member.status("T")[MessageQueue("T", "a", 0)] == 3
    assert broker.offsets["g", "T", 0] == 3


async def started(mq: Client, topic: str = "T", from_where: str = "last") -> Consumer:
    member = mq.consumer("g", topic, from_where=from_where)  # type: ignore[arg-type]
    await member.start()
    return member


async def tell_members(broker: FakeBroker) -> None:
    """What a broker sends when a group's members change."""
    for connection in broker.connections:
        connection.send_oneway(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 0, fields={"consumerGroup": "g"}))


# Begun, ended, begun again


async def test_a_second_close_waits_for_the_first(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"]
    go_on = asyncio.Event()

    async def handle(message: ConsumedMessage) -> None:
        await go_on.wait()

    member = await started(mq, from_where="first")
    run = asyncio.create_task(member.run(handle))
    await until(lambda: member._inbox.in_flight == 1)
    closing = [asyncio.create_task(member.close()) for _ in range(2)]
    await asyncio.sleep(0.05)
    assert not any(each.done() for each in closing)
    assert member.closed
    go_on.set()
    await asyncio.gather(*closing, run)
    assert broker.offsets["g", "T", 0] == 1
    assert broker.count(RequestCode.UNREGISTER_CLIENT) == 1


async def test_subscribing_at_the_end_and_behind_it(mq: Client, broker: FakeBroker) -> None:
    member = await started(mq)
    held = asyncio.Event()
    beat = broker._handlers[RequestCode.HEART_BEAT]

    async def slow(header: Any, request: Command, connection: Connection) -> Any:
        await held.wait()
        return beat(header, request, connection)

    broker.handle(RequestCode.HEART_BEAT, slow)
    subscribing = asyncio.create_task(member.subscribe("T", "red"))
    await asyncio.sleep(0.05)
    closing = asyncio.create_task(member.close())
    await asyncio.sleep(0.05)
    held.set()
    for waiting in (subscribing, member.subscribe("T"), member.unsubscribe("T")):
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(waiting, 5)
    await closing


@pytest.mark.parametrize("kind", ["consumer", "pop_consumer", "lite_pull_consumer"])
async def test_one_that_never_started_leaves_nobodys_group(mq: Client, broker: FakeBroker, kind: str) -> None:
    member = await started(mq)
    late = getattr(mq, kind)("g", ["T"])
    with pytest.raises(ClientError, match="already has a consumer"):
        await late.start()
    await late.close()
    assert not broker.count(RequestCode.UNREGISTER_CLIENT)
    await mq._instance.heartbeat()
    assert [data.group_name for data in broker.beats[-1].consumer_data_set] == ["g"]
    await member.close()


async def test_a_fetch_that_may_not_wait_finds_what_is_there(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"] * 200
    async with mq.consumer("g", "T", from_where="first", max_in_flight=200) as member:
        await until(lambda: len(member._inbox._ready) == 200)
        assert [len(await member.fetch(1, timeout=0)) for _ in range(200)] == [1] * 200
        assert await member.fetch(1, timeout=0) == []


@pytest.mark.parametrize("kind", ["consumer", "pop_consumer"])
async def test_messages_that_administrators_hand_out_are_bounded_and_end(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(taking, "HANDED_MAX", 3)
    async with getattr(mq, kind)("g", ["T"]):
        (connection,) = broker.connections
        header = ConsumeDirectly(consumer_group="g", client_id=mq.client_id, msg_id="1", broker_name="a")
        asking = [
            asyncio.create_task(
                connection.invoke(
                    codec.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, record("T", 0, offset, b"x")), 5
                )
            )
            for offset in range(4)
        ]
        refused = await asking.pop()
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "3 messages" in (refused.remark or "")
    answers = [plain_json.loads((await each).body)["consumeResult"] for each in asking]
    assert answers == ["CR_LATER"] * 3, "nobody will work on them"


async def test_what_is_refused_late_is_not_handed_out_by_a_queue_that_leaves(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It couldn't be sent back, and waits for its next try when the queue goes to another member."""
    monkeypatch.setattr(share, "GIVE_UP_SECONDS", 0.6)
    broker.stored["T", 3] = [b"bad", b"slow"]
    member = await started(mq, from_where="first")
    bad = await anext(member)
    await anext(member)  # whom the queue waits for
    await bad.nack()
    broker.members = sorted([mq.client_id, "zzz"])
    await tell_members(broker)
    assert await member.fetch(timeout=0.5) == []
    await until(lambda: [queue.queue_id for queue in member.queues] == [0, 1])
    await member.close()


async def test_a_reset_at_the_end_begins_nothing(mq: Client, broker: FakeBroker) -> None:
    broker.stored["T", 0] = [b"x"] * 3
    member = await started(mq, from_where="first")
    async with (await anext(member)).process():
        closing = asyncio.create_task(member.close())
        await until(lambda: member.closed)
        await asyncio.sleep(0.05)
        pulls = len(broker.pulls)
        member.reset("T", {MessageQueue("T", "a", 0): 2})
        await asyncio.sleep(0.05)
    await closing
    assert len(broker.pulls) == pulls
    assert broker.offsets["g", "T", 0] == 1
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("pull of")]
