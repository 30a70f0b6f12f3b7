"""Queues and index made anew from the log, for a store whose broker doesn't run (DefaultMessageStore.recover).

The new directories are made beside the old ones, forced, and put in their place at once; the old ones go last. Whenever it
is broken off, the store is the old one or the new one, and the next repair clears away what was left over.

The log is only read, unless its torn tail is to be cut: that is what recovery cuts too, the bytes behind the last record
of the last file when no record follows. A damage with records behind it is never cut: those are put into queues like all.
What was read is then vouched for by the checkpoint, so that the next start cuts nothing of it either. A log that ends before
the checkpoint says has lost messages; that it shall end there is a decision, so only `cut` brings the checkpoint down.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from rockmq import _core
from rockmq.base.errors import ConfigError
from rockmq.base.files import sync_directory
from rockmq.store import batch_topics
from rockmq.store.checkpoint import Checkpoint
from rockmq.store.files import StoreLock
from rockmq.store.layout import Layout, index_files
from rockmq.store.verify import STEP_BYTES, Progress, steps

NEW = ".repair"
"""Behind the name of a directory that is being made, and of the old one after the exchange."""
TORN = ("torn", "tail")


@dataclass
class Repaired:
    """What was done. `tail` is (path, byte) of a torn tail, which was cut or not; `lost_until` is the position up to which
    the log was whole once, if it ends before and was left so."""

    records: int = 0
    end: int = 0
    queues: int = 0
    batch_queues: int = 0
    index_files: int = 0
    damaged: "list[_core.Fault]" = field(default_factory=list)
    tail: tuple[Path, int] | None = None
    is_cut: bool = False
    lost_until: int | None = None


def plan(layout: Layout) -> list[str]:
    """What `repair` will do, in words."""
    log = " and ".join(map(str, layout.log_directories))
    index = f"{len(index_files(layout.index_directory))} files in {layout.index_directory}"
    return [
        f"read the log {log}, {len(layout.log_files)} files from position {layout.log_min} on",
        f"make {layout.queues} anew",
        *([f"make {layout.batch_queues} anew"] if layout.batch_queues.is_dir() else []),
        f"make the index anew: {index}" if layout.index_sizes else f"leave the index alone: {index}, sizes unknown",
    ]


def repair(layout: Layout, progress: Progress, *, cut: bool, say: Callable[[str], None]) -> Repaired:
    """Rebuild; with `cut`, cut a torn tail off the log first. Raises ConfigError when a broker has the store, and when files
    of the log are missing between others."""
    for (before, _), (base, _) in pairwise(layout.log_files):
        if base != before + layout.log_file_size:
            # What is made from half of a log would hide the other half when that is there again.
            raise ConfigError(
                f"{layout.root} can't be repaired: files are missing between {layout.log_file(before)} and "
                f"{layout.log_file(base)}. Put them back from a copy; if the log has several directories, give the broker's "
                "configuration"
            )
    lock = StoreLock(layout.root / "lock")
    try:
        return _repair(layout, progress, cut=cut, say=say)
    except _core.StoreError as error:
        raise ConfigError(f"{layout.root} can't be repaired, and is as it was: {error}") from None
    finally:
        lock.release()


def _repair(layout: Layout, progress: Progress, *, cut: bool, say: Callable[[str], None]) -> Repaired:
    pairs = [(each, beside(each)) for each in (layout.queues, layout.batch_queues)]
    if layout.index_sizes is not None:
        pairs.append((layout.index_directory, beside(layout.index_directory)))
    for _, new in pairs:
        if new.exists():
            say(f"clearing away {new}, left over from a repair that was broken off")
            shutil.rmtree(new)
    named = batch_topics.documented(layout.root)
    now = datetime.now().astimezone()
    rebuild = _core.Rebuild(
        list(map(str, layout.log_directories)),
        str(layout.queues),
        str(beside(layout.queues)),
        str(layout.batch_queues),
        str(beside(layout.batch_queues)),
        str(beside(layout.index_directory)),
        log_file_size=layout.log_file_size,
        queue_file_size=layout.queue_file_size,
        batch_queue_file_size=layout.batch_queue_file_size,
        index_layout=layout.index_sizes,
        name=f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}",
        delay_levels=layout.delay_levels,
        # Only a broker knows whether light queues were wanted that aren't there.
        all_light=Checkpoint.load(layout.root / "checkpoint").had_light_queues,
        batch_topics=named.names,
        batch_topics_at=named.at,
    )
    done = _read(rebuild, layout, progress)
    if done.tail is not None and cut:
        _cut(done.tail, layout.log_file_size)
        done.is_cut = True
        say(f"cut the torn tail of {done.tail[0]} from byte {done.tail[1]} on")
    done.queues, done.batch_queues, done.index_files = rebuild.finish(layout.log_min)
    if not layout.batch_queues.exists() and not any(beside(layout.batch_queues).iterdir()):
        beside(layout.batch_queues).rmdir()  # no broker has had any here
        del pairs[1]
    for old, new in pairs:
        old.mkdir(exist_ok=True)
        _core.exchange(str(old), str(new))
        say(f"put {old} in place, {'index' if old == layout.index_directory else 'queues'} made from {done.records} records")
    for _, new in pairs:
        shutil.rmtree(new)
    sync_directory(layout.root)
    _vouch(layout, done, cut=cut)
    return done


def _vouch(layout: Layout, done: Repaired, *, cut: bool) -> None:
    """Let the next start begin where what was read ends."""
    path = layout.root / "checkpoint"
    checkpoint = Checkpoint.load(path)
    if checkpoint.position is not None and checkpoint.position > done.end and not cut:
        done.lost_until = checkpoint.position
        return
    for base, _ in layout.log_files:
        with open(layout.log_file(base), "rb") as file:
            os.fsync(file.fileno())
    checkpoint.position = done.end
    checkpoint.had_queues, checkpoint.had_batch_queues = done.queues > 0, done.batch_queues > 0
    checkpoint.save(path)
    sync_directory(layout.root)


def beside(directory: Path) -> Path:
    return directory.with_name(directory.name + NEW)


def _read(rebuild: _core.Rebuild, layout: Layout, progress: Progress) -> Repaired:
    done = Repaired(end=layout.log_min)
    total = len(layout.log_files) * layout.log_file_size
    for number, (base, behind) in enumerate(steps(layout, None)):
        at, ended = base, False
        while at < behind and not ended:
            at, ended, records, faults, _ = rebuild.step(at, min(at + STEP_BYTES, behind))
            if records and done.tail is not None:
                done.tail = None  # there is more behind it, so it isn't a tail
            done.records += records
            done.end = at if records or not ended else done.end
            done.damaged += faults
            if faults and faults[-1][0] in TORN:
                done.tail = Path(faults[-1][1]), faults[-1][2]
            progress(number * layout.log_file_size + at - base, total)
    return done


def _cut(tail: tuple[Path, int], size: int) -> None:
    """Shortening a file and extending it again makes its end zero without writing, as recovery does."""
    path, byte = tail
    with open(path, "r+b") as file:
        file.truncate(byte)
        file.truncate(size)
        os.fsync(file.fileno())
