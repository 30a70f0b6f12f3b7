"""`rockmq store verify`"""

import json as jsonlib
import sys
import time
from dataclasses import asdict
from pathlib import Path

import typer

from rockmq.config import properties
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import load
from rockmq.store import layout as layouts
from rockmq.store.layout import Layout
from rockmq.store.verify import Report, verify

SHOWN_MAX = 100
PROGRESS_AFTER_SECONDS = 2.0
PROGRESS_EVERY_SECONDS = 0.5
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class Progress:
    """A line on standard error that says how far a long work is; nothing for one that is soon done."""

    def __init__(self) -> None:
        self._started: float | None = None
        self._next = 0.0
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._started is None:
            self._started, self._next = now, now + PROGRESS_AFTER_SECONDS
        if now < self._next:
            return
        self._next = now + PROGRESS_EVERY_SECONDS
        self._shown = True
        rate = done / (now - self._started)
        left = (total - done) / rate if rate else 0
        line = f"{size(done)} of {size(total)}, {size(rate)}/s, {left:.0f} s left"
        typer.echo(f"\r{line:60}" if sys.stderr.isatty() else line, err=True, nl=not sys.stderr.isatty())

    def close(self) -> None:
        if self._shown and sys.stderr.isatty():
            typer.echo(f"\r{'':60}\r", err=True, nl=False)


def size(count: float) -> str:
    unit = 0
    while count >= 1024 and unit < len(UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.1f} {UNITS[unit]}" if unit else f"{count:.0f} B"


def layout_of(directory: Path, config: Path | None) -> Layout:
    options = None if config is None else load(BrokerOptions, properties.read_file(config)).store
    return layouts.find(directory, options)


def run(directory: Path, config: Path | None, *, json: bool) -> int:
    """Check a store. 1 when anything is wrong."""
    layout = layout_of(directory, config)
    progress = Progress()
    report = verify(layout, progress)
    progress.close()
    if json:
        typer.echo(jsonlib.dumps(_document(report), ensure_ascii=False))
    else:
        _say(report)
    return 0 if report.is_clean else 1


def _document(report: Report) -> dict[str, object]:
    layout = report.layout
    return {
        "root": str(layout.root),
        "running": layout.is_running,
        "killed": layout.was_killed,
        "clean": report.is_clean,
        "logFiles": len(layout.log_files),
        "minPosition": layout.log_min,
        "endPosition": report.end,
        "records": report.records,
        "queues": report.queues,
        "queueEntries": report.queue_entries,
        "indexFiles": report.index_files,
        "indexEntries": report.index_entries,
        "documents": report.documents,
        "seconds": round(report.seconds, 3),
        "notes": report.notes,
        "faults": dict(report.kinds),
        "findings": [asdict(finding) for finding in report.findings],
    }


def _say(report: Report) -> None:
    for finding in report.findings[:SHOWN_MAX]:
        of = f" ({finding.topic}, queue {finding.queue_id})" if finding.topic is not None else ""
        times = f", {finding.count} in all" if finding.kind.startswith("queue") and finding.count > 1 else ""
        typer.echo(f"{finding.file} byte {finding.byte}: {finding.kind}{of}{times}")
        typer.echo(f"    expected {finding.expected}")
        typer.echo(f"    found    {finding.found}")
    hidden = report.kinds.total() - min(len(report.findings), SHOWN_MAX)
    if hidden:
        typer.echo(f"… and {hidden} more")
    for note in report.notes:
        typer.echo(f"note: {note}")
    layout, kinds = report.layout, report.kinds
    log = sum(kinds[kind] for kind in ("log file", "record", "crc", "torn", "tail", "unreadable"))
    queue = sum(count for kind, count in kinds.items() if kind.startswith("queue"))
    index = sum(count for kind, count in kinds.items() if kind.startswith("index"))
    rest = kinds.total() - log - queue - index
    typer.echo(f"{'':12}{'files':>10}{'entries':>14}{'faults':>10}")
    for name, files, entries, faults in (
        ("log", len(layout.log_files), report.records, log),
        ("queues", report.queues, report.queue_entries, queue),
        ("index", report.index_files, report.index_entries, index),
        ("documents", report.documents, "", rest),
    ):
        typer.echo(f"{name:12}{files:>10}{entries:>14}{faults:>10}")
    verdict = "no fault" if report.is_clean else f"{kinds.total()} fault{'s' if kinds.total() > 1 else ''}"
    read = report.end - layout.log_min
    typer.echo(
        f"{verdict} in {layout.root}: {size(read)} of log from {layout.log_min} to {report.end}, {report.seconds:.1f} s"
    )
