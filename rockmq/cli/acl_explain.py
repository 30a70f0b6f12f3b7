"""`rockmq acl explain`: the decision that a broker would come to, by the code by which it comes to it."""

import asyncio
import ipaddress
from functools import partial
from pathlib import Path

import typer

from rockmq.auth import policies
from rockmq.auth.addresses import IP
from rockmq.auth.needs import Action, Kind, Need, group, topic
from rockmq.auth.plain import PlainAccess
from rockmq.base.errors import ConfigError
from rockmq.client import Client, Key, environment
from rockmq.protocol.bodies.access import AclInfo, Policy, PolicyEntry

OTHERS_MAX = 20
"""Rules that are shown though they don't decide."""


def run(user: str, action: str, resource: str, ip: str, *, broker: str | None, home: Path | None) -> int:
    need = _need(action, resource)
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        raise ConfigError(f"{ip!r} is no IP address") from None
    if (broker is None) == (home is None):
        raise ConfigError("expected --broker, or --home for accounts in files")
    if home is not None:
        is_allowed, lines = of_files(home, user, need, address)
    else:
        is_allowed, lines = asyncio.run(of_broker(broker or "", environment.key(), user, need, address))
    typer.echo(f"{'allowed' if is_allowed else 'refused'}: {lines[0]}")
    for line in lines[1:]:
        typer.echo(f"  {line}")
    return 0 if is_allowed else 1


def _need(action: str, resource: str) -> Need:
    kind, name, is_prefix = policies.resource_of(resource)
    actions = policies.actions_of([action])
    if kind is None or name is None or is_prefix or Action.ALL in actions:
        raise ConfigError(f"{action} {resource}: expected one action on one resource, without `*`")
    return {Kind.TOPIC: topic, Kind.GROUP: group}.get(kind, partial(Need, kind))(name, actions)


async def of_broker(broker: str, key: Key | None, user: str, need: Need, ip: IP) -> tuple[bool, list[str]]:
    """Asks for the user and the rules, and decides here; so it works with Apache's brokers, too."""
    # The broker is asked by its address, so the name server is never.
    async with Client(broker, tls=environment.tls() or False, auth=key) as mq:
        found = await mq.admin.access.user(broker, user)
        if found is None:
            return False, [f"there is no user {user}"]
        if not found.enabled:
            return False, [f"{user} is disabled"]
        if found.kind == policies.SUPER:
            return True, [f"{user} is a super user, who may do everything"]
        acl = await mq.admin.access.acl(broker, f"User:{user}")
    entries: dict[str, list[PolicyEntry]] = {}
    for each in acl.rules if acl is not None else ():
        entry = PolicyEntry(
            resource=each.resource,
            actions=list(each.actions),
            source_ips=list(each.source_ips) or None,
            decision="Allow" if each.allowed else "Deny",
        )
        entries.setdefault(each.kind, []).append(entry)
    listed = [Policy(policy_type=kind, entries=found) for kind, found in entries.items()]
    rules = policies.parse(AclInfo(subject=f"User:{user}", policies=listed)) if listed else {}
    return of_rules(rules, user, need, ip)


def of_rules(rules: policies.Rules, user: str, need: Need, ip: IP) -> tuple[bool, list[str]]:
    decides = policies.deciding(rules, need, ip)
    others = [
        f"{rule} ({name}): {'decides less' if rule.fits(need, ip) else _why_not(rule, need, ip)}"
        for name, table in rules.items()
        for rule in table.values()
        if rule is not decides
    ]
    if len(others) > OTHERS_MAX:
        others = [*others[:OTHERS_MAX], f"and {len(others) - OTHERS_MAX} more"]
    if decides is None:
        return False, [f"no rule of {user} is about {', '.join(need.actions)} on {need} from {ip}", *others]
    name = next(name for name, table in rules.items() if decides in table.values())
    return decides.is_allowed, [f"{decides} ({name})", *others]


def _why_not(rule: policies.Rule, need: Need, ip: IP) -> str:
    if not rule.is_about(need):
        return "another resource"
    if not rule.has_action(need):
        return "other actions"
    return f"not from {ip}"


def of_files(home: Path, user: str, need: Need, ip: IP) -> tuple[bool, list[str]]:
    access = PlainAccess(home)
    access.load()
    if access.is_white(ip):
        return True, [f"{ip} is in globalWhiteRemoteAddresses"]
    account = access.accounts.get(user)
    if account is None:
        return False, [f"no file has an account with accessKey {user}"]
    if account.is_white(ip):
        return True, [f"{ip} is in the whiteRemoteAddress of {user}"]
    if account.is_admin:
        return True, [f"{user} is an admin, who may do everything"]
    why = account.refusal(need)
    where = "groupPerms" if need.kind is Kind.GROUP else "topicPerms"
    return why is None, [why or f"by {where} or the default of {user}"]
