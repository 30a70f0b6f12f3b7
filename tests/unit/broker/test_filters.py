"""Filtering by SQL92 expressions in the broker (store spec, 1.7 and 5.1)."""

import asyncio
import json as plain_json
from pathlib import Path
from typing import Any

import pytest

from rockmq.base.errors import ConfigError
from rockmq.broker.consumer_filters import EXPRESSIONS_SIZE_MAX, ConsumerFilters
from rockmq.broker.server import Broker
from rockmq.config.broker import Filters
from rockmq.filter.bloom import BloomFilter
from rockmq.filter.sql import SIZE_MAX
from rockmq.protocol import codec, json
from rockmq.protocol.bodies.client import CheckClientBody, ConsumerData, HeartbeatData
from rockmq.protocol.bodies.common import SubscriptionData
from rockmq.protocol.codec import Command, encode_batch
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.client import CheckClientConfig, HeartBeat, UnregisterClient
from rockmq.protocol.headers.pull import PullResponse
from rockmq.protocol.message import StoredMessage, decode_stored
from rockmq.remoting.client import RemotingClient
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import running
from tests.unit.broker.test_messages import create_request, pull_request, send_request, sent

ON = {"enablePropertyFilter": "true"}
DAY_MS = 24 * 3600 * 1000


def inline(expression: str | None, offset: int = 0, *, kind: str = "SQL92", **more: Any) -> Command:
    """A pull that brings its expression."""
    request = pull_request(offset, **more)
    request.fields |= {"expressionType": kind, "subscription": expression or ""}
    if expression is None:
        del request.fields["subscription"]
    return request


def subscribed(topic: str, expression: str, version: int = 5, kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=expression, sub_version=version, expression_type=kind)


def beat(*subscriptions: SubscriptionData, group: str = "consumers") -> Command:
    consumer = ConsumerData(group_name=group, subscription_data_set=list(subscriptions))
    data = HeartbeatData(client_id="c1", consumer_data_set=[consumer])
    return codec.request(RequestCode.HEART_BEAT, HeartBeat(), json.encode(data))


def by_heartbeat(version: int = 5, *, topic: str = "T", **more: Any) -> Command:
    """A pull by what the group's heartbeats say."""
    request = pull_request(**more)
    flags = int(request.fields["sysFlag"]) & ~4
    request.fields |= {"sysFlag": str(flags), "subVersion": str(version), "topic": topic, "expressionType": "SQL92"}
    return request


async def found(remote: RemotingClient, broker: Broker, request: Command) -> list[bytes]:
    response = await remote.invoke(broker.address, request, 20)
    if response.code == ResponseCode.PULL_RETRY_IMMEDIATELY:
        return []
    assert response.code == ResponseCode.SUCCESS, response.remark
    return [message.body for message in decode_stored(response.body)]


async def told(remote: RemotingClient, broker: Broker, request: Command) -> tuple[int, str]:
    response = await remote.invoke(broker.address, request, 20)
    return response.code, response.remark or ""


async def send_numbers(remote: RemotingClient, broker: Broker, *numbers: int) -> None:
    for number in numbers:
        await sent(remote, broker, send_request(b"%d" % number, a=str(number), name="é"))


async def test_a_pull_gets_what_its_expression_is_true_for(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, **ON) as broker:
        await send_numbers(remote, broker, *range(10))
        await sent(remote, broker, send_request(b"none"))
        assert await found(remote, broker, inline("a > 2 AND a < 5 OR name IS NULL")) == [b"3", b"4", b"none"]
        response = await remote.ask(broker.address, inline("a IN ('2', '7')", 1, count=1), 5)
        assert decode(PullResponse, response.fields).next_begin_offset == 3
        response = await remote.invoke(broker.address, inline("a > 100"), 5)
        header = decode(PullResponse, response.fields)
        assert (response.code, header.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 11)
        assert await found(remote, broker, inline("a = 'x'")) == []
        assert await found(remote, broker, inline("a > 'x", kind="TAG")) == []


async def test_batches_are_filtered_too(tmp_path: Path, remote: RemotingClient) -> None:
    """Each message of one, but in a batch queue, where it is one record, all of it."""
    parts = [(0, b"%d" % number, f"a\x01{number}\x02".encode()) for number in range(4)]
    async with running(tmp_path, **ON) as broker:
        await sent(remote, broker, send_request(encode_batch(parts), batch=True))
        assert await found(remote, broker, inline("a BETWEEN 1 AND 2")) == [b"1", b"2"]
        await remote.ask(broker.address, create_request("B", attributes="+queue.type=BatchCQ"), 5)
        for number in range(3):
            await sent(remote, broker, send_request(b"%d" % number, topic="B", a=str(number)))
        request = inline("a >= 1")
        request.fields["topic"] = "B"
        assert await found(remote, broker, request) == [b"1", b"2"]


BAD = {
    "no expression": (None, "SQL92", "missing"),
    "an empty one": ("", "SQL92", "missing"),
    "one that ends early": ("a >", "SQL92", "character 4"),
    "one with something behind": ("a > 5 garbage", "SQL92", "garbage"),
    "ten thousand parentheses": ("(" * 10_000 + "a = 1" + ")" * 10_000, "SQL92", "16384"),
    "a million terms": (" OR ".join(["a = 1"] * 100_000), "SQL92", "16384"),
    "another type": ("a > 5", "XPATH", "XPATH"),
    "tags without end": ("a||" * 10_000, "TAG", "16384"),
}


@pytest.mark.parametrize("case", BAD)
async def test_what_is_no_filter_is_refused(tmp_path: Path, remote: RemotingClient, case: str) -> None:
    expression, kind, names = BAD[case]
    async with running(tmp_path, **ON) as broker:
        await send_numbers(remote, broker, 1)
        code, remark = await told(remote, broker, inline(expression, kind=kind))
        assert (code, names in remark) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, True), remark
        if kind != "TAG":
            code, remark = await told(remote, broker, check(expression or "", kind))
            assert (code, names in remark) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, True), remark
            # Who has others in its heartbeat isn't cut off from them.
            await remote.ask(broker.address, beat(subscribed("T", expression or "", kind=kind)), 5)
            code, remark = await told(remote, broker, by_heartbeat())
            assert (code, names in remark) == (ResponseCode.FILTER_DATA_NOT_EXIST, True), remark


def check(expression: str, kind: str = "SQL92") -> Command:
    body = CheckClientBody(client_id="c1", group="consumers", subscription_data=subscribed("T", expression, kind=kind))
    return codec.request(RequestCode.CHECK_CLIENT_CONFIG, CheckClientConfig(), json.encode(body))


async def test_clients_may_ask_before(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, **ON) as broker:
        assert await told(remote, broker, check("a > 5")) == (ResponseCode.SUCCESS, "")
        assert (await told(remote, broker, check("no tag at all", "TAG")))[0] == ResponseCode.SUCCESS
        for body in (b"", b"[]", b"{}", b'{"clientId":"c","group":"g","subscriptionData":{"topic":5}}'):
            request = codec.request(RequestCode.CHECK_CLIENT_CONFIG, CheckClientConfig(), body)
            code, remark = await told(remote, broker, request)
            assert (code, "client check" in remark) == (ResponseCode.INVALID_PARAMETER, True)


async def test_without_the_key_only_tags_filter(tmp_path: Path, broker: Broker, remote: RemotingClient) -> None:
    """Row 5.1: SQL92. Not even the expression is looked at."""
    await send_numbers(remote, broker, 1)
    await remote.ask(broker.address, beat(subscribed("T", "a > 0")), 5)
    for request in (inline("a >"), by_heartbeat(), check("a >")):
        code, remark = await told(remote, broker, request)
        assert (code, "SQL92: enablePropertyFilter is off" in remark) == (ResponseCode.SYSTEM_ERROR, True)
    assert not (tmp_path / "config" / "consumerFilter.json").exists()


async def test_heartbeats_bring_expressions(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, **ON) as broker:
        await send_numbers(remote, broker, *range(5))
        await remote.ask(broker.address, beat(subscribed("T", "a > 2")), 5)
        assert await found(remote, broker, by_heartbeat()) == [b"3", b"4"]
        assert (await told(remote, broker, by_heartbeat(6)))[0] == ResponseCode.SUBSCRIPTION_NOT_LATEST

        await remote.ask(broker.address, beat(subscribed("T", "a < 2", 4)), 5)
        assert await found(remote, broker, by_heartbeat()) == [b"3", b"4"], "an older one changes nothing"
        await remote.ask(broker.address, beat(subscribed("T", "a < 2", 6)), 5)
        assert await found(remote, broker, by_heartbeat(6)) == [b"0", b"1"]
        await remote.ask(broker.address, beat(subscribed("T", "a < 2 OR", 7)), 5)
        code, remark = await told(remote, broker, by_heartbeat(7))
        assert (code, "isn't complete" in remark) == (ResponseCode.FILTER_DATA_NOT_EXIST, True)
        await remote.ask(broker.address, beat(subscribed("T", "*", 8, kind="TAG")), 5)
        assert len(await found(remote, broker, by_heartbeat(8))) == 5

        await remote.ask(broker.address, beat(subscribed("T", "a = 1", 9)), 5)
        leaving = UnregisterClient(client_id="c1", consumer_group="consumers")
        await remote.ask(broker.address, codec.request(RequestCode.UNREGISTER_CLIENT, leaving), 5)
        assert (await told(remote, broker, by_heartbeat(9)))[0] == ResponseCode.SUBSCRIPTION_NOT_EXIST
        # Whose clock is behind that of the members before it is a member all the same.
        await remote.ask(broker.address, beat(subscribed("T", "a = 2", 3)), 5)
        assert await found(remote, broker, by_heartbeat(3)) == [b"2"]


async def test_a_pull_whose_filter_has_not_come_has_to_wait(tmp_path: Path, remote: RemotingClient) -> None:
    """What a heartbeat brings too much of comes with the next."""
    async with running(tmp_path, **ON) as broker:
        await send_numbers(remote, broker, *range(5))
        await remote.ask(broker.address, beat(subscribed("T", "a > 2")), 5)
        long = f"a = '{'x' * (SIZE_MAX - 6)}'"
        both = beat(subscribed("U", long, 6), subscribed("T", "a > 3", 6))
        await remote.ask(broker.address, both, 5)
        code, remark = await told(remote, broker, by_heartbeat(6))
        assert (code, "5 < 6" in remark) == (ResponseCode.FILTER_DATA_NOT_LATEST, True)
        assert await found(remote, broker, by_heartbeat(5)) == [b"3", b"4"]
        await remote.ask(broker.address, both, 5)
        assert await found(remote, broker, by_heartbeat(6)) == [b"4"]
        await remote.ask(broker.address, beat(subscribed("U", long, 6), subscribed("T", "a > 3", 7)), 5)
        assert await found(remote, broker, by_heartbeat(7)) == [b"4"], "the same expression again is only newer"


@pytest.mark.usefixtures("unswept")
async def test_waiting_pulls_are_answered_by_what_they_want(tmp_path: Path, remote: RemotingClient) -> None:
    """Row 5.3."""
    async with running(tmp_path, **ON) as broker:
        await send_numbers(remote, broker, 0)
        waiting = asyncio.create_task(remote.invoke(broker.address, inline("a > 500", 1, suspend_ms=60_000), 30))
        both = asyncio.create_task(remote.invoke(broker.address, inline("a > 700", 1, suspend_ms=60_000), 30))
        await asyncio.sleep(0.1)
        await send_numbers(remote, broker, *range(1, 400))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await send_numbers(remote, broker, 600)
        response = await asyncio.wait_for(waiting, 20)
        assert [message.body for message in decode_stored(response.body)] == [b"600"]
        assert not both.done()
        await send_numbers(remote, broker, 1, 800)
        assert [message.body for message in decode_stored((await asyncio.wait_for(both, 20)).body)] == [b"800"]


async def test_a_scan_ends_and_goes_on(tmp_path: Path, remote: RemotingClient) -> None:
    """Row 5.1: by entries, and by the time that the expression takes; always with one at least."""
    async with running(tmp_path, **ON) as broker:
        parts = [(0, b"x", b"a\x01%d\x02" % number) for number in range(1_000)]
        for _ in range(5):
            await sent(remote, broker, send_request(encode_batch(parts), batch=True))
        assert await scanned(remote, broker, "a = -1") == [4_096, 5_000]
        slow = await scanned(remote, broker, " OR ".join(["a = -1"] * 340))
        assert 7 < len(slow) < 250


async def test_many_scan_while_others_send_and_files_go(tmp_path: Path, remote: RemotingClient) -> None:
    """Row 5.1: scans run beside each other and beside appends that roll the log's and the queue's files over."""
    more = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "6000"}
    async with running(tmp_path, **ON, **more) as broker:
        number = 0

        async def send(count: int) -> None:
            nonlocal number
            for _ in range(count):
                parts = [(0, b"%d" % each, b"a\x01%d\x02" % each) for each in range(number, number + 50)]
                number += 50
                await sent(remote, broker, send_request(encode_batch(parts), batch=True))

        async def wanted(rest: int, end: int) -> list[bytes]:
            # The offset is the number too.
            bodies, offset = list[bytes](), 0
            expression = " OR ".join(f"a = {each}" for each in range(rest, end, 997))
            while offset < end:
                response = await remote.invoke(broker.address, inline(expression, offset), 20)
                assert response.code in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY), response.remark
                bodies += [message.body for message in decode_stored(response.body)]
                offset = decode(PullResponse, response.fields).next_begin_offset
            return bodies

        await send(60)
        rests = range(0, 80, 10)
        _, *each = await asyncio.gather(send(40), *(wanted(rest, 3_000) for rest in rests))
        assert each == [[b"%d" % one for one in range(rest, 3_000, 997)] for rest in rests]


async def scanned(remote: RemotingClient, broker: Broker, expression: str) -> list[int]:
    """The next offset of each pull of 5,000 messages, none of which is wanted."""
    seen = [0]
    while seen[-1] < 5_000:
        response = await remote.invoke(broker.address, inline(expression, seen[-1]), 10)
        assert response.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        seen.append(decode(PullResponse, response.fields).next_begin_offset)
        assert seen[-1] > seen[-2]
    return seen[1:]


async def test_a_retry_topic_is_filtered_by_the_topics_it_comes_from(tmp_path: Path, remote: RemotingClient) -> None:
    """Row 5.1: with filterSupportRetry, and where somebody subscribes to it by SQL92, which no client of Apache's does."""
    retry = "%RETRY%consumers"
    for supported, expected in (("true", [b"1", b"4", b"5"]), ("false", [b"2", b"4"])):
        async with running(tmp_path / supported, **ON, filterSupportRetry=supported) as broker:
            await remote.ask(
                broker.address,
                beat(subscribed("T", "a = 1"), subscribed("U", "a > 3"), subscribed(retry, "a IN ('2', '4', 'x')")),
                5,
            )
            for number, origin in ((1, "T"), (2, "T"), (3, "U"), (4, "U"), (5, "V")):
                request = send_request(b"%d" % number, topic=retry, a=str(number), RETRY_TOPIC=origin)
                await sent(remote, broker, request)
            await sent(remote, broker, send_request(b"error", topic=retry, a="y", RETRY_TOPIC="T"))
            assert await found(remote, broker, by_heartbeat(topic=retry)) == expected


async def test_too_many_tags_of_a_heartbeat_are_refused(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        await send_numbers(remote, broker, 1)
        subscription = subscribed("T", "a", kind="TAG")
        subscription.code_set = list(range(10_000))
        await remote.ask(broker.address, beat(subscription), 5)
        code, remark = await told(remote, broker, by_heartbeat())
        assert (code, "10000 tags" in remark) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, True)


async def test_the_document_is_apaches(tmp_path: Path) -> None:
    filters = ConsumerFilters(tmp_path, Filters(), FakeClock())
    filters.register(
        "consumers", [subscribed("T", "a > 1", 77), subscribed("U", "b = 'ü'"), subscribed("V", "*", kind="TAG")]
    )
    await filters.close()
    table = plain_json.loads((tmp_path / "consumerFilter.json").read_text())["filterDataByTopic"]
    assert sorted(table) == ["T", "U"]
    assert table["T"] == {
        "topic": "T",
        "groupFilterData": {
            "consumers": {
                "bloomFilterData": {"bitNum": 112, "bitPos": BloomFilter.of(20, 32).positions("consumers#T")},
                "bornTime": 1_700_000_000_000,
                "clientVersion": 77,
                "consumerGroup": "consumers",
                "dead": False,
                "deadTime": 0,
                "expression": "a > 1",
                "expressionType": "SQL92",
                "topic": "T",
            }
        },
    }


def stored(expression: str = "a > 1", dead_time: int = 0, born_time: int = 1_000, bits: int = 112) -> str:
    return plain_json.dumps(
        {
            "filterDataByTopic": {
                "T": {
                    "groupFilterData": {
                        "g": {
                            "bloomFilterData": {"bitNum": bits, "bitPos": [1, 2, 3]},
                            "bornTime": born_time,
                            "clientVersion": 5,
                            "consumerGroup": "g",
                            "dead": False,
                            "deadTime": dead_time,
                            "expression": expression,
                            "expressionType": "SQL92",
                            "topic": "T",
                        }
                    },
                    "topic": "T",
                }
            }
        }
    )


async def loaded(directory: Path, text: str, **options: Any) -> tuple[ConsumerFilters, FakeClock]:
    (directory / "consumerFilter.json").write_text(text)
    clock = FakeClock()
    return ConsumerFilters(directory, Filters(**options), clock), clock


APACHE = """{
\t"filterDataByTopic":{
\t\t"filtered":{
\t\t\t"groupFilterData":{
\t\t\t\t"fg":{
\t\t\t\t\t"bloomFilterData":{
\t\t\t\t\t\t"bitNum":112,
\t\t\t\t\t\t"bitPos":[41,65,83]
\t\t\t\t\t},
\t\t\t\t\t"bornTime":1795345038512,
\t\t\t\t\t"clientVersion":1795345038199,
\t\t\t\t\t"consumerGroup":"fg",
\t\t\t\t\t"dead":false,
\t\t\t\t\t"deadTime":0,
\t\t\t\t\t"expression":"a > 5 AND b = 'ü'",
\t\t\t\t\t"expressionType":"SQL92",
\t\t\t\t\t"topic":"filtered"
\t\t\t\t}
\t\t\t},
\t\t\t"topic":"filtered"
\t\t}
\t}
}"""
"""As Apache's broker 5.5.0 wrote it."""


async def test_a_document_of_apaches_is_read_and_written(tmp_path: Path) -> None:
    filters, _ = await loaded(tmp_path, APACHE)
    filters.register("fg", [subscribed("filtered", "a > 5 AND b = 'ü'", 1795345038199)])
    await filters.close()
    assert plain_json.loads((tmp_path / "consumerFilter.json").read_text()) == plain_json.loads(APACHE)


async def test_what_was_alive_is_dead_after_a_start_until_it_comes_back(tmp_path: Path) -> None:
    filters, clock = await loaded(tmp_path, stored())
    data = filters.find("g", "T")
    assert data is not None
    assert (data.dead, data.dead_time) == (True, clock.now_ms() - 30_000)
    filters.register("g", [subscribed("T", "a > 1", 5)])
    assert (data.dead, data.dead_time, data.born_time) == (False, 0, 1_000)
    filters.unregister("g")
    assert (data.dead, data.dead_time) == (True, clock.now_ms())
    clock.seconds += DAY_MS / 1000 - 1
    filters.clean()
    assert filters.find("g", "T") is data
    clock.seconds += 1
    filters.clean()
    assert filters.find("g", "T") is None
    await filters.close()
    assert plain_json.loads((tmp_path / "consumerFilter.json").read_text()) == {"filterDataByTopic": {}}


async def test_other_bits_and_dead_ones(tmp_path: Path) -> None:
    filters, clock = await loaded(tmp_path, stored(bits=120))
    assert filters.find("g", "T") is None
    filters, clock = await loaded(tmp_path, stored(dead_time=2_000), filter_data_clean_time_span=10**15)
    data = filters.find("g", "T")
    assert data is not None
    assert data.dead_time == 2_000
    filters, clock = await loaded(tmp_path, stored(born_time=clock.now_ms()))
    data = filters.find("g", "T")
    assert data is not None
    assert data.dead_time == data.born_time


async def test_what_apache_kept_and_we_cannot_use_is_told(tmp_path: Path, remote: RemotingClient) -> None:
    """Apache uses the beginning of such an expression."""
    (tmp_path / "config").mkdir()
    text = stored("a > 1 garbage").replace('"g"', '"consumers"')
    (tmp_path / "config" / "consumerFilter.json").write_text(text)
    async with running(tmp_path, **ON) as broker:
        await send_numbers(remote, broker, 1)
        await remote.ask(broker.address, beat(subscribed("T", "a > 1 garbage")), 5)
        code, remark = await told(remote, broker, by_heartbeat())
        assert (code, "garbage can't stand here" in remark) == (ResponseCode.FILTER_DATA_NOT_EXIST, True)


async def test_expressions_survive_a_start(tmp_path: Path, remote: RemotingClient) -> None:
    born = []
    for _ in range(2):
        async with running(tmp_path, **ON) as broker:
            await remote.ask(broker.address, beat(subscribed("T", "a > 1")), 5)
        document = plain_json.loads((tmp_path / "config" / "consumerFilter.json").read_text())
        born.append(document["filterDataByTopic"]["T"]["groupFilterData"]["consumers"]["bornTime"])
    assert born[0] == born[1]


async def test_there_is_room_for_so_many_expressions(tmp_path: Path) -> None:
    filters = ConsumerFilters(tmp_path, Filters(), FakeClock())
    long = f"a IN ('{'x' * 16_000}')"
    fits = EXPRESSIONS_SIZE_MAX // len(long)
    everything = [subscribed(f"T{number}", long) for number in range(fits + 1)]
    filters.register("g", everything)
    assert filters.find("g", "T0") is not None
    assert filters.find("g", "T1") is None, "one heartbeat isn't given more time"
    for _ in range(fits):
        filters.register("g", everything)
    assert filters.find("g", f"T{fits - 1}") is not None
    assert filters.find("g", f"T{fits}") is None
    filters.register("g", [subscribed(f"T{fits}", long)])
    assert filters.find("g", f"T{fits}") is not None, "dead ones make room"
    await filters.close()


def is_large(message: StoredMessage) -> bool:
    """A filter in Python, as an operator writes one."""
    return int(message.body) > 2 and int(message.properties["a"]) < 50


PYTHON = ON | {"pythonFilters": f"large={__name__}:is_large; never = builtins:bool"}


@pytest.mark.usefixtures("unswept")
async def test_a_function_of_the_operators_filters(
    tmp_path: Path, remote: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, **PYTHON) as broker:
        await send_numbers(remote, broker, *range(5), *[50] * 40)
        await sent(remote, broker, send_request(b"no number"))
        await sent(remote, broker, send_request(b"7", a="9"))
        response = await remote.ask(broker.address, inline("large", kind="PYTHON", count=1_000), 5)
        assert [message.body for message in decode_stored(response.body)] == [b"3", b"4"]
        header = decode(PullResponse, response.fields)
        assert (header.next_begin_offset, header.max_offset) == (32, 47)
        assert await found(remote, broker, inline("large", 32, kind="PYTHON")) == [b"7"]
        assert [record.levelname for record in caplog.records if "Python filter large fails" in record.message] == ["ERROR"]
        response = await remote.invoke(broker.address, inline("large", 5, kind="PYTHON"), 5)
        header = decode(PullResponse, response.fields)
        assert (response.code, header.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 37)

        waiting = asyncio.create_task(
            remote.invoke(broker.address, inline("large", 47, kind="PYTHON", suspend_ms=60_000), 30)
        )
        await asyncio.sleep(0.1)
        await send_numbers(remote, broker, 1, 5)
        assert [message.body for message in decode_stored((await asyncio.wait_for(waiting, 20)).body)] == [b"5"]

        await remote.ask(broker.address, beat(subscribed("T", "large", kind="PYTHON")), 5)
        assert await found(remote, broker, by_heartbeat()) == [b"3", b"4"]
        assert await told(remote, broker, check("large", "PYTHON")) == (ResponseCode.SUCCESS, "")
        for request in (check("small", "PYTHON"), inline("small", kind="PYTHON")):
            code, remark = await told(remote, broker, request)
            assert (code, "this broker has: large, never" in remark) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, True)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("large", "expected name=module:function"),
        ("large=shop", "expected name=module:function"),
        ("large=no.such.module:f", "can't be loaded: No module"),
        ("large=builtins:nothing", "can't be loaded"),
        ("large=builtins:__name__", "is no function"),
        ("large=asyncio:sleep", "is async; expected a plain function"),
    ],
)
async def test_a_function_that_is_not_there_stops_the_start(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        async with running(tmp_path, **ON, pythonFilters=text):
            pass
