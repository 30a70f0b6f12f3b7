"""Functions in Python that an operator names in broker.conf: `name=module:function`, separated by `;`."""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from rockmq.base.errors import ConfigError


def load(key: str, text: str) -> dict[str, Callable[..., Any]]:
    """The functions by name that a key's value names. Raises ConfigError."""
    return dict(_loaded(key, item) for item in filter(None, text.split(";")))


def _loaded(key: str, item: str) -> tuple[str, Callable[..., Any]]:
    name, _, place = map(str.strip, item.partition("="))
    module, _, function = place.partition(":")
    if not (name and module and function):
        raise ConfigError(f"{key}: {item!r}: expected name=module:function")
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:  # a module may raise anything
        raise ConfigError(f"{key}: {place}, named {name}, can't be loaded: {error}") from error
    if not callable(found):
        raise ConfigError(f"{key}: {place}, named {name}, is no function")
    if inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(found.__call__):
        raise ConfigError(f"{key}: {place}, named {name}, is async; expected a plain function")
    return name, found
