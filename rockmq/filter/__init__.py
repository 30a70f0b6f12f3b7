"""Which messages a consumer wants, by tags, by a SQL92 expression, or by a function of the broker's."""

TAG = "TAG"
SQL92 = "SQL92"
"""Types of expressions (ExpressionType.java)."""

PYTHON = "PYTHON"
"""The expression is the name of a filter that the broker's operator has written; Apache has none of these."""


def is_tag(kind: str | None) -> bool:
    """Whether an expression of this type names tags, as one of none does."""
    return kind in (None, "", TAG)
