"""Whether a store directory is what it should be: log, queues, index, checkpoint, documents. Reads, and writes nothing.

Every record is read and its CRC compared (store spec, 2.1); every queue entry has to lead to the record of that topic, queue
and offset, with its size and tags code, and every record has to have one (3.1); every index entry has to lead to a record
with that key, through chains that end (3.5). The core reads; here is the order of files, and what is a fault of the whole.

With a broker running the check ends where the log ended when it began.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rockmq import _core
from rockmq.base.errors import ConfigError, ProtocolError
from rockmq.protocol import json
from rockmq.store.checkpoint import SIZE, Checkpoint
from rockmq.store.layout import Layout, log_files

STEP_BYTES = 32 << 20
FINDINGS_MAX = 1000
"""Findings that are kept; those over it are only counted."""
SETTLE_SECONDS = 2.0
"""How long a running broker is given to write the queue entries of what is checked (flushIntervalConsumeQueue)."""
DAY_MS = 86_400_000

Progress = Callable[[int, int], None]
"""Told how many bytes of how many were checked."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong: at this byte of this file (below the store's root), what should be there, and what is.

    `count` is how many bytes of the log, or how many entries, have this one fault.
    """

    kind: str
    file: str
    byte: int
    count: int
    expected: str
    found: str
    topic: str | None = None
    queue_id: int | None = None


@dataclass
class Report:
    """What was checked and what was found. `end` is the position behind the last record."""

    layout: Layout
    findings: list[Finding] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    end: int = 0
    records: int = 0
    queues: int = 0
    queue_entries: int = 0
    index_files: int = 0
    index_entries: int = 0
    documents: int = 0
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        return not self.kinds

    def add(self, finding: Finding) -> None:
        self.kinds[finding.kind] += 1
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)

    def add_told(self, told: "list[_core.Fault]", more: int) -> None:
        for kind, path, byte, count, expected, found, queue in told:
            topic, queue_id = queue or (None, None)
            self.add(Finding(kind, self.name(Path(path)), byte, count, expected, found, topic, queue_id))
        if more:
            self.kinds["not shown"] += more

    def name(self, path: Path) -> str:
        return str(path.relative_to(self.layout.root) if path.is_relative_to(self.layout.root) else path)


def verify(layout: Layout, progress: Progress) -> Report:
    """Check everything. Raises ConfigError for a file that can't be opened."""
    try:
        return _verify(layout, progress)
    except (_core.StoreError, OSError) as error:
        raise ConfigError(f"{layout.root} can't be checked: {error}") from None


def _verify(layout: Layout, progress: Progress) -> Report:
    started = time.monotonic()
    report = Report(layout)
    end: int | None = None
    if layout.is_running:
        end = log_end(layout)
        time.sleep(SETTLE_SECONDS)
        report.notes.append(f"a broker is running: checked up to position {end}, where the log ended when this began")
    elif layout.was_killed:
        report.notes.append("the last broker was killed: its next start recovers, and mends what a kill leaves behind")
    topics = _check_documents(report)
    _check_checkpoint(report)
    _check_log_files(report)
    check = _core.Check(
        list(map(str, layout.log_directories)),
        str(layout.queues),
        str(layout.index_directory),
        log_file_size=layout.log_file_size,
        queue_file_size=layout.queue_file_size,
        batch_queue_file_size=layout.batch_queue_file_size,
        index_layout=layout.index_sizes,
        min=layout.log_min,
        behind=end,
        delay_levels=layout.delay_levels,
    )
    if layout.index_sizes is None:
        report.notes.append("the index wasn't checked: its sizes can't be told without the broker's configuration")
    _walk(check, report, end, progress)
    _check_reach(report)
    counts, told, more = check.finish()
    report.queues, report.queue_entries, report.index_files, report.index_entries = counts
    _add_queue_faults(report, told, more, topics)
    report.seconds = time.monotonic() - started
    return report


def log_end(layout: Layout) -> int:
    """Where the log ends now: behind the last record of the newest file that has one."""
    reader = _core.LogReader(list(map(str, layout.log_directories)), file_size=layout.log_file_size)
    for base, _ in reversed(log_files(layout.log_directories)):
        at, ended = base, False
        while at < base + layout.log_file_size and not ended:
            at, ended, *_ = reader.read(at, base + layout.log_file_size, bytes_max=1, topic="")
        if at > base:
            return at
    return layout.log_min


def steps(layout: Layout, end: int | None) -> Iterator[tuple[int, int]]:
    """(first position, position behind) of each log file, up to `end`."""
    for base, _ in layout.log_files:
        if end is None or base < end:
            behind = base + layout.log_file_size
            yield base, behind if end is None else min(behind, end)


def _walk(check: _core.Check, report: Report, end: int | None, progress: Progress) -> None:
    layout = report.layout
    total = len(layout.log_files) * layout.log_file_size
    hole: tuple[str, int] | None = None
    for number, (base, behind) in enumerate(steps(layout, end)):
        at, ended = base, False
        while at < behind and not ended:
            try:
                at, ended, records, told, more = check.step(at, min(at + STEP_BYTES, behind))
            except _core.StoreError:
                path = layout.log_file(base)
                if not layout.is_running or path.exists():
                    raise
                report.notes.append(f"{report.name(path)} was deleted by the broker meanwhile")
                break
            if hole is not None and records:
                report.add(Finding("record", *hole, 1, "a record or a blank", "nothing, but records in later files"))
                hole = None
            report.add_told(told, more)
            report.records += records
            if records or not ended:
                report.end = at
            progress(number * layout.log_file_size + at - base, total)
        if ended and hole is None:
            hole = report.name(layout.log_file(base)), at - base


def _add_queue_faults(report: Report, told: "list[_core.Fault]", more: int, topics: set[str] | None) -> None:
    """Records of topics that were deleted need no queues."""
    kept, deleted = [], set()
    for fault in told:
        kind, *_, queue = fault
        is_gone = queue is not None and topics is not None and queue[0] not in topics
        roots = report.layout.queues, report.layout.batch_queues
        if (
            kind == "queue missing"
            and queue is not None
            and is_gone
            and not any((root / queue[0]).exists() for root in roots)
        ):
            deleted.add(queue[0])
        else:
            kept.append(fault)
    report.add_told(kept, more)
    if deleted:
        report.notes.append(f"the log has records of topics that were deleted: {', '.join(sorted(deleted))}")


def _check_log_files(report: Report) -> None:
    size, expected = report.layout.log_file_size, None
    for base, length in report.layout.log_files:
        name = report.name(report.layout.log_file(base))
        if length != size:
            report.add(Finding("log file", name, 0, 1, f"{size} bytes, as the others", f"{length}"))
        if base % size or (expected is not None and base != expected):
            wanted = base - base % size if expected is None else expected
            report.add(Finding("log file", name, 0, 1, f"a file that begins at {wanted}", f"{base}"))
        expected = base + size


def _check_checkpoint(report: Report) -> None:
    path = report.layout.root / "checkpoint"
    if not path.exists():
        report.notes.append("there is no checkpoint: a start after a kill reads the whole log")
        return
    report.documents += 1
    length = path.stat().st_size
    if length != SIZE:
        report.add(Finding("checkpoint", "checkpoint", 0, 1, f"{SIZE} bytes", f"{length}"))
        return
    checkpoint = Checkpoint.load(path)
    latest = time.time() * 1000 + DAY_MS
    for byte, name in ((0, "physic"), (8, "logics"), (16, "index")):
        value: int = getattr(checkpoint, name)
        if not 0 <= value <= latest:
            report.add(Finding("checkpoint", "checkpoint", byte, 1, f"the {name} time, not in the future", f"{value}"))


def _check_reach(report: Report) -> None:
    """Whether the log goes as far as it once was on disk; a running broker's start has seen to that."""
    position = Checkpoint.load(report.layout.root / "checkpoint").position
    end = max(report.end, report.layout.log_min)
    if position is not None and position > end and not report.layout.is_running:
        report.add(Finding("checkpoint", "checkpoint", 40, 1, f"a log up to {position}", f"one that ends at {end}"))


def _check_documents(report: Report) -> set[str] | None:
    """Read the configuration documents; the topics that there are, None when that can't be told."""
    topics: set[str] | None = None
    directory = report.layout.root / "config"
    for path in sorted(directory.glob("*.json")) if directory.is_dir() else ():
        report.documents += 1
        name = report.name(path)
        try:
            document = json.decode(path.read_bytes(), dict[str, object], name)
        except (ProtocolError, OSError) as error:
            report.add(Finding("document", name, 0, 1, "a JSON object", str(error)))
            continue
        table = document.get("topicConfigTable")
        if path.name == "topics.json" and isinstance(table, dict):
            topics = set(table)
    # Behind a kill the document may lack what the journals beside it say (docs/adr/0008).
    return None if any(directory.glob("topics.json.journal.*")) else topics
