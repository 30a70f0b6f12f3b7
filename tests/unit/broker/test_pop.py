"""Pop: messages by request, acknowledged one by one (protocol spec, 4.7; store spec, 6.5)."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockmq.broker.pop import Popped, Pops
from rockmq.broker.server import Broker
from rockmq.protocol import codec, pop
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.admin import DeleteTopic
from rockmq.protocol.headers.offset import QueryConsumerOffset
from rockmq.protocol.headers.pop import (
    Ack,
    ChangeInvisibleTime,
    ChangeInvisibleTimeResponse,
    Notification,
    NotificationResponse,
    Peek,
    PollingInfo,
    PollingInfoResponse,
    Pop,
    PopResponse,
)
from rockmq.protocol.message import StoredMessage, decode_stored
from rockmq.remoting.client import RemotingClient
from rockmq.store import GetResult
from rockmq.store.message_store import MessageStore
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import options, running
from tests.unit.broker.test_batch_queues import batch
from tests.unit.broker.test_messages import create_request, send_request, sent

INVISIBLE = 60_000
RETRY = "%RETRY%g_T"


class Group:
    """A client that pops. Handles are made as a Java client makes them."""

    def __init__(self, broker: Broker, remote: RemotingClient) -> None:
        self.broker = broker
        self.remote = remote

    async def ask(self, code: RequestCode, header: object, body: bytes = b"") -> Command:
        return await self.remote.invoke(self.broker.address, codec.request(code, header, body), 30)  # type: ignore[arg-type]

    async def send(self, *bodies: bytes, queue_id: int = 0, tag: str = "") -> None:
        for body in bodies:
            await sent(self.remote, self.broker, send_request(body, queue_id=queue_id, tag=tag))

    def pop_header(self, **changes: object) -> Pop:
        fields: dict[str, object] = {
            "consumer_group": "g",
            "topic": "T",
            "queue_id": -1,
            "max_msg_nums": 32,
            "invisible_time": INVISIBLE,
            "poll_time": 0,
            "born_time": 0,
            "init_mode": 0,
        }
        return Pop(**(fields | changes))  # type: ignore[arg-type]

    async def pop(self, **changes: object) -> "list[tuple[StoredMessage, str]]":
        """Messages with their handles."""
        answer = await self.ask(RequestCode.POP_MESSAGE, self.pop_header(**changes))
        if answer.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL):
            return []
        assert answer.code == 0, answer.remark
        return handles(answer)

    async def bodies(self, **changes: object) -> list[bytes]:
        return [message.body for message, _ in await self.pop(**changes)]

    async def ack(self, message: StoredMessage, handle: str) -> int:
        header = Ack(
            consumer_group="g",
            topic=message.topic,
            queue_id=message.queue_id,
            extra_info=handle,
            offset=message.queue_offset,
        )
        return (await self.ask(RequestCode.ACK_MESSAGE, header)).code

    async def change(self, message: StoredMessage, handle: str, invisible: int, *, suspend: bool = False) -> Command:
        header = ChangeInvisibleTime(
            consumer_group="g",
            topic=message.topic,
            queue_id=message.queue_id,
            extra_info=handle,
            offset=message.queue_offset,
            invisible_time=invisible,
            suspend=suspend,
        )
        return await self.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)

    async def offset(self, queue_id: int = 0, topic: str = "T") -> int | None:
        header = QueryConsumerOffset(consumer_group="g", topic=topic, queue_id=queue_id, set_zero_if_not_found=False)
        answer = await self.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
        return int(answer.fields["offset"]) if answer.code == 0 else None


def handles(answer: Command) -> list[tuple[StoredMessage, str]]:
    told = decode(PopResponse, answer.fields)
    starts = dict(each.rsplit(" ", 1) for each in (told.start_offset_info or "").split(";"))
    offsets = dict(each.rsplit(" ", 1) for each in (told.msg_offset_info or "").split(";"))
    found = []
    for message in decode_stored(answer.body):
        flag = pop.flag(message.topic)
        queue = f"{flag} {message.queue_id}"
        assert str(message.queue_offset) in offsets[queue].split(",")
        handle = f"{starts[queue]} {told.pop_time} {told.invisible_time} {told.revive_qid} {flag} b {message.queue_id}"
        found.append((message, f"{handle} {message.queue_offset}"))
    return found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@asynccontextmanager
async def popping(root: Path, remote: RemotingClient, clock: FakeClock, **settings: str) -> AsyncIterator[Group]:
    broker = Broker(options(root, **settings), clock)
    await broker.start()
    await remote.ask(broker.address, create_request(RETRY, queues=1), 5)  # the first pop would make it, a moment later
    try:
        yield Group(broker, remote)
    finally:
        await broker.close()


@pytest.fixture
async def group(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> AsyncIterator[Group]:
    async with popping(tmp_path, remote, clock) as group:
        await remote.ask(group.broker.address, create_request(queues=2), 5)
        yield group


async def again(group: Group, count: int, **changes: object) -> list[tuple[StoredMessage, str]]:
    """What comes again, as soon as it does."""
    found: list[tuple[StoredMessage, str]] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            found += await group.pop(**changes)
            await asyncio.sleep(0.02)
    return found


async def test_what_is_popped_is_nobody_elses_until_it_is_acknowledged_or_late(group: Group, clock: FakeClock) -> None:
    await group.send(b"0", b"1", b"2")
    await group.send(b"3", queue_id=1)
    popped = await group.pop()
    assert sorted(message.body for message, _ in popped) == [b"0", b"1", b"2", b"3"]
    assert await group.pop() == []
    assert await group.offset() == 0, "nothing is acknowledged"
    by_body = {message.body: (message, handle) for message, handle in popped}
    for body, offset in ((b"1", 0), (b"0", 2), (b"3", 2)):
        assert await group.ack(*by_body[body]) == 0
        assert await group.offset() == offset
    assert await group.offset(1) == 1
    clock.seconds += INVISIBLE / 1000 + 1
    ((message, handle),) = await again(group, 1)
    assert (message.topic, message.body, message.reconsume_times) == (RETRY, b"2", 1)
    assert message.properties["1ST_POP_TIME"] == by_body[b"2"][1].split()[1]
    assert message.properties["ORIGIN_GROUP"] == "g"
    assert await group.offset() == 3, "in the retry topic it is safe"
    assert await group.ack(*by_body[b"2"]) == 0, "too late, which is no error"
    assert await group.pop() == []
    clock.seconds += INVISIBLE / 1000 + 1
    ((message, handle),) = await again(group, 1)
    assert (message.topic, message.body, message.reconsume_times) == (RETRY, b"2", 2)
    assert await group.ack(message, handle) == 0
    assert await group.offset(topic=RETRY) == 2


async def test_a_count_of_tries_that_is_at_its_end_stays_there(group: Group, clock: FakeClock) -> None:
    """A producer may say that its message was tried as often as a number can tell."""
    most = 2**31 - 1
    request = send_request(b"tried")
    request.fields["j"] = str(most)
    await sent(group.remote, group.broker, request)
    assert [message.reconsume_times for message, _ in await group.pop()] == [most]
    clock.seconds += 2 * INVISIBLE / 1000
    ((message, _),) = await again(group, 1)
    assert (message.topic, message.body, message.reconsume_times) == (RETRY, b"tried", most)


async def test_messages_are_shared_out_in_bounded_portions(group: Group) -> None:
    await group.send(*(b"%d" % number for number in range(10)))
    assert [len(await group.pop(max_msg_nums=4)) for _ in range(4)] == [4, 4, 2, 0]


async def test_portions_from_far_behind_have_their_own_bound(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock
) -> None:
    bounds = {"accessMessageInMemoryMaxRatio": "0", "maxTransferCountOnMessageInDisk": "4"}
    async with popping(tmp_path, remote, clock, **bounds) as group:
        await remote.ask(group.broker.address, create_request(queues=1), 5)
        await group.send(*(b"%d" % number for number in range(10)))
        portions = [await group.bodies() for _ in range(4)]
    assert [len(portion) for portion in portions] == [4, 4, 2, 0]
    assert [body for portion in portions for body in portion] == [b"%d" % number for number in range(10)]


async def test_a_time_that_is_changed_counts_from_then_and_makes_a_new_handle(group: Group, clock: FakeClock) -> None:
    await group.send(b"0", b"1")
    (first, handle), (second, other) = await group.pop()
    clock.seconds += 50
    answer = await group.change(first, handle, 30_000)
    told = decode(ChangeInvisibleTimeResponse, answer.fields)
    assert (told.invisible_time, told.pop_time) == (30_000, clock.now_ms())
    assert (await group.change(first, handle, 30_000)).code == ResponseCode.NO_MESSAGE, "by the old handle it isn't out"
    clock.seconds += 20
    assert [message.body for message, _ in await again(group, 1)] == [b"1"]
    words = handle.split()
    words[1] = str(told.pop_time)
    assert await group.ack(first, " ".join(words)) == 0
    clock.seconds += 20
    await asyncio.sleep(0.3)
    assert await group.pop() == []
    assert (await group.change(second, other, 0)).code == ResponseCode.NO_MESSAGE
    await group.send(b"2")
    ((third, handle),) = await group.pop()
    assert (await group.change(third, handle, 0)).code == 0
    ((third, handle),) = await again(group, 1)
    assert (third.body, third.reconsume_times) == (b"2", 1), "at once"
    assert (await group.change(third, handle, 0, suspend=True)).code == 0
    ((third, handle),) = await again(group, 1)
    assert (third.body, third.reconsume_times) == (b"2", 1), "not another try"


async def test_many_are_acknowledged_together(group: Group, clock: FakeClock) -> None:
    await group.send(*(b"%d" % number for number in range(12)))
    popped = await group.pop()
    start, pop_time, invisible, revive, flag, _, queue_id, _ = popped[0][1].split()
    part = {"c": "g", "t": "T", "r": flag, "so": int(start), "q": int(queue_id), "rq": int(revive), "pt": int(pop_time)}
    bits = base64.b64encode(bytes([0b1111_1101, 0b0000_1111])).decode()
    body = {"brokerName": "broker-a", "acks": [part | {"it": int(invisible), "b": bits}]}
    answer = await group.ask(RequestCode.BATCH_ACK_MESSAGE, None, json.dumps(body).encode())
    assert answer.code == 0, answer.remark
    assert await group.offset() == 1, "all but the second"
    full = base64.b64encode(b"\xff" * 8192).decode()
    many = {"brokerName": "broker-a", "acks": [part | {"it": int(invisible), "b": full}] * 2}
    answer = await group.ask(RequestCode.BATCH_ACK_MESSAGE, None, json.dumps(many).encode())
    assert (answer.code, "131072 messages" in answer.remark) == (ResponseCode.INVALID_PARAMETER, True)
    clock.seconds += INVISIBLE / 1000 + 1
    assert [message.body for message, _ in await again(group, 1)] == [b"1"]


async def test_a_pop_waits_for_messages_and_for_those_that_come_again(group: Group, clock: FakeClock) -> None:
    waiting = asyncio.create_task(group.pop(poll_time=20_000))
    while True:
        info = await group.ask(RequestCode.POLLING_INFO, PollingInfo(consumer_group="g", topic="T", queue_id=-1))
        if decode(PollingInfoResponse, info.fields).polling_num:
            break
        await asyncio.sleep(0.01)
    await group.send(b"x", queue_id=1)
    assert [message.body for message, _ in await waiting] == [b"x"]
    info = await group.ask(RequestCode.POLLING_INFO, PollingInfo(consumer_group="g", topic="T", queue_id=-1))
    assert decode(PollingInfoResponse, info.fields).polling_num == 0
    waiting = asyncio.create_task(group.pop(poll_time=20_000))
    await asyncio.sleep(0.1)
    clock.seconds += INVISIBLE / 1000 + 1
    assert [message.body for message, _ in await waiting] == [b"x"]
    answer = await group.ask(RequestCode.POP_MESSAGE, group.pop_header(poll_time=100))
    assert answer.code == ResponseCode.POLLING_TIMEOUT
    assert decode(PopResponse, answer.fields).rest_num == 0, "clients can't do without the fields"


async def test_notifications_say_whether_there_is_something(group: Group) -> None:
    header = Notification(consumer_group="g", topic="T", queue_id=-1, poll_time=100, born_time=0)
    answer = await group.ask(RequestCode.NOTIFICATION, header)
    assert not decode(NotificationResponse, answer.fields).has_msg
    header.poll_time = 20_000
    waiting = asyncio.create_task(group.ask(RequestCode.NOTIFICATION, header))
    await asyncio.sleep(0.1)
    await group.send(b"x")
    assert decode(NotificationResponse, (await waiting).fields).has_msg
    assert len(await group.pop()) == 1
    header.poll_time = 0
    assert not decode(NotificationResponse, (await group.ask(RequestCode.NOTIFICATION, header)).fields).has_msg


async def test_tags_and_where_a_new_group_begins(group: Group) -> None:
    await group.send(b"a", tag="a")
    await group.send(b"b", b"c", tag="b")
    assert await group.bodies(exp="b", exp_type="TAG") == [b"b", b"c"]
    assert await group.offset() == 1, "what isn't wanted is done with"
    assert await group.pop(exp="x") == []
    answer = await group.ask(RequestCode.POP_MESSAGE, group.pop_header(exp="a > 1", exp_type="SQL93"))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_in_order_the_next_come_when_the_last_are_done(group: Group, clock: FakeClock) -> None:
    await group.send(*(b"%d" % number for number in range(6)))
    order = {"order": True, "queue_id": 0, "max_msg_nums": 3}
    popped = await group.pop(**order)
    assert [message.body for message, _ in popped] == [b"0", b"1", b"2"]
    assert popped[0][1].split()[3] == "999"
    assert await group.pop(**order) == []
    for message, handle in popped[:2]:
        assert await group.ack(message, handle) == 0
    assert await group.offset() == 2
    assert await group.pop(**order) == [], "one isn't done"
    waiting = asyncio.create_task(group.pop(**order, poll_time=20_000))
    await asyncio.sleep(0.1)
    clock.seconds += INVISIBLE / 1000 + 1
    late = await waiting
    assert [message.body for message, _ in late] == [b"2", b"3", b"4"], "the queue goes on where it stood"
    clock.seconds += INVISIBLE / 1000 + 1
    answer = await group.ask(RequestCode.POP_MESSAGE, group.pop_header(**order))
    assert decode(PopResponse, answer.fields).order_count_info == "0 0 1;0 qo0%2 2"
    assert await group.ack(*late[0]) == 0
    assert await group.offset() == 2, "an old handle acknowledges nothing"
    for message, handle in handles(answer):
        assert await group.ack(message, handle) == 0
    assert await group.bodies(**order) == [b"5"]


async def test_the_same_attempt_isnt_kept_out_by_itself(group: Group) -> None:
    await group.send(b"0")
    order = {"order": True, "queue_id": 0}
    assert await group.bodies(**order, attempt_id="one") == [b"0"]
    assert await group.bodies(**order, attempt_id="two") == []
    assert await group.bodies(**order, attempt_id="one") == [b"0"]


async def test_what_is_out_is_bounded(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, popInflightMessageThreshold="5") as broker:
        group = Group(broker, remote)
        await group.send(*(b"%d" % number for number in range(10)))
        popped = await group.pop()
        assert len(popped) == 5
        waiting = asyncio.create_task(group.pop(poll_time=20_000))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await group.ack(*popped[0])
        assert [message.body for message, _ in await waiting] == [b"5"]


async def test_pops_that_wait_for_an_acknowledgement_dont_wake_each_other(
    group: Group, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0
    pop_in_order = Pops.pop_in_order

    def counted(self: Pops, *args: Any, **more: Any) -> Popped | None:
        nonlocal tries
        tries += 1
        return pop_in_order(self, *args, **more)

    monkeypatch.setattr(Pops, "pop_in_order", counted)
    await group.send(b"0", b"1")
    order = {"order": True, "queue_id": 0, "max_msg_nums": 1}
    ((message, handle),) = await group.pop(**order)
    waiting = [asyncio.create_task(group.pop(**order, poll_time=20_000)) for _ in range(12)]
    await asyncio.sleep(0.3)
    assert tries < 40
    assert await group.ack(message, handle) == 0
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert [[each.body for each, _ in task.result()] for task in waiting if task.done()] == [[b"1"]]
    for task in waiting:
        task.cancel()


async def test_a_pop_goes_on_over_what_it_does_not_want(group: Group) -> None:
    await asyncio.gather(*(group.send(b"%d" % number, tag="a") for number in range(2000)))
    await group.send(b"wanted", tag="b")
    async with asyncio.timeout(15):  # its own poll time is longer
        assert await group.bodies(exp="b", exp_type="TAG", poll_time=20_000) == [b"wanted"]
    waiting = asyncio.create_task(group.bodies(exp="c", exp_type="TAG", poll_time=20_000))
    await asyncio.gather(*(group.send(b"%d" % number, tag="a") for number in range(2000)))
    await group.send(b"later", tag="c")
    async with asyncio.timeout(15):
        assert await waiting == [b"later"]


async def test_a_read_that_fails_costs_no_message(
    group: Group, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await group.send(b"0", b"1", b"2")
    assert len(await group.pop()) == 3
    get, faults = MessageStore.get, [OSError("too many open files")]

    def failing(self: MessageStore, *args: Any) -> GetResult:
        if faults:
            raise faults.pop()
        return get(self, *args)

    monkeypatch.setattr(MessageStore, "get", failing)
    clock.seconds += INVISIBLE / 1000 + 1
    async with asyncio.timeout(30):
        while faults:
            await asyncio.sleep(0.02)
    clock.seconds += 2
    assert sorted(message.body for message, _ in await again(group, 3)) == [b"0", b"1", b"2"]
    assert "too many open files" in caplog.text


async def test_an_answer_fits_into_a_frame(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        await remote.ask(broker.address, create_request(queues=6), 5)
        group = Group(broker, remote)
        for queue_id in range(6):
            await group.send(bytes(3_500_000), queue_id=queue_id)
        found = [len(await group.pop()) for _ in range(4)]
        assert sum(found) == 6
        assert max(found) < 4, "four would be 14 MB"


async def test_times_that_are_changed_again_and_again_take_no_memory(
    group: Group, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rockmq.broker.pop.DUE_MAX", 20)
    heaps = []
    expect = Pops._expect

    def seen(self: Pops, *args: Any) -> None:
        self._due_max = min(self._due_max, 40)
        expect(self, *args)
        heaps.append(len(self._due))

    monkeypatch.setattr(Pops, "_expect", seen)
    await group.send(b"0", b"1")
    order = {"order": True, "queue_id": 0, "max_msg_nums": 1}
    ((message, handle),) = await group.pop(**order)
    for _ in range(200):
        clock.seconds += 0.01
        assert (await group.change(message, handle, INVISIBLE)).code == 0
    assert max(heaps) <= 41


async def test_a_topic_takes_what_was_to_come_again_with_it(group: Group, clock: FakeClock) -> None:
    await group.send(b"old")
    assert await group.bodies() == [b"old"]
    clock.seconds += INVISIBLE / 1000 + 1
    async with asyncio.timeout(30):
        while await group.offset() != 1:  # it is in the retry topic
            await asyncio.sleep(0.02)
    answer = await group.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopic(topic="T"))
    assert answer.code == 0
    await group.remote.ask(group.broker.address, create_request(queues=2), 5)
    assert await group.bodies() == []
    await group.send(b"new")
    assert await group.bodies() == [b"new"]


async def test_a_restart_gives_out_again_from_the_first_that_isnt_acknowledged(
    tmp_path: Path, remote: RemotingClient
) -> None:
    async with running(tmp_path) as broker:
        group = Group(broker, remote)
        await group.send(b"0", b"1", b"2", b"3")
        popped = await group.pop()
        for message, handle in (popped[0], popped[2]):
            await group.ack(message, handle)
    async with running(tmp_path) as broker:
        group = Group(broker, remote)
        assert await group.bodies() == [b"1", b"2", b"3"]


async def test_a_reset_ends_what_is_out(group: Group, clock: FakeClock) -> None:
    await group.send(b"0", b"1")
    popped = await group.pop(queue_id=0)
    fields = {"topic": "T", "group": "g", "timestamp": "0", "isForce": "true"}
    answer = await group.remote.invoke(
        group.broker.address, Command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, 0, fields=fields), 5
    )
    assert answer.code == 0
    assert await group.ack(*popped[1]) == 0
    clock.seconds += 1
    assert await group.bodies(queue_id=0) == [b"0", b"1"]
    assert await group.ack(*popped[0]) == 0
    assert await group.offset() == 0


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "7"}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": "-2"}, ResponseCode.INVALID_PARAMETER),
        ({"maxMsgNums": "33"}, ResponseCode.INVALID_PARAMETER),
        ({"maxMsgNums": "0"}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": "0"}, ResponseCode.INVALID_PARAMETER),
        ({"invisibleTime": "99999999999"}, ResponseCode.INVALID_PARAMETER),
        ({"initMode": "2"}, ResponseCode.INVALID_PARAMETER),
        ({"pollTime": "soon"}, ResponseCode.INVALID_PARAMETER),
        ({"order": "perhaps"}, ResponseCode.INVALID_PARAMETER),
        ({"consumerGroup": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
async def test_bad_pops(group: Group, changes: dict[str, str], code: ResponseCode) -> None:
    request = codec.request(RequestCode.POP_MESSAGE, group.pop_header())
    request.fields |= changes
    answer = await group.remote.invoke(group.broker.address, request, 5)
    assert answer.code == code, answer.remark
    assert answer.remark


@pytest.mark.parametrize("handle", ["", "1 2 3", "0 x 60000 0 0 b 0 0", "0 1 60000 y 0 b 0 0", " " * 10_000])
async def test_bad_handles(group: Group, handle: str) -> None:
    await group.send(b"0")
    ((message, good),) = await group.pop()
    header = Ack(consumer_group="g", topic="T", queue_id=0, extra_info=handle, offset=0)
    answer = await group.ask(RequestCode.ACK_MESSAGE, header)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert len(answer.remark or "") < 500
    header = Ack(consumer_group="g", topic="T", queue_id=0, extra_info=good, offset=message.queue_offset + 1)
    assert (await group.ask(RequestCode.ACK_MESSAGE, header)).code == ResponseCode.NO_MESSAGE
    for body in (b"", b"{}", b"[]", b'{"acks":[{"c":"g"}]}', b'{"acks":[{"b":"%b"}]}' % (b"A" * 100_000)):
        assert (await group.ask(RequestCode.BATCH_ACK_MESSAGE, None, body)).code != 0


STEPS = st.lists(st.sampled_from(["send", "pop", "ack", "pass", "change", "kill"]), min_size=5, max_size=40)


@settings(max_examples=25)
@given(steps=STEPS, seed=st.randoms(use_true_random=False))
def test_nothing_is_lost_whatever_happens(tmp_path_factory: pytest.TempPathFactory, steps: list[str], seed: object) -> None:
    """Every message is acknowledged in the end, and one that was is given out again only after a restart."""
    asyncio.run(_nothing_is_lost(tmp_path_factory.mktemp("pop"), steps, seed))


async def _nothing_is_lost(root: Path, steps: list[str], seed: object) -> None:
    clock, remote = FakeClock(), RemotingClient()
    broker = Broker(options(root), clock)
    await broker.start()
    group = Group(broker, remote)
    out: list[tuple[StoredMessage, str]] = []
    sent_bodies: set[bytes] = set()
    done: set[bytes] = set()
    fresh: set[bytes] = set()
    """Acknowledged since the last restart, by a handle that was good then."""

    def take(popped: list[tuple[StoredMessage, str]]) -> None:
        assert not fresh & {message.body for message, _ in popped}
        out.extend(popped)

    try:
        for step in steps:
            if step == "send":
                body = b"%d" % len(sent_bodies)
                await group.send(body)
                sent_bodies.add(body)
            elif step == "pop" and sent_bodies:
                take(await group.pop(max_msg_nums=2))
            elif step == "ack" and out:
                message, handle = out.pop(seed.randrange(len(out)))  # type: ignore[attr-defined]
                assert await group.ack(message, handle) == 0
                done.add(message.body)
                fresh.add(message.body)
            elif step == "change" and out:
                message, handle = out[0]
                answer = await group.change(message, handle, 1000)
                assert answer.code == 0
                words = handle.split()
                words[1] = answer.fields["popTime"]
                out[0] = (message, " ".join(words))
            elif step == "pass":
                clock.seconds += INVISIBLE / 1000 + 1
                out.clear()
                await asyncio.sleep(0.25)
            elif step == "kill":
                await broker.close()
                broker = Broker(options(root), clock)
                await broker.start()
                group = Group(broker, remote)
                out.clear()
                fresh.clear()
        clock.seconds += INVISIBLE / 1000 + 1
        async with asyncio.timeout(30):
            while done != sent_bodies:
                popped = await group.pop()
                take(popped)
                for message, handle in popped:
                    assert await group.ack(message, handle) == 0
                    done.add(message.body)
                await asyncio.sleep(0.02)
                clock.seconds += 1  # what isn't given out again at once, as its topic is being made, is a second later
        assert done <= sent_bodies
    finally:
        await remote.close()
        await broker.close()


async def test_messages_of_batches_are_acknowledged_one_by_one(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock
) -> None:
    async with popping(tmp_path, remote, clock) as group:
        await remote.ask(group.broker.address, create_request(queues=1, attributes="+queue.type=BatchCQ"), 5)
        await sent(remote, group.broker, send_request(batch(4), batch=True, UNIQ_KEY="whole"))
        await sent(remote, group.broker, send_request(b"single", UNIQ_KEY="alone"))
        popped = await group.pop(max_msg_nums=3)
        assert [(message.body, message.queue_offset) for message, _ in popped] == [(b"b0", 0), (b"b1", 1), (b"b2", 2)]
        more = await group.pop()
        assert [(message.body, message.queue_offset) for message, _ in more] == [(b"b3", 3), (b"single", 4)]
        for message, handle in [popped[0], popped[2], *more]:
            assert await group.ack(message, handle) == 0
        assert await group.offset() == 1
        clock.seconds += INVISIBLE / 1000 + 1
        ((message, handle),) = await again(group, 1)
        assert (message.topic, message.body, message.reconsume_times) == (RETRY, b"b1", 1)
        assert message.properties["UNIQ_KEY"] == "b1"
        assert await group.offset() == 5
        assert await group.ack(message, handle) == 0


async def test_a_batch_is_gone_on_with_in_its_midst(tmp_path: Path, remote: RemotingClient) -> None:
    """A restart begins at the first message that isn't acknowledged."""
    async with running(tmp_path) as broker:
        await remote.ask(broker.address, create_request(queues=1, attributes="+queue.type=BatchCQ"), 5)
        group = Group(broker, remote)
        await sent(remote, broker, send_request(batch(4), batch=True, UNIQ_KEY="whole"))
        for message, handle in (await group.pop())[:2]:
            await group.ack(message, handle)
    async with running(tmp_path) as broker:
        assert await Group(broker, remote).bodies() == [b"b2", b"b3"]


async def test_light_queues_are_popped_by_their_own_offsets(
    tmp_path: Path, remote: RemotingClient, clock: FakeClock
) -> None:
    async with popping(tmp_path, remote, clock, enableLmq="true", enableMultiDispatch="true") as group:
        await remote.ask(group.broker.address, create_request(queues=1), 5)
        await group.send(b"elsewhere")
        for names in ("%LMQ%a", "%LMQ%b,%LMQ%a", "%LMQ%b", "%LMQ%a"):
            await sent(remote, group.broker, send_request(names.encode(), INNER_MULTI_DISPATCH=names))
        answer = await group.ask(RequestCode.POP_MESSAGE, group.pop_header(topic="%LMQ%a", max_msg_nums=2))
        told = decode(PopResponse, answer.fields)
        assert (told.start_offset_info, told.msg_offset_info, told.rest_num) == ("0 0 0", "0 0 0,1", 1)
        waiting = asyncio.create_task(group.ask(RequestCode.POP_MESSAGE, group.pop_header(topic="%LMQ%a", poll_time=20_000)))
        third = await waiting
        assert decode(PopResponse, third.fields).msg_offset_info == "0 0 2"

        async def ack(offset: int, pop_time: int) -> int:
            handle = f"0 {pop_time} {INVISIBLE} 0 0 b 0 {offset}"
            header = Ack(consumer_group="g", topic="%LMQ%a", queue_id=0, extra_info=handle, offset=offset)
            return (await group.ask(RequestCode.ACK_MESSAGE, header)).code

        assert [await ack(offset, told.pop_time) for offset in (0, 2)] == [0, 0]
        assert await group.offset(topic="%LMQ%a") == 1
        clock.seconds += INVISIBLE / 1000 + 1
        found: list[tuple[StoredMessage, str]] = []
        async with asyncio.timeout(30):
            while not found:
                clock.seconds += 1  # it is tried again each second, and its retry topic is made first
                await asyncio.sleep(0.02)
                found = await group.pop(topic="%LMQ%a")
        ((message, handle),) = found
        assert (message.topic, message.body, message.reconsume_times) == ("%RETRY%g_%LMQ%a", b"%LMQ%b,%LMQ%a", 1)
        assert await group.offset(topic="%LMQ%a") == 3
        assert await group.ack(message, handle) == 0
        await sent(remote, group.broker, send_request(b"straight", topic="%LMQ%a"))
        ((message, handle),) = await group.pop(topic="%LMQ%a")
        assert (message.topic, message.body, message.queue_offset) == ("%LMQ%a", b"straight", 3)
        assert await group.ack(message, handle) == 0
        assert await group.offset(topic="%LMQ%a") == 4
        answer = await group.ask(RequestCode.POP_MESSAGE, group.pop_header(topic="%LMQ%a+b"))
        assert (answer.code, "%RETRY%g_%LMQ%a+b" in answer.remark) == (ResponseCode.INVALID_PARAMETER, True)


async def test_a_peek_shows_what_the_next_pop_would_and_takes_nothing(group: Group, clock: FakeClock) -> None:
    async def peek(count: int, queue_id: int = -1) -> tuple[int, set[bytes], int]:
        header = Peek(consumer_group="g", topic="T", queue_id=queue_id, max_msg_nums=count)
        answer = await group.ask(RequestCode.PEEK_MESSAGE, header)
        bodies = {message.body for message in decode_stored(answer.body)}
        return answer.code, bodies, decode(PopResponse, answer.fields).rest_num

    assert await peek(3) == (ResponseCode.PULL_NOT_FOUND, set(), 0)
    await group.send(b"0", b"1", b"2")
    await group.send(b"3", queue_id=1)
    for _ in range(2):
        assert await peek(32) == (0, {b"0", b"1", b"2", b"3"}, 4)
    assert await peek(2, 0) == (0, {b"0", b"1"}, 3)
    assert await peek(0) == (ResponseCode.PULL_NOT_FOUND, set(), 4)
    assert await group.offset() is None
    popped = await group.pop(max_msg_nums=2, queue_id=0)
    assert await peek(32, 0) == (0, {b"2"}, 1)
    await group.ack(*popped[0])
    clock.seconds += INVISIBLE / 1000 + 1
    async with asyncio.timeout(30):
        while (await peek(32, 0))[1] != {b"1", b"2"}:
            await asyncio.sleep(0.02)
    header = Peek(consumer_group="g", topic="T", queue_id=0, max_msg_nums=-1)
    answer = await group.ask(RequestCode.PEEK_MESSAGE, header)
    assert (answer.code, "maxMsgNums" in answer.remark) == (ResponseCode.INVALID_PARAMETER, True)
    header.queue_id = 2
    answer = await group.ask(RequestCode.PEEK_MESSAGE, header)
    assert (answer.code, "queueId 2" in answer.remark) == (ResponseCode.INVALID_PARAMETER, True)


async def test_who_pops_too_far_behind_is_refused(
    tmp_path: Path, remote: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """store spec, 5.2: as a pull."""
    monkeypatch.setattr("rockmq.broker.server.SLOW_LOOK_SECONDS", 0.02)
    settings = {"disableConsumeIfConsumerReadSlowly": "true", "consumerFallbehindThreshold": "15000"}
    async with running(tmp_path, **settings) as broker:
        group = Group(broker, remote)
        await group.send(*[bytes(10_000)] * 2)
        assert len(await group.pop(max_msg_nums=1)) == 1
        await asyncio.sleep(0.1)
        answer = await group.ask(RequestCode.POP_MESSAGE, group.pop_header())
        assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "subscription group no permission, g")
