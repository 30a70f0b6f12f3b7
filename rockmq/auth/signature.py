"""The signature of a request, which says who it is from (AclClientRPCHook.java, AclUtils.java; protocol spec, 8.1).

Values of all fields but the signature itself, in the order of their names and without anything between them, then the body:
HMAC-SHA1 of that by the secret, in Base64.
"""

import hmac
from base64 import b64encode

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
"""A field that clients up to 4.9.3 add when they have signed."""


def signature(fields: dict[str, str], body: bytes, secret: bytes) -> str:
    """What a request with these fields and this body is signed with; a signature among the fields is left out."""
    content = "".join([fields[name] for name in sorted(fields) if name != SIGNATURE]).encode() + body
    return b64encode(hmac.digest(secret, content, "sha1")).decode()


def is_signed(fields: dict[str, str], body: bytes, secret: bytes) -> bool:
    """Whether the signature among the fields is that of the secret. Takes as long for a wrong one as for the right one."""
    given = fields.get(SIGNATURE, "").encode()
    if hmac.compare_digest(signature(fields, body, secret).encode(), given):
        return True
    if UNIQUE_KEY_QUERY not in fields:
        return False
    signed = {name: value for name, value in fields.items() if name != UNIQUE_KEY_QUERY}
    return hmac.compare_digest(signature(signed, body, secret).encode(), given)
