"""Messages that a group couldn't consume: tried again later, and then dead letters."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockmq.base.errors import ProtocolError
from rockmq.broker import delays
from rockmq.broker.drafts import Draft, DraftWriter
from rockmq.broker.server import Broker
from rockmq.broker.traffic import Traffic
from rockmq.protocol import codec, ids
from rockmq.protocol import json as wire_json
from rockmq.protocol.bodies.client import LockBatchBody
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.flags import TransactionState
from rockmq.protocol.headers.client import LockBatch, SendMessageBack
from rockmq.protocol.message import StoredMessage, decode_stored
from rockmq.remoting.client import RemotingClient
from rockmq.store.message_store import Put
from tests.support.clock import FakeClock
from tests.support.wire import RawClient, request
from tests.unit.broker.conftest import running, slow_disk
from tests.unit.broker.test_delays import settled
from tests.unit.broker.test_messages import pull_request, send_request, sent

RETRY, DEAD = "%RETRY%consumers", "%DLQ%consumers"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "LOOK_SECONDS", 0.02)


@pytest.fixture
async def broker(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Broker]:
    async with running(tmp_path, clock) as started:
        yield started


def back(message: StoredMessage, level: int = 0, **more: int) -> Command:
    header = SendMessageBack(
        offset=message.position,
        group="consumers",
        delay_level=level,
        origin_msg_id=message.msg_id,
        origin_topic=message.topic,
        max_reconsume_times=more.get("most"),
    )
    return codec.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)


async def of(remote: RemotingClient, broker: Broker, topic: str, offset: int = 0) -> list[StoredMessage]:
    """What a topic's queue 0 has; nothing if there is no such topic."""
    pull = pull_request(offset)
    pull.fields["topic"] = topic
    return decode_stored((await remote.invoke(broker.address, pull, 5)).body, check_crc=True)


async def tried(remote: RemotingClient, broker: Broker, body: bytes = b"work") -> StoredMessage:
    await sent(remote, broker, send_request(body, tag="paid", mine="ä"))
    return (await of(remote, broker, "T"))[-1]


async def test_it_comes_again_later_each_time_and_then_is_a_dead_letter(
    remote: RemotingClient, broker: Broker, clock: FakeClock
) -> None:
    """retryMaxTimes is 16: the first levels are 3, 4, 5 … up to the last."""
    delays = [10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]
    first = message = await tried(remote, broker)
    for number, delay in enumerate(delays):
        await remote.ask(broker.address, back(message), 5)
        clock.seconds += delay - 1
        await settled()
        assert await of(remote, broker, RETRY, number) == []
        clock.seconds += 1
        await settled()
        (message,) = await of(remote, broker, RETRY, number)
        assert (message.reconsume_times, message.body, message.flag) == (number + 1, b"work", first.flag)
        assert (message.born_timestamp, message.born_host) == (first.born_timestamp, first.born_host)
        told = {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": first.offset_id, "REAL_TOPIC": RETRY, "TAGS": "paid", "mine": "ä"}
        assert told.items() <= message.properties.items()
        assert (message.msg_id, message.properties["WAIT"]) == (first.msg_id, "false")
    await remote.ask(broker.address, back(message), 5)
    (dead,) = await of(remote, broker, DEAD)
    assert (dead.reconsume_times, dead.body, dead.properties["DELAY"]) == (17, b"work", "0")
    assert (dead.properties["RETRY_TOPIC"], dead.properties["ORIGIN_MESSAGE_ID"]) == ("T", first.offset_id)


async def test_the_consumer_may_say_when_and_how_often(remote: RemotingClient, broker: Broker, clock: FakeClock) -> None:
    message = await tried(remote, broker)
    await remote.ask(broker.address, back(message, 1, most=1), 5)
    clock.seconds += 1
    await settled()
    (again,) = await of(remote, broker, RETRY)
    await remote.ask(broker.address, back(again, 1, most=1), 5)
    await remote.ask(broker.address, back(message, -1), 5)
    assert [each.reconsume_times for each in await of(remote, broker, DEAD)] == [2, 1]
    await remote.ask(broker.address, back(message, 99), 5)
    clock.seconds += 7199
    await settled()
    assert await of(remote, broker, RETRY, 1) == []
    clock.seconds += 1
    await settled()
    assert [each.properties["DELAY"] for each in await of(remote, broker, RETRY, 1)] == ["18"]


async def test_a_count_of_tries_that_comes_to_its_end(remote: RemotingClient, broker: Broker, clock: FakeClock) -> None:
    most = 2**31 - 1
    request = send_request(b"work")
    request.fields["j"] = str(most - 1)
    await sent(remote, broker, request)
    (message,) = await of(remote, broker, "T")
    await remote.ask(broker.address, back(message, most=most), 5)
    clock.seconds += 7200
    await settled()
    (again,) = await of(remote, broker, RETRY)
    assert (again.reconsume_times, again.properties["DELAY"]) == (most, "18")
    await remote.ask(broker.address, back(again, most=most), 5)
    assert [each.reconsume_times for each in await of(remote, broker, DEAD)] == [most]


async def test_a_dead_letter_topic_is_one_to_read(remote: RemotingClient, broker: Broker) -> None:
    await remote.ask(broker.address, back(await tried(remote, broker), -1), 5)
    answer = await remote.ask(broker.address, Command(RequestCode.GET_TOPIC_CONFIG, 0, fields={"topic": DEAD}), 5)
    config = json.loads(answer.body)
    assert (config["perm"], config["readQueueNums"], config["writeQueueNums"]) == (6, 1, 1)
    assert [each.body for each in await of(remote, broker, DEAD)] == [b"work"]


async def test_what_is_given_back_is_durable_when_it_is_answered(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, FakeClock(), flushDiskType="SYNC_FLUSH") as broker:
        message = await tried(remote, broker)
        before = (tmp_path / "config" / "topics.json").read_text()
        await remote.ask(broker.address, back(message, -1), 5)
        assert DEAD not in before
        assert DEAD in (tmp_path / "config" / "topics.json").read_text()
        assert [each.body for each in await of(remote, broker, DEAD)] == [b"work"], "readers see only what is on disk"


async def test_a_disk_that_is_too_slow_is_no_refusal(tmp_path: Path, remote: RemotingClient) -> None:
    """A Java consumer that isn't told SUCCESS sends the message itself: it would be stored twice."""
    clock = FakeClock()
    async with running(tmp_path, clock, flushDiskType="SYNC_FLUSH") as broker:
        message = await tried(remote, broker)
        with slow_disk():
            waiting = asyncio.create_task(remote.invoke(broker.address, back(message, -1), 10))
            await asyncio.sleep(0.2)
            assert not waiting.done()
            clock.seconds += 6
            assert (await waiting).code == ResponseCode.SUCCESS
        assert len(await of(remote, broker, DEAD)) == 1


FIELDS = {"offset": "0", "group": "consumers", "delayLevel": "0"}
BAD = {
    "no offset": ({"group": "consumers", "delayLevel": "0"}, ResponseCode.INVALID_PARAMETER, "offset"),
    "no group": ({"offset": "0", "delayLevel": "0"}, ResponseCode.INVALID_PARAMETER, "group"),
    "no level": ({"offset": "0", "group": "consumers"}, ResponseCode.INVALID_PARAMETER, "delayLevel"),
    "an offset that is no number": (FIELDS | {"offset": "x"}, ResponseCode.INVALID_PARAMETER, "offset"),
    "a level that is no number": (FIELDS | {"delayLevel": "x"}, ResponseCode.INVALID_PARAMETER, "delayLevel"),
    "a level beyond 32 bits": (FIELDS | {"delayLevel": str(2**31)}, ResponseCode.INVALID_PARAMETER, "delayLevel"),
    "a maximum that is no number": (
        FIELDS | {"maxReconsumeTimes": "x"},
        ResponseCode.INVALID_PARAMETER,
        "maxReconsumeTimes",
    ),
    "a mode that is no boolean": (FIELDS | {"unitMode": "x"}, ResponseCode.INVALID_PARAMETER, "unitMode"),
    "a negative offset": (FIELDS | {"offset": "-1"}, ResponseCode.SYSTEM_ERROR, "-1"),
    "an offset without a message": (FIELDS | {"offset": "7"}, ResponseCode.SYSTEM_ERROR, "7"),
    "an offset behind the log": (FIELDS | {"offset": str(2**62)}, ResponseCode.SYSTEM_ERROR, str(2**62)),
    "a group that can't be": (FIELDS | {"group": "no good"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "no good"),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_request_is_refused_with_its_fault(remote: RemotingClient, broker: Broker, case: str) -> None:
    fields, code, names = BAD[case]
    await tried(remote, broker)
    client = await RawClient.connect(broker.address)
    answer = await client.ask(request(RequestCode.CONSUMER_SEND_MSG_BACK, fields))
    assert answer["code"] == code, answer
    assert names in str(answer["remark"])
    client.close()


async def test_groups_and_brokers_may_take_nothing_back(tmp_path: Path, remote: RemotingClient) -> None:
    config = tmp_path / "config"
    config.mkdir()
    group = {"groupName": "consumers", "retryQueueNums": 0}
    (config / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": {"consumers": group}}))
    clock = FakeClock()
    async with running(tmp_path, clock) as broker:
        message = await tried(remote, broker)
        await remote.ask(broker.address, back(message), 5)
        await remote.ask(broker.address, back(message, -1), 5)
        clock.seconds += 3600
        await settled()
        assert [await of(remote, broker, topic) for topic in (RETRY, DEAD)] == [[], []]
        assert (await remote.ask(broker.address, pull_request(), 5)).code == ResponseCode.SUCCESS
    async with running(tmp_path, clock, autoCreateSubscriptionGroup="false") as broker:
        other = back(message)
        other.fields["group"] = "unknown"
        assert (await remote.invoke(broker.address, other, 5)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    async with running(tmp_path, clock, brokerPermission="4") as broker:
        assert (await remote.invoke(broker.address, back(message), 5)).code == ResponseCode.NO_PERMISSION


async def test_what_is_given_back_goes_to_queues_that_there_are(tmp_path: Path, remote: RemotingClient) -> None:
    """The retry topic has one queue, as its group once wanted."""
    clock = FakeClock()
    async with running(tmp_path, clock) as broker:
        message = await tried(remote, broker)
        await remote.ask(broker.address, back(message, 1), 5)
    group = {"groupName": "consumers", "retryQueueNums": 8}
    document = tmp_path / "config" / "subscriptionGroup.json"
    document.write_text(json.dumps({"subscriptionGroupTable": {"consumers": group}}))
    async with running(tmp_path, clock) as broker:
        for _ in range(9):
            await remote.ask(broker.address, back(message, 1), 5)
        clock.seconds += 1
        await settled()
        assert len(await of(remote, broker, RETRY)) == 10


def retried(body: bytes, times: int | None, most: int | None = None, **more: str) -> Command:
    command = send_request(body, topic=RETRY, RETRY_TOPIC="T", **more)
    if times is not None:
        command.fields["j"] = str(times)
    if most is not None:
        command.fields["l"] = str(most)
    return command


async def test_a_send_to_the_retry_topic_knows_its_maximum(remote: RemotingClient, broker: Broker, clock: FakeClock) -> None:
    """What clients do when giving back fails (SendMessageProcessor.handleRetryAndDLQ)."""
    for body, times, most in ((b"16", 16, None), (b"none", None, None), (b"2 of 2", 2, 2)):
        await sent(remote, broker, retried(body, times, most, DELAY="1"))
    for body, times, most in ((b"17", 17, None), (b"3 of 2", 3, 2)):
        result = await sent(remote, broker, retried(body, times, most, DELAY="1"))
        assert result.queue_id == 0
    clock.seconds += 1
    await settled()
    assert [each.body for each in await of(remote, broker, RETRY)] == [b"16", b"none", b"2 of 2"]
    dead = await of(remote, broker, DEAD)
    assert [(each.body, each.reconsume_times, each.properties["DELAY"]) for each in dead] == [
        (b"17", 17, "-1"),
        (b"3 of 2", 3, "-1"),
    ]
    assert {each.properties["RETRY_TOPIC"] for each in dead} == {"T"}


async def test_a_dead_letter_counts_when_it_is_stored(
    remote: RemotingClient, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    died: list[tuple[str, str]] = []
    monkeypatch.setattr(Traffic, "died", lambda traffic, group, topic: died.append((group, topic)))
    message = await tried(remote, broker)

    def failing(writer: DraftWriter, draft: Draft, kind: int = 0) -> Put:
        raise ProtocolError("it can't be stored")

    with monkeypatch.context() as patch:
        patch.setattr(DraftWriter, "put", failing)
        for request in (back(message, -1), retried(b"17", 17)):
            assert (await remote.invoke(broker.address, request, 5)).code == ResponseCode.MESSAGE_ILLEGAL
    assert died == []
    for request in (back(message, -1), retried(b"17", 17)):
        await remote.ask(broker.address, request, 5)
    assert died == [("consumers", "T"), ("producers", RETRY)]


async def test_what_an_old_client_sends_back_is_no_transaction(
    remote: RemotingClient, broker: Broker, clock: FakeClock
) -> None:
    """Before 4.6.1 it says so of what was one. Apache's broker takes it, and no consumer ever gets it."""
    for body, times, most in ((b"first", 1, 2), (b"last", 3, 2), (b"never tried", 0, 0)):
        request = retried(body, times, most, DELAY="1", TRAN_MSG="true", PGROUP="p")
        request.fields["f"] = str(TransactionState.PREPARED.value)
        await sent(remote, broker, request)
    clock.seconds += 1
    await settled()
    found = [*await of(remote, broker, RETRY), *await of(remote, broker, DEAD)]
    assert [(each.body, each.sys_flag) for each in found] == [(b"first", 0), (b"never tried", 0), (b"last", 0)]


async def test_who_consumes_in_order_sends_dead_letters_only(
    remote: RemotingClient, broker: Broker, clock: FakeClock
) -> None:
    locks = LockBatchBody(consumer_group="consumers", client_id="c", mq_set=[MessageQueue("T", "broker-a", 0)])
    lock = codec.request(RequestCode.LOCK_BATCH_MQ, LockBatch(), wire_json.encode(locks))
    await remote.ask(broker.address, lock, 5)
    await sent(remote, broker, retried(b"in order", 1, DELAY="1"))
    assert [each.body for each in await of(remote, broker, DEAD)] == [b"in order"]
    clock.seconds += 61  # locks that nobody renews don't count
    await sent(remote, broker, retried(b"not any more", 1))
    assert [each.body for each in await of(remote, broker, RETRY)] == [b"not any more"]


async def test_origin_is_the_message_that_was_given_back_first(remote: RemotingClient, broker: Broker) -> None:
    await sent(remote, broker, send_request(b"work", ORIGIN_MESSAGE_ID="before", RETRY_TOPIC="elsewhere"))
    (message,) = await of(remote, broker, "T")
    await remote.ask(broker.address, back(message, -1), 5)
    (dead,) = await of(remote, broker, DEAD)
    assert (dead.properties["ORIGIN_MESSAGE_ID"], dead.properties["RETRY_TOPIC"]) == ("before", "elsewhere")
    assert ids.offset_id(dead.store_host, dead.position) == dead.offset_id
