"""Users with their secrets, and what they may do, in a file of their own (Apache keeps them in RocksDB).

    users.json     {"users":{"alice":{"secret":"…","userType":"Normal","userStatus":"enable"}},
                    "acls":{"User:alice":{"subject":…,"policies":[…]}}}
    secret.key     what the secrets in it are encrypted with (Fernet: AES-128 and HMAC-SHA256), mode 0600

To check a signature the secret itself is needed, so it can't be a hash. Who has both files has the secrets; a copy of
users.json alone, in a backup for instance, tells none. A change is on disk before it counts and before it is answered; if
it can't be written it didn't happen.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from rockmq.auth import policies
from rockmq.auth.policies import Rules
from rockmq.base import files
from rockmq.base.errors import ConfigError, ProtocolError, StoreUnavailable
from rockmq.protocol import json
from rockmq.protocol.bodies.access import AclInfo, UserInfo

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

SUPER, NORMAL = "Super", "Normal"
ENABLE, DISABLE = "enable", "disable"
SUBJECT_PREFIX = "User:"
USERS_MAX = 10_000
NAME_SIZE_MAX = 255
SECRET_SIZE_MAX = 4096
KEY_MODE = 0o600


class AccountError(Exception):
    """A change that can't be made; the text is for who asked for it."""


@dataclass(frozen=True)
class User:
    """`sealed` is the secret as it is in the file."""

    name: str
    secret: str = field(repr=False)
    sealed: str = field(repr=False)
    is_super: bool = False
    is_enabled: bool = True

    @cached_property
    def key(self) -> bytes:
        """What signatures are made with."""
        return self.secret.encode()


class _StoredUser(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    secret: str
    user_type: str
    user_status: str


class _Document(msgspec.Struct):
    users: dict[str, _StoredUser]
    acls: dict[str, AclInfo]


class Accounts:
    """The users of a broker by name, and their rules by name of the user. `directory` is authConfigPath."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "users.json"
        self._cipher = Cipher(directory / "secret.key")
        self._changing = asyncio.Lock()
        self.users: dict[str, User] = {}
        self.rules: dict[str, Rules] = {}
        self.on_change: list[Callable[[], None]] = []
        """Called when who may do what has changed."""

    def load(self) -> None:
        """Read what is there. Raises ConfigError, OSError."""
        backup = self._path.with_name(self._path.name + ".bak")
        # A change leaves no moment without a whole users.json, and the backup gives back what was taken away since.
        hint = f"{backup} is from before the last change: copied there it brings back rights that were taken away by that"
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            if backup.exists():
                raise ConfigError(f"{self._path} is missing; {hint}") from None
            return
        try:
            self._take(json.decode(text, _Document, str(self._path)))
        except ProtocolError as error:
            raise ConfigError(f"{error}; {hint}" if backup.exists() else str(error)) from None

    def _take(self, document: _Document) -> None:
        for name, stored in document.users.items():
            secret = self._cipher.decrypt(stored.secret)
            self.users[name] = User(name, secret, stored.secret, stored.user_type == SUPER, stored.user_status == ENABLE)
        for subject, info in document.acls.items():
            try:
                self.rules[subject.removeprefix(SUBJECT_PREFIX)] = policies.parse(info)
            except ConfigError as error:
                raise ProtocolError(f"{self._path}: the rules of {subject}: {error}") from None

    async def create_user(self, info: UserInfo) -> None:
        """Raises AccountError, StoreUnavailable, as all changes."""
        name, secret = info.username or "", info.password or ""
        if not secret.strip():
            raise AccountError("password can not be blank")
        _check_sizes(name, secret)
        async with self._changing:
            if name in self.users:
                raise AccountError("The user is existed")
            if len(self.users) >= USERS_MAX:
                raise AccountError(f"there are {len(self.users)} users, the bound")
            user = User(name, secret, self._cipher.encrypt(secret), is_super(info) or False, is_enabled(info) is not False)
            await self._save(self.users | {name: user}, self.rules)

    async def update_user(self, info: UserInfo, *, by_super: bool) -> None:
        """What `info` leaves out stays. Only super users change super users."""
        name = info.username or ""
        async with self._changing:
            user = self.users.get(name)
            if user is None:
                raise AccountError("The user is not exist")
            _check_may_change(user, by_super)
            if (secret := info.password) and secret.strip():
                _check_sizes(name, secret)
                user = replace(user, secret=secret, sealed=self._cipher.encrypt(secret))
            if (kind := is_super(info)) is not None:
                user = replace(user, is_super=kind)
            if (enabled := is_enabled(info)) is not None:
                user = replace(user, is_enabled=enabled)
            users = self.users | {name: user}
            self._check_super_left(users)
            await self._save(users, self.rules)

    async def delete_user(self, name: str, *, by_super: bool) -> None:
        """With the rules; nothing happens when there is no such user. Only super users delete super users."""
        async with self._changing:
            if name in self.users:
                _check_may_change(self.users[name], by_super)
            if name in self.users or name in self.rules:
                users = _without(self.users, name)
                self._check_super_left(users)
                await self._save(users, _without(self.rules, name))

    def _check_super_left(self, users: Mapping[str, User]) -> None:
        """The next start would fail without a super user."""
        if has_super(self.users) and not has_super(users):
            raise AccountError("This is the only super user that is enabled: expected another one before")

    async def update_rules(self, name: str, changes: Rules) -> None:
        """Add rules of a user, or change those for the same resources."""
        async with self._changing:
            if name not in self.users:
                raise AccountError(f"The subject of {SUBJECT_PREFIX}{name} is not exist.")
            rules = policies.merged(self.rules.get(name, {}), changes)
            await self._save(self.users, self.rules | {name: rules})

    async def delete_rules(self, name: str, policy: str, resource: str | None) -> None:
        """Delete the rule for a resource, if there is one, or all rules of a user. Raises ConfigError for what is no
        resource."""
        if resource is not None:
            resource = policies.spelled(resource)
        async with self._changing:
            if name not in self.users:
                raise AccountError("The subject is not exist.")
            if name not in self.rules:
                raise AccountError("The acl is not exist.")
            left: Rules = {}
            if resource is not None:
                left = {each: dict(table) for each, table in self.rules[name].items()}
                left.get(policy, {}).pop(resource, None)
                left = {each: table for each, table in left.items() if table}
            await self._save(self.users, self.rules | {name: left} if left else _without(self.rules, name))

    async def ensure_super(self, name: str, secret: str) -> None:
        """Have a super user of that name; one that is there stays as it is."""
        if name not in self.users:
            await self.create_user(UserInfo(username=name, password=secret, user_type=SUPER))

    async def _save(self, users: dict[str, User], rules: dict[str, Rules]) -> None:
        document = _Document(
            {name: _stored(user) for name, user in users.items()},
            {SUBJECT_PREFIX + name: policies.body(SUBJECT_PREFIX + name, each) for name, each in rules.items()},
        )
        writing = asyncio.ensure_future(self._written(msgspec.json.encode(document), users, rules))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            # To the end, and before the next change: what is on disk and what counts must not differ.
            await asyncio.wait([writing])
            raise

    async def _written(self, text: bytes, users: dict[str, User], rules: dict[str, Rules]) -> None:
        try:
            await asyncio.to_thread(files.save_parts, self._path, [text, b"\n"])
        except OSError as error:
            raise StoreUnavailable(f"nothing was changed: can't save {self._path}: {error.strerror or error}") from None
        self.users, self.rules = users, rules
        for changed in self.on_change:
            changed()


class Cipher:
    """Encrypts texts by a key in a file, which it makes when it is first needed. Raises ConfigError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fernet: Fernet | None = None

    def encrypt(self, text: str) -> str:
        return self._opened(make=True).encrypt(text.encode()).decode()

    def decrypt(self, text: str) -> str:
        from cryptography.fernet import InvalidToken

        try:
            return self._opened(make=False).decrypt(text.encode()).decode()
        except (InvalidToken, UnicodeDecodeError):  # the latter where only the half that encrypts is another one
            raise ConfigError(f"{self._path} isn't the key that the secrets beside it are encrypted with") from None

    def _opened(self, *, make: bool) -> "Fernet":
        if self._fernet is None:
            try:
                from cryptography.fernet import Fernet
            except ImportError:
                raise ConfigError("authenticationEnabled=true needs the package cryptography: rockmq[auth]") from None
            try:
                self._fernet = Fernet(self._key(Fernet.generate_key if make else None))
            except ValueError:
                raise ConfigError(f"{self._path} is no key") from None
        return self._fernet

    def _key(self, make: Callable[[], bytes] | None) -> bytes:
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            if make is None:
                raise ConfigError(f"{self._path}, the key of the secrets beside it, is missing") from None
            return self._made(make())
        with open(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode & 0o777
            if mode & 0o077:
                raise ConfigError(f"{self._path} can be read by others (mode {mode:o}): expected {KEY_MODE:o}")
            return file.read(1024).strip()

    def _made(self, key: bytes) -> bytes:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._path.with_name(self._path.name + ".tmp")
        with suppress(FileNotFoundError):
            fresh.unlink()
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, KEY_MODE)
        with open(descriptor, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(descriptor)
        os.rename(fresh, self._path)
        files.sync_directory(self._path.parent)
        return key


def has_super(users: Mapping[str, User]) -> bool:
    """Whether one of these may make others."""
    return any(user.is_super and user.is_enabled for user in users.values())


def is_super(info: UserInfo) -> bool | None:
    """None when nothing is said. Raises AccountError."""
    return _either(info.user_type, SUPER, NORMAL, "user type")


def is_enabled(info: UserInfo) -> bool | None:
    return _either(info.user_status, ENABLE, DISABLE, "user status")


def _either(text: str | None, yes: str, no: str, what: str) -> bool | None:
    if not text:
        return None
    if text.lower() not in (yes.lower(), no.lower()):
        raise AccountError(f"{text[:100]!r} is no {what}: expected {yes} or {no}")
    return text.lower() == yes.lower()


def user_named(subject: str) -> str:
    """The name in `User:name`. Raises AccountError."""
    kind, colon, name = subject.partition(":")
    if kind.lower() != "user" or not colon or not name.strip():
        raise AccountError(f"{subject[:100]!r} is no subject: expected User:name")
    return name


def _check_sizes(name: str, secret: str) -> None:
    if not name.strip() or len(name) > NAME_SIZE_MAX:
        raise AccountError(f"a user's name has 1 to {NAME_SIZE_MAX} characters")
    if len(secret) > SECRET_SIZE_MAX:
        raise AccountError(f"a password has {SECRET_SIZE_MAX} characters at most")


def _check_may_change(user: User, by_super: bool) -> None:
    if user.is_super and not by_super:
        raise AccountError("The super user can only be update by super user")


def _stored(user: User) -> _StoredUser:
    return _StoredUser(user.sealed, SUPER if user.is_super else NORMAL, ENABLE if user.is_enabled else DISABLE)


V = TypeVar("V")


def _without(table: dict[str, V], name: str) -> dict[str, V]:
    return {key: value for key, value in table.items() if key != name}
