"""What a server shows who wants TLS, and whom it believes: files, read again when one of them changes (TlsHelper.java,
FileWatchService.java). The core speaks it."""

import logging
import os
import ssl
from pathlib import Path

import msgspec

from rockmq import _core
from rockmq.base.errors import ConfigError
from rockmq.config.tls import DEFAULT_FILE, ClientAuth, Mode, Tls, effective

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""A change is taken up when two looks have seen the same: certificate and key are seldom written at once."""

_Seen = tuple[tuple[int, int, int] | None, ...]


class Certificates:
    """The files that these options name."""

    def __init__(self, options: Tls) -> None:
        self._options = options
        self._taken: _Seen = ()
        self._seen: _Seen = ()
        self._paths: list[str] = []
        self._kept: dict[str, object] = {}
        self.takes_plain = options.mode is not Mode.enforcing

    def load(self) -> "_core.Tls | None":
        """What the core needs, None when TLS is disabled. Raises ConfigError naming the file."""
        if self._options.mode is Mode.disabled:
            return None
        if self._options.config_file is None and os.path.lexists(DEFAULT_FILE):
            # So that it is missed when it is gone.
            self._options = msgspec.structs.replace(self._options, config_file=DEFAULT_FILE)
        options = effective(self._options)
        kept = _kept(options)
        changed = [key for key, value in self._kept.items() if kept[key] != value]
        if changed:
            raise ConfigError(f"{', '.join(changed)}: not as at the start, which needs a restart")
        named = options.server_cert_path, options.server_key_path, options.server_trust_cert_path, options.server_crl_path
        self._paths = [path for path in (self._options.config_file or DEFAULT_FILE, *named) if path]
        self._taken = self._seen = self._look()
        made = self._make(options)
        self._kept = kept
        return made

    def _make(self, options: Tls) -> "_core.Tls":
        _warn_of_idle(options)
        if options.test_mode:
            proves = "a certificate made for this start, which proves nothing (tls.test.mode.enable)"
            log.log(logging.INFO if self.takes_plain else logging.WARNING, "TLS is %s, with %s", options.mode, proves)
            return _core.Tls.self_signed()
        return _read(options)

    def look(self) -> "_core.Tls | None":
        """As `load` after a change; None when nothing has changed, or what has is of no use."""
        before, self._seen = self._seen, self._look()
        if self._seen == self._taken or self._seen != before:
            return None
        self._taken = self._seen  # not again before the next change
        try:
            made = self.load()
        except ConfigError as error:
            log.error("certificates stay as they were: %s", error)
            return None
        log.info("certificates are read again, for new connections: %s", ", ".join(self._paths))
        return made

    def _look(self) -> _Seen:
        return tuple(map(_state, self._paths))


def _state(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _kept(options: Tls) -> dict[str, object]:
    """What says who is let in: a file that was emptied, or written by a slip, mustn't change it unseen."""
    return {
        "tls.test.mode.enable": options.test_mode,
        "tls.server.need.client.auth": options.need_client_auth,
        "tls.server.authClient": options.auth_client,
        "tls.server.crlPath": bool(options.server_crl_path),
    }


def _warn_of_idle(options: Tls) -> None:
    asks = options.need_client_auth is not ClientAuth.none
    idle = []
    if asks and options.test_mode:
        idle.append(f"tls.server.need.client.auth={options.need_client_auth}")
    if options.auth_client and (options.test_mode or not asks):
        idle.append("tls.server.authClient=true")
    if idle:
        why = "tls.test.mode.enable=true" if options.test_mode else "tls.server.need.client.auth=none"
        log.warning("no effect of %s with %s: clients are asked for no certificate", " and ".join(idle), why)


def _read(options: Tls) -> "_core.Tls":
    certificate, key = options.server_cert_path, options.server_key_path
    if not certificate or not key:
        raise ConfigError("tls.test.mode.enable=false: expected tls.server.certPath and tls.server.keyPath, PEM files")
    asks = options.need_client_auth is not ClientAuth.none
    if asks and options.auth_client and not options.server_trust_cert_path:
        raise ConfigError("tls.server.authClient=true: expected tls.server.trustCertPath, a PEM file of authorities")
    if options.server_crl_path and not (asks and options.auth_client):
        raise ConfigError("tls.server.crlPath: nobody's certificate is checked without need.client.auth and authClient")
    trust = options.server_trust_cert_path if asks and options.auth_client else None
    if asks and trust is None:
        log.warning(
            "certificates of clients are asked for and believed whoever has signed them (tls.server.authClient=false)"
        )
    try:
        return _core.Tls(
            _bytes(certificate),
            _clear_key(key, options.server_key_password),
            asks=asks,
            requires=options.need_client_auth is ClientAuth.require,
            trust=_bytes(trust) if trust else None,
            revoked=_bytes(options.server_crl_path) if options.server_crl_path else None,
        )
    except ValueError as error:
        files = ", ".join(path for path in (certificate, key, trust, options.server_crl_path) if path)
        raise ConfigError(f"TLS with {files}: {error}") from None


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None


def _clear_key(path: str, password: str | None) -> bytes:
    data = _bytes(path)
    if b"ENCRYPTED" not in data:
        return data
    if not password:
        raise ConfigError(f"{path}: the key is encrypted, and there is no tls.server.keyPassword")
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise ConfigError(f"{path}: an encrypted key needs pip install 'rockmq[auth]' (cryptography)") from None
    try:
        key = serialization.load_pem_private_key(data, password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path}: tls.server.keyPassword doesn't open it: {error}") from None
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def towards_others(given: Tls) -> ssl.SSLContext | None:
    """How a broker speaks with name servers, None without TLS. Raises ConfigError.

    As Apache's it looks at who has signed their certificates (`tls.client.authServer`), not at the name in them.
    """
    if not given.speaks_to_others:
        return None
    options = effective(given)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    checks = options.auth_server and not options.test_mode
    context.verify_mode = ssl.CERT_REQUIRED if checks else ssl.CERT_NONE
    certificate, key, trust = options.client_cert_path, options.client_key_path, options.client_trust_cert_path
    try:
        if checks and trust:
            context.load_verify_locations(trust)
        elif checks:
            context.load_default_certs()
        if certificate and not options.test_mode:
            context.load_cert_chain(certificate, key, lambda: options.client_key_password or "")
    except (OSError, ValueError) as error:
        files = ", ".join(path for path in (certificate, key, trust) if path)
        raise ConfigError(
            f"TLS towards name servers with {files}: {error.strerror if isinstance(error, OSError) else error}"
        ) from None
    return context
