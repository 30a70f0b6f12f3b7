"""An archived topic as a Delta table as well: <topic>/_delta_log (github.com/delta-io/delta, PROTOCOL.md).

The table's files are the archive's own, so nothing is written twice. A commit of the table for each run of the archive names
what the run has added, and what it has put together into others; the run's number is the commit's transaction (`txn`), so a
run is committed once however often it is tried. `deltalake` makes and reads tables; it has no call that puts files in the
place of others, so commits are written here: a text in JSON under the next number, which only one can take.
"""

import os
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import msgspec
import pyarrow as pa

from rockmq.base import files
from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ConfigError
from rockmq.pipeline.manifest import ArchivedFile, ArchivedTopic
from rockmq.spark import schema

if TYPE_CHECKING:
    from deltalake import DeltaTable

APPLICATION = "rockmq-archive"
CHECKPOINT_COMMITS = 10
"""So often the table's state is saved as a whole, so that readers needn't read all commits."""
_LOG = "_delta_log"


def check() -> None:
    """Raises ConfigError when `deltalake` isn't there."""
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"deltalake can't be imported ({error}); install it with: pip install 'rockmq[delta]'") from None


def is_table(root: Path) -> bool:
    # The folder is made before the first commit in it.
    return any((root / _LOG).glob("[0-9]*"))


def catch_up(root: Path, clock: Clock | None = None) -> None:
    """Commit the archive's runs that the table doesn't have; make the table, if there is none. Raises ConfigError."""
    check()
    from deltalake.exceptions import DeltaError

    try:
        _commit_runs(root, clock or SystemClock())
    except DeltaError as error:
        raise ConfigError(f"{root / _LOG} is no log of a Delta table: {error}") from None
    except OSError as error:
        raise ConfigError(f"the Delta table {root} can't be kept: {error}") from None


def _commit_runs(root: Path, clock: Clock) -> None:
    table = _opened(root)
    while True:
        done = table.transaction_version(APPLICATION) or 0
        behind = ArchivedTopic(root).runs(done)
        if not behind:
            return
        number, is_all, lines = behind[0]
        known = {unquote(path) for path in pa.table(table.get_add_actions()).column("path").to_pylist()}
        listed = {each.path for each in lines}
        gone = sorted(known - listed) if is_all else []
        # Where files were only put together the rows aren't new, and readers of changes pass over them.
        actions = _actions(
            number, [each for each in lines if each.path not in known], gone, clock, not is_all or number > done + 1
        )
        version = table.version() + 1
        if _commit(root, version, actions) and version % CHECKPOINT_COMMITS == 0:
            table.update_incremental()
            table.create_checkpoint()
        else:
            table.update_incremental()


def _opened(root: Path) -> "DeltaTable":
    from deltalake import DeltaTable

    if is_table(root):
        return DeltaTable(root)
    columns = schema.ARROW.append(pa.field("dt", pa.string()))
    return DeltaTable.create(root, columns, mode="ignore", partition_by=["dt"], name=root.name)


def _actions(number: int, added: list[ArchivedFile], gone: list[str], clock: Clock, data_change: bool) -> list[object]:
    now = clock.now_ms()
    operation = "OPTIMIZE" if gone else "WRITE"
    return [
        {"commitInfo": {"timestamp": now, "operation": operation, "operationParameters": {}, "engineInfo": "rockmq"}},
        {"txn": {"appId": APPLICATION, "version": number, "lastUpdated": now}},
        *({"remove": {"path": quote(path), "deletionTimestamp": now, "dataChange": data_change}} for path in gone),
        *(
            {
                "add": {
                    "path": quote(each.path),
                    "partitionValues": {"dt": each.day},
                    "size": each.bytes,
                    "modificationTime": now,
                    "dataChange": data_change,
                    "stats": _stats(each),
                }
            }
            for each in added
        ),
    ]


def _stats(each: ArchivedFile) -> str:
    """By which readers pass over files."""
    least = {
        "broker": each.broker,
        "queueId": each.queue_id,
        "queueOffset": each.start,
        "storeTimestamp": _time(each.min_store_timestamp),
    }
    most = least | {"queueOffset": each.end - 1, "storeTimestamp": _time(each.max_store_timestamp)}
    return msgspec.json.encode({"numRecords": each.rows, "minValues": least, "maxValues": most, "nullCount": {}}).decode()


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _commit(root: Path, version: int, actions: list[object]) -> bool:
    """False when another program has taken the number. Raises OSError."""
    folder = root / _LOG
    fresh = folder / f".{uuid.uuid4().hex}.tmp"
    with fresh.open("wb") as file:
        file.writelines(msgspec.json.encode(action) + b"\n" for action in actions)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(fresh, folder / f"{version:020}.json")
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    files.sync_directory(folder)
    return True
