"""All clients at once, as they come to a broker that has just started: it serves whatever it can, and refuses none of it."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.client import Client, Message, SendStatus
from rockmq.protocol import codec
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.pop import Pop
from rockmq.remoting.client import RemotingClient
from tests.unit.broker.conftest import running
from tests.unit.broker.test_messages import pull_request, send_request, sent
from tests.unit.broker.transaction_bench import half_request

CLIENTS, EACH = 25, 40


def requests(client: int, number: int) -> Command:
    """Of any kind, some of which need a decision, or something that isn't there yet."""
    body = f"{client}-{number}".encode()
    pop = Pop(
        consumer_group="poppers", topic="T", queue_id=-1, max_msg_nums=8, invisible_time=60_000, poll_time=0, born_time=0,
        init_mode=0,
    )  # fmt: skip
    kinds = [
        send_request(body, queue_id=number % 4),
        send_request(body, queue_id=number % 4),
        send_request(body, topic=f"New{client}"),
        send_request(body, DELAY="1"),
        send_request(body, TIMER_DELAY_SEC="60"),
        half_request(body),
        pull_request(0),
        codec.request(RequestCode.POP_MESSAGE, pop),
    ]
    return kinds[number % len(kinds)]


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_burst_after_a_start_is_served(tmp_path: Path, remote: RemotingClient, flush: str) -> None:
    async with running(tmp_path, flushDiskType=flush) as broker:
        await sent(remote, broker, send_request(b"before"))
    async with AsyncExitStack() as closing, running(tmp_path, flushDiskType=flush, syncFlushTimeout="60000") as broker:
        clients = [RemotingClient() for _ in range(CLIENTS)]
        for each in clients:
            closing.push_async_callback(each.close)
        asked = [
            clients[client].invoke(broker.address, requests(client, number), 60)
            for number in range(EACH)
            for client in range(CLIENTS)
        ]
        answers = await asyncio.gather(*asked)
        assert set(Counter(ResponseCode(each.code).name for each in answers)) <= {"SUCCESS", "POLLING_TIMEOUT"}
        stored = {each.fields["msgId"] for each in answers if "msgId" in each.fields}
        assert len(stored) == CLIENTS * EACH * 6 // 8


async def test_our_clients_are_served_though_they_come_all_at_once_and_try_once_only(tmp_path: Path) -> None:
    """Apache's broker answers SYSTEM_BUSY to what has waited for 200 ms, which while it warms up is thousands."""
    async with AsyncExitStack() as closing, embedded.serve(tmp_path) as server:
        producers = []
        for number in range(CLIENTS):
            mq = await closing.enter_async_context(Client(server.namesrv, instance_name=f"burst-{number}"))
            producers.append(await closing.enter_async_context(mq.producer("burst", retries=0, timeout=60)))
        sends = [each.send(Message("burst", b"%d" % number)) for number in range(EACH) for each in producers]
        receipts = await asyncio.gather(*sends)
        assert {receipt.status for receipt in receipts} == {SendStatus.OK}
        assert len({receipt.offset_id for receipt in receipts}) == CLIENTS * EACH
