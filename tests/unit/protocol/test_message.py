import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rockmq.base.errors import ProtocolError
from rockmq.protocol import ids, properties
from rockmq.protocol.compression import Compression, compress, decompress
from rockmq.protocol.flags import MessageFlag
from rockmq.protocol.message import INNER, Message, decode_batch, decode_stored, encode_batch, unwrap
from tests.support.model import Record

clean = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=20)


@given(st.dictionaries(clean, clean, max_size=8))
def test_properties_round_trip(found: dict[str, str]) -> None:
    assert properties.decode(properties.encode(found)) == found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02c\x02\x01d\x02e\x01\x02f\x01g\x02", {"a": "b", "f": "g"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01\xff\x02", {"a": "�"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: bytes, expected: dict[str, str]) -> None:
    assert properties.decode(text) == expected


def test_properties_that_cannot_be_written() -> None:
    with pytest.raises(ProtocolError, match="separator"):
        properties.encode({"a": "b\x02c"})
    with pytest.raises(ProtocolError, match="32767"):
        properties.encode({"a": "b" * 32_767})


@pytest.mark.parametrize(
    ("tag", "code"),
    [("TagA", 2598919), ("polygenelubricants", -2147483648), ("Zürich", -1482116162), ("😀", 1772899), ("", 0)],
)
def test_tag_code_is_javas_hash(tag: str, code: int) -> None:
    """Vectors from the JVM: clients' spec, 3.11."""
    assert properties.tag_code(tag) == code


@pytest.mark.parametrize("kind", Compression)
@given(body=st.binary(max_size=10_000))
def test_compression_round_trip(kind: Compression, body: bytes) -> None:
    assert decompress(kind.flags, compress(kind, body)) == body


@pytest.mark.parametrize("kind", Compression)
def test_broken_body_is_told(kind: Compression) -> None:
    packed = compress(kind, b"some body " * 100)
    for broken in (packed[:-5], b"garbage" + packed, b""):
        with pytest.raises(ProtocolError):
            assert decompress(kind.flags, broken) == b"some body " * 100


@pytest.mark.parametrize("kind", Compression)
def test_body_that_unfolds_without_bound_is_refused(kind: Compression) -> None:
    with pytest.raises(ProtocolError, match="over 67108864 bytes"):
        decompress(kind.flags, compress(kind, bytes((64 << 20) + 1)))


def test_zlib_is_what_old_clients_mean() -> None:
    assert decompress(0x1, compress(Compression.ZLIB, b"old")) == b"old"
    assert decompress(0x0, b"plain") == b"plain"
    with pytest.raises(ProtocolError, match="unknown compression type 7"):
        decompress(0x701, b"x")


@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50), st.binary(max_size=50)), max_size=5))
def test_batch_round_trip(messages: list[tuple[int, bytes, bytes]]) -> None:
    assert decode_batch(encode_batch(messages)) == messages


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_an_error(data: bytes) -> None:
    try:
        assert encode_batch(decode_batch(data)).__len__() == len(data)
    except ProtocolError as error:
        assert str(error).startswith("batch: ")


@given(st.binary(max_size=200))
def test_any_bytes_are_stored_messages_or_an_error(data: bytes) -> None:
    try:
        decode_stored(data)
    except ProtocolError as error:
        assert str(error).startswith("stored messages: ")


texts = st.dictionaries(clean, clean, max_size=3).map(properties.encode)
batches = st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50), texts), max_size=4)
hosts = st.sampled_from([bytes([10, 0, 0, 1]) + bytes(4), bytes(range(16)) + bytes(4)])


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """A stored record, and often an inner batch, compressed or not."""
    flags, body = draw(st.sampled_from([(0, b"plain"), (INNER, b""), (INNER | Compression.ZLIB.flags, b"")]))
    if flags & INNER:
        body = encode_batch(draw(batches))
    if flags & MessageFlag.COMPRESSED:
        body = compress(Compression.ZLIB, body)
    return Record(
        topic=draw(st.sampled_from(["T", "t" * 200])),
        queue_id=3,
        body=body,
        properties=draw(texts),
        flag=5,
        sys_flag=flags,
        born_timestamp=7,
        born_host=draw(hosts),
        store_timestamp=8,
        store_host=draw(hosts),
        reconsume_times=9,
        prepared_transaction_offset=10,
        queue_offset=draw(st.integers(0, 2**40)),
        position=draw(st.integers(0, 2**40)),
    ).encode()


@given(st.lists(records(), max_size=4).map(b"".join))
def test_unwrapped_records_are_the_messages_that_consumers_see(data: bytes) -> None:
    unwrapped = unwrap(data, strict=True)
    assert unwrap(unwrapped, strict=True) == unwrapped
    seen, again = (
        [replace(message, size=0, sys_flag=0) for message in decode_stored(stored, check_crc=True)]
        for stored in (data, unwrapped)
    )
    assert again == seen


def test_a_batch_that_cannot_be_taken_apart_is_an_error_or_stays_as_it_is() -> None:
    whole, broken = (Record("T", 0, body, b"", sys_flag=INNER, queue_offset=4).encode() for body in (b"", b"no batch"))
    assert unwrap(whole, strict=True) == b""
    with pytest.raises(ProtocolError, match="inner batch at offset 4"):
        unwrap(broken, strict=True)
    assert unwrap(broken, strict=False) == broken


def test_offset_ids() -> None:
    host = bytes([10, 0, 0, 1]) + struct.pack(">i", 10911)
    assert ids.offset_id(host, 255) == "0A00000100002A9F00000000000000FF"
    assert ids.parse_offset_id("0A00000100002A9F00000000000000FF") == ("10.0.0.1", 10911, 255)
    six = bytes(15) + b"\1" + struct.pack(">i", 10911)
    assert ids.parse_offset_id(ids.offset_id(six, 2**40)) == ("::1", 10911, 2**40)
    for bad in ("", "0A", "xyz", "0" * 33):
        with pytest.raises(ProtocolError, match="32 or 56"):
            ids.parse_offset_id(bad)


def test_unique_ids_are_unique_and_have_the_form() -> None:
    maker = ids.UniqueIds(bytes([10, 0, 0, 1]))
    made = [maker.make() for _ in range(70_000)]
    assert len(set(made)) >= 65_536
    assert all(len(each) == 32 and each == each.upper() and each.startswith("0A000001") for each in made[:100])


def test_message_puts_tag_and_keys_where_they_travel() -> None:
    message = Message("T", b"x", tag="t", keys=["a", "b"], properties={"mine": "1"})
    assert message.all_properties() == {"mine": "1", "TAGS": "t", "KEYS": "a b"}
