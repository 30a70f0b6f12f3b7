"""Access control of a broker, as its options say: what guards its requests, and what has to be looked after."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rockmq.auth.accounts import AccountError, Accounts, has_super
from rockmq.auth.guard import Guard, PlainGuard, UserGuard
from rockmq.auth.plain import PlainAccess
from rockmq.auth.signature import ACCESS_KEY
from rockmq.base.errors import ConfigError
from rockmq.config.broker import BrokerOptions
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode
from rockmq.remoting.connection import Connection

_TOPIC_FIELDS: dict[int, str] = {
    RequestCode.SEND_MESSAGE: "topic",
    RequestCode.SEND_MESSAGE_V2: "b",
    RequestCode.SEND_BATCH_MESSAGE: "b",
}
"""What names the topic in the sends that the core takes."""


@dataclass
class Access:
    """`guard` is None when everybody may do everything."""

    guard: Guard | None = None
    plain: PlainAccess | None = None
    accounts: Accounts | None = None

    def admit(self, request: Command, connection: Connection) -> None:
        """Ask the guard. A send that it lets through vouches for others of its kind over the same connection, of which the
        core checks the signature alone. Raises AccessDenied, ProtocolError."""
        assert self.guard is not None
        secret = self.guard(request, connection.peer_host)
        topic = request.fields.get(_TOPIC_FIELDS.get(request.code, ""))
        if secret is not None and topic:
            connection.vouch(request.code, request.fields[ACCESS_KEY], topic, secret)


async def opened(options: BrokerOptions, config_directory: Path, revoke: Callable[[], None]) -> Access:
    """`revoke` is called after each change of who may do what: then nothing is vouched for any more. Raises ConfigError when
    what says that can't be read, or lets nobody in."""
    access, cluster = options.access, options.identity.broker_cluster_name
    if access.acl_enable:
        plain = PlainAccess(Path(access.rocketmq_home or ""))
        plain.load()
        plain.on_change.append(revoke)
        return Access(PlainGuard(plain, cluster), plain=plain)
    if not access.authentication_enabled:
        return Access()
    accounts = Accounts(Path(access.auth_config_path) if access.auth_config_path else config_directory / "auth")
    try:
        accounts.load()
        if (first := access.initial_user) is not None:
            await _ensure_super(accounts, "initAuthenticationUser", first.username, first.password)
        if (own := access.credentials) is not None:
            await _ensure_super(accounts, "innerClientAuthenticationCredentials", own.access_key, own.secret_key)
    except OSError as error:
        raise ConfigError(f"authConfigPath: {error.filename or 'its files'}: {error.strerror or error}") from None
    if not has_super(accounts.users):
        raise ConfigError(
            "authenticationEnabled=true, and there is no super user who could make others: expected initAuthenticationUser"
        )
    accounts.on_change.append(revoke)
    guard = UserGuard(
        accounts,
        cluster,
        authorizes=access.authorization_enabled,
        open_codes=access.open_codes,
        free_codes=access.free_codes,
    )
    return Access(guard, accounts=accounts)


async def _ensure_super(accounts: Accounts, key: str, name: str, secret: str) -> None:
    try:
        await accounts.ensure_super(name, secret)
    except AccountError as error:
        raise ConfigError(f"{key}: {error}") from None
