"""What a job tells while it works, and the run ledger: a row per run (spark spec, section 7).

<ledger>/<run id>.json      a `Run`, replaced whole while it goes on and when it ends
"""

import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import msgspec

from rockmq.base import files
from rockmq.base.clock import Clock, SystemClock
from rockmq.base.errors import ConfigError

SAVE_INTERVAL_S = 2.0
"""A run's row is at most so old while it goes on."""


class State(StrEnum):
    """How far a run is. One that is RUNNING though its process is gone was killed: `Run.was_killed` tells."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Run(msgspec.Struct, rename="camel", omit_defaults=True):
    """A row of the ledger. Times are milliseconds since the epoch; `counts` are what the job counts, such as rows."""

    id: str
    job: str
    state: State
    host: str
    pid: int
    started_ms: int
    options: dict[str, str]
    ended_ms: int = 0
    stage: str = ""
    counts: dict[str, int] = {}
    results: dict[str, str] = {}
    """Where what it made lies, and what it found, by name."""
    error: str = ""

    @property
    def was_killed(self) -> bool:
        """Whether it hasn't ended and never will. Of other hosts that isn't known, so it is False."""
        if self.state is not State.RUNNING or self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # somebody else's
        return False


class Progress:
    """How far a job is: its stage, what it has counted, and how much there will be.

    Jobs call it from one thread. `changed` is called after each call.
    """

    def __init__(self, changed: "Callable[[Progress], None] | None" = None) -> None:
        self.stage = ""
        self.counts: Counter[str] = Counter()
        self.totals: dict[str, int] = {}
        self.results: dict[str, str] = {}
        self._changed = changed or (lambda _: None)

    def begin(self, stage: str, **totals: int) -> None:
        """What is done from now on, in a few words, and how much of what there will be in all: `rows=…`."""
        self.stage = stage
        self.totals.update(totals)
        self._changed(self)

    def add(self, **counts: int) -> None:
        """So much more is done: `rows=…`, `bytes=…`."""
        self.counts.update(counts)
        self._changed(self)

    def result(self, name: str, value: object) -> None:
        """Something for who looks at the run later: a path, a figure."""
        self.results[name] = str(value)
        self._changed(self)


class Ledger:
    """The runs of a directory. Several processes may use one."""

    def __init__(self, directory: str | os.PathLike[str], clock: Clock | None = None) -> None:
        self.directory = Path(directory)
        self._clock = clock or SystemClock()

    @contextmanager
    def run(
        self, job: str, options: Mapping[str, object], show: "Callable[[Run, Progress], None] | None" = None
    ) -> Iterator[Progress]:
        """A row for what is done within; failed with the error's words when it raises. `show` is called at each change.

        `options` are noted as text; give no secrets. Raises OSError when the row can't be written.
        """
        now = self._clock.now_ms()
        stamp = datetime.fromtimestamp(now / 1_000, UTC).strftime("%Y%m%dT%H%M%S")
        run = Run(
            id=f"{job}-{stamp}-{secrets.token_hex(3)}",
            job=job,
            state=State.RUNNING,
            host=socket.gethostname(),
            pid=os.getpid(),
            started_ms=now,
            options={name: str(value) for name, value in options.items()},
        )
        saved = 0.0

        def save(progress: Progress) -> None:
            nonlocal saved
            saved = time.monotonic()
            run.stage, run.counts, run.results = progress.stage, dict(progress.counts), dict(progress.results)
            files.save(self._path(run.id), msgspec.json.encode(run).decode())

        def changed(progress: Progress) -> None:
            if time.monotonic() - saved >= SAVE_INTERVAL_S:
                save(progress)
            if show is not None:
                show(run, progress)

        progress = Progress(changed)
        save(progress)
        try:
            yield progress
            run.state = State.DONE
        except BaseException as error:
            run.state, run.error = State.FAILED, f"{type(error).__name__}: {error}"
            raise
        finally:
            run.ended_ms = self._clock.now_ms()
            save(progress)
            if show is not None:
                show(run, progress)

    def runs(self) -> list[Run]:
        """All runs, the oldest first. Raises ConfigError for a row that isn't one."""
        found = []
        for path in self.directory.glob("*.json"):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=Run))
            except msgspec.DecodeError as error:
                raise ConfigError(f"{path} is no run of a job: {error}") from None
        return sorted(found, key=lambda run: (run.started_ms, run.id))

    def _path(self, run_id: str) -> Path:
        return self.directory / f"{run_id}.json"
