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


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """Nothing here runs without Java; that must not go unnoticed, and in CI it is a failure."""
    if missing := apache.available():
        if os.environ.get("CI") == "true":
            pytest.fail(f"interop tests can't run: {missing}", pytrace=False)
        pytest.skip(missing)


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
