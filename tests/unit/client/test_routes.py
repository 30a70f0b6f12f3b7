"""Queues that follow from a route."""

from rockmq.client.routes import TopicRoute
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData

MASTER = {"0": "a:1", "1": "a:2"}


def queues(broker: str, perm: int = 6, read: int = 2, write: int = 2) -> QueueData:
    return QueueData(broker_name=broker, perm=perm, read_queue_nums=read, write_queue_nums=write)


def route(*data: QueueData, brokers: dict[str, dict[str, str]], order: str | None = None) -> TopicRoute:
    known = [BrokerData(broker_name=name, broker_addrs=ids) for name, ids in brokers.items()]
    body = TopicRouteData(broker_datas=known, queue_datas=list(data))
    if order is not None:
        body.order_topic_conf = order
    return TopicRoute("T", body)


def test_queues_are_sorted_by_broker_and_id() -> None:
    found = route(queues("b"), queues("a"), brokers={"b": {"0": "b:1"}, "a": MASTER})
    assert [(each.queue.broker_name, each.queue_id, each.address) for each in found.targets] == [
        ("a", "0", "a:1"), ("a", "1", "a:1"), ("b", "0", "b:1"), ("b", "1", "b:1"),
    ]  # fmt: skip
    assert found.readable == tuple(MessageQueue("T", broker, number) for broker in "ab" for number in range(2))


def test_without_a_master_a_broker_is_only_read() -> None:
    found = route(queues("a"), brokers={"a": {"1": "a:2"}})
    assert found.targets == ()
    assert len(found.readable) == 2


def test_permissions_and_counts() -> None:
    found = route(queues("a", perm=4), queues("b", perm=2), brokers={"a": MASTER, "b": {"0": "b:1"}})
    assert {each.queue.broker_name for each in found.targets} == {"b"}
    assert {each.broker_name for each in found.readable} == {"a"}
    found = route(queues("a", read=3, write=5), brokers={"a": MASTER})
    assert (len(found.readable), len(found.targets)) == (3, 5)


def test_queues_of_a_broker_without_address_are_left_out() -> None:
    assert route(queues("ghost"), brokers={"a": MASTER}).targets == ()


def test_an_order_configuration_decides_alone() -> None:
    found = route(queues("a", perm=4), brokers={"a": MASTER, "b": {"0": "b:1"}}, order="b:1;a:2")
    assert [(each.queue.broker_name, each.queue_id) for each in found.targets] == [("b", "0"), ("a", "0"), ("a", "1")]
