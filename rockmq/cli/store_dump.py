"""`rockmq store dump`"""

import base64
import json as jsonlib
from collections.abc import Iterator
from pathlib import Path

import typer

from rockmq.cli import times
from rockmq.cli.store_verify import layout_of
from rockmq.protocol import properties
from rockmq.store import dump
from rockmq.store.dump import Dumped, Wanted


def run(directory: Path, config: Path | None, wanted: Wanted, *, what: dump.What, body_max: int, json: bool) -> int:
    """Print records, queue entries or index headers."""
    layout = layout_of(directory, config)
    if what is dump.What.RECORDS:
        lines: Iterator[dict[str, object]] = (_record(each, body_max) for each in dump.records(layout, wanted))
    elif what is dump.What.QUEUES:
        lines = dump.queue_entries(layout, wanted)
    else:
        lines = dump.index_headers(layout)
    columns: list[str] = []
    for line in lines:
        if json:
            typer.echo(jsonlib.dumps(line, ensure_ascii=False))
            continue
        if columns != list(line):  # units of batch queues have more of them
            columns = list(line)
            typer.echo("  ".join(f"{name:>{_width(name)}}" for name in columns))
        typer.echo("  ".join(f"{_text(value):>{_width(name)}}" for name, value in line.items()))
    return 0


def _record(record: Dumped, body_max: int) -> dict[str, object]:
    (size, _, queue_id, flag, offset, position, sys_flag, born, _, stored, _, retries, _, body, topic, text) = record
    pairs = properties.decode(text)
    line: dict[str, object] = {
        "position": position,
        "size": size,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "stored": times.local(stored),
        "bornTimestamp": born,
        "flag": flag,
        "sysFlag": sys_flag,
        "reconsumeTimes": retries,
        "keys": pairs.get("KEYS"),
        "tags": pairs.get("TAGS"),
        "properties": pairs,
        "bodySize": len(body),
    }
    cut = body[:body_max]
    try:
        line["body"] = cut.decode()
    except UnicodeDecodeError:
        line["bodyBase64"] = base64.b64encode(cut).decode()
    return line


def _width(name: str) -> int:
    return {"position": 14, "topic": 20, "stored": 29, "properties": 10, "file": 28}.get(name, len(name))


def _text(value: object) -> str:
    if value is None:
        return "-"
    text = jsonlib.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
    return "".join(each if each.isprintable() else "." for each in text)
