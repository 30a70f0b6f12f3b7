import asyncio
from pathlib import Path

import pytest

from rockmq.base.errors import ConfigError
from rockmq.cli.demo.member import Member
from rockmq.cli.demo.orders import TOPIC, Plan, message
from rockmq.cli.demo.reconcile import Row
from rockmq.cli.demo.server import Server
from rockmq.client import Client


async def test_killed_and_started_again_it_has_what_it_had(tmp_path: Path) -> None:
    with Server(tmp_path / "store", tmp_path / "log") as server:
        await asyncio.to_thread(server.start)
        async with Client(server.namesrv) as mq, mq.producer() as producer:
            receipt = await producer.send(message(Plan(1), 0))
        server.kill()
        await asyncio.to_thread(server.start)
        async with Client(server.namesrv) as mq:
            assert len((await mq.pull(receipt.queue, receipt.queue_offset)).messages) == 1
        assert server.stop() == 0


def test_a_server_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where a folder should be")
    with Server(tmp_path / "store", tmp_path / "log") as server, pytest.raises(ConfigError, match="did not start"):
        server.start()


async def test_a_member_notes_what_it_consumes_and_leaves_in_order(tmp_path: Path) -> None:
    plan = Plan(20)
    with Server(tmp_path / "store", tmp_path / "log") as server:
        await asyncio.to_thread(server.start)
        async with Client(server.namesrv) as mq, mq.producer() as producer:
            await mq.create_topic(TOPIC, 2)
            for order in range(plan.orders):
                await producer.send(message(plan, order))
            member = Member("member", server.namesrv, tmp_path / "consumed.csv", tmp_path / "members.log")
            rows: list[Row] = []
            async with asyncio.timeout(60):
                while len(rows) < plan.orders:
                    rows += member.news()
                    await asyncio.sleep(0.05)
            assert sorted(row.order for row in rows) == list(range(plan.orders))
            assert await asyncio.to_thread(member.stop) == 0
            committed = await mq.committed_offsets("billing", TOPIC)
            assert sum(filter(None, committed.values())) == plan.orders
