"""The order of things: build, start, warm up, measure in turns, report, clean up."""

import argparse
import contextlib
import datetime
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.support import machine, report
from benchmarks.support.loadgen import REPOSITORY, Generator, GeneratorError, Load
from benchmarks.support.outcome import Measured, Pace, Restarts, Standing
from benchmarks.support.page_cache import PageCache
from benchmarks.support.rows import QUEUES, ROWS, Row
from benchmarks.support.servers import CONTESTANTS, Contestant, Fleet, favour
from tests.support import apache
from tests.support.process import ProcessError

DISK_FREE_MIN = 30 << 30
SYNC_LIMIT_S = 60
IDLE_S = 5
SETTLE_LIMIT_S = 300
SETTLED_S = 10
SETTLED_CORES = 0.1
"""A server that uses less has nothing left to do; Apache's idle broker uses half of that."""
LOOK_S = 1
# Five gigabytes of log.
RESTART_MESSAGES = 4_200_000
RESTART_LOAD = {"conns": 4, "window": 4, "batch": 32, "size": 1024}
REPORT_WIDTH = 170


FULL = Pace(seconds=8, warmup=3, repeats=3, jit_first=45, jit_row=15)
QUICK = Pace(seconds=2, warmup=1, repeats=1, jit_first=20, jit_row=6)


class Bench:
    """One run of the benchmark."""

    def __init__(
        self,
        console: Console,
        generator: Generator,
        pace: Pace,
        directory: Path,
        page_cache: PageCache,
        ours_only: bool,
        favoured: bool,
    ) -> None:
        self._console = console
        self._generator = generator
        self._pace = pace
        self._directory = directory
        self._page_cache = page_cache
        self._ours_only = ours_only
        self._favoured = favoured

    def rows(self, rows: Sequence[Row]) -> Iterator[Measured]:
        """Measure row by row; those that need the same servers should follow each other."""
        with Fleet(self._directory, self._generator, self._favoured) as fleet:
            for row in rows:
                contestants = []
                for contestant, fresh in fleet.need(self._taking_part(row)):
                    contestants.append(contestant)
                    if fresh:
                        self._console.log(f"{contestant.name} accepted a message after {contestant.start_s:.2f} s")
                    if fresh and _is_java(contestant):
                        self._warm_up(contestant)
                yield self._row(row, contestants)

    def standing(self, name: str) -> Standing:
        """Start `name` anew, leave it alone, look at it; as often as there are repeats."""
        starts, memory, idle = [], [], []
        for _ in range(self._pace.repeats):
            with Fleet(self._directory, self._generator, self._favoured) as fleet:
                [(contestant, _)] = fleet.need([name])
                starts.append(contestant.start_s)
                time.sleep(IDLE_S)
                before, start = _cpu_s(contestant), time.monotonic()
                time.sleep(IDLE_S)
                idle.append((_cpu_s(contestant) - before) / (time.monotonic() - start))
                memory.append(contestant.memory())
            shutil.rmtree(contestant.directory, ignore_errors=True)
        return Standing(starts, memory, idle)

    def restarts(self, name: str) -> Restarts:
        """Fill a log, kill the server, start it again; as often as there are repeats, with some more log each time."""
        times = []
        start, settings = CONTESTANTS[name]
        directory = self._directory / f"restart-{name}"
        messages = RESTART_MESSAGES
        for turn in range(self._pace.repeats + 1):
            with start(name, directory, self._generator, settings) as contestant:
                if turn:
                    times.append(contestant.start_s)
                    self._console.log(f"restart {turn}/{self._pace.repeats} {name}: {contestant.start_s:.2f} s")
                if turn < self._pace.repeats:
                    topic = {"topic": "BENCH_RESTART", "queues": QUEUES}
                    self._generator.topic(contestant.address, topic)
                    load = {**topic, "messages": messages, **RESTART_LOAD}
                    self._generator.load("preload", load, address=contestant.address)
                    for pid in contestant.pids:
                        os.kill(pid, signal.SIGKILL)
                messages = RESTART_MESSAGES // 5
        size = sum(file.stat().st_blocks * 512 for file in directory.rglob("commitlog/*"))
        shutil.rmtree(directory, ignore_errors=True)
        return Restarts(times, size)

    def _taking_part(self, row: Row) -> list[str]:
        return [name for name in row.contestants if not (self._ours_only and name.startswith("apache"))]

    def _row(self, row: Row, contestants: Sequence[Contestant]) -> Measured:
        pace = self._pace
        failures: dict[str, str] = {}
        for contestant in contestants:
            try:
                self._prepare(row, contestant)
            except GeneratorError as error:
                if contestant.name == row.ours:
                    raise
                failures[contestant.name] = str(error).splitlines()[0]
                self._console.log(f"{row.name} {contestant.name}: {failures[contestant.name]}")
        contestants = [contestant for contestant in contestants if contestant.name not in failures]
        loads: dict[str, list[Load]] = {contestant.name: [] for contestant in contestants}
        for turn in range(pace.repeats):
            for contestant in contestants:
                # What one has written is on disk before the other is measured, and memory is the same for both.
                _sync()
                self._page_cache.fill()
                with contextlib.ExitStack() as others:
                    for other in contestants:
                        if other is not contestant:
                            others.enter_context(other.stopped())
                    load = self._load(row, contestant, seconds=min(pace.seconds, row.seconds_max), warmup=pace.warmup)
                loads[contestant.name].append(load)
                self._console.log(f"{row.name} {turn + 1}/{pace.repeats} {contestant.name}: {report.one_line(row, load)}")
        loopback = None
        if row.loopback:
            mode = "loopback-pull" if row.mode == "pull" else "loopback-send"
            options = {key: value for key, value in row.options.items() if key != "max_bytes"}
            loopback = self._generator.load(mode, options, seconds=min(pace.seconds, 5), warmup=1)
            self._console.log(f"{row.name} loopback limit: {report.one_line(row, loopback)}")
        return Measured(row, loads, loopback, failures)

    def _prepare(self, row: Row, contestant: Contestant) -> None:
        load = {**row.load(contestant.name), **contestant.key}
        self._generator.topic(contestant.address, load)
        if row.preload and contestant.name not in row.unloaded:
            self._generator.load("preload", {**row.preload, **load}, address=contestant.address)
            _settle(contestant)
        if _is_java(contestant):
            self._load(row, contestant, seconds=1, warmup=min(self._pace.jit_row, row.seconds_max))

    def _load(self, row: Row, contestant: Contestant, *, seconds: float, warmup: float) -> Load:
        options = {**row.options, **row.load(contestant.name), **contestant.key}
        with contextlib.ExitStack() as meanwhile:
            if row.beside:
                load = {**row.beside, **row.load(contestant.name)}
                meanwhile.enter_context(self._generator.beside("pull", load, contestant.address, seconds + warmup + 60))
            return self._generator.load(
                row.mode, options, address=contestant.address, pids=contestant.pids, seconds=seconds, warmup=warmup
            )

    def _warm_up(self, contestant: Contestant) -> None:
        self._console.log(f"warming up {contestant.name} for {self._pace.jit_first:g} s")
        topic = {"topic": "BENCH_WARMUP", "queues": QUEUES, **contestant.key}
        self._generator.topic(contestant.address, topic)
        shapes: list[dict[str, object]] = [
            {"conns": 64, "window": 1, "serializer": "json"},
            {"conns": 8, "window": 64, "serializer": "binary"},
        ]
        for shape in shapes:
            warmup = self._pace.jit_first / len(shapes)
            self._generator.load("send", {**shape, **topic}, address=contestant.address, seconds=1, warmup=warmup)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else REPORT_WIDTH)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)  # so that every `with` is left, and no server stays behind
    try:
        with _favoured() if options.urgent else contextlib.nullcontext():
            return _run(options, console)
    except (GeneratorError, ProcessError, apache.PeerError) as error:
        console.print(f"[bold red]benchmark failed:[/] {error}", markup=True)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; servers stopped, data removed")
        return 130


def _run(options: argparse.Namespace, console: Console) -> int:
    ours_only = options.ours_only
    if not ours_only and (missing := apache.available()):
        console.print(f"[bold red]No Apache to compare with: {missing}. Measuring ours only.[/]")
        ours_only = True
    pace = QUICK if options.quick else FULL
    if options.seconds or options.repeats:
        pace = Pace(
            options.seconds or pace.seconds, pace.warmup, options.repeats or pace.repeats, pace.jit_first, pace.jit_row
        )
    rows = [row for row in ROWS if not options.rows or row.name in options.rows]
    generator = Generator.build()
    with _directory(options.data) as directory, PageCache(directory) as page_cache:
        if (free := shutil.disk_usage(directory).free) < DISK_FREE_MIN:
            console.print(f"[bold red]only {free >> 30} GiB free where the stores go; {DISK_FREE_MIN >> 30} are needed")
            return 1
        facts = machine.facts(directory)
        if not ours_only:
            facts["Apache RocketMQ"] = apache.SERVER
        if options.urgent:
            facts["scheduling"] = "servers and generator before everything else"
        bench = Bench(console, generator, pace, directory, page_cache, ours_only, options.urgent)
        measured = list(bench.rows(rows))
        standing: dict[str, Standing] = {}
        help_s: list[float] = []
        if not options.rows or "startup" in options.rows:
            for name in ["ours"] if ours_only else ["ours", "apache"]:
                standing[name] = bench.standing(name)
            help_s = machine.help_seconds(max(5, pace.repeats))
        restarts: dict[str, Restarts] = {}
        if not options.rows or "restart" in options.rows:
            for name in ["ours"] if ours_only else ["ours", "apache"]:
                restarts[name] = bench.restarts(name)
    outcome = report.Report(
        date=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        facts=facts,
        pace=pace,
        rows=measured,
        standing=standing,
        help_s=help_s,
        restarts=restarts,
    )
    outcome.show(console)
    whole = not (options.quick or options.rows or ours_only)
    if options.write or whole:
        for file in outcome.write(options.results):
            console.print(f"written: {os.path.relpath(file, REPOSITORY)}")
    else:
        console.print("not written down: only a whole run is, or one with --write")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = [row.name for row in ROWS] + ["startup", "restart"]
    parser = argparse.ArgumentParser(
        prog="benchmarks/macro.py",
        description="RockMQ beside Apache RocketMQ, both on this machine, in one run.",
        epilog=f"rows: {', '.join(names)}",
    )
    parser.add_argument("--quick", action="store_true", help="short runs, one of each: shows direction, not truth")
    parser.add_argument("--rows", type=lambda text: text.split(","), default=[], help="only these, by name")
    parser.add_argument("--ours-only", action="store_true", help="leave Apache out")
    parser.add_argument(
        "--urgent", action="store_true", help="on a busy machine: servers and generator before others (root)"
    )
    parser.add_argument("--seconds", type=float, help="of each measured run")
    parser.add_argument("--repeats", type=int, help="runs of each row and server")
    parser.add_argument("--data", type=Path, help="where the stores go meanwhile (default: .cache in the repository)")
    parser.add_argument("--results", type=Path, default=REPOSITORY / "benchmarks" / "results", help="where reports go")
    parser.add_argument("--write", action="store_true", help="write the report down even if it isn't of a whole run")
    options = parser.parse_args(arguments)
    if unknown := set(options.rows) - set(names):
        parser.error(f"no such row: {', '.join(sorted(unknown))}")
    return options


@contextlib.contextmanager
def _favoured() -> Iterator[None]:
    """This session, and so the generator, before others; the terminal we were started from shall not stay so."""
    favour(os.getpid())
    try:
        yield
    finally:
        favour(os.getpid(), 0)


@contextlib.contextmanager
def _directory(parent: Path | None) -> Iterator[Path]:
    parent = parent or REPOSITORY / ".cache"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent, ignore_cleanup_errors=True) as directory:
        yield Path(directory)


def _is_java(contestant: Contestant) -> bool:
    return contestant.name.startswith("apache")


def _cpu_s(contestant: Contestant) -> float:
    ticks = 0
    for pid in contestant.pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _settle(contestant: Contestant) -> None:
    """Wait until it has done what a load has left it to do, such as making the files of many queues, which it does in rounds
    with rests between them."""
    deadline = time.monotonic() + SETTLE_LIMIT_S
    calm_since, before = time.monotonic(), _cpu_s(contestant)
    while (now := time.monotonic()) < min(deadline, calm_since + SETTLED_S):
        time.sleep(LOOK_S)
        used = _cpu_s(contestant)
        if used - before > LOOK_S * SETTLED_CORES:
            calm_since = now
        before = used


def _sync() -> None:
    """Write back what is dirty, in a child that can be left behind when the disk takes too long."""
    child = os.posix_spawnp("sync", ["sync"], os.environ)
    deadline = time.monotonic() + SYNC_LIMIT_S
    while time.monotonic() < deadline:
        if os.waitpid(child, os.WNOHANG)[0]:
            return
        time.sleep(0.05)


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)
