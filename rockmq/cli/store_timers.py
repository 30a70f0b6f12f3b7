"""`rockmq store timers`"""

import json as jsonlib
from pathlib import Path

import typer

from rockmq.base.clock import SystemClock
from rockmq.cli import times
from rockmq.config import properties
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import load
from rockmq.store import layout as layouts
from rockmq.store.pending import Pending, pending


def run(directory: Path, config: Path | None, *, limit: int, json: bool) -> int:
    """Print what waits for its time."""
    options = load(BrokerOptions, properties.read_file(config) if config else {})
    layout = layouts.find(directory, options.store if config else None)
    found, more = pending(layout, options.timers, limit, SystemClock())
    for each in found:
        typer.echo(jsonlib.dumps(_line(each), ensure_ascii=False) if json else "  ".join(map(_text, _line(each).values())))
    if more and not json:
        typer.echo(f"and {more} more")
    return 0


def _line(each: Pending) -> dict[str, object]:
    return {
        "deliver": times.local(each.deliver),
        "topic": each.topic,
        "queueId": each.queue_id,
        "msgId": each.msg_id,
        "recalls": each.recalls,
        "keys": each.keys,
        "position": each.position,
    }


def _text(value: object) -> str:
    text = "-" if value is None else str(value)
    return "".join(character if character.isprintable() else "." for character in text)
