"""`rockmq pipeline reconcile`."""

from pathlib import Path
from typing import Annotated

import typer

from rockmq.cli.pipeline import (
    LEDGER,
    NAMESRV,
    From,
    Json,
    Ledger,
    Namesrv,
    ReadOption,
    Since,
    SparkConf,
    TraceTopic,
    Until,
    app,
)


@app.command()
def reconcile(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    directory: Annotated[Path, typer.Argument(metavar="DIR", show_default=False, help="For the tables and the report.")],
    sent: Annotated[
        str, typer.Option(metavar="ledger:PATH|trace", show_default=False, help="What was acknowledged, by ledger or trace.")
    ],
    consumed: Annotated[
        str | None,
        typer.Option(
            metavar="ledger:PATH|trace:GROUP|offsets:GROUP",
            help="What was consumed, by ledger, by trace or by a group's offsets.",
        ),
    ] = None,
    from_: From = "broker",
    since: Since = None,
    until: Until = None,
    id: Annotated[
        str, typer.Option(metavar="NAME", help="What ledgers call a message by: msgId, keys, or a property.")
    ] = "msgId",
    window: Annotated[int, typer.Option(metavar="SECONDS", help="Results are kept by such windows of time.")] = 3600,
    late: Annotated[float, typer.Option(metavar="SECONDS", help="How long a message may take to be consumed.")] = 60.0,
    trace_topic: TraceTopic = "RMQ_SYS_TRACE_TOPIC",
    namesrv: Namesrv = NAMESRV,
    option: ReadOption = None,
    spark_conf: SparkConf = None,
    ledger: Ledger = LEDGER,
    json: Json = False,
) -> None:
    """Compare what was sent, stored and consumed: lost, duplicated, out of order, late."""
    from rockmq.cli.main import exit_with
    from rockmq.cli.pipeline import display, when

    def work(job: display.Job) -> None:
        from rockmq.pipeline.comparing import Sources, compare

        sources = Sources(
            topic=topic,
            sent=sent,
            consumed=consumed,
            messages=from_,
            name_server=namesrv,
            trace_topic=trace_topic,
            id=id,
            options=display.pairs("--option", option),
        )
        compare(
            job.spark,
            sources,
            directory,
            window_seconds=window,
            late_seconds=late,
            since_ms=when.instant("--since", since),
            until_ms=when.instant("--until", until),
            progress=job.progress,
        )

    options = {"namesrv": namesrv, "topic": topic, "directory": directory, "sent": sent, "consumed": consumed, "from": from_,
               "since": since, "until": until, "id": id, "window": window, "late": late}  # fmt: skip
    exit_with(lambda: display.run("reconcile", options, work, ledger=ledger, spark_conf=spark_conf, json=json))
