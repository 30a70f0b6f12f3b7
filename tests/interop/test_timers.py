"""Messages for later: of Java clients, and in stores that go from Apache's broker to ours and back."""

import shutil
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockmq import _core
from tests.interop.test_store_moves import Moving
from tests.support import apache
from tests.support.cluster import wait_for_route
from tests.support.events import Event, events
from tests.support.process import free_port
from tests.unit.core.stores import opened

SLOTS = 1_209_600
UNIT = 52


class Timing(Moving):
    """A store under changing brokers, with messages for later."""

    def later(self, name: str, send: str, recall: str = "") -> dict[str, Event]:
        """Send key:property:value,…, take back key,…; the events of what was sent, by key."""
        where = f"namesrv={self.namesrv}", "topic=moving", f"send={send}", *([f"recall={recall}"] if recall else [])
        with apache.program(self.client, "Timers", *where, directory=self.directory, name=name) as timers:
            assert timers.wait(60) == 0, timers.tail()
            assert len(events(timers, "recalled")) == len(recall.split(",")) if recall else True
            assert not events(timers, "refused")
            return {event["key"]: event for event in events(timers, "sent")}

    def refused(self, send: str) -> str:
        where = f"namesrv={self.namesrv}", "topic=moving", f"send={send}"
        with apache.program(self.client, "Timers", *where, directory=self.directory, name="refused") as timers:
            assert timers.wait(60) == 0, timers.tail()
            (event,) = events(timers, "refused")
            return str(event["error"])


@pytest.fixture
def names(tmp_path: Path) -> Iterator[str]:
    with apache.name_server(tmp_path / "namesrv", free_port()) as started:
        yield started.address


def judge(received: list[Event], sent: dict[str, Event]) -> None:
    """Each once, none early."""
    assert sorted(event["keys"] for event in received) == sorted(sent)
    for event in received:
        came = int(event["properties"].get("TIMER_DEQUEUE_MS", 2**62))
        assert came >= sent[event["keys"]]["deliver"], event["keys"]


@pytest.mark.parametrize("client", apache.CLIENTS)
def test_messages_of_java_clients_come_when_they_are_to(client: str, tmp_path: Path, names: str) -> None:
    timing = Timing(client, "5.5.0", tmp_path, names, recallMessageEnable="true")
    write_configuration(timing)
    recall = "c,d" if client == "5.5.0" else ""
    with timing.ours():
        sent = timing.later(
            "timers",
            "now:TIMER_DELIVER_MS:-1,a:TIMER_DELAY_SEC:3,b:TIMER_DELAY_MS:3500,c:TIMER_DELIVER_MS:4000,d:TIMER_DELAY_SEC:4",
            recall,
        )
        expected = {key: event for key, event in sent.items() if not recall or key not in "cd"}
        received = timing.consume("followers", set(expected))
        time.sleep(max(0, max(event["deliver"] for event in sent.values()) / 1000 + 1.5 - time.time()))
        judge(timing.consume("late", set(expected)), expected)
        judge(received, expected)
        assert "timerMaxDelaySec" in timing.refused("x:TIMER_DELAY_SEC:300000")


def write_configuration(timing: Moving) -> None:
    """A broker.conf as Apache's would have it, for ours alone."""
    timing.configuration.parent.mkdir(parents=True, exist_ok=True)
    settings = {
        "listenPort": str(timing.port),
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "brokerName": apache.BROKER_NAME,
        "namesrvAddr": timing.namesrv,
        "storePathRootDir": str(timing.directory / "broker" / "store"),
        "mappedFileSizeCommitLog": str(64 << 20),
        "diskMaxUsedSpaceRatio": "95",
        **timing.properties,
    }
    timing.configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def test_pending_messages_move_to_our_broker_and_back(tmp_path: Path, names: str) -> None:
    timing = Timing("5.5.0", "5.5.0", tmp_path, names, recallMessageEnable="true")
    with timing.apaches(killed=True):
        wait_for_route(names, "TBW102")
        first = timing.later(
            "first", "a:TIMER_DELAY_SEC:8,b:TIMER_DELAY_SEC:8,c:TIMER_DELAY_SEC:24,x:TIMER_DELAY_SEC:24", "b"
        )
        time.sleep(2.5)  # Apache saves the wheel every second
    with timing.ours():
        wait_for_route(names, "moving")
        second = timing.later("second", "d:TIMER_DELAY_SEC:4,e:TIMER_DELAY_SEC:20,f:TIMER_DELAY_SEC:20", "f")
        received = timing.consume("ours", {"a", "d"})
        # On a slow machine the others may have come due as well.
        came = {event["keys"]: (first | second)[event["keys"]] for event in received}
        assert {"a", "d"} <= came.keys() <= set("acdex")
        judge(received, came)
    with timing.apaches(killed=True):
        wait_for_route(names, "moving")
        everything = {key: (first | second)[key] for key in "acdex"}
        judge(timing.consume("apaches", set(everything)), everything)


def test_the_wheel_is_apaches(tmp_path: Path, names: str) -> None:
    """Made anew from the queue, wheel and log are what Apache's broker wrote, but for when each message came to them."""
    timing = Timing("5.5.0", "5.5.0", tmp_path, names, recallMessageEnable="true", mappedFileSizeTimerLog="400")
    store = tmp_path / "broker" / "store"
    with timing.apaches(killed=True):
        wait_for_route(names, "TBW102")
        sends = [f"k{number}:TIMER_DELAY_SEC:{1000 + number % 4}" for number in range(18)]
        timing.later("first", ",".join([*sends, "far:TIMER_DELAY_SEC:250000"]), "k3")
        time.sleep(2.5)
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for name in ("timerwheel", "timerlog"):
        (theirs / name).parent.mkdir(exist_ok=True)
        shutil.move(store / name, theirs / name)
    core = opened(store, log_file_size=64 << 20, queue_file_size=6_000_000, max_message_size=4 << 20)
    core.recover(0, True)
    written = units(theirs / "timerlog")
    write_time = written[-1][3]
    timers = _core.Timers(
        core, str(ours / "timerwheel"), str(ours / "timerlog"), file_size=400, step_ms=1000, window=172_800
    )
    ours.mkdir()
    assert timers.recover(0, write_time) == (0, None, True)
    assert timers.enqueue(0, 100, core.max_position, read_time=write_time, write_time=write_time, delivered=(0, 0))[:3] == (
        20,
        20,
        0,
    )
    timers.flush()
    core.close()
    made = units(ours / "timerlog")
    # What waits for longer than the window goes into a slot that is told from when it came.
    (rolled,) = [number for number, unit in enumerate(written) if unit[2] & 2]
    assert [timeless(unit) for unit in made[:rolled]] == [timeless(unit) for unit in written[:rolled]]
    assert made[rolled][5:] == written[rolled][5:]
    assert [timeless(unit) for unit in made[rolled + 1 :]] == [timeless(unit) for unit in written[rolled + 1 :]]
    assert sorted(path.name for path in (ours / "timerlog").iterdir()) == sorted(
        path.name for path in (theirs / "timerlog").iterdir()
    )
    due = {unit[3] + unit[4] for number, unit in enumerate(written) if number != rolled}
    assert [slot(ours / "timerwheel", each) for each in sorted(due)] == [
        slot(theirs / "timerwheel", each) for each in sorted(due)
    ]


def units(directory: Path) -> list[tuple[int, ...]]:
    """(size, previous, magic, write time, delay, position, size, hash, reserved) of all units."""
    found = []
    for path in sorted(directory.iterdir()):
        data = path.read_bytes()
        for at in range(0, len(data) - UNIT - 15, UNIT):
            unit = struct.unpack_from(">iqiqiqiiq", data, at)
            if unit[0] == UNIT:
                found.append(unit)
    return found


def timeless(unit: tuple[int, ...]) -> tuple[int, ...]:
    """A unit with the time of its slot in place of when it was written and how long from then."""
    return (*unit[:3], unit[3] + unit[4], *unit[5:])


def slot(wheel: Path, time_ms: int) -> bytes:
    with wheel.open("rb") as file:
        file.seek(time_ms // 1000 % SLOTS * 32)
        return file.read(32)
