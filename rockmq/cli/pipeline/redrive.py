"""`rockmq pipeline redrive`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rockmq.cli.pipeline import LEDGER, NAMESRV, Json, Ledger, MoveOption, Namesrv, SparkConf, app

if TYPE_CHECKING:
    from rockmq.pipeline.redrive import Transform


@app.command()
def redrive(
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False, help="Whose dead letters.")],
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", show_default=False, help="Where the result goes, a Parquet table `result`.")
    ],
    filter: Annotated[
        str, typer.Option(metavar="SQL", help="Only those of which it is true: `realTopic = 'orders' and tags = 'paid'`.")
    ] = "",
    select: Annotated[
        list[str] | None,
        typer.Option(metavar="SQL", help="A column to change: `replace(string(body), 'a', 'b') body`; or more."),
    ] = None,
    transform: Annotated[
        str | None,
        typer.Option(metavar="FILE:FUNCTION", help="A function in a Python file, from a data frame to a data frame."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="At most so many, the oldest first; 0: all.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be moved and what not.")] = False,
    by: Annotated[
        str | None, typer.Option(metavar="SQL", help="What a dry run counts by; how often they were tried by default.")
    ] = None,
    namesrv: Namesrv = NAMESRV,
    option: MoveOption = None,
    spark_conf: SparkConf = None,
    ledger: Ledger = LEDGER,
    json: Json = False,
) -> None:
    """Send the dead letters of a group to their topics again, each once, also over several calls.

    Every group that consumes these topics gets them.
    """
    from rockmq.base.errors import ConfigError
    from rockmq.cli.main import exit_with
    from rockmq.cli.pipeline import display

    def job(job: display.Job) -> None:
        from rockmq.pipeline.redrive import TRIES, count, redrive

        if select and transform:
            raise ConfigError("--select and --transform exclude each other")
        change = selecting(select) if select else loaded(transform) if transform else None
        options = display.pairs("--option", option)
        if not dry_run:
            redrive(
                job.spark,
                namesrv,
                group,
                directory,
                filter=filter,
                transform=change,
                limit=limit,
                options=options,
                progress=job.progress,
            )
            return
        found = count(
            job.spark,
            namesrv,
            group,
            directory,
            filter=filter,
            transform=change,
            limit=limit,
            by=by or TRIES,
            options=options,
        )
        for each in found:
            job.progress.add(**{"skipped" if each.reason else "rows": each.rows})
            job.progress.result(f"{each.topic or '?'}, {each.by}", f"{each.rows:,}{each.reason and f': {each.reason}'}")

    noted = {
        "namesrv": namesrv, "group": group, "directory": directory, "filter": filter, "select": select,
        "transform": transform, "limit": limit, "dry_run": dry_run,
    }  # fmt: skip
    exit_with(lambda: display.run("redrive", noted, job, ledger=ledger, spark_conf=spark_conf, json=json))


def selecting(expressions: list[str]) -> "Transform":
    """The columns that expressions in Spark's SQL make, in place of those of the same name, and the others as they are.

    It raises ConfigError for an expression that has another name, or none.
    """
    from pyspark.sql import DataFrame

    from rockmq.base.errors import ConfigError

    def change(rows: DataFrame) -> DataFrame:
        changed = {column.lower(): column for column in rows.selectExpr(*expressions).columns}
        if unknown := changed.keys() - {column.lower() for column in rows.columns}:
            raise ConfigError(
                f"--select: {changed[min(unknown)]!r} is no column of a dead letter; expected an expression and the column "
                "that it changes: replace(string(body), 'a', 'b') body"
            )
        others = (f"`{column}`" for column in rows.columns if column.lower() not in changed)
        return rows.selectExpr(*others, *expressions).select(*rows.columns)

    return change


def loaded(place: str) -> "Transform":
    """A function of a Python file, `FILE:FUNCTION`. Raises ConfigError."""
    import runpy

    from rockmq.base.errors import ConfigError

    file, colon, name = place.rpartition(":")
    if not colon or not name.isidentifier():
        raise ConfigError(f"--transform {place!r}: expected FILE:FUNCTION")
    try:
        function = runpy.run_path(file).get(name)
    except (OSError, SyntaxError) as error:
        raise ConfigError(f"--transform {place!r}: {error}") from None
    if not callable(function):
        raise ConfigError(f"--transform {place!r}: {file} has no function {name}")
    return function  # type: ignore[no-any-return]
