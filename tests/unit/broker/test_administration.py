"""What administrators change and ask at a broker (protocol spec, 5.1)."""

import asyncio
import logging
import os
import re
from pathlib import Path

import msgspec
import pytest

from rockmq.broker.server import Broker
from rockmq.broker.stats import SAMPLE_SECONDS
from rockmq.config import properties
from rockmq.protocol import codec, json
from rockmq.protocol.bodies.admin import BrokerStatsData, GroupConfigs, GroupTableBody, QueueEntries, TopicConfigs
from rockmq.protocol.bodies.common import GroupConfig, KVTable, TopicConfig
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import Header
from rockmq.protocol.headers.admin import (
    CleanUnusedTopics,
    CreateTopics,
    DeleteGroup,
    GetAllGroups,
    GetBrokerConfig,
    GetBrokerRuntimeInfo,
    GetBrokerStats,
    GetGroup,
    GetQueueEntries,
    GetTopicConfig,
    UpdateBrokerConfig,
    UpdateForbidden,
    UpdateGroups,
)
from rockmq.protocol.headers.offset import QueryConsumerOffset, UpdateConsumerOffset
from rockmq.remoting.client import RemotingClient
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import options, running
from tests.unit.broker.test_messages import create_request, pull_request, send_request, sent


async def ask(remote: RemotingClient, broker: Broker, code: RequestCode, header: Header, body: bytes = b"") -> Command:
    return await remote.invoke(broker.address, codec.request(code, header, body), 5)


async def change(remote: RemotingClient, broker: Broker, text: str) -> Command:
    return await ask(remote, broker, RequestCode.UPDATE_BROKER_CONFIG, UpdateBrokerConfig(), text.encode())


async def shown(remote: RemotingClient, broker: Broker) -> dict[str, str]:
    answer = await ask(remote, broker, RequestCode.GET_BROKER_CONFIG, GetBrokerConfig())
    return properties.read_bytes(answer.body)


# Configuration


async def test_changes_are_in_effect_and_in_the_file(tmp_path: Path, remote: RemotingClient) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("# ours\nbrokerName = broker-a\nlongPollingEnable=true\n! end\n", encoding="utf-8")
    broker = Broker(options(tmp_path / "store"), config_file=file, overridden={"brokerPermission", "deleteWhen"})
    await broker.start()
    try:
        answer = await change(remote, broker, "longPollingEnable=false\nmaxMsgsNumBatch=7")
        assert answer.code == ResponseCode.SUCCESS
        assert answer.remark == f"in effect: longPollingEnable=false, maxMsgsNumBatch=7; written to {file}"
        assert file.read_text() == "# ours\nbrokerName = broker-a\nlongPollingEnable=false\n! end\nmaxMsgsNumBatch=7\n"
        told = await shown(remote, broker)
        assert (told["longPollingEnable"], told["maxMsgsNumBatch"]) == ("false", "7")
        words = f"written to {file}; brokerPermission until the broker ends: --set says otherwise"
        assert ((await change(remote, broker, "brokerPermission=4")).remark or "").endswith(words)
    finally:
        await broker.close()


async def test_the_level_of_the_log_changes_while_it_runs(broker: Broker, remote: RemotingClient) -> None:
    ours = logging.getLogger("rockmq")
    before = ours.level
    try:
        assert (await change(remote, broker, "logLevel=DEBUG")).code == ResponseCode.SUCCESS
        assert ours.level == logging.DEBUG
        answer = await change(remote, broker, "logLevel=")
        assert (answer.code, ours.level) == (ResponseCode.SUCCESS, before), answer.remark
    finally:
        ours.setLevel(before)


async def test_who_may_read_the_file_stays_and_so_do_links(tmp_path: Path, remote: RemotingClient) -> None:
    file, link = tmp_path / "elsewhere" / "broker.conf", tmp_path / "broker.conf"
    file.parent.mkdir()
    file.write_text("maxMsgsNumBatch=9\n", encoding="utf-8")
    file.chmod(0o600)
    if os.geteuid() == 0:
        os.chown(file, 4711, 4712)
    before = file.stat()
    link.symlink_to(file)
    broker = Broker(options(tmp_path / "store"), config_file=link)
    await broker.start()
    try:
        assert (await change(remote, broker, "maxMsgsNumBatch=7")).code == ResponseCode.SUCCESS
    finally:
        await broker.close()
    assert link.is_symlink()
    assert file.read_text() == "maxMsgsNumBatch=7\n"
    for each in (file, file.with_name("broker.conf.bak")):
        found = each.stat()
        assert (found.st_mode, found.st_uid, found.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("shortPollingTimeMills=7\nlistenPort=1", ResponseCode.INVALID_PARAMETER, "listenPort can't change while running"),
        ("shortPollingTimeMills=7\nmaxMsgsNumBatch=0", ResponseCode.INVALID_PARAMETER, "maxMsgsNumBatch=0: expected"),
        ("shortPollingTimeMills=7\ndeleteWhen=24", ResponseCode.INVALID_PARAMETER, "'24' is no hour"),
        ("shortPollingTimeMills=7\nnobodyKnows=1", ResponseCode.INVALID_PARAMETER, "unknown key 'nobodyKnows'"),
        ("shortPollingTimeMills=7\npullThreadPoolQueueCapacity=9", ResponseCode.INVALID_PARAMETER, "have no effect"),
        ("shortPollingTimeMills=7\nconfigBlackList=x", ResponseCode.NO_PERMISSION, "configBlackList"),
        ("shortPollingTimeMills=7\nx=\\u12", ResponseCode.INVALID_PARAMETER, "four hex digits"),
        ("shortPollingTimeMills=7\n" * 2731, ResponseCode.INVALID_PARAMETER, "65544 bytes of changes"),
    ],
)
async def test_what_cannot_be_changes_nothing(
    tmp_path: Path, remote: RemotingClient, text: str, code: ResponseCode, words: str
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("shortPollingTimeMills=900\n", encoding="utf-8")
    broker = Broker(options(tmp_path / "store", shortPollingTimeMills="900"), config_file=file)
    await broker.start()
    try:
        answer = await change(remote, broker, text)
        assert (answer.code, words in (answer.remark or "")) == (code, True), answer.remark
        assert (await shown(remote, broker))["shortPollingTimeMills"] == "900"
        assert file.read_text() == "shortPollingTimeMills=900\n"
        file.unlink()
        answer = await change(remote, broker, "shortPollingTimeMills=7")
        assert (answer.code, "nothing was changed" in (answer.remark or "")) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
        assert (await shown(remote, broker))["shortPollingTimeMills"] == "900"
    finally:
        await broker.close()


async def test_a_broker_is_suspended_and_resumed(broker: Broker, remote: RemotingClient) -> None:
    """By brokerPermission; of sends that the core takes by itself, too."""
    await remote.ask(broker.address, create_request(), 5)
    await sent(remote, broker, send_request(b"one"))
    assert (await change(remote, broker, "brokerPermission=4")).code == ResponseCode.SUCCESS
    assert (await remote.invoke(broker.address, send_request(b"two"), 5)).code == ResponseCode.NO_PERMISSION
    assert b"one" in (await remote.ask(broker.address, pull_request(), 5)).body
    assert (await change(remote, broker, "brokerPermission=2")).code == ResponseCode.SUCCESS
    await sent(remote, broker, send_request(b"three"))
    assert (await remote.invoke(broker.address, pull_request(), 5)).code == ResponseCode.NO_PERMISSION
    assert (await change(remote, broker, "brokerPermission=6")).code == ResponseCode.SUCCESS
    assert b"three" in (await remote.ask(broker.address, pull_request(), 5)).body


async def test_whether_topics_and_groups_create_themselves(tmp_path: Path, remote: RemotingClient) -> None:
    settings = {"autoCreateTopicEnable": "false", "autoCreateSubscriptionGroup": "false"}
    async with running(tmp_path, **settings) as broker:
        wish = send_request(b"x", topic="Wished")
        group = GetGroup(group="wished")
        assert (await remote.invoke(broker.address, wish, 5)).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await ask(remote, broker, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group)).code == 26
        await change(remote, broker, "autoCreateTopicEnable=true\nautoCreateSubscriptionGroup=true")
        await sent(remote, broker, wish)
        assert (await ask(remote, broker, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group)).code == 0


# Topics and groups


async def test_of_several_topics_all_are_made_or_none(broker: Broker, remote: RemotingClient) -> None:
    async def put(*configs: TopicConfig) -> Command:
        body = json.encode(TopicConfigs(topic_config_list=list(configs)))
        return await ask(remote, broker, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, CreateTopics(), body)

    one = TopicConfig(topic_name="One", read_queue_nums=2, attributes={"+message.type": "FIFO"})
    refused = await put(one, TopicConfig(topic_name="a b"))
    assert refused.code == ResponseCode.INVALID_PARAMETER
    asked = GetTopicConfig(topic="One")
    assert (await ask(remote, broker, RequestCode.GET_TOPIC_CONFIG, asked)).code == ResponseCode.TOPIC_NOT_EXIST
    assert (await put(one, TopicConfig(topic_name="Two"))).code == ResponseCode.SUCCESS
    kept = await ask(remote, broker, RequestCode.GET_TOPIC_CONFIG, asked)
    assert msgspec.json.decode(kept.body)["attributes"] == {"message.type": "FIFO"}
    # Apache's broker stops at the first one that is as it was.
    assert (await put(TopicConfig(topic_name="Two"), TopicConfig(topic_name="Three"))).code == ResponseCode.SUCCESS
    assert (await ask(remote, broker, RequestCode.GET_TOPIC_CONFIG, GetTopicConfig(topic="Three"))).code == 0


async def test_groups_are_told_in_pages_with_what_they_may_not_read(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        body = json.encode(GroupConfigs(group_config_list=[GroupConfig(group_name=f"g{number}") for number in range(5)]))
        await ask(remote, broker, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, UpdateGroups(), body)
        for topic, readable in (("A", False), ("B", False), ("A", True)):
            header = UpdateForbidden(group="g1", topic=topic, readable=readable)
            answer = await ask(remote, broker, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
            assert msgspec.json.decode(answer.body) == {"group": "g1", "topic": topic, "readable": readable}
    async with running(tmp_path) as broker:  # they are on disk
        found: dict[str, GroupConfig] = {}
        version = None
        for _ in range(10):
            header = GetAllGroups(group_seq=len(found), data_version=version, max_group_num=3)
            answer = await ask(remote, broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
            page = json.decode(answer.body, GroupTableBody, "page")
            assert len(page.subscription_group_table) <= 3
            assert page.forbidden_table == ({"g1": {"B": 4}} if "g1" in page.subscription_group_table else {})
            found |= page.subscription_group_table
            version = json.encode(page.data_version).decode()
            if len(found) == int(answer.fields["totalGroupNum"]):
                break
        assert {f"g{number}" for number in range(5)} < found.keys()


async def test_a_group_that_may_not_read_a_topic_is_refused(broker: Broker, remote: RemotingClient) -> None:
    await remote.ask(broker.address, create_request(), 5)
    await sent(remote, broker, send_request(b"x"))
    for readable, code in ((False, ResponseCode.NO_PERMISSION), (True, ResponseCode.SUCCESS)):
        header = UpdateForbidden(group="consumers", topic="T", readable=readable)
        await ask(remote, broker, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
        answer = await remote.invoke(broker.address, pull_request(), 5)
        assert answer.code == code, answer.remark
        assert answer.fields.get("forbiddenType") == (None if readable else "5")


@pytest.mark.parametrize("clean", [False, True])
async def test_a_deleted_group_leaves_its_offsets_or_not(broker: Broker, remote: RemotingClient, clean: bool) -> None:
    await remote.ask(broker.address, create_request(), 5)
    commit = UpdateConsumerOffset(consumer_group="g", topic="T", queue_id=0, commit_offset=3)
    await ask(remote, broker, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
    header = DeleteGroup(group_name="g", clean_offset=clean)
    assert (await ask(remote, broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)).code == 0
    query = QueryConsumerOffset(consumer_group="g", topic="T", queue_id=0, set_zero_if_not_found=False)
    answer = await ask(remote, broker, RequestCode.QUERY_CONSUMER_OFFSET, query)
    assert answer.fields.get("offset") == (None if clean else "3")


# Figures and queues


async def test_stats_count_what_was_sent_and_got(tmp_path: Path, remote: RemotingClient, clock: FakeClock) -> None:
    async with running(tmp_path, clock) as broker:

        async def told(name: str, key: str) -> tuple[int, int, int]:
            header = GetBrokerStats(stats_name=name, stats_key=key)
            answer = await ask(remote, broker, RequestCode.VIEW_BROKER_STATS_DATA, header)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            data = json.decode(answer.body, BrokerStatsData, "stats")
            return data.stats_minute.sum, data.stats_hour.sum, data.stats_day.sum

        await remote.ask(broker.address, create_request(), 5)
        await asyncio.gather(*(sent(remote, broker, send_request(b"x" * 100, queue_id=number % 4)) for number in range(8)))
        pulled = await remote.ask(broker.address, pull_request(), 5)
        assert await told("TOPIC_PUT_NUMS", "T") == (8, 8, 8)
        assert await told("BROKER_PUT_NUMS", "DefaultCluster") == (8, 8, 8)
        assert await told("GROUP_GET_NUMS", "T@consumers") == await told("BROKER_GET_NUMS", "DefaultCluster") == (2, 2, 2)
        assert await told("GROUP_GET_SIZE", "T@consumers") == (len(pulled.body),) * 3
        assert (await told("TOPIC_PUT_SIZE", "T"))[0] == 4 * len(pulled.body)
        clock.seconds += 3600 + 10 * SAMPLE_SECONDS
        assert (await told("TOPIC_PUT_NUMS", "T"))[2] == 8
        for name, key in (("TOPIC_PUT_NUMS", "none"), ("MOON_NUMS", "T"), ("BROKER_PUT_NUMS", "T")):
            header = GetBrokerStats(stats_name=name, stats_key=key)
            answer = await ask(remote, broker, RequestCode.VIEW_BROKER_STATS_DATA, header)
            assert answer.code == ResponseCode.SYSTEM_ERROR


RUNTIME_KEYS = """
    bootTimestamp runtime putMessageEntireTimeMax putMessageTimesTotal putMessageFailedTimes putMessageSizeTotal
    putMessageDistributeTime putMessageAverageSize dispatchMaxBuffer getMessageEntireTimeMax putTps getFoundTps getMissTps
    getTotalTps getTransferredTps getTransferedTps putLatency99 putLatency999 commitLogDiskRatio consumeQueueDiskRatio
    commitLogMinOffset commitLogMaxOffset brokerActive brokerVersionDesc msgPutTotalYesterdayMorning msgPutTotalTodayMorning
    msgPutTotalTodayNow msgGetTotalYesterdayMorning msgGetTotalTodayMorning msgGetTotalTodayNow dispatchBehindBytes
    pageCacheLockTimeMills earliestMessageTimeStamp startAcceptSendRequestTimeStamp timerReadBehind timerOffsetBehind
    timerCongestNum timerEnqueueTps timerDequeueTps remainHowManyDataToFlush commitLogDirCapacity EndTransactionQueueSize
    EndTransactionThreadPoolQueueCapacity remainTransientStoreBufferNumbs brokerVersion
"""
"""Of Apache's broker 5.5.0 or 4.9.7 without a transient pool; tools read them without asking whether they are there."""
FORMS = {
    r"\[ \d+:\d\d:\d\d \]": "runtime",
    r"(\[[^\]:]+\]:\d+ )+": "putMessageDistributeTime",
    r"(\d+\.\d+ ?){3}": "putTps getFoundTps getMissTps getTotalTps getTransferredTps getTransferedTps",
    r"Total : [\d.]+ [KMGT]?i?B, Free : [\d.]+ [KMGT]?i?B\.": "commitLogDirCapacity",
    r"[\d.]+ [KMGT]?i?B": "remainHowManyDataToFlush",
    r"true": "brokerActive",
    r"V\d_\d_\d": "brokerVersionDesc",
}
"""As Apache's exporter takes them apart; the others it reads as numbers."""


async def test_runtime_information_has_every_key(broker: Broker, remote: RemotingClient) -> None:
    await remote.ask(broker.address, create_request(), 5)
    await sent(remote, broker, send_request(b"one"))
    for _ in range(2):
        assert (await remote.invoke(broker.address, send_request(b""), 5)).code == ResponseCode.MESSAGE_ILLEGAL
    answer = await ask(remote, broker, RequestCode.GET_BROKER_RUNTIME_INFO, GetBrokerRuntimeInfo())
    found = json.decode(answer.body, KVTable, "").table
    pools = {
        f"{pool}ThreadPoolQueue{figure}"
        for pool in ("send", "pull", "litePull", "query", "ack")
        for figure in ("Size", "Capacity", "HeadWaitTimeMills")
    }
    assert {*RUNTIME_KEYS.split(), *pools} - found.keys() == set()
    assert (found["putMessageTimesTotal"], found["putMessageFailedTimes"]) == ("1", "2")
    form = {key: form for form, keys in FORMS.items() for key in keys.split()}
    for key in (*RUNTIME_KEYS.split(), *pools):
        assert re.fullmatch(form.get(key, r"-?\d+(\.\d+)?"), found[key]), (key, found[key])


async def test_entries_of_a_queue(broker: Broker, remote: RemotingClient) -> None:
    await remote.ask(broker.address, create_request(), 5)
    for tag in ("red", "blue", "red"):
        await sent(remote, broker, send_request(b"x", TAGS=tag))

    async def entries(index: int, count: int) -> QueueEntries:
        header = GetQueueEntries(topic="T", queue_id=0, index=index, count=count)
        answer = await ask(remote, broker, RequestCode.QUERY_CONSUME_QUEUE, header)
        return json.decode(answer.body, QueueEntries, "entries")

    found = await entries(0, 10)
    assert (found.first, found.end, len(found.entries)) == (0, 3, 3)
    first, second, third = found.entries
    assert (second.position, third.position) == (first.position + first.size, second.position + second.size)
    assert first.tags_code == third.tags_code != second.tags_code
    assert (await entries(1, 1)).entries == [second]
    assert (await entries(9, 5)).entries == []
    none = await ask(
        remote, broker, RequestCode.QUERY_CONSUME_QUEUE, GetQueueEntries(topic="T", queue_id=3, index=0, count=1)
    )
    assert none.code == ResponseCode.SYSTEM_ERROR


async def test_queues_without_a_topic_are_deleted(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        await remote.ask(broker.address, create_request("Kept"), 5)
        await remote.ask(broker.address, create_request("Lost"), 5)
        for topic in ("Kept", "Lost"):
            await sent(remote, broker, send_request(b"x", topic=topic))
    document = tmp_path / "config" / "topics.json"
    text = msgspec.json.decode(document.read_bytes())
    del text["topicConfigTable"]["Lost"]
    document.write_bytes(msgspec.json.encode(text))
    async with running(tmp_path) as broker:
        assert (tmp_path / "consumequeue" / "Lost").is_dir()
        assert (await ask(remote, broker, RequestCode.CLEAN_UNUSED_TOPIC, CleanUnusedTopics())).code == 0
        assert not (tmp_path / "consumequeue" / "Lost").exists()
        assert (tmp_path / "consumequeue" / "Kept").is_dir()
