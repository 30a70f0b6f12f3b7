"""Tag expressions (FilterAPI.java; clients' spec, 3.11): `*` or nothing takes all, `a || b` takes either.

The broker compares hash codes; a collision passes, and the consumer compares the text.
"""

from functools import lru_cache

from rockmq.base.errors import FilterError
from rockmq.protocol.properties import tag_code

ALL = "*"
SIZE_MAX = 16_384
"""Characters of an expression."""
_BLANKS = "".join(map(chr, range(33)))
"""What String.trim takes away."""
CODES_MAX = SIZE_MAX // 3 + 1
"""Tags of such an expression."""


def split(expression: str) -> list[str]:
    """The tags of an expression; empty when it takes all."""
    if expression.strip(_BLANKS) in ("", ALL):
        return []
    return [tag for part in expression.split("||") if (tag := part.strip(_BLANKS))]


def codes(expression: str) -> tuple[int, ...] | None:
    """The hash codes of an expression's tags, None when it takes all. Raises FilterError for one over its bound."""
    if len(expression) > SIZE_MAX:
        raise FilterError(f"the tag expression has {len(expression)} characters; the bound is {SIZE_MAX}")
    return _codes(expression)


@lru_cache(maxsize=256)
def _codes(expression: str) -> tuple[int, ...] | None:
    return tuple(tag_code(tag) for tag in split(expression)) or None
