"""What the core's wheel of timers does that a broker's tests don't show."""

from pathlib import Path

from rockmq._core import Store, Timers
from tests.unit.core.stores import fresh

NOW = 1_700_000_000_000
STEP = 1000
DAY = 86_400_000


def timers(path: Path, store: Store, *, file_size: int = 52 * 3 + 16, step: int = STEP) -> Timers:
    return Timers(store, str(path / "timerwheel"), str(path / "timerlog"), file_size=file_size, step_ms=step, window=172_800)


def put(store: Store, due: int, number: int) -> int:
    """A message in the timer topic: its position."""
    text = f"TIMER_OUT_MS\x01{due}\x02REAL_TOPIC\x01T\x02UNIQ_KEY\x01{number}\x02".encode()
    born = bytes([10, 0, 0, 1, 0, 0, 0, 1])
    return store.append("rmq_sys_wheel_timer", 0, b"x", text, now=NOW, born_host=born, born_timestamp=NOW)[0]


def test_log_files_go_when_the_commit_log_has_lost_their_messages(tmp_path: Path) -> None:
    store = fresh(tmp_path)
    positions = [put(store, NOW + 5000, number) for number in range(10)]
    wheel = timers(tmp_path, store)
    assert wheel.recover(0, NOW) == (0, None, True)
    found = wheel.enqueue(0, 100, store.max_position, read_time=NOW, write_time=NOW, delivered=(0, 0))
    assert found == (10, 10, 0, [("T", 10)])
    assert wheel.delete_below(positions[2]) == []
    assert [Path(each).name for each in wheel.delete_below(positions[5])] == [f"{0:020}"]
    assert [Path(each).name for each in wheel.delete_below(store.max_position)] == [f"{172:020}", f"{344:020}"]
    assert [each.name for each in (tmp_path / "timerlog").iterdir()] == [f"{516:020}"], "the last file stays"
    store.close()


def test_a_log_file_stays_for_a_message_before_one_that_was_given_back(tmp_path: Path) -> None:
    store = fresh(tmp_path)
    wheel = timers(tmp_path, store)
    wheel.recover(0, NOW)

    def enqueue(*dues: int) -> list[int]:
        _, offset = store.queue_bounds("rmq_sys_wheel_timer", 0) or (0, 0)
        positions = [put(store, NOW + due, due) for due in dues]
        found = wheel.enqueue(offset, 100, store.max_position, read_time=NOW, write_time=NOW, delivered=(0, 0))
        assert found[1] == len(dues)
        return positions

    enqueue(0, 1, 50_000)
    first, second = enqueue(60_000, 70_000)
    wheel.open_slot(NOW)
    assert len(wheel.due(1, 1000)[0]) == 1
    wheel.give_back(0, NOW)
    enqueue(80_000)
    assert [Path(each).name for each in wheel.delete_below(first)] == [f"{0:020}"]
    assert wheel.delete_below(second) == []
    assert [Path(each).name for each in wheel.delete_below(store.max_position)] == [f"{172:020}"]
    store.close()


def test_a_message_waits_for_its_slot_until_the_wheel_has_turned(tmp_path: Path) -> None:
    """A slot serves one time in two weeks; nobody may be put into one that is still to be read."""
    store = fresh(tmp_path)
    put(store, NOW + 5000, 0)
    put(store, NOW + DAY, 1)
    wheel = timers(tmp_path, store)
    wheel.recover(0, NOW)
    behind = NOW + 7000 - 14 * DAY
    found = wheel.enqueue(0, 100, store.max_position, read_time=behind, write_time=NOW, delivered=(0, 0))
    assert found == (1, 1, 0, [("T", 1)])
    found = wheel.enqueue(1, 100, store.max_position, read_time=behind + DAY, write_time=NOW, delivered=(0, 0))
    assert found == (2, 1, 0, [("T", 1)])
    assert (wheel.count(NOW + 5000), wheel.count(NOW + DAY)) == (1, 1)
    store.close()


def test_messages_that_say_no_time_are_counted_and_passed_over(tmp_path: Path) -> None:
    store = fresh(tmp_path)
    born = bytes([10, 0, 0, 1, 0, 0, 0, 1])
    for text in (
        b"",
        b"TIMER_OUT_MS\x01soon\x02REAL_TOPIC\x01T\x02",
        b"TIMER_OUT_MS\x015\x02",
        b"TIMER_OUT_MS\x01-1\x02REAL_TOPIC\x01T\x02",
    ):
        store.append("rmq_sys_wheel_timer", 0, b"x", text, now=NOW, born_host=born, born_timestamp=NOW)
    put(store, NOW + 5000, 1)
    wheel = timers(tmp_path, store)
    wheel.recover(0, NOW)
    found = wheel.enqueue(0, 100, store.max_position, read_time=NOW, write_time=NOW, delivered=(0, 0))
    assert found == (5, 1, 4, [("T", 1)])
    store.close()


def test_who_came_late_and_waits_is_found_by_another_step(tmp_path: Path) -> None:
    """That it was due before what was read doesn't say that it was delivered, as it does of others."""
    store = fresh(tmp_path)
    put(store, NOW + 5000, 0)
    wheel = timers(tmp_path, store)
    wheel.recover(0, NOW)
    wheel.enqueue(0, 100, store.max_position, read_time=NOW, write_time=NOW, delivered=(0, 0))
    put(store, NOW + 6000, 1)
    put(store, NOW + 90_000, 2)
    # 0 is delivered.
    later = NOW + 60_000
    found = wheel.enqueue(1, 100, store.max_position, read_time=later, write_time=later, delivered=(0, 0))
    assert found == (3, 2, 0, [("T", 2)])
    flushed = wheel.flush()
    wheel = timers(tmp_path, store, step=100)
    assert wheel.recover(flushed, later)[2] is False
    assert wheel.late(later) == NOW + 6000
    wheel.remake()
    found = wheel.enqueue(0, 100, store.max_position, read_time=later, write_time=later, delivered=(3, later))
    assert found == (3, 2, 0, [("T", 2)])
    assert (wheel.count(later), wheel.count(NOW + 90_000)) == (1, 1)
    store.close()
