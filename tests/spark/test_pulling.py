"""A range comes complete and in order, whatever the server gives, and what is missing is told."""

import asyncio
import logging
import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq.base.errors import ConnectionLost, ResponseError
from rockmq.client.pull import PullResult, PullStatus
from rockmq.protocol.bodies.common import MessageQueue
from rockmq.spark import pulling
from rockmq.spark.pulling import Part, RangePuller
from rockmq.spark.ranges import DataLoss, Range

QUEUE = MessageQueue("orders", "broker-a", 2)


class Server:
    """A queue with offsets first … end - 1 that gives at most `given_max` a pull; a record is its offset as text."""

    def __init__(self, first: int, end: int, given_max: int, tagged: Iterable[int] | None = None) -> None:
        self.first = first
        self.end = end
        self.given_max = given_max
        self.tagged = None if tagged is None else set(tagged)
        self.asked: list[tuple[int, int]] = []
        self.failures: list[Exception] = []
        self.open = 0
        self.open_max = 0
        self.open_total = 0
        self.stalls: list[float] = []
        """Seconds for which the loop stands still in the next pulls, as it does while Spark takes no batch."""

    def answer(self, status: PullStatus, next_offset: int, data: bytes = b"") -> PullResult:
        return PullResult(status, next_offset, self.first, self.end, data, QUEUE.broker_name, 0)

    async def pull(self, offset: int, count: int) -> PullResult:
        self.asked.append((offset, count))
        self.open += 1
        self.open_max = max(self.open_max, self.open)
        self.open_total += self.open
        await asyncio.sleep(0)
        self.open -= 1
        if self.stalls:
            time.sleep(self.stalls.pop())  # noqa: ASYNC251
        if self.failures:
            raise self.failures.pop()
        if offset < self.first:
            return self.answer(PullStatus.OFFSET_MOVED, self.first)
        if offset > self.end:
            return self.answer(PullStatus.OFFSET_MOVED, self.end)
        if offset == self.end:
            return self.answer(PullStatus.NO_NEW, self.end)
        found: list[int] = []
        at = offset
        while at < self.end and len(found) < min(count, self.given_max):
            if self.tagged is None or at in self.tagged:
                found.append(at)
            at += 1
        status = PullStatus.FOUND if found else PullStatus.NO_MATCHED
        return self.answer(status, at, b"".join(b"%d " % each for each in found))


async def read(
    server: Server, start: int, end: int, *, batch: int = 16, strict: bool = True, timeout: float = 0.01
) -> list[Part]:
    puller = RangePuller(
        server.pull,
        Range(QUEUE, start, end),
        batch_size=batch,
        timeout=timeout,
        fail_on_data_loss=strict,
        filtered=server.tagged is not None,
    )
    return [part async for part in puller.parts()]


def offsets(parts: list[Part]) -> list[int]:
    return [int(text) for part in parts for text in part.records.split()]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulling, "RETRY_SECONDS", (0, 0))
    monkeypatch.setattr(pulling, "EMPTY_SECONDS", 0)


@given(start=st.integers(0, 50), size=st.integers(1, 400), given_max=st.integers(1, 40), batch=st.integers(1, 64))
def test_a_range_is_complete_and_in_order(start: int, size: int, given_max: int, batch: int) -> None:
    server = Server(0, start + size + 10, given_max)

    parts = asyncio.run(read(server, start, start + size, batch=batch))

    assert offsets(parts) == list(range(start, start + size))
    assert all(count <= batch for _, count in server.asked)


@given(size=st.integers(1, 200), given_max=st.integers(1, 40), tagged=st.sets(st.integers(0, 220)))
def test_a_filtered_range_holds_what_matches(size: int, given_max: int, tagged: set[int]) -> None:
    server = Server(0, 220, given_max, tagged)

    parts = asyncio.run(read(server, 0, size))

    # The server may look beyond the range; whoever decodes cuts that off.
    assert [each for each in offsets(parts) if each < size] == sorted(each for each in tagged if each < size)


async def test_several_requests_are_in_flight() -> None:
    server = Server(0, 1_000, 16)

    await read(server, 0, 1_000)

    assert server.open_max == pulling.IN_FLIGHT


async def test_strides_become_as_long_as_what_the_server_gives() -> None:
    server = Server(0, 100_000, 32)

    await read(server, 0, 100_000, batch=1_024)

    assert len(server.asked) < 100_000 / 32 * 1.1
    assert server.open_total > len(server.asked) * 3, "pulls of short answers are side by side, too"


async def test_strides_grow_where_the_server_gives_more() -> None:
    server = Server(0, 100_000, 1_024)

    await read(server, 0, 100_000, batch=1_024)

    assert len(server.asked) < 100_000 / 1_024 + 6 * pulling.IN_FLIGHT


@pytest.mark.parametrize("given_max", [2, 32, 64])
async def test_answers_that_wait_to_be_taken_are_bounded(given_max: int) -> None:
    server = Server(0, 5_000, given_max)
    puller = RangePuller(
        server.pull, Range(QUEUE, 0, 5_000), batch_size=1_024, timeout=1, fail_on_data_loss=True, filtered=False
    )

    taken = 0
    async for _ in puller.parts():
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(server.asked) - taken <= pulling.IN_FLIGHT
        taken += 1


async def test_a_lost_connection_is_tried_again() -> None:
    server = Server(0, 100, 16)
    server.failures = [ConnectionLost("gone"), ConnectionLost("gone")]

    assert offsets(await read(server, 0, 100)) == list(range(100))


async def test_a_broker_that_is_away_is_tried_until_the_timeout_is_over() -> None:
    back, gone = Server(0, 10, 16), Server(0, 10, 16)
    back.failures = [ConnectionLost("away") for _ in range(50)]
    gone.failures = [ConnectionLost("away") for _ in range(5_000)]

    assert offsets(await read(back, 0, 10, timeout=60)) == list(range(10))
    with pytest.raises(ConnectionLost, match="away"):
        await read(gone, 0, 10)


async def test_time_in_which_nobody_reads_is_no_failure() -> None:
    server = Server(0, 100, 16)
    server.failures = [ConnectionLost("gone")]
    server.stalls = [0.03]

    assert offsets(await read(server, 0, 100)) == list(range(100))


async def test_what_the_broker_shows_late_is_asked_for_although_nobody_read_meanwhile() -> None:
    server = Server(0, 10, 16)
    hidden = [server.answer(PullStatus.NO_NEW, 0)]
    server.stalls = [0.03]

    async def pull(offset: int, count: int) -> PullResult:
        answer = await server.pull(offset, count)
        return hidden.pop() if hidden else answer

    puller = RangePuller(pull, Range(QUEUE, 0, 10), batch_size=16, timeout=0.01, fail_on_data_loss=True, filtered=False)
    assert offsets([part async for part in puller.parts()]) == list(range(10))


async def test_a_refusal_is_not_tried_again() -> None:
    server = Server(0, 10, 16)
    server.failures = [ResponseError(16, "no permission", "broker")]

    with pytest.raises(ResponseError, match="no permission"):
        await read(server, 0, 10)
    assert len(server.asked) == 1


async def test_expired_offsets_are_an_error() -> None:
    with pytest.raises(DataLoss, match=r"orders/broker-a/2 \[20, 50\) is lost: the queue starts at 50 now"):
        await read(Server(50, 100, 16), 20, 100)


async def test_a_queue_that_ends_early_is_an_error() -> None:
    with pytest.raises(DataLoss, match=r"orders/broker-a/2 \[32, 48\) is lost: the queue ends at 20 now|shows nothing"):
        await read(Server(0, 20, 16), 0, 48)


async def test_expired_offsets_may_be_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(50_000, 50_100, 16)
    with caplog.at_level(logging.WARNING):
        parts = await read(server, 0, 50_100, strict=False)

    assert offsets(parts) == list(range(50_000, 50_100))
    assert "orders/broker-a/2 [0, 50000) is lost" in caplog.text
    assert len(server.asked) < 50, "a hole isn't asked for stride by stride"


async def test_a_reader_that_stops_early_leaves_no_request_behind() -> None:
    server = Server(0, 1_000, 16)
    puller = RangePuller(
        server.pull, Range(QUEUE, 0, 1_000), batch_size=16, timeout=1, fail_on_data_loss=True, filtered=False
    )
    parts = puller.parts()
    await anext(parts)

    await parts.aclose()  # type: ignore[attr-defined]

    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
