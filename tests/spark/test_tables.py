"""The archive as a table of others: Delta by `deltalake`, DuckDB and Polars by the manifest."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from rockmq.base.errors import ConfigError
from rockmq.pipeline import delta
from rockmq.pipeline.archive import manifest, paths
from rockmq.pipeline.manifest import ArchivedTopic
from rockmq.spark.schema import ARROW
from tests.spark.test_compact import COUNT, TOPIC, archived, compacted
from tests.spark.test_compact import _one_process as _one_process
from tests.spark.test_store import closed

__all__ = ["closed"]


def rows(root: Path) -> pa.Table:
    return DeltaTable(root).to_pyarrow_table().sort_by("queueOffset")


def test_a_delta_table_has_what_the_archive_has(closed: Path, tmp_path: Path) -> None:
    root = tmp_path / TOPIC
    archived(closed, tmp_path, 12, delta=True)
    archived(closed, tmp_path)  # once a table, always a table

    table = rows(root)

    assert table.column("queueOffset").to_pylist() == list(range(COUNT))
    assert table.schema.names == [*ARROW.names, "dt"]
    assert table.column("body").to_pylist()[:3] == [b"0", b"1", b"2"]
    assert DeltaTable(root).transaction_version(delta.APPLICATION) == 2


def test_a_run_that_is_committed_again_adds_nothing(closed: Path, tmp_path: Path) -> None:
    archived(closed, tmp_path, delta=True)
    before = DeltaTable(tmp_path / TOPIC).version()

    archived(closed, tmp_path, delta=True)
    delta.catch_up(tmp_path / TOPIC)

    assert DeltaTable(tmp_path / TOPIC).version() == before
    assert rows(tmp_path / TOPIC).num_rows == COUNT


def test_a_table_that_comes_later_or_was_left_behind_catches_up(closed: Path, tmp_path: Path) -> None:
    archived(closed, tmp_path, 12)
    compacted(tmp_path, keep_seconds=0)
    archived(closed, tmp_path)

    delta.catch_up(tmp_path / TOPIC)

    assert rows(tmp_path / TOPIC).column("queueOffset").to_pylist() == list(range(COUNT))


def test_what_was_put_together_is_replaced_in_the_table_before_it_goes(closed: Path, tmp_path: Path) -> None:
    root = tmp_path / TOPIC
    archived(closed, tmp_path, delta=True)

    compacted(tmp_path, keep_seconds=0)

    assert [Path(uri).name for uri in DeltaTable(root).file_uris()] == [Path(path).name for path in paths(tmp_path, TOPIC)]
    assert len(paths(tmp_path, TOPIC)) == 1
    assert rows(root).num_rows == COUNT
    assert ArchivedTopic(root).last()[0] == DeltaTable(root).transaction_version(delta.APPLICATION)


def test_what_a_table_says_of_files_lets_readers_pass_over_them(closed: Path, tmp_path: Path) -> None:
    archived(closed, tmp_path, delta=True)
    actions = pa.table(DeltaTable(tmp_path / TOPIC).get_add_actions(flatten=True)).to_pylist()

    said = {(each["min.queueOffset"], each["max.queueOffset"], each["num_records"]) for each in actions}

    assert said == {(each.start, each.end - 1, each.rows) for each in manifest(tmp_path, TOPIC)}


def test_a_log_that_is_none_is_told(closed: Path, tmp_path: Path) -> None:
    archived(closed, tmp_path)
    (tmp_path / TOPIC / "_delta_log").mkdir()
    (tmp_path / TOPIC / "_delta_log" / f"{0:020}.json").write_text("{")

    with pytest.raises(ConfigError, match="_delta_log is no log of a Delta table"):
        archived(closed, tmp_path, delta=True)


def test_a_table_of_which_only_the_folder_was_made_is_made(closed: Path, tmp_path: Path) -> None:
    archived(closed, tmp_path)
    (tmp_path / TOPIC / "_delta_log").mkdir()

    archived(closed, tmp_path, delta=True)

    assert rows(tmp_path / TOPIC).num_rows == COUNT


def test_a_missing_package_is_told_with_the_command(closed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)

    with pytest.raises(ConfigError, match=r"pip install 'rockmq\[delta\]'"):
        archived(closed, tmp_path, delta=True)


def test_spark_reads_what_counts(spark: SparkSession, closed: Path, tmp_path: Path) -> None:
    archived(closed, tmp_path)

    frame = spark.read.option("basePath", str(tmp_path / TOPIC)).parquet(*paths(tmp_path, TOPIC))

    assert frame.count() == COUNT
    assert frame.columns[-1] == "dt"
