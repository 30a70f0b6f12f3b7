"""Runs the rows in turns, one Spark session for both, and tells how they compare."""

import argparse
import contextlib
import datetime
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.support import machine, others, spark_rows
from benchmarks.support.servers import process_tree
from benchmarks.support.spark_rows import KAFKA, OURS, ROWS, Rig, Row
from rockmq.spark import session
from tests.support import server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"
CORES = 2
_TICKS = os.sysconf("SC_CLK_TCK")


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One run. CPU is user and system time: of Spark, that is the JVM and its Python workers, and of the server."""

    rows: int
    seconds: float
    spark_cpu_seconds: float
    server_cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


@dataclass(frozen=True)
class Processes:
    """Whose CPU is counted, as process ids: Spark's JVM, and the server by contestant."""

    spark: int
    servers: dict[str, int]


Found = dict[tuple[str, str], list[Figures]]
"""By row and way, run by run."""


def main() -> int:
    options = _options()
    console = Console(width=150)
    chosen = {name: ROWS[name] for name in options.rows.split(",")}
    found: Found = {}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rockmq-spark-", dir=options.directory)))
        facts = machine.facts(directory)
        rockmq = stack.enter_context(server.serve(directory / "rockmq", "--set", "flushDiskType=ASYNC_FLUSH"))
        kafka = stack.enter_context(others.kafka(directory / "kafka"))
        spark = _session(directory)
        stack.callback(spark.stop)
        amounts = spark_rows.QUICK if options.quick else spark_rows.FULL
        rig = Rig(spark, directory, amounts, rockmq.namesrv, kafka.address, rockmq.data)
        processes = Processes(_jvm_pid(spark), {OURS: rockmq.pid, KAFKA: kafka.pid})
        facts["PySpark"] = spark.version
        console.print("writing what is read")
        rig.fill()
        repeats = range(1 if options.quick else options.repeats)
        for repeat in repeats:
            _run({name: row for name, row in chosen.items() if not row.needs_store}, rig, processes, found, repeat, console)
        rockmq.terminate()
        for repeat in repeats:
            _run({name: row for name, row in chosen.items() if row.needs_store}, rig, processes, found, repeat, console)
        worker = _largest_worker(processes.spark)
        facts["largest Python worker"] = f"{worker / 2**20:.0f} MiB resident at most"
    table = list(_table(found))
    _show(console, table)
    console.print(f"largest Python worker: {facts['largest Python worker']}")
    if not options.quick:
        console.print(f"written: {_write(facts, found, table)}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="RockMQ's source and sink for Spark beside Spark's own for Kafka")
    parser.add_argument(
        "--quick", action="store_true", help="few rows, once, and nothing is written: a direction, not a result"
    )
    parser.add_argument("--rows", default=",".join(ROWS), help=f"some of {','.join(ROWS)}")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where servers have their data")
    return parser.parse_args()


# Running


def _session(directory: Path) -> "SparkSession":
    return session(
        "benchmark",
        {
            "spark.master": f"local[{CORES}]",
            "spark.jars": ",".join(map(str, others.spark_connector())),
            "spark.driver.memory": "2g",
            "spark.log.level": "ERROR",
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.local.dir": str(directory / "spark"),
            # Triggers without data are told of, too.
            "spark.sql.streaming.noDataProgressEventInterval": "0",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
        },
    )


def _jvm_pid(spark: "SparkSession") -> int:
    jvm = spark._jvm
    assert jvm is not None
    return int(jvm.java.lang.ProcessHandle.current().pid())


def _run(rows: dict[str, Row], rig: Rig, processes: Processes, found: Found, repeat: int, console: Console) -> None:
    for name, row in rows.items():
        for way, measure in row.ways.items():
            pid = processes.servers[KAFKA if way == KAFKA else OURS]
            spark, serving = _cpu_seconds(processes.spark), _cpu_seconds(pid)
            rows_done, seconds = measure(rig)
            figures = Figures(
                rows=rows_done,
                seconds=seconds,
                spark_cpu_seconds=_spent(processes.spark, spark),
                server_cpu_seconds=_spent(pid, serving),
            )
            found.setdefault((name, way), []).append(figures)
            console.print(f"{repeat + 1}. {row.title}, {way}: {_told(row, figures)}")


def _cpu_seconds(root: int) -> dict[int, float]:
    """User and system time of a process and all below it by process id; nothing when it isn't there."""
    found = {}
    for pid in process_tree(root):
        with contextlib.suppress(OSError):  # it ended meanwhile
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            found[pid] = sum(map(int, fields[11:13])) / _TICKS
    return found


def _spent(root: int, before: dict[int, float]) -> float:
    """What was used since then. Not counted is a process that has ended, as Spark's idle workers do after a minute."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in _cpu_seconds(root).items())


def _largest_worker(jvm: int) -> int:
    """The most bytes that one of Spark's Python processes had resident."""
    largest = 0
    for pid in process_tree(jvm)[1:]:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
                if line.startswith("VmHWM:"):
                    largest = max(largest, int(line.split()[1]) << 10)
    return largest


# Telling

HEAD = ("row", "", "figure", "Spark CPU us/row", "server CPU us/row", "against the goal")


def _best(row: Row, runs: list[Figures]) -> Figures:
    """The best run, whole, so that its figures belong together: what else the machine does only makes runs worse."""
    return min(runs, key=lambda run: run.rows) if row.unit == "bytes" else max(runs, key=lambda run: run.rate)


def _number(row: Row, figures: Figures) -> float:
    return {"rows/s": figures.rate, "ms": figures.seconds * 1e3, "bytes": float(figures.rows)}[row.unit]


def _told(row: Row, figures: Figures) -> str:
    number = _number(row, figures)
    return f"{number:,.1f} {row.unit}" if row.unit == "ms" else f"{number:,.0f} {row.unit}"


def _table(found: Found) -> Iterator[tuple[str, ...]]:
    for name, row in ROWS.items():
        ways = [way for way in row.ways if (name, way) in found]
        best = {way: _best(row, found[name, way]) for way in ways}
        for way in ways:
            figures = best[way]
            cpu = tuple(
                f"{spent / figures.rows * 1e6:.2f}" if row.unit == "rows/s" else ""
                for spent in (figures.spark_cpu_seconds, figures.server_cpu_seconds)
            )
            verdict = _verdict(row, figures, best[ways[-1]]) if way == ways[0] else ""
            yield (row.title if way == ways[0] else "", way, _told(row, figures), *cpu, verdict)


def _verdict(row: Row, ours: Figures, rival: Figures) -> str:
    said = []
    ratio = _number(row, ours) / _number(row, rival)
    goal = row.goal
    if goal.ratio is not None:
        said.append(f"{ratio:.2f}x (goal: >= {goal.ratio:g}x) {_mark(ratio >= goal.ratio)}")
    if goal.ratio_max is not None:
        said.append(f"{ratio:.3g}x (goal: <= {goal.ratio_max:g}x) {_mark(ratio <= goal.ratio_max)}")
    if goal.rows_per_second is not None:
        said.append(f"goal: >= {goal.rows_per_second:,.0f} rows/s {_mark(ours.rate >= goal.rows_per_second)}")
    return "; ".join(said)


def _mark(kept: bool) -> str:
    return "pass" if kept else "miss"


def _show(console: Console, lines: list[tuple[str, ...]]) -> None:
    table = Table(title="the best run of each", title_justify="left")
    for column in HEAD:
        table.add_column(column, justify="right" if column in HEAD[2:5] else "left")
    for cells in lines:
        table.add_row(*cells)
    console.print(table)


def _write(facts: dict[str, str], found: Found, lines: list[tuple[str, ...]]) -> Path:
    RESULTS.mkdir(parents=True, exist_ok=True)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    stem = RESULTS / f"{date}-{machine.processor_slug()}-spark"
    runs = max(map(len, found.values()))
    text = [
        f"# Spark, {date}, {facts['processor']}",
        "",
        *(f"- {key}: {value}" for key, value in facts.items()),
        f"- Spark's own connector of the same version on Kafka {others.KAFKA}; `local[{CORES}]`, one session for both",
        f"- {spark_rows.QUEUES} queues or partitions; the best of {runs} runs in turns; RockMQ flushes",
        "  asynchronously, as Kafka does",
        "- a read has the columns that Kafka's source gives, unless all are named; CPU is that of the JVM with its Python"
        " workers, and of the broker",
        "",
        f"| {' | '.join(HEAD)} |",
        f"|{'---|' * len(HEAD)}",
        *(f"| {' | '.join(cells)} |" for cells in lines),
        "",
    ]
    stem.with_suffix(".md").write_text("\n".join(text), encoding="utf-8")
    raw = {"machine": facts, "runs": [{"row": row, "way": way, "runs": runs} for (row, way), runs in found.items()]}
    stem.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(raw), indent=1) + b"\n")
    return stem.with_suffix(".md")
