"""Apache's Go client and the Node client ali-ons, unmodified, as real processes. What they need is fetched by their own
package managers and kept under `.cache`."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.support.process import Process

CACHE = Path(__file__).resolve().parents[2] / ".cache"
HERE = Path(__file__).parent


def missing(tool: str) -> str | None:
    """Why the clients of that tool (`go` or `npm`) can't run here; None when they can."""
    return None if shutil.which(tool) else f"{tool} is not installed"


def go_steps(directory: Path, namesrv: str, prefix: str, *steps: str) -> Process:
    # A consumer that gets everything keeps its offsets below HOME.
    return Process("go-steps", [str(_go_program()), namesrv, prefix, *steps], directory, {"HOME": str(directory)})


def node_steps(directory: Path, namesrv: str, prefix: str) -> Process:
    # ali-ons keeps logs and offsets below HOME.
    environment = {"NODE_PATH": str(_node_modules()), "HOME": str(directory)}
    return Process("node-steps", ["node", str(HERE / "node" / "steps.js"), namesrv, prefix], directory, environment)


def _go_program() -> Path:
    source = HERE / "go"
    program = CACHE / "go" / f"steps-{_digest(source, 'main.go', 'go.mod', 'go.sum')}"
    if not program.exists():
        _run(["go", "build", "-o", str(program), "."], source)
    return program


def _node_modules() -> Path:
    where = CACHE / "node" / _digest(HERE / "node", "package.json", "package-lock.json")
    if not (where / "node_modules").is_dir():
        unfinished = where.with_name(f"{where.name}.{os.getpid()}")
        unfinished.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / "node" / name, unfinished)
        _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], unfinished)
        unfinished.rename(where)
    return where / "node_modules"


def _digest(directory: Path, *names: str) -> str:
    digest = hashlib.sha256()
    for name in names:
        digest.update(name.encode() + b"\0" + (directory / name).read_bytes())
    return digest.hexdigest()[:16]


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
