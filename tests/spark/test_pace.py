"""Rows come at most as fast as a write says, by a clock that the test owns."""

import asyncio
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq.base.clock import Timer
from rockmq.spark.pace import PART_SECONDS, Pace


class Time:
    """Passes only while somebody waits for it."""

    def __init__(self) -> None:
        self.now = 0.0

    def now_ms(self) -> int:
        return int(self.now * 1_000)

    def monotonic(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        self.now += seconds
        callback()
        return self

    def cancel(self) -> None:
        """What was waited for has come."""


def rows(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(range(count))})


@given(rate=st.floats(0.5, 100_000), batches=st.lists(st.integers(1, 3_000), min_size=1, max_size=5))
def test_rows_go_evenly_and_no_faster(rate: float, batches: list[int]) -> None:
    async def send() -> list[tuple[float, int]]:
        time = Time()
        pace = Pace(time, rate)
        sent = []
        for count in batches:
            parts = list(pace.parts(rows(count)))
            assert pa.Table.from_batches(parts).column("n").to_pylist() == list(range(count))
            for part in parts:
                assert part.num_rows <= max(1, rate * PART_SECONDS)
                await pace.turn(part.num_rows)
                sent.append((time.now, part.num_rows))
        return sent

    sent = asyncio.run(send())
    before = 0
    for at, count in sent:
        assert at == pytest.approx(before / rate)
        before += count


async def test_time_that_was_lost_is_not_made_up_for() -> None:
    time = Time()
    pace = Pace(time, 10)
    await pace.turn(1)
    time.now += 60

    await pace.turn(1)
    assert time.now == 60
    await pace.turn(1)
    assert time.now == pytest.approx(60.1)


def test_without_a_rate_a_batch_goes_as_it_is() -> None:
    batch = rows(10_000)

    assert [part.num_rows for part in Pace(Time(), 0).parts(batch)] == [10_000]
