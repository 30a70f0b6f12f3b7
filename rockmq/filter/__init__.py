"""Which messages a consumer wants, by tags or by a SQL92 expression."""

TAG = "TAG"
SQL92 = "SQL92"
"""Types of expressions (ExpressionType.java)."""


def is_tag(kind: str | None) -> bool:
    """Whether an expression of this type names tags, as one of none does."""
    return kind in (None, "", TAG)
