"""Makes docs/reference.md from the signatures and docstrings of what users import.

python scripts/make_reference.py          writes the file
python scripts/make_reference.py --check  fails when it isn't up to date
"""

import ast
import enum
import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from rockmq.client.delivery import Outcome
from rockmq.client.instance import Member
from rockmq.client.pop_message import PopOutcome

MODULES = (
    "rockmq.client",
    "rockmq.client.admin",
    "rockmq.client.hooks",
    "rockmq.embedded",
    "rockmq.pytest_plugin",
    "rockmq.base.virtual_time",
    "rockmq.contrib.otel",
    "rockmq.contrib.taskiq",
)
CONSTRUCTED = {"Client", "OpenTelemetry", "RockMQBroker", "Server", "VirtualTime"}
"""Classes that users make objects of, other than plain data."""
PARTS = ("Reading", "Received", "Decodable", "GroupMember", "Taking", "Generic")
"""Bases that users don't meet: what they have is told of the classes that are made of them."""
INTERNAL = {*vars(Member), *vars(Outcome), *vars(PopOutcome), "Hooks", "Watched", "end", "recalling", "withdrawn"}
"""What the client's parts ask each other."""
FILE = Path(__file__).resolve().parents[1] / "docs" / "reference.md"
HEAD = """\
# Reference

Made from the source by `scripts/make_reference.py`. `rockmq.blocking` has the same classes for threads. How to use all of
this is in the [guide](guide/README.md).
"""


def generated() -> str:
    """The page as it should be."""
    parts = [HEAD]
    for name in MODULES:
        module = importlib.import_module(name)
        parts.append(f"\n## `{name}`\n")
        parts += _members(module)
    return "\n".join(parts) + "\n"


def _members(module: ModuleType) -> list[str]:
    parts = []
    for name in getattr(module, "__all__", None) or sorted(vars(module)):
        found = getattr(module, name)
        own = getattr(found, "__module__", "") == module.__name__ or hasattr(module, "__all__")
        if name.startswith("_") or name in INTERNAL or not own:
            continue
        if inspect.isclass(found):
            parts += _class(name, found)
        elif (function := _tree(inspect.unwrap(found))) is not None:
            parts += [f"### `{name}`\n", _signature(function), _doc(ast.get_docstring(function))]
    return parts


def _tree(found: object) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(found))).body  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None


def _class(name: str, of: type) -> list[str]:
    bases = ", ".join(each.__name__ for each in of.__bases__ if each is not object and each.__name__ not in PARTS)
    parts = [f"### `{name}`" + (f" ({bases})" if bases else "") + "\n", _doc(of.__doc__ if _is_own(of) else None)]
    if issubclass(of, enum.Enum):
        return [*parts, ", ".join(f"`{each.name}`" for each in of) + "\n"]
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(of))).body
    assert isinstance(tree, ast.ClassDef)
    fields = list(_fields(tree))
    if fields:
        parts.append("```\n" + "\n".join(fields) + "\n```\n")
    for node in _functions(of):
        parts += [_signature(node), _doc(ast.get_docstring(node))]
    return parts


def _fields(tree: ast.ClassDef) -> Iterator[str]:
    """Attributes, each with what is said of it below."""
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and _public(node.target):
            yield ast.unparse(node)
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                yield textwrap.indent(inspect.cleandoc(str(after.value.value)), "    # ")


def _is_own(of: type) -> bool:
    """Whether its docstring was written: dataclasses make one of their own."""
    return not (of.__doc__ or "").startswith(f"{of.__name__}(")


def _public(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and not target.id.startswith("_")


def _functions(of: type) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Public methods and properties, and the constructor of what users make objects of."""
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for owner in of.__mro__:
        if owner.__module__.startswith("rockmq") and (owner is of or owner.__name__ in PARTS):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
            assert isinstance(tree, ast.ClassDef)
            for node in tree.body:
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if node.name not in found and "overload" not in map(ast.unparse, node.decorator_list):
                    found[node.name] = node
    return [
        node
        for name, node in found.items()
        if (not name.startswith("_") and name not in INTERNAL) or (name == "__init__" and of.__name__ in CONSTRUCTED)
    ]


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    is_property = any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)
    arguments = ast.unparse(node.args).removeprefix("self").removeprefix("cls").removeprefix(", ")
    returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    awaited = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    if is_property:
        return f"```\n{node.name}: {returned.removeprefix(' -> ')}\n```\n"
    return f"```\n{awaited}{node.name}({arguments}){returned}\n```\n"


def _doc(doc: str | None) -> str:
    return f"{inspect.cleandoc(doc)}\n" if doc else ""


def main() -> int:
    text = "\n".join(line.rstrip() for line in generated().splitlines()) + "\n"
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    if "--check" in sys.argv:
        if FILE.read_text(encoding="utf-8") == text:
            return 0
        sys.stderr.write(f"{FILE} is not up to date: run python scripts/make_reference.py\n")
        return 1
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
