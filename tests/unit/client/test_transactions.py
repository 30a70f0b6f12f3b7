"""Sending in transactions: what brokers are told and how they are answered, against fakes and our own broker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rockmq import embedded
from rockmq.base.errors import ClientError, InvalidMessage, ResponseError
from rockmq.client import Client, Decision, Message, SendReceipt, SendStatus, StoredMessage, transactions
from rockmq.protocol import codec
from rockmq.protocol import properties as names_of
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.compression import Compression
from rockmq.protocol.headers.send import SendMessage, SendResponse
from rockmq.protocol.headers.transaction import CheckTransactionState
from tests.unit.client.fakes import FakeBroker, record, refusal

OFFSET_ID = "7F00000100002A9F0000000000000539"
QUICK = {"transactionCheckInterval": "30", "transactionTimeOut": "300"}


def storing(code: int = 0) -> Callable[[SendMessage, Command], Command]:
    def store(header: SendMessage, request: Command) -> Command:
        return codec.reply(request, code, None, SendResponse(msg_id=OFFSET_ID, queue_id=header.queue_id, queue_offset=42))

    return store


def saying(decision: Decision) -> Callable[[Any], Awaitable[Decision]]:
    """What executes, or checks, with this result."""

    async def say(about: SendReceipt | StoredMessage) -> Decision:
        return decision

    return say


async def never(about: SendReceipt | StoredMessage) -> Decision:
    raise AssertionError("this isn't called")


async def eventually(judge: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not judge():
            await asyncio.sleep(0.01)


# Against fakes


@pytest.mark.parametrize("decision", [Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN])
async def test_what_the_broker_is_told(mq: Client, broker: FakeBroker, decision: Decision) -> None:
    broker.on_send = storing()
    executed: list[SendReceipt] = []

    async def execute(receipt: SendReceipt) -> Decision:
        executed.append(receipt)
        assert not broker.ends
        return decision

    async with mq.transaction_producer("tx", never) as producer:
        receipt = await producer.send_in_transaction(Message("T", b"x" * 5000, tag="t"), execute)
        await eventually(lambda: broker.ends)
    assert executed == [receipt.sent]
    assert (receipt.decision, receipt.confirmed) == (decision, decision is not Decision.UNKNOWN)
    [header] = broker.headers
    said = names_of.decode((header.properties or "").encode())
    assert said == {"TAGS": "t", "UNIQ_KEY": receipt.sent.msg_id, "TRAN_MSG": "true", "PGROUP": "tx"}
    assert header.sys_flag & 0xD == 0x5, "compressed and prepared"
    [(end, request)] = broker.ends
    assert (end.producer_group, end.topic, end.bname) == ("tx", "T", "a")
    assert (end.tran_state_table_offset, end.commit_log_offset, end.commit_or_rollback) == (42, 0x539, decision)
    assert (end.msg_id, end.transaction_id, end.from_transaction_check) == (receipt.sent.msg_id, receipt.sent.msg_id, False)
    assert request.is_oneway == (decision is Decision.UNKNOWN), "Apache's brokers never answer that"


async def test_what_execute_raises_is_raised(mq: Client, broker: FakeBroker) -> None:
    broker.on_send = storing()

    async def execute(receipt: SendReceipt) -> Decision:
        raise ZeroDivisionError("the database is away")

    async with mq.transaction_producer("tx", never) as producer:
        with pytest.raises(ZeroDivisionError):
            await producer.send_in_transaction(Message("T", b"x"), execute)
        await eventually(lambda: broker.ends)
    [(end, request)] = broker.ends
    assert (end.commit_or_rollback, request.remark) == (0, "ZeroDivisionError: the database is away")


async def test_what_is_stored_too_weakly_is_rolled_back(mq: Client, broker: FakeBroker) -> None:
    broker.on_send = storing(ResponseCode.FLUSH_DISK_TIMEOUT)
    async with mq.transaction_producer("tx", never) as producer:
        receipt = await producer.send_in_transaction(Message("T", b"x"), never)
    assert (receipt.sent.status, receipt.decision) == (SendStatus.FLUSH_DISK_TIMEOUT, Decision.ROLLBACK)
    assert [end.commit_or_rollback for end, _ in broker.ends] == [Decision.ROLLBACK]


async def test_a_broker_that_stays_silent_may_have_heard(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.on_send = storing()
    broker.on_end = lambda header, request: "silence"
    async with mq.transaction_producer("tx", never) as producer:
        sending = asyncio.create_task(producer.send_in_transaction(Message("T", b"x"), saying(Decision.COMMIT)))
        await eventually(lambda: broker.ends)
        await broker.stop()
        receipt = await asyncio.wait_for(sending, 5)
        assert (receipt.decision, receipt.confirmed) == (Decision.COMMIT, False)


async def test_a_refused_decision_is_an_error(mq: Client, broker: FakeBroker) -> None:
    broker.on_send = storing()
    broker.on_end = lambda header, request: refusal(request, 604, "it was rolled back")
    async with mq.transaction_producer("tx", never) as producer:
        with pytest.raises(ResponseError, match="it was rolled back"):
            await producer.send_in_transaction(Message("T", b"x"), saying(Decision.COMMIT))


async def test_a_message_that_may_be_stored_isnt_sent_again(mq: Client, broker: FakeBroker) -> None:
    broker.on_send = lambda header, request: refusal(request, ResponseCode.SYSTEM_BUSY)
    async with mq.transaction_producer("tx", never, retries=5) as producer:
        with pytest.raises(ResponseError):
            await producer.send_in_transaction(Message("T", b"x"), never)
        assert len(broker.headers) == 1


# As a context


async def test_a_block_that_ends_well_commits(mq: Client, broker: FakeBroker) -> None:
    broker.on_send = storing()
    async with mq.transaction_producer("tx", never) as producer:
        async with producer.transaction(Message("T", b"x"), key="k") as transaction:
            assert not broker.ends
            assert transaction.id == transaction.sent.msg_id
        assert transaction.confirmed
        for decide in (transaction.__class__.roll_back, transaction.__class__.leave_open):
            async with producer.transaction(Message("T", b"x")) as transaction:
                decide(transaction)
        await eventually(lambda: len(broker.ends) == 3)
        assert not transaction.confirmed
    assert [end.commit_or_rollback for end, _ in broker.ends] == [Decision.COMMIT, Decision.ROLLBACK, Decision.UNKNOWN]
    assert (broker.ends[0][0].commit_log_offset, broker.ends[0][0].tran_state_table_offset) == (0x539, 42)


async def test_a_block_that_raises_rolls_back(mq: Client, broker: FakeBroker) -> None:
    broker.on_send = storing()
    async with mq.transaction_producer("tx", never) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(Message("T", b"x")):
                raise ZeroDivisionError("the database is away")

        inside = asyncio.Event()

        async def be_cancelled() -> None:
            async with producer.transaction(Message("T", b"x")):
                inside.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(be_cancelled())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        broker.on_end = lambda header, request: refusal(request, 604, "it was committed")
        with pytest.raises(ZeroDivisionError) as caught:
            async with producer.transaction(Message("T", b"x")):
                raise ZeroDivisionError("the database is away")
        assert "it was committed" in caught.value.__notes__[0]
        with pytest.raises(ResponseError, match="it was committed"):
            async with producer.transaction(Message("T", b"x")):
                pass
    assert [end.commit_or_rollback for end, _ in broker.ends] == [Decision.ROLLBACK] * 3 + [Decision.COMMIT]
    assert [request.remark for _, request in broker.ends][:2] == [
        "ZeroDivisionError: the database is away",
        "CancelledError: ",
    ]


async def test_a_block_isnt_entered_when_the_message_is_stored_too_weakly(mq: Client, broker: FakeBroker) -> None:
    broker.on_send = storing(ResponseCode.SLAVE_NOT_AVAILABLE)
    async with mq.transaction_producer("tx", never) as producer:
        with pytest.raises(ResponseError, match="no replica was there") as caught:
            async with producer.transaction(Message("T", b"x")):
                raise AssertionError("this isn't entered")
    assert (caught.value.code, caught.value.retriable) == (ResponseCode.SLAVE_NOT_AVAILABLE, True)
    assert [end.commit_or_rollback for end, _ in broker.ends] == [Decision.ROLLBACK]


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TRAN_MSG"])
async def test_what_cant_be_in_a_transaction(mq: Client, broker: FakeBroker, name: str) -> None:
    async with mq.transaction_producer("tx", never) as producer:
        with pytest.raises(InvalidMessage, match=name):
            await producer.send_in_transaction(Message("T", b"x", properties={name: "true"}), never)
    assert not broker.headers


async def test_one_producer_answers_for_a_group(mq: Client) -> None:
    async with mq.transaction_producer("tx", never):
        with pytest.raises(ClientError, match="already has a transaction producer"):
            await mq.transaction_producer("tx", never).start()
        async with mq.transaction_producer("other", never), mq.producer("tx"):
            pass
    async with mq.transaction_producer("tx", never):
        pass


def question(key: str, *, group: str = "tx") -> Command:
    header = CheckTransactionState(
        tran_state_table_offset=7, commit_log_offset=9, topic="half", msg_id=key, transaction_id=key, bname="a"
    )
    body = record("T", 0, 7, b"x", {"UNIQ_KEY": key, "PGROUP": group})
    return codec.request(RequestCode.CHECK_TRANSACTION_STATE, header, body)


async def test_questions_are_answered_once_each(
    mq: Client, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transactions, "CHECKS_MAX", 2)
    broker.on_send = storing()
    asked: list[str] = []
    go_on = asyncio.Event()

    async def check(message: StoredMessage) -> Decision:
        asked.append(message.msg_id)
        await go_on.wait()
        if message.msg_id == "bad":
            raise ZeroDivisionError("the database is away")
        return Decision.COMMIT

    async with mq.transaction_producer("tx", check) as producer:
        await producer.send(Message("T", b"an ordinary one"))
        [connection] = broker.connections
        for key in ("good", "good", "bad", "too many"):
            connection.send_oneway(question(key))
        connection.send_oneway(question("x", group="strangers"))
        await eventually(lambda: "strangers" in caplog.text)
        assert asked == ["good", "bad"]
        assert "'too many'" in caplog.text or "too many" in caplog.text
        go_on.set()
        await eventually(lambda: len(broker.ends) == 2)
    answers = {end.msg_id: (end, request) for end, request in broker.ends}
    end, request = answers["good"]
    assert (end.from_transaction_check, end.commit_or_rollback, end.producer_group) == (True, Decision.COMMIT, "tx")
    assert (end.tran_state_table_offset, end.commit_log_offset, end.transaction_id) == (7, 9, "good")
    assert request.is_oneway
    end, request = answers["bad"]
    assert (end.commit_or_rollback, request.remark) == (0, "ZeroDivisionError: the database is away")


async def test_a_question_about_what_does_not_decompress_is_logged(
    mq: Client, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.on_send = storing()
    async with mq.transaction_producer("tx", never) as producer:
        await producer.send(Message("T", b"an ordinary one"))
        [connection] = broker.connections
        asked = question("ID")
        asked.body = asked.body[:36] + Compression.ZLIB.flags.to_bytes(4, "big") + asked.body[40:]
        connection.send_oneway(asked)
        await eventually(lambda: "nobody can judge: message ID (offset 7 of queue 0 of T): body can't" in caplog.text)


# Against our own broker


async def test_committed_messages_are_delivered() -> None:
    asked: list[StoredMessage] = []

    async def check(message: StoredMessage) -> Decision:
        asked.append(message)
        # On a slow machine the question may come before the decision that is on its way.
        return Decision.COMMIT if message.body in (b"unknown", b"commit") else Decision.ROLLBACK

    async def fail(receipt: SendReceipt) -> Decision:
        raise ZeroDivisionError

    async with embedded.serve(properties=QUICK) as served, Client(served.namesrv) as mq:
        await mq.create_topic("orders", 4)
        async with (
            mq.transaction_producer("tx", check) as producer,
            mq.consumer("g", "orders", from_where="first") as consumer,
        ):
            for decision in Decision:
                message = Message("orders", decision.name.lower().encode(), tag="t", keys=["k"])
                receipt = await producer.send_in_transaction(message, saying(decision), key="same")
                assert (receipt.decision, receipt.confirmed) == (decision, decision is not Decision.UNKNOWN)
            with pytest.raises(ZeroDivisionError):
                await producer.send_in_transaction(Message("orders", b"failed"), fail)
            bodies = []
            for _ in range(2):
                delivered = await asyncio.wait_for(anext(consumer), 10)
                await delivered.ack()
                bodies.append(delivered.body)
            assert bodies == [b"commit", b"unknown"]
            await eventually(lambda: {message.body for message in asked} >= {b"unknown", b"failed"})
            assert await consumer.fetch(timeout=0.3) == []
    assert {message.topic for message in asked} == {"orders"}
