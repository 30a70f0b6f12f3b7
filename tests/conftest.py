"""For all tests: what did not run is said at the end, with reasons; and Hypothesis judges by no clock."""

import importlib.util
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# The machine may be busy, or stand still for a while.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


HERE = Path(__file__).parent
TOGETHER = {"interop": "peers", "client": "peers", "spark": "spark"}
"""Folders whose tests share servers: with several workers one of them runs all of these."""

SPARK_MISSING = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(HERE).parts[0] if item.path.is_relative_to(HERE) else ""
        if folder in ("interop", "spark"):
            item.add_marker(folder)


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker a file at a time, or such folders whole."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder = file.removeprefix("tests/").partition("/")[0]
        return TOGETHER.get(folder, file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    return Scheduling(config, log)


# Here and not in the folders: with several workers who writes the summary has collected nothing.
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [report for report in terminalreporter.getreports("skipped") if isinstance(report.longrepr, tuple)]
    if missing := {_reason(report) for report in skipped if "interop" in report.keywords}:
        terminalreporter.section("INTEROP TESTS DID NOT RUN", red=True, bold=True)
        terminalreporter.line(f"{'; '.join(missing)}. Nothing was checked against Apache's clients, tools and brokers.")
    if SPARK_MISSING:
        terminalreporter.section("SPARK TESTS DID NOT RUN", red=True, bold=True)
        missing_names = ", ".join(SPARK_MISSING)
        terminalreporter.line(f"{missing_names} missing: pip install 'rockmq[spark]'. Nothing of Spark was checked.")
    reasons = Counter(_reason(report) for report in skipped if "interop" not in report.keywords)
    if reasons:
        terminalreporter.section(f"{reasons.total()} TESTS DID NOT RUN", yellow=True, bold=True)
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:5} {reason}")


def _reason(report: pytest.TestReport) -> str:
    assert isinstance(report.longrepr, tuple)
    return report.longrepr[2].removeprefix("Skipped: ")
