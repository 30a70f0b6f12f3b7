"""SQL92 expressions: what they come to for a message, and what isn't one (clients' spec, 4).

`tests/interop/test_sql.py` asks Apache's own classes the same."""

import pytest
from hypothesis import given, settings

from rockmq.base.errors import FilterError
from rockmq.filter import sql
from rockmq.protocol import properties
from rockmq.store import Filter
from tests.support import sql_model
from tests.support.sql_model import ERROR, Tree


def outcome(expression: str, message: dict[str, str]) -> object:
    """True, False, None or ERROR; a filter itself only tells true from the others."""
    text = properties.encode(message)
    asked = [
        Filter(sql.program(each)).matches(text) for each in (expression, f"NOT ({expression})", f"({expression}) IS NULL")
    ]
    return {(1, 0, 0): True, (0, 1, 0): False, (0, 0, 1): None, (0, 0, 0): ERROR}[tuple(map(int, asked))]  # type: ignore[index]


@pytest.mark.parametrize(
    ("expression", "message", "result"),
    [
        ("a > 5", {"a": "6"}, True),
        ("a > 5", {"a": "5.5"}, ERROR),
        ("a > 5.0", {"a": "5.5"}, True),
        ("a > 5", {"a": "3000000000"}, ERROR),
        ("a > 5L", {"a": "3000000000"}, ERROR),
        ("a > 2147483648", {"a": "3000000000"}, True),
        ("a = 5", {"a": "5.0"}, ERROR),
        ("a = 5.0", {"a": "5"}, True),
        ("a = 5", {"a": " 5"}, ERROR),
        ("a = 5.0", {"a": " 5 "}, True),
        ("a <> 'x'", {}, None),
        ("'x' <> a", {}, True),
        ("NOT (a = 'x')", {}, None),
        ("a = b", {}, True),
        ("a = TRUE", {"a": "tRuE"}, True),
        ("TRUE = a", {"a": "true"}, ERROR),
        ("5 = TRUE", {}, False),
        ("NOT a = 5", {"a": "5"}, False),
        ("NOT a", {"a": "true"}, True),
        ("-a > 1", {"a": "5"}, None),
        ("a > -5", {"a": "-4"}, True),
        ("a", {"a": "true"}, False),
        ("a IS NULL", {}, True),
        ("a is not null", {"a": "x"}, True),
        ("NULL", {}, None),
        ("now > 5", {"now": "6"}, True),
        ("index IN ('1', '2') AND nota = 'b'", {"index": "1", "nota": "b"}, True),
        ("a NOT IN ('x')", {}, None),
        ("a CONTAINS ''", {"a": "x"}, False),
        ("a NOT CONTAINS 'y'", {"a": "x"}, True),
        ("a NOT CONTAINS 'y'", {}, False),
        ("a STARTSWITH 'ab' AND a ENDSWITH 'bc'", {"a": "abc"}, True),
        ("a = 'it''s'", {"a": "it's"}, True),
        ("a BETWEEN 1 AND 5 AND b = 'x'", {"a": "3", "b": "x"}, True),
        ("a NOT BETWEEN 1 AND 5", {"a": "6"}, True),
        ("a BETWEEN -5 AND -9", {"a": "-7"}, False),
        ("a = 1 OR b = 2 AND c = 3", {"a": "1"}, True),
        ("(a = 1 OR b = 2) AND c = 3", {"a": "1", "c": "4"}, False),
        ("b = 1 OR a = 1", {"a": "1", "b": "x"}, ERROR),
        ("a = 1 OR b = 1", {"a": "1", "b": "x"}, True),
        ("a > 5and a<7", {"a": "6"}, True),
        ("/* one */ a -- two\n = 'x' /***/", {"a": "x"}, True),
        ("A = 'x'", {"a": "x"}, None),
        ("TAGS = 'paid' AND $x_1 > 0", {"TAGS": "paid", "$x_1": "1"}, True),
        ("a > b", {"a": "10", "b": "9"}, True),
        ("a > b", {"a": "x", "b": "9"}, ERROR),
    ],
)
def test_what_an_expression_comes_to(expression: str, message: dict[str, str], result: object) -> None:
    assert outcome(expression, message) == result


REFUSED = {
    "": "character 1 .*isn't complete|isn't complete.*character 1",
    "   ": "isn't complete",
    "a >": r"isn't complete.*\(at character 4",
    "a > 5 garbage": "garbage can't stand here; expected one of .*AND.*at character 7",
    "a > 007": r"0 can't stand here.*at character 6",
    "a > 0x1F": "x1F can't stand here",
    "a LIKE 'x%'": "LIKE can't stand here.*BETWEEN",
    "a + 5": r"\+ can't stand here",
    "a == 5": "= can't stand here",
    "a != 5": "'!' means nothing.*character 3",
    "a = 'x": "no end.*character 5",
    'a = "x"': "means nothing",
    "a = 1;": "';' means nothing",
    "(a = 1": "isn't complete",
    "a = 1)": r"\) can't stand here",
    "5": "a condition is expected.*character 1",
    "a AND 5": "a condition is expected.*character 7",
    "a > 'x'": "only numbers have an order.*character 5",
    "a > TRUE": "only numbers have an order.*character 5",
    "NOT a > 5": "this is a condition",
    "a = NULL": "IS NULL.*character 5",
    "TRUE = 5": "TRUE can be compared with a condition only",
    "a BETWEEN 5 AND 1": "nothing is between 5 and 1.*character 11",
    "a BETWEEN 5 AND 1.5": "nothing is between",
    "a BETWEEN 'x' AND 'y'": "only numbers",
    "'a' IN ('a')": "only a property",
    "a IN ()": r"\) can't stand here; expected one of a text",
    "a IN (5)": "5 can't stand here; expected one of a text",
    "a CONTAINS b": "b can't stand here; expected one of a text",
    "a IS": "isn't complete; expected one of NOT, NULL",
    "a > 9223372036854775808": "over 9223372036854775807",
    "a > " + "9" * 10_000: "over 9223372036854775807",
    "a > 1e400": "none that a double",
    "a > 0.0": "Apache doesn't take",
    "a = ſ": "means nothing",
    "ıs = 1": "means nothing",
}


@pytest.mark.parametrize("expression", REFUSED, ids=lambda each: each[:30])
def test_what_is_none_is_told_with_its_place(expression: str) -> None:
    with pytest.raises(FilterError, match=REFUSED[expression]) as error:
        sql.program(expression)
    assert len(str(error.value)) < 400


HUGE = {
    "10,000 parentheses": "(" * 10_000 + "a = 1" + ")" * 10_000,
    "parentheses within the size": "(" * 8_000 + "a = 1",
    "a million terms": " OR ".join(["a = 1"] * 1_000_000),
    "terms within the size": " OR ".join(["a=1"] * 2_000),
    "negations": "- " * 8_000 + "1 = a",
    "inversions": "NOT " * 4_000 + "a",
    "pluses": "+" * 16_000 + "a = 1",
    "a text without end": "a = '" + "''" * 8_000,
    "a comment without end": "a = 1 /*" + "*" * 16_000,
    "a list": f"a IN ({','.join(['1'] * 8_000)})",
    "commas": "a IN ('x'" + ",'x'" * 4_000,
    "unfinished comparisons": "a = " * 4_000,
}


@pytest.mark.parametrize("case", HUGE)
def test_what_is_too_large_or_too_deep_is_refused(case: str) -> None:
    with pytest.raises(FilterError):
        sql.program(HUGE[case])


def test_what_is_large_but_within_bounds_works() -> None:
    assert outcome("(" * 199 + "a = 1" + ")" * 199, {"a": "1"}) is True
    assert outcome("+" * 1_000 + "a = 1", {"a": "1"}) is True
    assert outcome(" OR ".join(f"a = {number}" for number in range(400)), {"a": "399"}) is True
    assert outcome(" AND ".join(f"p{number} = 'x'" for number in range(400)), {f"p{n}": "x" for n in range(400)}) is True
    many = ", ".join(f"'value {number}'" for number in range(1_000))
    assert outcome(f"a IN ({many})", {"a": "value 999"}) is True
    assert outcome(f"a NOT IN ({many})", {"a": "value 999"}) is False


@settings(max_examples=500, deadline=None)
@given(sql_model.trees, sql_model.properties)
def test_the_core_agrees_with_the_model(tree: Tree, message: dict[str, str]) -> None:
    expression = sql_model.text(tree)
    if sql_model.refused(tree):
        with pytest.raises(FilterError):
            sql.program(expression)
    else:
        assert outcome(expression, message) == sql_model.evaluate(tree, message), expression


@pytest.mark.parametrize(
    "text",
    [b"", b"a", b"a\x01", b"\x01x\x02", b"a\x02a\x01", b"a\x01\x02", b"b\x01x\x02a"],
)
def test_properties_that_say_nothing(text: bytes) -> None:
    assert Filter(sql.program("a IS NULL")).matches(text)


def test_the_last_of_two_values_counts_and_text_that_is_none_is_compared_as_it_is() -> None:
    assert Filter(sql.program("a = 'y'")).matches(b"a\x01x\x02a\x01y")
    broken = b"a\x01\xff\xfe5\x02"
    assert not Filter(sql.program("a = 5")).matches(broken)
    assert Filter(sql.program("a CONTAINS '5' AND a ENDSWITH '5' AND a <> '5'")).matches(broken)
