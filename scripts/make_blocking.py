"""Makes rockmq/blocking/classes.py from the classes of the asyncio client: the same names and types, for threads.

    python scripts/make_blocking.py          writes the file
    python scripts/make_blocking.py --check  fails when it isn't up to date

Run it when the client's public methods change. A new class that users get goes into `CLASSES`. What becomes of a method
follows from its signature: coroutines are waited for, futures become those of threads, functions that return awaitables
are given as plain functions, and everything else is called in the loop.
"""

import ast
import collections.abc
import inspect
import re
import subprocess
import sys
import textwrap
import typing
from pathlib import Path

from rockmq import client
from rockmq.client import admin
from rockmq.client.delivery import Outcome, Processing
from rockmq.client.instance import Member
from rockmq.client.pop_message import PopOutcome, PopProcessing

CLASSES: list[type] = [
    Processing,
    PopProcessing,
    client.ConsumedMessage,
    client.PopMessage,
    client.Transaction,
    client.Producer,
    client.TransactionProducer,
    client.Consumer,
    client.PopConsumer,
    client.LitePullConsumer,
    admin.TopicAdmin,
    admin.GroupAdmin,
    admin.MemberAdmin,
    admin.MessageAdmin,
    admin.BrokerAdmin,
    admin.NameServerAdmin,
    admin.AccessAdmin,
    admin.StorageAdmin,
    admin.ControllerAdmin,
    admin.ContainerAdmin,
    admin.StaticTopicAdmin,
    admin.LiteAdmin,
    admin.Admin,
    client.Client,
]
"""In this order: who is a base, or named by others' bases, comes first."""
ROOT = client.Client
"""Whose end is the end of the loop's thread."""
INTERNAL = {
    "decoder",
    "end",
    "process_queue",
    "outcome",
    "watched",
    "withdrawn",
    "unfinished",
    *vars(Member),
    *vars(Outcome),
    *vars(PopOutcome),
}
"""Attributes and methods that are no concern of users: for the most part what the client's parts ask each other."""

FILE = Path(__file__).resolve().parents[1] / "rockmq" / "blocking" / "classes.py"
NAMES = {each.__name__ for each in CLASSES}
HEAD = '''"""The classes of the asyncio client for threads. Made by scripts/make_blocking.py; don't edit."""
'''


class Module:
    """What a source file imports and defines, by name."""

    def __init__(self, of: type) -> None:
        found = inspect.getmodule(of)
        assert found is not None
        self.name = found.__name__
        self.namespace = vars(found)
        self.origins: dict[str, str] = {}
        self.modules: dict[str, str] = {}
        for node in ast.walk(ast.parse(inspect.getsource(found))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    name = alias.asname or alias.name
                    self.origins[name] = f"from {node.module} import {alias.name}" + (f" as {name}" if alias.asname else "")
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    self.origins[alias.asname or alias.name] = f"import {alias.name}"

    def line_for(self, name: str) -> str | None:
        """The import that makes a name known, None for what needs none."""
        if name in NAMES or name in vars(typing.cast("object", __builtins__)):
            return None
        if name in self.origins:
            return self.origins[name]
        return f"from {self.name} import {name}" if name in self.namespace else None


class Writer:
    def __init__(self) -> None:
        self.imports: set[str] = {
            "from typing import Any, Self, cast, overload",
            "import rockmq.client as aio",
            *(f"import {each.__module__}" for each in CLASSES if each.__name__ not in client.__all__),
            "from rockmq.blocking.bridge import Portal, WRAPPERS, Wrapper, unwrap, wrap",
        }
        self.lines: list[str] = []

    def text(self) -> str:
        table = ", ".join(f"{_aio(each)}: {each.__name__}" for each in CLASSES)
        whole = "\n".join([HEAD, *sorted(self.imports), "", *self.lines, "", f"WRAPPERS.update({{{table}}})", ""])
        fixed = _ruff(["check", "--fix-only", "--quiet", "--stdin-filename", str(FILE), "-"], whole)
        return _ruff(["format", "--quiet", "--stdin-filename", str(FILE), "-"], fixed)

    def write(self, of: type) -> None:
        base = next((each for each in of.__mro__[1:] if each in CLASSES), None)
        of_what = self._parameters(of)
        self.lines += ["", f"class {of.__name__}({base.__name__ if base else f'Wrapper[{_aio(of)}{of_what}]'}):"]
        self._doc(of.__doc__, "    ")
        if base is not None:
            self.lines.append(f"    _wrapped: {_aio(of)}")
        seen: set[str] = set()
        for owner in of.__mro__:
            if owner is object or (base is not None and issubclass(base, owner)):
                break
            if owner.__module__ == "typing":
                continue
            module = Module(owner)
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
            assert isinstance(tree, ast.ClassDef)
            for node in tree.body:
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                # The attributes that a base's constructor makes are there too.
                if node.name not in seen or (node.name == "__init__" and of is not ROOT):
                    if "overload" not in _decorators(node):
                        seen.add(node.name)
                    self._method(of, node, module, seen)

    def _parameters(self, of: type) -> str:
        """The type variables of a generic class, in brackets."""
        found = [each.__name__ for each in getattr(of, "__parameters__", ())]
        module = Module(of)
        self.imports |= {line for each in found if (line := module.line_for(each)) is not None}
        return f"[{', '.join(found)}]" if found else ""

    def _doc(self, doc: str | None, indent: str) -> None:
        if doc:
            doc = doc.replace("`async with", "`with").replace("`async for", "`for").replace("async with", "with")
            doc = inspect.cleandoc(doc)
            end = "\n" if "\n" in doc else ""
            self.lines.append(textwrap.indent(f'"""{doc}{end}"""', indent, lambda line: line.strip() != ""))

    def _method(self, of: type, node: ast.FunctionDef | ast.AsyncFunctionDef, module: Module, seen: set[str]) -> None:
        name = node.name
        if name == "__init__":
            self._attributes(node, module, seen)
            if of is ROOT:
                self._constructor(of, node, module)
        elif name == "__aenter__":
            self._enter(of, node, module)
        elif name == "__aexit__":
            self._exit(of, node, module)
        elif name == "__aiter__":
            self.lines += ["    def __iter__(self) -> Self:", "        return self"]
        elif name == "__anext__":
            returned = self._annotation(node.returns, module)
            self.lines += [
                f"    def __next__(self) -> {returned}:",
                "        try:",
                f"            return cast({returned!r}, wrap(self._portal.run(self._wrapped.__anext__), self._portal))",
                "        except StopAsyncIteration:",
                "            raise StopIteration from None",
            ]
        elif not name.startswith("_") and name not in INTERNAL:
            self._public(of, node, module)

    def _attributes(self, node: ast.FunctionDef | ast.AsyncFunctionDef, module: Module, seen: set[str]) -> None:
        """Attributes that are arguments, as they were given, and those that are objects with a class here."""
        types = {each.arg: each.annotation for each in [*node.args.args, *node.args.kwonlyargs]}
        for each in node.body:
            match each:
                case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Name(id=given)):
                    if name == given and not name.startswith("_") and name not in INTERNAL | seen and types.get(given):
                        seen.add(name)
                        returned = self._annotation(types[given], module)
                        self.lines += ["    @property", f"    def {name}(self) -> {returned}:"]
                        self.lines += [f"        return self._wrapped.{name}"]
                case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Call(func=ast.Name(id=kind))):
                    if kind in NAMES and not name.startswith("_"):
                        self.lines += ["    @property", f"    def {name}(self) -> {kind}:"]
                        self.lines += [f"        return cast({kind!r}, wrap(self._wrapped.{name}, self._portal))"]

    def _constructor(self, of: type, node: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> None:
        signature, passed = self._signature(node, module)
        self.lines += [
            f"    def __init__({signature}) -> None:",
            "        portal = Portal()",
            "        try:",
            f"            wrapped = portal.call({_aio(of)}, {passed})",
            "        except BaseException:",
            "            portal.close()",
            "            raise",
            "        super().__init__(wrapped, portal)",
        ]

    def _enter(self, of: type, node: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> None:
        returned = self._annotation(node.returns, module)
        itself = returned in ("Self", of.__name__)
        self.lines.append(f"    def __enter__(self) -> {'Self' if itself else repr(returned)}:")
        call = "self._portal.run(self._wrapped.__aenter__)"
        if of is ROOT:
            self.lines += [
                "        try:", f"            {call}", "        except BaseException:", "            self._portal.close()",
                "            raise", "        return self",
            ]  # fmt: skip
        elif itself:
            self.lines += [f"        {call}", "        return self"]
        else:
            self.lines.append(f"        return cast({returned!r}, wrap({call}, self._portal))")

    def _exit(self, of: type, node: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> None:
        signature, passed = self._signature(node, module)
        returned = self._annotation(node.returns, module)
        call = f"self._portal.run(self._wrapped.__aexit__, {passed})"
        self.lines.append(f"    def __exit__({signature}) -> {returned}:")
        if returned != "None":
            call = f"return {call}"
        if of is ROOT:
            self.lines += ["        try:", f"            {call}", "        finally:", "            self._portal.close()"]
        else:
            self.lines.append(f"        {call}")

    def _public(self, of: type, node: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> None:
        name = node.name
        doc = ast.get_docstring(node)
        returned = self._annotation(node.returns, module)
        if "property" in _decorators(node):
            self.lines += ["    @property", f"    def {name}(self) -> {returned}:"]
            self._doc(doc, " " * 8)
            value = f"self._wrapped.{name}"
            if _wraps(node.returns):
                value = f"cast({returned.strip(chr(34))!r}, wrap({value}, self._portal))"
            self.lines.append(f"        return {value}")
            return
        if "asynccontextmanager" in _decorators(node):
            self._context(node, module)
            return
        signature, passed = self._signature(node, module)
        if "overload" in _decorators(node):
            self.lines += ["    @overload", f"    def {name}({signature}) -> {returned}: ..."]
            return
        future = returned.strip("\"'").startswith("asyncio.Future[")
        if future:
            returned = returned.strip("\"'").replace("asyncio.Future", "concurrent.futures.Future", 1)
            self.imports.add("import concurrent.futures")
        self.lines.append(f"    def {name}({signature}) -> {returned}:")
        self._doc(doc, " " * 8)
        how = "start" if future else "run" if isinstance(node, ast.AsyncFunctionDef) else "call"
        call = f"self._portal.{how}({', '.join(filter(None, [f'self._wrapped.{name}', passed]))})"
        if how == "call" and self._is_generic(of, node, module):
            call = f"self._portal.call(lambda: self._wrapped.{name}({passed}))"  # whose types can't be told as others'
        if _wraps(node.returns):
            call = f"cast({returned.strip(chr(34))!r}, wrap({call}, self._portal))"
        if returned != "None":
            call = f"return {call}"
        if name == "close":
            self.lines += ["        if self._portal.closed:", "            return"]
        if name == "close" and of is ROOT:
            self.lines += ["        try:", f"            {call}", "        finally:", "            self._portal.close()"]
        else:
            self.lines.append(f"        {call}")

    def _is_generic(self, of: type, node: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> bool:
        """Whether a function has type variables besides those of its class, or several signatures."""
        names = {each.id for each in ast.walk(node.args) if isinstance(each, ast.Name)}
        variables = {each for each in names if isinstance(module.namespace.get(each), typing.TypeVar)}
        own = variables - {each.__name__ for each in getattr(of, "__parameters__", ())}
        return bool(own) or bool(typing.get_overloads(getattr(of, node.name)))

    def _context(self, node: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> None:
        """A method that makes a context manager."""
        assert isinstance(node.returns, ast.Subscript), node.name
        entered = self._annotation(node.returns.slice, module)
        signature, passed = self._signature(node, module)
        self.imports |= {"import contextlib", "from collections.abc import Iterator"}
        self.lines += ["    @contextlib.contextmanager", f"    def {node.name}({signature}) -> Iterator[{entered}]:"]
        self._doc(ast.get_docstring(node), " " * 8)
        self.lines += [
            f"        with self._portal.context(self._portal.call(self._wrapped.{node.name}, {passed})) as entered:",
            f"            yield cast({entered!r}, wrap(entered, self._portal))",
        ]

    def _signature(self, node: ast.FunctionDef | ast.AsyncFunctionDef, module: Module) -> tuple[str, str]:
        """The parameters, and how they are passed on."""
        arguments = node.args
        assert not arguments.posonlyargs, f"{node.name} has parameters of a kind that isn't known here"
        parts, passed = ["self"], []
        first_default = len(arguments.args) - len(arguments.defaults)
        for number, each in enumerate(arguments.args[1:], 1):
            default = arguments.defaults[number - first_default] if number >= first_default else None
            parts.append(self._parameter(each, default, module))
            passed.append(self._passed(each, module))
        if arguments.vararg is not None:
            parts.append(f"*{self._parameter(arguments.vararg, None, module)}")
            passed.append(f"*{arguments.vararg.arg}")
        elif arguments.kwonlyargs:
            parts.append("*")
        for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            parts.append(self._parameter(each, default, module))
            passed.append(f"{each.arg}={self._passed(each, module)}")
        if arguments.kwarg is not None:
            parts.append(f"**{self._parameter(arguments.kwarg, None, module)}")
            passed.append(f"**{arguments.kwarg.arg}")
        return ", ".join(parts), ", ".join(passed)

    def _parameter(self, parameter: ast.arg, default: ast.expr | None, module: Module) -> str:
        text = f"{parameter.arg}: {self._annotation(parameter.annotation, module)}"
        if default is not None:
            self._need(default, module)
            text += f" = {ast.unparse(default)}"
        return text

    def _passed(self, parameter: ast.arg, module: Module) -> str:
        assert parameter.annotation is not None
        if (callback := self._callback(parameter.annotation, module)) is not None:
            call = f"self._portal.{callback[0]}({parameter.arg})"
            return f"{call} if {parameter.arg} is not None else None" if callback[1].endswith("| None") else call
        return f"unwrap({parameter.arg})" if _wraps(parameter.annotation) else parameter.arg

    def _annotation(self, node: ast.expr | None, module: Module) -> str:
        assert node is not None, module.name
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self._annotation(ast.parse(node.value, mode="eval").body, module)
        callback = self._callback(node, module)
        if callback is not None:
            self.imports.add("from collections.abc import Callable")
            return callback[1]
        self._need(node, module)
        return ast.unparse(node)

    def _callback(self, node: ast.expr, module: Module) -> tuple[str, str] | None:
        """How a function of a named type is handed over, and its type here; None for what is no name of such a type, or
        needs no help."""
        if isinstance(node, ast.BinOp) and ast.unparse(node.right) == "None":
            callback = self._callback(node.left, module)
            return (callback[0], f"{callback[1]} | None") if callback is not None else None
        name = node.value if isinstance(node, ast.Subscript) else node
        found = module.namespace.get(name.id) if isinstance(name, ast.Name) else None
        if typing.get_origin(found) is not collections.abc.Callable:
            return None
        given, result = typing.get_args(found)
        arguments = ", ".join(self._shown(each) for each in given)
        if typing.get_origin(result) is collections.abc.Awaitable:
            (value,) = typing.get_args(result)
            return "callback", f"Callable[[{arguments}], {self._shown(value)}]"
        if NAMES.isdisjoint(_words(arguments)):
            return None
        # What may be awaitable may be plain.
        plain = [each for each in typing.get_args(result) if typing.get_origin(each) is not collections.abc.Awaitable]
        return "function", f"Callable[[{arguments}], {self._shown(plain[0] if plain else result)}]"

    def _shown(self, found: typing.Any) -> str:
        """A type as text."""
        if typing.get_origin(found) is list:
            (item,) = typing.get_args(found)
            return f"list[{self._shown(item)}]"
        if typing.get_origin(found) is not None:
            return f"{found.__name__}[{', '.join(map(self._shown, typing.get_args(found)))}]"
        if found.__name__ not in NAMES and found.__module__ != "builtins":
            self.imports.add(f"from {found.__module__} import {found.__name__}")
        return str(found.__name__)

    def _need(self, node: ast.expr, module: Module) -> None:
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and (line := module.line_for(each.id)) is not None:
                self.imports.add(line)


def _decorators(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}


def _wraps(node: ast.expr | None) -> bool:
    """Whether an annotation names a class that threads get another one for."""
    assert node is not None
    return any(
        (isinstance(each, ast.Name) and each.id in NAMES)
        or (isinstance(each, ast.Constant) and isinstance(each.value, str) and not NAMES.isdisjoint(_words(each.value)))
        for each in ast.walk(node)
    )


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _aio(of: type) -> str:
    return f"aio.{of.__name__}" if of.__name__ in client.__all__ else f"{of.__module__}.{of.__name__}"


def _ruff(words: list[str], text: str) -> str:
    command = [sys.executable, "-m", "ruff", *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def generated() -> str:
    """The file as it should be."""
    writer = Writer()
    for each in CLASSES:
        writer.write(each)
    return writer.text()


def main() -> int:
    text = generated()
    if "--check" in sys.argv:
        if FILE.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{FILE} is not up to date: run python scripts/make_blocking.py\n")
            return 1
        return 0
    FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
