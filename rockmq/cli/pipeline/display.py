"""Runs a job for a command: Spark, the row in the ledger, and what is shown."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from rockmq.base.errors import ConfigError, RockMQError
from rockmq.pipeline.runs import Ledger, Progress, Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINE_INTERVAL_S = 5.0
"""How often a line tells how far a job is where there is no terminal."""


@dataclass
class Job:
    """What a job is given by its command. `spark` starts when it is first asked for."""

    name: str
    progress: Progress
    conf: Mapping[str, str]

    @cached_property
    def spark(self) -> "SparkSession":
        from rockmq.spark import session

        self.progress.begin("starting Spark")
        return session(f"rockmq {self.name}", {"spark.log.level": "ERROR", **self.conf})


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """KEY=VALUE options as a dict. Raises ConfigError that names the option."""
    found = {}
    for text in given or []:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise ConfigError(f"{option} {text!r}: expected KEY=VALUE")
        found[key] = value
    return found


def run(
    name: str,
    options: Mapping[str, object],
    work: Callable[[Job], None],
    *,
    ledger: Path,
    spark_conf: list[str] | None,
    json: bool,
) -> int:
    """Do a job and print its row of the ledger; the exit code. `options` are noted in the row: no secrets."""
    conf = pairs("--spark-conf", spark_conf)
    view = _Bar() if _console(stderr=True).is_terminal else _Lines()
    try:
        with view.shown, Ledger(ledger).run(name, options, view.show) as progress:
            work(Job(name, progress, conf))
    except Exception as error:
        if (said := _said_by_spark(error)) is None:
            raise
        raise RockMQError(f"Spark: {said}") from error
    assert view.run is not None  # shown at least when it ended
    if json:
        typer.echo(msgspec.json.encode(view.run).decode())
    else:
        seconds = (view.run.ended_ms - view.run.started_ms) / 1_000
        typer.echo(f"{view.run.id}: {view.run.state.value} in {seconds:,.1f} s")
        _console().print(_summary(view.run))
    return 0


def _said_by_spark(error: Exception) -> str | None:
    """An error of Spark's in short, which stands whole in the ledger; None for another one."""
    try:
        from rockmq.pipeline.spark_errors import SPARK_ERRORS, short
    except ImportError:
        return None
    return short(error) if isinstance(error, SPARK_ERRORS) else None


def _console(*, stderr: bool = False) -> Console:
    # Names, paths and errors are shown as they are: brackets and colons in them mean nothing.
    return Console(stderr=stderr, markup=False, emoji=False)


def runs(ledger: Path, *, json: bool) -> int:
    """Print the runs of a ledger, the oldest first."""
    found = Ledger(ledger).runs()
    if json:
        for each in found:
            typer.echo(msgspec.json.encode(each).decode())
        return 0
    table = Table("run", "state", "started (UTC)", "seconds", "counts", "error", box=None)
    for each in found:
        started = datetime.fromtimestamp(each.started_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
        seconds = f"{(each.ended_ms - each.started_ms) / 1_000:,.1f}" if each.ended_ms else ""
        state = "killed" if each.was_killed else each.state.value
        table.add_row(each.id, state, started, seconds, _counts(each.counts), each.error)
    _console().print(table)
    return 0


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _summary(run: Run) -> Table:
    table = Table("", "", show_header=False)
    for name, count in run.counts.items():
        table.add_row(name, f"{count:,}")
    for name, value in run.results.items():
        table.add_row(name, value)
    return table


class _Lines:
    """A line now and then, for logs."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.shown: AbstractContextManager[object] = nullcontext()
        self._said = ("", 0.0)
        self._console = _console(stderr=True)

    def show(self, run: Run, progress: Progress) -> None:
        self.run = run
        stage, at = self._said
        if progress.stage == stage and time.monotonic() - at < LINE_INTERVAL_S:
            return
        self._said = (progress.stage, time.monotonic())
        self._console.print(f"{progress.stage} {_counts(progress.counts)}".rstrip(), highlight=False)


class _Bar:
    """A bar of the count that has a total, the first of them; a spinner where none has."""

    def __init__(self) -> None:
        self.run: Run | None = None
        stage, counts = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[counts]}"))
        columns = (SpinnerColumn(), stage, BarColumn(), counts, TimeElapsedColumn())
        self.shown = Bars(*columns, console=_console(stderr=True), transient=True)
        self._task = self.shown.add_task("", total=None, counts="")

    def show(self, run: Run, progress: Progress) -> None:
        self.run = run
        total, done = next(((total, progress.counts[unit]) for unit, total in progress.totals.items()), (None, 0))
        self.shown.update(
            self._task, description=progress.stage, total=total, completed=done, counts=_counts(progress.counts)
        )
