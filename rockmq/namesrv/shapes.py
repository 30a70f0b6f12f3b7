"""How routes look on the wire: standard JSON, or exactly what Apache wrote before it (protocol spec, 3.2).

Apache's name server before 4.9.4 wrote broker ids as bare numbers, `"brokerAddrs":{0:"h:1"}`, which no standard parser
reads. Clients from 4.9.4 on, and those that say `acceptStandardJsonOnly`, get quoted keys and ASCII only; others get the
old shape. Both are compact: Go's client cuts the text by hand (spec, pitfall 1). Members are in alphabetical order because
the bodies declare them so.
"""

import msgspec
from msgspec import Raw

from rockmq.protocol import json
from rockmq.protocol.bodies.route import BrokerMemberGroupBody, ClusterInfo, TopicRouteData

VERSION_4_9_4 = 401


def reads_standard(version: int, accepts: bool | None = None) -> bool:
    return version >= VERSION_4_9_4 or accepts is True


def route(data: TopicRouteData, *, standard: bool) -> bytes:
    if standard:
        return _ascii(data)
    members = msgspec.structs.asdict(data) | {"broker_datas": [_bare(broker) for broker in data.broker_datas]}
    return json.encode(_members(data, members))


def cluster_info(data: ClusterInfo, *, standard: bool) -> bytes:
    if standard:
        return _ascii(data)
    table = {name: _bare(broker) for name, broker in data.broker_addr_table.items()}
    return json.encode({"brokerAddrTable": table, "clusterAddrTable": data.cluster_addr_table})


def member_group(data: BrokerMemberGroupBody, *, standard: bool) -> bytes:
    if standard:
        return _ascii(data)
    return json.encode({"brokerMemberGroup": _bare(data.broker_member_group)})


def _ascii(data: object) -> bytes:
    text = json.encode(data)
    return text if text.isascii() else json.encode_sorted(data)


def _bare(data: msgspec.Struct) -> dict[str, object]:
    """The members of something with `broker_addrs`, whose keys lose their quotes."""
    members = msgspec.structs.asdict(data)
    addresses = b",".join(key.encode() + b":" + json.encode(found) for key, found in members["broker_addrs"].items())
    return _members(data, members | {"broker_addrs": Raw(b"{" + addresses + b"}")})


def _members(data: msgspec.Struct, values: dict[str, object]) -> dict[str, object]:
    """Values by wire name; what is unset or null is left out, as by fastjson."""
    named = ((field.encode_name, values[field.name]) for field in msgspec.structs.fields(data))
    return {name: value for name, value in named if value is not msgspec.UNSET and value is not None}
