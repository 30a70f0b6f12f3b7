"""SQL92 filters (SelectorParser.jj and the expressions of Apache's filter module; clients' spec, 4).

An expression is parsed here, once, and evaluated by the core, once per message: what is made of it is a program for a small
machine with a stack (docs/adr/0011-the-core-evaluates-filters.md). What can be said of an expression without a
message, such as that TRUE isn't over 5, is said here. Apache evaluates what stands before the first token that it can't
use, and forgets about the rest; here that is an error.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from typing import TypeAlias

from lark import Lark, Token, Transformer, UnexpectedCharacters, UnexpectedToken, v_args

from rockmq.base.errors import FilterError

SIZE_MAX = 16_384
"""Characters of an expression."""
NESTING_MAX = 200
"""Parentheses inside each other."""
WORDS_MAX = 2_048
"""Names, values, keywords and signs. The time that parsing takes is theirs: some ten milliseconds for as many."""

Operand: TypeAlias = str | int | float | bool | list[str] | None
Instruction: TypeAlias = tuple[str, Operand]
Program: TypeAlias = list[Instruction]
"""What `_core.Filter` takes."""

_LONG_MAX = 2**63 - 1
_LONG_DIGITS = 19
_SHOWN_MAX = 40
_VALUES = frozenset({"TRUE", "FALSE", "NULL"})
_KEYWORDS = _VALUES | {"NOT", "AND", "OR", "BETWEEN", "IN", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"}

_GRAMMAR = r"""
    ?either: both
        | either _OR both
    ?both: equality
        | both _AND equality
    ?equality: comparison
        | equality "=" comparison -> equal
        | equality "<>" comparison -> not_equal
        | equality _IS NULL -> is_null
        | equality _IS _NOT NULL -> is_not_null
    ?comparison: unary
        | comparison ">" unary -> greater
        | comparison ">=" unary -> greater_or_equal
        | comparison "<" unary -> less
        | comparison "<=" unary -> less_or_equal
        | comparison _BETWEEN unary _AND unary -> between
        | comparison _NOT _BETWEEN unary _AND unary -> not_between
        | comparison _IN "(" texts ")" -> one_of
        | comparison _NOT _IN "(" texts ")" -> not_one_of
        | comparison _CONTAINS TEXT -> contains
        | comparison _NOT _CONTAINS TEXT -> not_contains
        | comparison _STARTSWITH TEXT -> starts
        | comparison _NOT _STARTSWITH TEXT -> not_starts
        | comparison _ENDSWITH TEXT -> ends
        | comparison _NOT _ENDSWITH TEXT -> not_ends
    ?unary: primary
        | "+" unary
        | "-" unary -> negation
        | _NOT unary -> inversion
    ?primary: "(" either ")"
        | NAME -> property
        | TEXT -> text
        | INTEGER -> integer
        | FLOAT -> floating
        | TRUE -> true
        | FALSE -> false
        | NULL -> null
    texts: TEXT ("," TEXT)*

    %declare _NOT _AND _OR _BETWEEN _IN _IS _CONTAINS _STARTSWITH _ENDSWITH TRUE FALSE NULL
    NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
    TEXT: /'(?:''|[^'])*'/
    FLOAT.2: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
    INTEGER: /0|[1-9][0-9]*[lL]?/
    BLANK: /[ \t\n\r\f]+/
    LINE_COMMENT.2: /--[^\n\r]*(?:\r\n|\n|\r)/
    BLOCK_COMMENT.2: /\/\*[^*]*\*+(?:[^*\/][^*]*\*+)*\//
    %ignore BLANK
    %ignore LINE_COMMENT
    %ignore BLOCK_COMMENT
"""


class _Kind(Enum):
    """What Java's class of an expression lets others do with it."""

    PROPERTY = auto()
    TEXT = auto()
    NUMBER = auto()
    CONSTANT_CONDITION = auto()  # TRUE, FALSE, NULL
    CONDITION = auto()
    NEGATION = auto()


_CONDITIONS = frozenset({_Kind.CONDITION, _Kind.CONSTANT_CONDITION})


@dataclass(slots=True)
class _Part:
    """A part of an expression, and where it begins; whoever makes a larger one of it takes its code over."""

    code: Program
    kind: _Kind
    at: int

    @property
    def constant(self) -> Operand:
        return self.code[0][1]


def _fault(at: int, reason: str) -> FilterError:
    return FilterError(f"{reason} (at character {at + 1} of the SQL92 expression)")


def _condition(part: _Part) -> _Part:
    """A part where a condition is expected."""
    if part.kind is _Kind.PROPERTY:
        part.code.append(("condition", None))
        return _Part(part.code, _Kind.CONDITION, part.at)
    if part.kind not in _CONDITIONS:
        raise _fault(part.at, "a condition is expected here, as `a = 1`, not a value")
    return part


def _ordered(part: _Part) -> _Part:
    """A part that `<` and the like may compare."""
    if part.kind is _Kind.TEXT:
        raise _fault(part.at, "only numbers have an order; texts are compared by = and <>")
    if part.kind in _CONDITIONS:
        raise _fault(part.at, "only numbers have an order; this is a condition")
    return part


def _text(token: Token) -> str:
    return token[1:-1].replace("''", "'")


_Binary: TypeAlias = Callable[["_Builder", _Part, _Part], _Part]
_Search: TypeAlias = Callable[["_Builder", _Part, Token], _Part]


def _comparing(instruction: str) -> _Binary:
    def build(self: "_Builder", left: _Part, right: _Part) -> _Part:
        code = _ordered(left).code
        code += [*_ordered(right).code, (instruction, None)]
        return _Part(code, _Kind.CONDITION, left.at)

    return build


def _joining(instruction: str) -> _Binary:
    def build(self: "_Builder", left: _Part, right: _Part) -> _Part:
        code, more = _condition(left).code, _condition(right).code
        code += [(f"{instruction} skip", len(more) + 1), *more, (instruction, None)]
        return _Part(code, _Kind.CONDITION, left.at)

    return build


def _ranging(instruction: str) -> Callable[["_Builder", _Part, _Part, _Part], _Part]:
    def build(self: "_Builder", value: _Part, low: _Part, high: _Part) -> _Part:
        for part in (value, low, high):
            _ordered(part)
        if instruction == "between" and low.kind is high.kind is _Kind.NUMBER and _is_over(low.constant, high.constant):
            raise _fault(low.at, f"nothing is between {low.constant} and {high.constant}")
        value.code += [*low.code, *high.code, (instruction, None)]
        return _Part(value.code, _Kind.CONDITION, value.at)

    return build


def _is_over(one: Operand, other: Operand) -> bool:
    assert isinstance(one, int | float)
    assert isinstance(other, int | float)
    if isinstance(one, int) and isinstance(other, int):
        return one > other
    return float(one) > float(other)  # as Java compares them, which loses bits of a long


def _searching(instruction: str) -> _Search:
    def build(self: "_Builder", left: _Part, pattern: Token) -> _Part:
        left.code.append((instruction, _text(pattern)))
        return _Part(left.code, _Kind.CONDITION, left.at)

    return build


@v_args(inline=True)
class _Builder(Transformer[Token, _Part]):
    """Makes parts while they are parsed, so that no tree is walked that could be too deep to."""

    either = _joining("or")
    both = _joining("and")

    def equal(self, left: _Part, right: _Part) -> _Part:
        for part in (left, right):
            if part.kind is _Kind.CONSTANT_CONDITION and part.constant is None:
                raise _fault(part.at, "nothing is equal to NULL; write IS NULL or IS NOT NULL")
        if left.kind is _Kind.CONSTANT_CONDITION and right.kind in (_Kind.TEXT, _Kind.NUMBER):
            raise _fault(right.at, f"{str(left.constant).upper()} can be compared with a condition only")
        return self._equal(left, right)

    def _equal(self, left: _Part, right: _Part) -> _Part:
        left.code += [*right.code, ("=", None)]
        return _Part(left.code, _Kind.CONDITION, left.at)

    def not_equal(self, left: _Part, right: _Part) -> _Part:
        return self._inverted(self.equal(left, right))

    def is_null(self, left: _Part, null: Token) -> _Part:
        return self._equal(left, _constant(null, None))

    def is_not_null(self, left: _Part, null: Token) -> _Part:
        return self._inverted(self.is_null(left, null))

    greater = _comparing(">")
    greater_or_equal = _comparing(">=")
    less = _comparing("<")
    less_or_equal = _comparing("<=")
    between = _ranging("between")
    not_between = _ranging("not between")

    def texts(self, *tokens: Token) -> list[str]:
        return list(map(_text, tokens))

    def one_of(self, left: _Part, texts: list[str]) -> _Part:
        if left.kind is not _Kind.PROPERTY:
            raise _fault(left.at, "only a property can be IN a list")
        left.code.append(("in", texts))
        return _Part(left.code, _Kind.CONDITION, left.at)

    def not_one_of(self, left: _Part, texts: list[str]) -> _Part:
        return self._inverted(self.one_of(left, texts))

    contains = _searching("contains")
    not_contains = _searching("not contains")
    starts = _searching("startswith")
    not_starts = _searching("not startswith")
    ends = _searching("endswith")
    not_ends = _searching("not endswith")

    def negation(self, part: _Part) -> _Part:
        part.code.append(("negate", None))
        return _Part(part.code, _Kind.NEGATION, part.at)

    def inversion(self, part: _Part) -> _Part:
        return self._inverted(_condition(part))

    def _inverted(self, part: _Part) -> _Part:
        part.code.append(("not", None))
        return _Part(part.code, _Kind.CONDITION, part.at)

    def property(self, name: Token) -> _Part:
        return _Part([("property", str(name))], _Kind.PROPERTY, name.start_pos or 0)

    def text(self, token: Token) -> _Part:
        return _Part([("constant", _text(token))], _Kind.TEXT, token.start_pos or 0)

    def integer(self, token: Token) -> _Part:
        at, digits = token.start_pos or 0, token.rstrip("lL")
        if len(digits) > _LONG_DIGITS or int(digits) > _LONG_MAX:
            raise _fault(at, f"the number is over {_LONG_MAX}")
        return _Part([("constant", int(digits))], _Kind.NUMBER, at)

    def floating(self, token: Token) -> _Part:
        at, number = token.start_pos or 0, float(token)
        if not 0 < number < float("inf"):
            raise _fault(at, "the number is none that a double can be, or 0.0, which Apache doesn't take either")
        return _Part([("constant", number)], _Kind.NUMBER, at)

    def true(self, token: Token) -> _Part:
        return _constant(token, True)

    def false(self, token: Token) -> _Part:
        return _constant(token, False)

    def null(self, token: Token) -> _Part:
        return _constant(token, None)


def _constant(token: Token, value: bool | None) -> _Part:
    return _Part([("constant", value)], _Kind.CONSTANT_CONDITION, token.start_pos or 0)


def _keyword(token: Token) -> Token:
    """Keywords are names to the lexer, or a property INDEX would begin with IN."""
    word = token.upper()
    if word not in _KEYWORDS:
        return token
    return Token.new_borrow_pos(word if word in _VALUES else f"_{word}", token, token)


def prepare() -> None:
    """Make the parser, which takes about 0.1 s, before it is needed."""
    _parser()


@cache
def _parser() -> Lark:
    return Lark(
        _GRAMMAR,
        start="either",
        parser="lalr",
        lexer="basic",
        transformer=_Builder(),
        lexer_callbacks={"NAME": _keyword},
        maybe_placeholders=False,
    )


def program(expression: str) -> Program:
    """What the core evaluates. Raises FilterError, which says where an expression is wrong and what would be right."""
    if len(expression) > SIZE_MAX:
        raise FilterError(f"the SQL92 expression has {len(expression)} characters; the bound is {SIZE_MAX}")
    try:
        return _condition(_parsed(expression)).code
    except UnexpectedCharacters as error:
        at = error.pos_in_stream or 0
        what = "this text has no end" if expression[at] == "'" else f"{expression[at]!r} means nothing"
        raise _fault(at, what) from None
    except UnexpectedToken as error:
        raise _unexpected(error.token, len(expression), error.expected) from None


def _parsed(expression: str) -> _Part:
    parser = _parser().parse_interactive(expression)
    depth = 0
    for number, token in enumerate(parser.iter_parse()):
        if number == WORDS_MAX:
            raise _fault(token.start_pos or 0, f"the expression has more than {WORDS_MAX} words")
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth > NESTING_MAX:
            raise _fault(token.start_pos or 0, f"more than {NESTING_MAX} parentheses are open")
    whole = parser.feed_eof()  # type: ignore[no-untyped-call]
    assert isinstance(whole, _Part)
    return whole


def _unexpected(token: Token, end: int, accepted: set[str]) -> FilterError:
    wanted = ", ".join(sorted(_words(accepted)))
    if token.type == "$END":
        return _fault(end, f"the expression isn't complete; expected one of {wanted}")
    shown = token if len(token) <= _SHOWN_MAX else f"{token[:_SHOWN_MAX]}…"
    return _fault(token.start_pos or 0, f"{shown} can't stand here; expected one of {wanted}")


def _words(terminals: set[str]) -> Iterator[str]:
    symbols = {each.name: each.pattern.value for each in _parser().terminals if each.pattern.type == "str"}
    for name in terminals:
        if name in symbols:
            yield symbols[name]
        elif name in ("NAME", "TEXT", "INTEGER", "FLOAT"):
            yield f"a {name.lower()}"
        else:
            yield "the end" if name == "$END" else name.removeprefix("_")
