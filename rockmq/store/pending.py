"""The messages of a store that wait for their time; reads, and writes nothing.

A running broker has them in memory, and saves the wheel every `timerFlushIntervalMs`: what is read here may be so much
older. What it hasn't put into the wheel yet is only in the queue of timers.
"""

from collections.abc import Iterator
from typing import NamedTuple

from rockmq import _core
from rockmq.base.clock import Clock
from rockmq.base.errors import ConfigError
from rockmq.config.broker import Timers
from rockmq.protocol import properties
from rockmq.store.layout import Layout, positions
from rockmq.store.timers import WEEK_STEPS, Checkpoint

ROLL, DELETE = 2, 4


class Pending(NamedTuple):
    """`deliver` (ms) is when the message is delivered; `topic` and `queue_id` are where; `recalls` is the name of the
    message that this one takes back, `msg_id` else its own. A message that the log has lost has no topic."""

    deliver: int
    topic: str | None
    queue_id: int | None
    msg_id: str | None
    recalls: str | None
    keys: str | None
    position: int
    rolls: bool


def pending(layout: Layout, options: Timers, limit: int, clock: Clock) -> tuple[Iterator[Pending], int]:
    """The first `limit` messages, by time, and how many more there are. Raises ConfigError when files can't be read."""
    root, step = layout.root, options.timer_precision_ms
    directory = root / "timerlog"
    sizes = [size for _, size in positions(directory)] if directory.is_dir() else []
    checkpoint = Checkpoint.load(root / "config" / "timercheck")
    from_time = checkpoint.read_time if checkpoint else clock.now_ms() - WEEK_STEPS * step
    try:
        units, more = _core.pending_timers(
            str(root / "timerwheel"),
            str(directory),
            sizes[0] if sizes else options.mapped_file_size_timer_log,
            step,
            from_time,
            limit,
        )
    except (_core.StoreError, ValueError) as error:
        raise ConfigError(f"the timers of {root} can't be read: {error}") from None
    return _records(layout, step, units), more


def _records(layout: Layout, step: int, units: list[tuple[int, int, int, int, int]]) -> Iterator[Pending]:
    reader = _core.LogReader(list(map(str, layout.log_directories)), file_size=layout.log_file_size)
    for time, position, size, _, flags in units:
        rolls = bool(flags & ROLL)
        if position < layout.log_min:
            yield Pending(time + step, None, None, None, None, None, position, rolls)
            continue
        _, _, found, _, _ = reader.read(position, position + 1, bytes_max=size)
        said = properties.decode(found[0][15]) if found and found[0][5] == position else {}
        out = properties.number(said.get(properties.TIMER_OUT_MS)) if rolls else None
        yield Pending(
            (time if out is None else out) + step,
            said.get(properties.REAL_TOPIC),
            properties.number(said.get(properties.REAL_QID)),
            said.get(properties.UNIQ_KEY),
            said.get(properties.TIMER_DEL_UNIQKEY),
            said.get(properties.KEYS),
            position,
            rolls,
        )
