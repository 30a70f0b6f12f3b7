"""Queues that follow from a route, and routes of light queues."""

import asyncio

import pytest

from rockmq.base.errors import ProtocolError
from rockmq.client import Client, ClientError, MessageQueue, RouteNotFound, routes
from rockmq.client.routes import TopicRoute
from rockmq.client.static_queues import QUEUES_MAX
from rockmq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from rockmq.protocol.codes import RequestCode
from tests.unit.client.fakes import FakeBroker, FakeNames

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


async def test_more_queues_than_there_can_be_are_refused(mq: Client, names: FakeNames, broker: FakeBroker) -> None:
    names.add("T", broker, queues=QUEUES_MAX)
    assert len(await mq.queues("T")) == QUEUES_MAX
    names.add("T", broker, queues=2**60)
    with pytest.raises(ProtocolError, match="route of T: broker a has 1152921504606846976 queues, expected 65536 at most"):
        await mq.queues("T")
    names.add("T", broker)
    names.routes["T"].order_topic_conf = "a:1152921504606846976"
    with pytest.raises(ProtocolError, match="broker a has 1152921504606846976 queues"):
        await mq.queues("T")
    names.add("T", broker)
    mapping = {"topic": "T", "totalQueues": 2**31 - 1, "bname": "a", "epoch": 1}
    names.routes["T"].topic_queue_mapping_by_broker = {"a": mapping}
    with pytest.raises(ProtocolError, match="a static topic has 2147483647 queues, expected 65536 at most"):
        await mq.queues("T")


def test_an_order_configuration_decides_alone() -> None:
    found = route(queues("a", perm=4), brokers={"a": MASTER, "b": {"0": "b:1"}}, order="b:1;a:2")
    assert [(each.queue.broker_name, each.queue_id) for each in found.targets] == [("b", "0"), ("a", "0"), ("a", "1")]


def test_an_order_configuration_keeps_keys_where_they_are() -> None:
    """Whichever of its brokers are away."""
    found = route(queues("a"), brokers={"a": MASTER, "b": {"1": "b:2"}}, order="a:1;b:1;c:1")
    assert [(each.queue.broker_name, each.address) for each in found.targets] == [("a", "a:1"), ("b", ""), ("c", "")]


async def test_light_queues_of_a_name_are_beside_each_topic_that_they_were_asked_for(
    mq: Client, names: FakeNames, broker: FakeBroker
) -> None:
    second = FakeBroker("b")
    await second.start()
    names.add("U", second)
    (of_t,) = await mq.light_queues("T", "alice")
    (of_u,) = await mq.light_queues("U", "alice")
    assert await mq.queues("%LMQ%alice") == [of_t, of_u]
    for queue, where in ((of_t, broker), (of_u, second)):
        await mq.commit("g", queue, 7)
        assert where.offsets["g", "%LMQ%alice", 0] == 7
        assert await mq.max_offset(queue) == 0
    asked = names.count(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    mq._instance.routes.refresh_soon("%LMQ%alice")
    async with asyncio.timeout(10):
        while names.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) < asked + 2:
            await asyncio.sleep(0.05)
    await second.stop()


async def test_of_too_many_light_queues_the_oldest_is_forgotten(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "LIGHT_QUEUES_MAX", 2)
    for name in ("a", "b", "a", "c"):
        assert await mq.light_queues("T", name) == [MessageQueue(f"%LMQ%{name}", "a", 0)]
    assert len(await mq.queues("%LMQ%a")) == len(await mq.queues("%LMQ%c")) == 1
    with pytest.raises(RouteNotFound):
        await mq.queues("%LMQ%b")


async def test_a_light_queue_has_a_name_that_messages_can_say(mq: Client, broker: FakeBroker) -> None:
    for name in ("a/b", "a,b", "", "x" * 251, "a\0"):
        with pytest.raises(ClientError, match="light queue"):
            await mq.light_queues("T", name)
    assert not mq._instance.routes.readable("T"), "nobody was asked"
