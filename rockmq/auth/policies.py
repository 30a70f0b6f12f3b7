"""Rules of what a user may do, and which of them decides (AclAuthorizationHandler.java, PolicyEntry.java, Resource.java).

Of the rules whose resource, action and address fit a need, the most particular one decides: a rule for the very name before
one for a prefix (`Topic:ord*`), the longer prefix before the shorter, then one for all of a kind (`Topic:*`), then one for
everything (`*`). The user's own rules are looked at first; default rules only where none of those fits. Where none fits at
all it is refused. Of two that are equally particular the one that denies decides; in Apache's broker the other one does.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rockmq.auth.addresses import IP
from rockmq.auth.needs import Action, Kind, Need
from rockmq.base.errors import ConfigError
from rockmq.protocol.bodies.access import AclInfo, Policy, PolicyEntry

CUSTOM, DEFAULT = "Custom", "Default"
SUPER = "Super"
RULES_MAX = 1000
"""For one user."""
TEXT_SIZE_MAX = 1000
"""Characters of a resource or an address."""
NETWORKS_MAX = 100
"""Of one rule."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_ACTIONS = {each.lower(): each for each in Action}
_KINDS = {each.lower(): each for each in Kind}


@dataclass(frozen=True)
class Rule:
    """`kind` is None for everything; `name` is None for all of a kind; an empty `networks` is everywhere."""

    kind: Kind | None
    name: str | None
    is_prefix: bool
    actions: frozenset[Action]
    networks: tuple[Network, ...]
    is_allowed: bool

    @property
    def resource(self) -> str:
        return _text(self.kind, self.name, self.is_prefix)

    def fits(self, need: Need, ip: IP) -> bool:
        if not (self.is_about(need) and self.has_action(need)):
            return False
        return not self.networks or any(ip.version == each.version and ip in each for each in self.networks)

    def is_about(self, need: Need) -> bool:
        if self.kind is None:
            return True
        if self.kind is not need.kind:
            return False
        if self.name is None:
            return True
        return need.name.startswith(self.name) if self.is_prefix else need.name == self.name

    def has_action(self, need: Need) -> bool:
        return Action.ALL in self.actions or not self.actions.isdisjoint(need.actions)

    @property
    def rank(self) -> tuple[int, int, bool]:
        """The lowest decides."""
        if self.kind is None:
            return 3, 0, self.is_allowed
        if self.name is None:
            return 2, 0, self.is_allowed
        return int(self.is_prefix), -len(self.name) if self.is_prefix else 0, self.is_allowed

    def __str__(self) -> str:
        decision = "Allow" if self.is_allowed else "Deny"
        where = f" from {', '.join(map(str, self.networks))}" if self.networks else ""
        return f"{decision} {', '.join(sorted(self.actions))} on {self.resource}{where}"


Rules = dict[str, dict[str, Rule]]
"""By resource, of each kind of policy: Custom, Default."""


def deciding(rules: Rules, need: Need, ip: IP) -> Rule | None:
    """The rule that decides over a need, None when no rule is about it."""
    for policy in (CUSTOM, DEFAULT):
        fitting = [rule for rule in rules.get(policy, {}).values() if rule.fits(need, ip)]
        if fitting:
            return min(fitting, key=lambda rule: rule.rank)
    return None


def parse(info: AclInfo) -> Rules:
    """The rules in a body, checked (AuthorizationMetadataManagerImpl.validate). Raises ConfigError, where Apache has
    words for it in these."""
    if not info.policies:
        raise ConfigError("The policies is empty.")
    found: Rules = {}
    for policy in info.policies:
        name = {"custom": CUSTOM, "default": DEFAULT}.get((policy.policy_type or CUSTOM).lower())
        if name is None:
            raise ConfigError(f"The policy type {policy.policy_type!r} is neither Custom nor Default.")
        if not policy.entries:
            raise ConfigError("The policy entries is empty.")
        rules = found.setdefault(name, {})
        for entry in policy.entries:
            rule = _rule(entry)
            if rule.resource in rules:
                raise ConfigError(f"Two entries are for {rule.resource}: expected one, with all its actions.")
            rules[rule.resource] = rule
    return found


def merged(old: Rules, changes: Rules) -> Rules:
    """Rules with some exchanged or added. Raises ConfigError when they are too many."""
    result = {name: old.get(name, {}) | changes.get(name, {}) for name in (CUSTOM, DEFAULT)}
    if (count := sum(map(len, result.values()))) > RULES_MAX:
        raise ConfigError(f"The user would have {count} rules, the bound is {RULES_MAX}.")
    return {name: rules for name, rules in result.items() if rules}


def body(subject: str, rules: Rules, resource: str | None = None) -> AclInfo:
    """The rules as they are told, those alone in whose resource a text is."""
    policies = []
    for name, table in rules.items():
        entries = [
            PolicyEntry(
                resource=rule.resource,
                actions=sorted(rule.actions),
                source_ips=[_address(each) for each in rule.networks] or None,
                decision="Allow" if rule.is_allowed else "Deny",
            )
            for rule in table.values()
            if not resource or resource in rule.resource
        ]
        if entries:
            policies.append(Policy(policy_type=name, entries=entries))
    return AclInfo(subject=subject, policies=policies or None)


def resource_of(text: str) -> tuple[Kind | None, str | None, bool]:
    """Kind, name and whether that is a prefix, of a resource's text. Raises ConfigError."""
    if text == "*":
        return None, None, False
    kind, _, name = text.partition(":")
    found = _KINDS.get(kind.lower())
    if found is None or not name or len(name) > TEXT_SIZE_MAX:
        what = f"{text[:100]!r} is no resource: expected Topic:name, Group:name, Cluster:name or *"
        raise ConfigError(what if text else "The resource is null.")
    if name == "*":
        return found, None, False
    if "*" in name[:-1]:
        raise ConfigError(f"{text[:100]!r} is no resource: `*` may only be its last character")
    return found, name.removesuffix("*"), name.endswith("*")


def spelled(text: str) -> str:
    """A resource's text as that of its rule is. Raises ConfigError."""
    return _text(*resource_of(text))


def _text(kind: Kind | None, name: str | None, is_prefix: bool) -> str:
    if kind is None:
        return "*"
    return f"{kind}:{name or ''}{'*' if is_prefix or name is None else ''}"


def _rule(entry: PolicyEntry) -> Rule:
    kind, name, is_prefix = resource_of(entry.resource)
    return Rule(kind, name, is_prefix, actions_of(entry.actions), _networks(entry.source_ips or ()), _allows(entry.decision))


def actions_of(names: Iterable[str]) -> frozenset[Action]:
    """Raises ConfigError for what is no action."""
    found = set()
    for name in names:
        if name.lower() == "any":
            raise ConfigError("The actions can not be Any.")
        action = _ACTIONS.get(name.lower())
        if action is None:
            raise ConfigError(f"{name[:100]!r} is no action: expected one of {', '.join(Action)}")
        found.add(action)
    if not found:
        raise ConfigError("The actions is empty.")
    return frozenset(found)


def _networks(texts: Sequence[str]) -> tuple[Network, ...]:
    if len(texts) > NETWORKS_MAX:
        raise ConfigError(f"A rule has {len(texts)} source ips, the bound is {NETWORKS_MAX}.")
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text[:TEXT_SIZE_MAX].strip(), strict=False))
        except ValueError:
            raise ConfigError("The source ip is empty." if not text.strip() else "The source ip is invalid.") from None
    return tuple(found)


def _address(network: Network) -> str:
    """An address without the length of its prefix where it is a single one, as it was given."""
    return str(network.network_address) if network.prefixlen == network.max_prefixlen else str(network)


def _allows(decision: str) -> bool:
    found = {"allow": True, "deny": False}.get(decision.lower())
    if found is None:
        raise ConfigError("The decision is null or illegal.")
    return found
