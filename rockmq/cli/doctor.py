"""The commands `rockmq doctor …`: whether this machine has what is needed."""

from typing import Annotated

import typer

from rockmq.cli.pipeline import NAMESRV, Json, Namesrv, SparkConf

app = typer.Typer(
    help="Say what is wrong here, and what to do about it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _doctor() -> None:
    """Has `spark` be a command of its own, though it is the only one."""


@app.command()
def spark(
    executors: Annotated[
        bool, typer.Option("--executors", help="Start Spark, and look from its Python workers, too.")
    ] = False,
    namesrv: Namesrv = NAMESRV,
    spark_conf: SparkConf = None,
    json: Json = False,
) -> None:
    """Check Java, Python, packages, the module that Spark finds us by, and that brokers are reached.

    A line for each, `ok` or what is wrong and what to do. Exit code 1 when anything is wrong.
    """
    from rockmq.cli.main import exit_with

    exit_with(lambda: run(namesrv, spark_conf, executors=executors, json=json))


def run(namesrv: str, spark_conf: list[str] | None, *, executors: bool, json: bool) -> int:
    import msgspec

    from rockmq.cli.pipeline.display import pairs
    from rockmq.spark import doctor

    conf = pairs("--spark-conf", spark_conf)
    wrong = 0

    def tell(finding: doctor.Finding) -> None:
        nonlocal wrong
        wrong += not finding.ok
        if json:
            typer.echo(msgspec.json.encode({**finding._asdict(), "ok": finding.ok}).decode())
        else:
            typer.echo(f"{'ok   ' if finding.ok else 'WRONG'} {finding.what}: {finding.says}")
            if finding.advice:
                typer.echo(f"      -> {finding.advice}")

    for finding in doctor.driver(namesrv):
        tell(finding)
    if executors:
        started, session = doctor.spark_starts(conf)
        tell(started)
        if session is not None:
            for finding in doctor.executors(session, namesrv):
                tell(finding)
    return 1 if wrong else 0
