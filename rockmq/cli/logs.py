"""Logging of the commands: to standard error, warnings only unless asked for more; or to a file."""

import logging
import sys
from pathlib import Path

from rockmq.base.logs import Json, Text
from rockmq.store import recovery

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def to_stderr(verbose: int, *, json: bool = False) -> logging.Handler:
    level = _LEVELS[min(verbose, len(_LEVELS) - 1)]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if json else Text())
    logging.basicConfig(level=level, handlers=[handler])
    # Who waits long for a start is told how far it is, however quiet the log.
    logging.getLogger(recovery.__name__).setLevel(min(level, logging.INFO))
    return handler


def to_file(path: Path) -> None:
    """For commands that have the terminal for something better."""
    handler = logging.FileHandler(path)
    handler.setFormatter(Text())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
