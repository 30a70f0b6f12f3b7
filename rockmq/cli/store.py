"""The commands `rockmq store …`: their words and options, as in `main`."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Look at a store directory, check it, mend it: ours or Apache's.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Directory = Annotated[Path, typer.Argument(metavar="DIR", show_default=False, help="The store: where commitlog/ is.")]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The broker.conf, when the log is elsewhere or sizes of files aren't what they seem.",
    ),
]


@app.command()
def verify(
    directory: Directory,
    config: Config = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Check every record, queue entry and index entry, and say what is wrong where. Writes nothing.

    The broker may run: then what was there at the start is checked. Exit code 1 when anything is wrong.
    """
    from rockmq.cli import store_verify
    from rockmq.cli.main import exit_with

    exit_with(lambda: store_verify.run(directory, config, json=json))


@app.command()
def dump(
    directory: Directory,
    config: Config = None,
    queues: Annotated[bool, typer.Option("--queues", help="The entries of the queues instead of records.")] = False,
    index: Annotated[bool, typer.Option("--index", help="The headers of the index files instead of records.")] = False,
    topic: Annotated[str | None, typer.Option(metavar="TOPIC", help="Only of this topic.")] = None,
    queue: Annotated[int | None, typer.Option(min=0, metavar="ID", help="Only of the queue with this id.")] = None,
    from_: Annotated[int | None, typer.Option("--from", min=0, metavar="OFFSET", help="From this queue offset on.")] = None,
    to: Annotated[int | None, typer.Option(min=0, metavar="OFFSET", help="Up to before this queue offset.")] = None,
    position: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="From this position of the log on, a record's.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="So many at most.")] = None,
    body: Annotated[int, typer.Option(min=0, metavar="N", help="Bytes of each body to show.")] = 64,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")] = False,
) -> None:
    """Print what is in the log, the queues or the index. Writes nothing, so the broker may run."""
    from rockmq.cli import store_dump
    from rockmq.cli.main import exit_with
    from rockmq.store.dump import Wanted, What

    if queues and index:
        raise typer.BadParameter("--queues and --index exclude each other")
    what = What.QUEUES if queues else What.INDEX if index else What.RECORDS
    wanted = Wanted(topic, queue, from_, to, position, limit)
    exit_with(lambda: store_dump.run(directory, config, wanted, what=what, body_max=body, json=json))


@app.command()
def transactions(
    directory: Directory,
    config: Config = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")] = False,
) -> None:
    """List the transactions that nobody has decided yet, the oldest first. Writes nothing.

    The broker may run: what it has begun in the last seconds isn't listed yet then, what it has finished still may be.
    """
    from rockmq.cli import store_transactions
    from rockmq.cli.main import exit_with

    exit_with(lambda: store_transactions.run(directory, config, json=json))


@app.command()
def repair(
    directory: Directory,
    config: Config = None,
    yes: Annotated[bool, typer.Option("--yes", help="Also end the log behind its last record, torn or not.")] = False,
) -> None:
    """Make the queues and the index anew from the log. No broker may run on the store.

    The log isn't changed without --yes. Exit code 1 when a damage of the log stays.
    """
    from rockmq.cli import store_repair
    from rockmq.cli.main import exit_with

    exit_with(lambda: store_repair.run(directory, config, yes=yes))


@app.command()
def timers(
    directory: Directory,
    config: Config = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="So many at most, the next ones first.")] = 100,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")] = False,
) -> None:
    """Print the messages that wait for their time. Writes nothing, so the broker may run.

    Then what is printed is up to timerFlushIntervalMs old. A timerPrecisionMs other than 1000 is taken from --config.
    """
    from rockmq.cli import store_timers
    from rockmq.cli.main import exit_with

    exit_with(lambda: store_timers.run(directory, config, limit=limit, json=json))
