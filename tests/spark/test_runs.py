"""The run ledger: a row per run of a job, whatever becomes of it."""

import json
import os
import socket
import subprocess
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from typer.testing import CliRunner

from rockmq.base.errors import ConfigError, RockMQError
from rockmq.cli.main import app
from rockmq.cli.pipeline import display
from rockmq.pipeline import runs
from rockmq.pipeline.runs import Ledger, Progress, Run, State


def test_a_run_leaves_a_row(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "runs")

    with ledger.run("archive", {"topic": "orders", "limit": 5}) as progress:
        progress.begin("reading", rows=10)
        progress.add(rows=4, bytes=400)
        progress.add(rows=6)
        progress.result("directory", tmp_path)

    (row,) = ledger.runs()
    assert (row.job, row.state, row.error) == ("archive", State.DONE, "")
    assert row.options == {"topic": "orders", "limit": "5"}
    assert row.counts == {"rows": 10, "bytes": 400}
    assert row.results == {"directory": str(tmp_path)}
    assert row.id.startswith("archive-")
    assert row.started_ms <= row.ended_ms


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    def job() -> None:
        with Ledger(tmp_path).run("drain", {}) as progress:
            progress.add(rows=1)
            raise ValueError("no such topic")

    with pytest.raises(ValueError, match="no such topic"):
        job()

    (row,) = Ledger(tmp_path).runs()
    assert (row.state, row.counts) == (State.FAILED, {"rows": 1})
    assert row.error == "ValueError: no such topic"


def test_a_row_is_there_while_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "SAVE_INTERVAL_S", 0.0)
    with Ledger(tmp_path).run("drain", {}) as progress:
        progress.begin("sending", rows=2)
        progress.add(rows=1)
        (row,) = Ledger(tmp_path).runs()

    assert (row.state, row.stage, row.counts, row.ended_ms) == (State.RUNNING, "sending", {"rows": 1}, 0)


def test_each_change_is_shown(tmp_path: Path) -> None:
    seen: list[tuple[State, str, int]] = []

    def show(run: Run, progress: Progress) -> None:
        seen.append((run.state, progress.stage, progress.counts["rows"]))

    with Ledger(tmp_path).run("drain", {}, show) as progress:
        progress.begin("sending")
        progress.add(rows=3)

    assert seen == [(State.RUNNING, "sending", 0), (State.RUNNING, "sending", 3), (State.DONE, "sending", 3)]


def test_a_ledger_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text("{}")

    with pytest.raises(ConfigError, match=r"package\.json is no run of a job"):
        Ledger(tmp_path).runs()


def test_the_command_lists_runs(tmp_path: Path) -> None:
    with Ledger(tmp_path).run("archive", {}) as progress:
        progress.add(rows=1_234)

    listed = CliRunner().invoke(app, ["pipeline", "runs", "--ledger", str(tmp_path)])
    lines = CliRunner().invoke(app, ["pipeline", "runs", "--ledger", str(tmp_path), "--json"])

    assert listed.exit_code == 0
    assert "1,234" in listed.output
    assert json.loads(lines.output)["counts"] == {"rows": 1_234}


def test_a_run_whose_process_is_gone_was_killed(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    here = Run("a", "archive", State.RUNNING, socket.gethostname(), gone.pid, 1, {})
    rows = [
        here,
        replace(here, id="b", pid=os.getpid()),
        replace(here, id="c", host="x"),
        replace(here, id="d", state=State.DONE),
    ]
    for row in rows:
        (tmp_path / f"{row.id}.json").write_bytes(msgspec.json.encode(row))

    listed = CliRunner().invoke(app, ["pipeline", "runs", "--ledger", str(tmp_path)])

    assert [row.was_killed for row in rows] == [True, False, False, False]
    assert listed.output.count("killed") == 1


def test_errors_and_paths_are_shown_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def work(job: display.Job) -> None:
        job.progress.begin("into [/tmp/a]", rows=1)
        job.progress.result("directory", "[/tmp/a]:ok:")

    assert display.run("archive", {}, work, ledger=tmp_path, spark_conf=None, json=False) == 0
    failed = Run("f", "archive", State.FAILED, "x", 1, 2, {}, error="pip install 'rockmq[delta]'")
    (tmp_path / "f.json").write_bytes(msgspec.json.encode(failed))

    listed = CliRunner().invoke(app, ["pipeline", "runs", "--ledger", str(tmp_path)], env={"COLUMNS": "200"})

    shown = capsys.readouterr()
    assert "[/tmp/a]:ok:" in shown.out
    assert "into [/tmp/a]" in shown.err
    assert "rockmq[delta]" in listed.output
    bar = display._Bar()
    bar.show(failed, Progress())
    bar.shown.update(bar._task, description="into [/tmp/a]")
    with bar.shown.console.capture() as told:
        bar.shown.console.print(bar.shown)
    assert "into [/tmp/a]" in told.get()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (PySparkException("\n  Job aborted.\nTraceback:\n  much"), r"^Spark: Job aborted\.$"),
        (
            Py4JError("An error occurred while calling o6.save.\n: a.b.SparkException: crashed\n  much"),
            "^Spark: a.b.SparkException: c",
        ),
        (
            PySparkException("[FAILED]\n  much\nrockmq.base.errors.DataLoss: queue 3 lacks some\n"),
            "^Spark: queue 3 lacks some$",
        ),
    ],
)
def test_an_error_of_spark_s_is_one_line(error: Exception, said: str, tmp_path: Path) -> None:
    def work(job: display.Job) -> None:
        raise error

    with pytest.raises(RockMQError, match=said):
        display.run("archive", {}, work, ledger=tmp_path, spark_conf=None, json=False)

    (row,) = Ledger(tmp_path).runs()
    assert "much" in row.error
