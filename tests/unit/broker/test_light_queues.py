"""Light queues (enableLmq): sent to by name, pulled like topics that nobody has created."""

import asyncio
import json
from pathlib import Path

import pytest

from rockmq.broker.offsets import ConsumerOffsets
from rockmq.broker.server import Broker
from rockmq.protocol import codec
from rockmq.protocol.codec import Command, encode_batch
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.admin import CreateTopic, GetBrokerStats
from rockmq.protocol.message import StoredMessage, decode_stored
from rockmq.remoting.client import RemotingClient
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import running
from tests.unit.broker.test_messages import pull_request, send_request, sent

ON = {"enableLmq": "true", "enableMultiDispatch": "true"}
GROUPS = ("consumers", "%LMQ%consumers")


def light_pull(topic: str, offset: int = 0, *, group: str = "consumers", suspend_ms: int = 0) -> Command:
    pull = pull_request(offset, suspend_ms=suspend_ms)
    pull.fields |= {"topic": topic, "consumerGroup": group}
    return pull


async def pulled(remote: RemotingClient, broker: Broker, topic: str, group: str = "consumers") -> list[StoredMessage]:
    return decode_stored((await remote.ask(broker.address, light_pull(topic, group=group), 5)).body, check_crc=True)


async def offset(remote: RemotingClient, broker: Broker, code: RequestCode, topic: str, **more: str) -> int:
    fields = {"topic": topic, "queueId": "0", **more}
    return int((await remote.ask(broker.address, Command(code, 0, fields=fields), 5)).fields["offset"])


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_message_is_pulled_from_each_queue_it_names(tmp_path: Path, remote: RemotingClient, flush: str) -> None:
    async with running(tmp_path, flushDiskType=flush, **ON) as broker:
        said = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b/c,%LMQ%b", "INNER_MULTI_QUEUE_OFFSET": "7,7,7"}
        result = await sent(remote, broker, send_request(b"one", tag="t", **said))
        assert (result.queue_id, result.queue_offset) == (0, 0)
        await sent(remote, broker, send_request(b"two", topic="U", INNER_MULTI_DISPATCH="%LMQ%b,"))
        await sent(remote, broker, send_request(b"plain"))
        both = await pulled(remote, broker, "%LMQ%b")
        assert [(one.topic, one.body) for one in both] == [("T", b"one"), ("U", b"two")]
        assert [one.properties["INNER_MULTI_QUEUE_OFFSET"] for one in both] == ["0,0,0", "1"]
        assert both[0].properties["INNER_MULTI_DISPATCH"] == "%LMQ%a,%LMQ%b/c,%LMQ%b"
        assert both[1].properties["INNER_MULTI_DISPATCH"] == "%LMQ%b,"
        assert (both[0].offset_id, both[0].msg_id) == (result.msg_id, result.transaction_id)
        assert [one.body for one in await pulled(remote, broker, "%LMQ%a", "%LMQ%g")] == [b"one"]
    async with running(tmp_path, flushDiskType=flush, **ON) as broker:
        await sent(remote, broker, send_request(b"three", INNER_MULTI_DISPATCH="%LMQ%b"))
        assert [one.body for one in await pulled(remote, broker, "%LMQ%b")] == [b"one", b"two", b"three"]
        assert await offset(remote, broker, RequestCode.GET_MIN_OFFSET, "%LMQ%b") == 0
        assert await offset(remote, broker, RequestCode.GET_MAX_OFFSET, "%LMQ%b") == 3
        assert await offset(remote, broker, RequestCode.GET_MAX_OFFSET, "%LMQ%never") == 0
        stats = await remote.ask(broker.address, Command(RequestCode.GET_TOPIC_STATS_INFO, 0, fields={"topic": "%LMQ%b"}), 5)
        assert b'"maxOffset":3' in stats.body


async def test_a_light_queue_is_no_topic_of_the_table(tmp_path: Path, remote: RemotingClient) -> None:
    """LmqTopicConfigManager, LmqSubscriptionGroupManager: it has one queue, whoever says what of it."""
    async with running(tmp_path, **ON) as broker:
        header = CreateTopic(topic="%LMQ%a", default_topic="TBW102", read_queue_nums=8, write_queue_nums=8, perm=4)
        await remote.ask(broker.address, codec.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header), 5)
        await sent(remote, broker, send_request(b"straight", topic="%LMQ%a"))
        await sent(remote, broker, send_request(b"by name", INNER_MULTI_DISPATCH="%LMQ%a"))
        for key in ("%LMQ%a", "T"):
            asked = GetBrokerStats(stats_name="TOPIC_PUT_NUMS", stats_key=key)
            told = await remote.ask(broker.address, codec.request(RequestCode.VIEW_BROKER_STATS_DATA, asked), 5)
            assert json.loads(told.body)["statsMinute"]["sum"] == 1, key
        assert [one.body for one in await pulled(remote, broker, "%LMQ%a", "%LMQ%g")] == [b"straight", b"by name"]
        pull = light_pull("%LMQ%a")
        pull.fields["queueId"] = "1"
        assert (await remote.invoke(broker.address, pull, 5)).code == ResponseCode.INVALID_PARAMETER
    for name in ("topics.json", "subscriptionGroup.json"):
        assert "%LMQ%" not in (tmp_path / "config" / name).read_text()


@pytest.mark.usefixtures("unswept")
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_pulls_that_wait_at_light_queues_are_woken(tmp_path: Path, remote: RemotingClient, flush: str) -> None:
    async with running(tmp_path, flushDiskType=flush, **ON) as broker:
        await sent(remote, broker, send_request(b"old", INNER_MULTI_DISPATCH="%LMQ%a"))
        where = [("%LMQ%a", 1), ("%LMQ%b", 0), ("%LMQ%c", 0)]
        waiting = [
            asyncio.create_task(remote.ask(broker.address, light_pull(topic, begin, suspend_ms=30_000), 20))
            for topic, begin in where
        ]
        await asyncio.sleep(0.05)
        await sent(remote, broker, send_request(b"new", INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b"))
        for task in waiting[:2]:
            assert [one.body for one in decode_stored((await asyncio.wait_for(task, 15)).body)] == [b"new"]
        assert not waiting[2].done()
        waiting[2].cancel()


@pytest.mark.parametrize("name", ["%LMQ%a/b", "%LMQ%a\0", "%LMQ%" + "a" * 251, "%LMQ%" + "\u00fc" * 130])
async def test_names_that_no_queue_can_have_are_unknown(tmp_path: Path, remote: RemotingClient, name: str) -> None:
    async with running(tmp_path, flushDiskType="ASYNC_FLUSH", **ON) as broker:
        pull = light_pull(name, suspend_ms=30_000)
        assert (await remote.invoke(broker.address, pull, 5)).code == ResponseCode.TOPIC_NOT_EXIST
        pull = light_pull("%LMQ%a", group=name)
        assert (await remote.invoke(broker.address, pull, 5)).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        for topic, group in ((name, "g"), ("%LMQ%a", name)):
            fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "1"}
            response = await remote.invoke(broker.address, Command(RequestCode.UPDATE_CONSUMER_OFFSET, 0, fields=fields), 5)
            assert response.code != ResponseCode.SUCCESS
        # Apache takes a slash, and makes no queue.
        result = await remote.invoke(broker.address, send_request(b"x", INNER_MULTI_DISPATCH=name), 5)
        assert result.code == (ResponseCode.SUCCESS if "/" in name else ResponseCode.MESSAGE_ILLEGAL)
        assert await offset(remote, broker, RequestCode.GET_MAX_OFFSET, "T") == ("/" in name)


async def test_offsets_of_names_with_the_separator_outlast_a_restart(tmp_path: Path) -> None:
    """Names of MQTT's clients have it."""
    rows = [("%LMQ%g", "%LMQ%GID@@@one", 0), ("g", "%LMQ%GID@@@one", 0), ("%LMQ%g@h", "%LMQ%a", 0), ("%LMQ%g", "T", 3)]
    offsets = ConsumerOffsets(tmp_path, FakeClock(), light=True)
    for number, row in enumerate(rows):
        offsets.commit(*row, number)
    await offsets.close()
    document = json.loads((tmp_path / "lmqConsumerOffset.json").read_text())
    assert document["lmqOffsetTable"] == {"%LMQ%GID@@@one@%LMQ%g": 0, "%LMQ%a@%LMQ%g@h": 2}
    again = ConsumerOffsets(tmp_path, FakeClock(), light=True)
    assert [again.query(*row) for row in rows] == [0, 1, 2, 3]
    await again.close()


async def test_offsets_are_kept_in_apaches_document(tmp_path: Path, remote: RemotingClient) -> None:
    """LmqConsumerOffsetManager: groups of light queues have a table of their own, and all is in another file."""
    config = tmp_path / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_text('{"offsetTable":{"T@consumers":{0:5}}}')

    async def committed(broker: Broker, group: str, topic: str) -> int:
        return await offset(remote, broker, RequestCode.QUERY_CONSUMER_OFFSET, topic, consumerGroup=group)

    async with running(tmp_path, **ON) as broker:
        assert await committed(broker, "consumers", "T") == 5, "from before there were light queues"
        for number, group in enumerate(GROUPS):
            fields = {"consumerGroup": group, "topic": "%LMQ%a", "queueId": "0", "commitOffset": str(number + 1)}
            await remote.ask(broker.address, Command(RequestCode.UPDATE_CONSUMER_OFFSET, 0, fields=fields), 5)
    document = json.loads((config / "lmqConsumerOffset.json").read_text())
    assert document["lmqOffsetTable"] == {"%LMQ%a@%LMQ%consumers": 2}
    assert document["offsetTable"] == {"T@consumers": {"0": 5}, "%LMQ%a@consumers": {"0": 1}}
    async with running(tmp_path, **ON) as broker:
        assert [await committed(broker, group, "%LMQ%a") for group in GROUPS] == [1, 2]
        assert await committed(broker, "consumers", "T") == 5


async def test_offsets_go_on_when_light_queues_begin_and_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Row 1.7: whichever document was saved last, and so that it is the newest one itself from then on."""
    rows = [("g", "T", 0), ("%LMQ%GID@@@one", "T", 0), ("%LMQ%GID@@@one", "%LMQ%a", 0)]
    clock = FakeClock()
    for life, light in enumerate((False, True, True, False, True, False)):
        # A clock that goes back changes nothing of it.
        clock.seconds -= 100 if life == 3 else 0
        offsets = ConsumerOffsets(tmp_path, clock, light=light)
        if life:
            assert [offsets.query(*row) for row in rows] == [life * 10 + number for number in range(3)]
        for number, row in enumerate(rows):
            offsets.commit(*row, (life + 1) * 10 + number)
        await offsets.close()
        assert ("enableLmq was changed" in caplog.text) == (life not in (0, 2))
        caplog.clear()
    # A start alone counts as well: what it takes over is its own.
    await ConsumerOffsets(tmp_path, FakeClock(), light=True).close()
    (tmp_path / "consumerOffset.json").unlink()
    (tmp_path / "consumerOffset.json.bak").unlink()
    assert ConsumerOffsets(tmp_path, FakeClock(), light=True).query(*rows[2]) == 62
    (tmp_path / "consumerOffset.json").write_text("{")
    caplog.clear()
    assert ConsumerOffsets(tmp_path, FakeClock(), light=True).query(*rows[2]) == 62
    assert "nothing of it is needed as long as enableLmq stays as it is" in caplog.text


@pytest.mark.parametrize("light", [False, True])
def test_offsets_that_apaches_broker_saved_last_are_gone_on_with(tmp_path: Path, light: bool) -> None:
    """Row 1.7: it counts saves otherwise, and begins anew with the other document."""
    for name, counter, timestamp, offset in (("consumerOffset", 1000, 5, 1), ("lmqConsumerOffset", 1, 6, 2)):
        version = f'"dataVersion":{{"counter":{counter},"stateVersion":0,"timestamp":{timestamp}}}'
        (tmp_path / f"{name}.json").write_text(f'{{{version},"offsetTable":{{"T@g":{{0:{offset}}}}}}}')
    assert ConsumerOffsets(tmp_path, FakeClock(), light=light).query("g", "T", 0) == 2


async def test_a_light_group_with_several_queues_loses_no_offset(tmp_path: Path) -> None:
    """Apache keeps one offset for all of them."""
    offsets = ConsumerOffsets(tmp_path, FakeClock(), light=True)
    for queue_id, value in ((0, 7), (1, 8)):
        offsets.commit("%LMQ%g", "T", queue_id, value)
        offsets.commit("%LMQ%g", "%LMQ%a", 0, 9)
    await offsets.close()
    again = ConsumerOffsets(tmp_path, FakeClock(), light=True)
    assert again.by_group("%LMQ%g") == {"T": {0: 7, 1: 8}, "%LMQ%a": {0: 9}}
    assert json.loads((tmp_path / "lmqConsumerOffset.json").read_text())["lmqOffsetTable"] == {"%LMQ%a@%LMQ%g": 9}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("other", "'other' doesn't begin with %LMQ%"),
        (",".join(f"%LMQ%{number}" for number in range(1001)), "names 1001 light queues, the bound is 1000"),
        ("%LMQ%" + "x" * 251, "can't name a directory"),
    ],
)
async def test_names_that_cant_be_are_refused(tmp_path: Path, remote: RemotingClient, names: str, words: str) -> None:
    async with running(tmp_path, **ON) as broker:
        response = await remote.invoke(broker.address, send_request(b"x", INNER_MULTI_DISPATCH=names), 5)
        assert response.code == ResponseCode.MESSAGE_ILLEGAL
        assert response.remark is not None
        assert words in response.remark
        assert await offset(remote, broker, RequestCode.GET_MAX_OFFSET, "T") == 0


async def test_a_message_may_name_a_thousand_queues(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, **ON) as broker:
        names = [f"%LMQ%{number}" for number in range(1000)]
        for _ in range(2):
            await sent(remote, broker, send_request(b"x", INNER_MULTI_DISPATCH=",".join(names)))
        for name in (names[0], names[-1]):
            assert await offset(remote, broker, RequestCode.GET_MAX_OFFSET, name) == 2


async def test_a_whole_record_is_no_longer_than_a_body(tmp_path: Path, remote: RemotingClient) -> None:
    """Row 2.3."""
    async with running(tmp_path, maxMessageSize="1000", **ON) as broker:
        await sent(remote, broker, send_request(bytes(1000)))
        response = await remote.invoke(broker.address, send_request(bytes(1000), INNER_MULTI_DISPATCH="%LMQ%a"), 5)
        assert (response.code, "in light queues it may be 1000" in (response.remark or "")) == (13, True)


async def test_batches_are_in_no_light_queues(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path, **ON) as broker:
        body = encode_batch([(0, b"one", b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02INNER_MULTI_QUEUE_OFFSET\x010\x02")])
        response = await remote.invoke(broker.address, send_request(body, batch=True), 5)
        assert (response.code, "light queues" in (response.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)
        header = CreateTopic(
            topic="B", default_topic="", read_queue_nums=1, write_queue_nums=1, perm=6, attributes="+queue.type=BatchCQ"
        )
        await remote.ask(broker.address, codec.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header), 5)
        whole = send_request(
            encode_batch([(0, b"one", b"")]), topic="B", batch=True, UNIQ_KEY="whole", INNER_MULTI_DISPATCH="%LMQ%a"
        )
        response = await remote.invoke(broker.address, whole, 5)
        assert (response.code, "light queues" in (response.remark or "")) == (ResponseCode.MESSAGE_ILLEGAL, True)
        assert await offset(remote, broker, RequestCode.GET_MAX_OFFSET, "%LMQ%a") == 0


@pytest.mark.parametrize("settings", [ON, {}], ids=["on", "off"])
async def test_a_retry_is_not_dispatched_again(tmp_path: Path, remote: RemotingClient, settings: dict[str, str]) -> None:
    """MixAll.topicAllowsLMQ: what it says of light queues stays as it was."""
    async with running(tmp_path, **settings) as broker:
        said = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "7"}
        await remote.invoke(broker.address, light_pull("T", group="g"), 5)  # makes the group
        await sent(remote, broker, send_request(b"x", topic="%RETRY%g", **said))
        [message] = await pulled(remote, broker, "%RETRY%g")
        assert {key: message.properties[key] for key in said} == said
        assert await offset(remote, broker, RequestCode.GET_MAX_OFFSET, "%LMQ%a") == 0


async def test_without_enable_lmq_they_are_refused(broker: Broker, remote: RemotingClient) -> None:
    response = await remote.invoke(broker.address, send_request(b"x", INNER_MULTI_DISPATCH="%LMQ%a"), 5)
    assert response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "need enableLmq=true and enableMultiDispatch=true" in (response.remark or "")
