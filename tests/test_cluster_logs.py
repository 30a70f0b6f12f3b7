"""What a cluster of tests leaves behind: nothing, or what tells of a failure."""

import asyncio
from pathlib import Path

import pytest

from rockmq.client import Client, Message
from tests.support import cluster

SMALL = {"mappedFileSizeCommitLog": "1048576"}


class Failed(Exception):
    """What a test ends with here."""


async def send(namesrv: str) -> None:
    async with Client(namesrv) as mq, mq.producer() as producer:
        await mq.create_topic("t", 1)
        await producer.send(Message("t", b"x"))


def test_a_log_stays_after_a_failure_only(tmp_path: Path) -> None:
    with pytest.raises(Failed):
        fail(tmp_path)
    assert list(tmp_path.rglob("commitlog/*"))

    with cluster.started("rockmq", tmp_path, SMALL):
        assert list(tmp_path.rglob("commitlog/*"))
    assert not list(tmp_path.rglob("commitlog"))


def fail(directory: Path) -> None:
    with cluster.started("rockmq", directory, SMALL) as server:
        asyncio.run(send(server.namesrv))
        raise Failed
