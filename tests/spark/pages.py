"""The pages of jobs: their programs, and the options that they name."""

import contextlib
import io
import re
from pathlib import Path

import typer

from rockmq.cli.pipeline import app

_EVERY_JOB_HAS = {"--namesrv", "--spark-conf", "--ledger", "--json", "--help"}


def page(job: str) -> str:
    return (Path(__file__).parents[2] / "docs" / "pipeline" / f"{job}.md").read_text(encoding="utf-8")


def run(job: str, replaced: dict[str, str]) -> str:
    """What the page's program prints, with these texts in place of those that it shows."""
    (code,) = re.findall(r"```python\n(.*?)```", page(job), re.DOTALL)
    for shown, used in replaced.items():
        assert shown in code
        code = code.replace(shown, used)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, f"<{job}.md>", "exec"), {"__name__": "__main__"})
    return out.getvalue()


def not_named(job: str) -> set[str]:
    """Options of the job's command that its page doesn't name."""
    command = typer.main.get_command(app).commands[job]  # type: ignore[attr-defined]
    names = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    return names - _EVERY_JOB_HAS - {"--option"} - set(re.findall(r"--[a-z-]+", page(job)))
