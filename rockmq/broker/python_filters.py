"""Filters in Python that an operator lends to consumers by name (what Apache's class filters were, but for the upload).

`pythonFilters=large=shop.filters:is_large` lets groups subscribe with the type PYTHON and the expression `large`. The
function is given each message as a `StoredMessage` and says whether it is wanted. It runs on the event loop, so it has to be
quick.
"""

import logging
from collections.abc import Callable

from rockmq.broker import functions
from rockmq.protocol.message import StoredMessage, decode_stored

log = logging.getLogger(__name__)

MESSAGES_MAX = 32
"""Messages that functions look at in one pull."""

Function = Callable[[StoredMessage], object]


class PythonFilter:
    def __init__(self, name: str, function: Function) -> None:
        self._name = name
        self._function = function
        self._failing = False

    def select(self, records: bytes) -> list[bytes]:
        """Those of the stored records that are wanted; one that holds several messages is if one of them is."""
        wanted = []
        at = 0
        while at < len(records):
            record = records[at : at + int.from_bytes(records[at : at + 4])]
            if self._wants(record):
                wanted.append(record)
            at += len(record)
        return wanted

    def _wants(self, record: bytes) -> bool:
        try:
            return any(map(self._function, decode_stored(record)))
        except Exception:  # whatever the operator's function raises, as an error of an expression
            if not self._failing:
                log.exception("the Python filter %s fails; messages that it fails for aren't given (told once)", self._name)
            self._failing = True
            return False


def load(text: str) -> dict[str, PythonFilter]:
    """Filters by name, from `name=module:function;…`. Raises ConfigError."""
    return {name: PythonFilter(name, function) for name, function in functions.load("pythonFilters", text).items()}
