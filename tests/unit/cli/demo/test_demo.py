import csv
import os
from pathlib import Path

import pytest

from tests.support.jars import QUICK_START
from tests.unit.cli.conftest import Command

ORDERS = 2_000


@pytest.mark.spark
async def test_the_demo_reconciles_and_says_where_the_files_are(
    rockmq: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", " ".join(QUICK_START))
    folder = tmp_path / "demo"
    ended = await rockmq("demo", "--orders", str(ORDERS), "--dir", str(folder), timeout=300)
    assert ended.code == 0, ended.out + ended.err
    assert "the server is killed (SIGKILL)" in ended.out
    assert " NO " not in ended.out
    assert "archived to Parquet" in ended.out
    with (folder / "acknowledged.csv").open() as file:
        assert [int(row["order"]) for row in csv.DictReader(file)] == list(range(ORDERS))
    assert list((folder / "archive" / "orders").glob("dt=*/*.parquet"))
    assert (folder / "store" / "commitlog").is_dir()


async def test_a_folder_that_holds_something_is_left_alone(rockmq: Command, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    ended = await rockmq("demo", "--dir", str(tmp_path))
    assert ended.code == 1
    assert "isn't empty" in ended.err
    assert os.listdir(tmp_path) == ["mine"]
