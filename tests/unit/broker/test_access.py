"""A broker that asks who somebody is: every request without, with wrong, with too small credentials; and its accounts."""

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from rockmq.auth.accounts import Accounts, Cipher
from rockmq.auth.signature import signature
from rockmq.base import files
from rockmq.base.errors import ConfigError, ResponseError
from rockmq.broker.server import Broker
from rockmq.config.key import MASK
from rockmq.protocol import codec, json
from rockmq.protocol.bodies.access import AclInfo, Policy, PolicyEntry, UserInfo
from rockmq.protocol.bodies.client import ConsumerData, HeartbeatData, ProducerData
from rockmq.protocol.codec import Command
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.header import Header, decode
from rockmq.protocol.headers.access import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    UpdateUser,
)
from rockmq.protocol.headers.admin import ConsumeDirectly, GetConsumerRunningInfo
from rockmq.protocol.headers.client import HeartBeat, SendMessageBack
from rockmq.protocol.headers.query import ViewMessage
from rockmq.protocol.headers.send import SendResponse
from rockmq.remoting.client import RemotingClient
from rockmq.remoting.connection import Connection
from tests.support.clock import FakeClock
from tests.unit.broker.conftest import running
from tests.unit.broker.test_every_request import BODIES, CASES, GOOD, base, cases
from tests.unit.broker.test_messages import create_request, pull_request, send_request
from tests.unit.broker.transaction_bench import COMMIT, GROUP, ROLLBACK, SMALL, end_header, eventually, half_request

ROOT, SECRET = "root", "the super user's secret"
SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": f'{{"username":"{ROOT}","password":"{SECRET}"}}',
}
ANYBODY = {RequestCode.CHECK_CLIENT_CONFIG}
"""What whoever is known may send, whatever it says."""
SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


class Caller:
    """Asks a broker as somebody."""

    def __init__(self, remote: RemotingClient, broker: Broker) -> None:
        self._remote, self._broker = remote, broker

    async def __call__(self, request: Command, user: str | None = ROOT, secret: str = SECRET) -> Command:
        if user is not None:
            request.fields["AccessKey"] = user
            request.fields["Signature"] = signature(request.fields, request.body, secret.encode())
        return await self._remote.invoke(self._broker.address, request, 10)

    async def done(self, code: int, header: Header, body: object = None, *, user: str = ROOT, secret: str = SECRET) -> bytes:
        """The body of an answer. Raises ResponseError."""
        request = codec.request(code, header, b"" if body is None else json.encode(body))
        answer = await self(request, user, secret)
        if answer.code:
            raise ResponseError(answer.code, answer.remark)
        return answer.body

    async def new_user(self, name: str, **more: str) -> None:
        body = UserInfo(password=f"secret of {name}", **more)
        await self.done(RequestCode.AUTH_CREATE_USER, CreateUser(username=name), body)

    async def allow(self, name: str, *entries: tuple[str, str]) -> None:
        listed = [PolicyEntry(resource=each, actions=actions.split(","), decision="Allow") for each, actions in entries]
        body = AclInfo(subject=f"User:{name}", policies=[Policy(policy_type="Custom", entries=listed)])
        await self.done(RequestCode.AUTH_CREATE_ACL, CreateAcl(subject=f"User:{name}"), body)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running(tmp_path, **SETTINGS) as started:
        yield started


@pytest.fixture
def ask(remote: RemotingClient, broker: Broker) -> Caller:
    return Caller(remote, broker)


def request(code: int) -> Command:
    return Command(code, 0, fields=base(code), body=json.encode(BODIES[code]) if code in BODIES else b"{}")


async def test_every_request_without_and_with_wrong_and_with_too_small_credentials(broker: Broker, ask: Caller) -> None:
    await ask.new_user("clerk")
    await ask(create_request(GOOD["topic"]))
    for code in SENDS:  # from then on the core takes these
        await ask(request(code))
    for code in sorted(broker.request_codes):
        for user, secret, words in (
            (None, "", "username cannot be null."),
            ("nobody", SECRET, "User:nobody is not found."),
            (ROOT, "guessed", "check signature failed."),
            ("clerk", SECRET, "check signature failed."),
        ):
            answer = await ask(request(code), user, secret)
            assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, words), RequestCode(code).name
        answer = await ask(request(code), "clerk", "secret of clerk")
        remark = answer.remark or ""
        refused = answer.code == ResponseCode.NO_PERMISSION and remark.endswith("no matched policies.")
        assert refused == (code not in ANYBODY), f"{RequestCode(code).name}: {answer.code} {remark}"


async def test_what_is_signed_and_carried_out_is_the_same(ask: Caller) -> None:
    await ask(create_request())
    assert (await ask(send_request(b"x"))).code == ResponseCode.SUCCESS  # from then on the core takes these
    for change in ({"b": "Other"}, {"more": "x"}, {"AccessKey": "clerk"}):
        sending = send_request(b"x")
        sending.fields["AccessKey"] = ROOT
        sending.fields["Signature"] = signature(sending.fields, sending.body, SECRET.encode())
        sending.fields |= change
        assert (await ask(sending, None)).code == ResponseCode.NO_PERMISSION
    stored = await ask(send_request(b"x"))
    assert stored.code == ResponseCode.SUCCESS
    pulled = await ask(pull_request())
    assert b"x" in pulled.body


async def test_users(broker: Broker, ask: Caller) -> None:
    await ask.new_user("clerk")
    with pytest.raises(ResponseError, match="code 16: The user is existed"):
        await ask.new_user("clerk")
    for code in (RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER):
        with pytest.raises(ResponseError, match=f"code {ResponseCode.INVALID_PARAMETER}: The username is blank"):
            await ask.done(code, CreateUser(username=" "), UserInfo(password="x"))
    with pytest.raises(ResponseError, match="password can not be blank"):
        await ask.done(RequestCode.AUTH_CREATE_USER, CreateUser(username="u"), UserInfo(password=" "))
    with pytest.raises(ResponseError, match="'King' is no user type: expected Super or Normal"):
        await ask.new_user("u", user_type="King")
    told = json.decode(await ask.done(RequestCode.AUTH_GET_USER, GetUser(username="clerk")), UserInfo, "")
    assert told == UserInfo(username="clerk", password="secret of clerk", user_type="Normal", user_status="enable")
    assert await ask.done(RequestCode.AUTH_GET_USER, GetUser(username="nobody")) == b""
    listed = json.decode(await ask.done(RequestCode.AUTH_LIST_USER, ListUsers(filter="ler")), list[UserInfo], "")
    assert [each.username for each in listed] == ["clerk"]

    async def update(name: str, **changes: str) -> None:
        await ask.done(RequestCode.AUTH_UPDATE_USER, UpdateUser(username=name), UserInfo(**changes))

    await update("clerk", password="another")
    assert (await ask(request(RequestCode.CHECK_CLIENT_CONFIG), "clerk", "secret of clerk")).code == 16
    assert (await ask(request(RequestCode.CHECK_CLIENT_CONFIG), "clerk", "another")).code == 0
    await update("clerk", user_status="disable")
    answer = await ask(request(RequestCode.CHECK_CLIENT_CONFIG), "clerk", "another")
    assert answer.remark == "User:clerk is disabled."
    with pytest.raises(ResponseError, match="The user is not exist"):
        await update("nobody", password="x")
    await ask.done(RequestCode.AUTH_DELETE_USER, DeleteUser(username="clerk"))
    await ask.done(RequestCode.AUTH_DELETE_USER, DeleteUser(username="clerk"))
    answer = await ask(request(RequestCode.CHECK_CLIENT_CONFIG), "clerk", "another")
    assert answer.remark == "User:clerk is not found."


async def test_who_may_make_users_may_not_become_a_super_user(ask: Caller) -> None:
    await ask.new_user("office")
    await ask.allow("office", ("Cluster:*", "All"))

    async def by_office(code: int, header: Header, body: object = None) -> bytes:
        return await ask.done(code, header, body, user="office", secret="secret of office")

    await by_office(RequestCode.AUTH_CREATE_USER, CreateUser(username="new"), UserInfo(password="x"))
    for code, header, body in (
        (RequestCode.AUTH_CREATE_USER, CreateUser(username="boss"), UserInfo(password="x", user_type="Super")),
        (RequestCode.AUTH_UPDATE_USER, UpdateUser(username="office"), UserInfo(user_type="super")),
        (RequestCode.AUTH_UPDATE_USER, UpdateUser(username=ROOT), UserInfo(password="mine")),
        (RequestCode.AUTH_DELETE_USER, DeleteUser(username=ROOT), None),
    ):
        with pytest.raises(ResponseError, match="The super user can only be"):
            await by_office(code, header, body)
    told = json.decode(await by_office(RequestCode.AUTH_GET_USER, GetUser(username=ROOT)), UserInfo, "")
    assert (told.user_type, told.password) == ("Super", None)
    assert b"secret" not in await by_office(RequestCode.AUTH_LIST_USER, ListUsers())


async def test_a_super_user_is_not_taken_over_while_it_is_made(ask: Caller) -> None:
    await ask.new_user("office")
    await ask.allow("office", ("Cluster:*", "All"))
    for code, header, body in (
        (RequestCode.AUTH_UPDATE_USER, UpdateUser(username="boss"), UserInfo(password="mine")),
        (RequestCode.AUTH_DELETE_USER, DeleteUser(username="boss"), None),
    ):
        change = ask.done(code, header, body, user="office", secret="secret of office")
        _, refused = await asyncio.gather(ask.new_user("boss", user_type="Super"), change, return_exceptions=True)
        assert "The super user can only be" in str(refused)
        await ask.done(RequestCode.AUTH_DELETE_USER, DeleteUser(username="boss"))


async def test_the_last_super_user_stays(ask: Caller) -> None:
    async def change(code: int, header: Header, body: object = None) -> None:
        await ask.done(code, header, body)

    update, delete = RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_DELETE_USER
    await ask.new_user("off", user_type="Super", user_status="disable")
    for code, header, body in (
        (update, UpdateUser(username=ROOT), UserInfo(user_type="Normal")),
        (update, UpdateUser(username=ROOT), UserInfo(user_status="disable")),
        (delete, DeleteUser(username=ROOT), None),
    ):
        with pytest.raises(ResponseError, match="the only super user"):
            await change(code, header, body)
    await change(update, UpdateUser(username="off"), UserInfo(user_status="enable"))
    await change(delete, DeleteUser(username=ROOT))


async def test_rules(ask: Caller) -> None:
    await ask.new_user("clerk")
    get = RequestCode.AUTH_GET_ACL, GetAcl(subject="User:clerk")
    assert await ask.done(*get) == b""
    await ask.allow("clerk", ("Topic:T", "Pub,Sub"), ("Group:*", "sub"))
    await ask.allow("clerk", ("Topic:U*", "All"), ("Topic:T", "Pub"))
    (policy,) = json.decode(await ask.done(*get), AclInfo, "").policies or []
    assert policy.policy_type == "Custom"
    assert [(each.resource, each.actions) for each in policy.entries or ()] == [
        ("Topic:T", ["Pub"]),
        ("Group:*", ["Sub"]),
        ("Topic:U*", ["All"]),
    ]
    found = await ask.done(RequestCode.AUTH_LIST_ACL, ListAcls(subject_filter="cle", resource_filter="Group"))
    assert json.encode(AclInfo(subject="User:clerk", policies=[Policy(policy_type="Custom", entries=[
        PolicyEntry(resource="Group:*", actions=["Sub"], decision="Allow")])])) in found  # fmt: skip
    assert await ask.done(RequestCode.AUTH_LIST_ACL, ListAcls(subject_filter="nobody")) == b""

    delete = RequestCode.AUTH_DELETE_ACL
    await ask.done(delete, DeleteAcl(subject="User:clerk", resource="topic:T"))
    with pytest.raises(ResponseError, match="'Queue:T' is no resource"):
        await ask.done(delete, DeleteAcl(subject="User:clerk", resource="Queue:T"))
    await ask.done(delete, DeleteAcl(subject="User:clerk", policy_type="Default", resource="Group:*"))
    (policy,) = json.decode(await ask.done(*get), AclInfo, "").policies or []
    assert [each.resource for each in policy.entries or ()] == ["Group:*", "Topic:U*"]
    await ask.done(delete, DeleteAcl(subject="User:clerk"))
    assert await ask.done(*get) == b""
    for subject, words in (("User:clerk", "The acl is not exist"), ("User:x", "not exist"), ("clerk", "is no subject")):
        with pytest.raises(ResponseError, match=words):
            await ask.done(delete, DeleteAcl(subject=subject))
    with pytest.raises(ResponseError, match=r"The subject of User:x is not exist\."):
        await ask.allow("x", ("Topic:T", "Pub"))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"resource": "Queue:T"}, "is no resource"),
        ({"resource": ""}, "The resource is null"),
        ({"resource": "Topic:"}, "is no resource"),
        ({"resource": "Topic:a*b"}, "last character"),
        ({"actions": []}, "The actions is empty"),
        ({"actions": ["Any"]}, "can not be Any"),
        ({"actions": ["Write"]}, "'Write' is no action"),
        ({"source_ips": ["x"]}, "The source ip is invalid"),
        ({"source_ips": [" "]}, "The source ip is empty"),
        ({"source_ips": ["1.1.1.1"] * 101}, "the bound is 100"),
        ({"decision": "Maybe"}, "The decision is null or illegal"),
    ],
)
async def test_rules_that_make_no_sense(ask: Caller, entry: dict[str, object], words: str) -> None:
    given = {"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow"} | entry
    body = AclInfo(subject=f"User:{ROOT}", policies=[Policy(policy_type="Custom", entries=[PolicyEntry(**given)])])  # type: ignore[arg-type]
    with pytest.raises(ResponseError, match=words):
        await ask.done(RequestCode.AUTH_CREATE_ACL, CreateAcl(subject=f"User:{ROOT}"), body)


async def test_a_message_is_read_by_the_topic_it_is_of(ask: Caller) -> None:
    """By id, by key and by giving it back: who may read one topic may not read another by saying that it is the one."""
    await ask(create_request("T"))
    await ask(create_request("Secret"))
    stored = await ask(send_request(b"secret", topic="Secret"))
    position = int(stored.fields["msgId"][-16:], 16)
    await ask.new_user("clerk")
    await ask.allow("clerk", ("Topic:T", "All"), ("Group:g", "All"))

    async def asked(code: int, header: Header) -> Command:
        return await ask(codec.request(code, header), "clerk", "secret of clerk")

    view = RequestCode.VIEW_MESSAGE_BY_ID
    assert (await asked(view, ViewMessage(offset=position))).code == ResponseCode.NO_PERMISSION
    lie = await asked(view, ViewMessage(offset=position, topic="T"))
    assert (lie.code, lie.body) == (ResponseCode.NO_PERMISSION, b"")
    for topic in (None, "T", "Secret"):
        back = SendMessageBack(offset=position, group="g", delay_level=0, origin_topic=topic)
        assert (await asked(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == ResponseCode.NO_PERMISSION
    assert (await ask(codec.request(view, ViewMessage(offset=position, topic="Secret")))).code == 0


async def test_a_reply_is_no_way_into_other_topics(ask: Caller) -> None:
    await ask(create_request("Secret"))
    await ask.new_user("clerk")
    for code, name in ((RequestCode.SEND_REPLY_MESSAGE, "topic"), (RequestCode.SEND_REPLY_MESSAGE_V2, "b")):
        for topic, words in (("Secret", "access Topic:Secret from"), ("DefaultCluster_REPLY_TOPIC", "REPLY_TO_CLIENT")):
            fields = base(code) | {name: topic}
            answer = await ask(Command(code, 0, fields=fields, body=b"x"), "clerk", "secret of clerk")
            assert words in (answer.remark or ""), answer
        revive = Command(code, 0, fields=base(code) | {name: "rmq_sys_REVIVE_LOG_DefaultCluster"}, body=b"x")
        assert (await ask(revive)).code == ResponseCode.NO_PERMISSION


async def test_a_consumer_is_handed_neither_other_messages_nor_credentials(broker: Broker, ask: Caller) -> None:
    """What others ask of it the broker passes on, and what it asks of itself is for messages that it may read."""
    await ask(create_request("T"))
    await ask(create_request("Secret"))
    ids = {name: (await ask(send_request(b"x", topic=name))).fields["msgId"] for name in ("T", "Secret")}
    await ask.new_user("clerk")
    await ask.allow("clerk", ("Topic:T", "Sub"), ("Group:g", "Sub"))
    handed: list[Command] = []

    def told(_header: Header, request: Command, _connection: Connection) -> Command:
        handed.append(request)
        return codec.reply(request, body=b"{}")

    consumer = RemotingClient({RequestCode.CONSUME_MESSAGE_DIRECTLY: told, RequestCode.GET_CONSUMER_RUNNING_INFO: told})
    beat = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name="g")])
    beating = codec.request(RequestCode.HEART_BEAT, HeartBeat(), json.encode(beat))
    assert (await Caller(consumer, broker)(beating, "clerk", "secret of clerk")).code == 0
    for topic, message, code in (
        ("T", "T", 0),
        ("T", "Secret", ResponseCode.NO_PERMISSION),
        ("Secret", "Secret", ResponseCode.NO_PERMISSION),
        (None, "Secret", ResponseCode.NO_PERMISSION),
    ):
        header = ConsumeDirectly(consumer_group="g", client_id="c", msg_id=ids[message], topic=topic)
        asked = codec.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        assert (await ask(asked, "clerk", "secret of clerk")).code == code, (topic, message)
    running_info = GetConsumerRunningInfo(consumer_group="g", client_id="c")
    await ask.done(RequestCode.GET_CONSUMER_RUNNING_INFO, running_info)
    assert len(handed) == 2
    assert not {"AccessKey", "Signature"} & {name for each in handed for name in each.fields}
    await consumer.close()


async def test_a_transaction_is_theirs_who_may_send_to_its_topic(tmp_path: Path, clock: FakeClock) -> None:
    """Who may not neither ends it nor is asked about it, which would show them the message, whatever they say they are."""
    asked: list[str] = []

    def remote_of(name: str) -> RemotingClient:
        return RemotingClient({RequestCode.CHECK_TRANSACTION_STATE: lambda *_: asked.append(name)})

    async with running(tmp_path, clock, **SETTINGS, **SMALL) as broker:
        shop, thief = remote_of("shop"), remote_of("thief")
        for name, remote, topic in (("shop", shop, "T"), ("thief", thief, "Mine")):
            ask = Caller(remote, broker)
            await ask(create_request(topic))
            await ask.new_user(name)
            await ask.allow(name, (f"Topic:{topic}", "Pub"))
        sending = half_request(b"x")
        sending.fields["g"] = str(clock.now_ms())
        half = decode(SendResponse, (await Caller(shop, broker)(sending, "shop", "secret of shop")).fields)
        header = end_header(half, ROLLBACK, group="wrong")
        for named in ({}, {"topic": "Mine"}, {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}):
            end = codec.request(RequestCode.END_TRANSACTION, header)
            end.fields |= named
            answer = await Caller(thief, broker)(end, "thief", "secret of thief")
            assert (answer.code, GROUP in (answer.remark or "")) == (ResponseCode.NO_PERMISSION, False), answer
        for name, remote in (("thief", thief), ("shop", shop)):
            data = HeartbeatData(client_id=name, producer_data_set=[ProducerData(group_name=GROUP)])
            beat = codec.request(RequestCode.HEART_BEAT, HeartBeat(), json.encode(data))
            assert (await Caller(remote, broker)(beat, name, f"secret of {name}")).code == 0
        for count in (1, 2, 3):
            clock.seconds += 7
            await eventually(lambda count=count: len(asked) >= count)
        assert set(asked) == {"shop"}
        end = codec.request(RequestCode.END_TRANSACTION, end_header(half, COMMIT))
        end.fields["topic"] = "RMQ_SYS_TRANS_HALF_TOPIC"  # as Java's clients that were asked
        assert (await Caller(shop, broker)(end, "shop", "secret of shop")).code == 0
        await shop.close()
        await thief.close()


async def test_users_and_rules_outlive_a_restart_and_tell_no_secret(
    tmp_path: Path, remote: RemotingClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running(tmp_path, **SETTINGS) as broker:
        ask = Caller(remote, broker)
        await ask.new_user("clerk")
        await ask.allow("clerk", ("Topic:T", "Pub"))
        shown = (await ask(codec.request(RequestCode.GET_BROKER_CONFIG))).body.decode()
        assert f"initAuthenticationUser={MASK}" in shown
        assert SECRET not in shown
    directory = tmp_path / "config" / "auth"
    texts = "".join(path.read_text() for path in directory.iterdir())
    assert SECRET not in texts
    assert "secret of clerk" not in texts
    assert "secret" not in repr(Accounts(directory)) + caplog.text
    assert (directory / "secret.key").stat().st_mode & 0o777 == 0o600
    # The first super user is there; what the configuration says now is no matter.
    later = SETTINGS | {"initAuthenticationUser": f'{{"username":"{ROOT}","password":"forgotten"}}'}
    async with running(tmp_path, **later) as broker:
        ask = Caller(remote, broker)
        await ask(create_request("T"))
        assert (await ask(send_request(b"x"), "clerk", "secret of clerk")).code == 0
        assert (await ask(pull_request(), "clerk", "secret of clerk")).code == ResponseCode.NO_PERMISSION
    os.chmod(directory / "secret.key", 0o644)
    with pytest.raises(ConfigError, match="can be read by others"):
        Accounts(directory).load()
    (directory / "secret.key").unlink()
    with pytest.raises(ConfigError, match="is missing"):
        Accounts(directory).load()


async def test_a_change_that_cant_be_written_did_not_happen(
    broker: Broker, ask: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "save_parts", full)
        with pytest.raises(ResponseError, match=r"nothing was changed: can't save .*users\.json: No space left"):
            await ask.new_user("clerk")
    await ask.new_user("clerk")


def test_a_key_of_which_half_is_another_one_is_refused(tmp_path: Path) -> None:
    """Half of it signs and half encrypts; what the wrong one decrypts needn't be text."""
    cipher = Cipher(tmp_path / "secret.key")
    cipher.encrypt("a secret")
    sealed = Fernet((tmp_path / "secret.key").read_bytes()).encrypt(b"\xd3(")
    with pytest.raises(ConfigError, match="isn't the key that the secrets beside it are encrypted with"):
        cipher.decrypt(sealed.decode())


async def test_changes_at_once_all_count(ask: Caller) -> None:
    await asyncio.gather(*(ask.new_user(f"u{number}") for number in range(20)))
    listed = json.decode(await ask.done(RequestCode.AUTH_LIST_USER, ListUsers()), list[UserInfo], "")
    assert len(listed) == 21


async def test_bad_fields_and_bodies(ask: Caller, caplog: pytest.LogCaptureFixture) -> None:
    """Of a super user, whom nothing but the handlers refuses."""
    dice = random.Random(7)
    await ask.new_user("u")
    for code in range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1):
        for _, (fields, body) in zip(range(CASES), cases(code, dice, {}), strict=False):
            answer = await ask(Command(code, 0, fields=dict(fields), body=body))
            assert answer.code in (0, ResponseCode.NO_PERMISSION, ResponseCode.INVALID_PARAMETER), (
                code,
                fields,
                body,
                answer,
            )
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_broker_without_users_says_so(tmp_path: Path, remote: RemotingClient) -> None:
    async with running(tmp_path) as broker:
        answer = await remote.invoke(broker.address, codec.request(RequestCode.AUTH_LIST_USER, ListUsers()), 5)
        assert (answer.code, answer.remark) == (1, "this broker keeps no users: authenticationEnabled=false")


async def test_a_key_that_could_not_be_made_is_made_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            await Accounts(tmp_path).ensure_super(ROOT, SECRET)
    assert not (tmp_path / "secret.key").exists()
    await Accounts(tmp_path).ensure_super(ROOT, SECRET)
    accounts = Accounts(tmp_path)
    accounts.load()
    assert accounts.users[ROOT].secret == SECRET


@pytest.mark.parametrize("text", [None, b"", b'{"users":'])
async def test_rights_that_were_taken_away_do_not_come_back(tmp_path: Path, text: bytes | None) -> None:
    accounts = Accounts(tmp_path)
    await accounts.ensure_super(ROOT, SECRET)
    await accounts.ensure_super("second", SECRET)
    await accounts.delete_user("second", by_super=True)
    (tmp_path / "users.json").unlink()
    if text is not None:
        (tmp_path / "users.json").write_bytes(text)
    with pytest.raises(ConfigError, match=r"users\.json.*users\.json\.bak is from before the last change"):
        Accounts(tmp_path).load()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"authenticationEnabled": "true"}, "no super user who could make others: expected initAuthenticationUser"),
        (SETTINGS | {"initAuthenticationUser": '{"username":"x","password":7}'}, "initAuthenticationUser: expected JSON"),
        (SETTINGS | {"initAuthenticationUser": '{"username":"x","password":" "}'}, "initAuthenticationUser: password can"),
        (SETTINGS | {"authConfigPath": "/dev/null/auth"}, "authConfigPath: /dev/null/auth.*: Not a directory"),
        (SETTINGS | {"authenticationWhitelist": "10,3001"}, "need a user"),
        ({"aclEnable": "true", "rocketmqHome": "/nowhere"}, "no /nowhere/conf/plain_acl.yml"),
    ],
)
async def test_what_would_let_in_nobody_or_everybody(tmp_path: Path, settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        async with running(tmp_path, **settings):
            pass


READS = {
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_ACL,
    RequestCode.AUTH_LIST_USER,
    RequestCode.CHECK_CLIENT_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    RequestCode.GET_ALL_PRODUCER_INFO,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_BROKER_CONSUME_STATS,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.GET_CONSUMER_CONNECTION_LIST,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.GET_CONSUME_STATS,
    RequestCode.GET_PRODUCER_CONNECTION_LIST,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    RequestCode.GET_TIMER_CHECK_POINT,
    RequestCode.GET_TIMER_METRICS,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_TOPIC_STATS_INFO,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    RequestCode.POLLING_INFO,
    RequestCode.QUERY_CONSUME_QUEUE,
    RequestCode.QUERY_CONSUME_TIME_SPAN,
    RequestCode.QUERY_CORRECTION_OFFSET,
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
    RequestCode.QUERY_TOPICS_BY_CONSUMER,
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
    RequestCode.VIEW_BROKER_STATS_DATA,
}
"""What every account of a file may send, whatever its lists say: it tells of no message and changes nothing."""


async def test_every_request_without_and_with_wrong_and_with_too_small_accounts(
    tmp_path: Path, remote: RemotingClient
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(
        "accounts:\n"
        "- {accessKey: boss-key, secretKey: boss-secret, admin: true}\n"
        "- {accessKey: clerk-key, secretKey: clerk-secret}\n"
    )
    name = "org.apache.rocketmq.acl.common.AclException: "
    async with running(tmp_path / "store", aclEnable="true", rocketmqHome=str(tmp_path)) as broker:
        ask = Caller(remote, broker)
        for code in SENDS:  # from then on the core takes these
            await ask(request(code), "boss-key", "boss-secret")
        for code in sorted(broker.request_codes):
            for key, secret, words in (
                (None, "", "No accessKey is configured"),
                ("nobody-key", "boss-secret", "No acl config for nobody-key"),
                ("boss-key", "guessed", "Check signature failed for accessKey=boss-key"),
                ("clerk-key", "boss-secret", "Check signature failed for accessKey=clerk-key"),
            ):
                answer = await ask(request(code), key, secret)
                assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, name + words), RequestCode(code).name
            remark = (await ask(request(code), "clerk-key", "clerk-secret")).remark or ""
            assert remark.startswith(name) == (code not in READS), f"{RequestCode(code).name}: {remark}"


async def test_accounts_in_files(tmp_path: Path, remote: RemotingClient) -> None:
    home = tmp_path / "home"
    (home / "conf" / "acl" / "team").mkdir(parents=True)
    main, team = home / "conf" / "plain_acl.yml", home / "conf" / "acl" / "team" / "a.yaml"
    main.write_text("accounts:\n- {accessKey: RocketMQ, secretKey: 12345678, admin: true}\n")
    team.write_text("accounts:\n- {accessKey: clerk-key, secretKey: '00012345', topicPerms: [T=PUB]}\n")
    async with running(tmp_path / "store", aclEnable="true", rocketmqHome=str(home)) as broker:
        ask = Caller(remote, broker)
        assert (await ask(create_request("T"), "RocketMQ", "12345678")).code == 0
        assert (await ask(send_request(b"x"), "clerk-key", "00012345")).code == 0
        refused = await ask(pull_request(), "clerk-key", "00012345")
        name = "org.apache.rocketmq.acl.common.AclException: "
        assert (refused.code, refused.remark) == (1, name + "No default permission for group:consumers")
        unsigned = await ask(send_request(b"x"), None)
        assert (unsigned.code, unsigned.remark) == (1, name + "No accessKey is configured")

        async def eventually(code: int) -> None:
            async with asyncio.timeout(30):
                while (await ask(send_request(b"x"), "clerk-key", "00012345")).code != code:
                    await asyncio.sleep(0.05)

        # What can't be read changes nothing; what can counts soon.
        team.write_text("accounts: {")
        await asyncio.sleep(0)
        assert (await ask(send_request(b"x"), "clerk-key", "00012345")).code == 0
        team.write_text("accounts:\n- {accessKey: clerk-key, secretKey: '00012345', topicPerms: [T=DENY]}\n")
        await eventually(1)
        team.write_text("accounts:\n- {accessKey: clerk-key, secretKey: '00012345', defaultTopicPerm: PUB|SUB}\n")
        await eventually(0)
        team.unlink()
        await eventually(1)
