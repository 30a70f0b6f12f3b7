"""For all tests: what did not run, or not at once, is said at the end, with reasons; and Hypothesis judges by no clock."""

import importlib.util
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# The machine may be busy, or stand still for a while.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


HERE = Path(__file__).parent
FIRST = ("spark", "client", "interop")
"""Folders that several workers begin with: their units are long, and what is short fills the gaps at the end."""

ONCE = ("crash", "faults", "fuzz")
"""Folders whose tests look for what is lost or taken for something else, which a second try may not find again. All others
have two tries: they wait for sockets and programs, on a machine that may stand still."""

SPARK_MISSING = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]


@pytest.fixture(autouse=True)
def no_client_is_left() -> Iterator[None]:
    """A client whose thread goes on looks for its name server, and draws random numbers, while others are tested."""
    before = set(threading.enumerate())
    yield
    assert not [each for each in threading.enumerate() if each.name == "rockmq client" and each not in before]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        folder = _folder(item.nodeid)
        if folder in ("interop", "spark"):
            item.add_marker(folder)
        if folder not in ONCE and item.get_closest_marker("flaky") is None:
            item.add_marker(pytest.mark.flaky(reruns=1))
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _rank(_folder(item.nodeid)))


def _rank(folder: str) -> int:
    return FIRST.index(folder) if folder in FIRST else len(FIRST)


def _folder(nodeid: str) -> str:
    return nodeid.removeprefix("tests/").partition("/")[0]


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a worker a file at a time, but all that share a Spark session, or a broker of one kind, together."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        match _folder(nodeid):
            case "spark":
                return "spark"
            case "client":
                return "client apache" if "apache" in name.partition("[")[2] else "client"
        return file


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    config.option.loadscopereorder = False  # the order is that of the workers' tests
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
    if again := terminalreporter.getreports("rerun"):
        terminalreporter.section(f"{len(again)} TESTS NEEDED A SECOND TRY", yellow=True, bold=True)
        for report in again:
            terminalreporter.line(report.nodeid, bold=True)
            terminalreporter.line(report.longreprtext)


def _reason(report: pytest.TestReport) -> str:
    assert isinstance(report.longrepr, tuple)
    return report.longrepr[2].removeprefix("Skipped: ")
