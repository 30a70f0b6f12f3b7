"""Topics with queue.type=BatchCQ: how they come to be, what is sent to them, and what is pulled."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.base.errors import ConfigError, ProtocolError
from rockmq.broker.server import Broker
from rockmq.client import Client
from rockmq.client.admin import TopicSettings
from rockmq.protocol import codec, properties
from rockmq.protocol.codec import Command, decode_records, encode_batch
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.admin import DeleteTopic
from rockmq.protocol.message import decode_stored
from rockmq.remoting.client import RemotingClient
from tests.support.model import Record
from tests.unit.broker.conftest import running
from tests.unit.broker.test_messages import create_request, pull_request, send_request, sent
from tests.unit.core import stores


def create(attributes: str = "+queue.type=BatchCQ") -> Command:
    return create_request(queues=2, attributes=attributes)


def batch(count: int, prefix: str = "b") -> bytes:
    return encode_batch(
        (0, f"{prefix}{number}".encode(), properties.encode({"UNIQ_KEY": f"{prefix}{number}"})) for number in range(count)
    )


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_batch_is_stored_as_one_record_and_pulled_as_its_messages(
    tmp_path: Path, remote: RemotingClient, flush: str
) -> None:
    async with running(tmp_path, flushDiskType=flush) as broker:
        await remote.ask(broker.address, create(), 5)
        first = await sent(remote, broker, send_request(batch(3), batch=True, UNIQ_KEY="whole"))
        assert (first.queue_offset, first.batch_uniq_id, first.transaction_id) == (0, "whole", "whole")
        single = await sent(remote, broker, send_request(b"single", UNIQ_KEY="alone"))
        assert (single.queue_offset, single.batch_uniq_id) == (3, None)
        apart = await sent(remote, broker, send_request(batch(2, "c"), batch=True))
        assert (apart.queue_offset, len(apart.msg_id.split(","))) == (4, 2)
        last = await sent(remote, broker, send_request(batch(2, "d"), batch=True, UNIQ_KEY="last", INNER_BASE="9"))
        assert last.queue_offset == 6
    async with running(tmp_path, flushDiskType=flush) as broker:
        response = await remote.ask(broker.address, pull_request(1), 5)
        messages = decode_stored(response.body, check_crc=True)
        assert response.fields["nextBeginOffset"] == "8"
        assert [message.queue_offset for message in messages] == list(range(8))
        assert [message.body for message in messages] == [b"b0", b"b1", b"b2", b"single", b"c0", b"c1", b"d0", b"d1"]
        assert [message.msg_id for message in messages][:4] == ["b0", "b1", "b2", "alone"]
        assert messages[0].offset_id == messages[2].offset_id == first.msg_id
        parked = await remote.invoke(broker.address, pull_request(8, suspend_ms=1), 20)
        assert parked.code == ResponseCode.PULL_NOT_FOUND


async def test_the_type_of_queues_stays(broker: Broker, remote: RemotingClient) -> None:
    """Apache's attribute is unchangeable too; a topic that is made again may have the other."""
    await remote.ask(broker.address, create(), 5)
    for attributes in ("+queue.type=SimpleCQ", "-queue.type"):
        refused = await remote.invoke(broker.address, create(attributes), 5)
        assert (refused.code, "queue.type" in (refused.remark or "")) == (ResponseCode.INVALID_PARAMETER, True)
    await sent(remote, broker, send_request(batch(3), batch=True, UNIQ_KEY="whole"))
    await remote.ask(broker.address, codec.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopic(topic="T")), 5)
    await remote.ask(broker.address, create(""), 5)
    assert (await sent(remote, broker, send_request(batch(3), batch=True, UNIQ_KEY="whole"))).batch_uniq_id is None
    messages = decode_stored((await remote.ask(broker.address, pull_request(), 5)).body)
    assert [(message.queue_offset, message.sys_flag) for message in messages] == [(0, 0), (1, 0), (2, 0)]


async def test_too_large_a_batch_is_refused(broker: Broker, remote: RemotingClient) -> None:
    await remote.ask(broker.address, create(), 5)
    body = encode_batch((0, b"", b"") for _ in range(32_768))
    refused = await remote.invoke(broker.address, send_request(body, batch=True, UNIQ_KEY="whole"), 5)
    assert (refused.code, "32767" in (refused.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)
    assert (await remote.invoke(broker.address, pull_request(), 5)).code == ResponseCode.PULL_NOT_FOUND


async def test_an_inner_batch_says_of_itself_what_any_message_may(broker: Broker, remote: RemotingClient) -> None:
    """Row 2.4."""
    await remote.ask(broker.address, create(), 5)
    said = {"POP_CK": "1 2", "__CRC32#": "0123456789", "__RMQ.TRANSIENT.x": "1", "CLUSTER": "other", "MSG_REGION": "other"}
    await sent(remote, broker, send_request(batch(3), batch=True, UNIQ_KEY="whole", mine="kept", **said))
    [record] = decode_records((await remote.ask(broker.address, pull_request(), 5)).body)
    assert properties.decode(record[-1]) == {
        "UNIQ_KEY": "whole",
        "mine": "kept",
        "INNER_NUM": "3",
        "INNER_BASE": "0",
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


REFUSED = {
    "properties over their bound": ({"KEYS": "k" * 32_700}, ResponseCode.MESSAGE_ILLEGAL, "32767"),
    "properties that a crash could have torn": ({"a": "\0" * 16 + "b"}, ResponseCode.MESSAGE_ILLEGAL, "torn"),
    "a timer": ({"TIMER_DELAY_SEC": "1"}, ResponseCode.MESSAGE_ILLEGAL, "TIMER_DELAY_SEC"),
    "half a transaction": ({"TRAN_MSG": "true"}, ResponseCode.MESSAGE_ILLEGAL, "transactional"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_an_inner_batch_is_refused_for_what_any_message_is(broker: Broker, remote: RemotingClient, case: str) -> None:
    more, code, names = REFUSED[case]
    await remote.ask(broker.address, create(), 5)
    refused = await remote.invoke(broker.address, send_request(batch(3), batch=True, UNIQ_KEY="whole", **more), 5)
    assert (refused.code, names in (refused.remark or "")) == (code, True)
    cut = await remote.invoke(broker.address, send_request(batch(3)[:-3], batch=True, UNIQ_KEY="whole"), 5)
    assert (cut.code, "batch" in (cut.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)
    assert (await remote.invoke(broker.address, pull_request(), 5)).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("sys_flag", [0x1, 0x301])
async def test_a_batch_that_consumers_could_not_take_apart_is_refused(
    broker: Broker, remote: RemotingClient, sys_flag: int
) -> None:
    """Row 2.5: they decompress the record's body, and would find no batch; those behind it wouldn't be reached."""
    await remote.ask(broker.address, create(), 5)
    request = send_request(batch(3), batch=True, sys_flag=sys_flag, UNIQ_KEY="whole")
    refused = await remote.invoke(broker.address, request, 5)
    assert (refused.code, "compressed" in (refused.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)
    assert (await sent(remote, broker, send_request(batch(3), batch=True, UNIQ_KEY="whole"))).queue_offset == 0


async def test_queues_that_contradict_the_document_are_told(
    tmp_path: Path, remote: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Row 1.5: Apache's broker doesn't start then. Ours does where no message is in danger."""
    async with running(tmp_path) as broker:
        await remote.ask(broker.address, create(), 5)
        await sent(remote, broker, send_request(batch(3), batch=True, UNIQ_KEY="whole"))
    document = tmp_path / "config" / "topics.json"
    document.write_text(document.read_text().replace("BatchCQ", "SimpleCQ"))
    async with running(tmp_path) as broker:
        assert "T has batch queues" in caplog.text
        assert (await sent(remote, broker, send_request(b"more"))).queue_offset == 3
        assert len(decode_stored((await remote.ask(broker.address, pull_request(), 5)).body)) == 4


async def test_simple_queues_stay_what_they_are(tmp_path: Path, remote: RemotingClient) -> None:
    """Row 1.5."""
    async with running(tmp_path) as broker:
        await sent(remote, broker, send_request(b"x"))
    document = tmp_path / "config" / "topics.json"
    topics = json.loads(document.read_text())
    topics["topicConfigTable"]["T"]["attributes"] = {"queue.type": "BatchCQ"}
    document.write_text(json.dumps(topics))
    with pytest.raises(ConfigError, match="T has simple queues already"):
        async with running(tmp_path):
            pass
    del topics["topicConfigTable"]["T"]
    document.write_text(json.dumps(topics))
    async with running(tmp_path) as broker:
        refused = await remote.invoke(broker.address, create(), 5)
        assert (refused.code, "T has simple queues" in (refused.remark or "")) == (ResponseCode.INVALID_PARAMETER, True)
        await remote.ask(broker.address, create(""), 5)


@pytest.mark.parametrize("lost", [["batchconsumequeue"], ["batchconsumequeue/T"], ["consumequeue", "batchconsumequeue"]])
async def test_lost_batch_queues_come_back_though_no_message_tells_of_them(
    tmp_path: Path, remote: RemotingClient, lost: list[str]
) -> None:
    """Row 4.1: the topic's attribute does, as in Apache's broker; and what was deleted stays so."""
    async with running(tmp_path) as broker:
        for topic in ("T", "gone"):
            await remote.ask(broker.address, create_request(topic=topic, queues=2, attributes="+queue.type=BatchCQ"), 5)
        await sent(remote, broker, send_request(b"single"))
        await sent(remote, broker, send_request(batch(2), batch=True, UNIQ_KEY="whole"))
        await sent(remote, broker, send_request(b"last"))
        await sent(remote, broker, send_request(b"x", topic="gone"))
        await remote.ask(broker.address, codec.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopic(topic="gone")), 5)
    for name in lost:
        shutil.rmtree(tmp_path / name)
    for _ in range(2):
        async with running(tmp_path) as broker:
            messages = decode_stored((await remote.ask(broker.address, pull_request(), 5)).body)
            assert [(message.queue_offset, message.body) for message in messages] == [
                (0, b"single"),
                (1, b"b0"),
                (2, b"b1"),
                (3, b"last"),
            ]
        assert not (tmp_path / "consumequeue" / "T").exists()
        assert not (tmp_path / "batchconsumequeue" / "gone").exists()


MALFORMED = {
    "no batch": (b"garbage", 2, [b"garbage"]),
    "cut off": (batch(2, "bad")[:-1], 2, [batch(2, "bad")[:-1]]),
    "more than it says": (batch(2, "bad"), 1, [batch(2, "bad")]),
    "fewer than it says": (batch(2, "bad"), 3, [b"bad0", b"bad1"]),
    "many fewer": (batch(2, "bad"), 32_767, [b"bad0", b"bad1"]),
}
"""By name the body and the number of messages it is said to have, and what is found of it."""


@pytest.mark.parametrize("are_lost", [False, True], ids=["", "lost queues"])
@pytest.mark.parametrize("case", MALFORMED)
async def test_a_malformed_batch_in_the_log_holds_nobody_up(tmp_path: Path, case: str, are_lost: bool) -> None:
    """Row 2.5: it takes the offsets that it says, and those behind it are read and popped."""
    body, said, bad = MALFORMED[case]
    async with embedded.serve(tmp_path, flush="ASYNC_FLUSH") as server, Client(server.namesrv) as mq:
        await mq.admin.topics.put(TopicSettings("T", 1, 1, attributes={"queue.type": "BatchCQ"}))
    size = embedded.LOG_FILE_SIZE
    store = stores.opened(tmp_path, log_file_size=size, queue_file_size=6_000_000, batch_queue_file_size=13_800_000)
    store.recover(0, True)
    for each, count in ((batch(2), 2), (body, said), (batch(2, "c"), 2)):
        stores.append(store, Record("T", 0, each, b"INNER_NUM\x01%d\x02" % count, sys_flag=0xC0, store_timestamp=1))
    store.close()
    if are_lost:
        shutil.rmtree(tmp_path / "batchconsumequeue")
    async with embedded.serve(tmp_path, flush="ASYNC_FLUSH") as server, Client(server.namesrv) as mq:
        (queue,) = await mq.queues("T")
        behind = 2 + said
        assert await mq.max_offset(queue) == behind + 2
        expected = [b"b0", b"b1", *bad, b"c0", b"c1"]
        async with mq.lite_pull_consumer("readers", from_where="first") as reader, asyncio.timeout(20):
            await reader.assign([queue])
            found: list[tuple[int | None, bytes]] = []
            while len(found) < len(expected):
                try:
                    found += [(each.queue_offset, each.body) for each in await reader.poll()]
                except ProtocolError:
                    found.append((None, body))
        assert [each for _, each in found] == expected
        assert [offset for offset, _ in found[-2:]] == [behind, behind + 1]
        assert [offset is None for offset, _ in found] == [False, False, *(each == body for each in bad), False, False]
        async with mq.pop_consumer("poppers", ["T"], from_where="first") as popper, asyncio.timeout(20):
            popped: set[bytes] = set()
            while popped != set(expected):
                message = await anext(popper)
                popped.add(message.stored.body)
                await message.ack()
