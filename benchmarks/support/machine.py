"""What the figures were taken on, without anything that names the machine."""

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

SAMPLES = 200


def facts(data: Path) -> dict[str, str]:
    """Processor, memory, kernel, disk of `data` and versions."""
    processor = _first(r"^model name\s*: (.*)$", Path("/proc/cpuinfo"))
    memory_kib = int(_first(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo")) or 0)
    distribution = _first(r'^PRETTY_NAME="(.*)"$', Path("/etc/os-release"))
    p50, p99 = fdatasync_ms(data)
    return {
        "processor": f"{processor}, {os.cpu_count()} cores",
        "memory": f"{memory_kib / 2**20:.0f} GiB",
        "system": f"{distribution}, Linux {platform.release()}",
        "file system": _file_system(data),
        "4 KiB fdatasync": f"p50 {p50:.2f} ms, p99 {p99:.1f} ms",
        "Python": platform.python_version(),
        "RockMQ": version("rockmq"),
        "uvloop": version("uvloop"),
        "Java": _java(),
        "load average before": f"{os.getloadavg()[0]:.2f}",
    }


def processor_slug() -> str:
    model = _first(r"^model name\s*: (.*)$", Path("/proc/cpuinfo")) or platform.machine()
    words = re.sub(r"\((r|tm)\)|\bcpu\b|@", " ", model.lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")


def fdatasync_ms(directory: Path) -> tuple[float, float]:
    """Median and 99th percentile of appending 4 KiB and forcing it to disk."""
    file = directory / "fdatasync"
    taken = []
    with file.open("wb", buffering=0) as out:
        for _ in range(SAMPLES):
            out.write(b"x" * 4096)
            start = time.perf_counter()
            os.fdatasync(out.fileno())
            taken.append((time.perf_counter() - start) * 1e3)
    file.unlink()
    taken.sort()
    return taken[len(taken) // 2], taken[len(taken) * 99 // 100]


def _file_system(directory: Path) -> str:
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, mount, kind, *_ = line.split()
        if directory.resolve().is_relative_to(mount) and len(mount) >= len(best[0]):
            best = (mount, kind)
    return best[1]


def _java() -> str:
    if not (java := shutil.which("java")):
        return "absent"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    return said.partition("\n")[0] or "unknown"


def version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _first(pattern: str, file: Path) -> str:
    try:
        found = re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return ""
    return found[1] if found else ""


def help_seconds(times: int) -> list[float]:
    """Wall time of `rockmq --help`, run by run."""
    command = [str(Path(sys.executable).with_name("rockmq")), "--help"]
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, timeout=60, check=True)
        taken.append(time.perf_counter() - start)
    return taken
