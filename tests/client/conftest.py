"""The client against real servers: RockMQ's, and Apache's as proof that it does what brokers of either kind expect.

Each test has both by the fixture `peer`, which all share: use topics and groups of your own (`new_topic`, `unique`), and a
cluster of your own (`cluster.started`) for what would disturb others.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from rockmq.client import Client, MessageQueue, ResponseError
from rockmq.protocol.codes import ResponseCode
from tests.support import cluster

SETTINGS = {
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}

NewTopic = Callable[..., Awaitable[list[MessageQueue]]]


# Not for the whole session: an Apache broker keeps a processor busy also when it has nothing to do.
@pytest.fixture(scope="package", params=["rockmq", "apache"])
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.Cluster]:
    """A name server with a broker, RockMQ's and then Apache's."""
    cluster.require(request.param)
    with cluster.started(request.param, tmp_path_factory.mktemp(request.param), SETTINGS) as started:
        yield started


@pytest.fixture
async def mq(peer: cluster.Cluster) -> AsyncIterator[Client]:
    async with Client(peer.namesrv) as client:
        yield client


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """Names that no other test of this session uses."""
    counter = itertools.count(1)
    return lambda name: f"{name}-{next(counter)}"


@pytest.fixture
def new_topic(mq: Client, unique: Callable[[str], str]) -> NewTopic:
    """Makes a topic that no other test uses, with so many queues; its queues."""

    async def make(queues: int = 4, name: str = "orders") -> list[MessageQueue]:
        return await mq.create_topic(unique(name), queues)

    return make


@contextlib.contextmanager
def not_built(peer: cluster.Cluster) -> Iterator[None]:
    """Around what RockMQ's broker doesn't answer yet."""
    if peer.kind == "apache":
        yield
        return
    with pytest.raises(ResponseError) as refused:
        yield
    assert refused.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.05)


async def until_held(mq: Client, queue: MessageQueue, count: int) -> None:
    """Apache's broker puts messages into queues after it has answered."""

    async def held() -> bool:
        return await mq.max_offset(queue) >= count

    await eventually(held)
