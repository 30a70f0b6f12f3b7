"""docs/store.md says of each rule which code keeps it and which tests fail when it doesn't: all of these are there.

Tests name the rows of sections 1 to 5 in their docstrings too, and the pitfalls: "Rows 1.1 and 1.5, pitfall 9.4".
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "store.md").read_text(encoding="utf-8")
SECTIONS = {
    **{f"1.{number}": 1 for number in range(1, 8)},
    **{f"2.{number}": 2 for number in range(1, 6)},
    **{f"3.{number}": 3 for number in range(1, 7)},
    **{f"4.{number}": 4 for number in range(1, 3)},
    **{f"5.{number}": 5 for number in range(1, 4)},
}
REPLICATION = {13, 14}
"""Pitfalls of what isn't built: until then a test shows that its keys are refused."""


NAMED = re.compile(r"\b(rows?|pitfalls?) (\d\.\d+(?:(?:,| and|, and) \d\.\d+)*)", re.IGNORECASE)


class Rule(NamedTuple):
    """A row of the page: its section, what it says, and what is in its last two columns."""

    section: str
    text: str
    code: list[str]
    tests: list[str]


def rules() -> list[Rule]:
    found, section = [], ""
    for line in PAGE.splitlines():
        heading = re.match(r"##+ (\d(?:\.\d)?)", line)
        if line.startswith("#"):
            section = heading[1] if heading else section
        elif line.startswith("| ") and not re.match(r"\| (Rule|Pitfall) \|", line):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            numbered = re.match(r"(\d\.\d) ", cells[0])
            if numbered:
                section = numbered[1]
            names = [re.findall(r"`([^`]+)`", cell) for cell in cells[-2:]]
            found.append(Rule(section, cells[0], *names))
    return found


RULES = rules()


@cache
def names_in(path: Path) -> set[str]:
    """Functions of a file of tests."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".rs":
        return set(re.findall(r"\bfn (\w+)\(", text))
    return {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


class Named(NamedTuple):
    """The rows, and the pitfalls, that docstrings of tests name, and the functions whose own docstrings do."""

    rows: set[str]
    pitfalls: set[int]
    functions: set[str]


@cache
def named_in_docstrings() -> Named:
    named = Named(set(), set(), set())
    for path in (ROOT / "tests").rglob("test_*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module)]
        for node in nodes:
            found = NAMED.findall(ast.get_docstring(node) or "")
            for kind, numbers in found:
                each = re.findall(r"\d\.\d+", numbers)
                if kind.lower().startswith("row"):
                    named.rows.update(each)
                else:
                    named.pitfalls.update(int(number.partition(".")[2]) for number in each)
            if found and not isinstance(node, ast.Module) and node.name.startswith("test_"):
                named.functions.add(f"{path.relative_to(ROOT)}::{node.name}")
    return named


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.section} {rule.text[:40]}")
def test_what_a_rule_names_is_there(rule: Rule) -> None:
    assert rule.tests, "no test"
    for path in rule.code:
        assert "/" not in path or (ROOT / path).exists(), path
    for name in rule.tests:
        path, _, function = name.partition("::")
        assert function in names_in(ROOT / path), name


def test_each_section_has_rules() -> None:
    assert {rule.section for rule in RULES} >= SECTIONS.keys()


def test_tests_name_each_section_and_each_pitfall() -> None:
    named = named_in_docstrings()
    assert SECTIONS.keys() - named.rows == set()
    assert set(range(1, 23)) - named.pitfalls - REPLICATION == set()
    listed = [int(rule.text.partition(".")[0]) for rule in RULES if rule.section == "7"]
    assert sorted(listed) == list(range(1, 23))


def test_what_names_a_row_is_named_by_a_rule() -> None:
    """A rule that was added with its test only isn't on the page."""
    assert named_in_docstrings().functions - {name for rule in RULES for name in rule.tests} == set()
