"""Runs the clients in turns, and tells how they compare."""

import argparse
import asyncio
import contextlib
import datetime
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.support import machine, others
from rockmq.client import Client
from tests.support import apache, jars, server
from tests.support.process import free_port

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"
PEERS = REPOSITORY / "benchmarks" / "peers"
RUN_TIMEOUT_S = 300
QUEUES = 4


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What a client measured of itself in one run; CPU is user and system time of its process."""

    messages: int
    seconds: float
    cpu_seconds: float
    p50_us: float | None = None
    p99_us: float | None = None

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_seconds / self.messages * 1e6


@dataclass(frozen=True)
class Contestant:
    """A client, as a variant of its program, and the server it is measured on."""

    name: str
    program: str
    server: str
    rows: tuple[str, ...]
    variant: str = "-"
    python: bool = True
    alike: str = ""
    """The Java client that does the same, for RockMQ's."""
    share: float = 1.0
    """How much of the messages or rounds it gets, if all of them would take it minutes."""


JAVA = "Apache's Java client"
CONTESTANTS = (
    Contestant("RockMQ", "rockmq_client", "rockmq", ("send", "consume", "latency"), "one", alike=JAVA),
    Contestant("RockMQ, linger=0", "rockmq_client", "rockmq", ("send",), "linger", alike=f"{JAVA}, autoBatch"),
    Contestant("aiokafka", "kafka_client", "kafka", ("send", "consume", "latency")),
    Contestant("aiokafka, linger_ms=1, 64 KiB", "kafka_client", "kafka", ("send",), "batches"),
    Contestant("nats-py", "nats_client", "nats", ("send", "consume", "latency")),
    Contestant("rocketmq-python-client", "grpc_client", "proxy", ("send", "consume", "latency"), share=0.02),
    Contestant(JAVA, "JavaClient", "rockmq", ("send", "consume", "latency"), python=False),
    Contestant(f"{JAVA}, autoBatch", "JavaClient", "rockmq", ("send",), "batches", python=False),
)
ROWS = {
    "send": "pipelined acknowledged sends",
    "consume": "push consumption, empty handler",
    "latency": "one message at a time, send to handler",
}
AMOUNTS = {"send": 8, "consume": 300_000, "latency": 5_000}
"""Seconds, messages, rounds."""
QUICK = {"send": 2, "consume": 50_000, "latency": 1_000}


def main() -> int:
    options = _options()
    console = Console(width=150)
    rows = options.rows.split(",")
    contestants = [each for each in CONTESTANTS if not options.only or each.name.split(",")[0] in options.only.split(",")]
    found: dict[tuple[str, str], list[Figures]] = {}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rockmq-clients-", dir=options.directory)))
        facts = machine.facts(directory)
        addresses = dict(_started(stack, directory, {each.server for each in contestants}))
        for repeat in range(1 if options.quick else options.repeats):
            for row in rows:
                for contestant in contestants:
                    if row not in contestant.rows:
                        continue
                    amount = (QUICK if options.quick else AMOUNTS)[row]
                    if row != "send":
                        amount = round(amount * contestant.share)
                    figures = _run(contestant, row, addresses[contestant.server], amount, directory)
                    found.setdefault((row, contestant.name), []).append(figures)
                    console.print(f"{repeat + 1}. {row}, {contestant.name}: {_one_line(figures)}")
    table = _table(found)
    _show(console, table)
    if not options.quick:
        console.print(f"written: {_write(facts, found, table)}")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="RockMQ's client beside others, each on its server")
    parser.add_argument(
        "--quick", action="store_true", help="short, once, and nothing is written: a direction, not a result"
    )
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--only", default="", help="some clients by name, such as RockMQ,aiokafka")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where servers have their data")
    return parser.parse_args()


# Running


def _started(stack: contextlib.ExitStack, directory: Path, wanted: set[str]) -> Iterator[tuple[str, str]]:
    if "rockmq" in wanted:
        settings = ("--set", "flushDiskType=ASYNC_FLUSH")
        yield "rockmq", stack.enter_context(server.serve(directory / "rockmq", *settings)).namesrv
    if "kafka" in wanted:
        yield "kafka", stack.enter_context(others.kafka(directory / "kafka")).address
    if "proxy" in wanted:
        names = stack.enter_context(apache.name_server(directory / "namesrv", free_port())).address
        lazily = {"flushDiskType": "ASYNC_FLUSH"}
        heap = apache.Heap(xms="1g", xmx="1g", quick=False)
        proxy = apache.proxy(directory / "proxy", free_port(), names, properties=lazily, heap=heap)
        yield "proxy", f"{names} {stack.enter_context(proxy).address}"
    if "nats" in wanted:
        yield "nats", stack.enter_context(others.nats(directory / "nats"))


def _run(contestant: Contestant, row: str, address: str, amount: int, directory: Path) -> Figures:
    topic = f"{row}-{time.monotonic_ns()}"
    arguments = [row, address, topic, str(amount), contestant.variant]
    if contestant.python:
        command = [sys.executable, "-m", f"benchmarks.peers.{contestant.program}", *arguments]
    else:
        asyncio.run(_create(address, topic))
        command = [*_java(contestant.program, directory), *arguments]
    # Apache's client for Python keeps its log below HOME.
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "HOME": str(directory)}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    if done.returncode or not done.stdout.strip():
        sys.exit(f"{contestant.name}, {row} failed:\n{done.stdout[-2_000:]}{done.stderr[-4_000:]}")
    return msgspec.json.decode(done.stdout.strip().splitlines()[-1], type=Figures)


async def _create(address: str, topic: str) -> None:
    async with Client(address) as mq:
        await mq.create_topic(topic, QUEUES)


def _java(program: str, directory: Path) -> list[str]:
    class_path = jars.client_class_path(jars.SERVER)
    classes = directory / "classes"
    if not classes.is_dir():
        source = PEERS / f"{program}.java"
        compile_it = [jars.need("javac"), "-nowarn", "-cp", class_path, "-d", str(classes), str(source)]
        subprocess.run(compile_it, check=True, timeout=300)
    logging = ["-Drocketmq.client.logRoot=" + str(directory), "-Drocketmq.log.level=warn"]
    return [jars.need("java"), "-Xms512m", "-Xmx512m", *logging, "-cp", f"{classes}{os.pathsep}{class_path}", program]


# Telling


@dataclass(frozen=True)
class Line:
    row: str
    name: str
    figures: Figures
    """Those of its best run."""
    verdict: str


def _table(found: dict[tuple[str, str], list[Figures]]) -> list[Line]:
    best = {key: _best(key[0], runs) for key, runs in found.items()}
    return [Line(row, name, figures, _verdict(row, name, best)) for (row, name), figures in best.items()]


def _best(row: str, runs: list[Figures]) -> Figures:
    """The best run, whole, so that its figures belong together: what else the machine does only makes runs worse."""
    if row == "latency":
        return min(runs, key=lambda run: run.p50_us or float("inf"))
    return max(runs, key=lambda run: run.rate)


def _verdict(row: str, name: str, best: dict[tuple[str, str], Figures]) -> str:
    """How RockMQ's figures compare with what is asked of them."""
    if not name.startswith("RockMQ"):
        return ""
    own = best[row, name]
    python = {each.name for each in CONTESTANTS if each.python}
    rivals = {rival: figures for (of, rival), figures in best.items() if of == row and not rival.startswith("RockMQ")}
    if not rivals:
        return ""
    if row == "latency":
        rival = min(rivals, key=lambda each: rivals[each].p50_us or float("inf"))
        ratio = (own.p50_us or 0) / (rivals[rival].p50_us or 1)
        return f"p50 {ratio:.2f}x {rival} (goal: <= 1.2x) {_mark(ratio <= 1.2)}"
    said = []
    pythons = {rival: figures for rival, figures in rivals.items() if rival in python}
    if pythons:
        rival = max(pythons, key=lambda each: pythons[each].rate)
        ratio = own.rate / pythons[rival].rate
        said.append(f"{ratio:.1f}x {rival} (goal: >= 2x) {_mark(ratio >= 2)}")
    alike = next(each.alike for each in CONTESTANTS if each.name == name)
    if row == "send" and alike in rivals:
        ratio = own.cpu_us / rivals[alike].cpu_us
        said.append(f"CPU {ratio:.2f}x {alike} (goal: <= 1x) {_mark(ratio <= 1)}")
    return "; ".join(said)


def _mark(kept: bool) -> str:
    return "pass" if kept else "miss"


def _one_line(figures: Figures) -> str:
    latency = f", p50 {figures.p50_us:.0f} us, p99 {figures.p99_us:.0f} us" if figures.p50_us and figures.p99_us else ""
    return f"{figures.rate:,.0f}/s, {figures.cpu_us:.1f} us CPU/msg{latency}"


HEAD = ("row", "client", "msg/s", "client CPU us/msg", "p50 / p99 us", "RockMQ against its goal")


def _cells(lines: list[Line]) -> Iterator[tuple[str, ...]]:
    told = None
    for line in lines:
        figures = line.figures
        latency = f"{figures.p50_us:.0f} / {figures.p99_us:.0f}" if figures.p50_us and figures.p99_us else ""
        yield (
            ROWS[line.row] if line.row != told else "",
            line.name,
            f"{figures.rate:,.0f}",
            f"{figures.cpu_us:.1f}",
            latency,
            line.verdict,
        )
        told = line.row


def _show(console: Console, lines: list[Line]) -> None:
    table = Table(title="128-byte bodies; the best run of each", title_justify="left")
    for column in HEAD:
        table.add_column(column, justify="right" if column in HEAD[2:5] else "left")
    for cells in _cells(lines):
        table.add_row(*cells)
    console.print(table)


def _write(facts: dict[str, str], found: dict[tuple[str, str], list[Figures]], lines: list[Line]) -> Path:
    RESULTS.mkdir(parents=True, exist_ok=True)
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    stem = RESULTS / f"{date}-{machine.processor_slug()}-clients"
    runs = max(map(len, found.values()))
    text = [
        f"# Clients, {date}, {facts['processor']}",
        "",
        *(f"- {key}: {value}" for key, value in facts.items()),
        f"- aiokafka {machine.version('aiokafka')} on Kafka {others.KAFKA}, nats-py {machine.version('nats-py')} on"
        f" nats-server {others.NATS}, Apache's Java client {jars.SERVER} on RockMQ's broker, rocketmq-python-client"
        f" {machine.version('rocketmq-python-client')} on Apache's proxy {jars.SERVER}",
        f"- 128-byte bodies; the best of {runs} runs in turns",
        "",
        f"| {' | '.join(HEAD)} |",
        f"|{'---|' * len(HEAD)}",
        *(f"| {' | '.join(cells)} |" for cells in _cells(lines)),
        "",
    ]
    stem.with_suffix(".md").write_text("\n".join(text), encoding="utf-8")
    raw = {"machine": facts, "runs": [{"row": row, "client": name, "runs": runs} for (row, name), runs in found.items()]}
    stem.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(raw), indent=1) + b"\n")
    return stem.with_suffix(".md")
