"""The broker's options of access control (BrokerConfig.aclEnable, AuthConfig.java)."""

import os
from typing import Annotated, TypeVar

import msgspec
from msgspec import field

from rockmq.base.errors import ConfigError
from rockmq.config.key import Key, Options

T = TypeVar("T", bound=msgspec.Struct)


ACCOUNT_CODES = frozenset(range(3001, 3011))
"""Requests by which users and rules are made."""


class InitialUser(msgspec.Struct):
    username: str
    password: str


class Credentials(msgspec.Struct, rename="camel"):
    access_key: str
    secret_key: str


class Access(Options, frozen=True, kw_only=True):
    acl_enable: Annotated[bool, Key("Ask for accounts of conf/plain_acl.yml and conf/acl/ in rocketmqHome (ACL 1.0).")] = (
        False
    )
    rocketmq_home: Annotated[str | None, Key("Where conf/ is.", path=True, default="`$ROCKETMQ_HOME`")] = field(
        default_factory=lambda: os.environ.get("ROCKETMQ_HOME") or None
    )
    authentication_enabled: Annotated[bool, Key("Ask for users (ACL 2.0).")] = False
    authorization_enabled: Annotated[bool, Key("Let users do only what rules allow them.")] = False
    auth_config_path: Annotated[
        str | None, Key("Directory of users and rules.", path=True, default="`config/auth` in the store")
    ] = None
    init_authentication_user: Annotated[
        str | None, Key('A super user to begin with, {"username":…,"password":…}.', secret=True)
    ] = None
    inner_client_authentication_credentials: Annotated[
        str | None, Key('The broker\'s own user, a super user, {"accessKey":…,"secretKey":…}.', secret=True)
    ] = None
    authentication_whitelist: Annotated[str, Key("Codes that need no user, separated by `,`.")] = ""
    authorization_whitelist: Annotated[str, Key("Codes that need no rule, separated by `,`.")] = ""

    def __post_init__(self) -> None:
        if self.acl_enable and not self.rocketmq_home:
            raise ConfigError("aclEnable=true: access control needs rocketmqHome, or ROCKETMQ_HOME, in which conf/ is")
        if self.acl_enable and self.authentication_enabled:
            raise ConfigError("aclEnable=true and authenticationEnabled=true: expected one of them")
        if self.authorization_enabled and not self.authentication_enabled:
            raise ConfigError(
                "authorizationEnabled=true: without authenticationEnabled=true anybody could say to be anybody, "
                "and the broker would be open to everyone"
            )
        _ = self.initial_user, self.credentials, self.free_codes
        if self.open_codes & ACCOUNT_CODES:
            raise ConfigError(f"authenticationWhitelist={self.authentication_whitelist}: 3001 to 3010 need a user")

    @property
    def is_on(self) -> bool:
        return self.acl_enable or self.authentication_enabled

    @property
    def initial_user(self) -> InitialUser | None:
        return _json("initAuthenticationUser", self.init_authentication_user, InitialUser)

    @property
    def credentials(self) -> Credentials | None:
        return _json("innerClientAuthenticationCredentials", self.inner_client_authentication_credentials, Credentials)

    @property
    def open_codes(self) -> frozenset[int]:
        return _codes("authenticationWhitelist", self.authentication_whitelist)

    @property
    def free_codes(self) -> frozenset[int]:
        return _codes("authorizationWhitelist", self.authorization_whitelist)


def _json(key: str, text: str | None, kind: type[T]) -> T | None:
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError:
        # What it says may be a secret.
        raise ConfigError(f"{key}: expected JSON with {' and '.join(kind.__struct_encode_fields__)}") from None


def _codes(key: str, text: str) -> frozenset[int]:
    try:
        return frozenset(int(each) for each in text.split(",") if each.strip())
    except ValueError:
        raise ConfigError(f"{key}={text}: expected request codes, separated by `,`") from None
