"""Who may do what at brokers that ask for keys: users, and rules of what they may (Apache's ACL 2.0; protocol spec, 8.2).

Each broker, slaves included, keeps users and rules of its own: changes go to all of them, questions to one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from rockmq.base.errors import ClientError
from rockmq.client.admin.cluster import Cluster
from rockmq.protocol import json
from rockmq.protocol.bodies.access import AclInfo, Policy, PolicyEntry, UserInfo
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import Header
from rockmq.protocol.headers.access import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    UpdateAcl,
    UpdateUser,
)

UserKind = Literal["Super", "Normal"]
"""A super user may do everything."""
PolicyKind = Literal["Custom", "Default"]
"""Default rules are looked at where no other one says anything."""


@dataclass(frozen=True)
class User:
    """`name` is the access key, `password` its secret, as far as the broker tells it."""

    name: str
    kind: str
    enabled: bool
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Rule:
    """What is allowed, or denied, with a resource: `Topic:orders`, `Topic:ord*`, `Topic:*`, as well of Group and Cluster, or
    `*`. Actions are Pub, Sub, Create, Update, Delete, Get, List and All; without `source_ips` (or networks) for all IPs."""

    resource: str
    actions: tuple[str, ...]
    allowed: bool = True
    source_ips: tuple[str, ...] = ()
    kind: PolicyKind = "Custom"


@dataclass(frozen=True)
class Acl:
    """The rules for a subject, `User:name`."""

    subject: str
    rules: tuple[Rule, ...]


class AccessAdmin:
    """`broker` is the name of one, which means its master, or `host:port`. What needs a super user's key, or is done at a
    broker that keeps no users, raises ResponseError. Resources have the names that servers know, namespaces included."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # Users

    async def create_user(
        self,
        name: str,
        password: str,
        *,
        kind: UserKind = "Normal",
        enabled: bool = True,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Raises ResponseError when there is such a user already."""
        body = _user_body(name, password, kind, enabled)
        await self._tell(cluster, broker, RequestCode.AUTH_CREATE_USER, CreateUser(username=name), body)

    async def update_user(
        self,
        name: str,
        *,
        password: str | None = None,
        kind: UserKind | None = None,
        enabled: bool | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Change what is given, leave the rest. Raises ResponseError when there is no such user."""
        body = _user_body(name, password, kind, enabled)
        await self._tell(cluster, broker, RequestCode.AUTH_UPDATE_USER, UpdateUser(username=name), body)

    async def delete_user(self, name: str, *, cluster: str | None = None, broker: str | None = None) -> None:
        """Delete the user with the rules for it. Nothing happens when there is none."""
        await self._tell(cluster, broker, RequestCode.AUTH_DELETE_USER, DeleteUser(username=name))

    async def user(self, broker: str, name: str) -> User | None:
        answer = await self._cluster.ask(broker, RequestCode.AUTH_GET_USER, GetUser(username=name))
        return _user(json.decode(answer.body, UserInfo, "a user")) if answer.body else None

    async def users(self, broker: str, containing: str | None = None) -> list[User]:
        """All users of a broker, or those in whose names a text is."""
        answer = await self._cluster.ask(broker, RequestCode.AUTH_LIST_USER, ListUsers(filter=containing))
        found = json.decode(answer.body, list[UserInfo], "users") if answer.body else []
        return sorted((_user(each) for each in found), key=lambda user: user.name)

    # Rules

    async def create_acl(
        self, subject: str, rules: Iterable[Rule], *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Make rules for a subject, `User:name`; rules for other resources stay. Raises ResponseError when there is no such
        user, or a rule makes no sense."""
        header = CreateAcl(subject=subject)
        await self._tell(cluster, broker, RequestCode.AUTH_CREATE_ACL, header, _acl_body(subject, rules))

    async def update_acl(
        self, subject: str, rules: Iterable[Rule], *, cluster: str | None = None, broker: str | None = None
    ) -> None:
        """Change the rules for these resources; as `create_acl` where there are none."""
        header = UpdateAcl(subject=subject)
        await self._tell(cluster, broker, RequestCode.AUTH_UPDATE_ACL, header, _acl_body(subject, rules))

    async def delete_acl(
        self,
        subject: str,
        resource: str | None = None,
        *,
        kind: PolicyKind = "Custom",
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Delete a subject's rule for a resource, or all it has. Raises ResponseError when it has none."""
        header = DeleteAcl(subject=subject, policy_type=kind, resource=resource)
        await self._tell(cluster, broker, RequestCode.AUTH_DELETE_ACL, header)

    async def acl(self, broker: str, subject: str) -> Acl | None:
        """Raises ResponseError when there is no such user."""
        answer = await self._cluster.ask(broker, RequestCode.AUTH_GET_ACL, GetAcl(subject=subject))
        return _acl(json.decode(answer.body, AclInfo, "rules")) if answer.body else None

    async def acls(self, broker: str, *, subject: str | None = None, resource: str | None = None) -> list[Acl]:
        """All rules of a broker, or those in whose subjects, and in whose resources, a text is."""
        header = ListAcls(subject_filter=subject, resource_filter=resource)
        answer = await self._cluster.ask(broker, RequestCode.AUTH_LIST_ACL, header)
        found = json.decode(answer.body, list[AclInfo], "rules") if answer.body else []
        return sorted(map(_acl, found), key=lambda acl: acl.subject)

    async def _tell(self, cluster: str | None, broker: str | None, code: int, header: Header, body: bytes = b"") -> None:
        to = await self._cluster.members(cluster) if broker is None else {broker: await self._cluster.address(broker)}
        await self._cluster.ask_all(to, code, header, body)


def _user_body(name: str, password: str | None, kind: str | None, enabled: bool | None) -> bytes:
    status = None if enabled is None else "enable" if enabled else "disable"
    return json.encode(UserInfo(username=name, password=password, user_type=kind, user_status=status))


def _user(info: UserInfo) -> User:
    return User(info.username or "", info.user_type or "Normal", info.user_status != "disable", info.password)


def _acl_body(subject: str, rules: Iterable[Rule]) -> bytes:
    policies: dict[str, list[PolicyEntry]] = {}
    for rule in rules:
        if isinstance(rule.actions, str):
            raise ClientError(f"{rule.actions!r} are the actions of a rule: expected a tuple of them")
        entry = PolicyEntry(
            resource=rule.resource,
            actions=list(rule.actions),
            source_ips=list(rule.source_ips) or None,
            decision="Allow" if rule.allowed else "Deny",
        )
        policies.setdefault(rule.kind, []).append(entry)
    found = [Policy(policy_type=kind, entries=entries) for kind, entries in policies.items()]
    return json.encode(AclInfo(subject=subject, policies=found))


def _acl(info: AclInfo) -> Acl:
    return Acl(
        info.subject,
        tuple(
            Rule(
                entry.resource,
                tuple(entry.actions),
                entry.decision == "Allow",
                tuple(entry.source_ips or ()),
                "Default" if policy.policy_type == "Default" else "Custom",
            )
            for policy in info.policies or []
            for entry in policy.entries or []
        ),
    )
