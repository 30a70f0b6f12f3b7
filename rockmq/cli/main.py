"""The commands of `rockmq`, their words and options.

Nothing else of ours is imported up here than more such words, and rich's help pages are off: `rockmq --help` has to answer
at once.
"""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rockmq.cli import acl, doctor, pipeline, store

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESRV_PORT = 9876
BROKER_PORT = 10911
ORDERS = 200_000

app = typer.Typer(
    help="A message queue that speaks Apache RocketMQ's protocol.",
    epilog="What asks servers signs with ROCKMQ_ACCESS_KEY and ROCKMQ_SECRET_KEY, and speaks TLS with ROCKMQ_TLS=true and "
    "ROCKMQ_TLS_CA=FILE, if these are in the environment.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(acl.app, name="acl")
app.add_typer(store.app, name="store")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(doctor.app, name="doctor")


class LogFormat(StrEnum):
    """What a line of the log looks like."""

    TEXT = "text"
    JSON = "json"


Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A key of broker.conf or namesrv.conf; say it again for more."),
]
Verbose = Annotated[
    int, typer.Option("--verbose", "-v", count=True, show_default=False, help="Log more: -v what happens, -vv everything.")
]
Namesrv = Annotated[
    str,
    typer.Option("--namesrv", "-n", envvar="NAMESRV_ADDR", metavar="HOST:PORT", help="Name servers, separated by `;`."),
]
Format = Annotated[
    LogFormat,
    typer.Option("--log-format", envvar="ROCKMQ_LOG_FORMAT", help="text, or json with one object in a line."),
]
PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="Print the configuration that would hold, and end; secrets are masked.")
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line, for programs.")]
Port = typer.Option(min=0, max=65535, metavar="PORT", help="0 lets the system choose.")


class From(StrEnum):
    """Where a group begins that has consumed nothing yet."""

    FIRST = "first"
    LAST = "last"


@app.command()
def serve(
    data: Annotated[Path, typer.Option(metavar="DIR", help="Where everything is kept.")] = Path("rockmq-data"),
    host: Annotated[
        str, typer.Option(metavar="ADDR", help="Address to listen on, and that clients are told.")
    ] = "127.0.0.1",
    namesrv_port: Annotated[int, Port] = NAMESRV_PORT,
    broker_port: Annotated[int, Port] = BROKER_PORT,
    set_: Set = None,
    verbose: Verbose = 0,
    log_format: Format = LogFormat.TEXT,
) -> None:
    """Run name server and broker in one process.

    Prints one line `ready namesrv=HOST:PORT broker=HOST:PORT data=DIR` when clients can come; ends on SIGTERM or Ctrl-C.
    """
    from rockmq.cli import serve

    lines = serve.Logging(verbose, log_format is LogFormat.JSON)
    exit_with(lambda: serve.both(data, host, namesrv_port, broker_port, set_ or [], lines))


@app.command()
def namesrv(
    config: Annotated[Path | None, typer.Option("--config", "-c", metavar="FILE", help="A namesrv.conf.")] = None,
    host: Annotated[str | None, typer.Option(metavar="ADDR", help="Address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=0, max=65535, metavar="PORT", help="0 lets the system choose.")
    ] = None,
    set_: Set = None,
    verbose: Verbose = 0,
    log_format: Format = LogFormat.TEXT,
    print_config: PrintConfig = False,
) -> None:
    """Run a name server alone. Prints `ready namesrv=HOST:PORT`."""
    from rockmq.cli import serve

    lines = serve.Logging(verbose, log_format is LogFormat.JSON)
    exit_with(lambda: serve.namesrv(config, host, port, set_ or [], lines, shown=print_config))


@app.command()
def broker(
    config: Annotated[Path | None, typer.Option("--config", "-c", metavar="FILE", help="A broker.conf.")] = None,
    namesrv: Annotated[
        str | None, typer.Option("--namesrv", "-n", metavar="HOST:PORT", help="Name servers; wins over namesrvAddr.")
    ] = None,
    set_: Set = None,
    verbose: Verbose = 0,
    log_format: Format = LogFormat.TEXT,
    print_config: PrintConfig = False,
) -> None:
    """Run a broker alone, with Apache's broker.conf as it is. Prints `ready broker=HOST:PORT data=DIR`."""
    from rockmq.cli import serve

    lines = serve.Logging(verbose, log_format is LogFormat.JSON)
    exit_with(lambda: serve.broker(config, namesrv, set_ or [], lines, shown=print_config))


@app.command()
def send(
    topic: Topic,
    body: Annotated[str | None, typer.Argument(metavar="[BODY | -]", help="`-` sends each line of standard input.")] = None,
    tag: Annotated[str | None, typer.Option(metavar="TAG", help="The tag that consumers can select by.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="A key to find the message by.")] = None,
    property: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Say it again for more.")] = None,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Send the same BODY so often.")] = 1,
    namesrv: Namesrv = f"127.0.0.1:{NAMESRV_PORT}",
    json: Json = False,
) -> None:
    """Send messages, and say where each was stored."""
    from rockmq.cli import send

    exit_with(lambda: send.run(namesrv, topic, body, tag=tag, key=key, properties=property or [], count=count, json=json))


@app.command()
def consume(
    topic: Topic,
    group: Annotated[str, typer.Option(metavar="GROUP", help="The consumer group; what it consumed is remembered.")],
    tags: Annotated[str, typer.Option(metavar="TAGS", help="Which tags: `*` for all, or `a || b`.")] = "*",
    from_: Annotated[From, typer.Option("--from", help="Where a new group begins.")] = From.FIRST,
    count: Annotated[int | None, typer.Option(min=1, metavar="N", help="End after so many messages.")] = None,
    timeout: Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="End when none came for so long.")] = None,
    namesrv: Namesrv = f"127.0.0.1:{NAMESRV_PORT}",
    json: Json = False,
) -> None:
    """Consume messages and print them, until Ctrl-C unless told otherwise.

    Exit code 1 when --timeout ends it before --count messages came.
    """
    from rockmq.cli import consume

    exit_with(
        lambda: consume.run(
            namesrv,
            topic,
            group,
            tags=tags,
            start="first" if from_ is From.FIRST else "last",
            count=count,
            timeout=timeout,
            json=json,
        )
    )


@app.command()
def demo(
    orders: Annotated[int, typer.Option(min=1, metavar="N", help="How many orders.")] = ORDERS,
    dir: Annotated[Path | None, typer.Option(metavar="DIR", help="Where to work; default: a temporary folder.")] = None,
    keep: Annotated[bool, typer.Option(help="Keep the server's store, not only the archive.")] = True,
) -> None:
    """Send orders through a server that is killed on the way, consume them, archive them with Spark, and reconcile.

    Exit code 1 when anything doesn't reconcile.
    """
    from rockmq.cli.demo import run

    exit_with(lambda: run.run(orders, dir, keep=keep))


def exit_with(run: "Callable[[], int]") -> None:
    """Run a command for its exit code; an error a user can meet is one line, not a traceback."""
    from rockmq.base.errors import RockMQError

    try:
        code = run()
    except RockMQError as error:
        typer.echo(f"rockmq: {error}", err=True)
        code = 1
    except KeyboardInterrupt:
        code = 130
    raise typer.Exit(code)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"rockmq {version('rockmq')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Where the installed command enters."""
    app(prog_name="rockmq")
