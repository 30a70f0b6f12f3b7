"""What is told of timers that wait, from a store that is closed."""

from pathlib import Path

from rockmq.protocol import properties, topics
from rockmq.store import layout
from rockmq.store.pending import pending
from rockmq.store.timers import TimerStore
from tests.support.clock import FakeClock
from tests.unit.store.stores import HOST, made


async def test_numbers_that_are_none_are_told_as_none(tmp_path: Path) -> None:
    """Who sends says none of them, but the log may be another broker's."""
    clock = FakeClock()
    due = clock.now_ms() + 60_000
    store, options = made(tmp_path, {"mappedFileSizeCommitLog": "1048576", "flushDiskType": "ASYNC_FLUSH"}, clock)
    await store.start()
    try:
        for queue_id in ("1", "x", "٣", "1" * 5000):
            said = {properties.TIMER_OUT_MS: str(due), properties.REAL_TOPIC: "T", properties.REAL_QID: queue_id}
            store.append(topics.TIMER, 0, b"x", properties.encode(said), born_host=HOST, born_timestamp=0)
        await store.force()
        timers = TimerStore(store, options.timers, options.retention.file_reserved_time, clock)
        await timers.open()
        while timers.behind:
            await timers.enqueue()
        await timers.close()
    finally:
        await store.close()
    found, more = pending(layout.find(tmp_path), options.timers, 10, clock)
    step = options.timers.timer_precision_ms
    assert [(each.deliver, each.topic, each.queue_id) for each in found] == [
        (due + step, "T", 1),
        *[(due + step, "T", None)] * 3,
    ]
    assert more == 0
