"""`rockmq acl explain`: what a broker would decide, and why."""

import ipaddress
from pathlib import Path

import pytest

from rockmq.auth import policies
from rockmq.auth.needs import PUB as PUBLISH
from rockmq.auth.needs import SUB as SUBSCRIBE
from rockmq.auth.needs import group, topic
from rockmq.cli import acl_explain
from rockmq.client import Client, Key
from rockmq.client.admin import Rule
from rockmq.embedded import serve
from rockmq.protocol.bodies.access import AclInfo, Policy, PolicyEntry
from tests.unit.cli.conftest import Command

HERE = ipaddress.ip_address("10.0.0.1")
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"of-root"}',
}


def entry(resource: str, actions: str, decision: str = "Allow", *ips: str) -> PolicyEntry:
    return PolicyEntry(resource=resource, actions=actions.split(","), source_ips=list(ips), decision=decision)


def test_the_rule_that_decides_comes_first() -> None:
    own = [entry("Topic:ord*", "Pub"), entry("Topic:orders", "Sub"), entry("*", "All", "Deny"), entry("Group:g", "Sub")]
    listed = [
        Policy(policy_type="Custom", entries=own),
        Policy(policy_type="Default", entries=[entry("Topic:*", "Pub", "Allow", "10.1.0.0/16")]),
    ]
    rules = policies.parse(AclInfo(subject="User:bob", policies=listed))
    assert acl_explain.of_rules(rules, "bob", topic("orders", PUBLISH), HERE) == (
        True,
        [
            "Allow Pub on Topic:ord* (Custom)",
            "Allow Sub on Topic:orders (Custom): other actions",
            "Deny All on * (Custom): decides less",
            "Allow Sub on Group:g (Custom): another resource",
            "Allow Pub on Topic:* from 10.1.0.0/16 (Default): not from 10.0.0.1",
        ],
    )
    is_allowed, lines = acl_explain.of_rules(rules, "bob", group("h", SUBSCRIBE), HERE)
    assert (is_allowed, lines[0]) == (False, "Deny All on * (Custom)")
    assert acl_explain.of_rules({}, "bob", group("h", SUBSCRIBE), HERE) == (
        False,
        ["no rule of bob is about Sub on Group:h from 10.0.0.1"],
    )


async def test_a_broker_is_asked() -> None:
    async with serve(properties=SETTINGS) as server:
        root = Key("root", "of-root")
        async with Client(server.namesrv, auth=root) as mq:
            await mq.admin.access.create_user("bob", "of-bob", broker=server.broker)
            await mq.admin.access.create_user("eve", "of-eve", enabled=False, broker=server.broker)
            rules = [Rule("Topic:T", ("Pub",)), Rule("Topic:T*", ("Pub",), allowed=False, kind="Default")]
            await mq.admin.access.create_acl("User:bob", rules, broker=server.broker)

        async def explained(user: str, name: str) -> tuple[bool, str]:
            is_allowed, lines = await acl_explain.of_broker(server.broker, root, user, topic(name, PUBLISH), HERE)
            return is_allowed, lines[0]

        assert await explained("bob", "T") == (True, "Allow Pub on Topic:T (Custom)")
        assert await explained("bob", "TT") == (False, "Deny Pub on Topic:T* (Default)")
        assert await explained("bob", "U") == (False, "no rule of bob is about Pub on Topic:U from 10.0.0.1")
        assert await explained("eve", "T") == (False, "eve is disabled")
        assert await explained("root", "T") == (True, "root is a super user, who may do everything")
        assert await explained("nobody", "T") == (False, "there is no user nobody")


async def test_the_command(rockmq: Command, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(
        "globalWhiteRemoteAddresses: [10.9.*.*]\n"
        "accounts: [{accessKey: clerk-key, secretKey: 12345678, topicPerms: [T=PUB], whiteRemoteAddress: 10.8.0.1}]\n"
    )
    home = ("--home", str(tmp_path))
    ended = await rockmq("acl", "explain", "clerk-key", "Pub", "Topic:T", *home)
    assert (ended.code, ended.out) == (0, "allowed: by topicPerms or the default of clerk-key\n")
    ended = await rockmq("acl", "explain", "clerk-key", "sub", "Topic:T", *home)
    assert (ended.code, ended.out) == (1, "refused: No permission for topic:T\n")
    ended = await rockmq("acl", "explain", "clerk-key", "Sub", "Topic:%RETRY%g", *home)
    assert (ended.code, ended.out) == (1, "refused: No default permission for group:g\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("Write", "Topic:T"), "is no action"),
        (("Pub", "Queue:T"), "is no resource"),
        (("Pub", "Topic:T*"), "expected one action on one resource"),
        (("Pub", "Topic:T", "--ip", "x"), "is no IP address"),
        (("Pub", "Topic:T"), "expected --broker, or --home"),
    ],
)
def test_what_makes_no_sense_is_said(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    from typer.testing import CliRunner

    from rockmq.cli.main import app

    ended = CliRunner().invoke(app, ["acl", "explain", "bob", *arguments])
    assert ended.exit_code == 1
    assert words in ended.output


def test_from_where_an_account_needs_no_signature(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    account = "{accessKey: clerk-key, secretKey: 12345678, whiteRemoteAddress: 10.8.0.1}"
    text = f"globalWhiteRemoteAddresses: [10.9.*.*]\naccounts: [{account}]\n"
    (tmp_path / "conf" / "plain_acl.yml").write_text(text)

    def explained(user: str, ip: str) -> tuple[bool, list[str]]:
        return acl_explain.of_files(tmp_path, user, topic("T", PUBLISH), ipaddress.ip_address(ip))

    assert explained("clerk-key", "10.9.1.1") == (True, ["10.9.1.1 is in globalWhiteRemoteAddresses"])
    assert explained("clerk-key", "10.8.0.1") == (True, ["10.8.0.1 is in the whiteRemoteAddress of clerk-key"])
    assert explained("nobody-key", "10.8.0.1") == (False, ["no file has an account with accessKey nobody-key"])
    assert explained("clerk-key", "10.7.0.1") == (False, ["No default permission for topic:T"])
