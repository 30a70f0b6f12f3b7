"""What the log of a server looks like: one event in a line, its fields behind it, a flood of our own cut short.

An event is a sentence; what it is about are fields, given as `extra`: `log.warning("…", extra={"peer": …, "topic": …})`.
In text a line is time, level, where from, sentence, and `field=value` with quotes where a blank asks for them; only the
trace of an error follows in lines of its own, which are indented. As JSON all of it is one line. What others can put into a
message can't begin a new line.

The standard library does the rest: `Text`, `Json` are formatters, `Flood` is a filter of a handler.
"""

import json
import logging
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from rockmq.base.clock import Clock

ALL = logging.getLogger("rockmq")
"""The parent of all our loggers."""
FLOOD_FIRST = 10
"""Events of one place in the source that an interval shows."""
FLOOD_SECONDS = 10.0

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
_PLAIN = re.compile(r"[^\s\"=\\]+")
_ESCAPED = {
    **{number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160))},
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}


def fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """What an event was given as `extra`, and isn't None."""
    return ((name, value) for name, value in vars(record).items() if name not in _OWN and value is not None)


class Text(logging.Formatter):
    """For people: local time, and a trace that can be read."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        sentence = record.getMessage().translate(_ESCAPED)
        parts = [f"{stamp}.{record.msecs:03.0f} {record.levelname} {record.name}: {sentence}"]
        parts += [f"{name}={_quoted(str(value))}" for name, value in fields(record)]
        line = " ".join(parts)
        trace = _trace(self, record)
        return line + "".join(f"\n  {each}" for each in trace.splitlines())


class Json(logging.Formatter):
    """For programs: UTC, and everything in one line."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **dict(fields(record)),
        }
        trace = _trace(self, record)
        if trace:
            event["trace"] = trace
        return json.dumps(event, default=str)


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(parts)


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value.translate(_ESCAPED)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').translate(_ESCAPED)
    return f'"{escaped}"'


class Flood(logging.Filter):
    """Shows the first `FLOOD_FIRST` events that one place in our source, or asyncio's, logs within `FLOOD_SECONDS`, and
    while more come one in each such interval, whose field `left_out` says how many before it weren't shown. There are as
    many places as there are lines that log, so this needs no other bound."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        # Reentrant: garbage may be collected while it is held, and log as it goes, as futures do.
        self._lock = threading.RLock()
        self._seen: dict[tuple[str, int], _Seen] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] not in _CUT or _LEFT_OUT in vars(record):  # `tell` gave it that
            return True
        now = self._clock.monotonic()
        with self._lock:
            place = record.pathname, record.lineno
            seen = self._seen.get(place)
            if seen is None:
                seen = self._seen[place] = _Seen(now)
            # Kept until the lock isn't: what goes with it, the locals of its trace, may log, or wait for who logs.
            _dropped = seen.last
            if now - seen.since >= FLOOD_SECONDS:
                seen.begin(now, record)
            return seen.shows(record)

    def tell(self, *, everything: bool = False) -> None:
        """Show the last event of each flood that has ended, or, before the process does, of `everything`."""
        before = self._clock.monotonic() - (0 if everything else FLOOD_SECONDS)
        with self._lock:
            last = [seen.ended() for seen in list(self._seen.values()) if seen.last is not None and seen.since <= before]
        for record in last:
            logging.getLogger(record.name).handle(record)


_LEFT_OUT = "left_out"
_CUT = (ALL.name, "asyncio")
"""Whose events can be too many, with all below; what an operator's hooks log isn't ours to leave out."""


class _Seen:
    """What one place has logged in an interval."""

    def __init__(self, now: float) -> None:
        self.since = now
        self.last: logging.LogRecord | None = None
        """The newest one that wasn't shown."""
        self._left_out = 0
        self._room = FLOOD_FIRST

    def begin(self, now: float, record: logging.LogRecord) -> None:
        """A new interval, with this event."""
        self.since = now
        self._room = 1 if self._left_out else FLOOD_FIRST
        if self._left_out:
            setattr(record, _LEFT_OUT, self._left_out)
        self._left_out, self.last = 0, None

    def shows(self, record: logging.LogRecord) -> bool:
        if self._room:
            self._room -= 1
            return True
        self._left_out += 1
        self.last = record
        return False

    def ended(self) -> logging.LogRecord:
        """The last event, which says how many before it weren't shown."""
        record, self.last = self.last, None
        assert record is not None
        setattr(record, _LEFT_OUT, self._left_out - 1 or None)
        self._left_out = 0
        return record


def set_level(level: str | None) -> None:
    """Log what is at least so grave (a name of `logging`) from now on; None: what the process was started with."""
    before = ALL.getEffectiveLevel()
    ALL.setLevel(level or logging.NOTSET)
    now = ALL.getEffectiveLevel()
    ALL.setLevel(min(before, now))  # the notice shows whether INFO did or does
    ALL.info("the log begins with %s now", logging.getLevelName(now))
    ALL.setLevel(level or logging.NOTSET)


def louder() -> None:
    """Log one level more from now on; after DEBUG, again what the process was started with."""
    now = ALL.getEffectiveLevel()
    set_level("INFO" if now > logging.INFO else "DEBUG" if now > logging.DEBUG else None)
