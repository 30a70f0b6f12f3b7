"""Fixtures for tests that want a real broker. pytest finds this module by itself once RockMQ is installed.

    async def test_orders(rockmq_server, rockmq_client):
        async with rockmq_client.producer() as producer:
            await producer.send(Message("orders", b"..."))

With `rockmq_time` in a test, server and client go by a clock that the test moves:

    async def test_tomorrow(rockmq_time, rockmq_client):
        async with rockmq_client.producer() as producer, rockmq_client.consumer("g", ["orders"]) as consumer:
            await producer.send(Message("orders", b"..."), delay=timedelta(hours=24))
            await rockmq_time.advance(timedelta(hours=24))
            assert await consumer.fetch(timeout=10)

Each test has a server of its own, in its event loop, with its data below pytest's `tmp_path`. The fixtures are
asynchronous: they need pytest-asyncio.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rockmq.base.virtual_time import VirtualTime
    from rockmq.client import Client
    from rockmq.embedded import Server

try:
    from pytest_asyncio import fixture
except ImportError:
    fixture = pytest.fixture  # type: ignore[assignment]  # pytest itself says what is missing, to tests that use them


PROPERTIES = {"timerPrecisionMs": "100"}

# Imports are inside: every test session loads this file, whether it has to do with RockMQ or not.


@pytest.fixture
def rockmq_time() -> "VirtualTime":
    """The time of `rockmq_server` and `rockmq_client`; see `rockmq.base.virtual_time`."""
    from rockmq.base.virtual_time import VirtualTime

    return VirtualTime()


@fixture
async def rockmq_server(tmp_path: Path, request: pytest.FixtureRequest) -> "AsyncIterator[Server]":
    """A name server and a broker in this test's event loop; see `rockmq.embedded`. Timers keep to a tenth of a second."""
    from rockmq import embedded

    async with embedded.serve(tmp_path / "rockmq", properties=PROPERTIES, clock=_time_of(request)) as server:
        yield server


@fixture
async def rockmq_client(rockmq_server: "Server", request: pytest.FixtureRequest) -> "AsyncIterator[Client]":
    """A client connected to `rockmq_server`."""
    from rockmq.client import Client

    async with Client(rockmq_server.namesrv, clock=_time_of(request)) as client:
        yield client


def _time_of(request: pytest.FixtureRequest) -> "VirtualTime | None":
    """The test's own time, None when it has none."""
    found: VirtualTime | None = request.getfixturevalue("rockmq_time") if "rockmq_time" in request.fixturenames else None
    return found
