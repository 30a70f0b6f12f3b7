"""`rockmq pipeline profile`."""

from pathlib import Path
from typing import Annotated

import typer

from rockmq.cli.pipeline import LEDGER, NAMESRV, From, Json, Ledger, Namesrv, ReadOption, Since, SparkConf, Until, app


@app.command()
def profile(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    directory: Annotated[Path, typer.Argument(metavar="DIR", show_default=False, help="For the tables and the report.")],
    from_: From = "broker",
    since: Since = None,
    until: Until = None,
    key: Annotated[
        str, typer.Option(metavar="COLUMN", help="What gives messages an order: shardingKey or keys.")
    ] = "shardingKey",
    handler_ms: Annotated[float, typer.Option(metavar="MS", help="How long a consumer works on a message.")] = 10.0,
    namesrv: Namesrv = NAMESRV,
    option: ReadOption = None,
    spark_conf: SparkConf = None,
    ledger: Ledger = LEDGER,
    json: Json = False,
) -> None:
    """Look at a topic's sizes, keys, tags, rates and queues, and advise on the number of queues."""
    from rockmq.cli.main import exit_with
    from rockmq.cli.pipeline import display, when

    def work(job: display.Job) -> None:
        from rockmq.pipeline.messages import messages
        from rockmq.pipeline.profile import COLUMNS, profile

        found = messages(
            job.spark,
            topic,
            COLUMNS,
            source=from_,
            name_server=namesrv,
            since_ms=when.instant("--since", since),
            until_ms=when.instant("--until", until),
            options=display.pairs("--option", option),
        )
        profile(job.spark, found, directory, key=key, handler_ms=handler_ms, name=topic, progress=job.progress)

    options = {"namesrv": namesrv, "topic": topic, "directory": directory, "from": from_, "since": since, "until": until,
               "key": key, "handler_ms": handler_ms}  # fmt: skip
    exit_with(lambda: display.run("profile", options, work, ledger=ledger, spark_conf=spark_conf, json=json))
