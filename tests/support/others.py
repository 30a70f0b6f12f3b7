"""Apache's Go client and the Node client ali-ons, unmodified, as real processes. What they need is fetched by their own
package managers and kept under `.cache`."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.process import Process

CACHE = Path(__file__).resolve().parents[2] / ".cache"
HERE = Path(__file__).parent


def need(tool: str) -> None:
    """Skip the test when the clients of that tool (`go` or `npm`) can't run here; in CI that is a failure."""
    if shutil.which(tool) is None:
        why = f"{tool} is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)


def go_steps(directory: Path, namesrv: str, prefix: str, *steps: str) -> Process:
    # A consumer that gets everything keeps its offsets below HOME.
    return Process("go-steps", [str(_go_program()), namesrv, prefix, *steps], directory, {"HOME": str(directory)})


def node_steps(directory: Path, namesrv: str, prefix: str) -> Process:
    # ali-ons keeps logs and offsets below HOME.
    environment = {"NODE_PATH": str(_node_modules()), "HOME": str(directory)}
    return Process("node-steps", ["node", str(HERE / "node" / "steps.js"), namesrv, prefix], directory, environment)


def _go_program() -> Path:
    source = HERE / "go"

    def build(unfinished: Path) -> None:
        _run(["go", "build", "-o", str(unfinished), "."], source)

    return _made(CACHE / "go" / f"steps-{_digest(source, 'main.go', 'go.mod', 'go.sum')}", build)


def _node_modules() -> Path:
    def install(unfinished: Path) -> None:
        unfinished.mkdir()
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / "node" / name, unfinished)
        _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], unfinished)

    return _made(CACHE / "node" / _digest(HERE / "node", "package.json", "package-lock.json"), install) / "node_modules"


def _made(path: Path, make: Callable[[Path], None]) -> Path:
    """A file or directory that is made once, also when several test workers want it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.parent.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            unfinished = path.with_name(f"{path.name}.{os.getpid()}")
            make(unfinished)
            unfinished.rename(path)
    return path


def _digest(directory: Path, *names: str) -> str:
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode() + b"\0" + (directory / name).read_bytes())
    return digest.hexdigest()[:16]


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
