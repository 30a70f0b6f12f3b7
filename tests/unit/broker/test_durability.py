from typing import Any

import pytest

from rockmq.broker.durability import HELD_BYTES_MAX, SWEEP_SECONDS, TIMEOUT_REMARK, DurabilityGate
from rockmq.protocol import codec
from rockmq.protocol.codes import ResponseCode
from tests.support.clock import FakeClock


class Recorder:
    """Stands for a connection where only what is written to it matters."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.held_bytes = 0
        self.holding = 0

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def hold_reading(self) -> None:
        self.holding += 1

    def release_reading(self) -> None:
        self.holding -= 1


class Bench:
    def __init__(self, *, immediate: bool) -> None:
        self.clock = FakeClock()
        self.flushes = 0
        self.woken: list[tuple[str, int]] = []
        self.released: list[int] = []
        self.held_by_core: list[tuple[Recorder, bytes]] = []
        self.gate = DurabilityGate(
            self.clock,
            immediate=immediate,
            timeout_seconds=5,
            request_flush=self._flush,
            wake=lambda topic, queue_id: self.woken.append((topic, queue_id)),
            release=self.released.append,
            overdue=self._overdue,
        )
        self.connection = Recorder()

    def _flush(self) -> None:
        self.flushes += 1

    def _overdue(self, sweeps: int) -> list[tuple[Any, bytes]]:
        assert sweeps == 5 / SWEEP_SECONDS
        overdue, self.held_by_core = self.held_by_core, []
        return list(overdue)

    def append(self, replies: bytes, position: int) -> None:
        self.gate.appended(self.connection, replies, position, [("T", position)])  # type: ignore[arg-type]


@pytest.fixture
def bench() -> Bench:
    return Bench(immediate=False)


def test_async_flush_passes_at_once() -> None:
    bench = Bench(immediate=True)
    bench.append(b"reply", 100)
    assert bench.connection.written == [b"reply"]
    assert bench.woken == [("T", 100)]
    assert bench.flushes == 0


def test_replies_wait_for_their_position_and_keep_their_order(bench: Bench) -> None:
    for position in (100, 200, 300):
        bench.append(b"%d" % position, position)
    assert bench.flushes >= 3, "each asks for a force"
    bench.gate.advance(99)
    assert bench.connection.written == []
    bench.gate.advance(200)
    assert bench.connection.written == [b"100", b"200"]
    assert bench.woken == [("T", 100), ("T", 200)], "consumers don't see what isn't durable"
    bench.gate.advance(300)
    assert bench.connection.written[-1] == b"300"
    assert bench.released == [99, 200, 300], "the core hears of it too"


def test_what_is_durable_already_doesn_t_wait(bench: Bench) -> None:
    bench.gate.advance(500)
    bench.append(b"reply", 400)
    assert bench.connection.written == [b"reply"]


def test_too_slow_a_flush_is_told_with_all_fields(bench: Bench) -> None:
    """Row 2.4, pitfall 9.12: what couldn't be forced in time is stored, and its answer has the ids."""
    frame = codec.Command(0, 9, codec.RESPONSE_FLAG, None, {"msgId": "ID", "queueId": "3", "queueOffset": "8"}).encode()
    bench.append(frame + frame, 100)
    bench.clock.seconds += 4
    bench.gate.sweep()
    assert bench.connection.written == []
    bench.clock.seconds += 2
    bench.gate.sweep()
    expected = codec.recode(
        frame + frame, ResponseCode.FLUSH_DISK_TIMEOUT, "the message is stored, but was not flushed to disk in time"
    )
    assert bench.connection.written == [expected]
    assert b'"queueOffset":"8"' in expected
    assert bench.woken == []
    bench.gate.advance(100)
    assert len(bench.connection.written) == 1
    assert bench.woken == [("T", 100)], "late, but durable"
    bench.held_by_core = [(bench.connection, frame)]
    bench.gate.sweep()
    expected = codec.recode(frame, ResponseCode.FLUSH_DISK_TIMEOUT, TIMEOUT_REMARK)
    assert bench.connection.written[1:] == [expected]


def test_many_who_wait_for_a_queue_are_woken_once(bench: Bench) -> None:
    for position in (100, 100, 200, 150, 200):
        bench.gate.wake_when_durable("T", 0, position)
    assert bench.flushes == 2
    bench.gate.advance(100)
    assert bench.woken == [("T", 0)]
    bench.gate.advance(200)
    assert bench.woken == [("T", 0)] * 2
    bench.gate.wake_when_durable("T", 0, 200)
    assert bench.woken == [("T", 0)] * 3, "what is durable already wakes at once"


def test_connection_with_too_much_held_is_not_read_from(bench: Bench) -> None:
    half = bytes(HELD_BYTES_MAX // 2 + 1)
    bench.append(half, 100)
    assert bench.connection.holding == 0
    bench.append(half, 200)
    bench.append(half, 300)
    assert bench.connection.holding == 1
    bench.gate.advance(100)
    assert bench.connection.holding == 1
    bench.gate.advance(300)
    assert bench.connection.holding == 0
    assert bench.connection.held_bytes == 0
