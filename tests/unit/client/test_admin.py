"""What administrators ask, where the answers of several servers or several pages are one."""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from inspect import Parameter
from typing import Literal

import pytest

from rockmq import embedded
from rockmq.base.errors import ConfigError, ProtocolError, RemotingError, RockMQError
from rockmq.client import Client, ClientError, MessageQueue, ResponseError, RouteNotFound, StoredMessage
from rockmq.client.admin import (
    Admin,
    GroupProgress,
    GroupSettings,
    QueueMapping,
    QueueProgress,
    Rule,
    RuntimeInfo,
    Segment,
    TopicQueues,
    TopicSettings,
    topics,
)
from rockmq.client.admin.cluster import Cluster
from rockmq.protocol import codec, ids, json
from rockmq.protocol.bodies.pop import Mode
from rockmq.protocol.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import EXCHANGES, Header
from rockmq.protocol.headers.admin import AllGroupConfigResponse, AllTopicConfigResponse
from rockmq.protocol.headers.controller import ControllerMetadataResponse, GetControllerMetadata, GetReplicaSets
from rockmq.protocol.headers.offset import GetMaxOffset
from rockmq.protocol.message import decode_stored
from rockmq.remoting.connection import Connection
from tests.unit.client.fakes import Fake, FakeBroker, record


@pytest.fixture
async def two() -> AsyncIterator[tuple[embedded.Server, embedded.Server]]:
    """A name server with two brokers, a and b."""
    async with (
        embedded.serve(flush="ASYNC_FLUSH", properties={"brokerName": "a"}) as one,
        embedded.serve(flush="ASYNC_FLUSH", properties={"brokerName": "b", "namesrvAddr": one.namesrv}) as other,
    ):
        yield one, other


async def test_all_masters_are_told_or_the_one_that_is_named(two: tuple[embedded.Server, embedded.Server]) -> None:
    async with Client(two[0].namesrv) as mq:
        await mq.admin.topics.put(TopicSettings("both", 2, 2))
        await mq.admin.topics.put(TopicSettings("one", 2, 2), broker="b")
        assert set(await mq.admin.topics.get("both")) == {"a", "b"}
        assert set(await mq.admin.topics.get("one")) == {"b"}
        stats = await mq.admin.topics.stats("both")
        assert list(stats.queues) == [MessageQueue("both", name, number) for name in "ab" for number in (0, 1)]
        with pytest.raises(RouteNotFound, match="no broker 'c' has a master; there are a, b"):
            await mq.admin.topics.put(TopicSettings("one"), broker="c")


async def test_no_answer_is_made_of_those_brokers_alone_that_are_there(
    mq: Client, broker: FakeBroker, other: FakeBroker
) -> None:
    to = {"a": broker.address, "b": other.address}
    asked = (RequestCode.GET_MAX_OFFSET, GetMaxOffset(topic="T", queue_id=0))
    cluster = Cluster(mq._instance)
    assert set(await cluster.ask_all(to, *asked)) == {"a", "b"}
    await other.stop()
    with pytest.raises(RemotingError):
        await cluster.ask_all(to, *asked)


async def test_topics_come_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    async with embedded.serve(flush="ASYNC_FLUSH") as served, Client(served.namesrv) as mq:
        await mq.create_topic("orders", 4)
        whole = await mq.admin.topics.of_broker(served.broker)
        monkeypatch.setattr(topics, "PAGE_SIZE", 3)
        assert await mq.admin.topics.of_broker(served.broker) == whole
        assert whole["orders"] == TopicSettings("orders", 4, 4)
        assert len(whole) > 6


async def test_a_refusal_keeps_its_code() -> None:
    async with embedded.serve(flush="ASYNC_FLUSH") as served, Client(served.namesrv) as mq:
        with pytest.raises(ResponseError) as refused:
            await mq.admin.topics.delete("TBW102")
        assert refused.value.code == ResponseCode.INVALID_PARAMETER
        assert refused.value.address == served.broker


def test_progress_adds_up() -> None:
    queues = [MessageQueue("T", "a", number) for number in range(2)]
    progress = GroupProgress({queues[0]: QueueProgress(10, 4, 6, None), queues[1]: QueueProgress(3, 5, 5, None)}, 0.0)
    assert (progress.lag, progress.in_flight) == (6, 2)


def test_runtime_info_of_old_and_of_silent_brokers() -> None:
    info = RuntimeInfo({"getTransferedTps": "1.5 2 3", "msgPutTotalTodayNow": "7", "earliestMessageTimeStamp": "-1"})
    assert (info.gets_per_second, info.puts_per_second, info.puts_today) == (1.5, None, None)
    assert (info.version, info.earliest_message, info.disk_ratio) == (None, None, None)


# Servers of kinds that RockMQ doesn't have, as far as tests/client doesn't bring Apache's to say it


async def test_a_follower_names_the_leader_who_is_asked() -> None:
    leader, follower = Fake({}), Fake({})
    await leader.start()
    await follower.start()

    def metadata(header: GetControllerMetadata, request: Command, connection: Connection) -> Command:
        return codec.reply(request, header=ControllerMetadataResponse(group="g", controller_leader_address=leader.address))

    def replicas(header: GetReplicaSets, request: Command, connection: Connection) -> Command:
        assert request.body == b'["a"]'
        return codec.reply(request, body=b'{"replicasInfoTable":{"a":{"masterBrokerId":null,"masterEpoch":3}}}')

    follower.handle(RequestCode.CONTROLLER_GET_METADATA_INFO, metadata)
    leader.handle(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, replicas)
    async with Client("127.0.0.1:1") as mq:
        controllers = mq.admin.controllers
        found = await controllers.metadata(follower.address)
        assert (found.leader, found.leads) == (leader.address, False)
        known = (await controllers.replicas(follower.address, "a"))["a"]
        assert (known.master_id, known.master_epoch, known.in_sync) == (None, 3, [])
        follower.handle(RequestCode.CONTROLLER_GET_METADATA_INFO, lambda header, request, _: codec.reply(request))
        with pytest.raises(ClientError, match=f"the group of controller {follower.address} has no leader now"):
            await controllers.elect(follower.address, "c", "a", 1)
        with pytest.raises(ConfigError, match="'here' is not an address"):
            await controllers.metadata("here")
    await follower.stop()
    await leader.stop()


@pytest.mark.parametrize("body", [b"", bytes(32), bytes(57)])
async def test_a_timer_checkpoint_of_another_size(body: bytes) -> None:
    broker = Fake({RequestCode.GET_TIMER_CHECK_POINT: lambda header, request, _: codec.reply(request, body=body)})
    await broker.start()
    async with Client("127.0.0.1:1") as mq:
        with pytest.raises(ProtocolError, match=f"timer checkpoint: expected 56 bytes, not {len(body)}"):
            await mq.admin.storage.timer_checkpoint(broker.address)
    await broker.stop()


async def test_names_of_a_tenant_that_are_in_no_field() -> None:
    broker = Fake({})
    await broker.start()
    told: list[bytes] = []

    def limit(header: Header, request: Command, connection: Connection) -> Command:
        told.append(request.body)
        return codec.reply(request)

    broker.handle(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, limit)
    broker.handle(RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, limit)
    cold = b'{"runtimeTable":{"t%g":{"coldAcc":7}},"configTable":{"t%g":9}}'
    broker.handle(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, lambda header, request, _: codec.reply(request, body=cold))
    lite = b'{"topicMeta":{"t%p":1},"groupMeta":{"t%p":["t%g"]}}'
    broker.handle(RequestCode.GET_BROKER_LITE_INFO, lambda header, request, _: codec.reply(request, body=lite))
    async with Client("127.0.0.1:1", namespace_v1="t") as mq:
        await mq.admin.storage.limit_cold_reads(broker.address, {"g": 9})
        await mq.admin.storage.unlimit_cold_reads(broker.address, "g")
        assert told == [b"t%g=9\n", b"t%g"]
        found = await mq.admin.storage.cold_reads(broker.address)
        assert (found.limits, found.groups["g"].read) == ({"g": 9}, 7)
        known = await mq.admin.lite.broker(broker.address)
        assert (known.ttls, known.groups) == ({"p": 1}, {"p": ["g"]})
    await broker.stop()


async def test_static_queues_go_round_all_masters(two: tuple[embedded.Server, embedded.Server]) -> None:
    """Brokers of RockMQ refuse what they are told."""
    told: list[QueueMapping] = []

    async def put(settings: TopicSettings, mapping: QueueMapping, *, force: bool = False) -> None:
        assert settings.write_queues == len(mapping.hosted)
        told.append(mapping)

    async with Client(two[0].namesrv) as mq:
        mq.admin.static_topics.put = put  # type: ignore[method-assign]
        made = await mq.admin.static_topics.create("S", 3)
        assert told == list(made.values())
        assert {name: list(mapping.hosted) for name, mapping in made.items()} == {"a": [0, 2], "b": [1]}
        assert made["a"].hosted[2] == [Segment(queue_id=1, broker_name="a")]
        assert list(await mq.admin.static_topics.create("S", 1)) == ["a"]


# Answers that no server should give


Asks = Callable[[Admin, str], Awaitable[object]]
"""Is told the id of a message at the server, too."""
NOT_NUMBERS: dict[str, tuple[int, bytes, Asks]] = {
    "broker ids of clusters": (
        RequestCode.GET_BROKER_CLUSTER_INFO,
        b'{"brokerAddrTable":{"a":{"brokerName":"a","brokerAddrs":{"x":"127.0.0.1:1"}}}}',
        lambda admin, _: admin.brokers.clusters(),
    ),
    "broker ids of a route": (
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":{"x":"127.0.0.1:1"}}]}',
        lambda admin, _: admin.topics.route("T"),
    ),
    "broker ids of a name": (
        RequestCode.GET_BROKER_MEMBER_GROUP,
        b'{"brokerMemberGroup":{"brokerName":"a","brokerAddrs":{"x":"127.0.0.1:1"}}}',
        lambda admin, _: admin.name_servers.broker_members("c", "a"),
    ),
    "order configuration": (
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        b'{"orderTopicConf":"a:x"}',
        lambda admin, _: admin.topics.route("T"),
    ),
    "queue ids of offsets": (
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        b'{"offsetTable":{"T@g":{"x":1}}}',
        lambda admin, _: admin.brokers.offsets("a"),
    ),
    "queue ids of lowest offsets": (
        RequestCode.QUERY_CORRECTION_OFFSET,
        b'{"correctionOffsets":{"x":1}}',
        lambda admin, _: admin.groups.lowest_offsets("T", "g"),
    ),
    "lowest offsets": (
        RequestCode.QUERY_CORRECTION_OFFSET,
        b'{"correctionOffsets":{"1":"x"}}',
        lambda admin, _: admin.groups.lowest_offsets("T", "g"),
    ),
    "queues of progress": (
        RequestCode.GET_CONSUME_STATS,
        b'{"offsetTable":{{"topic":"T","brokerName":"a","queueId":"x"}:{"brokerOffset":1,"consumerOffset":1}}}',
        lambda admin, _: admin.groups.progress("g"),
    ),
    "queues that are too deep": (
        RequestCode.GET_CONSUME_STATS,
        json.encode({"offsetTable": {'{"x":' + "[" * 5000: {"brokerOffset": 1, "consumerOffset": 1}}}),
        lambda admin, _: admin.groups.progress("g"),
    ),
    "delay levels": (
        RequestCode.GET_ALL_DELAY_OFFSET,
        b'{"offsetTable":{"x":1}}',
        lambda admin, _: admin.storage.delay_offsets("a"),
    ),
    "no message": (
        RequestCode.VIEW_MESSAGE_BY_ID,
        b"",
        lambda admin, offset_id: admin.messages.by_offset_id(offset_id),
    ),
    "two messages": (
        RequestCode.VIEW_MESSAGE_BY_ID,
        record("T", 0, 0, b"x") * 2,
        lambda admin, offset_id: admin.messages.by_offset_id(offset_id),
    ),
}


FIGURES = (
    "bootTimestamp",
    "putTps",
    "getTransferredTps",
    "msgPutTotalTodayNow",
    "msgPutTotalTodayMorning",
    "msgGetTotalTodayNow",
    "msgGetTotalTodayMorning",
    "commitLogMinOffset",
    "commitLogMaxOffset",
    "commitLogDiskRatio",
    "earliestMessageTimeStamp",
)


def test_runtime_info_that_makes_no_sense() -> None:
    info = RuntimeInfo(dict.fromkeys(FIGURES, "1x"))
    found = {name for name, each in vars(RuntimeInfo).items() if isinstance(each, property)} - {"version"}
    for name in found:
        with pytest.raises(ProtocolError, match=r"runtime info: [A-Za-z]+ is '1x', expected a number"):
            getattr(info, name)


@pytest.fixture
async def liar() -> AsyncIterator[Fake]:
    """A name server and broker a in one, that answers everything with `body`, but tells where it is."""
    fake = Fake({})
    await fake.start()
    for code in EXCHANGES:
        fake.handle(code, lambda header, request, _: codec.reply(request))
    broker = BrokerData(broker_name="a", cluster="c", broker_addrs={"0": fake.address})
    route = TopicRouteData(
        broker_datas=[broker], queue_datas=[QueueData(broker_name="a", perm=6, read_queue_nums=1, write_queue_nums=1)]
    )
    info = ClusterInfo(broker_addr_table={"a": broker}, cluster_addr_table={"c": ["a"]})
    answer_with(fake, json.encode(route), RequestCode.GET_ROUTEINFO_BY_TOPIC)
    answer_with(fake, json.encode(info), RequestCode.GET_BROKER_CLUSTER_INFO)
    yield fake
    await fake.stop()


def answer_with(fake: Fake, body: bytes, *codes: int) -> None:
    for code in codes:
        fake.handle(code, lambda header, request, _: codec.reply(request, body=body))


def id_at(fake: Fake) -> str:
    return ids.offset_id(bytes([127, 0, 0, 1]) + fake.port.to_bytes(4, "big"), 0)


@pytest.mark.parametrize("what", NOT_NUMBERS)
async def test_text_where_a_number_belongs(what: str, liar: Fake) -> None:
    code, body, ask = NOT_NUMBERS[what]
    answer_with(liar, body, code)
    async with Client(liar.address) as mq:
        with pytest.raises(ProtocolError):
            await ask(mq.admin, id_at(liar))


async def test_pages_that_never_end(liar: Fake) -> None:
    def topics_again(header: Header, request: Command, connection: Connection) -> Command:
        return codec.reply(
            request, header=AllTopicConfigResponse(total_topic_num=2), body=b'{"topicConfigTable":{"T":{"topicName":"T"}}}'
        )

    def groups_again(header: Header, request: Command, connection: Connection) -> Command:
        body = b'{"subscriptionGroupTable":{"g":{"groupName":"g"}}}'
        return codec.reply(request, header=AllGroupConfigResponse(total_group_num=2), body=body)

    liar.handle(RequestCode.GET_ALL_TOPIC_CONFIG, topics_again)
    liar.handle(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, groups_again)
    async with Client(liar.address) as mq, asyncio.timeout(20):
        with pytest.raises(ProtocolError, match="it says that there are 2, and gives the same 1 again"):
            await mq.admin.topics.of_broker("a")
        with pytest.raises(ProtocolError, match="it says that there are 2, and gives the same 1 again"):
            await mq.admin.groups.of_broker("a")


NONSENSE = (
    b"",
    b"null",
    b"[]",
    b"{}",
    b'"x"',
    b"7",
    b"{x",
    b"\xff\xfe",
    b"[" * 100_000,
    b"[" * 600 + b"]" * 600,
    b'{"table":7}',
    bytes(100),
)
PLACES = {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO}
"""By which the others find whom to ask."""


@pytest.mark.parametrize("namespace", [None, "tenant"])
async def test_whatever_servers_answer_errors_are_ours(liar: Fake, namespace: str | None) -> None:
    """Every call there is, with what it needs at least."""
    (stored,) = decode_stored(record("T", 0, 0, b"x"))
    stored.store_host = bytes([127, 0, 0, 1]) + liar.port.to_bytes(4, "big")
    named: dict[str, object] = dict.fromkeys(("broker", "controller", "container"), liar.address)
    named |= dict.fromkeys(("message_id", "offset_id"), id_at(liar))
    typed: dict[object, object] = {
        str: "a",
        int: 1,
        bool: True,
        MessageQueue: MessageQueue("T", "a", 0),
        StoredMessage: stored,
        TopicSettings: TopicSettings("T"),
        GroupSettings: GroupSettings("g"),
        QueueMapping: QueueMapping(topic="T", queues=1, broker_name="a", epoch=1),
        Iterable[str]: ["a"],
        Iterable[TopicSettings]: [TopicSettings("T")],
        Iterable[GroupSettings]: [GroupSettings("g")],
        Iterable[TopicQueues]: [TopicQueues("a", 1, 1, 6)],
        Iterable[Rule]: [Rule("Topic:T", ("Pub",))],
        Mapping[str, str]: {"k": "v"},
        Mapping[str, int]: {"k": 1},
        Mode: "POP",
        Literal["files", "rocksdb"]: "files",
        datetime | Literal["begin", "end"]: "begin",
    }
    calls = 0
    async with Client(liar.address, namespace_v1=namespace) as mq:
        for body in NONSENSE:
            answer_with(liar, body, *(EXCHANGES.keys() - PLACES))
            for subject in vars(mq.admin).values():
                for name, method in inspect.getmembers(subject, inspect.iscoroutinefunction):
                    if name.startswith("_"):
                        continue
                    needed = [
                        each for each in inspect.signature(method).parameters.values() if each.default is Parameter.empty
                    ]
                    given = {each.name: named.get(each.name, typed[each.annotation]) for each in needed}
                    with contextlib.suppress(RockMQError):
                        await method(**given)
                    calls += 1
    assert calls > 50 * len(NONSENSE)
