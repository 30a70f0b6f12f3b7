"""The options of TLS, of servers and of what they ask of others (TlsSystemConfig.java, TlsHelper.java).

Apache reads these names as system properties of Java, and once more in the file that `tls.config.file` names, which wins.
Here they are keys of broker.conf and namesrv.conf, or `--set`; the file is read as it is.
"""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import field

from rockmq.base.errors import ConfigError
from rockmq.config import properties
from rockmq.config.key import Key, Options, Role, keys, load

DEFAULT_FILE = "/etc/rocketmq/tls.properties"


class Mode(StrEnum):
    disabled = "disabled"
    permissive = "permissive"
    enforcing = "enforcing"


class ClientAuth(StrEnum):
    none = "none"
    optional = "optional"
    require = "require"

    @classmethod
    def _missing_(cls, value: object) -> "ClientAuth | None":
        """As Apache takes it: however it is written, and nothing is none."""
        return next((each for each in cls if each == (str(value).lower() or "none")), None)


class Tls(Options, frozen=True, kw_only=True):
    mode: Annotated[Mode, Key("TLS of the listening ports: none, for who wants it, or for all.")] = field(
        default=Mode.permissive, name="tls.server.mode"
    )
    config_file: Annotated[
        str | None, Key(f"File with the other tls keys, which wins over them; {DEFAULT_FILE} if there is one.", path=True)
    ] = field(default=None, name="tls.config.file")
    test_mode: Annotated[bool, Key("Show a certificate that is made at the start, and check nobody's.")] = field(
        default=True, name="tls.test.mode.enable"
    )
    server_key_path: Annotated[str | None, Key("Private key of the server, PEM.", path=True)] = field(
        default=None, name="tls.server.keyPath"
    )
    server_key_password: Annotated[str | None, Key("What that key is encrypted with.", secret=True)] = field(
        default=None, name="tls.server.keyPassword"
    )
    server_cert_path: Annotated[str | None, Key("Certificate of the server and its chain, PEM.", path=True)] = field(
        default=None, name="tls.server.certPath"
    )
    need_client_auth: Annotated[ClientAuth, Key("Ask clients for certificates.")] = field(
        default=ClientAuth.none, name="tls.server.need.client.auth"
    )
    auth_client: Annotated[bool, Key("Believe only certificates of clients that tls.server.trustCertPath vouches for.")] = (
        field(default=False, name="tls.server.authClient")
    )
    server_trust_cert_path: Annotated[str | None, Key("Authorities that clients' are signed by, PEM.", path=True)] = field(
        default=None, name="tls.server.trustCertPath"
    )
    # Beyond Apache.
    server_crl_path: Annotated[
        str | None, Key("Lists of certificates that these have revoked, PEM.", path=True, apache=None)
    ] = field(default=None, name="tls.server.crlPath")
    enable: (
        Annotated[bool, Key("TLS towards name servers.", default="if `tls.server.mode` is enforcing", apache="false")] | None
    ) = field(default=None, name="tls.enable")
    client_key_path: Annotated[str | None, Key("Private key that name servers are shown, PEM.", path=True)] = field(
        default=None, name="tls.client.keyPath"
    )
    client_key_password: Annotated[str | None, Key("What that key is encrypted with.", secret=True)] = field(
        default=None, name="tls.client.keyPassword"
    )
    client_cert_path: Annotated[str | None, Key("Its certificate, PEM.", path=True)] = field(
        default=None, name="tls.client.certPath"
    )
    auth_server: Annotated[bool, Key("Check the certificates of name servers.")] = field(
        default=False, name="tls.client.authServer"
    )
    client_trust_cert_path: Annotated[str | None, Key("Authorities that these are signed by, PEM.", path=True)] = field(
        default=None, name="tls.client.trustCertPath"
    )

    @property
    def speaks_to_others(self) -> bool:
        return self.mode is Mode.enforcing if self.enable is None else self.enable


class _File(Role, frozen=True, kw_only=True):
    tls: Tls = field(default_factory=Tls)


_NOT_IN_A_FILE = frozenset({"tls.server.mode", "tls.enable", "tls.config.file"})


def effective(given: Tls) -> Tls:
    """With what the file says. Raises ConfigError, also for a file that was named and isn't there."""
    path = Path(given.config_file or DEFAULT_FILE)
    if given.config_file is None and not os.path.lexists(path):
        return given
    found = properties.read_file(path)
    try:
        for key in found.keys() & _NOT_IN_A_FILE:
            raise ConfigError(f"{key} has no effect here: it belongs in broker.conf or namesrv.conf, or after --set")
        loaded = load(_File, found).tls
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    attributes = [each.attribute for wire, each in keys(_File).items() if wire in found]
    return msgspec.structs.replace(given, **{each: getattr(loaded, each) for each in attributes})
