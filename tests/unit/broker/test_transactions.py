"""Transactions over real sockets: half messages, decisions, checks, and what a kill leaves of them."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from rockmq.broker import transactions
from rockmq.broker.half_messages import finished_in
from rockmq.cli import store_transactions
from rockmq.protocol import codec, topics
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.admin import ResumeChecks
from rockmq.protocol.headers.transaction import CheckTransactionState
from rockmq.remoting.client import RemotingClient
from rockmq.store import layout
from rockmq.store.message_store import MessageStore
from tests.support.model import Record
from tests.unit.broker.conftest import slow_disk
from tests.unit.broker.test_messages import create_request, pull_request, send_request
from tests.unit.broker.transaction_bench import (
    COMMIT,
    GROUP,
    ROLLBACK,
    UNKNOWN,
    Bench,
    end_header,
    eventually,
    half_request,
    position_of,
)

NEVER = {"transactionOpBatchInterval": "3600000", "transactionCheckInterval": "3600000"}


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_transaction_ends_once(tmp_path: Path, flush: str) -> None:
    async with Bench(tmp_path / "store", flushDiskType=flush) as bench:
        committed = await bench.prepare(b"committed", queue_id=2, key="K0", TAGS="paid", mine="kept")
        rolled_back = await bench.prepare(b"rolled back", key="K1")
        assert (committed.queue_id, committed.queue_offset, committed.transaction_id) == (2, 0, "K0")
        assert (rolled_back.queue_id, rolled_back.queue_offset) == (0, 1)
        assert await bench.messages(queue_id=2) == []
        for _ in range(2):
            for half, decision in ((committed, COMMIT), (rolled_back, ROLLBACK)):
                assert (await bench.end(half, decision)).code == ResponseCode.SUCCESS
                refused = await bench.end(half, COMMIT + ROLLBACK - decision)
                assert refused.code == ResponseCode.ILLEGAL_OPERATION
                assert (refused.remark or "").endswith("committed" if decision == COMMIT else "rolled back")
                assert (await bench.end(half, UNKNOWN)).code == ResponseCode.SUCCESS
            [message] = await bench.messages(queue_id=2)
            assert await bench.messages() == []
            await bench.restart()
        assert (message.body, message.tag, message.msg_id, message.queue_offset) == (b"committed", "paid", "K0", 0)
        assert (message.sys_flag, message.flag, message.born_timestamp) == (COMMIT, 7, 1_700_000_000_000)
        assert message.prepared_transaction_offset == position_of(committed)
        assert message.properties == {
            "TAGS": "paid",
            "UNIQ_KEY": "K0",
            "PGROUP": GROUP,
            "__transactionId__": "K0",
            "mine": "kept",
            "CLUSTER": "DefaultCluster",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }


async def test_half_and_op_messages_are_apaches(tmp_path: Path) -> None:
    async with Bench(tmp_path / "store", transactionOpMsgMaxSize="8", transactionOpBatchInterval="3600000") as bench:
        halves = [await bench.prepare(b"%d" % number, key=f"K{number}", queue_id=1) for number in range(11)]
        [first, *_] = await bench.messages(topics.TRANSACTION_HALF)
        assert (first.body, first.queue_id, first.sys_flag, first.position) == (b"0", 0, 0, position_of(halves[0]))
        assert {name: first.properties[name] for name in ("REAL_TOPIC", "REAL_QID", "TRAN_MSG", "__transactionId__")} == {
            "REAL_TOPIC": "T",
            "REAL_QID": "1",
            "TRAN_MSG": "true",
            "__transactionId__": "K0",
        }
        for half in halves:
            end = codec.request(RequestCode.END_TRANSACTION, end_header(half, COMMIT))
            await bench.remote.send_oneway(bench.broker.address, end)
        assert len(await bench.messages(queue_id=1)) == 11
        ops = await bench.messages(topics.TRANSACTION_OP)
        assert [op.body for op in ops] == [b"0,1,2,3,", b"4,5,6,7,"], "told when there is enough of it"
        assert {(op.tag, op.queue_id, op.sys_flag) for op in ops} == {("d", 0, 0)}
        await bench.restart()
        assert [op.body for op in await bench.messages(topics.TRANSACTION_OP)][2:] == [b"8,9,10,"], (
            "and at the latest at the stop"
        )
        assert (await bench.progress(topics.TRANSACTION_HALF), await bench.progress(topics.TRANSACTION_OP)) == (11, 3)


@pytest.mark.parametrize(
    ("body", "tag", "offsets"),
    [
        (b"17", "d", [17]),
        (b"17,", "d", [17]),
        (b"17,3,2000,", "d", [17, 3, 2000]),
        (b"", "d", []),
        (b"17,x,-1,\xff,18", "d", [17, 18]),
        (b"17", "other", []),
    ],
)
def test_op_messages_of_all_versions_are_read(body: bytes, tag: str, offsets: list[int]) -> None:
    [found] = codec.decode_records(Record(topics.TRANSACTION_OP, 0, body, f"TAGS\x01{tag}\x02".encode()).encode())
    assert finished_in(found) == offsets


BAD_HALVES: dict[str, tuple[dict[str, str], str, int, str]] = {
    "no group": ({"PGROUP": ""}, "4", ResponseCode.MESSAGE_ILLEGAL, "PGROUP"),
    "an immunity of words": ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "long"}, "4", ResponseCode.MESSAGE_ILLEGAL, "'long'"),
    "an immunity below 0": ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "-1"}, "4", ResponseCode.MESSAGE_ILLEGAL, "IMMUNITY"),
    "a flag without the property": ({"TRAN_MSG": "false"}, "4", ResponseCode.MESSAGE_ILLEGAL, "TRAN_MSG not true"),
    "a flag of a commit": ({}, "8", ResponseCode.MESSAGE_ILLEGAL, "0x8"),
    "a flag of a rollback": ({}, "12", ResponseCode.MESSAGE_ILLEGAL, "0xc"),
    "properties with no room": ({"mine": "x" * 32_500}, "4", ResponseCode.MESSAGE_ILLEGAL, "32639"),
    "a level of words": ({"DELAY": "abc"}, "4", ResponseCode.MESSAGE_ILLEGAL, "'abc'"),
    "a time of words": ({"TIMER_DELAY_MS": "soon"}, "4", ResponseCode.MESSAGE_ILLEGAL, "'soon'"),
    "a time too far off": ({"TIMER_DELAY_SEC": "999999999"}, "4", ResponseCode.MESSAGE_ILLEGAL, "timerMaxDelaySec"),
    "no light queue": ({"INNER_MULTI_DISPATCH": "%LMQ%a,nolmq"}, "4", ResponseCode.MESSAGE_ILLEGAL, "'nolmq'"),
    "a light queue too long": ({"INNER_MULTI_DISPATCH": "%LMQ%" + "a" * 251}, "4", ResponseCode.MESSAGE_ILLEGAL, "'%LMQ%aa"),
    "a topic of the system": ({"topic": topics.TRANSACTION_HALF}, "4", ResponseCode.NO_PERMISSION, topics.TRANSACTION_HALF),
}


@pytest.mark.parametrize("case", BAD_HALVES)
async def test_what_cant_be_half_a_transaction_is_refused(tmp_path: Path, case: str) -> None:
    more, flag, code, words = BAD_HALVES[case]
    async with Bench(tmp_path / "store", enableLmq="true", enableMultiDispatch="true") as bench:
        request = half_request(b"x", **more)
        request.fields["f"] = flag
        response = await bench.invoke(request)
        assert (response.code, words in (response.remark or "")) == (code, True), response.remark
        assert await bench.messages(topics.TRANSACTION_HALF) == []


@pytest.mark.parametrize(
    ("setting", "code", "words"),
    [
        ({"rejectTransactionMessage": "true"}, ResponseCode.NO_PERMISSION, "rejectTransactionMessage"),
        ({"messageIndexEnable": "false"}, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "messageIndexEnable"),
    ],
)
async def test_a_broker_may_take_none(tmp_path: Path, setting: dict[str, str], code: int, words: str) -> None:
    async with Bench(tmp_path / "store", **setting) as bench:
        response = await bench.invoke(half_request(b"x"))
        assert (response.code, words in (response.remark or "")) == (code, True)


async def test_no_more_are_begun_than_may_be_pending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "PENDING_MAX", 2)
    async with Bench(tmp_path / "store") as bench:
        halves = [await bench.prepare(b"x") for _ in range(2)]
        refused = await bench.invoke(half_request(b"x"))
        assert (refused.code, "2 transactions are pending" in (refused.remark or "")) == (ResponseCode.SYSTEM_BUSY, True)
        await bench.end(halves[0], ROLLBACK)
        await bench.prepare(b"x")


BAD_ENDS: dict[str, tuple[dict[str, str | None], int, str]] = {
    "no group": ({"producerGroup": None}, ResponseCode.INVALID_PARAMETER, "`producerGroup`"),
    "no position": ({"commitLogOffset": None}, ResponseCode.INVALID_PARAMETER, "`commitLogOffset`"),
    "a position that is no number": ({"commitLogOffset": "x"}, ResponseCode.INVALID_PARAMETER, "$.commitLogOffset"),
    "no offset": ({"tranStateTableOffset": None}, ResponseCode.INVALID_PARAMETER, "`tranStateTableOffset`"),
    "an offset beyond 64 bits": ({"tranStateTableOffset": str(2**63)}, ResponseCode.INVALID_PARAMETER, "tranStateTable"),
    "no decision": ({"commitOrRollback": None}, ResponseCode.INVALID_PARAMETER, "`commitOrRollback`"),
    "no message id": ({"msgId": None}, ResponseCode.INVALID_PARAMETER, "`msgId`"),
    "another decision": ({"commitOrRollback": "4"}, ResponseCode.INVALID_PARAMETER, "commitOrRollback is 4"),
    "no boolean": ({"fromTransactionCheck": "perhaps"}, ResponseCode.INVALID_PARAMETER, "fromTransactionCheck"),
    "another group": ({"producerGroup": "other"}, ResponseCode.SYSTEM_ERROR, "The producer group wrong: other"),
    "another offset": ({"tranStateTableOffset": "1"}, ResponseCode.SYSTEM_ERROR, "offset wrong: 1, it is 0"),
    "a position where nothing begins": ({"commitLogOffset": "1"}, ResponseCode.SYSTEM_ERROR, "none at commitLogOffset 1"),
    "a position below 0": ({"commitLogOffset": "-1"}, ResponseCode.SYSTEM_ERROR, "none at commitLogOffset -1"),
    "a position behind the log": ({"commitLogOffset": str(2**62)}, ResponseCode.SYSTEM_ERROR, "there is none at"),
}


@pytest.mark.parametrize("case", BAD_ENDS)
async def test_a_bad_end_is_refused_and_changes_nothing(tmp_path: Path, case: str) -> None:
    changes, code, words = BAD_ENDS[case]
    async with Bench(tmp_path / "store") as bench:
        half = await bench.prepare(b"x")
        request = codec.request(RequestCode.END_TRANSACTION, end_header(half, COMMIT))
        request.fields = {key: value for key, value in (request.fields | changes).items() if value is not None}
        response = await bench.invoke(request)
        assert (response.code, words in (response.remark or "")) == (code, True), response.remark
        assert await bench.messages() == []
        assert (await bench.end(half, COMMIT)).code == ResponseCode.SUCCESS


async def test_only_half_messages_can_be_ended(tmp_path: Path) -> None:
    async with Bench(tmp_path / "store") as bench:
        half = await bench.prepare(b"x")
        plain = await bench.invoke(send_request(b"plain", PGROUP=GROUP))
        header = end_header(half, COMMIT)
        header.commit_log_offset = int(plain.fields["msgId"][-16:], 16)
        response = await bench.invoke(codec.request(RequestCode.END_TRANSACTION, header))
        assert (response.code, "there is none at" in (response.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        assert [message.body for message in await bench.messages()] == [b"plain"]


async def test_who_sets_the_time_of_the_check_decides_before_it(tmp_path: Path) -> None:
    """EndTransactionProcessor.rejectCommitOrRollback."""
    async with Bench(tmp_path / "store", **NEVER) as bench:
        halves = [await bench.prepare(b"%d" % number, CHECK_IMMUNITY_TIME_IN_SECONDS="60") for number in range(3)]
        free = await bench.prepare(b"free")
        bench.clock.seconds += 60
        assert (await bench.end(halves[0], COMMIT)).code == ResponseCode.SUCCESS
        bench.clock.seconds += 1
        for decision in (COMMIT, ROLLBACK):
            late = await bench.end(halves[1], decision)
            assert (late.code, "IMMUNITY" in (late.remark or "")) == (ResponseCode.ILLEGAL_OPERATION, True)
        assert (await bench.end(halves[0], COMMIT)).code == ResponseCode.SUCCESS, "it was decided in time"
        assert (await bench.end(free, COMMIT)).code == ResponseCode.SUCCESS
        asked = CheckTransactionState(tran_state_table_offset=2, commit_log_offset=position_of(halves[2]))
        assert (await bench.end(asked, COMMIT)).code == ResponseCode.SUCCESS
        assert sorted(message.body for message in await bench.messages()) == [b"0", b"2", b"free"]


async def test_a_deleted_topic_gets_nothing(tmp_path: Path) -> None:
    async with Bench(tmp_path / "store", **NEVER) as bench:
        half = await bench.prepare(b"x")
        await bench.invoke(Command(RequestCode.DELETE_TOPIC_IN_BROKER, 0, fields={"topic": "T"}))
        refused = await bench.end(half, COMMIT)
        assert (refused.code, "was deleted" in (refused.remark or "")) == (ResponseCode.TOPIC_NOT_EXIST, True)
        await bench.invoke(create_request())
        assert (await bench.end(half, COMMIT)).code == ResponseCode.SUCCESS
        assert [message.body for message in await bench.messages()] == [b"x"]


async def test_a_committed_message_goes_into_its_light_queues_only_then(tmp_path: Path) -> None:
    async with Bench(tmp_path / "store", enableLmq="true", enableMultiDispatch="true") as bench:
        half = await bench.prepare(b"x", INNER_MULTI_DISPATCH="%LMQ%a,%LMQ%b", INNER_MULTI_QUEUE_OFFSET="7,7")
        assert await bench.messages("%LMQ%a") == []
        await bench.end(half, COMMIT)
        for name in ("%LMQ%a", "%LMQ%b"):
            [message] = await bench.messages(name)
            assert (message.topic, message.body, message.properties["INNER_MULTI_QUEUE_OFFSET"]) == ("T", b"x", "0,0")


async def test_light_queues_that_cant_be_had_are_no_reason_to_refuse_the_commit(tmp_path: Path) -> None:
    """The one that there may be was made after the half message was taken, or the record is too long for light queues."""
    settings = {"enableLmq": "true", "enableMultiDispatch": "true", "maxLmqConsumeQueueNum": "1", "maxMessageSize": "1000"}
    async with Bench(tmp_path / "store", **settings, **NEVER) as bench:
        first, second = [await bench.prepare(name.encode(), INNER_MULTI_DISPATCH=f"%LMQ%{name}") for name in "ab"]
        long = await bench.prepare(bytes(1000), INNER_MULTI_DISPATCH="%LMQ%a")
        for half in (first, second, long):
            for _ in range(2):
                assert (await bench.end(half, COMMIT)).code == ResponseCode.SUCCESS
        assert [message.body for message in await bench.messages()] == [b"a", b"b", bytes(1000)]
        assert [message.body for message in await bench.messages("%LMQ%a")] == [b"a"]
        assert await bench.messages("%LMQ%b") == []


async def test_a_delay_that_was_taken_is_no_reason_to_refuse_the_commit(tmp_path: Path) -> None:
    async with Bench(tmp_path / "store", **NEVER) as bench:
        half = await bench.prepare(b"x", TIMER_DELAY_SEC="100")
        bench.settings["timerMaxDelaySec"] = "10"
        await bench.restart()
        assert (await bench.end(half, COMMIT)).code == ResponseCode.SUCCESS
        assert [message.body for message in await bench.messages()] == [b"x"]
        assert (await bench.end(half, COMMIT)).code == ResponseCode.SUCCESS
        assert len(await bench.messages()) == 1


async def test_hooks_see_a_message_when_it_is_committed(tmp_path: Path) -> None:
    """As that of delayed messages does: a half message itself goes nowhere else."""
    async with Bench(tmp_path / "store", **NEVER) as bench:
        half = await bench.prepare(b"x", DELAY="1")
        assert (len(await bench.messages(topics.TRANSACTION_HALF)), len(await bench.messages(topics.SCHEDULE))) == (1, 0)
        await bench.end(half, COMMIT)
        assert (len(await bench.messages()), len(await bench.messages(topics.SCHEDULE))) == (0, 1)
        bench.clock.seconds += 2
        async with asyncio.timeout(30):
            while not await bench.messages():
                await asyncio.sleep(0.01)


@pytest.mark.usefixtures("unswept")
async def test_a_waiting_pull_is_woken_by_the_commit(tmp_path: Path) -> None:
    async with Bench(tmp_path / "store", flushDiskType="SYNC_FLUSH") as bench:
        half = await bench.prepare(b"x")
        waiting = asyncio.create_task(bench.invoke(pull_request(suspend_ms=30_000)))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await bench.end(half, COMMIT)
        assert (await asyncio.wait_for(waiting, 15)).code == ResponseCode.SUCCESS


async def test_a_disk_that_is_too_slow_hides_no_outcome(tmp_path: Path) -> None:
    """As with Apache the end is a success, as it is stored; and a refusal stays one."""
    async with Bench(tmp_path / "store", flushDiskType="SYNC_FLUSH", syncFlushTimeout="1000") as bench:
        halves = [await bench.prepare(b"committed"), await bench.prepare(b"rolled back")]
        with slow_disk():
            for decisions, code in (
                ((COMMIT, ROLLBACK), ResponseCode.SUCCESS),
                ((ROLLBACK, COMMIT), ResponseCode.ILLEGAL_OPERATION),
            ):
                waiting = [asyncio.create_task(bench.end(*each)) for each in zip(halves, decisions, strict=True)]
                await asyncio.sleep(0.2)
                assert not any(each.done() for each in waiting)
                bench.clock.seconds += 6
                assert [(await each).code for each in waiting] == [code, code]


# Checks


async def test_an_undecided_producer_is_asked(tmp_path: Path) -> None:
    """Pitfall 9.18: a transaction that was asked about has several half messages, and any of them ends it."""
    async with Bench(tmp_path / "store") as bench:
        bench.answer = lambda header, message: COMMIT if message.body == b"commit" else ROLLBACK
        await bench.join()
        halves = [await bench.prepare(body, queue_id=1, key=body.decode(), TAGS="t") for body in (b"commit", b"roll back")]
        other = await bench.prepare(b"of another group", PGROUP="other")
        bench.clock.seconds += 6
        await asyncio.sleep(0.1)
        assert not bench.asked
        bench.clock.seconds += 1
        await eventually(lambda: len(bench.asked) == 2)
        header, message = bench.asked[0]
        assert (message.topic, message.queue_id, message.body, message.tag) == ("T", 1, b"commit", "t")
        assert (message.properties["PGROUP"], message.properties["TRANSACTION_CHECK_TIMES"]) == (GROUP, "1")
        assert (header.msg_id, header.transaction_id, header.bname) == ("commit", "commit", "broker-a")
        assert header.commit_log_offset > position_of(other), "it was written again"
        assert header.offset_msg_id == message.offset_id
        # The decision may be told of any of its half messages.
        for half, decision in zip(halves, (COMMIT, ROLLBACK), strict=True):
            assert (await bench.end(half, decision)).code == ResponseCode.SUCCESS
            assert (await bench.end(half, COMMIT + ROLLBACK - decision)).code == ResponseCode.ILLEGAL_OPERATION
        assert [message.body for message in await bench.messages(queue_id=1)] == [b"commit"]
        await asyncio.sleep(0.1)
        assert len(bench.asked) == 2, "nobody of the other group is there, and these two are decided"


async def test_producers_of_a_group_take_turns(tmp_path: Path) -> None:
    async with Bench(tmp_path / "store") as bench:
        bench.answer = lambda header, message: ROLLBACK
        counts = [0, 0]

        def counting(number: int) -> RemotingClient:
            def asked(header: CheckTransactionState, request: Command, connection: object) -> None:
                counts[number] += 1

            return RemotingClient({RequestCode.CHECK_TRANSACTION_STATE: asked})

        remotes = [counting(number) for number in range(2)]
        for remote in remotes:
            await bench.join(remote=remote)
        await bench.prepare(b"x")
        bench.clock.seconds += 7
        await eventually(lambda: min(counts) >= 2)
        assert abs(counts[0] - counts[1]) <= 1
        await remotes[0].close()
        await remotes[1].close()


async def test_who_cant_be_asked_isnt_asked_in_vain(tmp_path: Path) -> None:
    """Otherwise than Apache, which counts checks that nobody got, and gives up after 15 of them."""
    async with Bench(tmp_path / "store", transactionCheckMax="2") as bench:
        half = await bench.prepare(b"x")
        bench.clock.seconds += 3600
        await asyncio.sleep(0.2)
        assert (await bench.end(half, COMMIT)).code == ResponseCode.SUCCESS
        assert [message.body for message in await bench.messages()] == [b"x"]


async def test_a_transaction_is_given_up_after_so_many_checks(tmp_path: Path) -> None:
    async with Bench(tmp_path / "store", transactionCheckMax="3") as bench:
        await bench.join()
        half = await bench.prepare(b"x", key="K")
        bench.clock.seconds += 7
        async with asyncio.timeout(30):
            while not await bench.messages(topics.TRANSACTION_CHECK_MAX):
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert len(bench.asked) == 3
        assert [message.properties["TRANSACTION_CHECK_TIMES"] for _, message in bench.asked] == ["1", "2", "3"]
        [given_up] = await bench.messages(topics.TRANSACTION_CHECK_MAX)
        assert (given_up.body, given_up.properties["REAL_TOPIC"]) == (b"x", "T")
        for _ in range(2):
            refused = await bench.end(half, COMMIT)
            assert (refused.code, topics.TRANSACTION_CHECK_MAX in (refused.remark or "")) == (604, True)
            assert (await bench.end(half, ROLLBACK)).code == ResponseCode.SUCCESS
            await bench.kill()
        assert await bench.messages() == []
        assert len(await bench.messages(topics.TRANSACTION_CHECK_MAX)) == 1


async def test_an_operator_has_a_producer_asked_again(tmp_path: Path) -> None:
    """About what is pending, and about what was given up, by its half message or by what lies there."""

    async def resume(message_id: str) -> ResponseCode:
        answer = await bench.invoke(codec.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeChecks(msg_id=message_id)))
        return ResponseCode(answer.code)

    async def given_up() -> int:
        return len(await bench.messages(topics.TRANSACTION_CHECK_MAX))

    async with Bench(tmp_path / "store", transactionCheckMax="2") as bench:
        await bench.join()
        half = await bench.prepare(b"x", key="K")
        bench.clock.seconds += 7
        async with asyncio.timeout(60):
            for number, message_id in ((1, half.msg_id), (2, None), (3, None)):
                while await given_up() < number:
                    await asyncio.sleep(0.01)
                if message_id is None:
                    message_id = (await bench.messages(topics.TRANSACTION_CHECK_MAX))[0].offset_id
                if number < 3:
                    assert await resume(message_id) == ResponseCode.SUCCESS
        counts = [message.properties["TRANSACTION_CHECK_TIMES"] for _, message in bench.asked]
        assert counts == ["1", "2"] * 3
        bench.answer = lambda header, message: COMMIT
        assert await resume(half.msg_id) == ResponseCode.SUCCESS
        async with asyncio.timeout(60):
            while not await bench.messages():
                await asyncio.sleep(0.01)
        assert [message.body for message in await bench.messages()] == [b"x"]
        fresh = await bench.prepare(b"y")
        await bench.end(fresh, COMMIT)
        assert await resume(fresh.msg_id) == ResponseCode.SYSTEM_ERROR, "it was committed"
        assert await resume("00" * 8 + "7F" + "FF" * 7) == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_one_that_began_anew_is_delivered_once(tmp_path: Path, flush: str) -> None:
    """However often an operator asks, by its half message or by what was given up."""

    async def resume(message_id: str) -> tuple[int, str]:
        answer = await bench.invoke(codec.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeChecks(msg_id=message_id)))
        return answer.code, (answer.remark or "").rpartition(" ")[2]

    async with Bench(tmp_path / "store", transactionCheckMax="1", flushDiskType=flush) as bench:
        await bench.join()
        half = await bench.prepare(b"x", key="K")
        bench.clock.seconds += 7
        async with asyncio.timeout(30):
            while not (given_up := await bench.messages(topics.TRANSACTION_CHECK_MAX)):
                await asyncio.sleep(0.01)
        ids = half.msg_id, given_up[0].offset_id
        bench.settings["transactionCheckMax"] = "1000000"
        await bench.restart()
        assert sorted(await asyncio.gather(*map(resume, ids))) == [(0, ""), (1, "pending")]
        await bench.kill()
        assert [await resume(each) for each in ids] == [(1, "pending")] * 2
        bench.answer = lambda header, message: COMMIT
        await bench.join()
        async with asyncio.timeout(30):
            while not await bench.messages():
                await asyncio.sleep(0.01)
        for _ in range(2):
            assert [await resume(each) for each in ids] == [(1, "committed")] * 2
            await bench.kill()
        assert [message.body for message in await bench.messages()] == [b"x"]


async def test_one_that_is_too_old_is_given_up(tmp_path: Path) -> None:
    """TransactionalMessageServiceImpl.needSkip: older than the log keeps anything. Nor does its producer get asked again."""

    async def resume(message_id: str) -> bool:
        answer = await bench.invoke(codec.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeChecks(msg_id=message_id)))
        return answer.code == ResponseCode.SYSTEM_ERROR and "older than fileReservedTime" in (answer.remark or "")

    async with Bench(tmp_path / "store", fileReservedTime="1") as bench:
        half = await bench.prepare(b"x")
        bench.clock.seconds += 3601
        async with asyncio.timeout(30):
            while not (given_up := await bench.messages(topics.TRANSACTION_CHECK_MAX)):
                await asyncio.sleep(0.01)
        assert await resume(half.msg_id)
        assert await resume(given_up[0].offset_id)
    async with Bench(tmp_path / "other", fileReservedTime="1", **NEVER) as bench:
        half = await bench.prepare(b"x")
        bench.clock.seconds += 3601
        assert await resume(half.msg_id), "also while it is pending"


async def test_a_clock_that_is_ahead_puts_no_check_off(tmp_path: Path) -> None:
    async with Bench(tmp_path / "store") as bench:
        await bench.join()
        request = half_request(b"x")
        request.fields["g"] = str(bench.clock.now_ms() + 3_600_000)
        await bench.invoke(request)
        bench.clock.seconds += 7
        await eventually(lambda: bool(bench.asked))


async def test_an_immune_one_is_written_again_if_it_is_far_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "CARRY_BEHIND", 5)
    async with Bench(tmp_path / "store") as bench:
        await bench.join()
        immune = await bench.prepare(b"immune", CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
        for _ in range(4):
            await bench.end(await bench.prepare(b"x"), ROLLBACK)
        await asyncio.sleep(0.1)
        assert await bench.progress(topics.TRANSACTION_HALF) is None, "nothing before it is finished"
        await bench.end(await bench.prepare(b"x"), ROLLBACK)
        async with asyncio.timeout(30):
            while await bench.progress(topics.TRANSACTION_HALF) != 6:
                await asyncio.sleep(0.01)
        assert not bench.asked
        await bench.kill()
        assert (await bench.end(immune, COMMIT)).code == ResponseCode.SUCCESS
        [message] = await bench.messages()
        assert message.body == b"immune"
        assert "TRANSACTION_CHECK_TIMES" not in message.properties


# Kills


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_kill_between_commit_and_op_doubles_nothing(tmp_path: Path, flush: str) -> None:
    async with Bench(tmp_path / "store", flushDiskType=flush, transactionOpBatchInterval="3600000") as bench:
        halves = [await bench.prepare(b"%d" % number) for number in range(4)]
        assert (await bench.end(halves[0], COMMIT)).code == ResponseCode.SUCCESS
        oneway = codec.request(RequestCode.END_TRANSACTION, end_header(halves[1], COMMIT))
        await bench.remote.send_oneway(bench.broker.address, oneway)
        async with asyncio.timeout(30):
            while len(await bench.messages()) < 2:
                await asyncio.sleep(0.01)
        assert await bench.messages(topics.TRANSACTION_OP) == []
        await bench.kill()
        for half in halves[:2]:
            assert (await bench.end(half, ROLLBACK)).code == ResponseCode.ILLEGAL_OPERATION
            assert (await bench.end(half, COMMIT)).code == ResponseCode.SUCCESS
        bench.answer = lambda header, message: COMMIT
        await bench.join()
        bench.clock.seconds += 7
        await eventually(lambda: len(bench.asked) == 2)
        await asyncio.sleep(0.1)
        assert sorted(message.body for message in await bench.messages()) == [b"0", b"1", b"2", b"3"]


async def test_progress_is_never_ahead_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With async flush a commit is answered before it is forced; a power cut then must leave its half message pending."""
    async with Bench(tmp_path / "store", flushIntervalCommitLog="3600000") as bench:
        with monkeypatch.context() as patch:
            patch.setattr(MessageStore, "request_flush", lambda store: None)
            await bench.end(await bench.prepare(b"x"), COMMIT)
            async with asyncio.timeout(30):
                while not await bench.messages(topics.TRANSACTION_OP):
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert not await bench.progress(topics.TRANSACTION_HALF)
            await bench.restart()
            assert await bench.progress(topics.TRANSACTION_HALF) == 1, "and at the stop it is what is known"
        await bench.end(await bench.prepare(b"y"), COMMIT)
        async with asyncio.timeout(30):
            while await bench.progress(topics.TRANSACTION_HALF) != 2:
                await asyncio.sleep(0.01)


async def test_an_acknowledged_rollback_survives_a_kill(tmp_path: Path) -> None:
    async with Bench(tmp_path / "store", **NEVER) as bench:
        half = await bench.prepare(b"x")
        assert (await bench.end(half, ROLLBACK)).code == ResponseCode.SUCCESS
        await bench.kill()
        assert (await bench.end(half, COMMIT)).code == ResponseCode.ILLEGAL_OPERATION


async def test_who_is_refused_can_rely_on_it(tmp_path: Path) -> None:
    """Of a rollback that nobody waited for nothing is on disk at first."""
    async with Bench(tmp_path / "store", **NEVER) as bench:
        half = await bench.prepare(b"x")
        rollback = codec.request(RequestCode.END_TRANSACTION, end_header(half, ROLLBACK))
        await bench.remote.send_oneway(bench.broker.address, rollback)
        for _ in range(2):
            assert (await bench.end(half, COMMIT)).code == ResponseCode.ILLEGAL_OPERATION
            await bench.kill()
        assert await bench.messages() == []


async def test_what_was_decided_long_ago_is_found_in_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "RECENT_MAX", 1)
    async with Bench(tmp_path / "store") as bench:
        halves = [await bench.prepare(b"%d" % number) for number in range(5)]
        for number, half in enumerate(halves):
            await bench.end(half, (COMMIT, ROLLBACK)[number % 2])
        for number, half in enumerate(halves):
            again, opposite = (COMMIT, ROLLBACK)[number % 2], (ROLLBACK, COMMIT)[number % 2]
            assert (await bench.end(half, opposite)).code == ResponseCode.ILLEGAL_OPERATION
            assert (await bench.end(half, again)).code == ResponseCode.SUCCESS
        assert [message.body for message in await bench.messages()] == [b"0", b"2", b"4"]


async def test_two_transactions_may_have_one_unique_key(tmp_path: Path) -> None:
    """A Java program that sends the same Message object again: both were acknowledged, both are delivered."""
    async with Bench(tmp_path / "store", **NEVER) as bench:
        first = await bench.prepare(b"x", key="K")
        await bench.end(first, COMMIT)
        second = await bench.prepare(b"x", key="K")
        await bench.kill()
        assert (await bench.end(first, COMMIT)).code == ResponseCode.SUCCESS
        assert len(await bench.messages()) == 1
        assert (await bench.end(second, COMMIT)).code == ResponseCode.SUCCESS
        assert len(await bench.messages()) == 2


async def test_checks_go_on_where_they_were(tmp_path: Path) -> None:
    async with Bench(tmp_path / "store", transactionCheckMax="1000000") as bench:
        await bench.join()
        await bench.prepare(b"x")
        bench.clock.seconds += 7
        await eventually(lambda: len(bench.asked) >= 2)
        await bench.kill()
        counts = [int(message.properties["TRANSACTION_CHECK_TIMES"]) for _, message in bench.asked]
        await bench.join()
        await eventually(lambda: len(bench.asked) > len(counts))
        assert int(bench.asked[-1][1].properties["TRANSACTION_CHECK_TIMES"]) > counts[0]


# What a person can see


async def test_pending_transactions_are_told_with_their_age(tmp_path: Path) -> None:
    async def figures() -> tuple[str, str]:
        response = await bench.invoke(Command(RequestCode.GET_BROKER_RUNTIME_INFO, 0))
        table = msgspec.json.decode(response.body)["table"]
        return table["transactionsPending"], table["transactionsOldestAgeMs"]

    async with Bench(tmp_path / "store") as bench:
        assert await figures() == ("0", "0")
        await bench.prepare(b"x", key="K0")
        bench.clock.seconds += 2
        await bench.end(await bench.prepare(b"y", key="K1"), COMMIT)
        await bench.prepare(b"z", key="K2")
        bench.clock.seconds += 1
        assert await figures() == ("2", "3000")
    found = store_transactions.pending(layout.find(tmp_path / "store"), bench.clock.now_ms())
    assert [(each["transaction"], each["topic"], each["group"], each["ageSeconds"]) for each in found] == [
        ("K0", "T", GROUP, 3),
        ("K2", "T", GROUP, 1),
    ]
