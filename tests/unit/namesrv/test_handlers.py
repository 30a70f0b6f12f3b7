"""Every code the name server answers, over real sockets."""

import json
import logging
import zlib
from pathlib import Path

import pytest

from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import Header
from rockmq.protocol.headers import registration as registering
from rockmq.protocol.headers import route as routes
from tests.support.clock import FakeClock
from tests.unit.namesrv.conftest import Connect, Start
from tests.unit.namesrv.peer import MASTER, registration, topics
from tests.unit.namesrv.test_registration import compressed

# Routes


async def test_a_registered_topic_has_a_route(start: Start, connect: Connect) -> None:
    server = await start()
    broker, client = connect(server), connect(server)
    answer = await broker.good(RequestCode.REGISTER_BROKER, registration(), topics())
    assert answer.fields == {}
    assert answer.body == b""
    assert (await client.route()).body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"a","cluster":"C","enableActingMaster":false}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":8,"topicSysFlag":0,'
        b'"writeQueueNums":8}]}'
    )


async def test_old_clients_get_bare_keys_unless_they_say_otherwise(start: Start, connect: Connect) -> None:
    server = await start()
    peer = connect(server)
    await peer.good(RequestCode.REGISTER_BROKER, registration(), topics())
    bare, quoted = b'{"brokerAddrs":{0:"10.0.0.1:10911"}', b'{"brokerAddrs":{"0":"10.0.0.1:10911"}'
    assert bare in (await peer.route(version=317)).body
    assert quoted in (await peer.route(version=401)).body
    assert quoted in (await peer.route(version=317, fields={"acceptStandardJsonOnly": "true"})).body
    assert bare in (await peer.good(RequestCode.GET_BROKER_CLUSTER_INFO, version=317)).body
    info = json.loads((await peer.good(RequestCode.GET_BROKER_CLUSTER_INFO)).body)
    assert info["clusterAddrTable"] == {"C": ["a"]}
    assert info["brokerAddrTable"]["a"]["brokerAddrs"] == {"0": MASTER}


async def test_no_route_says_what_helps(start: Start, connect: Connect) -> None:
    server = await start()
    peer = connect(server)
    answer = await peer.route("Nowhere")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark is not None
    assert answer.remark.startswith("No topic route info in name server for the topic: Nowhere\nNo broker is registered")
    assert answer.remark.endswith("See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.")
    await peer.good(RequestCode.REGISTER_BROKER, registration(), topics())
    answer = await peer.route("Nowhere")
    assert "Registered brokers: a; none has the topic" in (answer.remark or "")


async def test_zones_and_order_configurations(start: Start, connect: Connect) -> None:
    server = await start(orderMessageEnable="true")
    peer = connect(server)
    for name, zone in (("a", "z1"), ("b", "z2")):
        header = registration(f"10.0.0.{ord(name)}:10911", broker_name=name)
        await peer.good(RequestCode.REGISTER_BROKER, header, topics(), fields={"__ZONE_NAME": zone})
    await peer.good(RequestCode.PUT_KV_CONFIG, routes.PutKV(namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4"))
    near = json.loads((await peer.route(fields={"__ZONE_NAME": "Z2", "__ZONE_MODE": "true"})).body)
    assert [data["brokerName"] for data in near["brokerDatas"]] == ["b"]
    assert near["brokerDatas"][0]["zoneName"] == "z2"
    assert near["orderTopicConf"] == "a:4"
    far = json.loads((await peer.route(fields={"__ZONE_NAME": "z2", "__ZONE_MODE": "no"})).body)
    assert [queues["brokerName"] for queues in far["queueDatas"]] == ["a", "b"]
    assert "orderTopicConf" not in json.loads((await peer.route("U")).body)


async def test_routes_may_wait_for_brokers(start: Start, connect: Connect, clock: FakeClock) -> None:
    server = await start(needWaitForService="true", waitSecondsForService="10")
    peer = connect(server)
    await peer.good(RequestCode.REGISTER_BROKER, registration(), topics())
    answer = await peer.route()
    assert (answer.code, (answer.remark or "")[:21]) == (ResponseCode.SYSTEM_ERROR, "name server not ready")
    clock.pass_ms(10_000)
    assert (await peer.route()).code == ResponseCode.SUCCESS


# Registration


async def test_a_compressed_registration(start: Start, connect: Connect) -> None:
    server = await start()
    peer = connect(server)
    body = compressed(b'{"counter":1}', 2, b"T 8 8 6 SINGLE_TAG {}", b"U 4 4 6 SINGLE_TAG {}", b"[]", 0)
    header = registration(compressed=True, body_crc32=zlib.crc32(body) & 0x7FFF_FFFF)
    await peer.good(RequestCode.REGISTER_BROKER, header, body)
    assert json.loads((await peer.route("U")).body)["queueDatas"][0]["readQueueNums"] == 4
    answer = await peer.ask(RequestCode.REGISTER_BROKER, header, body + b"!")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert (answer.remark or "").startswith("crc32 not match")


async def test_slaves_and_order_configurations_in_the_answer(start: Start, connect: Connect) -> None:
    server = await start()
    peer = connect(server)
    await peer.good(RequestCode.REGISTER_BROKER, registration(), topics())
    await peer.good(RequestCode.PUT_KV_CONFIG, routes.PutKV(namespace="ORDER_TOPIC_CONFIG", key="T", value="a:4"))
    answer = await peer.good(RequestCode.REGISTER_BROKER, registration("10.0.0.2:10911", 1), topics())
    assert answer.fields == {"haServerAddr": "10.0.0.1:10912", "masterAddr": MASTER}
    assert answer.body == b'{"table":{"T":"a:4"}}'
    await peer.good(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"returnOrderTopicConfigToBroker=false")
    answer = await peer.good(RequestCode.REGISTER_BROKER, registration(), topics())
    assert answer.body == b""


@pytest.mark.parametrize(
    ("fields", "body", "code", "words"),
    [
        ({}, topics("T"), ResponseCode.SYSTEM_ERROR, "register broker failed"),
        ({}, b"{", ResponseCode.INVALID_PARAMETER, "registration"),
        ({}, b"x", ResponseCode.INVALID_PARAMETER, "zlib"),
        ({"brokerAddr": "nowhere"}, topics(), ResponseCode.INVALID_PARAMETER, "brokerAddr"),
        ({"brokerId": "one"}, topics(), ResponseCode.INVALID_PARAMETER, "brokerId"),
        ({"brokerId": "9223372036854775808"}, topics(), ResponseCode.INVALID_PARAMETER, "brokerId"),
    ],
)
async def test_a_bad_registration_is_answered_in_words(
    start: Start, connect: Connect, fields: dict[str, str], body: bytes, code: ResponseCode, words: str
) -> None:
    server = await start()
    peer = connect(server)
    answer = await peer.ask(RequestCode.REGISTER_BROKER, registration(), body, fields=fields)
    assert answer.code == code
    assert words in (answer.remark or "")
    assert "Traceback" not in (answer.remark or "")
    assert (await peer.route()).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_missing_field_is_named(start: Start, connect: Connect) -> None:
    server = await start()
    peer = connect(server)
    answer = await peer.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "topic" in (answer.remark or "")
    answer = await peer.ask(RequestCode.SEND_MESSAGE)
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_data_versions(start: Start, connect: Connect, clock: FakeClock) -> None:
    server = await start()
    peer = connect(server)
    header = registering.QueryDataVersion(broker_name="a", broker_addr=MASTER, cluster_name="C", broker_id=0)
    answer = await peer.good(RequestCode.QUERY_DATA_VERSION, header, b'{"counter":1}')
    assert (answer.fields, answer.body) == ({"changed": "true"}, b"")
    await peer.good(RequestCode.REGISTER_BROKER, registration(), topics())
    clock.pass_ms(119_000)
    known = b'{"counter":1,"stateVersion":0,"timestamp":5}'
    answer = await peer.good(RequestCode.QUERY_DATA_VERSION, header, known)
    assert (answer.fields, answer.body) == ({"changed": "false"}, known)
    clock.pass_ms(119_000)
    server.expire_brokers()
    answer = await peer.good(RequestCode.QUERY_DATA_VERSION, header, known.replace(b"5", b"6"))
    assert (answer.fields, answer.body) == ({"changed": "true"}, known)


# Administration


async def test_key_values(start: Start, connect: Connect) -> None:
    server = await start()
    peer = connect(server)
    answer = await peer.ask(RequestCode.GET_KV_CONFIG, routes.GetKV(namespace="N", key="k"))
    assert (answer.code, answer.remark) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: N Key: k")
    await peer.good(RequestCode.PUT_KV_CONFIG, routes.PutKV(namespace="N", key="k", value="ü"))
    assert (await peer.good(RequestCode.GET_KV_CONFIG, routes.GetKV(namespace="N", key="k"))).fields == {"value": "ü"}
    found = await peer.good(RequestCode.GET_KVLIST_BY_NAMESPACE, routes.GetKVList(namespace="N"))
    assert json.loads(found.body) == {"table": {"k": "ü"}}
    await peer.good(RequestCode.DELETE_KV_CONFIG, routes.DeleteKV(namespace="N", key="k"))
    await peer.good(RequestCode.DELETE_KV_CONFIG, routes.DeleteKV(namespace="N", key="k"))
    answer = await peer.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, routes.GetKVList(namespace="M"))
    assert (answer.code, answer.remark) == (ResponseCode.QUERY_NOT_FOUND, "No config item, Namespace: M")


async def test_write_permission(start: Start, connect: Connect) -> None:
    server = await start()
    peer = connect(server)
    await peer.good(RequestCode.REGISTER_BROKER, registration(), topics())
    answer = await peer.good(RequestCode.WIPE_WRITE_PERM_OF_BROKER, routes.WipeWritePerm(broker_name="a"))
    assert answer.fields == {"wipeTopicCount": "2"}
    assert json.loads((await peer.route()).body)["queueDatas"][0]["perm"] == 4
    answer = await peer.good(RequestCode.ADD_WRITE_PERM_OF_BROKER, routes.AddWritePerm(broker_name="a"))
    assert answer.fields == {"addTopicCount": "2"}
    assert json.loads((await peer.route()).body)["queueDatas"][0]["perm"] == 6


async def test_topics_by_hand(start: Start, connect: Connect) -> None:
    server = await start()
    peer = connect(server)
    await peer.good(RequestCode.REGISTER_BROKER, registration(), topics())
    queues = [{"brokerName": "a", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1, "topicSynFlag": 0}]
    body = json.dumps({"queueDatas": queues}).encode()
    await peer.good(RequestCode.REGISTER_TOPIC_IN_NAMESRV, routes.RegisterTopic(topic="N"), body)
    assert json.loads((await peer.route("N")).body)["queueDatas"][0]["readQueueNums"] == 1
    answer = await peer.ask(
        RequestCode.REGISTER_TOPIC_IN_NAMESRV, routes.RegisterTopic(topic="M"), body.replace(b'"a"', b'"x"')
    )
    assert "'x' isn't registered" in (answer.remark or "")
    await peer.good(RequestCode.DELETE_TOPIC_IN_NAMESRV, routes.DeleteTopicInNamesrv(topic="N", cluster_name="D"))
    assert (await peer.route("N")).code == ResponseCode.SUCCESS
    await peer.good(RequestCode.DELETE_TOPIC_IN_NAMESRV, routes.DeleteTopicInNamesrv(topic="N"))
    assert (await peer.route("N")).code == ResponseCode.TOPIC_NOT_EXIST


async def test_lists_of_topics(start: Start, connect: Connect) -> None:
    server = await start()
    peer = connect(server)
    assert (await peer.good(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)).body == b'{"topicList":[]}'
    table = {name: {"topicName": name, "topicSysFlag": flag} for flag, name in enumerate(("none", "unit", "sub", "both"))}
    body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": table}}).encode()
    await peer.good(RequestCode.REGISTER_BROKER, registration(), body)

    async def listed(code: RequestCode, header: Header | None = None) -> object:
        return json.loads((await peer.good(code, header)).body)

    assert await listed(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == {"topicList": ["none", "unit", "sub", "both"]}
    assert await listed(RequestCode.GET_TOPICS_BY_CLUSTER, routes.GetTopicsByCluster(cluster="D")) == {"topicList": []}
    assert await listed(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == {"brokerAddr": MASTER, "topicList": ["C", "a"]}
    assert await listed(RequestCode.GET_UNIT_TOPIC_LIST) == {"topicList": ["unit", "both"]}
    assert await listed(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST) == {"topicList": ["sub", "both"]}
    assert await listed(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST) == {"topicList": ["sub"]}

    await peer.good(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableTopicList=false\nenableAllTopicList=false\n")
    for code, header in (
        (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, None),
        (RequestCode.GET_TOPICS_BY_CLUSTER, routes.GetTopicsByCluster(cluster="C")),
        (RequestCode.GET_UNIT_TOPIC_LIST, None),
    ):
        answer = await peer.ask(code, header)
        assert (answer.code, (answer.remark or "")[:7]) == (ResponseCode.SYSTEM_ERROR, "disable")


async def test_the_level_of_the_log_changes_while_it_runs(start: Start, connect: Connect) -> None:
    ours = logging.getLogger("rockmq")
    before = ours.level
    try:
        server = await start(logLevel="ERROR")
        assert ours.level == logging.ERROR
        peer = connect(server)
        await peer.good(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"logLevel=DEBUG\n")
        assert ours.level == logging.DEBUG
        answer = await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"logLevel=LOUD\n")
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "logLevel=LOUD: expected one of DEBUG, INFO, WARNING, ERROR" in (answer.remark or "")
        assert ours.level == logging.DEBUG
        await peer.good(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"logLevel=\n")
        assert ours.level == before
    finally:
        ours.setLevel(before)


async def test_member_groups(start: Start, connect: Connect) -> None:
    server = await start()
    peer = connect(server)
    await peer.good(RequestCode.REGISTER_BROKER, registration(), topics())
    header = registering.GetBrokerMemberGroup(cluster_name="C", broker_name="a")
    answer = await peer.good(RequestCode.GET_BROKER_MEMBER_GROUP, header)
    assert answer.body == (b'{"brokerMemberGroup":{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"a","cluster":"C"}}')
    unknown = registering.GetBrokerMemberGroup(cluster_name="C", broker_name="b")
    answer = await peer.good(RequestCode.GET_BROKER_MEMBER_GROUP, unknown)
    assert json.loads(answer.body)["brokerMemberGroup"]["brokerAddrs"] == {}


async def test_configuration_is_shown_and_changed(start: Start, connect: Connect, tmp_path: Path) -> None:
    stored, link = tmp_path / "namesrv.conf", tmp_path / "link.conf"
    stored.write_text("# mine\nlistenPort=0\n")
    stored.chmod(0o600)
    link.symlink_to(stored)
    server = await start(configStorePath=str(link), configBlackList="scanNotActiveBrokerInterval;")
    peer = connect(server)
    shown = (await peer.good(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
    assert "orderMessageEnable=false\n" in shown
    assert f"kvConfigPath={tmp_path / 'kv.json'}\n" in shown
    await peer.good(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n")
    assert "orderMessageEnable=true" in (await peer.good(RequestCode.GET_NAMESRV_CONFIG)).body.decode()
    assert stored.read_text() == "listenPort=0\norderMessageEnable=true\n"
    await peer.good(RequestCode.UPDATE_NAMESRV_CONFIG)
    for body, code, words in (
        (b"kvConfigPath=/etc/passwd", ResponseCode.NO_PERMISSION, "Can not update config in black list: kvConfigPath"),
        (b"rocketmqHome=/", ResponseCode.NO_PERMISSION, "rocketmqHome"),
        (b"scanNotActiveBrokerInterval=5", ResponseCode.NO_PERMISSION, "scanNotActiveBrokerInterval"),
        (b"listenPort=1", ResponseCode.INVALID_PARAMETER, "listenPort can't change while running"),
        (b"orderMessagEnable=true", ResponseCode.INVALID_PARAMETER, "did you mean 'orderMessageEnable'"),
        (b"orderMessageEnable=maybe", ResponseCode.INVALID_PARAMETER, "expected true or false"),
        (b"a=\\u12", ResponseCode.INVALID_PARAMETER, "line 1"),
        (b"a\n" * 32_769, ResponseCode.INVALID_PARAMETER, "65538 bytes of changes"),
    ):
        answer = await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
        assert answer.code == code
        assert words in (answer.remark or "")
    assert stored.read_text() == "listenPort=0\norderMessageEnable=true\n"
    assert (link.is_symlink(), stored.stat().st_mode & 0o777) == (True, 0o600)
