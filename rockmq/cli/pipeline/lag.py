"""`rockmq pipeline lag`."""

from pathlib import Path
from typing import Annotated

import typer

from rockmq.cli.pipeline import LEDGER, NAMESRV, Json, Ledger, Namesrv, Since, Until, app


@app.command()
def lag(
    directory: Annotated[Path, typer.Argument(metavar="DIR", show_default=False, help="Where samples are kept.")],
    group: Annotated[
        list[str] | None, typer.Option(metavar="GROUP", help="A consumer group to sample; say it again for more.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC", help="Only this topic; say it again for more. All in which the group has offsets else."
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Take one sample.")] = False,
    every: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Take a sample so often, until Ctrl-C. There is a row a minute.")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="Write DIR/lag.html of the samples in DIR.")] = False,
    since: Since = None,
    until: Until = None,
    namesrv: Namesrv = NAMESRV,
    ledger: Ledger = LEDGER,
    json: Json = False,
) -> None:
    """Sample how far consumer groups are behind, and report it over time: --once, --every or --report."""
    from rockmq.base.errors import ConfigError
    from rockmq.cli.main import exit_with
    from rockmq.cli.pipeline import display, when

    def work(job: display.Job) -> None:
        import asyncio

        from rockmq.client import environment
        from rockmq.pipeline import lag

        async def watch() -> None:
            async with environment.client(namesrv) as mq:
                seconds = None if once else every
                await lag.watch(mq, directory, group or (), topic or (), every_seconds=seconds, progress=job.progress)

        if once or every is not None:
            asyncio.run(watch())
        if report:
            rows = lag.read(directory, when.instant("--since", since), when.instant("--until", until))
            for each in lag.standings(rows):
                behind = "" if each.lag_seconds is None else f", {each.lag_seconds:,.0f} s"
                job.progress.result(f"{each.group}, {each.topic}", f"{each.lag:,} messages{behind}")
            job.progress.result("report", lag.report(rows).save(directory / "lag.html"))

    def run() -> int:
        if not (once or every is not None or report) or (once and every is not None):
            raise ConfigError("say one of --once and --every SECONDS, or --report")
        return display.run("lag", options, work, ledger=ledger, spark_conf=None, json=json)

    options = {"namesrv": namesrv, "directory": directory, "groups": group or [], "topics": topic or []}
    exit_with(run)
