"""Tests against unmodified Apache clients, tools and brokers.

`ROCKMQ_INTEROP=apache` (or `both`) runs the tests that concern a server against Apache's own servers too: what fails
there is wrong with the test.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import apache, cluster

SERVERS = {"rockmq": ["rockmq"], "apache": ["apache"], "both": ["rockmq", "apache"]}[
    os.environ.get("ROCKMQ_INTEROP", "rockmq")
]
_MISSING = pytest.StashKey[str]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session", autouse=True)
def java(request: pytest.FixtureRequest) -> None:
    """Nothing here runs without Java; that must not go unnoticed, and in CI it is a failure."""
    if missing := apache.available():
        request.config.stash[_MISSING] = missing
        if os.environ.get("CI") == "true":
            pytest.fail(f"interop tests can't run: {missing}", pytrace=False)
        pytest.skip(missing)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if missing := config.stash.get(_MISSING, None):
        terminalreporter.section("INTEROP TESTS DID NOT RUN", red=True, bold=True)
        terminalreporter.line(f"{missing}. Nothing was checked against Apache's clients, tools and brokers.")


@pytest.fixture(scope="session", params=SERVERS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[cluster.Cluster]:
    """One server for all tests that do it no harm; each uses topics and groups of its own."""
    with cluster.started(request.param, tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture(params=SERVERS)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[cluster.Cluster]:
    """A server for one test that breaks it."""
    with cluster.started(request.param, tmp_path / request.param) as started:
        yield started


@pytest.fixture(scope="session")
def unique() -> Callable[[str], str]:
    """Names that no other test of this session uses."""
    counter = itertools.count(1)
    return lambda name: f"{name}-{next(counter)}"
