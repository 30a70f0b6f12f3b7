"""What administrators ask, where the answers of several servers or several pages are one."""

from collections.abc import AsyncIterator

import pytest

from rockmq import embedded
from rockmq.base.errors import RemotingError
from rockmq.client import Client, MessageQueue, ResponseError, RouteNotFound
from rockmq.client.admin import GroupProgress, QueueProgress, RuntimeInfo, TopicSettings, topics
from rockmq.client.admin.cluster import Cluster
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.offset import GetMaxOffset
from tests.unit.client.fakes import FakeBroker


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
