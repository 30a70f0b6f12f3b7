"""What a server asks before it carries out a request: who it is from, and whether they may. What isn't allowed is refused.

`PlainGuard` asks accounts in files (`plain.py`), and answers as brokers up to 5.2 do: code 1 and the name of Java's
exception. `UserGuard` asks users and rules (`accounts.py`, `policies.py`): code 16. Which of the two, or none, is one
decision at the start.
"""

import logging
from typing import Protocol

from rockmq.auth.accounts import Accounts, User
from rockmq.auth.addresses import IP, ip_of
from rockmq.auth.needs import Need, needs
from rockmq.auth.plain import PlainAccess
from rockmq.auth.policies import Rule, deciding
from rockmq.auth.signature import ACCESS_KEY, is_signed
from rockmq.base.errors import AccessDenied
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import ResponseCode, name_of

log = logging.getLogger(__name__)


class Guard(Protocol):
    def __call__(self, request: Command, peer_host: bytes) -> bytes | None:
        """Takes a request and the host bytes of its connection; the secret that the request is signed with, None where none
        was asked for. Of a send nothing but that is to be asked again for another one by the same key, with the same code,
        to the same topic, from the same host, until who may do what changes. Raises AccessDenied, and ProtocolError for a
        body it can't read."""

    def may(self, code: int, access_key: str | None, peer_host: bytes, need: Need) -> bool:
        """Whether whoever was let through with a request of this code may do something else, too, which the request doesn't
        say and its handler finds out."""


_EXCEPTION = "org.apache.rocketmq.acl.common.AclException"


class PlainGuard:
    def __init__(self, access: PlainAccess, cluster: str) -> None:
        self._access = access
        self._cluster = cluster

    def __call__(self, request: Command, peer_host: bytes) -> bytes | None:
        ip = ip_of(peer_host)
        if self._access.is_white(ip):
            return None
        name = request.fields.get(ACCESS_KEY)
        if name is None:
            raise _denied(request, ip, "No accessKey is configured")
        account = self._access.accounts.get(name)
        if account is None:
            raise _denied(request, ip, f"No acl config for {name[:100]}")
        if account.is_white(ip):
            return None
        if not is_signed(request.fields, request.body, account.secret):
            raise _denied(request, ip, f"Check signature failed for accessKey={name}")
        if not account.is_admin:
            for need in needs(request, self._cluster):
                if (why := account.refusal(need)) is not None:
                    raise _denied(request, ip, why)
        return account.secret

    def may(self, code: int, access_key: str | None, peer_host: bytes, need: Need) -> bool:
        ip, account = ip_of(peer_host), self._access.accounts.get(access_key or "")
        if self._access.is_white(ip):
            return True
        return account is not None and (account.is_white(ip) or account.is_admin or account.refusal(need) is None)


def _denied(request: Command, ip: IP, why: str) -> AccessDenied:
    log.info("%s is refused: %s", name_of(request.code), why, extra={"peer": str(ip), "opaque": request.opaque})
    return AccessDenied(ResponseCode.SYSTEM_ERROR, f"{_EXCEPTION}: {why}")


class UserGuard:
    """`authorizes`: whether users may do only what rules allow. `open_codes` need no user (authenticationWhitelist),
    `free_codes` no rule (authorizationWhitelist). What rules decide over needs a user who is known, so a code is open
    only if it is free as well, or nothing is authorized."""

    def __init__(
        self,
        accounts: Accounts,
        cluster: str,
        *,
        authorizes: bool,
        open_codes: frozenset[int] = frozenset(),
        free_codes: frozenset[int] = frozenset(),
    ) -> None:
        self._accounts = accounts
        self._cluster = cluster
        self._authorizes = authorizes
        self._free = free_codes
        self._open = open_codes & free_codes if authorizes else open_codes

    def __call__(self, request: Command, peer_host: bytes) -> bytes | None:
        if request.code in self._open:
            return None
        user = self._authenticated(request, peer_host)
        if not self._authorizes or user.is_super or request.code in self._free:
            return user.key
        ip = ip_of(peer_host)
        for need in needs(request, self._cluster):
            rule = self._deciding(user, need, ip)
            if rule is None or not rule.is_allowed:
                why = "no matched policies." if rule is None else "the decision is deny."
                remark = f"User:{user.name} has no permission to access {need} from {ip}, {why}"
                about = {"peer": str(ip), "opaque": request.opaque}
                log.info("%s is refused: %s", name_of(request.code), remark, extra=about)
                raise AccessDenied(ResponseCode.NO_PERMISSION, remark)
        return user.key

    def may(self, code: int, access_key: str | None, peer_host: bytes, need: Need) -> bool:
        if not self._authorizes or code in self._free:
            return True
        user = self._accounts.users.get(access_key or "")
        if user is None or not user.is_enabled:
            return False
        rule = self._deciding(user, need, ip_of(peer_host))
        return user.is_super or (rule is not None and rule.is_allowed)

    def _deciding(self, user: User, need: Need, ip: IP) -> Rule | None:
        return deciding(self._accounts.rules.get(user.name, {}), need, ip)

    def _authenticated(self, request: Command, peer_host: bytes) -> User:
        name = request.fields.get(ACCESS_KEY)
        user = self._accounts.users.get(name) if name else None
        if not name:
            why = "username cannot be null."
        elif user is None:
            why = f"User:{name[:100]} is not found."
        elif not user.is_enabled:
            why = f"User:{name} is disabled."
        elif not is_signed(request.fields, request.body, user.key):
            why = "check signature failed."
        else:
            return user
        about = {"peer": str(ip_of(peer_host)), "opaque": request.opaque}
        log.info("%s is refused: %s", name_of(request.code), why, extra=about)
        raise AccessDenied(ResponseCode.NO_PERMISSION, why)
