"""Fixtures for tests that want a real broker. pytest finds this module by itself once RockMQ is installed.

    async def test_orders(rockmq_server, rockmq_client):
        async with rockmq_client.producer() as producer:
            await producer.send(Message("orders", b"..."))

Each test has a server of its own, in its event loop, with its data below pytest's `tmp_path`. The fixtures are
asynchronous: they need pytest-asyncio.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rockmq.client import Client
    from rockmq.embedded import Server

try:
    from pytest_asyncio import fixture
except ImportError:
    fixture = pytest.fixture  # type: ignore[assignment]  # pytest itself says what is missing, to tests that use them


# Imports are inside: every test session loads this file, whether it has to do with RockMQ or not.


@fixture
async def rockmq_server(tmp_path: Path) -> "AsyncIterator[Server]":
    """A name server and a broker in this test's event loop; see `rockmq.embedded`."""
    from rockmq import embedded

    async with embedded.serve(tmp_path / "rockmq") as server:
        yield server


@fixture
async def rockmq_client(rockmq_server: "Server") -> "AsyncIterator[Client]":
    """A client connected to `rockmq_server`."""
    from rockmq.client import Client

    async with Client(rockmq_server.namesrv) as client:
        yield client
