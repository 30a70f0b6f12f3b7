"""`rockmq pipeline replay`."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from rockmq.cli.pipeline import LEDGER, NAMESRV, Json, Ledger, Namesrv, SparkConf, WriteOption, app


@app.command()
def replay(
    archive: Annotated[Path, typer.Argument(metavar="DIR", show_default=False, help="What `archive` wrote.")],
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic that was archived.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", show_default=False, help="Where its messages go.")],
    work: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where is kept what was sent: again with the same one a replay goes on."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Stored since: 2026-01-31T12:00:00Z, or milliseconds."),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Stored before that.")] = None,
    key: Annotated[list[str] | None, typer.Option(metavar="KEY", help="With that key; say it again for more.")] = None,
    tags: Annotated[str, typer.Option(metavar="TAGS", help="Which tags: `*` for all, or `a || b`.")] = "*",
    filter: Annotated[
        str, typer.Option(metavar="SQL", help="A condition over the archive's columns: `properties['region'] = 'eu'`.")
    ] = "",
    rate: Annotated[float, typer.Option(min=0, metavar="N", help="At most so many messages a second; 0: no limit.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Allow the topic itself as target.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be sent.")] = False,
    namesrv: Namesrv = NAMESRV,
    option: WriteOption = None,
    spark_conf: SparkConf = None,
    ledger: Ledger = LEDGER,
    json: Json = False,
) -> None:
    """Send archived messages to a topic again, each once, in order for each key.

    They have a property REPLAY, by which consumers tell them.
    """
    from rockmq.base.errors import ConfigError
    from rockmq.cli.main import exit_with
    from rockmq.cli.pipeline import display

    def job(job: display.Job) -> None:
        from rockmq.pipeline.replay import Selection, count, replay

        selection = Selection(_milliseconds("--from", start), _milliseconds("--to", end), tuple(key or ()), tags, filter)
        if dry_run:
            found = count(job.spark, archive, topic, selection)
            job.progress.add(rows=found.rows, bytes=found.bytes)
            if found.first is not None and found.last is not None:
                job.progress.result("stored", f"{found.first.isoformat()} to {found.last.isoformat()}")
            return
        if work is None:
            raise ConfigError("--work is required: a directory that says later what was sent")
        options = display.pairs("--option", option)
        replay(
            job.spark,
            namesrv,
            archive,
            topic,
            target,
            work,
            selection,
            rate=rate,
            force=force,
            options=options,
            progress=job.progress,
        )

    noted = {
        "namesrv": namesrv, "archive": archive, "topic": topic, "target": target, "work": work, "from": start, "to": end,
        "keys": key, "tags": tags, "filter": filter, "rate": rate, "dry_run": dry_run,
    }  # fmt: skip
    exit_with(lambda: display.run("replay", noted, job, ledger=ledger, spark_conf=spark_conf, json=json))


def _milliseconds(option: str, text: str | None) -> int | None:
    """A time as milliseconds since the epoch. Raises ConfigError."""
    from rockmq.base.errors import ConfigError

    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"{option} {text!r}: {error}; expected a time as 2026-01-31T12:00:00Z, or milliseconds") from None
    if time.tzinfo is None:
        raise ConfigError(f"{option} {text!r} has no time zone: expected Z at its end, or +01:00")
    return int(time.timestamp() * 1_000)
