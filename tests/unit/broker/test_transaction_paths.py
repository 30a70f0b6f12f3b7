"""Ordinary half messages and decisions are the core's, others Python's: who takes which, and that both do the same."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockmq.broker.half_messages import finished_in
from rockmq.broker.handlers.send import SendHandler
from rockmq.broker.handlers.transactions import TransactionHandler
from rockmq.protocol import codec, topics
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import decode
from rockmq.protocol.headers.send import SendResponse
from tests.support.metrics import scrape
from tests.unit.broker.test_messages import create_request, pull_request
from tests.unit.broker.transaction_bench import COMMIT, GROUP, ROLLBACK, Bench, end_header, half_request, position_of

if TYPE_CHECKING:
    from rockmq import _core

NEVER = {"transactionOpBatchInterval": "3600000", "transactionCheckInterval": "3600000"}


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The codes of the sends and decisions that Python gets."""
    codes: list[int] = []
    sends, ends = SendHandler.__call__, TransactionHandler.end

    def send(self: SendHandler, header: object, request: Command, connection: object) -> object:
        codes.append(request.code)
        return sends(self, header, request, connection)  # type: ignore[arg-type]

    def end(self: TransactionHandler, header: object, request: Command, connection: object) -> object:
        codes.append(request.code)
        return ends(self, header, request, connection)  # type: ignore[arg-type]

    monkeypatch.setattr(SendHandler, "__call__", send)
    monkeypatch.setattr(TransactionHandler, "end", end)
    return codes


def by_python(request: Command) -> Command:
    """The same request in words that only Python takes."""
    if request.code == RequestCode.END_TRANSACTION:
        request.fields["lo"] = "1"
    else:
        request.fields["d"] = "4.0"
    return request


def end_request(half: SendResponse, decision: int, *, oneway: bool = False) -> Command:
    return codec.request(RequestCode.END_TRANSACTION, end_header(half, decision), oneway=oneway)


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_the_ordinary_case_is_the_cores(tmp_path: Path, handled: list[int], flush: str) -> None:
    async with Bench(tmp_path / "store", flushDiskType=flush, **NEVER) as bench:
        await bench.prepare(b"the topic isn't there yet")
        handled.clear()
        halves = [await bench.prepare(b"%d" % number) for number in range(4)]
        await bench.remote.send_oneway(bench.broker.address, end_request(halves[0], COMMIT))
        await bench.remote.send_oneway(bench.broker.address, end_request(halves[1], ROLLBACK))
        assert (await bench.end(halves[2], COMMIT)).code == ResponseCode.SUCCESS
        assert (await bench.end(halves[3], ROLLBACK)).code == ResponseCode.SUCCESS
        assert handled == []
        assert [message.body for message in await bench.messages()] == [b"0", b"2"]
        assert (await bench.end(halves[0], COMMIT)).code == ResponseCode.SUCCESS, "said again"
        assert (await bench.end(halves[2], ROLLBACK)).code == ResponseCode.ILLEGAL_OPERATION
        begun = await bench.invoke(by_python(half_request(b"x")))
        await bench.invoke(by_python(end_request(decode(SendResponse, begun.fields), COMMIT)))
        assert handled == [37, 37, 310, 37]
        assert [message.body for message in await bench.messages()] == [b"0", b"2", b"x"]


async def test_nothing_is_counted_of_a_topic_that_was_deleted(tmp_path: Path) -> None:
    async with Bench(tmp_path / "store", metricsPromExporterPort="0", **NEVER) as bench:
        halves = [await bench.prepare(b"%d" % number) for number in range(2)]
        await bench.invoke(Command(RequestCode.DELETE_TOPIC_IN_BROKER, 0, fields={"topic": "T"}))
        assert (await bench.end(halves[0], ROLLBACK)).code == ResponseCode.SUCCESS
        assert (await bench.invoke(by_python(end_request(halves[1], ROLLBACK)))).code == ResponseCode.SUCCESS
        assert "rocketmq_rollback_messages_total" not in await scrape(bench.broker.metrics_address)


async def test_both_count_a_half_where_it_is_stored(tmp_path: Path, handled: list[int]) -> None:
    async with Bench(tmp_path / "store", metricsPromExporterPort="0", **NEVER) as bench:
        await bench.invoke(create_request())
        for request in (half_request(b"x"), by_python(half_request(b"x"))):
            assert (await bench.invoke(request)).code == ResponseCode.SUCCESS
        assert handled == [310]
        counted = (await scrape(bench.broker.metrics_address))["rocketmq_messages_in_total"].samples
        assert {dict(labels)["topic"]: count for (_, labels), count in counted.items()} == {topics.TRANSACTION_HALF: 2}


TEXT = st.text(st.characters(exclude_characters="\x00\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=12)
NAMES = st.one_of(TEXT, st.sampled_from(["TAGS", "KEYS", "WAIT", "CHECK_IMMUNITY_TIME_IN_SECONDS", "REAL_TOPIC", "DELAY"]))
SENDS = st.fixed_dictionaries(
    {
        "said": st.dictionaries(NAMES, TEXT, max_size=6),
        "queue_id": st.sampled_from(["0", "3"]),
        "sys_flag": st.sampled_from(["0", "4", "12"]),
        "decision": st.sampled_from([COMMIT, ROLLBACK]),
        "body": st.binary(min_size=1, max_size=99),
    }
)


@given(st.lists(SENDS, min_size=1, max_size=12))
@settings(max_examples=20)
def test_both_make_the_same_of_a_transaction(sends: list[dict[str, Any]]) -> None:
    """Each is sent and ended twice; records may differ in where they are, and what depends on that."""

    async def run() -> None:
        with tempfile.TemporaryDirectory() as directory:
            async with Bench(Path(directory) / "store", enabledAppendPropCRC="true", **NEVER) as bench:
                await bench.invoke(create_request())
                for number, send in enumerate(sends):
                    answers = [await begun_and_ended(bench, number, each, send) for each in (False, True)]
                    assert answers[0] == answers[1]
                for topic, queue_id in ((topics.TRANSACTION_HALF, 0), ("T", 0), ("T", 3)):
                    found = [placeless(record) for record in await records(bench, topic, queue_id)]
                    assert found[::2] == found[1::2]

    asyncio.run(run())


async def begun_and_ended(bench: Bench, number: int, python: bool, send: dict[str, Any]) -> object:
    """What is answered."""
    vary: Callable[[Command], Command] = by_python if python else lambda request: request
    said = send["said"] | {"PGROUP": GROUP, "UNIQ_KEY": f"K{number}", "TRAN_MSG": "TRUE" if number % 2 else "true"}
    request = half_request(send["body"])
    text = "".join(f"{name}\x01{value}\x02" for name, value in said.items())
    request.fields |= {"e": send["queue_id"], "f": send["sys_flag"], "g": str(bench.clock.now_ms() - 7), "i": text}
    begun = await bench.invoke(vary(request))
    if begun.code != ResponseCode.SUCCESS:
        return begun.code, begun.remark
    half = decode(SendResponse, begun.fields)
    ended = await bench.invoke(vary(end_request(half, send["decision"])))
    return begun.fields.keys(), half.queue_id, half.transaction_id, ended.code, ended.remark, ended.fields


async def records(bench: Bench, topic: str, queue_id: int) -> "list[_core.Record]":
    found: list[_core.Record] = []
    while True:
        request = pull_request(len(found), queue_id=queue_id)
        request.fields["topic"] = topic
        response = await bench.invoke(request)
        if response.code != ResponseCode.SUCCESS:
            return found
        found += codec.decode_records(response.body)


def placeless(record: "_core.Record") -> tuple[object, ...]:
    """A record without queue offset, position, that of its half message, and the CRC over these."""
    crc = len("__CRC32#") + 12
    return (*record[:4], *record[6:12], *record[13:15], record[15][:-crc])


async def test_a_kill_between_any_two_records(tmp_path: Path) -> None:
    """Whatever has come to be on disk of a decision holds, and nothing is stored twice."""
    decisions = [(COMMIT, False), (ROLLBACK, True), (ROLLBACK, False), (COMMIT, True), (ROLLBACK, True), (COMMIT, True)]
    more = {"transactionOpMsgMaxSize": "6"} | NEVER
    async with Bench(tmp_path / "store", flushDiskType="SYNC_FLUSH", **more) as bench:
        await bench.invoke(create_request())
        halves = [await bench.prepare(b"%d" % number) for number in range(len(decisions) + 1)]
        for half, (decision, oneway) in zip(halves, decisions, strict=False):
            if oneway:
                await bench.remote.send_oneway(bench.broker.address, end_request(half, decision, oneway=True))
            else:
                await bench.end(half, decision)
        await bench.prepare(b"behind")
        image = shutil.copytree(bench.root, tmp_path / "image", ignore=shutil.ignore_patterns("lock"))
        ends: dict[int, int] = {}
        """Where in the log it stands that a transaction has ended, by the offset of its half message."""
        for record in await records(bench, topics.TRANSACTION_OP, 0):
            for offset in finished_in(record):
                ends.setdefault(offset, record[5] + record[0])
        positions = {position_of(half): half.queue_offset for half in halves}
        ends |= {positions[record[12]]: record[5] + record[0] for record in await records(bench, "T", 0)}
        assert sorted(ends) == list(range(len(decisions)))
    [log] = sorted((image / "commitlog").iterdir())[:1]
    cuts = sorted({0, *positions, *ends.values()})
    for cut in cuts:
        root = tmp_path / f"cut-{cut}"
        shutil.copytree(image, root)
        with (root / "commitlog" / log.name).open("r+b") as file:
            file.seek(cut)
            file.write(bytes(log.stat().st_size - cut))
        async with Bench(root, flushDiskType="SYNC_FLUSH", **more) as bench:
            expected = set()
            for number, half in enumerate(halves):
                if position_of(half) >= cut:
                    continue
                is_rolled_back = number < len(decisions) and decisions[number][0] == ROLLBACK and ends[number] <= cut
                code = ResponseCode.ILLEGAL_OPERATION if is_rolled_back else ResponseCode.SUCCESS
                assert (await bench.end(half, COMMIT)).code == code, (cut, number)
                expected |= set() if is_rolled_back else {b"%d" % number}
            found = [message.body for message in await bench.messages()]
            assert (len(found), set(found)) == (len(expected), expected), cut
