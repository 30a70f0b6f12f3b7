"""How fast RockMQ is, and beside whom. See README.md."""
