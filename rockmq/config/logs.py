"""The options of what servers log."""

from enum import StrEnum
from typing import Annotated

from rockmq.config.key import Key, Options


class Level(StrEnum):
    """The least grave of what is logged."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


class Logs(Options, frozen=True, kw_only=True):
    log_level: (
        Annotated[
            Level, Key("The least grave of what is logged.", reload=True, default="what `--verbose` says", apache=None)
        ]
        | None
    ) = None
