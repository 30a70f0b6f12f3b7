"""A lane with a store: ordinary sends are stored and answered at once, everything else is handed over."""

import itertools
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rockmq._core import Lane, Store, decode_records
from tests.support import model
from tests.support.model import Header, Record
from tests.unit.core import stores
from tests.unit.core.stores import ADDED, HOST, HOST_V6, PEER, PEER_V6

NOW = 1_700_000_000_500
BORN = 1_700_000_000_000
NAMES = dict(
    zip(
        "abcdefghijklmn",
        [
            "producerGroup",
            "topic",
            "defaultTopic",
            "defaultTopicQueueNums",
            "queueId",
            "sysFlag",
            "bornTimestamp",
            "flag",
            "properties",
            "reconsumeTimes",
            "unitMode",
            "maxReconsumeTimes",
            "batch",
            "bname",
        ],
        strict=True,
    )
)
KEY = b"UNIQ_KEY\x01AABBCC\x02"


def fields(properties: bytes = KEY, **changes: str | None) -> dict[str, str]:
    """Of a V2 send; None leaves one out."""
    given = {"a": "group", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": str(BORN), "h": "0"}
    given |= {"i": properties.decode(), "j": "0", "k": "false", "l": "16", "m": "false", "n": "broker-a"}
    return {key: value for key, value in (given | changes).items() if value is not None}


def send(
    body: bytes = b"body", properties: bytes = KEY, *, code: int = 310, serializer: int = 0, flag: int = 0, **changes: Any
) -> bytes:
    spelled = fields(properties, **changes)
    if code == 10:
        spelled = {NAMES[key]: value for key, value in spelled.items()}
    return model.encode(Header(code=code, opaque=77, flag=flag, fields=spelled), body, serializer)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = stores.fresh(tmp_path)
    store.set_ordinary("T", 4, False)
    return store


def lane(store: Store, peer: bytes = PEER) -> Lane:
    return Lane(store, peer, 1 << 20)


def reply_to(store: Store, data: bytes) -> Header:
    """Feed one ordinary send and take its reply apart."""
    replies, position, commands, _, reason = lane(store).feed(data, NOW)
    assert (position, commands, reason) == (store.max_position, [], None)
    [(header, body, serializer)] = model.decode(replies)
    assert (header.opaque, header.language, header.version, header.flag) == (77, "PYTHON", 479, 1)
    assert (header.code, header.remark, body) == (0, None, b"")
    assert serializer == data[4]
    return header


def stored(store: Store, queue_id: int = 0, topic: str = "T") -> list[Record]:
    """All records of a queue, byte for byte as the model would write them."""
    bounds = store.queue_bounds(topic, queue_id)
    assert bounds is not None
    data = stores.joined(store.get(topic, queue_id, 0, 10_000, 1 << 30, store.max_position, None)[5])
    records = []
    for one in decode_records(data):
        topic, properties = one[14], one[15]
        record = Record(
            topic,
            one[2],
            one[13],
            properties,
            one[3],
            one[6],
            one[7],
            one[8],
            one[9],
            one[10],
            one[11],
            one[12],
            one[4],
            one[5],
        )
        records.append(record)
    assert b"".join(record.encode() for record in records) == data
    assert [record.queue_offset for record in records] == list(range(*bounds))
    return records


@pytest.mark.parametrize("serializer", [0, 1])
@pytest.mark.parametrize("code", [10, 310, 320])
def test_an_ordinary_send_is_stored_and_answered(store: Store, code: int, serializer: int) -> None:
    properties = 'TAGS\x01Täg\x02UNIQ_KEY\x01U"1\\\x02KEYS\x01k'.encode()
    data = send(b"hello", properties, code=code, serializer=serializer, e="3", f="257", h="-9", j="2")
    for offset in range(2):
        position = store.max_position
        header = reply_to(store, data)
        assert header.fields == {
            "MSG_REGION": "Here",
            "TRACE_ON": "true",
            "msgId": (HOST + struct.pack(">q", position)).hex().upper(),
            "queueId": "3",
            "queueOffset": str(offset),
            "transactionId": 'U"1\\',
        }
    expected = Record("T", 3, b"hello", properties + b"\x02" + ADDED, -9, 257, BORN, PEER, NOW, HOST, 2)
    assert stored(store, 3) == [
        replace(expected, queue_offset=offset, position=offset * expected.size) for offset in range(2)
    ]
    assert store.appended == (2, 2 * expected.size)


def test_a_missing_key_is_made(store: Store) -> None:
    first, second = (
        reply_to(store, send(b"b", properties, i=changed)) for properties, changed in [(b"", None), (b"a\x01b", "a\x01b")]
    )
    keys = [first.fields["transactionId"], second.fields["transactionId"]]
    for key, record, text in zip(keys, stored(store), [b"", b"a\x01b\x02"], strict=True):
        assert len(key) == 32
        assert key.startswith(HOST[:4].hex().upper())
        assert record.properties == text + b"UNIQ_KEY\x01" + key.encode() + b"\x02" + ADDED
    assert keys[0][:28] == keys[1][:28]
    assert int(keys[1][28:], 16) == int(keys[0][28:], 16) + 1


def test_one_way_sends_get_no_reply(store: Store) -> None:
    replies, position, commands, _, _ = lane(store).feed(send(flag=2) + send(flag=2), NOW)
    assert (replies, commands) == (b"", [])
    assert position == store.max_position > 0
    assert store.queue_bounds("T", 0) == (0, 2)


@pytest.mark.parametrize("peer", [PEER, PEER_V6])
@pytest.mark.parametrize("host", [HOST, HOST_V6])
def test_address_bits_follow_the_hosts(tmp_path: Path, peer: bytes, host: bytes) -> None:
    """Row 2.1: sysFlag bits 4 and 5."""
    store = stores.opened(tmp_path, store_host=host)
    store.recover(0, True)
    store.set_ordinary("T", 4, True)
    replies = lane(store, peer).feed(send(f=str(0x30 | 0x4001)), NOW)[0]
    [record] = stored(store)
    assert (record.born_host, record.store_host) == (peer, host)
    assert record.sys_flag == 0x4003 | 0x10 * (peer == PEER_V6) | 0x20 * (host == HOST_V6)
    [(header, _, _)] = model.decode(replies)
    assert header.fields["msgId"] == (host + bytes(8)).hex().upper()


BATCH = [(1, b"one", KEY + b"TAGS\x01A\x02"), (-2, b"", b""), (3, b"three", b"DELAY\x013\x02TRAN_MSG\x01true")]


@pytest.mark.parametrize(("code", "serializer"), [(10, 0), (310, 1), (320, 0)])
def test_a_batch_becomes_records_of_its_own(store: Store, code: int, serializer: int) -> None:
    """Row 2.5."""
    reply_to(store, send())
    header = reply_to(store, send(model.batch(BATCH), b"", code=code, serializer=serializer, m="TRUE", j=None))
    records = stored(store)[1:]
    assert [(record.flag, record.body, record.properties) for record in records] == BATCH
    assert {record.store_timestamp for record in records} == {NOW}
    assert header.fields["msgId"].split(",") == [(HOST + struct.pack(">q", one.position)).hex().upper() for one in records]
    assert (header.fields["queueOffset"], "transactionId" in header.fields) == ("1", False)
    assert reply_to(store, send(model.batch(BATCH), KEY, m="true")).fields["transactionId"] == "AABBCC"
    got = store.get("T", 0, 0, 32, 1 << 20, store.max_position, [model.java_hash("A")])
    assert got[:5] == (0, 7, 0, 7, 2)


SPECIAL: dict[str, dict[str, Any]] = {
    "unknown topic": {"b": "Other"},
    "retry topic": {"b": "%RETRY%g"},
    "dead letter topic": {"b": "%DLQ%g"},
    "negative queue": {"e": "-1"},
    "queue over the number": {"e": "4"},
    "queue over 32 bits": {"e": "4294967296"},
    "queue is no number": {"e": "0.0"},
    "empty queue": {"e": ""},
    "default queues": {"d": "x"},
    "flag over 32 bits": {"h": "2147483648"},
    "born over 64 bits": {"g": "9223372036854775808"},
    "reconsume times": {"j": "many"},
    "prepared": {"f": "4"},
    "commit": {"f": "8"},
    "rollback": {"f": "12"},
    "needs unwrap": {"f": "64"},
    "inner batch": {"f": "128"},
    "no body": {"body": b""},
    "body over the bound": {"body": bytes((1 << 16) + 1)},
    "transaction": {"properties": b"TRAN_MSG\x01true\x02"},
    "delay": {"properties": b"DELAY\x011\x02"},
    "timer": {"properties": b"a\x01b\x02TIMER_DELIVER_MS\x011"},
    "pop check": {"properties": b"POP_CK\x011\x02"},
    "inner": {"properties": b"INNER_MULTI_DISPATCH\x01q\x02"},
    "crc": {"properties": b"__CRC32#\x01123\x02"},
    "transient": {"properties": b"__RMQ.TRANSIENT.x\x01123\x02"},
    "region": {"properties": b"MSG_REGION\x01x\x02"},
    "trace": {"properties": b"TRACE_ON\x01x\x02"},
    "cluster": {"properties": b"CLUSTER\x01x\x02"},
    "properties over the bound": {"properties": KEY + b"a\x01" + b"x" * (32_768 - len(KEY) - len(ADDED) - 3) + b"\x02"},
    "cut batch": {"m": "true", "body": model.batch(BATCH)[:-1]},
    "text for a batch": {"m": "true"},
}
SPECIAL |= {f"no {name}": {letter: None} for letter, name in NAMES.items() if letter < "i"}


@pytest.mark.parametrize("case", SPECIAL)
@pytest.mark.parametrize("code", [10, 310])
def test_a_send_that_needs_a_decision_is_handed_over(store: Store, case: str, code: int) -> None:
    store.set_ordinary("%RETRY%g", 4, False)
    store.set_ordinary("%DLQ%g", 4, False)
    changes = dict(SPECIAL[case])
    body, properties = changes.pop("body", b"body"), changes.pop("properties", KEY)
    data = send(body, properties, code=code, **changes)
    replies, position, [command], watched, reason = lane(store).feed(data, NOW)
    assert (replies, position, watched, reason) == (b"", 0, [], None)
    [(header, _, _)] = model.decode(data)
    assert command == (code, "JAVA", 479, 77, 0, 0, None, header.fields, body)
    assert store.max_position == 0
    assert store.queues() == []


@pytest.mark.parametrize("case", ["closed to writing", "forgotten topic", "closed", "invalid UTF-8", "response"])
def test_no_send_is_stored_where_it_must_not_be(store: Store, case: str) -> None:
    """Row 2.4."""
    data = send()
    if case == "closed to writing":
        store.set_writable(False)
    elif case == "forgotten topic":
        store.clear_ordinary("T")
    elif case == "closed":
        store.close()
    elif case == "invalid UTF-8":
        data = send().replace(b"AABBCC", b"AABB\xff\xfe")
    else:
        # FLUSH_DISK_TIMEOUT has the number of SEND_MESSAGE.
        data = send(code=10, flag=1)
    replies, position, commands, _, reason = lane(store).feed(data, NOW)
    assert (replies, position, len(commands), reason) == (b"", 0, 1, None)


def test_properties_fill_their_bound(store: Store) -> None:
    """Row 2.3."""
    properties = KEY + b"a\x01" + b"x" * (32_767 - len(KEY) - len(ADDED) - 3) + b"\x02"
    reply_to(store, send(b"b", properties))
    assert len(stored(store)[0].properties) == 32_767


def test_topics_over_127_bytes_are_v2_and_have_no_batches(store: Store) -> None:
    """Row 2.1, pitfall 9.9."""
    topic = "t" * 128
    store.set_ordinary(topic, 4, False)
    assert reply_to(store, send(b=topic)).fields["queueOffset"] == "0"
    assert stored(store, 0, topic)[0].topic == topic
    assert len(lane(store).feed(send(model.batch(BATCH), b=topic, m="true"), NOW)[2]) == 1
    assert store.queue_bounds(topic, 0) == (0, 1)


def test_a_record_over_the_file_is_handed_over(tmp_path: Path) -> None:
    store = stores.fresh(tmp_path, log_file_size=4096)
    store.set_ordinary("T", 4, False)
    assert len(lane(store).feed(send(bytes(4000)), NOW)[2]) == 1
    assert len(lane(store).feed(send(model.batch([(0, bytes(1000), b"")] * 4), m="true"), NOW)[2]) == 1
    assert store.max_position == 0
    assert reply_to(store, send(bytes(3000))).fields["queueOffset"] == "0"


def test_frames_before_a_bad_one_are_answered(store: Store) -> None:
    replies, position, commands, _, reason = lane(store).feed(send() + send(e="9") + b"\xff" * 8, NOW)
    assert len(model.decode(replies)) == 1
    assert (position, len(commands)) == (store.max_position, 1)
    assert reason is not None


def test_a_watch_reports_one_arrival(store: Store) -> None:
    one = lane(store)
    store.watch("T", 1)
    store.watch("New", 0)
    assert store.queue_bounds("T", 1) is None
    assert store.queues() == []
    assert one.feed(send(), NOW)[3] == []
    assert one.feed(send(e="1") + send(e="1"), NOW)[3] == [("T", 1)]
    assert one.feed(send(e="1"), NOW)[3] == []
    store.watch("T", 1)
    assert one.feed(send(model.batch(BATCH), e="1", m="true"), NOW)[3] == [("T", 1)]
    assert stores.append(store, Record("New", 0, b"x", b""))[3] is True
    assert stores.append(store, Record("New", 0, b"x", b""))[3] is False


requests = st.lists(
    st.one_of(
        st.builds(
            lambda queue, body, serializer, code, flag: send(
                body, serializer=serializer, code=code, flag=flag, e=str(queue)
            ),
            st.integers(0, 5),
            st.binary(max_size=30),
            st.integers(0, 1),
            st.sampled_from([10, 310, 320, 11]),
            st.sampled_from([0, 2]),
        ),
        st.builds(
            lambda messages, serializer: send(
                model.batch((flag, body, KEY) for flag, body in messages), b"", serializer=serializer, m="true", e="2"
            ),
            st.lists(st.tuples(st.integers(-9, 9), st.binary(max_size=9)), min_size=1, max_size=4),
            st.integers(0, 1),
        ),
    ),
    max_size=8,
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(requests, st.lists(st.integers(0, 3000), max_size=12))
def test_any_chunking_gives_the_same_store_and_replies(
    tmp_path_factory: pytest.TempPathFactory, sent: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(sent)
    results = []
    for edges in ([0, len(data)], sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})):
        store = stores.fresh(tmp_path_factory.mktemp("store"), log_file_size=8192)
        store.set_ordinary("T", 4, False)
        one, replies, commands, last = lane(store), b"", list[Any](), 0
        for start, end in itertools.pairwise(edges):
            more, position, others, _, reason = one.feed(data[start:end], NOW)
            assert reason is None
            replies, commands, last = replies + more, commands + others, position or last
        assert last == store.max_position
        results.append((replies, commands, [store.queue_bounds("T", queue) for queue in range(6)], store.appended, last))
        store.close()
    assert results[0] == results[1]


def test_arguments_are_checked(tmp_path: Path, store: Store) -> None:
    with pytest.raises(ValueError, match="region"):
        stores.opened(tmp_path / "x", region="a\x02b")
    with pytest.raises(ValueError, match="store_host has 3 bytes"):
        stores.opened(tmp_path / "x", store_host=b"abc")
    with pytest.raises(ValueError, match="queue_file_size 30"):
        stores.fresh(tmp_path / "x", queue_file_size=30)
    with pytest.raises(ValueError, match="log_file_size"):
        stores.fresh(tmp_path / "x", log_file_size=1 << 31)
    for topic in ("", ".", "..", "a/b", "a\0b", "x" * 256):
        with pytest.raises(ValueError, match="topic"):
            store.set_ordinary(topic, 1, False)
        with pytest.raises(ValueError, match="topic"):
            stores.append(store, Record(topic, 0, b"", b""))
    with pytest.raises(ValueError, match="queue_id -1"):
        stores.append(store, Record("T", -1, b"", b""))
    with pytest.raises(ValueError, match="properties have 32768"):
        stores.append(store, Record("T", 0, b"", b"x" * 32_768))
    with pytest.raises(ValueError, match="begin or end in a zero byte"):
        stores.append(store, Record("T", 0, b"", b"a\x01b\0"))
    with pytest.raises(ValueError, match="born_host"):
        stores.append(store, Record("T", 0, b"", b"", born_host=b""))
    assert (tmp_path / "consumequeue").exists()
    assert store.max_position == 0
