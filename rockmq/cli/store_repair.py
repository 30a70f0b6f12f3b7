"""`rockmq store repair`"""

from pathlib import Path

import typer

from rockmq.base.errors import ConfigError
from rockmq.cli.store_verify import Progress, layout_of
from rockmq.store.repair import plan, repair


def run(directory: Path, config: Path | None, *, yes: bool) -> int:
    """Make queues and index anew. 1 when the log has a damage that stays."""
    layout = layout_of(directory, config)
    if layout.is_running:
        raise ConfigError(f"a broker is running on {layout.root}: stop it first")
    typer.echo("going to:")
    for line in plan(layout):
        typer.echo(f"  {line}")
    typer.echo(f"  {'end the log behind its last record' if yes else 'leave the log as it is'}")
    progress = Progress()
    done = repair(layout, progress, cut=yes, say=lambda line: typer.echo(f"  {line}"))
    progress.close()
    typer.echo(
        f"done: {done.records} records in {done.queues + done.batch_queues} queues and {done.index_files} index files"
    )
    for kind, path, byte, count, expected, found, _ in done.damaged:
        if not (done.is_cut and kind in ("torn", "tail")):
            typer.echo(f"the log is damaged, and stays so: {path} byte {byte}, {count} bytes: {kind}")
            typer.echo(f"    expected {expected}, found {found}")
    if done.tail is not None and not done.is_cut:
        typer.echo("a torn tail is cut off by the next start after a kill, or by this command with --yes")
    if done.lost_until is not None:
        typer.echo(f"the log ends at {done.end}, and was whole on disk up to {done.lost_until}: no broker starts on it")
        typer.echo("    before the log is put back from a copy, or this command with --yes lets it end there")
    stays = done.damaged and not (done.is_cut and len(done.damaged) == 1)
    return 1 if stays or done.lost_until is not None else 0
