"""What the demo shows: progress while it runs, and the tables at its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from rockmq.cli.demo.archive import Archived
from rockmq.cli.demo.reconcile import EXAMPLES, Outcome
from rockmq.cli.demo.traffic import Records, Watcher


class Screen:
    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    @contextmanager
    def bars(self, orders: int) -> Iterator[Watcher]:
        """Progress of sending and consuming, events in between."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"))
        with Progress(*columns, TimeElapsedColumn(), console=self._console) as progress:
            sent = progress.add_task("acknowledged", total=orders, rate="")
            consumed = progress.add_task("consumed", total=orders, rate="")

            def rate(task: int) -> str:
                speed = progress.tasks[task].speed
                return f"{speed:,.0f}/s" if speed else ""

            yield Watcher(
                acknowledged=lambda count: progress.update(sent, completed=count, rate=rate(sent)),
                consumed=lambda count: progress.update(consumed, completed=count, rate=rate(consumed)),
                event=lambda text: progress.console.print(f"  {text}", highlight=False),
            )

    @contextmanager
    def working(self, text: str) -> Iterator[None]:
        """Something that takes a while and can't say how far it is."""
        with Progress(SpinnerColumn(), TextColumn(text), TimeElapsedColumn(), console=self._console, transient=True) as it:
            it.add_task("")
            yield

    def rates(self, records: Records, archived: Archived) -> None:
        table = Table("", "messages", "seconds", "per second", title="Rates", title_justify="left")
        for column in table.columns[1:]:
            column.justify = "right"
        table.add_row("acknowledged, each on disk", *_rate(len(records.acknowledged), records.send_seconds))
        table.add_row("consumed", *_rate(len(records.consumed), records.consume_seconds))
        for name, count in records.by_member.items():
            table.add_row(f"  by the {name}", f"{count:,}", "", "")
        table.add_row("archived to Parquet", *_rate(len(archived.rows), archived.seconds))
        self._console.print(table)

    def checks(self, outcome: Outcome, records: Records) -> None:
        table = Table("", "what must hold", "checked", title="Reconciliation", title_justify="left")
        table.columns[2].justify = "right"
        for check in outcome.checks:
            table.add_row("[green]yes[/]" if check.holds else "[red]NO[/]", check.statement, f"{check.cases:,}")
            for fault in check.faults[:EXAMPLES]:
                table.add_row("", f"[red]{fault}[/]", "")
            if len(check.faults) > EXAMPLES:
                table.add_row("", f"[red]and {len(check.faults) - EXAMPLES:,} more[/]", "")
        table.add_section()
        table.add_row("", "sends that ended in an error and were made again", f"{records.send_errors:,}")
        table.add_row("", "orders stored a second time by that", f"{outcome.stored_again:,}")
        table.add_row("", "messages delivered a second time", f"{outcome.consumed_again:,}")
        self._console.print(table)

    def files(self, folder: Path, archived: Archived, *, kept: bool) -> None:
        self.say(f"Parquet  {archived.directory}  ({archived.files} files, {archived.size / 1e6:.1f} MB)")
        self.say(f"records  {folder / 'acknowledged.csv'}, {folder / 'consumed-*.csv'}")
        self.say(f"logs     {folder / '*.log'}")
        if kept:
            self.say(f"store    {folder / 'store'}  (look into it: rockmq serve --data {folder / 'store'})")


def _rate(count: int, seconds: float) -> tuple[str, str, str]:
    return f"{count:,}", f"{seconds:.1f}", f"{count / seconds:,.0f}" if seconds else ""
