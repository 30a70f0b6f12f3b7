"""What the route table says of itself, checked after every step of any history."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rockmq.namesrv.route_table import RegistrationRefused, RouteTable
from rockmq.protocol.bodies.common import TopicConfig
from tests.support.clock import FakeClock
from tests.unit.namesrv.test_route_table import registration, version


class TableMachine(RuleBasedStateMachine):
    """Whatever happens in whatever order, what the module says of the table holds."""

    names = st.sampled_from(["a", "b"])
    clusters = st.sampled_from(["C", "D"])
    hosts = st.sampled_from(["h:1", "h:2", "h:3"])
    connections = st.sampled_from(["c1", "c2", "c3"])
    topics = st.lists(st.sampled_from(["T", "U", "V"]), unique=True)

    @initialize()
    def begin(self) -> None:
        self.clock = FakeClock()
        self.table = RouteTable(self.clock)

    @rule(
        name=names,
        cluster=clusters,
        host=hosts,
        connection=connections,
        topics=topics,
        broker_id=st.integers(0, 2),
        state=st.integers(0, 2),
        acting=st.sampled_from([None, True, False]),
        drop=st.booleans(),
    )
    def register(
        self,
        name: str,
        cluster: str,
        host: str,
        connection: str,
        topics: list[str],
        broker_id: int,
        state: int,
        acting: bool | None,
        drop: bool,
    ) -> None:
        configs = {topic: TopicConfig(topic_name=topic) for topic in topics}
        it = registration(
            host,
            broker_id,
            broker_name=name,
            cluster=cluster,
            topics=configs,
            version=version(state=state),
            acting_master=acting,
        )
        before = (self.table.cluster_info(), sorted(self.table.topics()))
        try:
            self.table.register(it, connection, drop_missing=drop)
        except RegistrationRefused:
            assert (self.table.cluster_info(), sorted(self.table.topics())) == before

    @rule(cluster=clusters, host=hosts)
    def leave(self, cluster: str, host: str) -> None:
        self.table.unregister(cluster, host)

    @rule(connection=connections)
    def lose(self, connection: str) -> None:
        self.table.connection_lost(connection)

    @rule(ms=st.integers(0, 130_000))
    def wait(self, ms: int) -> None:
        self.clock.pass_ms(ms)
        self.table.expire()

    @rule(topic=st.sampled_from(["T", "U", "V"]), cluster=st.none() | clusters)
    def delete(self, topic: str, cluster: str | None) -> None:
        self.table.delete_topic(topic, cluster)

    @invariant()
    def holds(self) -> None:
        info = self.table.cluster_info()
        held = [address for data in info.broker_addr_table.values() for address in data.broker_addrs.values()]
        assert len(held) == len(set(held))
        assert set(held) == set(self.table._living)
        assert all(data.broker_addrs for data in info.broker_addr_table.values())
        named = {name for names in info.cluster_addr_table.values() for name in names}
        assert named == set(info.broker_addr_table)
        for topic in self.table.topics():
            route = self.table.route(topic)
            assert route is not None
            assert [data.broker_name for data in route.broker_datas] == [each.broker_name for each in route.queue_datas]


TestTable = TableMachine.TestCase
TestTable.settings = settings(max_examples=60, stateful_step_count=30)
