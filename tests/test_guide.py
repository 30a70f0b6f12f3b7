"""The guide tells what is so: its programs run as they stand, but for the address, and print what stands below them."""

import asyncio
import contextlib
import io
import os
import re
import sys
from pathlib import Path

import pytest

from rockmq import embedded

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guide"
PROGRAM = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
SHOWN = "127.0.0.1:9876"
SETTINGS = {
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "timerPrecisionMs": "100",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}
PROGRAMS = [
    pytest.param(*found.groups(), id=page.stem)
    for page in sorted(GUIDE.glob("*.md"))
    for found in PROGRAM.finditer(page.read_text(encoding="utf-8"))
]

pytest_plugins = ["pytester"]


@pytest.mark.parametrize(("code", "printed"), PROGRAMS)
async def test_a_program_prints_what_the_page_says(code: str, printed: str) -> None:
    async with embedded.serve(flush="ASYNC_FLUSH", properties=SETTINGS) as server:
        assert SHOWN in code
        program = compile(code.replace(SHOWN, server.namesrv), "<guide>", "exec")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            await asyncio.wait_for(asyncio.to_thread(exec, program, {"__name__": "__main__"}), 60)
    assert out.getvalue() == printed


def test_the_tests_on_the_page_pass(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (code,) = re.findall(r"```python\n(.*?)```", (GUIDE / "testing.md").read_text(encoding="utf-8"), re.DOTALL)
    pytester.makepyfile(code)
    pytester.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


async def test_the_reference_is_up_to_date() -> None:
    words = str(ROOT / "scripts" / "make_reference.py"), "--check"
    process = await asyncio.create_subprocess_exec(sys.executable, *words, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert await process.wait() == 0


def test_every_page_is_in_the_table_and_every_program_is_run() -> None:
    pages = {page.name for page in GUIDE.glob("*.md")} - {"README.md"}
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", (GUIDE / "README.md").read_text(encoding="utf-8"))) == pages
    blocks = sum((GUIDE / page).read_text(encoding="utf-8").count("```python\n") for page in pages)
    assert blocks == len(PROGRAMS) + 1
