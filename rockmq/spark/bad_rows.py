"""Rows that can't be sent, as Parquet files: the columns of the write, and `reason`.

A file is named by batch and partition, so that a replay writes it again instead of another one, and appears when its task
has ended.
"""

import os
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rockmq.base.errors import InvalidMessage

REASON = "reason"


class BadRows:
    """Those of one task. Without a directory the first one is an InvalidMessage that names the row."""

    def __init__(self, directory: str, file_name: str) -> None:
        self._path = Path(directory) / f"{file_name}.parquet" if directory else None
        self._temporary = Path(directory) / f".{file_name}.{uuid.uuid4().hex}.tmp"
        self._writer: pq.ParquetWriter | None = None
        self.count = 0

    def add(self, batch: pa.RecordBatch, first: int, faults: list[tuple[int, str]]) -> None:
        """Rows of a batch, whose first row is number `first` of its partition. Raises InvalidMessage, OSError."""
        if not faults:
            return
        if self._path is None:
            row, reason = min(faults)
            raise InvalidMessage(
                f"row {first + row} of the partition{_shown(batch, row)} can't be sent: {reason}; "
                "option badRows=DIR writes such rows there and sends the others"
            )
        faults = sorted(faults)
        rows = batch.take(pa.array([row for row, _ in faults], pa.int64()))
        table = pa.Table.from_batches([rows]).append_column(REASON, pa.array([reason for _, reason in faults], pa.string()))
        if self._writer is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._temporary, table.schema, compression="zstd")
        self._writer.write_table(table)
        self.count += len(faults)

    def finish(self) -> None:
        """Have the file appear, if there is one."""
        if self._writer is not None and self._path is not None:
            self._writer.close()
            os.replace(self._temporary, self._path)
            self._writer = None

    def abandon(self) -> None:
        """Leave nothing behind of a task that failed."""
        if self._writer is not None:
            self._writer.close()
            self._temporary.unlink(missing_ok=True)


def _shown(batch: pa.RecordBatch, row: int) -> str:
    """What a row can be found by."""
    names = [name for name in ("topic", "keys", "shardingKey") if name in batch.schema.names]
    said = [f"{name} {batch.column(batch.schema.get_field_index(name))[row].as_py()!r}"[:200] for name in names]
    return f" ({', '.join(said)})" if said else ""
