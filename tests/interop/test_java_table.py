"""The page that compares our client with Java's has every public method of Java's classes, and what is there of it here."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import jars

PAGE = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text(encoding="utf-8")
CLIENT = "org.apache.rocketmq.client"
PACKAGES = {
    "ClientConfig": CLIENT,
    "DefaultMQProducer": f"{CLIENT}.producer",
    "TransactionMQProducer": f"{CLIENT}.producer",
    "DefaultMQPushConsumer": f"{CLIENT}.consumer",
    "ConsumeConcurrentlyContext": f"{CLIENT}.consumer.listener",
    "ConsumeOrderlyContext": f"{CLIENT}.consumer.listener",
    "DefaultLitePullConsumer": f"{CLIENT}.consumer",
    "DefaultMQPullConsumer": f"{CLIENT}.consumer",
    "MQPullConsumerScheduleService": f"{CLIENT}.consumer",
    "Message": "org.apache.rocketmq.common.message",
    "MQAdminExt": "org.apache.rocketmq.tools.admin",
}
OF_EVERY_OBJECT = {"toString", "equals", "hashCode"}


def sections() -> Iterator[tuple[list[str], list[list[str]]]]:
    """The classes that a section is about, and the cells of its rows."""
    for heading, text in re.findall(r"^#### (.*?)$(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL):
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| `")]
        yield re.findall(r"`(\w+)`", heading), [[cell.strip() for cell in row] for row in rows]


SECTIONS = list(sections())


@pytest.fixture(scope="module")
def methods() -> dict[str, set[str]]:
    """The public methods of each class, those it inherits left out."""
    classes = [f"{package}.{name}" for name, package in PACKAGES.items()]
    command = [jars.need("javap"), "-public", "-cp", jars.server_class_path(), *classes]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    parts = re.findall(r"^public (?:class|interface) \S*\.(\w+)\b.*?\{$(.*?)^\}$", shown, re.MULTILINE | re.DOTALL)
    return {name: set(re.findall(r"(\w+)\(", body)) - {name, *OF_EVERY_OBJECT} for name, body in parts}


def test_every_class_has_a_section() -> None:
    assert {name for names, _ in SECTIONS for name in names} == PACKAGES.keys()


@pytest.mark.parametrize(("names", "rows"), SECTIONS, ids=[names[0] for names, _ in SECTIONS])
def test_the_table_has_every_public_method_and_no_other(
    names: list[str], rows: list[list[str]], methods: dict[str, set[str]]
) -> None:
    offered = set().union(*(methods[name] for name in names))
    stands_for = {
        name: {name, *(f"{verb}{name[0].upper()}{name[1:]}" for verb in ("get", "set", "is"))}
        for row in rows
        for name in re.findall(r"`(\w+)`", row[0])
    }
    assert not offered - set().union(*stands_for.values())
    assert not [name for name, possible in stands_for.items() if offered.isdisjoint(possible)]


@pytest.mark.parametrize(("names", "rows"), SECTIONS, ids=[names[0] for names, _ in SECTIONS])
def test_what_works_names_a_test_and_what_does_not_a_reason(names: list[str], rows: list[list[str]]) -> None:
    for java, verdict, here in rows:
        assert verdict in ("works", "differs", "no"), java
        assert here, java
        assert verdict != "works" or "`tests/" in here, java
