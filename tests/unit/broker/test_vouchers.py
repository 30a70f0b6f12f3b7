"""Sends to a broker that asks who somebody is: after one of a kind the core takes others, and decides as the guard does."""

import asyncio
import json
import random
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rockmq import _core
from rockmq.auth.signature import signature
from rockmq.base import address
from rockmq.base.errors import AccessDenied
from rockmq.broker import access as access_control
from rockmq.broker.access import Access
from rockmq.broker.server import Broker
from rockmq.protocol import codec, properties
from rockmq.protocol.bodies.access import AclInfo, Policy, PolicyEntry, UserInfo
from rockmq.protocol.codec import FRAME_SIZE_MAX, Command, encode_batch
from rockmq.protocol.codes import RequestCode, ResponseCode
from rockmq.protocol.headers.access import CreateUser, DeleteAcl, UpdateAcl, UpdateUser
from rockmq.protocol.headers.offset import GetMaxOffset
from rockmq.remoting.client import RemotingClient
from tests.unit.broker.conftest import running
from tests.unit.broker.test_access import Caller
from tests.unit.broker.test_messages import create_request, send_request
from tests.unit.broker.transaction_bench import half_request

ROOT, ROOT_SECRET = "root-key", "root secret"
CLERK, OTHER = "clerk-key", "other-key"
OLD, NEW = "the old secret", "a new secret"
ONEWAY_TOPIC = "W"
TOPICS = ("T", "U", "xU", "V", ONEWAY_TOPIC)
ODD_TOPICS = ("%RETRY%g", "%DLQ%g", "DefaultCluster_REPLY_TOPIC", "Nowhere", "")
USERS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT, "password": ROOT_SECRET}),
}

Pairs = list[tuple[str, bytes | None]]
"""Fields as they stand in a header: a name may come twice."""


class Asked(Access):
    """Access control that notes which sends it was asked about."""

    asked: list[int]

    @classmethod
    def of(cls, access: Access) -> "Asked":
        asking = cls(access.guard, access.plain, access.accounts)
        asking.asked = []
        return asking

    def admit(self, request: Command, connection: Any) -> None:
        self.asked.append(request.opaque)
        super().admit(request, connection)


@asynccontextmanager
async def guarded(
    root: Path, monkeypatch: pytest.MonkeyPatch, kind: str, **settings: str
) -> AsyncIterator[tuple[Broker, Asked]]:
    opened, made = access_control.opened, []

    async def opening(*arguments: Any) -> Access:
        made.append(Asked.of(await opened(*arguments)))
        return made[0]

    monkeypatch.setattr(access_control, "opened", opening)
    if kind == "files":
        settings |= {"aclEnable": "true", "rocketmqHome": str(root / "home")}
        (root / "home" / "conf").mkdir(parents=True)
        write_accounts(root, {CLERK: (OLD, []), OTHER: (OLD, [])})
    else:
        settings |= USERS
    async with running(root / "store", **settings) as broker:
        yield broker, made[0]


def write_accounts(root: Path, accounts: dict[str, tuple[str, list[str]]], white: str = "") -> None:
    lines = ["globalWhiteRemoteAddresses:", *([f"- {white}"] if white else []), "accounts:"]
    lines.append(f"- {{accessKey: {ROOT}, secretKey: {ROOT_SECRET}, admin: true}}")
    lines += [
        f"- {{accessKey: {name}, secretKey: {secret}, topicPerms: [{', '.join(topics)}], groupPerms: [g=SUB]}}"
        for name, (secret, topics) in accounts.items()
    ]
    (root / "home" / "conf" / "plain_acl.yml").write_text("\n".join(lines))


class Wire:
    """A connection that frames are written to as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._lane = _core.Lane(None, self.host, FRAME_SIZE_MAX)

    @property
    def host(self) -> bytes:
        return address.to_bytes(*self._writer.get_extra_info("sockname"))

    async def exchange(self, frames: bytes, count: int) -> dict[int, Command]:
        """Write frames in one piece; as many answers, by opaque."""
        self._writer.write(frames)
        answers: dict[int, Command] = {}
        async with asyncio.timeout(30):
            while len(answers) < count:
                _, _, commands, _, fault = self._lane.feed(await self._reader.read(1 << 16), 0)
                assert fault is None, fault
                answers |= {answer.opaque: answer for answer in map(codec.from_tuple, commands)}
        return answers

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def connected(broker: Broker) -> Wire:
    host, port = broker.address.split(":")
    return Wire(*await asyncio.open_connection(host, int(port)))


def encoded(serializer: int, code: int, opaque: int, flag: int, pairs: Pairs, body: bytes) -> bytes:
    """A request whose fields stand in this order; of a value that is no text also in JSON the bytes."""
    if serializer == codec.Serializer.JSON:
        parts = []
        for name, value in pairs:
            text = b"null" if value is None else json.dumps(value.decode()).encode() if value.isascii() else b'"%b"' % value
            parts.append(b'"%b":%b' % (name.encode(), text))
        fields = b"{" + b",".join(parts) + b"}"
        header = b'{"code":%d,"language":"JAVA","opaque":%d,"flag":%d,"extFields":%b}' % (code, opaque, flag, fields)
    else:
        entries = [
            struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(value or b"")) + (value or b"")
            for name, value in pairs
        ]
        fields = b"".join(entries)
        header = struct.pack(">hBhiiii", code, 0, 479, opaque, flag, 0, len(fields)) + fields
    return struct.pack(">ii", 4 + len(header) + len(body), serializer << 24 | len(header)) + header + body


LONG = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp", "flag",
        "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch")  # fmt: skip
PROPERTIES: tuple[tuple[dict[str, str], int], ...] = (
    ({}, 0),
    ({"KEYS": "k"}, 0),
    ({"TAGS": "ä"}, 0),
    ({"DELAY": "1"}, 0),
    ({"TRAN_MSG": "true", "PGROUP": "g"}, 4),
    ({"INNER_MULTI_DISPATCH": "%LMQ%light"}, 0),
    ({"TIMER_DELAY_SEC": "10"}, 0),
)


class Dice(random.Random):
    """Makes sends of all kinds, rightly signed or with something wrong."""

    def send(self, opaque: int) -> tuple[bytes, bool]:
        """A frame, and whether it is one-way."""
        oneway = self.random() < 0.1
        code = RequestCode.SEND_MESSAGE_V2
        names: tuple[str, ...] = tuple("abcdefghijklm")
        body, wants, sys_flag, batch = b"%d" % opaque, {}, 0, False
        topic = ONEWAY_TOPIC
        if not oneway:
            code = self.choice([code] * 6 + [RequestCode.SEND_MESSAGE, RequestCode.SEND_BATCH_MESSAGE])
            topic = self.choice(["T"] * 9 + ["U"] * 4 + list(TOPICS[2:-1] + ODD_TOPICS))
            wants, sys_flag = self.choice(PROPERTIES)
        if code == RequestCode.SEND_MESSAGE:
            names = LONG
        if code == RequestCode.SEND_BATCH_MESSAGE:
            body, wants, sys_flag, batch = encode_batch([(0, b"x", b""), (0, b"y", b"")]), {}, 0, True
        values = ["gx", topic, "TBW102", "4", "0", str(sys_flag), "1700000000000", "0", properties.encode(wants).decode(),
                  "0", "false", "0", str(batch).lower()]  # fmt: skip
        pairs: Pairs = [(name, value.encode()) for name, value in zip(names, values, strict=True)]
        name, secret = self.choice([(CLERK, OLD)] * 6 + [(CLERK, NEW), (OTHER, OLD), (ROOT, ROOT_SECRET), ("nobody", OLD)])
        pairs.append(("AccessKey", name.encode()))
        self.shuffle(pairs)
        fields = {name: (value or b"").decode() for name, value in pairs}
        pairs.insert(self.randrange(len(pairs)), ("Signature", signature(fields, body, secret.encode()).encode()))
        if self.random() < 0.5:
            # What nobody answers must be stored, or not, for what the guard says alone.
            pairs, body = self.choice(self.CHANGES[:6] if oneway else self.CHANGES)(self, pairs, body)
        frame = encoded(self.randrange(2), code, opaque, codec.ONEWAY_FLAG if oneway else 0, pairs, body)
        return frame, oneway

    def body(self, pairs: Pairs, body: bytes) -> tuple[Pairs, bytes]:
        return pairs, body[:-1] + b"!"

    def signed_by(self, pairs: Pairs, body: bytes) -> tuple[Pairs, bytes]:
        return [(name, CLERK.encode() if name == "AccessKey" else value) for name, value in pairs], body

    def other_signature(self, pairs: Pairs, body: bytes) -> tuple[Pairs, bytes]:
        def other(given: bytes) -> bytes:
            place = self.randrange(len(given))
            flipped = given[:place] + bytes([given[place] ^ 1]) + given[place + 1 :]
            return self.choice([flipped, given[:-1], given + b"=", given.swapcase(), b"", b" " + given, given * 2])

        return [(name, other(value) if name == "Signature" and value else value) for name, value in pairs], body

    def another_field(self, pairs: Pairs, body: bytes) -> tuple[Pairs, bytes]:
        name = self.choice(["z", "A", "Signature2", "signature", "SecurityToken", "_UNIQUE_KEY_QUERY"])
        return [*pairs, (name, self.choice([b"", b"more"]))], body

    def twice_before(self, pairs: Pairs, body: bytes) -> tuple[Pairs, bytes]:
        return [(self.choice(pairs)[0], b"other"), *pairs], body

    def many(self, pairs: Pairs, body: bytes) -> tuple[Pairs, bytes]:
        return [*[("Signature", b"x")] * self.choice([47, 48, 49, 50, 51, 60]), *pairs], body

    def twice_behind(self, pairs: Pairs, body: bytes) -> tuple[Pairs, bytes]:
        name, value = self.choice(pairs)
        return [*pairs, (name, self.choice([b"1", b"T", b"", None, value]))], body

    def dropped(self, pairs: Pairs, body: bytes) -> tuple[Pairs, bytes]:
        lost = self.randrange(len(pairs))
        return pairs[:lost] + pairs[lost + 1 :], body

    def other_value(self, pairs: Pairs, body: bytes) -> tuple[Pairs, bytes]:
        changed = self.randrange(len(pairs))
        value = self.choice([b"1", b"T", b"xU", None])
        return [(name, value if at == changed else old) for at, (name, old) in enumerate(pairs)], body

    def other_border(self, pairs: Pairs, body: bytes) -> tuple[Pairs, bytes]:
        """The signature stays right: where a value ends isn't signed."""
        found = dict(pairs)
        group, topic = (name if name in found else long for name, long in (("a", "producerGroup"), ("b", "topic")))
        moved = {group: (found[group] or b"")[:-1], topic: (found[group] or b"")[-1:] + (found[topic] or b"")}
        return [(name, moved.get(name, value)) for name, value in pairs], body

    def no_text(self, pairs: Pairs, body: bytes) -> tuple[Pairs, bytes]:
        """Signed as Python reads it, which isn't what stands there."""
        pairs = [*pairs, ("y", b"\xff\xc3")]
        fields = {name: (value or b"").decode(errors="replace") for name, value in pairs}
        secret = {ROOT: ROOT_SECRET}.get(fields["AccessKey"], OLD)
        right = signature(fields, body, secret.encode()).encode()
        return [(name, right if name == "Signature" else value) for name, value in pairs], body

    CHANGES = (body, signed_by, other_signature, another_field, twice_before, many, twice_behind, dropped, other_value,
               other_border, no_text)  # fmt: skip


def denial(access: Access, frame: bytes, host: bytes) -> AccessDenied | None:
    """What the guard says about a frame as Python reads it."""
    _, _, [command], _, _ = _core.Lane(None, host, FRAME_SIZE_MAX).feed(frame, 0)
    assert access.guard is not None
    try:
        access.guard(codec.from_tuple(command), host)
    except AccessDenied as denied:
        return denied
    return None


class Users:
    """Changes of who may do what, one after the other, by requests."""

    def __init__(self, ask: Caller) -> None:
        self._ask = ask

    async def _done(self, code: int, header: Any, body: object = None) -> None:
        await self._ask.done(code, header, body, user=ROOT, secret=ROOT_SECRET)

    async def _rules(self, name: str, *rules: tuple[str, str]) -> None:
        entries = [
            PolicyEntry(resource=resource, actions=["Pub", "Sub"], source_ips=["127.0.0.0/8"], decision=decision)
            for resource, decision in rules
        ]
        body = AclInfo(subject=f"User:{name}", policies=[Policy(policy_type="Custom", entries=entries)])
        await self._done(RequestCode.AUTH_UPDATE_ACL, UpdateAcl(subject=f"User:{name}"), body)

    async def _user(self, name: str, **changes: str) -> None:
        await self._done(RequestCode.AUTH_UPDATE_USER, UpdateUser(username=name), UserInfo(**changes))

    async def begin(self) -> None:
        for name in (CLERK, OTHER):
            await self._done(RequestCode.AUTH_CREATE_USER, CreateUser(username=name), UserInfo(password=OLD))
        await self._rules(CLERK, ("Topic:T", "Allow"), ("Topic:U", "Allow"), ("Topic:W", "Allow"), ("Group:g", "Allow"))
        await self._rules(OTHER, ("Topic:*", "Allow"), ("Topic:W", "Deny"))

    async def a_rule_less(self) -> None:
        await self._done(RequestCode.AUTH_DELETE_ACL, DeleteAcl(subject=f"User:{CLERK}", resource="Topic:U"))

    async def others(self) -> None:
        await self._rules(CLERK, ("Topic:x*", "Allow"), ("Topic:W", "Deny"))
        await self._rules(OTHER, ("Topic:T", "Deny"), ("Topic:W", "Allow"))

    async def another_secret(self) -> None:
        await self._user(CLERK, password=NEW)

    async def disabled(self) -> None:
        await self._user(OTHER, user_status="disable")

    async def a_super_user(self) -> None:
        await self._user(OTHER, user_status="enable", user_type="Super")
        await self._done(RequestCode.AUTH_DELETE_ACL, DeleteAcl(subject=f"User:{CLERK}"))

    @property
    def steps(self) -> list[Callable[[], Any]]:
        return [self.begin, self.a_rule_less, self.others, self.another_secret, self.disabled, self.a_super_user]


class Files:
    """The same by files."""

    def __init__(self, root: Path, access: Access) -> None:
        self._root, self._access = root, access

    @property
    def steps(self) -> list[Callable[[], Any]]:
        clerk, other = (OLD, ["T=PUB", "U=PUB", "W=PUB"]), (OLD, ["T=PUB", "V=PUB", "xU=PUB|SUB", "W=DENY"])
        tables = (
            {CLERK: clerk, OTHER: other},
            {CLERK: (OLD, ["T=PUB", "W=PUB"]), OTHER: other},
            {CLERK: (OLD, ["xU=PUB", "W=SUB"]), OTHER: (OLD, ["W=PUB", "V=PUB"])},
            {CLERK: (NEW, ["T=PUB", "U=PUB"]), OTHER: other},
            {CLERK: clerk},
        )
        return [lambda table=table: self._change(table) for table in tables] + [
            lambda: self._change({CLERK: clerk}, "127.0.0.*"),
            lambda: self._change({CLERK: clerk, OTHER: clerk}),
        ]

    async def _change(self, table: dict[str, tuple[str, list[str]]], white: str = "") -> None:
        write_accounts(self._root, table, white)
        assert self._access.plain is not None
        self._access.plain.look()


@pytest.mark.parametrize("kind", ["users", "files"])
async def test_the_core_decides_as_the_guard_does(
    tmp_path: Path, remote: RemotingClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    dice, first, right, right_oneway = Dice(11), 1_000_000, 0, 0
    opaque = first
    async with guarded(tmp_path, monkeypatch, kind) as (broker, access):
        ask = Caller(remote, broker)
        for topic in TOPICS:
            await ask(create_request(topic), ROOT, ROOT_SECRET)
        wires = [await connected(broker) for _ in range(2)]
        for step in (Users(ask) if kind == "users" else Files(tmp_path, access)).steps:
            await step()
            for _ in range(20):
                wire = dice.choice(wires)
                frames, expected = b"", {}
                for _ in range(dice.randint(1, 16)):
                    opaque += 1
                    frame, oneway = dice.send(opaque)
                    denied = denial(access, frame, wire.host)
                    frames += frame
                    right += denied is None
                    right_oneway += oneway and denied is None
                    if not oneway:
                        expected[opaque] = denied
                answers = await wire.exchange(frames, len(expected))
                for number, denied in expected.items():
                    answer = answers[number]
                    if denied is not None:
                        assert (answer.code, answer.remark) == (denied.code, str(denied))
                    else:
                        assert answer.code != ResponseCode.NO_PERMISSION, answer
                        assert "AclException" not in (answer.remark or ""), answer
        header = GetMaxOffset(topic=ONEWAY_TOPIC, queue_id=0)
        stored = await ask(codec.request(RequestCode.GET_MAX_OFFSET, header), ROOT, ROOT_SECRET)
        assert int(stored.fields["offset"]) == right_oneway > 0
        taken = opaque - first - len([number for number in access.asked if number > first])
        for wire in wires:
            await wire.close()
    assert taken > right / 6, "many of them are the core's"


@pytest.mark.parametrize("kind", ["users", "files"])
async def test_python_sees_one_of_a_kind(
    tmp_path: Path, remote: RemotingClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with guarded(tmp_path, monkeypatch, kind) as (broker, access):
        ask = Caller(remote, broker)
        for topic in "TU":
            await ask(create_request(topic), ROOT, ROOT_SECRET)
        batch = encode_batch([(0, b"x", b""), (0, b"y", b"")])
        sends: list[Callable[[], Command]] = [
            lambda: send_request(b"x"),
            lambda: send_request(b"x", topic="U"),
            lambda: send_request(batch, batch=True),
        ]
        more: list[Callable[[], Command]] = [
            lambda: send_request(b"x", tag="a"),
            lambda: send_request(b"x", DELAY="1"),
            lambda: half_request(b"x"),
        ]

        async def asked_by(make: Callable[[], Command], caller: Caller = ask) -> int:
            sending, before = make(), len(access.asked)
            sending.serializer = before % 2
            assert (await caller(sending, ROOT, ROOT_SECRET)).code == ResponseCode.SUCCESS
            return len(access.asked) - before

        assert [await asked_by(make) for make in sends] == [1, 1, 1]
        assert [await asked_by(make) for make in sends + more + sends] == [0] * 9
        # Of a change that has nothing to do with these, too: one is enough to end all vouchers.
        await (Users(ask).begin if kind == "users" else Files(tmp_path, access).steps[1])()
        assert [await asked_by(make) for make in sends] == [1, 1, 1]
        assert [await asked_by(make) for make in sends] == [0, 0, 0]
        second = RemotingClient()
        assert [await asked_by(sends[0], Caller(second, broker)) for _ in range(3)] == [1, 0, 0]
        await second.close()


async def test_a_voucher_is_for_one_kind_of_send(
    tmp_path: Path, remote: RemotingClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A code that needs no rule says nothing of another that does."""
    free = str(int(RequestCode.SEND_MESSAGE_V2))
    async with guarded(tmp_path, monkeypatch, "users", authorizationWhitelist=free) as (broker, _):
        ask = Caller(remote, broker)
        await ask(create_request("V"), ROOT, ROOT_SECRET)
        await Users(ask).begin()
        for _ in range(2):
            assert (await ask(send_request(b"x", topic="V"), CLERK, OLD)).code == ResponseCode.SUCCESS
        batch = send_request(encode_batch([(0, b"x", b"")]), topic="V", batch=True)
        assert (await ask(batch, CLERK, OLD)).code == ResponseCode.NO_PERMISSION
