"""Namespaces, and what else of its surroundings a client tells with every request (NamespaceRpcHook.java,
DynamicalExtFieldRPCHook.java; clients' spec, 1.1)."""

import os

ZONE = (("ROCKETMQ_ZONE", "__ZONE_NAME"), ("ROCKETMQ_ZONE_MODE", "__ZONE_MODE"))
"""Variables of the environment, and the fields they travel in."""


def request_fields(namespace: str | None) -> dict[str, str]:
    """The fields that every request of a client has: its namespace, and its zone as the environment says."""
    fields = {"nsd": "true", "ns": namespace} if namespace else {}
    return fields | {field: value for variable, field in ZONE if (value := os.environ.get(variable, "").strip())}
