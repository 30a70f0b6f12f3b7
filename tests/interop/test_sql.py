"""SQL92 expressions and bloom bits, judged by the classes of Apache's own broker."""

from base64 import b64encode
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from rockmq.base.errors import FilterError
from rockmq.filter import sql
from rockmq.filter.bloom import BloomFilter
from tests.support import apache, sql_model
from tests.support.events import events
from tests.support.sql_model import Tree
from tests.unit.filter.test_sql import REFUSED, outcome

RANDOM = 1_500
NUMBERS = [
    "0",
    "5",
    "5L",
    "5.0",
    "5.5",
    ".5e1",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "1e400",
    "0.0",
    "4.9E-324",
    "007",
]
TEXTS = [
    "", "5", "5.0", " 5", "5 ", "+5", "-5", "5L", "5f", "0x10", "5e0", "true", "TRUE", "x", "NaN", "-NaN", "Infinity",
    "-0.0", "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "٥",
    "５", "𝟓", "1e400", "-1e-400", "\u00a05", "9007199254740993", ".", "e5", "1_0", "5D", "5dd", "\t5\n",
]  # fmt: skip
MORE = [
    "a > 5 garbage", "a > 007", "a > 0x1F", "a LIKE 'x%'", "a + 5", "a = 1 -- no end", "a = 1 -- end\n",
    "a = 1 /* */", "a = 1 /*", "A = 5", "Not (a = 5)", "a iN ('5')", "a Is nOt NuLl", "a=5or b=5", "a>5and b<5",
    "a = .5", "a = 5.", "a = 5.L", "a = 0l", "a = b", "a > b", "a <> b", "b = a", "a = (a = 5)", "(a = 5) = (b = 5)",
    "(a > 5) = TRUE", "TRUE = (a > 5)", "TRUE <> FALSE", "TRUE = a", "a = TRUE", "a <> FALSE", "5 = '5'", "'5' = 5",
    "5.0 = 5", "'x' = 'x'", "a = 'x' = 'y'", "a = 5 = b", "5 = TRUE", "TRUE = 5", "TRUE = 'x'", "FALSE", "NULL",
    "TRUE", "NOT NULL", "'x'", "5", "-5", "-a", "+a", "- - 5 = a", "--5 = a", "+5 < a", "a = -NULL", "a = -'x'",
    "-(a = 5) IS NULL", "a > -(b = 5)", "a > -5", "-a < 5", "a IS NULL IS NULL", "a IS NULL = TRUE", "5 IS NULL",
    "NULL IS NULL", "(a) IN ('5')", "+a IN ('5')", "-a IN ('5')", "'5' IN ('5')", "a IN ()", "a IN (5)",
    "a IN ('x',)", "a IN ('1', '2', '3', '4', '5')", "a NOT IN ('5', 'x')", "a CONTAINS '5'", "a NOT CONTAINS '5'",
    "a CONTAINS ''", "5 CONTAINS '5'", "'abc' CONTAINS 'b'", "(a = 5) CONTAINS 'x'", "(a = 5) CONTAINS ''",
    "a CONTAINS b", "a STARTSWITH '5'", "a NOT STARTSWITH '5'", "a ENDSWITH '5'", "a NOT ENDSWITH '0'",
    "a NOT LIKE 'x'", "a NOT 5", "a IS 5", "a IS NOT 5", "a BETWEEN 1 AND 9", "a BETWEEN 1 AND",
    "a NOT BETWEEN 1 AND 5", "a BETWEEN 5 AND 1", "a NOT BETWEEN 5 AND 1", "a BETWEEN b AND 9", "a BETWEEN 1 AND b",
    "a BETWEEN 1.5 AND 9", "a BETWEEN -5 AND -9", "a BETWEEN 'x' AND 'y'",
    "a BETWEEN 9007199254740993 AND 9007199254740992.0", "5 BETWEEN a AND b", "-(a BETWEEN 1 AND 9) BETWEEN 1 AND 2",
    "a > 5 > 3", "a > 5 IN ('x')", "NOT a", "NOT a = 5", "NOT a > 5", "NOT NOT a", "a AND b", "a OR 5",
    "a = 5 OR b = 5 AND a = 6", "a = 5 AND b = 5 OR a = 5", "b = 5 OR a = 5", "b = 5 AND a = 6", "a = '5''5'",
    "a = ''''", "a = '\n'", "a = '😀'", "a = \"5\"", "a == 5", "a != 5", "a >< 5", "a => 5", "a = 5;", "()", "", " ",
    "a", "$a", "_a = 5", "a.b = 5", "a-b = 5", "ä = 5", "now > 5", "index = 5", "notin = 5", "a\f=\t5\r\n",
    "a\u00a0= 5", "a = 5\x00",
]  # fmt: skip


def answers(cases: list[tuple[str, dict[str, str]]], directory: Path) -> list[str]:
    texts = [[expression, *(part for pair in message.items() for part in pair)] for expression, message in cases]
    lines = [" ".join(b64encode(text.encode()).decode() for text in line) for line in texts]
    asked, answered = directory / "asked", directory / "answered"
    asked.write_text("".join(f"{line}\n" for line in lines))
    where = f"file={asked}", f"result={answered}"
    libraries = apache.server_class_path(apache.SERVER)
    with apache.program(apache.SERVER, "Expressions", *where, directory=directory, libraries=libraries) as program:
        assert program.wait(60) == 0, program.tail()
    return answered.read_text().splitlines()


def ours(expression: str, message: dict[str, str]) -> str:
    try:
        sql.program(expression)
    except FilterError:
        return "refused"
    return {True: "true", False: "false", None: "null"}.get(outcome(expression, message), "error")  # type: ignore[call-overload]


def differences(cases: list[tuple[str, dict[str, str]]], directory: Path) -> list[tuple[str, dict[str, str], str, str]]:
    """Where we say otherwise than Apache, but for expressions of which it uses a part: those we refuse."""
    found = answers(cases, directory)
    assert len(found) == len(cases)
    expected = ["refused" if each.endswith(" part") else each for each in found]
    return [(*case, wanted, said) for case, wanted in zip(cases, expected, strict=True) if (said := ours(*case)) != wanted]


def test_what_is_written_by_hand(tmp_path: Path) -> None:
    messages = [{}, {"a": "5"}, {"a": "6", "b": "5"}, {"a": "x", "b": "5"}, {"a": "5.5", "b": "y"}, {"b": "x"}]
    cases = [(expression, message) for expression in [*MORE, *REFUSED] for message in messages]
    cases += [
        (f"a {sign} {number}", {"a": text}) for sign in ("=", "<", ">=") for number in NUMBERS for text in TEXTS if text
    ]
    cases += [(f"a = {sql_model.quoted(text)}", {"a": "5"}) for text in TEXTS]
    cases += [(f"{number} < a AND a {sign} b", {"a": "5", "b": text})
              for number in ("-5", "0.5") for sign in ("=", "<") for text in TEXTS if text]  # fmt: skip
    assert differences(cases, tmp_path) == []


def test_what_is_made_at_random(tmp_path: Path) -> None:
    cases: list[tuple[str, dict[str, str]]] = []

    @settings(
        max_examples=RANDOM, deadline=None, phases=[Phase.generate], database=None, suppress_health_check=list(HealthCheck)
    )
    @given(sql_model.trees, sql_model.properties)
    def collect(tree: Tree, message: dict[str, str]) -> None:
        cases.append((sql_model.text(tree), message))

    collect()
    assert differences(cases, tmp_path) == []


@pytest.mark.parametrize(
    "expression", [" OR ".join(["a=1"] * 2_000), "a IN ('1'" + ",'1'" * 8_000 + ")"], ids=["terms", "list"]
)
def test_what_apache_takes_and_we_find_too_large(expression: str, tmp_path: Path) -> None:
    """The bounds are ours."""
    assert answers([(expression, {"a": "1"})], tmp_path) == ["true"]
    assert ours(expression, {"a": "1"}) == "refused"


@pytest.mark.parametrize(("error", "expected"), [(20, 32), (1, 1_000), (60, 7)])
def test_bloom_bits_are_apaches(error: int, expected: int, tmp_path: Path) -> None:
    names = ["g#T", "CID_billing#orders", "a group of more than sixteen bytes#a topic", "Grüppe#主题", "x" * 16, "x" * 24]
    arguments = f"error={error}", f"expected={expected}", f"names={','.join(names)}"
    libraries = apache.server_class_path(apache.SERVER)
    with apache.program(apache.SERVER, "BloomBits", *arguments, directory=tmp_path, libraries=libraries) as program:
        assert program.wait(60) == 0, program.tail()
        found = {each["name"]: (each["bits"], each["positions"]) for each in events(program, "bits")}
    ours = BloomFilter.of(error, expected)
    assert found == {name: (ours.bits, ours.positions(name)) for name in names}
