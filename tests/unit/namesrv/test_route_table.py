"""The rules of registration and of leaving (protocol spec, 3.3)."""

from typing import Any

import pytest
from msgspec import UNSET

from rockmq.namesrv import route_table
from rockmq.namesrv.route_table import Master, Registration, RegistrationRefused, RouteTable, within_zone
from rockmq.protocol.bodies.common import DataVersion, TopicConfig
from rockmq.protocol.bodies.route import QueueData
from tests.support.clock import FakeClock

MASTER = "10.0.0.1:10911"
SLAVE = "10.0.0.2:10911"
OTHER = "10.0.0.3:10911"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def table(clock: FakeClock) -> RouteTable:
    return RouteTable(clock)


def version(counter: int = 1, state: int = 0) -> DataVersion:
    return DataVersion(state_version=state, timestamp=7, counter=counter)


def registration(address: str = MASTER, broker_id: int = 0, *topics: str, **more: Any) -> Registration:
    names = topics or ("T", "U")
    fields = {
        "cluster": "C",
        "broker_name": "a",
        "broker_id": broker_id,
        "address": address,
        "ha_address": address.replace("10911", "10912"),
        "version": version(),
        "topics": {name: TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=8) for name in names},
    }
    return Registration(**(fields | more))


def addresses(table: RouteTable, topic: str = "T") -> dict[str, str] | None:
    route = table.route(topic)
    return route.broker_datas[0].broker_addrs if route is not None else None


def perm(table: RouteTable, topic: str = "T") -> int:
    route = table.route(topic)
    assert route is not None
    return route.queue_datas[0].perm


def test_a_route_has_brokers_and_queues(table: RouteTable) -> None:
    assert table.register(registration(), "c1") == Master()
    table.register(registration(OTHER, 0, "T", "V", broker_name="b"), "c2")
    route = table.route("T")
    assert route is not None
    assert [data.broker_name for data in route.broker_datas] == ["a", "b"]
    assert route.broker_datas[0].broker_addrs == {"0": MASTER}
    assert route.broker_datas[0].cluster == "C"
    assert route.queue_datas[0] == QueueData(broker_name="a", perm=6, read_queue_nums=8, write_queue_nums=8)
    assert route.order_topic_conf is UNSET
    assert table.route("nowhere") is None
    assert sorted(table.topics()) == ["T", "U", "V"]
    assert table.cluster_info().cluster_addr_table == {"C": ["a", "b"]}


# Rule 1: the same address under another id is that broker, promoted


def test_a_promoted_slave_has_one_address(table: RouteTable) -> None:
    table.register(registration(MASTER, 0), "c1")
    table.register(registration(SLAVE, 1), "c2")
    table.connection_lost("c1")
    assert addresses(table) == {"1": SLAVE}
    table.register(registration(SLAVE, 0, "T", "U", version=version(state=1)), "c2")
    assert addresses(table) == {"0": SLAVE}


def test_a_master_that_moved_replaces_its_old_address(table: RouteTable) -> None:
    table.register(registration(MASTER), "c1")
    table.register(registration(OTHER), "c2")
    assert addresses(table) == {"0": OTHER}
    table.connection_lost("c1")
    assert addresses(table) == {"0": OTHER}


# Rule 2: a newer state wins


def test_a_deposed_master_is_ignored_without_error(table: RouteTable) -> None:
    table.register(registration(MASTER, 0, version=version(state=2)), "c1")
    assert table.register(registration(OTHER, 0, "X", "Y", version=version(state=1, counter=99)), "c2") == Master()
    assert addresses(table) == {"0": MASTER}
    assert table.route("X") is None
    assert table.version("C", OTHER) is None
    table.connection_lost("c2")
    assert addresses(table) == {"0": MASTER}
    table.register(registration(OTHER, 0, version=version(state=2)), "c2")
    assert addresses(table) == {"0": OTHER}


# Rule 3: the first registration is whole


def test_a_first_registration_with_one_topic_is_refused_and_changes_nothing(table: RouteTable) -> None:
    with pytest.raises(RegistrationRefused, match=r"register broker failed.*all its topics") as refused:
        table.register(registration(MASTER, 0, "T"), "c1")
    assert refused.value.retriable
    assert table.route("T") is None
    assert table.cluster_info().broker_addr_table == {}
    assert table.cluster_info().cluster_addr_table == {}
    table.register(registration(), "c1")
    table.register(registration(MASTER, 0, "New", version=version(2)), "c1")
    assert sorted(table.topics()) == ["New", "T", "U"]
    with pytest.raises(RegistrationRefused):
        table.register(registration(SLAVE, 1, "T"), "c2")
    assert addresses(table) == {"0": MASTER}


def test_an_empty_table_is_taken(table: RouteTable) -> None:
    table.register(registration(topics={}), "c1")
    assert table.cluster_info().broker_addr_table["a"].broker_addrs == {"0": MASTER}


# Rule 4: whose topics, and when


def test_topics_are_the_masters(table: RouteTable) -> None:
    table.register(registration(SLAVE, 1, "S1", "S2"), "c2")
    assert table.topics() == []
    table.register(registration(), "c1")
    table.register(registration(SLAVE, 1, "S1", "S2", version=version(5)), "c2")
    assert sorted(table.topics()) == ["T", "U"]


def test_a_topic_is_updated_when_the_version_differs(table: RouteTable) -> None:
    def register(perm_: int, counter: int, name: str = "T") -> None:
        topics = {name: TopicConfig(topic_name=name, perm=perm_), "U": TopicConfig(topic_name="U", perm=perm_)}
        table.register(registration(topics=topics, version=version(counter)), "c1")

    register(6, 1)
    register(4, 1)
    assert perm(table) == 6
    register(4, 2)
    assert perm(table) == 4
    table.delete_topic("T")
    register(2, 2)
    assert perm(table) == 2
    assert perm(table, "U") == 4


def test_topics_that_are_missing_later_are_kept_unless_told_otherwise(table: RouteTable) -> None:
    table.register(registration(MASTER, 0, "T", "U"), "c1")
    table.register(registration(MASTER, 0, "U", "V", version=version(2)), "c1")
    assert sorted(table.topics()) == ["T", "U", "V"]
    table.register(registration(MASTER, 0, "V", "W", version=version(3)), "c1", drop_missing=True)
    assert sorted(table.topics()) == ["V", "W"]
    static = {"X": {"topic": "X", "bname": "a"}}
    table.register(registration(MASTER, 0, "X", "Y", version=version(4), mappings=static), "c1", drop_missing=True)
    assert sorted(table.topics()) == ["V", "W", "X", "Y"]


def test_the_lowest_slave_stands_in_read_only(table: RouteTable) -> None:
    table.register(registration(SLAVE, 2, "T", "U", acting_master=True), "c2")
    assert perm(table) == 4
    table.register(registration(OTHER, 3, "S", "R", acting_master=True), "c3")
    assert table.route("S") is None
    table.register(registration(MASTER, 0, "T", "U", acting_master=True), "c1")
    assert perm(table) == 6
    table.connection_lost("c1")
    assert addresses(table) == {"2": SLAVE, "3": OTHER}
    assert perm(table) == 4


def test_a_slave_that_knows_of_acting_masters_but_isnt_one_keeps_its_permissions(table: RouteTable) -> None:
    table.register(registration(SLAVE, 1, acting_master=False), "c2")
    assert perm(table) == 6
    assert table.cluster_info().broker_addr_table["a"].enable_acting_master is False


# Rule 5: living and dying


def test_silence_ends_a_broker(table: RouteTable, clock: FakeClock) -> None:
    table.register(registration(), "c1")
    table.register(registration(OTHER, 0, "T", "V", broker_name="b", timeout_ms=5_000), "c2")
    clock.pass_ms(5_000)
    assert table.expire() == []
    clock.pass_ms(1)
    assert table.expire() == ["c2"]
    assert table.route("V") is None
    assert table.cluster_info().cluster_addr_table == {"C": ["a"]}
    clock.pass_ms(114_999)
    assert table.expire() == []
    table.heartbeat("C", MASTER)
    clock.pass_ms(120_000)
    assert table.expire() == []
    table.heartbeat("another", MASTER)
    clock.pass_ms(1)
    assert table.expire() == ["c1"]
    assert table.cluster_info().cluster_addr_table == {}
    assert table.topics() == []
    table.heartbeat("C", MASTER)
    assert table.version("C", MASTER) is None


def test_only_the_connection_of_the_latest_registration_counts(table: RouteTable) -> None:
    table.register(registration(), "old")
    table.register(registration(), "new")
    table.connection_lost("old")
    assert addresses(table) == {"0": MASTER}
    table.connection_lost("new")
    assert table.route("T") is None


def test_one_connection_may_carry_several_brokers(table: RouteTable) -> None:
    table.register(registration(), "c")
    table.register(registration(OTHER, 0, broker_name="b"), "c")
    table.connection_lost("c")
    assert table.cluster_info().broker_addr_table == {}


def test_leaving_takes_the_address_and_its_topics(table: RouteTable) -> None:
    table.register(registration(), "c1")
    table.register(registration(SLAVE, 1), "c2")
    table.unregister("another cluster", MASTER)
    assert addresses(table) == {"0": MASTER, "1": SLAVE}
    table.unregister("C", MASTER)
    assert addresses(table) == {"1": SLAVE}
    table.unregister("C", MASTER)
    table.unregister("C", SLAVE)
    assert table.topics() == []


def test_filter_servers_are_shown_until_an_empty_list(table: RouteTable) -> None:
    table.register(registration(filter_servers=["f:1"]), "c1")
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {MASTER: ["f:1"]}
    table.register(registration(), "c1")
    route = table.route("T")
    assert route is not None
    assert route.filter_server_table == {}


# Rule 6: slaves learn their master


def test_a_slave_is_told_its_master(table: RouteTable) -> None:
    assert table.register(registration(SLAVE, 1), "c2") == Master()
    table.register(registration(), "c1")
    assert table.register(registration(SLAVE, 1), "c2") == Master(MASTER, "10.0.0.1:10912")


# What Apache leaves behind, and this table doesn't


def test_a_broker_with_a_new_name_leaves_its_old_one(table: RouteTable) -> None:
    table.register(registration(MASTER, 0, "T", "U"), "c1")
    table.register(registration(MASTER, 0, "T", "V", broker_name="b"), "c2")
    assert table.broker_names() == ["b"]
    assert table.route("U") is None
    table.connection_lost("c1")
    assert addresses(table) == {"0": MASTER}


def test_a_broker_in_a_new_cluster_leaves_the_old_one(table: RouteTable) -> None:
    table.register(registration(), "c1")
    with pytest.raises(RegistrationRefused):
        table.register(registration(MASTER, 0, "T", cluster="D"), "c2")
    assert table.cluster_info().cluster_addr_table == {"C": ["a"]}
    table.register(registration(cluster="D"), "c2")
    assert table.cluster_info().cluster_addr_table == {"D": ["a"]}
    table.connection_lost("c1")
    assert addresses(table) == {"0": MASTER}


def test_a_name_in_two_clusters_is_cleaned_from_both(table: RouteTable) -> None:
    table.register(registration(), "c1")
    table.register(registration(OTHER, 1, cluster="D"), "c2")
    assert table.cluster_info().cluster_addr_table == {"C": ["a"], "D": ["a"]}
    table.connection_lost("c1")
    table.connection_lost("c2")
    assert table.cluster_info().cluster_addr_table == {}


# Permissions and topics by hand


def test_write_permission_is_wiped_until_a_changed_registration(table: RouteTable) -> None:
    table.register(registration(), "c1")
    assert table.wipe_write_permission("a") == 2
    assert perm(table) == 4
    table.register(registration(), "c1")
    assert perm(table) == 4
    table.register(registration(version=version(2)), "c1")
    assert perm(table) == 6
    table.wipe_write_permission("a")
    assert table.add_write_permission("a") == 2
    assert perm(table) == 6
    assert table.wipe_write_permission("b") == 0


def test_topics_by_hand(table: RouteTable) -> None:
    table.register(registration(), "c1")
    table.register(registration(OTHER, 0, "T", "V", broker_name="b", cluster="D"), "c2")
    queues = QueueData(broker_name="a", perm=6, read_queue_nums=2, write_queue_nums=2)
    table.register_topic("N", [queues])
    assert addresses(table, "N") == {"0": MASTER}
    stranger = QueueData(broker_name="x", perm=6, read_queue_nums=2, write_queue_nums=2)
    with pytest.raises(RegistrationRefused, match="'x' isn't registered"):
        table.register_topic("N2", [queues, stranger])
    assert table.route("N2") is None
    table.delete_topic("T", "D")
    route = table.route("T")
    assert route is not None
    assert [each.broker_name for each in route.queue_datas] == ["a"]
    table.delete_topic("T", "no such cluster")
    assert table.route("T") is not None
    table.delete_topic("T")
    table.delete_topic("T")
    assert table.route("T") is None
    assert table.topics_of_cluster("D") == ["V"]
    assert table.topics_of_cluster("no such cluster") == []
    assert table.system_topics() == ["C", "a", "D", "b"]
    assert table.any_address() == MASTER


def test_unit_flags(table: RouteTable) -> None:
    topics = {str(flag): TopicConfig(topic_name=str(flag), topic_sys_flag=flag) for flag in range(4)}
    table.register(registration(topics=topics), "c1")
    assert table.topics_with_flags(lambda flags: bool(flags & 2)) == ["2", "3"]


def test_bounds_refuse_and_change_nothing(table: RouteTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table.register(registration(), "c1")
    monkeypatch.setattr(route_table, "BROKERS_MAX", 1)
    with pytest.raises(RegistrationRefused, match="1 brokers are registered, the bound"):
        table.register(registration(OTHER, 0, broker_name="b"), "c2")
    monkeypatch.setattr(route_table, "TOPICS_MAX", 3)
    with pytest.raises(RegistrationRefused, match="exceed the bound 3"):
        table.register(registration(MASTER, 0, "T", "V", "W", version=version(2)), "c1")
    table.register(registration(MASTER, 0, "T", "V", version=version(2)), "c1")
    with pytest.raises(RegistrationRefused, match="the bound"):
        table.register_topic("N", [QueueData(broker_name="a", perm=6, read_queue_nums=2, write_queue_nums=2)])
    assert sorted(table.topics()) == ["T", "U", "V"]
    assert table.broker_names() == ["a"]


def test_zones(table: RouteTable) -> None:
    table.register(registration(zone="Z1", filter_servers=["f:1"]), "c1")
    table.register(registration(OTHER, 0, broker_name="b", zone="z2", filter_servers=["f:2"]), "c2")
    table.register(registration("h:1", 0, broker_name="c"), "c3")
    table.register(registration("h:2", 1, broker_name="d", zone="Z9", acting_master=False), "c4")
    route = table.route("T")
    assert route is not None
    near = within_zone(route, "Z2")
    assert [data.broker_name for data in near.broker_datas] == ["b", "d"]
    assert [queues.broker_name for queues in near.queue_datas] == ["b", "d"]
    assert near.filter_server_table == {OTHER: ["f:2"]}


def test_static_topics_mappings_reach_clients_and_go_with_their_broker(table: RouteTable) -> None:
    mapping = {"topic": "T", "bname": "a", "currIdMap": {"0": 0}}
    table.register(registration(mappings={"T": mapping}), "c1")
    route = table.route("T")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"a": mapping}
    table.connection_lost("c1")
    table.register(registration(), "c1")
    route = table.route("T")
    assert route is not None
    assert route.topic_queue_mapping_by_broker is UNSET
