"""`rockmq pipeline archive` and `rockmq pipeline compact`."""

from pathlib import Path
from typing import Annotated

import typer

from rockmq.cli.pipeline import LEDGER, NAMESRV, Json, Ledger, Namesrv, ReadOption, SparkConf, app

Directory = Annotated[Path, typer.Argument(metavar="DIR", show_default=False, help="Below it each topic has a folder.")]
RecordsPerFile = Annotated[int, typer.Option(min=1, metavar="N", help="Messages in the largest files.")]


@app.command()
def archive(
    *,
    topic: Annotated[list[str] | None, typer.Argument(metavar="TOPIC", show_default=False)] = None,
    directory: Directory,
    all: Annotated[bool, typer.Option("--all", help="All topics but those of the system.")] = False,
    retries: Annotated[bool, typer.Option("--retries", help="With --all: topics of retries and dead letters, too.")] = False,
    group: Annotated[
        str, typer.Option(metavar="GROUP", help="Tell brokers how far the archive is, as this consumer group.")
    ] = "",
    delta: Annotated[bool, typer.Option("--delta", help="Keep each topic's folder as a Delta table, too.")] = False,
    records_per_file: RecordsPerFile = 1_000_000,
    namesrv: Namesrv = NAMESRV,
    option: ReadOption = None,
    spark_conf: SparkConf = None,
    ledger: Ledger = LEDGER,
    json: Json = False,
) -> None:
    """Keep as Parquet files what topics hold and the directory doesn't."""
    from rockmq.base.errors import ConfigError
    from rockmq.cli.main import exit_with
    from rockmq.cli.pipeline import display

    def run() -> int:
        if bool(topic) == all:
            raise ConfigError("say which topics to archive, or --all")
        if retries and not all:
            raise ConfigError("--retries goes with --all; name such topics otherwise")
        options = {"namesrv": namesrv, "topics": "all" if all else ",".join(topic or ()), "directory": directory}
        return display.run("archive", options, work, ledger=ledger, spark_conf=spark_conf, json=json)

    def work(job: display.Job) -> None:
        from rockmq.pipeline.archive import archive_topics

        archive_topics(
            job.spark,
            namesrv,
            None if all else topic,
            directory,
            retries=retries,
            records_per_file=records_per_file,
            options=display.pairs("--option", option),
            group=group,
            delta=delta,
            progress=job.progress,
        )
        job.progress.result("directory", directory)

    exit_with(run)


@app.command()
def compact(
    *,
    topic: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC", show_default=False, help="All that are there, if none is named."),
    ] = None,
    directory: Directory,
    records_per_file: RecordsPerFile = 1_000_000,
    keep: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long replaced files stay for who still reads them.")
    ] = 3_600,
    spark_conf: SparkConf = None,
    ledger: Ledger = LEDGER,
    json: Json = False,
) -> None:
    """Put small files of an archive together."""
    from rockmq.cli.main import exit_with
    from rockmq.cli.pipeline import display

    def work(job: display.Job) -> None:
        from rockmq.pipeline.compact import compact

        compact(job.spark, directory, topic, records_per_file=records_per_file, keep_seconds=keep, progress=job.progress)
        job.progress.result("directory", directory)

    options = {"topics": ",".join(topic or ()) or "all", "directory": directory}
    exit_with(lambda: display.run("compact", options, work, ledger=ledger, spark_conf=spark_conf, json=json))
