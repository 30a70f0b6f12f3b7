"""SQL92 filters as Apache's classes evaluate them, written down anew and slowly, and expressions at random.

An expression is a tree of tuples. `text` writes it with as few parentheses as the grammar needs, `refused` says whether
Apache's parser throws, `evaluate` what it comes to for a message: True, False, None, or ERROR.
"""

import math
import re
from typing import Any, Final

from hypothesis import strategies as st

Tree = tuple[Any, ...]
ERROR: Final = "error"


class Thrown(Exception):
    """What an exception is in Java."""


class Long(int):
    """Java has two kinds of integers, and compares what becomes of a text as the kind that it meets."""


# Text

_LEVELS = {"or": 0, "and": 1, "=": 2, "<>": 2, "is null": 2, "not": 4, "-": 4, "+": 4}
_PRIMARY = 5


def level(tree: Tree) -> int:
    if tree[0] in ("property", "constant"):
        return _PRIMARY
    return _LEVELS.get(tree[0], 3)


def text(tree: Tree, at_least: int = 0) -> str:
    """The expression, in parentheses where what stands around it binds tighter."""
    written = _text(tree)
    return written if level(tree) >= at_least else f"({written})"


def _text(tree: Tree) -> str:
    match tree:
        case ("property", name):
            return str(name)
        case ("constant", _, literal):
            return str(literal)
        case ("and" | "or" as kind, left, right):
            own = level(tree)
            return f"{text(left, own)} {kind.upper()} {text(right, own + 1)}"
        case ("is null", part, negated):
            return f"{text(part, 2)} IS {'NOT ' if negated else ''}NULL"
        case ("between", part, low, high, negated):
            return f"{text(part, 3)} {'NOT ' if negated else ''}BETWEEN {text(low, 4)} AND {text(high, 4)}"
        case ("in", part, patterns, negated):
            return f"{text(part, 3)} {'NOT ' if negated else ''}in ({', '.join(map(quoted, patterns))})"
        case ("contains" | "startswith" | "endswith" as kind, part, pattern, negated):
            return f"{text(part, 3)} {'not ' if negated else ''}{kind} {quoted(pattern)}"
        case ("not", part):
            return f"NOT {text(part, 4)}"
        case ("-" | "+" as sign, part):
            return f"{sign} {text(part, 4)}"
        case (sign, left, right):
            own = level(tree)
            return f"{text(left, own)} {sign} {text(right, own + 1)}"
    raise AssertionError(tree)


def quoted(pattern: str) -> str:
    return "'" + pattern.replace("'", "''") + "'"


# What the parser throws for


def is_condition(tree: Tree) -> bool:
    """Whether it is a BooleanExpression."""
    tree = bare(tree)
    if tree[0] == "constant":
        return tree[1] is None or isinstance(tree[1], bool)
    return tree[0] not in ("property", "-")


def bare(tree: Tree) -> Tree:
    return bare(tree[1]) if tree[0] == "+" else tree


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def refused(tree: Tree) -> bool:
    return not _may_be_condition(tree) or _refused(tree)


def _may_be_condition(tree: Tree) -> bool:
    return is_condition(tree) or bare(tree)[0] == "property"


def _may_be_ordered(tree: Tree) -> bool:
    tree = bare(tree)
    return is_number(tree[1]) if tree[0] == "constant" else not is_condition(tree)


def _refused(tree: Tree) -> bool:
    match tree:
        case ("property", _):
            return False
        case ("constant", value, _):
            return isinstance(value, float) and not 0 < value < math.inf
        case ("and" | "or", left, right):
            return not (_may_be_condition(left) and _may_be_condition(right)) or _refused(left) or _refused(right)
        case ("not", part):
            return not _may_be_condition(part) or _refused(part)
        case ("-" | "+", part):
            return _refused(part)
        case ("is null", part, _):
            return _refused(part)
        case ("in", part, _, _):
            return bare(part)[0] != "property"
        case ("contains" | "startswith" | "endswith", part, _, _):
            return _refused(part)
        case ("between", part, low, high, negated):
            low, high = bare(low), bare(high)
            if any(map(_refused, (part, low, high))) or not all(map(_may_be_ordered, (part, low, high))):
                return True
            constant = low[0] == high[0] == "constant"
            return constant and not negated and _order(high[1], low[1]) < 0
        case ("=" | "<>", left, right):
            left, right = bare(left), bare(right)
            for part in (left, right):
                if _refused(part) or (part[0] == "constant" and part[1] is None):
                    return True
            return left[0] == right[0] == "constant" and is_condition(left) and not is_condition(right)
        case (_, left, right):
            return any(map(_refused, (left, right))) or not (_may_be_ordered(left) and _may_be_ordered(right))
    raise AssertionError(tree)


# Evaluation


def evaluate(tree: Tree, properties: dict[str, str]) -> object:
    try:
        return _condition(tree, properties)
    except Thrown:
        return ERROR


def _condition(tree: Tree, properties: dict[str, str]) -> bool | None:
    """A part where a condition is expected; a property is cast, and only Boolean objects can be true."""
    value = _value(tree, properties)
    if value is None or isinstance(value, bool):
        return value
    return False


def _value(tree: Tree, properties: dict[str, str]) -> Any:
    match tree:
        case ("property", name):
            return properties.get(name)
        case ("constant", value, _):
            return value
        case ("+", part):
            return _value(part, properties)
        case ("-", part):
            value = _value(part, properties)
            return type(value)(-value) if is_number(value) else None
        case ("and" | "or" as kind, left, right):
            return _both(kind == "or", left, right, properties)
        case ("not", part):
            value = _condition(part, properties)
            return None if value is None else not value
        case ("is null", part, negated):
            return (_value(part, properties) is None) != negated
        case ("in", part, patterns, negated):
            value = _value(part, properties)
            return (value in patterns) != negated if isinstance(value, str) else None
        case ("contains" | "startswith" | "endswith" as kind, part, pattern, negated):
            if not pattern:
                return False
            value = _value(part, properties)
            if not isinstance(value, str):
                return False
            found = {
                "contains": pattern in value,
                "startswith": value.startswith(pattern),
                "endswith": value.endswith(pattern),
            }
            return found[kind] != negated
        case ("between", part, low, high, negated):
            first, second = ("<", ">") if negated else (">=", "<=")
            return _both(negated, (first, part, low), (second, part, high), properties)
        case ("=" | "<>" as sign, left, right):
            one, other = _value(left, properties), _value(right, properties)
            equal = _equal(one, other)
            return equal if equal is None or sign == "=" else not equal
        case (sign, left, right):
            one = _value(left, properties)
            if one is None:
                return None
            other = _value(right, properties)
            if other is None:
                return None
            if isinstance(one, str) and isinstance(other, str):
                one, other = _double(one), _double(other)
            order = _order(one, other)
            return {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[sign]
    raise AssertionError(tree)


def _both(decisive: bool, left: Tree, right: Tree, properties: dict[str, str]) -> bool | None:
    """AND is decided by a false one, OR by a true one."""
    one = _condition(left, properties)
    if one is decisive:
        return decisive
    other = _condition(right, properties)
    if other is decisive:
        return decisive
    return None if one is None or other is None else not decisive


def _equal(one: Any, other: Any) -> bool | None:
    if one is None and other is not None:
        return None
    if one is None or other is None:
        return one is other
    return _order(one, other) == 0


def _order(one: Any, other: Any) -> int:
    """ComparisonExpression.__compare."""
    if isinstance(one, str) and not isinstance(other, str):
        one = one.lower() == "true" if isinstance(other, bool) else _number(one, other)
    elif isinstance(other, str) and not isinstance(one, str):
        if isinstance(one, bool):
            raise Thrown
        other = _number(other, one)
    if isinstance(one, bool) != isinstance(other, bool):
        return -1
    if isinstance(one, float) or isinstance(other, float):
        one, other = _key(float(one)), _key(float(other))
    return (one > other) - (one < other)


def _key(number: float) -> tuple[int, float, bool]:
    """By which Java sorts doubles."""
    return (1, 0.0, True) if math.isnan(number) else (0, number, math.copysign(1, number) > 0)


def _number(text: str, like: object) -> float:
    return _double(text) if isinstance(like, float) else _integer(text, 63 if isinstance(like, Long) else 31)


def _integer(text: str, bits: int) -> int:
    if not re.fullmatch(r"[+-]?\d+", text) or any(ord(char) > 0xFFFF for char in text):
        raise Thrown
    number = int(text)
    if not -(2**bits) <= number < 2**bits:
        raise Thrown
    return number


def _double(text: str) -> float:
    text = text.strip("".join(map(chr, range(33))))
    if found := re.fullmatch(r"([+-]?)(NaN|Infinity)", text):
        return float(found[1] + {"NaN": "nan", "Infinity": "inf"}[found[2]])
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?", text):
        raise Thrown
    return float(text.rstrip("fFdD"))


# At random

NAMES = ("a", "b", "$c_1", "TAGS")
_numbers = st.sampled_from(
    ["0", "1", "5", "7l", "2147483647", "2147483648", "9007199254740993L", "9223372036854775807", "5.5", "5.", ".5", "1e3",
     "5E-1", "1e400", "0.0", "4.9e-324", "9007199254740992.0", "007.5"]
)  # fmt: skip
texts = st.sampled_from(
    [
        "", "x", "5", "5.5", " 5", "-5", "+5", "007", "true", "TRUE", "it's", "ü", "東京", "😀", "NaN", "-Infinity",
        "1e3", "2147483648", "-2147483648", "-9223372036854775808", "9223372036854775808", "0.0", "-0.0", "5f", "٥",
        "５", "𝟓", "0x10", ".",
    ]
) | st.text(max_size=3)  # fmt: skip


def _constant(literal: str) -> Tree:
    if set(literal.lower()) & set(".e"):
        return ("constant", float(literal), literal)
    number = int(literal.rstrip("lL"))
    return ("constant", number if number < 2**31 else Long(number), literal)


_negated = st.booleans()
_properties = st.sampled_from(NAMES).map(lambda name: ("property", name))
_amounts = _properties | _numbers.map(_constant) | st.tuples(st.sampled_from("-+"), _numbers.map(_constant))
_literals = texts.map(lambda value: ("constant", value, quoted(value)))
_truths = st.sampled_from([("constant", True, "true"), ("constant", False, "False"), ("constant", None, "NULL")])
_leaves = _properties | _amounts | _literals | _truths
_equals = st.sampled_from(["=", "<>"])
_orders = st.sampled_from(["<", "<=", ">", ">="])
_searches = st.sampled_from(["contains", "startswith", "endswith"])
_conditions = st.one_of(
    st.tuples(_orders, _amounts, _amounts),
    st.tuples(_equals, _properties, _literals | _amounts | _truths),
    st.tuples(_equals, _literals | _amounts, _properties),
    st.tuples(st.just("between"), _amounts, _amounts, _amounts, _negated),
    st.tuples(st.just("in"), _properties, st.lists(texts, min_size=1, max_size=7), _negated),
    st.tuples(_searches, _leaves, texts, _negated),
    st.tuples(st.just("is null"), _leaves, _negated),
)


def _joined(parts: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), parts, parts),
        st.tuples(st.just("not"), parts),
        st.tuples(_equals, parts, parts | _truths | _properties),
        st.tuples(st.just("is null"), parts, _negated),
    )


def _anyhow(parts: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    """What is grammar, but mostly refused."""
    return st.one_of(
        st.tuples(_equals | _orders | st.sampled_from(["and", "or"]), parts, parts),
        st.tuples(st.sampled_from(["not", "-", "+"]), parts),
        st.tuples(st.just("is null"), parts, _negated),
        st.tuples(st.just("in"), _leaves, st.lists(texts, min_size=1, max_size=3), _negated),
        st.tuples(_searches, parts, texts, _negated),
        st.tuples(st.just("between"), parts, parts, parts, _negated),
    )


_sound: st.SearchStrategy[Tree] = st.recursive(_conditions, _joined, max_leaves=6)
_wild: st.SearchStrategy[Tree] = st.recursive(_leaves, _anyhow, max_leaves=6)
trees = _sound | _sound | _sound | _wild
_values = texts.filter(lambda value: bool(value) and not set(value) & {"\1", "\2"})
properties: st.SearchStrategy[dict[str, str]] = st.dictionaries(st.sampled_from(NAMES), _values, max_size=4)
