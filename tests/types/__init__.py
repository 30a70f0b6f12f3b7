"""Programs of users, for type checkers: `tests/test_types.py` has them read, nobody runs them."""
