"""Files of accounts, as Apache's broker reads them."""

import logging
from pathlib import Path

import pytest

from rockmq.auth.needs import PUB as PUBLISH
from rockmq.auth.needs import SUB as SUBSCRIBE
from rockmq.auth.needs import Kind, Need, group, topic
from rockmq.auth.plain import PlainAccess
from rockmq.base.errors import ConfigError

STOCK = """\
globalWhiteRemoteAddresses:
  - 10.10.103.*
  - 192.168.0.*

accounts:
  - accessKey: RocketMQ
    secretKey: 12345678
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - topicA=DENY
      - topicB=PUB|SUB
      - topicC = SUB
    groupPerms:
      # the group should convert to retry topic
      - groupA=DENY
      - groupB=PUB|SUB
      - groupC=SUB

  - accessKey: rocketmq2
    secretKey: 0123456e7
    whiteRemoteAddress: 192.168.1.*
    # if it is admin, it could access all resources
    admin: true
dataVersion:
- counter: 1
  timestamp: 1700000000000
"""


def access(tmp_path: Path, text: str, **more: str) -> PlainAccess:
    (tmp_path / "conf" / "acl").mkdir(parents=True, exist_ok=True)
    (tmp_path / "conf" / "plain_acl.yml").write_text(text)
    for name, each in more.items():
        (tmp_path / "conf" / "acl" / f"{name}.yml").write_text(each)
    found = PlainAccess(tmp_path)
    found.load()
    return found


def test_apaches_own_file(tmp_path: Path) -> None:
    found = access(tmp_path, STOCK)
    clerk, admin = found.accounts["RocketMQ"], found.accounts["rocketmq2"]
    assert (clerk.secret, admin.secret) == (b"12345678", b"0123456e7"), "as they are written, not as numbers"
    assert (clerk.is_admin, admin.is_admin) == (False, True)
    expected = [
        (topic("topicA", PUBLISH), "No permission for topic:topicA"),
        (topic("topicB", PUBLISH), None),
        (topic("topicB", SUBSCRIBE), None),
        (topic("topicC", SUBSCRIBE), None),
        (topic("topicC", PUBLISH), "No permission for topic:topicC"),
        (topic("topicD", SUBSCRIBE), "No default permission for topic:topicD"),
        (topic("%RETRY%groupD", SUBSCRIBE), None),
        (group("groupA", SUBSCRIBE), "No permission for group:groupA"),
        (group("groupC", SUBSCRIBE), None),
        (topic("RMQ_SYS_TRACE_TOPIC", PUBLISH), None),
        (topic("RMQ_SYS_TRACE_TOPIC", SUBSCRIBE), "No default permission for topic:RMQ_SYS_TRACE_TOPIC"),
    ]
    assert [(need, clerk.refusal(need)) for need, _ in expected] == expected
    cluster = Need(Kind.CLUSTER, "c", SUBSCRIBE)
    assert clerk.refusal(cluster) == "Need admin permission without a topic, but accessKey=RocketMQ is not"
    assert "12345678" not in repr(clerk)


def test_a_group_among_the_topics(tmp_path: Path) -> None:
    """Its retry topic is what Apache's broker has it under."""
    text = "accounts: [{accessKey: clerk-key, secretKey: 12345678, defaultGroupPerm: SUB, topicPerms: ['%RETRY%g=DENY']}]"
    assert access(tmp_path, text).accounts["clerk-key"].refusal(group("g", SUBSCRIBE)) == "No permission for group:g"


def test_an_access_key_is_the_first_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    account = "accounts: [{{accessKey: clerk-key, secretKey: {}}}]"
    found = access(
        tmp_path, account.format("of-the-main-file"), a=account.format("of-file-a"), b=account.format("of-file-b")
    )
    assert found.accounts["clerk-key"].secret == b"of-file-a"
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2


@pytest.mark.parametrize("text", ["", "accounts:\n", "accounts: []\nglobalWhiteRemoteAddresses: ~\n", "# nothing\n"])
def test_a_file_with_nothing_in_it_lets_nobody_in(tmp_path: Path, text: str) -> None:
    assert access(tmp_path, text).accounts == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accounts: {", "line "),
        ("account: []", "unknown field `account`"),
        ("accounts: yes", "a text stands where a list is expected"),
        ("- a", "Expected `object`"),
        ("accounts: [{accessKey: short, secretKey: 12345678}]", "accessKey=short: .* 7 characters or more"),
        ("accounts: [{accessKey: clerk-key, secretKey: 123456}]", "accessKey=clerk-key: .* 7 characters or more"),
        ("accounts: [{accessKey: clerk-key, secretKey: 12345678, topicPerms: [T]}]", "'T' is no permission"),
        ("accounts: [{accessKey: clerk-key, secretKey: 12345678, topicPerms: [T=SUB=X]}]", "is no permission"),
        ("accounts: [{accessKey: clerk-key, secretKey: 12345678, whiteRemoteAddress: 1.2}]", "no pattern of addresses"),
        ("globalWhiteRemoteAddresses: [x]", "no pattern of addresses"),
        ("a: &a [*a]", "plain_acl.yml can't be used"),
        ('accounts: [{accessKey: clerk-key, secretKey: "12345678\\UFFFFFFFF"}]', "plain_acl.yml can't be used"),
        ('accounts: [{accessKey: clerk-key, secretKey: "12345678\\U00110000"}]', "plain_acl.yml can't be used"),
        ('accounts: [{accessKey: clerk-key, secretKey: "12345678\\uD800"}]', "surrogates not allowed"),
        ('accounts: [{accessKey: "clerk-key\\uD800", secretKey: 12345678}]', "surrogates not allowed"),
        ("%YAML 1." + "9" * 4301 + "\n---\naccounts: []", "plain_acl.yml can't be used"),
    ],
)
def test_what_cant_be_read_is_said_without_secrets(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        access(tmp_path, text)
    assert "plain_acl.yml can't be used" in str(caught.value)
    assert "12345" not in str(caught.value)


def test_a_bad_change_is_said_once_and_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = access(tmp_path, STOCK)
    (tmp_path / "conf" / "plain_acl.yml").write_text("accounts: {")
    found.look()
    found.look()
    assert set(found.accounts) == {"RocketMQ", "rocketmq2"}
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    (tmp_path / "conf" / "plain_acl.yml").unlink()
    found.look()
    assert set(found.accounts) == {"RocketMQ", "rocketmq2"}, "a file that is missing for a moment locks nobody out"
    (tmp_path / "conf" / "plain_acl.yml").write_text("accounts: []")
    found.look()
    assert found.accounts == {}
