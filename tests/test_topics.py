"""Tests that share the Spark server have topics of their own: a name that two of them write out is a collision to come."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIXTURES = {"server", "read", "stream"}
"""What has to do with that server."""
IN_PROGRAMS = re.compile(r"""(?:"topic"[,:] |create_topic\()"([\w-]+)\"""")


def text(node: ast.AST | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def called(call: ast.Call) -> tuple[str, list[str | None]]:
    return getattr(call.func, "attr", getattr(call.func, "id", "")), [text(argument) for argument in call.args]


def written(test: ast.AST) -> Iterator[str | None]:
    """What stands in a test where a topic's name stands, and the names that it puts into a program of a page."""
    for node in ast.walk(test):
        if isinstance(node, ast.keyword) and node.arg == "topic":
            yield text(node.value)
        elif isinstance(node, ast.Dict):
            yield from (text(value) for key, value in zip(node.keys, node.values, strict=True) if text(key) == "topic")
        elif isinstance(node, ast.Call):
            match called(node):
                case "option", ["topic", topic]:
                    yield topic
                case "replace", [_, str(new)]:
                    yield from re.findall(r'^"([\w-]+)"$', new)
                case (("create" | "fill"), [_, topic, *_]):
                    yield topic
                case (("create_topic" | "read" | "stream"), [topic, *_]):
                    yield topic


def of_pages(test: ast.AST, module: str) -> set[str]:
    """Topics of a page's programs that a test runs, but for those that it replaces, whose names it has in quotes."""
    source = ast.unparse(test)
    if not re.search(r"BLOCKS\[|```python", source):
        return set()
    quoted = {name for node in ast.walk(test) for name in re.findall(r'"([\w-]+)"', text(node) or "")}
    names = re.findall(r"[\w-]+\.md", module)
    pages = [path.read_text(encoding="utf-8") for name in names for path in (ROOT / "docs").rglob(name)]
    programs = [program for page in pages for program in re.findall(r"```python\n(.*?)```", page, re.DOTALL)]
    return {name for program in programs for name in IN_PROGRAMS.findall(program)} - quoted


def users(sources: dict[str, str]) -> dict[str, set[str]]:
    """By each topic name that is written out, the tests on the shared server that use it."""
    found: dict[str, set[str]] = defaultdict(set)
    for file, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and FIXTURES & {each.arg for each in node.args.args}:
                for name in {*written(node), *of_pages(node, source)} - {None}:
                    found[str(name)].add(f"{file}::{node.name}")
    return found


def test_no_two_tests_share_a_topic_on_the_spark_server() -> None:
    files = sorted((ROOT / "tests" / "spark").glob("test_*.py"))
    by_name = users({path.name: path.read_text(encoding="utf-8") for path in files})
    assert {"orders-of-the-source", "orders-of-the-sink"} <= by_name.keys()
    assert {name: tests for name, tests in by_name.items() if len(tests) > 1} == {}


def test_each_way_to_name_a_topic_is_seen() -> None:
    page = "docs/spark-sink.md"
    sources = {
        "a": 'def test_a(server): writer.option("topic", "x"); read(topic="y"); mq.create_topic("z", 1)',
        "b": 'def test_b(server): asyncio.run(create(server.namesrv, "x", 1)); options = {"topic": "y"}',
        "c": f"def test_c(server): exec(re.findall('```python', page('{page}'))[0])",
        "d": f"""def test_d(server): exec(re.findall('```python', page('{page}'))[0].replace('"orders"', '"z"'))""",
        "e": 'def test_e(peer): writer.option("topic", "x")',
        "f": 'def test_f(read): read("f").count()',
    }
    assert users(sources) == {
        "x": {"a::test_a", "b::test_b"},
        "y": {"a::test_a", "b::test_b"},
        "z": {"a::test_a", "d::test_d"},
        "orders": {"c::test_c"},
        "f": {"f::test_f"},
    }
