"""For all tests: what did not run is said at the end, with reasons; and Hypothesis judges by no clock."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, settings

# The machine may be busy, or stand still for a while.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.getreports("skipped")
        # The interop tests have a summary of their own.
        if isinstance(report.longrepr, tuple) and "interop" not in report.keywords
    )
    if reasons:
        terminalreporter.section(f"{reasons.total()} TESTS DID NOT RUN", yellow=True, bold=True)
        for reason, count in reasons.most_common():
            terminalreporter.line(f"{count:5} {reason}")
