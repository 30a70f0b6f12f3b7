"""Messages by key, by unique key, by tags and by id over real sockets."""

import time
from pathlib import Path
from typing import Any

import pytest

from rockmq.broker.server import Broker
from rockmq.protocol import codec
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.query import QueryMessage, QueryMessageResponse, ViewMessage
from rockmq.protocol.message import decode_stored
from rockmq.remoting.client import RemotingClient
from tests.unit.broker.conftest import running
from tests.unit.broker.test_messages import send_request, sent


def query(key: str, *, topic: str = "T", count: int = 64, begin: int = 0, end: int = 2**63 - 1, **more: Any) -> Command:
    header = QueryMessage(topic=topic, key=key, max_num=count, begin_timestamp=begin, end_timestamp=end, **more)
    return codec.request(RequestCode.QUERY_MESSAGE, header)


def bodies(answer: Command) -> list[bytes]:
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return [message.body for message in decode_stored(answer.body)]


async def test_messages_are_found_by_each_of_their_keys_oldest_first(broker: Broker, remote: RemotingClient) -> None:
    for number in range(3):
        await sent(remote, broker, send_request(b"%d" % number, KEYS=f"all k{number}  also-{number}"))
    last = await sent(remote, broker, send_request(b"other topic", topic="U", KEYS="all"))
    assert bodies(await remote.invoke(broker.address, query("all"), 5)) == [b"0", b"1", b"2"]
    assert bodies(await remote.invoke(broker.address, query("also-1"), 5)) == [b"1"]
    answer = await remote.invoke(broker.address, query("all", topic="U"), 5)
    header = decode(QueryMessageResponse, answer.fields)
    assert header.index_last_update_phyoffset == int(last.msg_id[-16:], 16)
    assert abs(header.index_last_update_timestamp - time.time() * 1000) < 60_000


async def test_newest_messages_are_given_up_to_the_bounds(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, maxMsgsNumBatch="4", defaultQueryMaxNum="3") as broker:
        for number in range(6):
            await sent(remote, broker, send_request(b"%d" % number, KEYS="k"))
        assert bodies(await remote.invoke(broker.address, query("k", count=2), 5)) == [b"4", b"5"]
        assert bodies(await remote.invoke(broker.address, query("k"), 5)) == [b"2", b"3", b"4", b"5"]
        assert bodies(await remote.invoke(broker.address, query("k", unique_key_query="TRUE"), 5)) == [b"3", b"4", b"5"]
        assert bodies(await remote.invoke(broker.address, query("k", count=2, unique_key_query="no"), 5)) == [b"4", b"5"]


async def test_unique_keys_and_tags_are_found(broker: Broker, remote: RemotingClient) -> None:
    await sent(remote, broker, send_request(b"x", UNIQ_KEY="0123ABCD", tag="paid"))
    assert bodies(await remote.invoke(broker.address, query("0123ABCD", unique_key_query="true", index_type="U"), 5)) == [
        b"x"
    ]
    assert bodies(await remote.invoke(broker.address, query("paid", index_type="T"), 5)) == [b"x"]
    assert (await remote.invoke(broker.address, query("paid", index_type="K"), 5)).code == ResponseCode.QUERY_NOT_FOUND
    unique = query("paid", index_type="T", unique_key_query="true")
    assert (await remote.invoke(broker.address, unique, 5)).code == ResponseCode.QUERY_NOT_FOUND


async def test_time_is_kept_to_the_second(broker: Broker, remote: RemotingClient) -> None:
    await sent(remote, broker, send_request(b"x", KEYS="k"))
    now = int(time.time() * 1000)
    assert bodies(await remote.invoke(broker.address, query("k", begin=now - 60_000, end=now + 60_000), 5)) == [b"x"]
    for begin, end in ((0, now - 60_000), (now + 60_000, now + 120_000)):
        assert (
            await remote.invoke(broker.address, query("k", begin=begin, end=end), 5)
        ).code == ResponseCode.QUERY_NOT_FOUND


async def test_nothing_found_is_said_as_apache_says_it(broker: Broker, remote: RemotingClient) -> None:
    await sent(remote, broker, send_request(b"x", KEYS="k"))
    for request in (query("nothing"), query("k", count=0), query("k", topic="no-such-topic")):
        answer = await remote.invoke(broker.address, request, 5)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.remark == "can not find message, maybe time range not correct"
        assert answer.fields == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
    answer = await remote.invoke(broker.address, query("k", count=-1), 5)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark == "maxNum is -1, below 0"


async def test_message_by_id(broker: Broker, remote: RemotingClient) -> None:
    response = await sent(remote, broker, send_request(b"x"))
    position = int(response.msg_id[-16:], 16)
    for topic in (None, "T"):
        request = codec.request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(topic=topic, offset=position))
        assert bodies(await remote.invoke(broker.address, request, 5)) == [b"x"]


@pytest.mark.parametrize("offset", [1, 1 << 40])
async def test_message_that_is_not_there(broker: Broker, remote: RemotingClient, offset: int) -> None:
    await sent(remote, broker, send_request(b"x"))
    request = codec.request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessage(offset=offset))
    answer = await remote.invoke(broker.address, request, 5)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")


async def test_without_an_index_a_query_says_so(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, messageIndexEnable="false") as broker:
        await sent(remote, broker, send_request(b"x", KEYS="k"))
        answer = await remote.invoke(broker.address, query("k"), 5)
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
        assert answer.remark == "messageIndexEnable=false: this broker keeps no index to find messages in"
