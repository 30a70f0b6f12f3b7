"""Accounts in files: Apache's ACL 1.0 (PlainPermissionManager.java and PlainAccessResource.java of 5.2; protocol spec, 8.1).

    globalWhiteRemoteAddresses:     addresses (`addresses.py`) from which everything is taken without a signature
      - 10.0.*.*
    accounts:
      - accessKey: RocketMQ         at least 7 characters, as the secret
        secretKey: 12345678
        whiteRemoteAddress:         from there whoever names the account may do everything, without a signature
        admin: false                may do everything
        defaultTopicPerm: DENY      DENY, PUB, SUB, PUB|SUB; of topics and groups that the lists don't name; none is DENY
        defaultGroupPerm: SUB
        topicPerms: [A=DENY, B=PUB|SUB]
        groupPerms: [g=SUB]

Read are conf/plain_acl.yml and all .yml and .yaml under conf/acl, and read again when one changes; an access key belongs to
the first file that has it. Files that can't be read stop a start; later what was read before stays in force.

Apache asks for an admin's key for five codes. Here whatever creates, changes or deletes something needs one.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rockmq.auth.addresses import IP, Pattern, pattern
from rockmq.auth.needs import Action, Kind, Need
from rockmq.base.errors import ConfigError
from rockmq.protocol import topics

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
FILE_SIZE_MAX = 16 << 20
DEPTH_MAX = 10
KEY_SIZE_MIN = 7

PUB, SUB = 1, 2
_PERMISSIONS = {"PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
"""What isn't one of these is DENY."""

Text = str | None
V = TypeVar("V")


class _Account(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    access_key: Text = None
    secret_key: Text = None
    white_remote_address: Text = None
    admin: Text = None
    default_topic_perm: Text = None
    default_group_perm: Text = None
    topic_perms: list[str] | str | None = None
    group_perms: list[str] | str | None = None


class _File(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    global_white_remote_addresses: list[str] | str | None = None
    accounts: list[_Account] | str | None = None
    data_version: Any = None
    """Counted by Apache's administrators' commands."""


@dataclass(frozen=True)
class Account:
    access_key: str
    secret: bytes = field(repr=False)
    is_white: Pattern
    is_admin: bool
    default_topic: int
    default_group: int
    topics: dict[str, int]
    groups: dict[str, int]

    def refusal(self, need: Need) -> str | None:
        """Why the account may not do that, in Apache's words, or None."""
        wanted = PUB if Action.PUB in need.actions else SUB if Action.SUB in need.actions else 0
        if not wanted:
            if need.actions <= _READING:
                return None
            return f"Need admin permission for {need}, but accessKey={self.access_key} is not"
        if need.kind is Kind.CLUSTER:
            return f"Need admin permission without a topic, but accessKey={self.access_key} is not"
        if need.kind is Kind.TOPIC and need.name == topics.TRACE and wanted == PUB:
            return None
        owned, default = (self.groups, self.default_group) if need.kind is Kind.GROUP else (self.topics, self.default_topic)
        what = f"{need.kind.lower()}:{need.name}"
        found = owned.get(need.name)
        if found is None:
            return None if wanted & default else f"No default permission for {what}"
        return None if wanted & found else f"No permission for {what}"


_READING = frozenset({Action.GET, Action.LIST})


class PlainAccess:
    """The accounts in the files under `home`, Apache's ROCKETMQ_HOME."""

    def __init__(self, home: Path) -> None:
        self._file = home / "conf" / "plain_acl.yml"
        self._directory = home / "conf" / "acl"
        self._seen: dict[Path, tuple[int, int, int]] = {}
        self._white: list[Pattern] = []
        self.accounts: dict[str, Account] = {}
        self.on_change: list[Callable[[], None]] = []
        """Called when who may do what has changed."""

    def load(self) -> None:
        """Read all files. Raises ConfigError; what was read before stays then."""
        seen = self._look()
        white: list[Pattern] = []
        accounts: dict[str, Account] = {}
        for path in seen:
            found_white, found = _read(path)
            white += found_white
            for account in found:
                if account.access_key in accounts:
                    log.warning("%s: the access key %s is another one's already", path, account.access_key)
                else:
                    accounts[account.access_key] = account
        if not seen:
            raise ConfigError(f"aclEnable=true, but there is no {self._file} and no file in {self._directory}")
        self._seen, self._white, self.accounts = seen, white, accounts
        for changed in self.on_change:
            changed()
        log.info("%d accounts are read from %s", len(accounts), ", ".join(map(str, seen)))

    def look(self) -> None:
        """Read the files again if one was changed, made or deleted."""
        seen = self._look()
        if seen == self._seen:
            return
        try:
            self.load()
        except ConfigError as error:
            self._seen = seen  # not again before the next change
            log.error("the accounts stay as they were: %s", error)

    def is_white(self, ip: IP) -> bool:
        return any(matches(ip) for matches in self._white)

    def _look(self) -> dict[Path, tuple[int, int, int]]:
        found = {}
        for path in [*_files(self._directory, DEPTH_MAX), self._file]:
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            found[path] = (status.st_ino, status.st_mtime_ns, status.st_size)
        return found


def _files(directory: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.suffix in (".yml", ".yaml"):
            yield entry
        elif depth and entry.is_dir():
            yield from _files(entry, depth - 1)


def _read(path: Path) -> tuple[list[Pattern], list[Account]]:
    """The white list and the accounts of a file. Raises ConfigError that names it."""
    try:
        import yaml
    except ImportError:
        raise ConfigError("aclEnable=true needs the package pyyaml: rockmq[auth]") from None
    try:
        text = path.read_bytes()
        if len(text) > FILE_SIZE_MAX:
            raise ConfigError(f"it has {len(text)} bytes, the bound is {FILE_SIZE_MAX}")
        # All scalars as they are written: a secret of digits is no number.
        content = msgspec.convert(yaml.load(text, Loader=yaml.BaseLoader) or {}, _File)
        white = [pattern(each) for each in _list(content.global_white_remote_addresses)]
        return white, [_account(each) for each in _list(content.accounts)]
    # PyYAML has no error of its own for escapes beyond Unicode and a version of 5,000 digits: the two behind its own.
    except (
        OSError,
        yaml.YAMLError,
        ValueError,
        OverflowError,
        RecursionError,
        msgspec.ValidationError,
        ConfigError,
    ) as error:
        # What the parser quotes of the file may be a secret.
        why = f"line {error.problem_mark.line + 1}" if isinstance(error, yaml.MarkedYAMLError) else str(error)
        raise ConfigError(f"{path} can't be used: {why}") from None


def _account(given: _Account) -> Account:
    access_key, secret = given.access_key or "", given.secret_key or ""
    if len(access_key) < KEY_SIZE_MIN or len(secret) < KEY_SIZE_MIN:
        raise ConfigError(f"accessKey={access_key}: it and its secretKey have {KEY_SIZE_MIN} characters or more")
    access_key.encode()  # of half a character, which YAML can write, no peer could be told
    groups = {name.removeprefix(topics.RETRY_PREFIX): value for name, value in _table(given.group_perms).items()}
    # A group is its retry topic in Apache's table, so it may stand among the topics.
    by_topic = _table(given.topic_perms)
    groups |= {name.removeprefix(topics.RETRY_PREFIX): value for name, value in by_topic.items() if topics.is_retry(name)}
    return Account(
        access_key,
        secret.encode(),
        pattern(_given(given.white_remote_address)),
        _given(given.admin).lower() in ("true", "yes", "on"),
        _PERMISSIONS.get((given.default_topic_perm or "").strip(), 0),
        _PERMISSIONS.get((given.default_group_perm or "").strip(), 0),
        by_topic,
        groups,
    )


def _given(text: Text) -> str:
    return "" if text is None or text in ("~", "null") else text


def _list(given: list[V] | str | None) -> list[V]:
    """A list, also one that is left empty."""
    if isinstance(given, str):
        if _given(given):
            raise ConfigError("a text stands where a list is expected")
        return []
    return given or []


def _table(given: list[str] | str | None) -> dict[str, int]:
    found = {}
    for each in _list(given):
        name, equals, permission = each.partition("=")
        if not equals or not name.strip() or "=" in permission:
            raise ConfigError(f"{each[:100]!r} is no permission: expected name=PUB|SUB or the like")
        found[name.strip()] = _PERMISSIONS.get(permission.strip(), 0)
    return found
