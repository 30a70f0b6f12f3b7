import itertools
import struct
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rockmq.base.errors import ProtocolError
from rockmq.protocol import ids, properties
from rockmq.protocol.codec import encode_batch, encode_bodies
from rockmq.protocol.compression import Compression, compress, decompress
from rockmq.protocol.flags import MessageFlag
from rockmq.protocol.message import INNER, Message, decode_batch, decode_stored, unwrap
from tests.support.clock import FakeClock
from tests.support.model import Record

DAY_MS = 86_400_000

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


@given(st.lists(st.binary(max_size=50), max_size=40), st.text("0123456789ABCDEF", max_size=24), st.integers(0, 2**47))
def test_bodies_get_ids_that_count(bodies: list[bytes], prefix: str, first: int) -> None:
    body, ids = encode_bodies(bodies, prefix, first)
    assert ids == ["%s%012X" % (prefix, number) for number in range(first, first + len(bodies))]  # noqa: UP031
    assert body == encode_batch(zip(itertools.repeat(0), bodies, ids))


def test_what_is_too_large_for_a_batch_is_told() -> None:
    with pytest.raises(ValueError, match="a batch can't hold 1 bytes of body and 40010 of properties"):
        encode_bodies([b"x"], "A" * (40_000 - 12), 0)
    with pytest.raises(TypeError):
        encode_bodies(["text"], "", 0)  # type: ignore[list-item]


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
    assert len(set(made)) == 70_000
    assert made == sorted(made)
    assert all(len(each) == 32 and each == each.upper() and each.startswith("0A000001") for each in made[:100])


def test_unique_ids_of_one_millisecond_are_as_many_as_it_takes() -> None:
    maker = ids.UniqueIds(bytes(4), FakeClock())
    made = [maker.make() for _ in range(140_000)]
    assert made == sorted(set(made))


@given(st.lists(st.one_of(st.integers(-2000, 2000), st.integers(-(40 * DAY_MS), 40 * DAY_MS)), max_size=40))
def test_unique_ids_stay_unique_when_the_clock_steps(steps: list[int]) -> None:
    clock = FakeClock()
    maker = ids.UniqueIds(bytes(4), clock)
    made = [maker.make()]
    for step in steps:
        clock.pass_ms(step)
        before, fresh = made[-1], maker.make()
        made += [fresh, *(maker.make() for _ in range(3))]
        if before[:20] == fresh[:20]:
            assert before < fresh, "in the order in which they were made"
        since = int(fresh[20:28], 16)
        begun = datetime.fromtimestamp(clock.now_ms() / 1000).astimezone()  # as tools take an id's time
        month = begun.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        assert 0 <= since - (clock.now_ms() - round(month.timestamp() * 1000)) <= ids.BACK_MS_MAX
    assert len(set(made)) == len(made)


def test_message_puts_tag_and_keys_where_they_travel() -> None:
    message = Message("T", b"x", tag="t", keys=["a", "b"], properties={"mine": "1"})
    assert message.all_properties() == {"mine": "1", "TAGS": "t", "KEYS": "a b"}


def test_a_message_names_light_queues() -> None:
    """Each once, also those of an earlier call; whoever gave the properties has them as they were."""
    mine = {"a": "b"}
    message = Message("T", b"x", properties=mine).also_in("a", "%LMQ%b").also_in("b", "c@d").also_in()
    assert message.properties == {"a": "b", "INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b,%LMQ%c@d"}
    assert mine == {"a": "b"}
    assert Message("T", b"x").also_in().properties == {}


@pytest.mark.parametrize(
    ("names", "offsets", "told"),
    [
        ("%LMQ%a,%LMQ%b", "7,0", {"a": 7, "b": 0}),
        ("%LMQ%a,", "7", {"a": 7}),
        ("%LMQ%a,b", "7,8", {"a": 7}),
        ("%LMQ%a", "7,8", {}),
        ("%LMQ%a", "٣", {}),
        ("%LMQ%a", "9" * 20, {}),
        ("%LMQ%a,%LMQ%b", "-1,1", {"b": 1}),
        ("", "", {}),
    ],
)
def test_where_a_message_is_in_light_queues(names: str, offsets: str, told: dict[str, int]) -> None:
    [message] = decode_stored(Record("T", 0, b"x", b"").encode())
    message.properties = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets}
    assert message.light_queues == told
