"""Parked messages in the core: when their queue entries say they are due, and what delivering makes of them."""

import shutil
import struct
from pathlib import Path

import pytest

from rockmq._core import Store, StoreError, decode_records
from tests.support.model import Record
from tests.unit.core import stores

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVELS = [1000, 60_000]
PARKED = b"TAGS\x01t\x02DELAY\x01%d\x02REAL_TOPIC\x01T\x02REAL_QID\x013\x02"


def opened(path: Path, *, log_file_size: int = 1 << 20) -> Store:
    store = stores.opened(path, log_file_size=log_file_size, delay_levels=LEVELS)
    store.recover(0, True)
    return store


def park(store: Store, number: int, properties: bytes = PARKED, *, level: int = 1, body: bytes = b"") -> int:
    """Park a message at time `number`; its position."""
    text = properties % level if b"%d" in properties else properties
    record = Record(
        topic=SCHEDULE, queue_id=level - 1, body=body or b"%d" % number, properties=text, born_host=stores.PEER,
        store_host=stores.HOST, store_timestamp=number, born_timestamp=5, flag=6, reconsume_times=7,
    )  # fmt: skip
    return stores.append(store, record)[0]


def deliver(
    store: Store, offset: int, now: int, *, level: int = 1, limit: int = 1 << 40, count: int = 100, size: int = 1 << 20
) -> tuple[int, int, int | None, list[tuple[str, int]], list[tuple[int, str]]]:
    return store.deliver(level, offset, now=now, limit=limit, count_max=count, bytes_max=size)


def delivered(store: Store, topic: str = "T", queue_id: int = 3) -> list[bytes]:
    buffers = store.get(topic, queue_id, 0, 1000, 1 << 20, 1 << 40, None)[5]
    return [record[13] for record in decode_records(stores.joined(buffers))]


def entries(path: Path, topic: str, queue_id: int) -> list[tuple[int, ...]]:
    data = (path / "consumequeue" / topic / str(queue_id) / f"{0:020}").read_bytes()
    return [entry for entry in struct.iter_unpack(">qiq", data) if entry[1]]


NOW = 1_700_000_000_000


def test_entries_hold_when_they_are_due(tmp_path: Path) -> None:
    """Also those that recovery makes again; a level over the last one is that, and what names no level has its tags."""
    store = opened(tmp_path)
    park(store, NOW)
    park(store, NOW + 5, PARKED.replace(b"%d", b"9"))
    park(store, NOW + 6, b"DELAY\x01never\x02TAGS\x01t\x02")
    came = Record(
        topic="T", queue_id=3, body=b"x", properties=PARKED % 1, born_host=stores.PEER, store_host=stores.HOST,
        store_timestamp=NOW,
    )  # fmt: skip
    stores.append(store, came)
    store.close()
    written = entries(tmp_path, SCHEDULE, 0)
    assert [entry[2] for entry in written] == [NOW + 1000, NOW + 60_005, ord("t")]
    assert [entry[2] for entry in entries(tmp_path, "T", 3)] == [ord("t")]
    shutil.rmtree(tmp_path / "consumequeue")
    opened(tmp_path).close()
    assert entries(tmp_path, SCHEDULE, 0) == written


def test_what_is_due_goes_where_it_belongs(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for number in range(10):
        park(store, NOW + number)
    assert deliver(store, 0, NOW + 999) == (0, 0, NOW + 1000, [], [])
    store.watch("T", 3)
    following, end, due, arrivals, passed_over = deliver(store, 0, NOW + 1003)
    assert (following, due, arrivals, passed_over) == (4, NOW + 1004, [("T", 3)], [])
    assert end == store.max_position
    assert delivered(store) == [b"%d" % (NOW + number) for number in range(4)]
    (record,) = decode_records(stores.joined(store.get("T", 3, 3, 1, 1 << 20, 1 << 40, None)[5]))
    assert (record[2], record[3], record[4], record[7:10], record[11], record[14:]) == (
        3, 6, 3, (5, stores.PEER, NOW + 1003), 7, ("T", PARKED % 1),
    )  # fmt: skip
    assert deliver(store, following, NOW + 1 + 2000)[:3] == (10, store.max_position, None)
    assert deliver(store, 10, NOW + 9000)[:3] == (10, 0, None)
    assert deliver(store, 0, NOW, level=2)[:3] == (0, 0, None), "nothing was ever parked there"
    with pytest.raises(ValueError, match="no level 3"):
        deliver(store, 0, NOW, level=3)
    store.close()
    assert entries(tmp_path, "T", 3)[0][2] == ord("t")


def test_slices_and_what_is_not_durable_have_an_end(tmp_path: Path) -> None:
    store = opened(tmp_path)
    positions = [park(store, NOW + number, body=bytes(1000)) for number in range(300)]
    store.flush_queues(True)
    due = NOW + 10_000
    assert deliver(store, 0, due, limit=positions[5])[:3] == (5, store.max_position, None)
    assert deliver(store, 5, due, count=7)[0::2][:2] == (12, due)
    assert deliver(store, 12, due, size=2500)[0::2][:2] == (14, due)
    assert deliver(store, 14, due, size=1)[0::2][:2] == (15, due), "one at least"
    offset = 15
    while offset < 300:
        offset = deliver(store, offset, due)[0]
    assert len(delivered(store)) == 300


def test_a_clock_that_went_back_delays_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    park(store, NOW)
    assert deliver(store, 0, NOW - 1)[2:] == (None, [], []), "it was due in more than its level means"
    assert delivered(store) == [str(NOW).encode()]


def test_what_cannot_be_delivered_is_told_and_passed_over(tmp_path: Path) -> None:
    store = opened(tmp_path)
    bad = {
        "REAL_TOPIC": b"DELAY\x011\x02REAL_QID\x010\x02",
        "REAL_QID": b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01x\x02",
        "negative": b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01-1\x02",
        "directory": b"DELAY\x011\x02REAL_TOPIC\x01../T\x02REAL_QID\x010\x02",
        SCHEDULE: b"DELAY\x011\x02REAL_TOPIC\x01SCHEDULE_TOPIC_XXXX\x02REAL_QID\x010\x02",
        "RMQ_SYS_TRANS_HALF_TOPIC": b"DELAY\x011\x02REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010\x02",
    }
    positions = [park(store, NOW, properties) for properties in bad.values()]
    park(store, NOW, body=b"good")
    following, _, due, _, passed_over = deliver(store, 0, NOW + 1000)
    assert (following, due, delivered(store)) == (7, None, [b"good"])
    assert [position for position, _ in passed_over] == positions
    for (_, why), names in zip(passed_over, bad, strict=True):
        assert names in why


def test_a_store_that_takes_nothing_says_so(tmp_path: Path) -> None:
    store = opened(tmp_path)
    park(store, NOW)
    store.set_writable(False)
    with pytest.raises(StoreError, match="not writable"):
        deliver(store, 0, NOW + 1000)
    store.set_writable(True)
    assert deliver(store, 0, NOW + 1000)[0] == 1


def test_the_beginning_may_be_gone(tmp_path: Path) -> None:
    """What lay in log files that were deleted is nobody's any more."""
    store = opened(tmp_path, log_file_size=4096)
    for number in range(40):
        park(store, NOW + number, body=bytes(500))
    store.delete_files_below(3 * 4096)
    bounds = store.queue_bounds(SCHEDULE, 0)
    assert bounds is not None
    assert bounds[0] > 0
    assert deliver(store, 0, NOW + 5000)[0] == 40
    assert len(delivered(store)) == 40 - bounds[0]


def test_entries_of_other_brokers_without_a_time_are_judged_by_their_record(tmp_path: Path) -> None:
    """An extension address (enableConsumeQueueExt), or the tags of a queue made again without levels."""
    store = stores.opened(tmp_path)
    store.recover(0, True)
    park(store, NOW)
    store.close()
    assert entries(tmp_path, SCHEDULE, 0)[0][2] == ord("t")
    store = opened(tmp_path)
    assert deliver(store, 0, NOW + 999)[:3] == (0, 0, NOW + 1000)
    assert deliver(store, 0, NOW + 1000)[0] == 1
