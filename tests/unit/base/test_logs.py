"""Lines of the log: what they look like, and what becomes of too many."""

import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from rockmq.base import logs
from rockmq.base.logs import FLOOD_FIRST, FLOOD_SECONDS, Flood, Json, Text
from tests.support.clock import FakeClock


def record(
    message: str,
    *arguments: object,
    level: int = logging.WARNING,
    line: int = 7,
    logger: str = "rockmq.remoting.server",
    **fields: object,
) -> logging.LogRecord:
    made = logging.LogRecord(logger, level, "server.py", line, message, arguments, None)
    made.__dict__.update(fields)
    return made


def test_text_is_a_sentence_and_its_fields() -> None:
    line = Text().format(record("closing a connection: %s", "it is idle", peer="10.0.0.1:5", group="two words", none=None))
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} WARNING rockmq\.remoting\.server: closing a connection: it is idle "
        r'peer=10\.0\.0\.1:5 group="two words"',
        line,
    )


def test_json_is_an_object() -> None:
    made = record("%d are open", 3, peer="10.0.0.1:5", opaque=17, topic=None)
    made.created = 1_700_000_000.25
    assert json.loads(Json().format(made)) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "rockmq.remoting.server",
        "message": "3 are open",
        "peer": "10.0.0.1:5",
        "opaque": 17,
    }


@pytest.mark.parametrize("form", [Text(), Json()])
def test_nobody_can_begin_a_line(form: logging.Formatter) -> None:
    forged = "x\n2026-01-01 00:00:00.000 CRITICAL rockmq: all is lost\r\x1b[2J\x85"
    line = form.format(record("the topic %s", forged, topic=forged, group='say "a=b" \\'))
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line


def test_a_trace_is_indented_or_in_the_object() -> None:
    try:
        raise ValueError("one\ntwo")
    except ValueError:
        made = record("it failed", peer="1.2.3.4:5")
        made.exc_info = sys.exc_info()
    first, *rest = Text().format(made).split("\n")
    assert first.endswith(": it failed peer=1.2.3.4:5")
    assert rest[-1] == "  two"
    assert all(line.startswith("  ") for line in rest)
    (line,) = Json().format(made).splitlines()
    assert json.loads(line)["trace"].endswith("ValueError: one\ntwo")


class Shown(logging.Handler):
    """What gets through a filter: (text, how many before it were left out)."""

    def __init__(self, flood: Flood) -> None:
        super().__init__()
        self.addFilter(flood)
        self.lines: list[tuple[str, int | None]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.getMessage(), vars(record).get("left_out")))


@pytest.fixture
def shown() -> Iterator[tuple[Shown, FakeClock, Flood]]:
    clock = FakeClock()
    flood = Flood(clock)
    handler = Shown(flood)
    logger = logging.getLogger("rockmq.remoting.server")
    logger.addHandler(handler)
    yield handler, clock, flood
    logger.removeHandler(handler)


def test_a_flood_shows_its_first_events_and_then_one_of_each_interval(shown: tuple[Shown, FakeClock, Flood]) -> None:
    handler, clock, flood = shown
    for number in range(100):
        handler.handle(record("bad %d", number))
    assert handler.lines == [(f"bad {number}", None) for number in range(FLOOD_FIRST)]
    handler.handle(record("something else", line=8))
    assert handler.lines.pop() == ("something else", None)

    clock.pass_ms(1000 * FLOOD_SECONDS)
    for number in range(100, 200):
        handler.handle(record("bad %d", number))
    assert handler.lines[FLOOD_FIRST:] == [("bad 100", 90)]

    clock.pass_ms(1000 * FLOOD_SECONDS / 2)
    flood.tell()
    assert len(handler.lines) == FLOOD_FIRST + 1
    clock.pass_ms(1000 * FLOOD_SECONDS / 2)
    flood.tell()
    flood.tell()
    assert handler.lines[FLOOD_FIRST + 1 :] == [("bad 199", 98)]

    clock.pass_ms(1000 * FLOOD_SECONDS)
    for number in range(200, 220):  # a new one
        handler.handle(record("bad %d", number))
    assert [text for text, _ in handler.lines[FLOOD_FIRST + 2 :]] == [f"bad {number}" for number in range(200, 210)]
    flood.tell(everything=True)
    assert handler.lines[-1] == ("bad 219", 9)


@pytest.mark.parametrize(
    ("logger", "count"), [("rockmq", FLOOD_FIRST), ("asyncio", FLOOD_FIRST), ("shop.audit", 100), ("rockmqs.audit", 100)]
)
def test_only_our_own_floods_are_cut(shown: tuple[Shown, FakeClock, Flood], logger: str, count: int) -> None:
    handler, _, _ = shown
    for number in range(100):
        handler.handle(record("sent %d", number, logger=logger))
    assert len(handler.lines) == count


def ends(work: Callable[[], object]) -> bool:
    """Whether it does, in a thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(5)
    return not thread.is_alive()


def test_what_goes_with_a_record_may_log(shown: tuple[Shown, FakeClock, Flood]) -> None:
    handler, _, _ = shown
    ended = []

    class Local:
        """Of a trace: as a future that nobody asked for its exception, and one that waits for a thread that logs."""

        def __del__(self) -> None:
            ended.append(ends(lambda: handler.handle(record("it goes", line=8))))

    def flood() -> None:
        for number in range(FLOOD_FIRST + 2):
            handler.handle(record("bad %d", number, local=Local()))

    assert ends(flood)
    assert len(ended) == FLOOD_FIRST + 1
    assert all(ended)


def test_garbage_may_log_while_an_event_is_counted(shown: tuple[Shown, FakeClock, Flood]) -> None:
    handler, _, _ = shown

    class Place(str):
        def __hash__(self) -> int:
            handler.handle(record("garbage", line=8))
            return super().__hash__()

    assert ends(lambda: handler.handle(record("bad", pathname=Place("server.py"))))
    assert ("bad", None) in handler.lines


@pytest.fixture
def levels() -> Iterator[None]:
    before, root = logs.ALL.level, logging.root.level
    logs.ALL.setLevel(logging.NOTSET)
    logging.root.setLevel(logging.WARNING)
    yield
    logs.ALL.setLevel(before)
    logging.root.setLevel(root)


@pytest.mark.usefixtures("levels")
def test_the_level_changes_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    server = logging.getLogger("rockmq.remoting.server")
    seen = []
    for change in (logs.louder, logs.louder, logs.louder, lambda: logs.set_level("ERROR"), lambda: logs.set_level(None)):
        change()
        seen.append(logging.getLevelName(server.getEffectiveLevel()))
    assert seen == ["INFO", "DEBUG", "WARNING", "ERROR", "WARNING"]
    # Where INFO shows neither before nor after, this doesn't.
    assert caplog.messages == [f"the log begins with {name} now" for name in seen[:3]]
    assert {each.levelname for each in caplog.records} == {"INFO"}
