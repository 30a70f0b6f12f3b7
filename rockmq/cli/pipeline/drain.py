"""`rockmq pipeline drain`."""

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from rockmq.cli.pipeline import LEDGER, NAMESRV, Json, Ledger, MoveOption, Namesrv, SparkConf, app

STEPS = """\
1. Now: consumers of {group} on {source} are stopped, producers still send there. Draining begins; consumers of {group} may
   start on {target} at once: there the group is at the fence that is recorded.
2. {last}
3. Producers start again, to {target}. Nothing of {source} is left for {group}."""
AT_ONCE = """\
When this command has ended, stop the producers of {source}, and run it again with the same --work: it drains what came
   meanwhile."""
FOLLOWING = """\
When little is left, stop the producers of {source}, then end this command with Ctrl-C or SIGTERM: it drains the
   rest first."""


@app.command()
def drain(
    source: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="The topic that is backed up.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", show_default=False, help="The one with more queues.")],
    group: Annotated[str, typer.Option(metavar="GROUP", help="The consumer group that is behind, and goes on there.")],
    work: Annotated[
        Path, typer.Option(metavar="DIR", help="Where is kept what was sent: again with the same one a drain goes on.")
    ],
    key: Annotated[
        str | None, typer.Option(metavar="SQL", help="What is kept in order: the sharding key, else the keys by default.")
    ] = None,
    tasks: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="Tasks that send, for a shuffle; by default one for each old queue."),
    ] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until Ctrl-C or SIGTERM.")] = False,
    namesrv: Namesrv = NAMESRV,
    option: MoveOption = None,
    spark_conf: SparkConf = None,
    ledger: Ledger = LEDGER,
    json: Json = False,
) -> None:
    """Move what a group has not consumed to a topic with more queues, each message once, in order for each key.

    Prints what is to be done with consumers and producers, and when.
    """
    from rockmq.cli.main import exit_with
    from rockmq.cli.pipeline import display

    def job(job: display.Job) -> None:
        from rockmq.pipeline.drain import KEY, drain

        names = {"source": source, "target": target, "group": group}
        typer.echo(STEPS.format(**names, last=(FOLLOWING if follow else AT_ONCE).format(**names)), err=True)
        session = job.spark  # which sets a handler of its own for Ctrl-C
        until = threading.Event() if follow else None
        if until is not None:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: until.set())
        drain(
            session,
            namesrv,
            source,
            target,
            group,
            work,
            key=key or KEY,
            tasks=tasks,
            until=until,
            options=display.pairs("--option", option),
            progress=job.progress,
        )

    noted = {
        "namesrv": namesrv, "source": source, "target": target, "group": group, "work": work, "key": key, "tasks": tasks,
        "follow": follow,
    }  # fmt: skip
    exit_with(lambda: display.run("drain", noted, job, ledger=ledger, spark_conf=spark_conf, json=json))
