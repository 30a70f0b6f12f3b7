"""`rockmq store transactions`"""

import json as jsonlib
from collections.abc import Iterator
from pathlib import Path

import typer

from rockmq.base.clock import Clock, SystemClock
from rockmq.broker.half_messages import Half, finished_in
from rockmq.broker.offsets import ConsumerOffsets
from rockmq.cli.store_verify import layout_of
from rockmq.protocol import topics
from rockmq.store import dump
from rockmq.store.dump import Wanted
from rockmq.store.layout import Layout

COLUMNS = {"ageSeconds": 12, "checks": 8, "topic": 24, "group": 24, "queueOffset": 13, "position": 16, "transaction": 34}


def run(directory: Path, config: Path | None, *, json: bool, clock: Clock | None = None) -> int:
    """Print what is pending in a store."""
    lines = pending(layout_of(directory, config), (clock or SystemClock()).now_ms())
    if not json:
        typer.echo("".join(f"{name:<{width}}" for name, width in COLUMNS.items()).rstrip())
    for line in lines:
        if json:
            typer.echo(jsonlib.dumps(line, ensure_ascii=False))
        else:
            typer.echo("".join(f"{line[name]!s:<{max(width, 1 + len(str(line[name])))}}" for name, width in COLUMNS.items()))
    return 0


def pending(layout: Layout, now_ms: int) -> list[dict[str, object]]:
    """The transactions that aren't finished, the oldest first."""
    # With light queues it is another document; what lies below either is finished.
    tables = [ConsumerOffsets(layout.root / "config", SystemClock(), light=light) for light in (False, True)]

    def left(topic: str) -> Iterator[tuple[int, int]]:
        start = max(each.query(topics.TRANSACTION_GROUP, topic, 0) or 0 for each in tables)
        for entry in dump.queue_entries(layout, Wanted(topic=topic, queue_id=0, start=start)):
            yield int(str(entry["queueOffset"])), int(str(entry["position"]))

    done: set[int] = set()
    for record in dump.records_at(layout, (position for _, position in left(topics.TRANSACTION_OP))):
        done.update(finished_in(record))
    positions = (position for offset, position in left(topics.TRANSACTION_HALF) if offset not in done)
    halves = filter(None, map(Half.of, dump.records_at(layout, positions)))
    by_root = {half.root: half for half in halves}  # of one that was written again, the last
    return [
        {
            "transaction": half.unique_key,
            "topic": half.real_topic,
            "group": half.group,
            "ageSeconds": max(now_ms - half.since, 0) // 1000,
            "checks": half.checks,
            "queueOffset": half.offset,
            "position": half.position,
        }
        for half in sorted(by_root.values(), key=lambda half: half.since)
    ]
