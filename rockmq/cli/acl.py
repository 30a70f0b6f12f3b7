"""The commands `rockmq acl …`: their words and options, as in `main`."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Who may do what.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _group() -> None:
    pass


@app.command()
def explain(
    user: Annotated[str, typer.Argument(metavar="USER", show_default=False, help="The user, or its access key.")],
    action: Annotated[
        str, typer.Argument(metavar="ACTION", show_default=False, help="Pub, Sub, Create, Update, Delete, Get or List.")
    ],
    resource: Annotated[
        str, typer.Argument(metavar="RESOURCE", show_default=False, help="Topic:NAME, Group:NAME or Cluster:NAME.")
    ],
    ip: Annotated[str, typer.Option(metavar="IP", help="Where the request comes from.")] = "127.0.0.1",
    broker: Annotated[str | None, typer.Option("--broker", "-b", metavar="HOST:PORT", help="The broker to ask.")] = None,
    home: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Look at conf/plain_acl.yml and conf/acl/ in here instead (ACL 1.0).")
    ] = None,
) -> None:
    """Say whether a user may do something, and which rule says so. Exit code 1 when not.

    The broker is asked with ROCKMQ_ACCESS_KEY and ROCKMQ_SECRET_KEY.
    """
    from rockmq.cli import acl_explain
    from rockmq.cli.main import exit_with

    exit_with(lambda: acl_explain.run(user, action, resource, ip, broker=broker, home=home))
