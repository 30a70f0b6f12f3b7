"""Declared headers, by subject. Importing this package fills `rockmq.protocol.header.EXCHANGES`."""

from rockmq.protocol.headers import (
    access,
    admin,
    client,
    controller,
    lite,
    offset,
    pop,
    pull,
    query,
    recall,
    registration,
    route,
    send,
    storage,
    transaction,
)

__all__ = [
    "access",
    "admin",
    "client",
    "controller",
    "lite",
    "offset",
    "pop",
    "pull",
    "query",
    "recall",
    "registration",
    "route",
    "send",
    "storage",
    "transaction",
]
