"""`python -m rockmq.cli`, for who has the interpreter at hand but not the installed command."""

from rockmq.cli.main import main

main()
