"""Fakes that start with the test and are gone after it."""

from collections.abc import AsyncIterator

import pytest

from rockmq.client import Client
from tests.unit.client.fakes import FakeBroker, FakeNames


@pytest.fixture
async def names() -> AsyncIterator[FakeNames]:
    fake = FakeNames()
    await fake.start()
    yield fake
    await fake.stop()


@pytest.fixture
async def broker(names: FakeNames) -> AsyncIterator[FakeBroker]:
    """Broker a, the only one of topic T."""
    fake = FakeBroker("a")
    await fake.start()
    names.add("T", fake)
    yield fake
    await fake.stop()


@pytest.fixture
async def other(names: FakeNames, broker: FakeBroker) -> AsyncIterator[FakeBroker]:
    """Broker b beside broker a."""
    fake = FakeBroker("b")
    await fake.start()
    names.add("T", broker, fake)
    yield fake
    await fake.stop()


@pytest.fixture
async def mq(names: FakeNames) -> AsyncIterator[Client]:
    async with Client(names.address) as client:
        yield client
