"""A broker that takes no more for now (SYSTEM_BUSY), and what unmodified clients make of that: Java's, Go's, and ours.

Here it takes no more transactions, as too many are pending, which are few in this process. Node's client has none.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rockmq import embedded
from rockmq.broker import transactions
from rockmq.broker.drafts import Draft
from rockmq.broker.transactions import Transactions
from rockmq.client import Client, Decision, Message, ResponseError, StoredMessage
from rockmq.protocol.codes import ResponseCode
from rockmq.remoting.dispatch import Refusal
from tests.support import apache, others
from tests.support.events import events, wait_for

PENDING = 2
BEGUN = PENDING + 2
REMARK = f"{PENDING} transactions are pending, and no more are begun"
PROPERTIES = {"transactionTimeOut": "600000"}


def java(client: str) -> Callable[[str, Path], list[str]]:
    def begin(namesrv: str, directory: Path) -> list[str]:
        arguments = f"namesrv={namesrv}", "topic=busy", "group=busy", f"send=busy:{BEGUN}:unknown"
        with apache.program(client, "Transactions", *arguments, directory=directory) as producer:
            wait_for(producer, "ready")
            assert len(events(producer, "sent")) == PENDING
            return [each["error"] for each in events(producer, "failed")]

    return begin


def go(namesrv: str, directory: Path) -> list[str]:
    others.need("go")
    with others.go_steps(directory, namesrv, "busy", "busy") as process:
        assert process.wait(60) == 0, process.tail()
        return [each["result"] for each in events(process, "step")]


@pytest.mark.parametrize(
    ("begin", "tries"),
    [
        pytest.param(java("4.9.8"), 1, id="java 4.9.8"),
        pytest.param(java("5.5.0"), 3, id="java 5.5.0"),
        pytest.param(go, 1, id="go"),
    ],
)
async def test_who_begins_too_many_transactions_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, begin: Callable[[str, Path], list[str]], tries: int
) -> None:
    """Java's client 5.5.0 tries again, at the same broker if there is no other; the others do so after other codes only."""
    monkeypatch.setattr(transactions, "PENDING_MAX", PENDING)
    refused: list[Refusal] = []
    check = Transactions._check

    def counted(self: Transactions, draft: Draft) -> None:
        try:
            check(self, draft)
        except Refusal as refusal:
            refused.append(refusal)
            raise

    monkeypatch.setattr(Transactions, "_check", counted)
    async with embedded.serve(flush="ASYNC_FLUSH", properties=PROPERTIES) as server:
        errors = await asyncio.to_thread(begin, server.namesrv, tmp_path)
    assert errors
    for each in errors:
        assert f"CODE: {int(ResponseCode.SYSTEM_BUSY)}" in each
        assert REMARK in each
    assert len(refused) == tries * len(errors)


async def test_our_client_says_that_it_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "PENDING_MAX", PENDING)

    async def undecided(message: StoredMessage) -> Decision:
        return Decision.UNKNOWN

    async with (
        embedded.serve(flush="ASYNC_FLUSH", properties=PROPERTIES) as server,
        Client(server.namesrv) as mq,
        mq.transaction_producer("busy", undecided) as producer,
    ):
        begun = [await producer.send_half(Message("busy", b"x")) for _ in range(PENDING)]
        with pytest.raises(ResponseError, match=REMARK) as refused:
            await producer.send_half(Message("busy", b"x"))
        assert (refused.value.code, refused.value.retriable) == (ResponseCode.SYSTEM_BUSY, True)
        await producer.decide(begun[0], Decision.ROLLBACK)
        await producer.send_half(Message("busy", b"x"))
