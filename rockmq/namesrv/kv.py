"""The name server's key-value configuration, the one thing it keeps on disk (KVConfigManager.java).

The document is Apache's, `{"configTable":{namespace:{key:value}}}`. Every change is written before it is answered.
"""

import logging
import os
from pathlib import Path

from rockmq.base import files
from rockmq.base.errors import ConfigError, ProtocolError, RockMQError
from rockmq.protocol import json
from rockmq.protocol.bodies.common import Body
from rockmq.protocol.header import text as words

log = logging.getLogger(__name__)

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""Namespace of the queues of ordered topics: topic -> `broker:queues;broker:queues`."""
DOCUMENT_SIZE_MAX = 8 << 20
"""Bytes of the document: what a list of a namespace must fit into is a frame."""


class KVError(RockMQError):
    """A change that could not be made; the document is as it was."""


class KVDocument(Body):
    config_table: dict[str, dict[str, str | int | float | bool | None]]


class KVConfig:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the document, else its backup; without either, begin empty. Raises ConfigError where a file resists.

        A document that makes no sense is put aside, so that no later change overwrites what a person may mend.
        """
        try:
            for path, text in files.candidates(self._path):
                try:
                    self._table = _table(text, str(path))
                except ProtocolError as error:
                    aside = path.with_name(path.name + ".unreadable")
                    log.error("can't read %s; it is kept as %s", error, aside)
                    os.replace(path, aside)
                else:
                    log.info("%d namespaces read from %s", len(self._table), path)
                    return
        except OSError as error:
            raise ConfigError(f"kvConfigPath: can't read {self._path}: {error}") from None

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All of a namespace; None when it never had a key."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value, durably. Raises KVError."""
        self._change(namespace, {**self._table.get(namespace, {}), key: value})
        log.info("set %s of %s to %s", key, namespace, value)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value, durably; nothing happens when there is none. Raises KVError."""
        if self.get(namespace, key) is None:
            return
        self._change(namespace, {each: value for each, value in self._table[namespace].items() if each != key})
        log.info("deleted %s of %s", key, namespace)

    def _change(self, namespace: str, values: dict[str, str]) -> None:
        table = {**self._table, namespace: values}
        text = json.encode_sorted({"configTable": table})
        if len(text) > DOCUMENT_SIZE_MAX:
            raise KVError(f"the configuration would have {len(text)} bytes, the bound is {DOCUMENT_SIZE_MAX}")
        try:
            files.save(self._path, text.decode())
        except OSError as error:
            raise KVError(f"can't save {self._path}: {error.strerror or error}") from None
        self._table = table

    def log_all(self) -> None:
        """Tell the log what is configured."""
        for namespace, values in self._table.items():
            for key, value in values.items():
                log.info("%s: %s = %s", namespace, key, value)


def _table(text: bytes, what: str) -> dict[str, dict[str, str]]:
    document = json.decode(text, KVDocument, what)
    return {
        namespace: {key: words(value) for key, value in values.items() if value is not None}
        for namespace, values in document.config_table.items()
    }
