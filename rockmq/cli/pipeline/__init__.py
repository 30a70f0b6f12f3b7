"""The commands `rockmq pipeline …`: their words and options, as in `main`.

A module per job beside this one has its command; `display.run` runs it with Spark, a row in the run ledger and a display.
"""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Jobs on Spark: messages to files and tables, and back.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

LEDGER = Path("rockmq-runs")

NAMESRV = "127.0.0.1:9876"
Namesrv = Annotated[
    str,
    typer.Option("--namesrv", "-n", envvar="NAMESRV_ADDR", metavar="HOST:PORT", help="Name servers, separated by `;`."),
]
Ledger = Annotated[
    Path, typer.Option(envvar="ROCKMQ_RUNS", metavar="DIR", help="Where a row is kept of every run of a job.")
]
SparkConf = Annotated[
    list[str] | None,
    typer.Option(
        "--spark-conf", metavar="KEY=VALUE", help="A property of Spark, such as spark.master; say it again for more."
    ),
]
ReadOption = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="KEY=VALUE", help="An option of the Spark source; say it again for more."),
]
WriteOption = Annotated[
    list[str] | None,
    typer.Option("--option", "-o", metavar="KEY=VALUE", help="An option of the Spark sink; say it again for more."),
]
MoveOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="KEY=VALUE", help="An option of the Spark source or sink; say it again for more."
    ),
]
From = Annotated[
    str,
    typer.Option(
        "--from", metavar="broker|store:DIR|archive:DIR", help="Where messages are read; archives are those of `archive`."
    ),
]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="From then on: ISO 8601 in UTC, or milliseconds.")]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Before then.")]
TraceTopic = Annotated[str, typer.Option("--trace-topic", metavar="TOPIC", help="The topic that message trace is in.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")]


@app.command()
def runs(ledger: Ledger = LEDGER, json: Json = False) -> None:
    """List the runs of jobs, the oldest first."""
    from rockmq.cli.main import exit_with
    from rockmq.cli.pipeline import display

    exit_with(lambda: display.runs(ledger, json=json))


# Each job's module adds its command to `app`.
from rockmq.cli.pipeline import archive as archive  # noqa: E402
from rockmq.cli.pipeline import drain as drain  # noqa: E402
from rockmq.cli.pipeline import lag as lag  # noqa: E402
from rockmq.cli.pipeline import profile as profile  # noqa: E402
from rockmq.cli.pipeline import reconcile as reconcile  # noqa: E402
from rockmq.cli.pipeline import redrive as redrive  # noqa: E402
from rockmq.cli.pipeline import replay as replay  # noqa: E402
from rockmq.cli.pipeline import trace as trace  # noqa: E402
