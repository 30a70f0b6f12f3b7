"""The data source in a PySpark that is older than the newest: what that hasn't got is said with the version that has it."""

import sys

import pyspark
import pytest
from pyspark.sql.types import StructType

from rockmq.base.errors import NotSupported
from rockmq.spark.source import RockMQSource

SCHEMA = StructType().add("body", "binary")
WHERE = {"nameServer": "a:1", "topic": "orders"}


@pytest.fixture
def in_4_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came with 4.1 and 4.2 isn't there."""
    monkeypatch.setitem(sys.modules, "pyspark.sql.streaming.datasource", None)
    for name in ("DataSourceStreamArrowWriter", "EqualTo"):
        monkeypatch.delattr(f"pyspark.sql.datasource.{name}")
    for name in ("stream_reader", "stream_writer", "pushdown"):
        monkeypatch.delitem(sys.modules, f"rockmq.spark.{name}", raising=False)


@pytest.mark.usefixtures("in_4_0")
def test_streams_and_pushed_filters_name_the_spark_that_they_need() -> None:
    this_is = f"this is {pyspark.__version__}"
    with pytest.raises(NotSupported, match=f"streaming reads need Spark 4.2 or later, {this_is}"):
        RockMQSource(WHERE).streamReader(SCHEMA)
    with pytest.raises(NotSupported, match=f"streaming writes need Spark 4.1 or later, {this_is}"):
        RockMQSource({**WHERE, "checkpointLocation": "/c"}).streamWriter(SCHEMA, overwrite=False)
    with pytest.raises(NotSupported, match=f"option 'pushFilters' needs Spark 4.1 or later, {this_is}"):
        RockMQSource({**WHERE, "pushFilters": "true"}).reader(SCHEMA)


@pytest.mark.usefixtures("in_4_0")
def test_batches_need_nothing_of_that() -> None:
    assert RockMQSource(WHERE).reader(SCHEMA)
    assert RockMQSource(WHERE).writer(SCHEMA, overwrite=False)


def test_another_package_that_is_missing_is_no_old_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rockmq.spark.watching", None)
    monkeypatch.delitem(sys.modules, "rockmq.spark.stream_reader", raising=False)

    with pytest.raises(ImportError, match=r"rockmq\.spark\.watching"):
        RockMQSource(WHERE).streamReader(SCHEMA)
