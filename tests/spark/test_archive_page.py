"""docs/pipeline/archive.md tells what is so: its program prints what the page says, and its options are there."""

import asyncio
import contextlib
import io
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from rockmq.cli.main import app
from rockmq.client import Message
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import keys
from tests.spark.conftest import create, fill
from tests.support.cluster import Cluster

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline" / "archive.md").read_text(encoding="utf-8")
SHOWN = "127.0.0.1:9876"


def test_the_program_prints_what_the_page_says(
    spark: SparkSession, server: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (printed,) = re.findall(r"```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    messages = [Message("", b"%d" % at, tag="paid" if at % 7 else "cancelled") for at in range(1_000)]
    asyncio.run(create(server.namesrv, "sales", 4))
    asyncio.run(fill(server.namesrv, "sales", {queue: messages[queue::4] for queue in range(4)}))
    monkeypatch.chdir(tmp_path)
    assert SHOWN in program

    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(program.replace(SHOWN, server.namesrv), "<page>", "exec"), {"__name__": "__main__"})

    assert out.getvalue() == printed


@pytest.mark.parametrize("command", ["archive", "compact"])
def test_options_are_on_the_page(command: str) -> None:
    told = CliRunner().invoke(app, ["pipeline", command, "--help"], env={"COLUMNS": "200"}).stdout
    own = set(re.findall(r"--[a-z-]+", told)) - {"--namesrv", "--ledger", "--json", "--help", "--spark-conf"}

    assert {option for option in own if option not in PAGE} == set()


def test_keys_of_the_broker_are_on_the_page() -> None:
    named = set(re.findall(r"`(retention\w+)`", PAGE))

    assert {"retentionGroups", "retentionGroupsDiskRatio", "retentionGroupsBytes"} <= named <= keys(BrokerOptions).keys()
