"""`rockmq pipeline trace`."""

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
def trace(
    directory: Annotated[Path, typer.Argument(metavar="DIR", show_default=False, help="For the tables and the report.")],
    topic: TraceTopic = "RMQ_SYS_TRACE_TOPIC",
    from_: From = "broker",
    since: Since = None,
    until: Until = None,
    slow_ms: Annotated[
        int, typer.Option(metavar="MS", help="A group is slow when a hundredth of its messages takes so long.")
    ] = 1_000,
    namesrv: Namesrv = NAMESRV,
    option: ReadOption = None,
    spark_conf: SparkConf = None,
    ledger: Ledger = LEDGER,
    json: Json = False,
) -> None:
    """Message trace as tables: latency, slow consumers, failures and retry storms."""
    from rockmq.cli.main import exit_with
    from rockmq.cli.pipeline import display, when

    def work(job: display.Job) -> None:
        from rockmq.pipeline.messages import messages
        from rockmq.pipeline.trace import trace

        found = messages(
            job.spark,
            topic,
            ["body"],
            source=from_,
            name_server=namesrv,
            since_ms=when.instant("--since", since),
            until_ms=when.instant("--until", until),
            options=display.pairs("--option", option),
        )
        trace(job.spark, found, directory, slow_ms=slow_ms, progress=job.progress)

    options = {"namesrv": namesrv, "topic": topic, "directory": directory, "from": from_, "since": since, "until": until,
               "slow_ms": slow_ms}  # fmt: skip
    exit_with(lambda: display.run("trace", options, work, ledger=ledger, spark_conf=spark_conf, json=json))
