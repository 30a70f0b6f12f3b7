"""Sending and pulling over real sockets."""

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from rockmq.base import files
from rockmq.broker.server import Broker
from rockmq.protocol import codec, json, properties
from rockmq.protocol.bodies.client import ConsumerData, HeartbeatData
from rockmq.protocol.bodies.common import SubscriptionData
from rockmq.protocol.codec import Command, Serializer, encode_batch
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.admin import CreateTopic, GetAllTopicConfig
from rockmq.protocol.headers.client import HeartBeat
from rockmq.protocol.headers.pull import Pull, PullResponse
from rockmq.protocol.headers.send import SendMessageV2, SendResponse
from rockmq.protocol.message import decode_stored
from rockmq.remoting.client import RemotingClient
from tests.unit.broker.conftest import running

NOT_BUILT = [
    "consumerFilter",
    "topicQueueMapping",
    "lmqConsumerOffset",
]
"""Documents of Apache's that nobody here reads or writes."""
SUSPEND = 2
INLINE = 4


def send_request(
    body: bytes, *, topic: str = "T", queue_id: int = 0, tag: str = "", batch: bool = False, sys_flag: int = 0, **more: str
) -> Command:
    found = dict(more) | ({properties.TAGS: tag} if tag else {})
    header = SendMessageV2(
        producer_group="producers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=sys_flag,
        born_timestamp=1_700_000_000_000,
        flag=7,
        properties=properties.encode(found).decode(),
        batch=batch,
    )
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    return codec.request(code, header, body)


def pull_request(offset: int = 0, *, queue_id: int = 0, count: int = 32, suspend_ms: int = 0, tags: str = "*") -> Command:
    header = Pull(
        consumer_group="consumers",
        topic="T",
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=INLINE | (SUSPEND if suspend_ms else 0),
        commit_offset=0,
        suspend_timeout_millis=suspend_ms,
        sub_version=0,
        subscription=tags,
    )
    return codec.request(RequestCode.PULL_MESSAGE, header)


def create_request(topic: str = "T", *, queues: int = 4, perm: int = 6, attributes: str | None = None) -> Command:
    header = CreateTopic(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        attributes=attributes,
    )
    return codec.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def sent(remote: RemotingClient, broker: Broker, request: Command) -> SendResponse:
    response = await remote.ask(broker.address, request, 5)
    assert response.fields["MSG_REGION"] == "DefaultRegion"
    assert response.fields["TRACE_ON"] == "true"
    return decode(SendResponse, response.fields)


@pytest.mark.parametrize("serializer", Serializer)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_what_is_sent_is_what_is_pulled(
    tmp_path: Path, remote: RemotingClient, serializer: Serializer, flush: str
) -> None:
    async with running(tmp_path, flushDiskType=flush) as broker:
        ids = []
        for number in range(5):
            request = send_request(b"body %d" % number, tag="paid", KEYS=f"key{number}", mine="ä✓😀")
            request.serializer = serializer
            result = await sent(remote, broker, request)
            assert (result.queue_id, result.queue_offset) == (0, number)
            ids.append((result.msg_id, result.transaction_id))
        pull = pull_request(1, count=3)
        pull.serializer = serializer
        response = await remote.ask(broker.address, pull, 5)
        header = decode(PullResponse, response.fields)
        assert (header.next_begin_offset, header.min_offset, header.max_offset) == (4, 0, 5)
        messages = decode_stored(response.body, check_crc=True)
        assert [message.body for message in messages] == [b"body 1", b"body 2", b"body 3"]
        assert [(message.offset_id, message.msg_id) for message in messages] == ids[1:4]
        first = messages[0]
        assert (first.topic, first.queue_id, first.queue_offset, first.flag) == ("T", 0, 1, 7)
        assert first.born_timestamp == 1_700_000_000_000
        assert first.properties["mine"] == "ä✓😀"
        assert (first.tag, first.keys) == ("paid", ["key1"])
        assert first.properties["CLUSTER"] == "DefaultCluster"


async def test_what_is_not_for_a_client_to_say_is_said_by_the_broker(broker: Broker, remote: RemotingClient) -> None:
    """Rows 2.1 and 2.4."""
    said = {"POP_CK": "1 2", "__CRC32#": "0123456789", "__RMQ.TRANSIENT.x": "1", "CLUSTER": "other", "MSG_REGION": "other"}
    result = await sent(remote, broker, send_request(b"x", **said, mine="kept"))
    [message] = decode_stored((await remote.ask(broker.address, pull_request(), 5)).body)
    assert message.properties == {
        "mine": "kept",
        "UNIQ_KEY": result.transaction_id,
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


async def test_batch_is_stored_as_its_messages(broker: Broker, remote: RemotingClient) -> None:
    await sent(remote, broker, send_request(b"first"))
    parts = [
        (number, b"part %d" % number, properties.encode({"UNIQ_KEY": f"U{number}", "TAGS": "t"})) for number in range(3)
    ]
    result = await sent(remote, broker, send_request(encode_batch(parts), batch=True))
    assert result.queue_offset == 1
    messages = decode_stored((await remote.ask(broker.address, pull_request(1), 5)).body, check_crc=True)
    assert [message.body for message in messages] == [b"part 0", b"part 1", b"part 2"]
    assert [message.flag for message in messages] == [0, 1, 2]
    assert [message.msg_id for message in messages] == ["U0", "U1", "U2"]
    assert result.msg_id == ",".join(message.offset_id for message in messages)


async def test_missing_topic_is_created_by_the_template(broker: Broker, remote: RemotingClient) -> None:
    assert (await sent(remote, broker, send_request(b"x", topic="FRESH", queue_id=-1))).queue_id in range(4)
    response = await remote.ask(broker.address, codec.request(RequestCode.GET_ALL_TOPIC_CONFIG), 5)
    assert b'"FRESH":{"topicName":"FRESH","readQueueNums":4,"writeQueueNums":4,"perm":6' in response.body


async def test_topics_are_told_in_pages(broker: Broker, remote: RemotingClient) -> None:
    async def page(begin: int, version: str | None) -> tuple[list[str], str, int]:
        header = GetAllTopicConfig(topic_seq=begin, data_version=version, max_topic_num=4)
        response = await remote.ask(broker.address, codec.request(RequestCode.GET_ALL_TOPIC_CONFIG, header), 5)
        body = msgspec.json.decode(response.body)
        return (
            list(body["topicConfigTable"]),
            json.encode(body["dataVersion"]).decode(),
            int(response.fields["totalTopicNum"]),
        )

    everything = await remote.ask(broker.address, codec.request(RequestCode.GET_ALL_TOPIC_CONFIG), 5)
    names = list(msgspec.json.decode(everything.body)["topicConfigTable"])
    first, version, total = await page(0, None)
    assert (first, total) == (names[:4], len(names))
    assert (await page(4, version))[0] == names[4:8]
    assert (await page(total - 1, version))[0] == names[-1:]
    assert (await page(total, version))[0] == []
    await sent(remote, broker, send_request(b"x", topic="FRESH", queue_id=-1))
    assert (await page(4, version))[0] == names[:4], "the table changed: from the beginning"


@pytest.mark.usefixtures("unswept")
async def test_parked_pull_is_answered_by_the_next_message(tmp_path: Path, remote: RemotingClient) -> None:
    """Row 5.3."""
    for flush in ("SYNC_FLUSH", "ASYNC_FLUSH"):
        async with running(tmp_path / flush, flushDiskType=flush) as broker:
            await sent(remote, broker, send_request(b"old"))
            waiting = asyncio.create_task(remote.ask(broker.address, pull_request(1, suspend_ms=30_000), 20))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await sent(remote, broker, send_request(b"other queue", queue_id=1))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await sent(remote, broker, send_request(b"new"))
            messages = decode_stored((await asyncio.wait_for(waiting, 15)).body)
            assert [message.body for message in messages] == [b"new"]


@pytest.mark.usefixtures("unswept")
async def test_parked_pull_skips_what_it_does_not_want(broker: Broker, remote: RemotingClient) -> None:
    await sent(remote, broker, send_request(b"old", tag="a"))
    waiting = asyncio.create_task(remote.ask(broker.address, pull_request(1, suspend_ms=30_000, tags="b || c"), 20))
    await asyncio.sleep(0.05)
    for _ in range(3):
        await sent(remote, broker, send_request(b"unwanted", tag="a"))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await sent(remote, broker, send_request(b"wanted", tag="c"))
    response = await asyncio.wait_for(waiting, 15)
    assert [message.body for message in decode_stored(response.body)] == [b"wanted"]
    assert decode(PullResponse, response.fields).next_begin_offset == 5


async def test_parked_pull_ends_without_a_message(broker: Broker, remote: RemotingClient) -> None:
    """Row 5.3."""
    await sent(remote, broker, send_request(b"old"))
    response = await remote.invoke(broker.address, pull_request(1, suspend_ms=1_000), 20)
    assert response.code == ResponseCode.PULL_NOT_FOUND
    assert decode(PullResponse, response.fields).next_begin_offset == 1


@pytest.mark.parametrize(
    ("offset", "code", "following"),
    [(-1, ResponseCode.PULL_OFFSET_MOVED, 0), (3, ResponseCode.PULL_NOT_FOUND, 3), (9, ResponseCode.PULL_OFFSET_MOVED, 3)],
)
async def test_pull_outside_the_queue_says_where_to_go_on(
    broker: Broker, remote: RemotingClient, offset: int, code: int, following: int
) -> None:
    """Row 5.2."""
    for _ in range(3):
        await sent(remote, broker, send_request(b"x"))
    response = await remote.invoke(broker.address, pull_request(offset), 5)
    assert response.code == code
    assert decode(PullResponse, response.fields).next_begin_offset == following


async def test_pull_of_an_empty_queue(broker: Broker, remote: RemotingClient) -> None:
    await sent(remote, broker, send_request(b"x"))
    assert (await remote.invoke(broker.address, pull_request(0, queue_id=3), 5)).code == ResponseCode.PULL_NOT_FOUND
    moved = await remote.invoke(broker.address, pull_request(5, queue_id=3), 5)
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED
    assert decode(PullResponse, moved.fields).next_begin_offset == 0


async def test_subscription_of_the_heartbeat_filters(broker: Broker, remote: RemotingClient) -> None:
    for tag in "abab":
        await sent(remote, broker, send_request(tag.encode(), tag=tag))
    subscription = SubscriptionData(topic="T", sub_string="b", tags_set=["b"], code_set=[98], sub_version=5)
    data = HeartbeatData(
        client_id="c1", consumer_data_set=[ConsumerData(group_name="consumers", subscription_data_set=[subscription])]
    )
    beat = await remote.ask(broker.address, codec.request(RequestCode.HEART_BEAT, HeartBeat(), json.encode(data)), 5)
    assert beat.fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    pull = pull_request()
    pull.fields |= {"sysFlag": "0", "subVersion": "5"}
    response = await remote.ask(broker.address, pull, 5)
    assert [message.body for message in decode_stored(response.body)] == [b"b", b"b"]
    pull.fields["subVersion"] = "6"
    assert (await remote.invoke(broker.address, pull, 5)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def test_who_pulls_by_a_newer_subscription_is_asked_for_it(broker: Broker, remote: RemotingClient) -> None:
    """A client may say with its heartbeats that nothing has changed while it pulls by what has."""
    await sent(remote, broker, send_request(b"x"))
    subscription = SubscriptionData(topic="T", sub_string="*", sub_version=5)

    async def beat(*wanted: SubscriptionData) -> bool:
        consumer = ConsumerData(group_name="consumers", subscription_data_set=list(wanted))
        data = HeartbeatData(client_id="c1", consumer_data_set=[consumer], heartbeat_fingerprint=42, without_sub=not wanted)
        request = codec.request(RequestCode.HEART_BEAT, HeartBeat(), json.encode(data))
        return (await remote.ask(broker.address, request, 5)).fields["IS_SUB_CHANGE"] == "true"

    await beat(subscription)
    assert not await beat()
    pull = pull_request()
    pull.fields |= {"sysFlag": "0", "subVersion": "6"}
    assert (await remote.invoke(broker.address, pull, 5)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    assert await beat()
    await beat(msgspec.structs.replace(subscription, sub_version=6))
    await remote.ask(broker.address, pull, 5)
    assert not await beat()


async def test_one_way_send_is_stored_and_not_answered(broker: Broker, remote: RemotingClient) -> None:
    await sent(remote, broker, send_request(b"makes the topic"))
    await remote.send_oneway(broker.address, send_request(b"one-way"))
    messages = decode_stored((await remote.ask(broker.address, pull_request(1, suspend_ms=5_000), 5)).body)
    assert [message.body for message in messages] == [b"one-way"]


async def test_everything_is_there_after_a_clean_restart(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        for number in range(20):
            await sent(remote, broker, send_request(b"%d" % number, queue_id=number % 4))
        commit = {"consumerGroup": "consumers", "topic": "T", "queueId": "2", "commitOffset": "3"}
        await remote.ask(broker.address, pull_request(), 5)
        update = Command(RequestCode.UPDATE_CONSUMER_OFFSET, 0, fields=commit)
        await remote.ask(broker.address, update, 5)
    assert not (tmp_path / "abort").exists()
    async with running(tmp_path) as broker:
        for queue_id in range(4):
            response = await remote.ask(broker.address, pull_request(queue_id=queue_id), 5)
            bodies = [int(message.body) for message in decode_stored(response.body, check_crc=True)]
            assert bodies == list(range(queue_id, 20, 4))
        query = {"consumerGroup": "consumers", "topic": "T", "queueId": "2"}
        offset = await remote.ask(broker.address, Command(RequestCode.QUERY_CONSUMER_OFFSET, 0, fields=query), 5)
        assert offset.fields["offset"] == "3"
        assert (await sent(remote, broker, send_request(b"next"))).queue_offset == 5


async def test_files_of_what_is_not_built_stay_as_they_are(tmp_path: Path, remote: RemotingClient) -> None:
    """Rows 1.1 and 1.7: what belongs to transactions, pop, static topics or a controller."""
    names = [
        *(f"config/{name}.json" for name in NOT_BUILT),
        "config/transactionMetrics",
        "abort.bak",
        "consumequeue_ext/T/0/00000000000000000000",
        "compaction/position-checkpoint",
        "epochFileCheckpoint",
        "brokerIdentity",
        "kvStore/CURRENT",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"{not for us: " + name.encode())
    async with running(tmp_path) as broker:
        assert (await sent(remote, broker, send_request(b"x"))).queue_offset == 0
    async with running(tmp_path) as broker:
        assert len(decode_stored((await remote.ask(broker.address, pull_request(), 5)).body)) == 1
    assert [(tmp_path / name).read_bytes() for name in names] == [b"{not for us: " + name.encode() for name in names]


async def test_second_broker_is_kept_out_of_the_store(tmp_path: Path, broker: Broker) -> None:
    with pytest.raises(Exception, match="in use by another broker"):
        async with running(tmp_path):
            pass


async def test_changed_topic_is_served_at_once(broker: Broker, remote: RemotingClient) -> None:
    async def change(perm: int, queues: int) -> None:
        await remote.ask(broker.address, create_request(queues=queues, perm=perm), 5)

    await change(perm=6, queues=8)
    assert (await sent(remote, broker, send_request(b"x", queue_id=7))).queue_offset == 0
    await change(perm=4, queues=8)
    refused = await remote.invoke(broker.address, send_request(b"x", queue_id=7), 5)
    assert refused.code == ResponseCode.NO_PERMISSION
    await change(perm=6, queues=4)
    refused = await remote.invoke(broker.address, send_request(b"x", queue_id=7), 5)
    assert refused.code == ResponseCode.INVALID_PARAMETER


async def test_no_message_is_taken_before_its_topic_is_on_disk(
    tmp_path: Path, remote: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 1.7. The first send creates the topic; those behind it find it in the table, and it isn't on disk yet."""
    async with running(tmp_path, flushDiskType="ASYNC_FLUSH") as broker:
        document = tmp_path / "config" / "topics.json"
        while not document.exists():
            await asyncio.sleep(0.01)
        allowed = threading.Event()
        save = files.save_parts

        def slow(path: Path, parts: Iterable[bytes]) -> None:
            assert allowed.wait(30)
            save(path, parts)

        monkeypatch.setattr("rockmq.base.files.save_parts", slow)
        sends = [asyncio.create_task(sent(remote, broker, send_request(b"body", queue_id=0)))]
        for _ in range(3):
            await asyncio.sleep(0.05)
            sends.append(asyncio.create_task(sent(remote, broker, send_request(b"body", queue_id=0))))
        await asyncio.sleep(0.2)
        assert not any(each.done() for each in sends)
        pulled = await remote.invoke(broker.address, pull_request(), 5)
        assert pulled.code != ResponseCode.SUCCESS, "nothing is in the log either"
        allowed.set()
        offsets = [each.queue_offset for each in await asyncio.gather(*sends)]
        assert sorted(offsets) == [0, 1, 2, 3]
        assert "T" in json.decode(document.read_bytes(), dict[str, dict[str, object]], "topics")["topicConfigTable"]
        (tmp_path / "config" / "topics.json.tmp").mkdir()
        refused = await remote.invoke(broker.address, send_request(b"body", topic="U"), 5)
        again = await remote.invoke(broker.address, send_request(b"body", topic="U"), 10)
        assert {refused.code, again.code} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        (tmp_path / "config" / "topics.json.tmp").rmdir()
        await sent(remote, broker, send_request(b"body", topic="U"))
