"""Stored records as tuples and as Arrow columns."""

import ipaddress
import itertools
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq._core import decode_columns, decode_messages, decode_records
from rockmq.protocol.properties import decode as decode_properties
from tests.support import model
from tests.support.model import Record
from tests.unit.core.stores import HOST, HOST_V6, PEER, PEER_V6

longs, ints = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
keys = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "__SHARDINGKEY", "a", "ключ"]) | st.text("abc", min_size=1, max_size=2)
values = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=8)
items = st.tuples(keys, st.sampled_from("\x01"), values, st.just("\x02")).map("".join) | st.sampled_from(
    ["\x02", "x\x02", "k\x01\x02"]
)
properties = st.lists(items, max_size=6).map(lambda parts: "".join(parts).encode())
records = st.builds(
    Record,
    topic=st.text("tü", min_size=1, max_size=100),
    queue_id=ints,
    body=st.binary(max_size=30),
    properties=properties,
    flag=ints,
    sys_flag=ints,
    born_timestamp=longs,
    born_host=st.sampled_from([PEER, PEER_V6]),
    store_timestamp=longs,
    store_host=st.sampled_from([HOST, HOST_V6]),
    reconsume_times=ints,
    prepared_transaction_offset=longs,
    queue_offset=longs,
    position=longs,
)


def as_tuple(record: Record) -> tuple[object, ...]:
    data = record.encode()
    return (
        len(data),
        struct.unpack_from(">i", data, 8)[0],
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.position,
        struct.unpack_from(">i", data, 36)[0],
        record.born_timestamp,
        record.born_host,
        record.store_timestamp,
        record.store_host,
        record.reconsume_times,
        record.prepared_transaction_offset,
        record.body,
        record.topic,
        record.properties,
    )


def as_message(record: Record, broker_name: str) -> tuple[object, ...]:
    size, _crc, queue_id, flag, queue_offset, position, sys_flag, born_at, born_host, stored_at, host, *rest = as_tuple(
        record
    )
    reconsume_times, prepared, body, topic, text = rest
    assert isinstance(text, bytes)
    place = (topic, broker_name, queue_id, queue_offset, position)
    times = (flag, sys_flag, born_at, born_host, stored_at, host)
    return (*place, body, decode_properties(text), *times, reconsume_times, prepared, size)


def texts(column: object, rows: int) -> list[bytes | None]:
    """An Arrow text column as a list."""
    assert isinstance(column, tuple)
    validity, offsets, data = column
    edges = struct.unpack(f"={rows + 1}i", offsets)
    assert (edges[0], edges[-1]) == (0, len(data))
    assert validity is None or (
        len(validity) == -(-rows // 8) and any(not validity[row // 8] >> row % 8 & 1 for row in range(rows))
    )
    return [
        data[edges[row] : edges[row + 1]] if validity is None or validity[row // 8] >> row % 8 & 1 else None
        for row in range(rows)
    ]


def numbers(column: object, code: str, rows: int) -> list[int]:
    assert isinstance(column, bytes)
    return list(struct.unpack(f"={rows}{code}", column))


def address(host: bytes) -> bytes:
    ip, port = ipaddress.ip_address(host[:-4]), int.from_bytes(host[-4:], "big")
    return f"{ip}:{port}".encode() if ip.version == 4 else f"[{ip}]:{port}".encode()


@given(st.lists(records, max_size=20))
def test_records_decode(sent: list[Record]) -> None:
    data = b"".join(one.encode() for one in sent)
    assert decode_records(data) == decode_records(memoryview(data)) == [as_tuple(one) for one in sent]


@given(st.lists(records, max_size=20))
def test_columns_say_what_records_say(sent: list[Record]) -> None:
    data = b"".join(one.encode() for one in sent)
    columns, rows = decode_columns(data), len(sent)
    assert columns.pop("rows") == struct.pack("=q", rows)
    decoded = decode_records(data)
    for name, code, place in [
        ("queueOffset", "q", 4),
        ("commitLogOffset", "q", 5),
        ("bornTimestamp", "q", 7),
        ("storeTimestamp", "q", 9),
        ("queueId", "i", 2),
        ("flag", "i", 3),
        ("sysFlag", "i", 6),
        ("reconsumeTimes", "i", 11),
    ]:
        assert numbers(columns.pop(name), code, rows) == [one[place] for one in decoded]
    assert texts(columns.pop("topic"), rows) == [one.topic.encode() for one in sent]
    assert texts(columns.pop("body"), rows) == [one.body for one in sent]
    assert texts(columns.pop("bornHost"), rows) == [address(one.born_host) for one in sent]
    maps = [model.parse(one.properties) for one in sent]
    for name, key in [("keys", "KEYS"), ("tags", "TAGS"), ("shardingKey", "__SHARDINGKEY")]:
        assert texts(columns.pop(name), rows) == [one[key].encode() if key in one else None for one in maps]
    ids = [(one.store_host + struct.pack(">q", one.position)).hex().upper() for one in sent]
    assert texts(columns.pop("msgId"), rows) == [one.get("UNIQ_KEY", id).encode() for one, id in zip(maps, ids, strict=True)]
    edges = numbers(columns.pop("propertiesOffsets"), "i", rows + 1)
    names = texts(columns.pop("propertiesKeys"), edges[-1])
    contents = texts(columns.pop("propertiesValues"), edges[-1])
    pairs = [
        (str(name, "utf-8"), str(value, "utf-8")) for name, value in zip(names, contents, strict=True) if name and value
    ]
    assert [dict(pairs[start:end]) for start, end in itertools.pairwise(edges)] == maps
    assert [end - start for start, end in itertools.pairwise(edges)] == [len(one) for one in maps]
    assert columns == {}


def test_many_properties_are_told_apart() -> None:
    text = "".join(f"k{number % 150}\x01{number}\x02" for number in range(400)).encode()
    columns = decode_columns(Record("T", 0, b"", text).encode())
    names, contents = texts(columns["propertiesKeys"], 150), texts(columns["propertiesValues"], 150)
    assert dict(zip(names, contents, strict=True)) == {
        key.encode(): value.encode() for key, value in model.parse(text).items()
    }


def test_bytes_that_are_no_text_are_replaced() -> None:
    data = Record("T", 0, b"", b"").encode()[:-2] + b"\x00\x07TAGS\x01\xff\xfe"
    data = struct.pack(">i", len(data)) + data[4:]
    assert texts(decode_columns(data)["tags"], 1) == ["��".encode()]
    assert decode_records(data)[0][15] == b"TAGS\x01\xff\xfe"


@pytest.mark.parametrize("decode", [decode_records, decode_columns])
def test_the_byte_that_makes_no_sense_is_named(decode: object) -> None:
    assert callable(decode)
    whole = Record("T", 0, b"body", b"a\x01b").encode()
    for bad in (whole[:-1], b"x", bytes(100), struct.pack(">ii", 8, model.BLANK), whole[:4] + bytes(4) + whole[8:]):
        with pytest.raises(ValueError, match=f"no whole record at byte {len(whole)}"):
            decode(whole + bad)


@given(records, st.data())
def test_damaged_records_do_no_harm(record: Record, data: st.DataObject) -> None:
    content = bytearray(record.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(decode_records(content)) >= 1
    except ValueError:
        with pytest.raises(ValueError, match="byte 0"):
            decode_columns(content)


@given(st.lists(records, max_size=5))
def test_messages_are_the_records(found: list[Record]) -> None:
    data = b"".join(record.encode() for record in found)
    messages, flags = decode_messages(data, "broker", lambda *fields: fields, True)
    expected = [as_message(record, "broker") for record in found]
    assert messages == expected
    assert [list(each[6]) for each in messages] == [list(each[6]) for each in expected], "properties keep their order"  # type: ignore[call-overload]
    together = 0
    for each in expected:
        assert isinstance(each[8], int)
        together |= each[8]
    assert flags == together


def test_a_body_that_fails_its_crc_is_told() -> None:
    record = Record("T", 0, b"body", b"", position=7)
    data = record.encode().replace(b"body", b"bidy")
    assert decode_messages(data, "", lambda *fields: fields[5], False)[0] == [b"bidy"]
    with pytest.raises(ValueError, match="position 7 fails its CRC"):
        decode_messages(data, "", lambda *fields: fields, True)
    with pytest.raises(ValueError, match="no whole record at byte"):
        decode_messages(data + b"x", "", lambda *fields: fields, False)


def test_what_makes_messages_may_fail() -> None:
    with pytest.raises(ZeroDivisionError):
        decode_messages(Record("T", 0, b"", b"").encode(), "", lambda *fields: 1 // 0, False)


@given(st.lists(st.binary(max_size=8), max_size=4))
def test_properties_of_messages_are_read_as_everywhere(parts: list[bytes]) -> None:
    """Whatever bytes a peer has stored."""
    text = b"\x02".join(parts) + b"\x02a\x01b"
    data = Record("T", 0, b"", text).encode()
    assert decode_messages(data, "", lambda *fields: fields[6], False)[0] == [decode_properties(text)]


items = st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2"]))


@given(st.lists(st.lists(items, max_size=4), max_size=12))
def test_neighbours_have_properties_of_their_own(found: list[list[tuple[str, str]]]) -> None:
    """Whatever they have in common, names that come twice among it."""
    texts = ["\x02".join(f"{name}\x01{value}" for name, value in each).encode() for each in found]
    data = b"".join(Record("T", 0, b"", text).encode() for text in texts)

    def make(*fields: Any) -> list[tuple[str, str]]:
        read = list(fields[6].items())
        fields[6].update(a="changed", d="added")
        return read

    messages, _ = decode_messages(data, "", make, False)
    assert messages == [list(dict(each).items()) for each in found]
