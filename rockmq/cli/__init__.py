"""The command `rockmq`. `main` declares the commands; each loads what it needs when it runs."""
