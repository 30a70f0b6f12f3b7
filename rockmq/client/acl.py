"""Whose a request is: access key and signature among its fields (AclClientRPCHook.java; clients' spec, 1.1)."""

import hmac
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field

from rockmq.protocol.codec import Command

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"


@dataclass(frozen=True)
class Key:
    """An access key with its secret, which never travels, and a token where the server asks for one."""

    access: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


def signature(fields: dict[str, str], body: bytes, secret: bytes) -> str:
    """What a request with these fields (without a signature) and this body is signed with."""
    content = "".join([fields[name] for name in sorted(fields)]).encode() + body
    return b64encode(hmac.digest(secret, content, "sha1")).decode()


def stamp(fields: dict[str, str], key: Key | None) -> Callable[[Command], None] | None:
    """What gives each request `fields`, and signs it with the key; None when there is nothing to do."""
    if key is None:
        return (lambda request: request.fields.update(fields)) if fields else None
    secret = key.secret.encode()
    fields = {**fields, ACCESS_KEY: key.access} | ({SECURITY_TOKEN: key.token} if key.token is not None else {})

    def sign(request: Command) -> None:
        carried = request.fields
        carried.pop(SIGNATURE, None)  # of an earlier attempt
        carried.update(fields)
        carried[SIGNATURE] = signature(carried, request.body, secret)

    return sign
