"""What operators write, damaged: configuration, accounts, users, certificates. It is taken, or a ConfigError says where."""

import ipaddress
from pathlib import Path

import pytest

from rockmq import _core
from rockmq.auth import needs, policies
from rockmq.auth.accounts import Accounts, Cipher
from rockmq.auth.plain import KEY_SIZE_MIN, PlainAccess
from rockmq.base.errors import ConfigError
from rockmq.config import properties, tls
from rockmq.config.broker import BrokerOptions
from rockmq.config.key import Role, dump, keys, load
from rockmq.config.namesrv import NamesrvOptions
from rockmq.protocol import json
from rockmq.protocol.bodies.access import AclInfo, Policy, PolicyEntry
from rockmq.remoting.tls import Certificates
from tests.support.damage import SLOW, damaged
from tests.unit.auth.test_plain import STOCK
from tests.unit.remoting.test_tls import Files, revoke

IP = ipaddress.ip_address("10.1.2.3")
EXAMPLES = (
    "true",
    "16",
    "/a/b",
    "~/a;$HOME/b",
    "04;16",
    "1s 5s 2h",
    '{"username":"root","password":"x","accessKey":"k","secretKey":"s"}',
    "10.0.0.1:9876",
    "1,2",
)


def test_configuration_files_are_read_or_refused() -> None:
    """Also one of whose keys a running broker changes some: the others stay."""

    def check(data: bytes) -> None:
        try:
            read = properties.read_bytes(data)
        except ConfigError:
            return
        assert properties.read(properties.write(read)) == read
        if len(data) % 8 == 0:  # some inputs will do for this
            changes = {"listenPort": "1", "c d": "\\ü\n"}
            assert properties.read(properties.rewritten(data, changes)) == read | changes

    damaged([b"a=b\n# c\nkey\\:x : v\\u0041\\\n  more\r\nlast", b"brokerName=a\nlistenPort = 10911\n"], check)


@pytest.mark.parametrize("role", [BrokerOptions, NamesrvOptions])
@pytest.mark.usefixtures("directory")
def test_keys_are_taken_or_refused(role: type[Role]) -> None:
    """Every key, with its default or an example damaged: what is taken is shown as it is taken again, and what follows from
    it is known from the start."""
    declared = list(keys(role).values())
    defaults = dump(load(role, {}))

    def check(data: bytes) -> None:
        each, text = declared[int.from_bytes(data[:2]) % len(declared)], data[2:].decode("latin-1")
        try:
            options = load(role, {each.wire: text})
        except ConfigError as error:
            assert str(error)
            return
        section = getattr(options, each.section)
        for name, member in vars(type(section)).items():
            if isinstance(member, property):
                getattr(section, name)
        shown = {wire: told for wire, told in dump(options).items() if not keys(role)[wire].secret}
        again = dump(load(role, shown))
        assert {wire: again[wire] for wire in shown} == shown

    valid = [
        number.to_bytes(2) + text.encode()
        for number, each in enumerate(declared)
        for text in (defaults.get(each.wire, ""), EXAMPLES[number % len(EXAMPLES)])
    ]
    damaged(valid, check, tests=2, is_slow=True)


def test_a_file_of_tls_is_taken_or_refused(directory: Path) -> None:
    path = directory / "tls.properties"
    given = tls.Tls(config_file=str(path))

    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            found = tls.effective(given)
        except ConfigError as error:
            assert str(error).startswith(f"{path}: ")
            return
        assert (found.mode, found.enable, found.config_file) == (given.mode, given.enable, given.config_file)

    valid = [
        b"tls.test.mode.enable=false\ntls.server.certPath=/a/cert.pem\ntls.server.keyPath=$HOME/key.pem\n",
        b"tls.server.need.client.auth=require\ntls.server.authClient=true\n",
    ]
    damaged(valid, check, is_slow=True)


def test_accounts_in_files_are_read_or_refused(directory: Path) -> None:
    """Whatever a file has become, nobody in it has a short key or secret, and what they may do can be told."""
    path = directory / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    asked = [needs.topic("topicB", needs.PUB), needs.group("groupA", needs.SUB)]

    def check(data: bytes) -> None:
        path.write_bytes(data)
        access = PlainAccess(directory)
        try:
            access.load()
        except ConfigError as error:
            assert str(error).startswith(f"{path} can't be used: ")
            return
        access.is_white(IP)
        for name, account in access.accounts.items():
            assert min(len(name.encode()), len(account.secret)) >= KEY_SIZE_MIN
            account.is_white(IP)
            for need in asked:
                refusal = account.refusal(need)
                assert refusal is None or refusal.encode()

    short = b'accounts:\n- {accessKey: "R\\u006fcketMQ", secretKey: &s "12345678", topicPerms: [T=PUB|SUB]}\n'
    damaged([STOCK.encode(), short, short + b"- {accessKey: another-key, secretKey: *s, admin: true}\n"], check, tests=SLOW)


def test_users_are_read_or_refused(directory: Path) -> None:
    """A secret is the one that was encrypted, or none; rules are told as they were read."""
    path, key = directory / "users.json", directory / "secret.key"
    sealed = Cipher(key).encrypt("a secret")
    rules = [PolicyEntry(resource="Topic:a*", actions=["Pub", "Sub"], source_ips=["10.0.0.0/8"], decision="Allow")]
    rules.append(PolicyEntry(resource="Cluster:*", actions=["Get"], decision="Deny"))
    acl = AclInfo(subject="User:alice", policies=[Policy(policy_type="Custom", entries=rules)])
    users = {name: {"secret": sealed, "userType": kind, "userStatus": "enable"} for name, kind in (("alice", "Normal"),)}
    whole = json.encode({"users": users, "acls": {"User:alice": acl}})
    secret_key = key.read_bytes()

    def check(data: bytes) -> None:
        is_key = len(data) < 2 * len(secret_key)
        path.write_bytes(whole if is_key else data)
        key.write_bytes(data if is_key else secret_key)
        accounts = Accounts(directory)
        try:
            accounts.load()
        except ConfigError as error:
            assert str(error).startswith((f"{path}", f"{key}"))
            return
        assert all(user.secret == "a secret" for user in accounts.users.values())
        assert not any(user.is_super for user in accounts.users.values())
        for name, found in accounts.rules.items():
            assert policies.parse(policies.body(name, found)) == found

    damaged([whole, whole, secret_key], check, is_slow=True)


@pytest.mark.parametrize("damages", ["certificate", "key", "trust", "revoked"])
def test_certificates_are_read_or_refused(directory: Path, damages: str) -> None:
    files = Files(directory)
    revoke(files)
    keys = files.keys(mutual=True) | {"tls.server.crlPath": str(files.revoked)}
    options = load(BrokerOptions, keys).tls
    path: Path = getattr(files, damages)

    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            made = Certificates(options).load()
        except ConfigError as error:
            assert str(path) in str(error)
            return
        assert isinstance(made, _core.Tls)

    damaged([path.read_bytes()], check, tests=4 * SLOW)
