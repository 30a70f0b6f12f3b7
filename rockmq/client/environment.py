"""What the environment of a process says of how to reach servers: for the commands, and for Spark where its options don't.

    ROCKMQ_ACCESS_KEY, ROCKMQ_SECRET_KEY     sign every request; ROCKMQ_SECURITY_TOKEN where servers ask for one, too
    ROCKMQ_TLS=true                          encrypts all connections, with
    ROCKMQ_TLS_CA                            a file of authorities, the system's without it
    ROCKMQ_TLS_CERTIFICATE, ROCKMQ_TLS_KEY   files of an own certificate and its key, which may be in one
    ROCKMQ_TLS_CHECK_HOSTNAME=false          for certificates of servers that aren't for the addresses in routes

Files are PEM. A variable that is empty says nothing. Keys aren't options of commands, as everybody on a machine sees those.
"""

import os
import socket
import ssl

from rockmq.base.errors import ConfigError
from rockmq.client.acl import Key
from rockmq.client.client import Client

KEY_VARIABLES = ("ROCKMQ_ACCESS_KEY", "ROCKMQ_SECRET_KEY", "ROCKMQ_SECURITY_TOKEN")
TLS_FILES = ("ROCKMQ_TLS_CA", "ROCKMQ_TLS_CERTIFICATE", "ROCKMQ_TLS_KEY")


def client(name_servers: str) -> Client:
    """A client as the environment says, for use with `async with`. Raises ConfigError."""
    return Client(name_servers, tls=tls() or False, auth=key())


def key() -> Key | None:
    """What requests are signed with. Raises ConfigError for a part of it."""
    access, secret, token = map(_text, KEY_VARIABLES)
    if bool(access) != bool(secret) or (token and not access):
        raise _error(
            f"{KEY_VARIABLES[0]} and {KEY_VARIABLES[1]} go together in the environment, and {KEY_VARIABLES[2]} with both"
        )
    return Key(access, secret, token or None) if access else None


def tls() -> ssl.SSLContext | None:
    """How connections are encrypted, None when they aren't. Raises ConfigError, also for files that can't be used."""
    authorities, certificate, private = map(_text, TLS_FILES)
    checks_name = _flag("ROCKMQ_TLS_CHECK_HOSTNAME", default=True)
    if not _flag("ROCKMQ_TLS", default=False):
        # Who has said this much means to be encrypted.
        if authorities or certificate or private or not checks_name:
            raise _error(f"{', '.join(TLS_FILES)} and ROCKMQ_TLS_CHECK_HOSTNAME need ROCKMQ_TLS to be true")
        return None
    if private and not certificate:
        raise _error(f"{TLS_FILES[2]} needs {TLS_FILES[1]}")
    try:
        return context(authorities, certificate, private, checks_name=checks_name)
    except OSError as error:
        files = zip(TLS_FILES, (authorities, certificate, private), strict=True)
        raise _error(f"{', '.join(f'{name} ({path})' for name, path in files)}: {error}") from None


def context(authorities: str, certificate: str, private: str, *, checks_name: bool) -> ssl.SSLContext:
    """TLS with these files, each of which may be empty. Raises OSError, of which an SSLError is one."""
    made = ssl.create_default_context(cafile=authorities or None)
    made.check_hostname = checks_name
    if certificate:
        made.load_cert_chain(certificate, private or None)
    return made


def _text(name: str) -> str:
    return os.environ.get(name, "").strip()


def _flag(name: str, *, default: bool) -> bool:
    text = _text(name).lower()
    if text not in ("", "true", "false"):
        raise _error(f"{name} is {text!r}: expected true or false")
    return text == "true" if text else default


def _error(text: str) -> ConfigError:
    # Of Spark's processes each has an environment of its own.
    return ConfigError(f"on {socket.gethostname()}: {text}")
