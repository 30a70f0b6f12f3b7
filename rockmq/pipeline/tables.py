"""Tables that jobs write for their readers, as Parquet below a directory that driver and executors share.

    <directory>/<table>/part-….parquet            `overwrite`: what Spark writes, the table as a whole
    <directory>/<table>/<window, UTC>.parquet     `overwrite_windows`: a file for each window of time

Either way a job that runs again leaves what one run leaves.
"""

import os
import socket
import uuid
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rockmq.base.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOW = "window"
_MARK = "is_mark"
_TIME = pa.timestamp("us", tz="UTC")


def overwrite(frame: "DataFrame", directory: Path, table: str) -> int:
    """Replace a table by the rows of a frame; how many. Raises ConfigError when executors have another directory."""
    directory.mkdir(parents=True, exist_ok=True)
    path = (directory / table).resolve()
    frame.write.mode("overwrite").parquet(f"file://{path}")
    files = list(path.glob("*.parquet"))
    if not files:
        raise ConfigError(f"executors don't write to the {path} that this process sees; it has to be a shared directory")
    return sum(pq.read_metadata(file).num_rows for file in files)


def rows(
    directory: Path, table: str, order: str, most: int | None = None, *, descending: bool = False
) -> list[dict[str, Any]]:
    """The first rows of a table that `overwrite` has written, times as milliseconds since the epoch."""
    found = pq.read_table(directory / table)
    found = found.sort_by([(order, "descending" if descending else "ascending")]).slice(0, most)
    for place, field in enumerate(found.schema):
        if pa.types.is_timestamp(field.type):
            column = found.column(place).cast(pa.timestamp("ms", tz=field.type.tz), safe=False).cast(pa.int64())
            found = found.set_column(place, field.name, column)
    return list(found.to_pylist())


def overwrite_windows(frame: "DataFrame", windows: "DataFrame", directory: Path, table: str) -> int:
    """Replace the windows of a table; the number of rows. The other windows stay.

    Column `window` (timestamp) of `frame` says where a row belongs. Each window of `windows`, which has that column alone,
    gets a file, though the frame had no row for it. Raises ConfigError when executors have another directory.
    """
    from pyspark.sql import functions as F

    folder = (directory / table).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    marked = frame.withColumn(_MARK, F.lit(False)).unionByName(
        windows.select(WINDOW).distinct().withColumn(_MARK, F.lit(True)), allowMissingColumns=True
    )

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not folder.is_dir():
            raise ConfigError(f"{folder} isn't there on {socket.gethostname()}; it has to be a directory that all share")
        counts = pa.array(list(_write(batches, folder)), pa.int64())
        yield pa.RecordBatch.from_pydict({"rows": counts})

    order = [WINDOW, *(name for name in frame.columns if name != WINDOW)]
    written = marked.repartition(F.col(WINDOW)).sortWithinPartitions(*order).mapInArrow(work, "rows bigint")
    return sum(row["rows"] for row in written.collect())


def _write(batches: Iterator[pa.RecordBatch], folder: Path) -> Iterator[int]:
    """Write rows that are sorted by window; how many there are in each."""
    current: _File | None = None
    try:
        for batch in batches:
            for window, rows in _by_window(batch):
                if current is None or current.window != window:
                    if current is not None:
                        yield current.finish()
                    current = _File(folder, window, _in_utc(batch.schema))
                current.add(rows)
        if current is not None:
            yield current.finish()
            current = None
    finally:
        if current is not None:
            current.abandon()


def _by_window(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The batch cut where the window changes; windows in microseconds since the epoch."""
    windows = np.asarray(batch.column(batch.schema.get_field_index(WINDOW)).cast(pa.int64()))
    if not len(windows):
        return
    edges = [0, *(np.flatnonzero(np.diff(windows)) + 1).tolist(), len(windows)]
    for start, end in pairwise(edges):
        yield int(windows[start]), batch.slice(start, end - start)


def _in_utc(schema: pa.Schema) -> pa.Schema:
    """The columns of a file: those of the batch but for the mark, with times in no session's time zone."""
    fields = [field for field in schema if field.name != _MARK]
    return pa.schema([field.with_type(_TIME) if pa.types.is_timestamp(field.type) else field for field in fields])


class _File:
    """A window's file; it appears when it is whole."""

    def __init__(self, folder: Path, window: int, schema: pa.Schema) -> None:
        self.window = window
        name = str(np.datetime64(window, "us").astype("datetime64[s]")).replace(":", "").replace("-", "") + "Z"
        self._path = folder / f"{name}.parquet"
        self._temporary = folder / f".{name}-{uuid.uuid4().hex}.tmp"
        self._schema = schema
        self._writer = pq.ParquetWriter(self._temporary, schema, compression="zstd")
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        rows = rows.filter(pc.invert(rows.column(rows.schema.get_field_index(_MARK))))
        self._rows += rows.num_rows
        self._writer.write_table(pa.Table.from_batches([rows]).select(self._schema.names).cast(self._schema))

    def finish(self) -> int:
        self._writer.close()
        os.replace(self._temporary, self._path)
        return self._rows

    def abandon(self) -> None:
        self._writer.close()
        self._temporary.unlink(missing_ok=True)
