"""docs/pipeline/: the program that keeps ledgers runs as it stands, but for the address, and what it notes can be compared;
each page names every option of its command."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rockmq.cli.main import app
from rockmq.pipeline.comparing import Sources, compare
from rockmq.pipeline.reconcile import FAULTS
from tests.spark.pages import not_named, page
from tests.spark.test_batch_read import Topic
from tests.support.cluster import Cluster


def test_the_program_that_keeps_ledgers(
    spark: SparkSession, server: Cluster, topic: Topic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", page("reconcile"), re.DOTALL)
    name = topic(queues=4)
    monkeypatch.chdir(tmp_path)
    program = (
        code.replace("127.0.0.1:9876", server.namesrv)
        .replace('"orders"', repr(name))
        .replace('"billing"', repr(f"{name}-g"))
    )
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(program, "<page>", "exec"), {"__name__": "__main__"})

    ledgers = {"sent": f"ledger:{tmp_path}/sent.jsonl", "consumed": f"ledger:{tmp_path}/consumed.jsonl"}
    found = compare(
        spark, Sources(topic=name, name_server=server.namesrv, **ledgers), tmp_path / "checked", late_seconds=600
    )

    assert (found.sent, found.stored, found.consumed, found.clean) == (100, 100, 100, True)


def test_the_page_names_every_fault() -> None:
    table = page("reconcile").partition("## Ledgers")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(FAULTS)


@pytest.mark.parametrize("name", ["reconcile", "trace", "lag", "profile"])
def test_a_page_names_every_option(name: str) -> None:
    assert not_named(name) == set()
    assert CliRunner().invoke(app, ["pipeline", name, "--help"]).exit_code == 0
