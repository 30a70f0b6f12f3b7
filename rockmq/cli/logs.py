"""Logging of the commands: to standard error, warnings only unless asked for more; or to a file."""

import logging
import sys
from pathlib import Path

from rockmq.store import recovery

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
_DATE = "%Y-%m-%d %H:%M:%S"


def to_stderr(verbose: int) -> None:
    level = _LEVELS[min(verbose, len(_LEVELS) - 1)]
    logging.basicConfig(stream=sys.stderr, level=level, format=_FORMAT, datefmt=_DATE)
    # Who waits long for a start is told how far it is, however quiet the log.
    logging.getLogger(recovery.__name__).setLevel(min(level, logging.INFO))


def to_file(path: Path) -> None:
    """For commands that have the terminal for something better."""
    logging.basicConfig(filename=path, level=logging.INFO, format=_FORMAT, datefmt=_DATE)
