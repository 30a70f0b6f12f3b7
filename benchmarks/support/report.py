"""The outcome as a table in the terminal, as Markdown and as JSON."""

import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.support.loadgen import Load
from benchmarks.support.machine import processor_slug
from benchmarks.support.outcome import Measured, Pace, Restarts, Standing
from benchmarks.support.rows import Row

BUSY_CORES = 0.3
HEAD = ("row", "server", "rate", "CPU us/msg", "p50 / p99 / p99.9 ms", "ratio: rate, CPU", "goal", "")
TITLES = {
    "ours": "RockMQ",
    "ours-sync": "RockMQ, sync flush",
    "ours-acl": "RockMQ, access control",
    "ours-many": "RockMQ, 100,000 topics",
    "ours-rolling": "RockMQ, files of 8 MiB",
    "ours-timers": "RockMQ, 1,000,000 timers",
    "apache": "Apache",
    "apache-sync": "Apache, sync flush",
    "apache-acl": "Apache, access control",
    "apache-many": "Apache, 10,000 topics x 1 queue",
}


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything one run found out."""

    date: str
    facts: dict[str, str]
    pace: Pace
    rows: list[Measured]
    standing: dict[str, Standing]
    help_s: list[float]
    restarts: dict[str, Restarts]

    def show(self, console: Console) -> None:
        table = Table(title="128-byte bodies unless the row says otherwise; medians", title_justify="left")
        for column in HEAD:
            table.add_column(column, justify="right" if column in HEAD[2:5] else "left")
        for measured in self.rows:
            for cells in _cells(measured):
                verdict = {"pass": "[green]pass[/]", "miss": "[bold red]miss[/]"}.get(cells[-1], cells[-1])
                table.add_row(*cells[:-1], verdict)
            for peer in measured.row.earlier:
                rate, cpu = f"{peer.messages_per_second:,.0f}/s", f"{peer.cpu_us:.1f}"
                table.add_row("", f"{peer.system} *", rate, cpu, "", f"* {peer.load}", style="dim")
            table.add_section()
        console.print(table)
        console.print("* measured earlier on a machine of this kind, not in this run")
        for line in (*self._standing_lines(), *self._warnings()):
            console.print(line)

    def write(self, directory: Path) -> list[Path]:
        directory.mkdir(parents=True, exist_ok=True)
        stem = directory / f"{self.date}-{processor_slug()}"
        raw = {
            "date": self.date,
            "machine": self.facts,
            "pace": asdict(self.pace),
            "rows": [
                {
                    "name": measured.row.name,
                    "mode": measured.row.mode,
                    "options": measured.row.options,
                    "preload": measured.row.preload,
                    "loads": measured.loads,
                    "loopback": measured.loopback,
                    "failures": measured.failures,
                    "verdict": measured.verdict(),
                }
                for measured in self.rows
            ],
            "standing": {name: asdict(standing) for name, standing in self.standing.items()},
            "help_seconds": self.help_s,
            "restarts": {name: asdict(restarts) for name, restarts in self.restarts.items()},
        }
        files = [stem.with_name(stem.name + suffix) for suffix in (".md", ".json")]
        files[0].write_text(self.markdown(), encoding="utf-8")
        files[1].write_bytes(msgspec.json.format(msgspec.json.encode(raw), indent=1) + b"\n")
        return files

    def markdown(self) -> str:
        pace = self.pace
        lines = [
            f"# {self.date}, {self.facts['processor']}",
            "",
            *(f"- {key}: {value}" for key, value in self.facts.items()),
            f"- {pace.repeats} runs of {pace.seconds:g} s per row and server, in turns, after {pace.warmup:g} s of warm-up;"
            f" Apache's JVM had {pace.jit_first:g} s of load before, and {pace.jit_row:g} s of each row's own load",
            "",
            "128-byte bodies unless the row says otherwise. The median run by rate is shown. CPU is that of the broker"
            " process; ratios are ours against the server of the goal, CPU ratios how many times less ours needs.",
            "",
            *_markdown_table(HEAD, (cells for measured in self.rows for cells in _cells(measured))),
            "",
            *(f"- {line}" for line in (*self._standing_lines(), *self._warnings())),
            "",
            "## Other systems, measured earlier on a machine of this kind",
            "",
            *_markdown_table(("row", "system", "load", "msg/s", "CPU us/msg"), self._earlier()),
            "",
        ]
        return "\n".join(lines)

    def _earlier(self) -> Iterator[tuple[str, ...]]:
        for measured in self.rows:
            for peer in measured.row.earlier:
                rate = f"{peer.messages_per_second:,.0f}"
                yield (measured.row.name, peer.system, peer.load, rate, f"{peer.cpu_us:.1f}")

    def _standing_lines(self) -> Iterator[str]:
        for name, standing in self.standing.items():
            start, memory = statistics.median(standing.start_s), standing.memory[-1]
            yield (
                f"{TITLES[name]}: {start:.2f} s from exec to the first accepted message; idle on an empty store"
                f" {memory.total / 2**20:.0f} MiB resident, {memory.anonymous / 2**20:.0f} of them anonymous"
                f" (name server included), {statistics.median(standing.idle_cores) * 100:.1f} % of a core"
            )
        if self.help_s:
            yield f"`rockmq --help`: {statistics.median(self.help_s):.2f} s"
        for name, restarts in self.restarts.items():
            yield (
                f"{TITLES[name]}: killed with {restarts.log_size / 1e9:.1f} GB of log,"
                f" {statistics.median(restarts.start_s):.2f} s from exec to the first accepted message"
            )
        if len(self.restarts) > 1:
            ours, theirs = (statistics.median(self.restarts[name].start_s) for name in ("ours", "apache"))
            yield f"restart after a kill: 1/{theirs / ours:.1f} of Apache's time; goal: under 5 s and <= 1/4"
        for measured in self.rows:
            if measured.loopback:
                yield f"{measured.row.name}: generator against a stub, no broker: {_rate(measured.row, measured.loopback)}"

    def _warnings(self) -> Iterator[str]:
        for measured in self.rows:
            for name, failure in measured.failures.items():
                yield f"{measured.row.name}, {TITLES[name]}: {failure}"
            for name, loads in measured.loads.items():
                busy = statistics.median(load.others_cores or 0 for load in loads)
                if busy > BUSY_CORES:
                    yield f"{measured.row.name}, {TITLES[name]}: other processes took {busy:.1f} cores; distrust its rate"
                if refused := sum(load.refused for load in loads):
                    remark = next(error.remark for load in loads for error in load.errors.values())
                    yield f"{measured.row.name}, {TITLES[name]}: {refused} requests refused, such as: {remark}"


def one_line(row: Row, load: Load) -> str:
    cpu = "" if load.server_cpu_us_per_message is None else f", {load.server_cpu_us_per_message:.2f} us CPU/msg"
    refused = f", {load.refused} refused" if load.refused else ""
    others = "" if load.others_cores is None else f", others {load.others_cores:.2f} cores"
    return f"{_rate(row, load)}{cpu}, p99 {load.p99_us / 1e3:.2f} ms{refused}{others}"


def _rate(row: Row, load: Load) -> str:
    if row.in_megabytes:
        return f"{load.mb_in_per_second:,.0f} MB/s"
    return f"{load.messages_per_second:,.0f}/s"


def _cells(measured: Measured) -> Iterator[tuple[str, ...]]:
    row, verdict = measured.row, measured.verdict()
    for name in measured.loads:
        load = measured.median(name)
        first = name == row.ours
        cpu = load.server_cpu_us_per_message
        ratios = measured.ratios(row.goal.against) if first else None
        yield (
            f"{row.name}: {row.title}" if first else "",
            TITLES[name],
            _rate(row, load),
            "-" if cpu is None else f"{cpu:.2f}",
            f"{load.p50_us / 1e3:.2f} / {load.p99_us / 1e3:.2f} / {load.p999_us / 1e3:.2f}",
            "" if ratios is None else f"{ratios.throughput:.1f}x" + (f", 1/{ratios.cpu:.1f}" if ratios.cpu else ""),
            _goal(row) if first else "",
            {True: "pass", False: "miss", None: ""}[verdict] if first else "",
        )


def _goal(row: Row) -> str:
    goal = row.goal
    said = []
    if goal.throughput_ratio is not None:
        said.append(f">= {goal.throughput_ratio:g}x {TITLES[goal.against]}")
    if goal.cpu_ratio is not None:
        said.append(f"<= 1/{goal.cpu_ratio:g}")
    if goal.p999_ratio is not None:
        said.append(f"p99.9 <= {goal.p999_ratio:g}x {TITLES[goal.against]}")
    if goal.latency_ratio is not None:
        said.append(f"p50 and p99 <= {goal.latency_ratio:g}x {TITLES[goal.against]}")
    if goal.mb_per_second is not None:
        said.append(f">= {goal.mb_per_second:g} MB/s or loopback's limit")
    return ", ".join(said)


def _markdown_table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for cells in rows:
        yield f"| {' | '.join(cells)} |"
