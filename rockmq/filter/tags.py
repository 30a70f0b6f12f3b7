"""Tag expressions (FilterAPI.java; clients' spec, 3.11): `*` or nothing takes all, `a || b` takes either.

The broker compares hash codes; a collision passes, and the consumer compares the text.
"""

from functools import lru_cache

from rockmq.protocol.properties import tag_code

TAG = "TAG"
ALL = "*"


def split(expression: str) -> list[str]:
    """The tags of an expression; empty when it takes all."""
    if expression.strip() in ("", ALL):
        return []
    return [tag for part in expression.split("||") if (tag := part.strip())]


@lru_cache(maxsize=1024)
def codes(expression: str) -> tuple[int, ...] | None:
    """The hash codes of an expression's tags, None when it takes all."""
    return tuple(tag_code(tag) for tag in split(expression)) or None
