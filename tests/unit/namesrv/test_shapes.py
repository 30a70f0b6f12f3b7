"""Bytes of routes. The bare shapes are what Apache RocketMQ's classes wrote for the same data (fastjson, 5.5.0)."""

import json

from msgspec import UNSET

from rockmq.namesrv import shapes
from rockmq.protocol.bodies.route import (
    BrokerData,
    BrokerMemberGroup,
    BrokerMemberGroupBody,
    ClusterInfo,
    QueueData,
    TopicRouteData,
)

BROKER = BrokerData(broker_addrs={"0": "h:1", "1": "h:2", "10": "h:3"}, broker_name="broker-a", cluster="Clü", zone_name="z")
ROUTE = TopicRouteData(
    broker_datas=[BROKER],
    queue_datas=[QueueData(broker_name="broker-a", perm=6, read_queue_nums=8, write_queue_nums=8)],
)


def test_who_reads_standard_json() -> None:
    assert shapes.reads_standard(401)
    assert not shapes.reads_standard(400)
    assert shapes.reads_standard(0, True)
    assert not shapes.reads_standard(0, False)


def test_apaches_route() -> None:
    assert shapes.route(ROUTE, standard=False).decode() == (
        '{"brokerDatas":[{"brokerAddrs":{0:"h:1",1:"h:2",10:"h:3"},"brokerName":"broker-a","cluster":"Clü",'
        '"enableActingMaster":false,"zoneName":"z"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a",'
        '"perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )


def test_the_standard_route() -> None:
    assert shapes.route(ROUTE, standard=True).decode() == (
        '{"brokerDatas":[{"brokerAddrs":{"0":"h:1","1":"h:2","10":"h:3"},"brokerName":"broker-a","cluster":"Cl\\u00fc",'
        '"enableActingMaster":false,"zoneName":"z"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a",'
        '"perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )


def test_optional_members_are_there_when_they_have_a_value() -> None:
    full = TopicRouteData(
        broker_datas=[BrokerData(broker_addrs={"0": "h:1"}, broker_name="a", cluster="C")],
        filter_server_table={"h:1": ["f:1"]},
        order_topic_conf="a:4",
        queue_datas=ROUTE.queue_datas,
        topic_queue_mapping_by_broker={"a": {"bname": "a"}},
    )
    for standard in (True, False):
        text = shapes.route(full, standard=standard).decode()
        assert '"filterServerTable":{"h:1":["f:1"]},"orderTopicConf":"a:4","queueDatas":' in text
        assert text.endswith('],"topicQueueMappingByBroker":{"a":{"bname":"a"}}}')
        assert "zoneName" not in text
    for conf in (UNSET, None):
        bare = shapes.route(TopicRouteData(order_topic_conf=conf), standard=False)
        assert bare == b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'


def test_cluster_info() -> None:
    info = ClusterInfo(broker_addr_table={"broker-a": BROKER}, cluster_addr_table={"Clü": ["broker-a", "broker-b"]})
    assert shapes.cluster_info(info, standard=False).decode() == (
        '{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"h:1",1:"h:2",10:"h:3"},"brokerName":"broker-a","cluster":"Clü",'
        '"enableActingMaster":false,"zoneName":"z"}},"clusterAddrTable":{"Clü":["broker-a","broker-b"]}}'
    )
    standard = shapes.cluster_info(info, standard=True)
    assert standard.isascii()
    assert json.loads(standard)["brokerAddrTable"]["broker-a"]["brokerAddrs"]["10"] == "h:3"


def test_member_group() -> None:
    body = BrokerMemberGroupBody(
        broker_member_group=BrokerMemberGroup(broker_addrs={"0": "h:1"}, broker_name="b", cluster="C")
    )
    inside = '"brokerName":"b","cluster":"C"}}'
    assert shapes.member_group(body, standard=False).decode() == '{"brokerMemberGroup":{"brokerAddrs":{0:"h:1"},' + inside
    assert shapes.member_group(body, standard=True).decode() == '{"brokerMemberGroup":{"brokerAddrs":{"0":"h:1"},' + inside
