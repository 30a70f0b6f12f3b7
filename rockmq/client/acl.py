"""Whose a request is: access key and signature among its fields (AclClientRPCHook.java; clients' spec, 1.1)."""

from collections.abc import Callable
from dataclasses import dataclass, field

from rockmq.auth.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, signature
from rockmq.protocol.codec import Command


@dataclass(frozen=True)
class Key:
    """An access key with its secret, which never travels, and a token where the server asks for one."""

    access: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def stamp(fields: dict[str, str], key: Key | None) -> Callable[[Command], None] | None:
    """What gives each request `fields`, and signs it with the key; None when there is nothing to do."""
    if key is None:
        return (lambda request: request.fields.update(fields)) if fields else None
    secret = key.secret.encode()
    fields = {**fields, ACCESS_KEY: key.access} | ({SECURITY_TOKEN: key.token} if key.token is not None else {})

    def sign(request: Command) -> None:
        carried = request.fields
        carried.update(fields)
        carried[SIGNATURE] = signature(carried, request.body, secret)

    return sign
