"""Disks that fail on request, and disks that are small."""

import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.faults.traffic import Traffic


class Faults:
    """What goes wrong in a server started with `environment`; the lines are those of shim.c. Nothing at first."""

    def __init__(self, library: Path, directory: Path) -> None:
        self._control = directory / "faults"
        self.environment = {"LD_PRELOAD": str(library), "ROCKMQ_FAULTS": str(self._control)}

    def set(self, *lines: str) -> None:
        fresh = self._control.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")
        fresh.rename(self._control)

    def clear(self) -> None:
        self._control.unlink()


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("system calls are made to fail by a preloaded library: needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("shim") / "faults.so"
    source = Path(__file__).with_name("shim.c")
    command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


@pytest.fixture
def faults(shim: Path, tmp_path: Path) -> Faults:
    return Faults(shim, tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MiB, where `tests.faults.traffic.Broker` has its store."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a disk that is really full is a mounted tmpfs: needs Linux and root")
    path = tmp_path / "data"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a disk that is really full is a mounted tmpfs, and that can't be mounted: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@pytest.fixture
async def traffic() -> AsyncIterator[Traffic]:
    found = Traffic()
    yield found
    await found.remote.close()
