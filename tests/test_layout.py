"""The house itself: what the tools can't see, and what the pages promise."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "rockmq").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*.md")])
DIRECT = {"rockmq/protocol/codec.py"}
"""May name what it takes from the core, as it hands it on."""


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def run_time_imports(path: Path) -> list[ast.ImportFrom | ast.Import]:
    """Imports, less those that only type checkers see."""
    found: list[ast.ImportFrom | ast.Import] = []

    class Visitor(ast.NodeVisitor):
        def visit_If(self, node: ast.If) -> None:
            if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
                self.generic_visit(node)

        def visit_Import(self, node: ast.Import) -> None:
            found.append(node)

        def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
            found.append(node)

    Visitor().visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


def modules(node: ast.ImportFrom | ast.Import) -> list[str]:
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]


def test_the_core_is_imported_so_that_the_import_contract_sees_it() -> None:
    faults = [
        f"{name(path)}:{node.lineno}"
        for path in SOURCES
        if name(path) not in DIRECT
        for node in run_time_imports(path)
        if any(module.startswith("rockmq._core") for module in modules(node))
    ]
    assert not faults, "write `from rockmq import _core`"


def test_every_module_says_what_it_is() -> None:
    assert not [name(path) for path in SOURCES if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]


def test_unit_tests_have_the_tree_of_the_source() -> None:
    unit = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(unit) for path in unit.rglob("test_*.py")}
    homeless = {folder for folder in folders if not (ROOT / "rockmq" / folder).is_dir()}
    assert homeless <= {Path("core")}


def test_the_core_keeps_to_its_contract() -> None:
    """What `_core.pyi` declares is there, and nothing else is."""
    from rockmq import _core

    declared = ast.parse((ROOT / "rockmq" / "_core.pyi").read_text(encoding="utf-8")).body
    classes = {node.name: node for node in declared if isinstance(node, ast.ClassDef)}
    functions = {node.name for node in declared if isinstance(node, ast.FunctionDef)}
    assert {each for each in dir(_core) if not each.startswith("_")} == classes.keys() | functions
    for each, node in classes.items():
        members = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        assert {part for part in dir(getattr(_core, each)) if not part.startswith("_")} >= {
            member for member in members if not member.startswith("_")
        }, each


def test_versions_agree() -> None:
    from rockmq import _core

    with (ROOT / "native" / "core" / "Cargo.toml").open("rb") as file:
        version = tomllib.load(file)["package"]["version"]
    assert _core.__version__ == version
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_on_pages_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)`", page.read_text(encoding="utf-8")))
    assert named <= targets


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_code_and_tests_that_pages_name_exist(page: Path) -> None:
    """`rockmq/x.py`, `native/core/src/x.rs`, `tests/x.py::test_y`: a path, or a path and a function in it."""
    for path, function in re.findall(
        r"`((?:rockmq|native|tests|scripts|benchmarks)/[\w./-]+\.\w+)(?:::(\w+))?`", page.read_text(encoding="utf-8")
    ):
        assert (ROOT / path).exists(), f"{name(page)} names {path}"
        assert not function or re.search(rf"\b(?:def|fn|class) {function}\b", (ROOT / path).read_text(encoding="utf-8")), (
            f"{name(page)} names {path}::{function}"
        )
