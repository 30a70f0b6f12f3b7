"""Users' programs are typed as far as they are ours to type: mypy and pyright, both strict, find nothing in the guide, the
examples, and `tests/types`."""

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guide"
UNTYPED = {"celery_tasks", "archive_with_spark"}
"""Examples with libraries that have no types, or few."""


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all of them, as in a user's project."""
    folder = tmp_path_factory.mktemp("programs")
    for page in GUIDE.glob("*.md"):
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)):
            (folder / f"page_{page.stem.replace('-', '_')}_{number}.py").write_text(code, encoding="utf-8")
    for example in (ROOT / "examples").glob("*.py"):
        if example.stem not in UNTYPED:
            shutil.copy(example, folder / f"example_{example.name}")
    for program in (ROOT / "tests" / "types").glob("uses_*.py"):
        shutil.copy(program, folder)
    return folder


async def run(*words: str, cwd: Path) -> tuple[int | None, str]:
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *words, cwd=cwd, env=environment, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await asyncio.wait_for(process.communicate(), 300)
    return process.returncode, out.decode()


async def test_mypy(programs: Path) -> None:
    # Here, so that what it has found out of this package is used again.
    code, out = await run("mypy", "--strict", str(programs), cwd=ROOT)
    assert code == 0, out


async def test_pyright(programs: Path) -> None:
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT)], "include": ["*.py"]}
    (programs / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    code, out = await run("basedpyright", "--pythonpath", sys.executable, cwd=programs)
    assert code == 0, out
