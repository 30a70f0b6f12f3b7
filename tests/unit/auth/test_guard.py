"""Whom the guards let through, against a second reading of the rules: random users, rules and requests."""

import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockmq.auth import policies
from rockmq.auth.accounts import Accounts, User
from rockmq.auth.guard import PlainGuard, UserGuard
from rockmq.auth.needs import needs
from rockmq.auth.plain import PlainAccess
from rockmq.auth.signature import is_signed, signature
from rockmq.base import address
from rockmq.base.errors import AccessDenied
from rockmq.protocol.bodies.access import AclInfo, Policy, PolicyEntry
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode

CLUSTER = "c"
PEERS = ("10.0.0.1", "10.0.1.1", "fe80::1")
NAMES = ("a", "ab", "abc", "b")
USERS = ("alice", "bob", "root")


class Wants(NamedTuple):
    """A request, and what it is to need by the second reading: (resource, actions of which one is enough)."""

    code: int
    fields: dict[str, str]
    body: bytes
    needed: list[tuple[str, set[str]]]


def send(topic: str) -> Wants:
    return Wants(RequestCode.SEND_MESSAGE_V2, {"a": "g", "b": topic}, b"x", [(f"Topic:{topic}", {"Pub"})])


def old_send(topic: str) -> Wants:
    return Wants(RequestCode.SEND_MESSAGE, {"producerGroup": "g", "topic": topic}, b"x", [(f"Topic:{topic}", {"Pub"})])


def give_to(group: str) -> Wants:
    # The group that the sender says it has is no matter.
    return Wants(RequestCode.SEND_MESSAGE_V2, {"a": "abc", "b": f"%RETRY%{group}"}, b"x", [(f"Group:{group}", {"Sub"})])


def pull(topic: str, group: str) -> Wants:
    fields = {"topic": topic, "consumerGroup": group}
    return Wants(RequestCode.PULL_MESSAGE, fields, b"", [(f"Topic:{topic}", {"Sub"}), (f"Group:{group}", {"Sub"})])


def pop(topic: str, group: str) -> Wants:
    return pull(topic, group)._replace(code=RequestCode.POP_MESSAGE)


def commit(topic: str, group: str) -> Wants:
    needed = [(f"Topic:{topic}", {"Sub", "Update"}), (f"Group:{group}", {"Sub", "Update"})]
    return Wants(RequestCode.UPDATE_CONSUMER_OFFSET, {"topic": topic, "consumerGroup": group}, b"", needed)


def beat(topic: str, group: str) -> Wants:
    subscriptions = [{"topic": each} for each in (topic, f"%RETRY%{group}")]
    consumer = {"groupName": group, "subscriptionDataSet": subscriptions}
    body = json.dumps({"clientID": "c", "consumerDataSet": [consumer], "producerDataSet": [{"groupName": "b"}]})
    return pull(topic, group)._replace(code=RequestCode.HEART_BEAT, fields={}, body=body.encode())


def acks(topic: str, group: str) -> Wants:
    part = {"c": group, "t": topic, "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1, "b": "AQ=="}
    return pull(topic, group)._replace(
        code=RequestCode.BATCH_ACK_MESSAGE, fields={}, body=json.dumps({"acks": [part]}).encode()
    )


def create(topic: str) -> Wants:
    return Wants(RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": topic}, b"", [(f"Topic:{topic}", {"Create"})])


def look_at(topic: str) -> Wants:
    return Wants(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic}, b"", [(f"Topic:{topic}", {"Get"})])


def new_group(group: str) -> Wants:
    body = json.dumps({"groupName": group}).encode()
    return Wants(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body, [(f"Group:{group}", {"Create", "Update"})])


WHOLE = (
    Wants(RequestCode.GET_BROKER_CONFIG, {}, b"", [(f"Cluster:{CLUSTER}", {"Get"})]),
    Wants(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"}, b"", [(f"Cluster:{CLUSTER}", {"Sub", "Get"})]),
    Wants(RequestCode.UPDATE_BROKER_CONFIG, {}, b"a=b", [(f"Cluster:{CLUSTER}", {"Update"})]),
    Wants(RequestCode.AUTH_CREATE_USER, {"username": "x"}, b"{}", [(f"Cluster:{CLUSTER}", {"Update"})]),
    Wants(12345, {"topic": "a"}, b"", [(f"Cluster:{CLUSTER}", {"Update"})]),
    Wants(RequestCode.END_TRANSACTION, {}, b"", []),
)
names = st.sampled_from(NAMES)
requests = (
    st.builds(send, names)
    | st.builds(old_send, names)
    | st.builds(give_to, names)
    | st.builds(pull, names, names)
    | st.builds(pop, names, names)
    | st.builds(commit, names, names)
    | st.builds(beat, names, names)
    | st.builds(acks, names, names)
    | st.builds(create, names)
    | st.builds(look_at, names)
    | st.builds(new_group, names)
    | st.sampled_from(WHOLE)
)


@given(requests)
def test_what_requests_need(wants: Wants) -> None:
    found = needs(Command(wants.code, 1, fields=wants.fields, body=wants.body), CLUSTER)
    assert sorted((str(each), set(each.actions)) for each in found) == sorted(wants.needed)


# Users and rules

resources = st.sampled_from(["*"]) | st.builds(
    lambda kind, name: f"{kind}:{name}",
    st.sampled_from(["Topic", "Group", "Cluster"]),
    names | names.map(lambda name: name + "*") | st.sampled_from(["*", "c", "d"]),
)
entries = st.builds(
    PolicyEntry,
    resource=resources,
    actions=st.lists(
        st.sampled_from(["Pub", "sub", "Create", "Update", "Delete", "Get", "List", "All"]),
        min_size=1,
        max_size=4,
        unique=True,
    ),
    source_ips=st.none() | st.lists(st.sampled_from(["10.0.0.1", "10.0.0.0/16", "fe80::/10", "::/0"]), max_size=2),
    decision=st.sampled_from(["Allow", "Deny"]),
)
entry_lists = st.lists(entries, max_size=5, unique_by=lambda entry: entry.resource)


@dataclass
class Model:
    """The second reading, on texts: what is most particular is looked for first, level by level."""

    custom: list[PolicyEntry]
    default: list[PolicyEntry]

    def allows(self, resource: str, actions: set[str], peer: str) -> bool:
        for table in (self.custom, self.default):
            fitting = [each for each in table if self._fits(each, actions, peer)]
            for level in self._levels(resource):
                decisions = {each.decision for each in fitting if each.resource == level}
                if decisions:
                    return decisions == {"Allow"}
        return False

    @staticmethod
    def _levels(resource: str) -> Iterable[str]:
        kind, _, name = resource.partition(":")
        yield resource
        yield from (f"{kind}:{name[:size]}*" for size in range(len(name), 0, -1))
        yield f"{kind}:*"
        yield "*"

    @staticmethod
    def _fits(entry: PolicyEntry, actions: set[str], peer: str) -> bool:
        granted = {action.capitalize() for action in entry.actions}
        here = not entry.source_ips or any(
            ipaddress.ip_address(peer) in ipaddress.ip_network(each) for each in entry.source_ips
        )
        return here and ("All" in granted or bool(granted & actions))


@dataclass
class Case:
    wants: Wants
    user: str | None
    secret: str
    peer: str
    custom: dict[str, list[PolicyEntry]] = field(default_factory=dict)
    default: dict[str, list[PolicyEntry]] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)


cases = st.builds(
    Case,
    wants=requests,
    user=st.sampled_from([*USERS, "nobody", None]),
    secret=st.sampled_from(["secret", "secret", "secret", "guessed", ""]),
    peer=st.sampled_from(PEERS),
    custom=st.dictionaries(st.sampled_from(USERS), entry_lists),
    default=st.dictionaries(st.sampled_from(USERS), entry_lists),
    disabled=st.sets(st.sampled_from(USERS), max_size=1),
)


def asked(wants: Wants, user: str | None, secret: str) -> Command:
    fields = dict(wants.fields)
    if user is not None:
        fields["AccessKey"] = user
    if secret:
        fields["Signature"] = signature(fields, wants.body, secret.encode())
    return Command(wants.code, 1, fields=fields, body=wants.body)


def passes(guard: Any, request: Command, peer: str) -> bool:
    try:
        secret = guard(request, address.to_bytes(peer, 1))
    except AccessDenied:
        return False
    assert secret is None or is_signed(request.fields, request.body, secret)
    return True


@given(cases)
@settings(max_examples=200)
def test_nobody_passes_whom_the_rules_refuse(case: Case) -> None:
    accounts = Accounts(Path("/nowhere"))
    for name in USERS:
        accounts.users[name] = User(name, "secret", "", is_super=name == "root", is_enabled=name not in case.disabled)
        given = [
            Policy(policy_type=kind, entries=table[name])
            for kind, table in (("Custom", case.custom), ("Default", case.default))
            if table.get(name)
        ]
        if given:
            accounts.rules[name] = policies.parse(AclInfo(subject=f"User:{name}", policies=given))
    model = Model(case.custom.get(case.user or "", []), case.default.get(case.user or "", []))
    known = case.user in USERS and case.secret == "secret" and case.user not in case.disabled
    may = known and (
        case.user == "root" or all(model.allows(resource, actions, case.peer) for resource, actions in case.wants.needed)
    )
    request = asked(case.wants, case.user, case.secret)
    assert passes(UserGuard(accounts, CLUSTER, authorizes=True), request, case.peer) == may
    assert passes(UserGuard(accounts, CLUSTER, authorizes=False), request, case.peer) == known
    code = frozenset({case.wants.code})
    open_only = UserGuard(accounts, CLUSTER, authorizes=True, open_codes=code)
    assert passes(open_only, request, case.peer) == may, "a code that rules decide over needs a user"
    assert passes(UserGuard(accounts, CLUSTER, authorizes=True, free_codes=code), request, case.peer) == known
    assert passes(UserGuard(accounts, CLUSTER, authorizes=True, open_codes=code, free_codes=code), request, case.peer)


# Accounts in files

permissions = st.sampled_from(["PUB", "SUB", "PUB|SUB", "SUB|PUB", "DENY", "ANY", ""])
lists = st.dictionaries(names, permissions.filter(bool), max_size=3)


class Owned(NamedTuple):
    white: str
    admin: bool
    default_topic: str
    default_group: str
    topics: dict[str, str]
    groups: dict[str, str]


whites = st.sampled_from(["", "", "10.0.0.*", "fe80::1"])
accounts_in_files = st.builds(Owned, whites, st.booleans(), permissions, permissions, lists, lists)


def written(home: Path, everybody: str, owned: Owned) -> None:
    lines = ["globalWhiteRemoteAddresses:", *([f"  - {everybody}"] if everybody else []), "accounts:"]
    lines += ["- accessKey: alice-key", "  secretKey: 12345678", f"  whiteRemoteAddress: {owned.white}"]
    lines += [f"  admin: {str(owned.admin).lower()}", f"  defaultTopicPerm: {owned.default_topic}"]
    lines += [f"  defaultGroupPerm: {owned.default_group}"]
    for key, table in (("topicPerms", owned.topics), ("groupPerms", owned.groups)):
        lines += [f"  {key}:", *(f"  - {name}={permission}" for name, permission in table.items())]
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "plain_acl.yml").write_text("\n".join(lines))


def plainly_allowed(owned: Owned, needed: list[tuple[str, set[str]]]) -> bool:
    if owned.admin:
        return True
    for resource, actions in needed:
        kind, _, name = resource.partition(":")
        wanted = next((each for each in ("Pub", "Sub") if each in actions), None)
        if wanted is None or kind == "Cluster":
            if actions != {"Get"}:
                return False
            continue
        table, default = (owned.topics, owned.default_topic) if kind == "Topic" else (owned.groups, owned.default_group)
        if wanted.upper() not in table.get(name, default).split("|"):
            return False
    return True


@given(
    requests,
    accounts_in_files,
    st.sampled_from(["", "", "10.0.1.{1,2}"]),
    st.sampled_from(PEERS),
    st.sampled_from(["alice-key", "alice-key", "somebody", None]),
    st.sampled_from(["12345678", "12345678", "12345679", ""]),
)
@settings(max_examples=100)
def test_nobody_passes_whom_the_files_refuse(
    tmp_path_factory: pytest.TempPathFactory,
    wants: Wants,
    owned: Owned,
    everybody: str,
    peer: str,
    name: str | None,
    secret: str,
) -> None:
    home = tmp_path_factory.getbasetemp()
    written(home, everybody, owned)
    access = PlainAccess(home)
    access.load()
    is_white = {"10.0.0.*": "10.0.0.1", "fe80::1": "fe80::1"}.get(owned.white) == peer
    may = (everybody != "" and peer == "10.0.1.1") or (
        name == "alice-key" and (is_white or (secret == "12345678" and plainly_allowed(owned, wants.needed)))
    )
    assert passes(PlainGuard(access, CLUSTER), asked(wants, name, secret), peer) == may
