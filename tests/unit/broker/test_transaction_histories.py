"""Random histories of transactions, with checks, kills and stops in between: each ends in one way, as it was said."""

import asyncio
import tempfile
from collections import Counter
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rockmq.protocol import codec, topics
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.send import SendResponse
from rockmq.protocol.headers.transaction import CheckTransactionState
from rockmq.protocol.message import StoredMessage
from tests.unit.broker.transaction_bench import COMMIT, ROLLBACK, UNKNOWN, Bench, end_header, eventually

DECISIONS = st.sampled_from([COMMIT, ROLLBACK])
WHICH = st.integers(0, 7)
STEPS = st.one_of(
    st.tuples(st.just("prepare"), st.just(0), st.just(0)),
    st.tuples(st.just("end"), WHICH, DECISIONS),
    st.tuples(st.just("end by the question"), WHICH, DECISIONS),
    st.tuples(st.just("end without an answer"), WHICH, DECISIONS),
    st.tuples(st.just("check"), st.just(0), st.sampled_from([COMMIT, ROLLBACK, UNKNOWN])),
    st.tuples(st.just("kill"), st.just(0), st.just(0)),
    st.tuples(st.just("stop"), st.just(0), st.just(0)),
)


class History:
    """What producers know: of each transaction the half message, the last question, and how it may have been decided."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.halves: list[SendResponse] = []
        self.questions: dict[int, CheckTransactionState] = {}
        self.possible: list[set[int]] = []
        """Decisions it may have, with UNKNOWN for none; one that was acknowledged is the only one."""
        self.decides = UNKNOWN
        self.faults: list[str] = []
        bench.answer = self.answer

    def answer(self, header: CheckTransactionState, message: StoredMessage) -> int | None:
        number = int(message.body)
        self.questions[number] = header
        if UNKNOWN not in self.possible[number]:
            self.faults.append(f"{number} was decided, and is asked about")
        if self.decides == UNKNOWN:
            return None
        self.possible[number].add(self.decides)
        return self.decides

    async def step(self, what: str, which: int, decision: int) -> None:
        bench = self.bench
        if what == "prepare":
            self.halves.append(await bench.prepare(b"%d" % len(self.halves), queue_id=len(self.halves) % 2))
            self.possible.append({UNKNOWN})
        elif what == "kill":
            await bench.kill()
            await bench.join()
        elif what == "stop":
            await bench.restart()
            await bench.join()
        elif what == "check":
            await self.check(decision)
        elif self.halves:
            number = which % len(self.halves)
            half = self.questions.get(number, self.halves[number]) if "question" in what else self.halves[number]
            if "without" in what:
                end = codec.request(RequestCode.END_TRANSACTION, end_header(half, decision))
                await bench.remote.send_oneway(bench.broker.address, end)
                if UNKNOWN in self.possible[number]:
                    self.possible[number].add(decision)
            else:
                self.learn(number, decision, (await bench.end(half, decision)).code)

    def learn(self, number: int, decision: int, code: int) -> None:
        possible = self.possible[number]
        opposite = COMMIT + ROLLBACK - decision
        if code == ResponseCode.SUCCESS:
            assert possible & {decision, UNKNOWN}, f"{number} was decided otherwise before"
            self.possible[number] = {decision}
        else:
            assert (code, opposite in possible) == (ResponseCode.ILLEGAL_OPERATION, True)
            self.possible[number] = {opposite}

    async def check(self, decision: int) -> None:
        """Have all asked about that are undecided for certain."""
        self.decides = decision
        self.bench.asked.clear()
        self.bench.clock.seconds += 7
        pending = {number for number, possible in enumerate(self.possible) if possible == {UNKNOWN}}
        await eventually(lambda: pending <= {int(message.body) for _, message in self.bench.asked})
        self.decides = UNKNOWN

    async def judge(self) -> None:
        """Make an end of all, and read everything from the beginning."""
        for number, half in enumerate(self.halves):
            self.learn(number, COMMIT, (await self.bench.end(half, COMMIT)).code)
        for _ in range(2):
            found = [await self.bench.messages(queue_id=queue_id) for queue_id in range(2)]
            read = Counter(int(message.body) for queue in found for message in queue)
            assert read == {number: 1 for number, possible in enumerate(self.possible) if possible == {COMMIT}}
            assert await self.bench.messages(topics.TRANSACTION_CHECK_MAX) == []
            await self.bench.kill()
        assert not self.faults


async def run(steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory) / "store", transactionCheckMax="1000000", transactionOpBatchInterval="300")
        async with bench:
            await bench.join()
            history = History(bench)
            for step in steps:
                await history.step(*step)
            await history.judge()


@given(st.lists(STEPS, max_size=20))
@settings(max_examples=15)
def test_each_transaction_ends_in_one_way(steps: list[tuple[str, int, int]]) -> None:
    asyncio.run(run(steps))


def test_ends_and_kills_in_each_order() -> None:
    """The shortest histories in which something could be lost or doubled."""
    for between in ("kill", "stop", "check"):
        for how in ("end", "end by the question", "end without an answer"):
            asyncio.run(
                run(
                    [
                        ("prepare", 0, 0),
                        ("prepare", 0, 0),
                        ("check", 0, UNKNOWN),
                        (how, 1, ROLLBACK),
                        (how, 0, COMMIT),
                        (between, 0, UNKNOWN),
                        ("check", 0, COMMIT),
                        ("kill", 0, 0),
                        ("end", 0, COMMIT),
                        ("end by the question", 1, ROLLBACK),
                    ]
                )
            )
