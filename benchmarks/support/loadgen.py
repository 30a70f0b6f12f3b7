"""The load generator of `native/loadgen` as a child process."""

import contextlib
import io
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

REPOSITORY = Path(__file__).resolve().parents[2]
SILENCE_S = 40
SPARE_S = 60
BUILD_TIMEOUT_S = 600


class GeneratorError(Exception):
    """The generator could not be built, or ended without a result; the text is what it said."""


class Refusals(msgspec.Struct, frozen=True):
    count: int
    remark: str


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of the generator measured. Times are microseconds, of requests; CPU is per message."""

    seconds: float
    requests: int
    messages: int
    messages_per_second: float
    mb_in_per_second: float
    mb_out_per_second: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    server_cpu_us_per_message: float | None
    server_cores: float | None
    own_cpu_us_per_message: float
    own_cores: float
    others_cores: float | None
    empty_pulls: int
    errors: dict[str, Refusals]
    errors_with_warmup: dict[str, Refusals]
    unanswered: int
    accepted_with_warmup: int
    stored_with_warmup: int | None

    @property
    def refused(self) -> int:
        return sum(refusals.count for refusals in self.errors.values())


class Accepted(msgspec.Struct, frozen=True):
    """When a probe's message was first accepted, by `time.monotonic_ns`."""

    accepted_monotonic_ns: int
    tries: int


class Generator:
    """Runs `rockmq-loadgen`; every run is bounded in time."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary

    @classmethod
    def build(cls) -> "Generator":
        """Compile it if need be. ROCKMQ_LOADGEN names a ready binary instead."""
        if ready := os.environ.get("ROCKMQ_LOADGEN"):
            return cls(Path(ready))
        cargo = shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")
        native = REPOSITORY / "native"
        command = [cargo, "build", "--release", "--quiet", "-p", "rockmq-loadgen"]
        try:
            done = subprocess.run(command, cwd=native, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
        except FileNotFoundError:
            raise GeneratorError("cargo is not installed, and the load generator is Rust") from None
        if done.returncode:
            raise GeneratorError(f"cargo could not build the load generator\n{done.stderr}")
        target = Path(os.environ.get("CARGO_TARGET_DIR", native / "target"))
        return cls(target / "release" / "rockmq-loadgen")

    def load(
        self,
        mode: str,
        options: Mapping[str, object],
        *,
        address: str | None = None,
        pids: Sequence[int] = (),
        seconds: float = 0,
        warmup: float = 0,
    ) -> Load:
        """One measured run. `seconds` and `warmup` are ignored by a preload, which ends by count."""
        arguments = {**options, "seconds": seconds, "warmup": warmup}
        if pids:
            arguments["server-pid"] = ",".join(map(str, pids))
        limit_s = seconds + warmup + SILENCE_S + SPARE_S + (600 if mode == "preload" else 0)
        return msgspec.json.decode(self._run(mode, arguments, address, limit_s), type=Load)

    @contextlib.contextmanager
    def beside(self, mode: str, options: Mapping[str, object], address: str, seconds: float) -> Iterator[None]:
        """A load that runs for the length of a block; it may be refused, but not fail."""
        command = self._command(mode, {**options, "seconds": seconds, "warmup": 0}, address)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
            try:
                yield
                if running.poll() is not None and running.returncode:
                    raise GeneratorError(f"{mode} beside it: {(running.stderr or io.BytesIO()).read().decode()}")
            finally:
                running.kill()

    def topic(self, address: str, load: Mapping[str, Any]) -> None:
        """Create a topic, or as many as `load` says."""
        topics = load.get("topics", 1)
        # Apache writes its whole table for each, and refuses what has waited for 5 s.
        self._run("topic", {**load, "conns": min(topics, 8), "window": 1}, address, SPARE_S + 0.1 * topics)

    def probe(self, address: str, seconds: float, key: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start trying to send; `Generator.accepted` waits for the outcome."""
        command = self._command("probe", {"seconds": seconds, "topic": "BENCH_PROBE", **key}, address)
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @staticmethod
    def accepted(probe: subprocess.Popen[bytes], timeout_s: float) -> Accepted:
        try:
            out, error = probe.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise GeneratorError("the probe did not end in time") from None
        finally:
            if probe.poll() is None:
                probe.kill()
                probe.wait()
        if probe.returncode:
            raise GeneratorError(error.decode(errors="replace").strip())
        return msgspec.json.decode(out, type=Accepted)

    def _run(self, mode: str, options: Mapping[str, object], address: str | None, limit_s: float) -> bytes:
        try:
            done = subprocess.run(self._command(mode, options, address), capture_output=True, timeout=limit_s, check=False)
        except subprocess.TimeoutExpired:
            raise GeneratorError(f"{mode} did not end within {limit_s:g} s") from None
        if done.returncode:
            raise GeneratorError(f"{mode}: {done.stderr.decode(errors='replace').strip()} {done.stdout.decode()}")
        return done.stdout

    def _command(self, mode: str, options: Mapping[str, object], address: str | None) -> list[str]:
        words = [str(self._binary), mode, *(["--address", address] if address else [])]
        for name, value in options.items():
            for each in value if isinstance(value, tuple) else (value,):
                words += [f"--{name.replace('_', '-')}", str(each)]
        return words
