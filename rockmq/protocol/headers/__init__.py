"""Declared headers, by subject. Importing this package fills `rockmq.protocol.header.EXCHANGES`."""

from rockmq.protocol.headers import admin, client, offset, pop, pull, recall, registration, route, send

__all__ = ["admin", "client", "offset", "pop", "pull", "recall", "registration", "route", "send"]
