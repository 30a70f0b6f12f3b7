"""What peers send, damaged: an error that is meant for it, or a value that encodes back to an equal one."""

import itertools
import json
import random
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

import rockmq.protocol.headers.registration
import rockmq.protocol.headers.send  # noqa: F401  declares
from rockmq._core import Filter, Lane, decode_columns, decode_records, encode_batch, encode_frame
from rockmq.base import address
from rockmq.base.errors import ConfigError, FilterError, HeaderError, ProtocolError
from rockmq.filter import sql, tags
from rockmq.namesrv import registration
from rockmq.protocol import compression, header, ids, message, pop, properties
from rockmq.protocol import json as lenient
from rockmq.protocol.bodies.common import DataVersion, TopicConfig
from rockmq.protocol.bodies.route import RegisterBody, TopicTable
from rockmq.protocol.headers.recall import RecallHandle
from rockmq.protocol.headers.registration import RegisterBroker
from tests.support import model
from tests.support.damage import damaged

GOLDEN = Path(__file__).parents[1] / "golden" / "frames"
FRAMES = [path.read_bytes() for path in sorted(GOLDEN.glob("*.bin"))]
SMALL = [frame for frame in FRAMES if len(frame) < 1500]
FRAME_SIZE_MAX = 1 << 16
HOST = bytes([10, 0, 0, 1, 0, 0, 42, 159])


def test_frames_are_the_same_however_they_are_cut() -> None:
    def check(data: bytes) -> None:
        whole = Lane(None, HOST, FRAME_SIZE_MAX)
        _, _, commands, _, reason = whole.feed(data, 1)
        assert whole.buffered <= len(data)
        pieces, cut = [], Lane(None, HOST, FRAME_SIZE_MAX)
        at = len(data) // 3
        for piece in (data[:at], data[at : at + 5], data[at + 5 :]):
            _, _, some, _, end = cut.feed(piece, 1)
            pieces += some
        assert (pieces, end) == (commands, reason)
        assert cut.buffered == whole.buffered
        for code, _, _, opaque, flag, serializer, remark, fields, body in commands:
            if serializer == 1 and any(not key or not value or len(key.encode()) > 0x7FFF for key, value in fields.items()):
                continue  # empty is null there
            try:
                again = encode_frame(serializer, code, opaque, flag, remark, fields, body)
            except ValueError:
                assert len(body) + sum(map(len, fields)) > 1 << 14
                continue
            [read] = Lane(None, HOST, 1 << 24).feed(again, 1)[2]
            assert (read[0], read[3:]) == (code, (opaque, flag, serializer, remark, fields, body))

    damaged([a + b for a, b in itertools.pairwise(SMALL)], check)


def test_headers_are_what_python_reads() -> None:
    """Whatever the core takes for a header, Python's own parser or the plain model reads the same from."""

    def check(text: bytes) -> None:
        serializer, text = text[:1] == b"\x01", text[1:]
        _, _, commands, _, reason = Lane(None, HOST, 1 << 24).feed(model.frame(text, b"", int(serializer)), 1)
        assert len(commands) == (reason is None)
        if reason is not None:
            return
        code, language, version, opaque, flag, _, remark, fields, _ = commands[0]
        if serializer:
            assert struct.unpack_from(">h", text) == (code,)
            assert struct.unpack_from(">hii", text, 3) == (version, opaque, flag)
            found = _binary_fields(text)
        else:
            document = json.loads(text.decode(errors="replace"), strict=False, parse_int=str, parse_float=str)
            found = document.get("extFields")
            found = found if isinstance(found, dict) else {}
            if remark is not None and isinstance(document["remark"], str):
                assert _halves(document["remark"]) == remark
        assert {_halves(key): _halves(value) for key, value in found.items() if isinstance(value, str)} == {
            key: value for key, value in fields.items() if not isinstance(found.get(key), bool)
        }
        assert language in model.LANGUAGES

    valid = [frame[4:5] + frame[8 : 8 + int.from_bytes(frame[5:8], "big")] for frame in SMALL]
    damaged(valid, check)


def _halves(text: str) -> str:
    """Half a surrogate pair is no character."""
    return "".join("�" if 0xD800 <= ord(one) < 0xE000 else one for one in text)


def _binary_fields(text: bytes) -> dict[str, str]:
    (size,) = struct.unpack_from(">i", text, 13)
    at, fields = 17 + size + 4, {}
    while at < len(text):
        (key_size,) = struct.unpack_from(">h", text, at)
        key = text[at + 2 : at + 2 + key_size].decode(errors="replace")
        (value_size,) = struct.unpack_from(">i", text, at + 2 + key_size)
        at += 6 + key_size
        value = text[at : at + value_size].decode(errors="replace")
        if key_size and value_size:
            fields[key] = value
        elif key_size:
            fields.pop(key, None)
        at += value_size
    return fields


def test_header_fields_are_read_or_refused() -> None:
    exchanges = list(header.EXCHANGES.values())
    kinds = [kind for exchange in exchanges for kind in exchange]
    values = ["0", "-1", "true", "T", "", "9" * 25, "1e3", "2147483648", "null", " 1", "²", "0x1", "1_0", "%RETRY%g", "NaN"]

    def check(data: bytes) -> None:
        chosen = random.Random(data)
        kind = kinds[chosen.randrange(len(kinds))]
        fields = {key: chosen.choice(values) for _, key in header.keys(kind) if chosen.random() < 0.8}
        fields |= {key: data.decode(errors="replace") for _, key in header.keys(kind) if chosen.random() < 0.05}
        try:
            read = header.decode(kind, fields)
        except HeaderError as error:
            assert str(error).startswith(kind.__name__)
            return
        assert header.decode(kind, header.encode(read)) == read

    damaged([b"topic", b"12345", "имя".encode()], check)


def test_properties_are_the_same_in_python_and_in_the_core() -> None:
    def check(data: bytes) -> None:
        text = data[: properties.SIZE_MAX]
        found = properties.decode(text)
        if not any(properties.NAME_END in value for value in found.values()):
            assert properties.decode(properties.encode(found)) == found
        columns = decode_columns(model.Record("T", 0, b"", text).encode())
        for name, key in (("keys", "KEYS"), ("tags", "TAGS"), ("shardingKey", "__SHARDINGKEY")):
            column = columns[name]
            assert isinstance(column, tuple)
            assert column[2] == found.get(key, "").encode()
        if not data.isascii():
            return  # names that are no text become equal when they are replaced
        names, values = columns["propertiesKeys"], columns["propertiesValues"]
        assert names[2] == "".join(found).encode()
        assert values[2] == "".join(found.values()).encode()

    damaged(
        [b"KEYS\x01a b\x02TAGS\x01t\x02x\x01y\x02__SHARDINGKEY\x01s", b"a\x01b\x02\x02UNIQ_KEY\x01U\x02TAGS\x01\x02"], check
    )


def records() -> list[bytes]:
    chosen, found = random.Random(1), []
    for number in range(60):
        record = model.Record(
            topic=("T", "ü", "t" * 130)[number % 3],
            queue_id=number,
            body=chosen.randbytes(number),
            properties=(b"", b"TAGS\x01a\x02", b"UNIQ_KEY\x01U\x02a\x01\xff\x02")[number % 3],
            sys_flag=(0, 0, 1, 8, 4)[number % 5],
            born_host=bytes(8 if number % 4 else 20),
            store_host=bytes(8 if number % 7 else 20),
            queue_offset=number,
            position=number * 77,
        )
        found.append(record.encode())
    return [one + other for one, other in itertools.pairwise(found)]


def test_records_are_what_the_plain_reading_says() -> None:
    def check(data: bytes) -> None:
        expected = _plain_records(data)
        if expected is None:
            for decode in (decode_records, decode_columns):
                with pytest.raises(ValueError, match="no whole record at byte"):
                    decode(data)
            with pytest.raises(ProtocolError):
                message.decode_stored(data)
            return
        assert decode_records(data) == expected
        assert decode_columns(data)["rows"] == struct.pack("=q", len(expected))
        try:
            stored = message.decode_stored(data)
        except ProtocolError:
            assert any(one[6] & 0x41 for one in expected)  # a body that says it is compressed, or an inner batch
            return
        if any(one[6] & 0xC0 == 0xC0 for one in expected):
            return  # an inner batch is as many messages as it holds
        assert [one.queue_offset for one in stored] == [one[4] for one in expected]
        assert all(isinstance(one.born_address, str) and isinstance(one.offset_id, str) for one in stored)

    damaged(records(), check)


def _plain_records(data: bytes) -> list[tuple[object, ...]] | None:
    """`decode_records` said again; None where it should refuse."""
    found: list[tuple[object, ...]] = []
    while data:
        try:
            size, magic, crc, queue_id, flag, offset, position, sys_flag, born = struct.unpack_from(">iiiiiqqiq", data)
            if magic not in (model.V1, model.V2) or not 0 <= size <= len(data):
                return None
            rest = data[48:size]
            born_size, store_size = 20 if sys_flag & 0x10 else 8, 20 if sys_flag & 0x20 else 8
            born_host, rest = rest[:born_size], rest[born_size:]
            (store_time,), store_host, rest = (
                struct.unpack_from(">q", rest),
                rest[8 : 8 + store_size],
                rest[8 + store_size :],
            )
            reconsumed, prepared, body_size = struct.unpack_from(">iqi", rest)
            rest = rest[16:]
            if not 0 <= body_size <= len(rest):
                return None
            body, rest = rest[:body_size], rest[body_size:]
            width = 1 if magic == model.V1 else 2
            (topic_size,) = struct.unpack_from(">b" if width == 1 else ">h", rest)
            topic, rest = rest[width : width + topic_size], rest[width + topic_size :]
            (text_size,) = struct.unpack_from(">h", rest)
        except struct.error:
            return None
        if topic_size < 0 or text_size < 0 or len(rest) != 2 + text_size:
            return None
        fixed = (size, crc, queue_id, flag, offset, position, sys_flag, born, born_host, store_time, store_host)
        found.append((*fixed, reconsumed, prepared, body, topic.decode(errors="replace"), rest[2:]))
        data = data[size:]
    return found


def test_batches_are_read_or_refused() -> None:
    def check(data: bytes) -> None:
        try:
            messages = message.decode_batch(data)
        except ProtocolError as error:
            assert str(error).startswith("batch: message")
            return
        again = encode_batch(messages)
        assert len(again) == len(data)
        assert message.decode_batch(again) == messages

    one, other = (5, b"hello", b"a\x01b\x02"), (-1, b"", b"")
    damaged([encode_batch(some) for some in ([one], [one, other], [other, one, one])], check)


def test_message_ids_are_read_or_refused() -> None:
    def check(data: bytes) -> None:
        text = data.decode(errors="replace")
        try:
            ip, port, position = ids.parse_offset_id(text)
        except ProtocolError:
            return
        assert isinstance(ip, str)
        assert isinstance(port, int)
        assert 0 <= position < 1 << 64

    damaged([ids.offset_id(HOST, 77).encode(), ids.offset_id(bytes(19) + b"\x01", 1 << 40).encode()], check)


def test_recall_handles_are_read_or_refused() -> None:
    handle = RecallHandle("orders", "broker-a", 1_700_000_000_001, "7F00000100000000000000000000000A").encode()

    def check(data: bytes) -> None:
        try:
            read = RecallHandle.decode(data.decode("latin-1"))
        except ProtocolError:
            return
        assert RecallHandle.decode(read.encode()) == read

    damaged([handle.encode(), handle.rstrip("=").encode()], check)


def test_texts_of_pops_are_read_or_refused() -> None:
    readers = [pop.parse_start_offsets, pop.parse_message_offsets, pop.parse_order_counts]

    def check(data: bytes) -> None:
        text = data.decode(errors="replace")
        for read_text in readers:
            try:
                places = read_text(text)
            except ProtocolError:
                continue
            assert all(isinstance(flag, str) for flag, _ in places)  # type: ignore[attr-defined]
        try:
            handle = pop.ReceiptHandle.parse(text)
        except ProtocolError:
            return
        assert pop.ReceiptHandle.parse(handle.text) == handle

    damaged([b"6 100 60 5 0 broker-a 2 7", b"0 2 6;1 0 1", b"0 2 7,9;1 0 1", b"0 2 0;0 qo2%9 4"], check)


def test_addresses_are_read_or_refused() -> None:
    def check(data: bytes) -> None:
        text = data.decode(errors="replace")
        try:
            host, port = address.split(text)
        except ConfigError:
            return
        assert 0 <= port <= 65535
        assert host in text

    damaged([b"10.0.0.1:10911", b"[::1]:9876", b"broker-a:1", "h:²".encode(), b"h:" + b"7" * 5000], check)


def test_tag_expressions_have_codes() -> None:
    def check(data: bytes) -> None:
        text = data.decode(errors="replace")
        found = tags.codes(text)
        assert found is None or found == tuple(map(model.java_hash, tags.split(text)))

    damaged([b"*", b"a || b||c", "тег || 😀".encode(), b"TagA"], check)


def test_expressions_are_programs_that_run_or_are_refused() -> None:
    def check(data: bytes) -> None:
        try:
            program = sql.program(data.decode(errors="replace"))
        except FilterError:
            return
        Filter(program).matches(b"a\x015\x02b\x01x\x02")

    valid = [
        "a BETWEEN 1 AND 9 OR (b IS NOT NULL AND NOT (a IN ('x', 'y''z')))",
        "-a <= 5.5e3 AND b <> 'ü' /* why */ OR TRUE = (a = 5L) -- so\n",
        "b NOT CONTAINS 'x' AND b STARTSWITH 'y' OR a ENDSWITH '' AND a is null",
    ]
    damaged([each.encode() for each in valid], check)


def test_compressed_bodies_are_read_or_refused() -> None:
    body = b"hello hello hello" * 20
    kinds = list(compression.Compression)

    def check(data: bytes) -> None:
        for kind in kinds:
            try:
                plain = compression.decompress(kind.flags, data)
            except ProtocolError:
                continue
            assert len(plain) <= compression.BODY_SIZE_MAX
            assert compression.decompress(kind.flags, compression.compress(kind, plain)) == plain

    damaged([compression.compress(kind, body) for kind in kinds], check)


TABLE = TopicTable(topic_config_table={"T": TopicConfig(topic_name="T", attributes={"a": "b"})})
REGISTER = RegisterBroker(
    broker_name="b", broker_addr="10.0.0.1:1", cluster_name="c", ha_server_addr="10.0.0.1:2", broker_id=0
)


def counted(*parts: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(part)) + part for part in parts)


COMPRESSED = (
    counted(lenient.encode(DataVersion(counter=1)))
    + struct.pack(">i", 2)
    + counted(b"T 4 4 6 SINGLE_TAG", b'U 1 2 6 MULTI_TAG {"a":"b"}')
    + counted(b"[]")
    + struct.pack(">i", 1)
    + counted(b'{"topic":"T"}')
)


@pytest.mark.parametrize("shape", ["plain", "old", "compressed", "inflated"])
def test_registrations_are_read_or_refused(shape: str) -> None:
    shapes: dict[str, tuple[bytes, int, Callable[[bytes], bytes]]] = {
        "plain": (lenient.encode(RegisterBody(topic_config_serialize_wrapper=TABLE)), 479, bytes),
        "old": (lenient.encode(TABLE), 1, bytes),
        "compressed": (zlib.compress(COMPRESSED), 479, bytes),
        "inflated": (COMPRESSED, 479, lambda data: zlib.compress(data, 0)),
    }
    valid, version, wrapped = shapes[shape]

    def check(data: bytes) -> None:
        try:
            read = registration.decode(REGISTER, wrapped(data), version, None)
        except ProtocolError:
            return
        assert all(0 <= topic.write_queue_nums <= registration.QUEUES_MAX for topic in read.topics.values())
        lenient.encode(read.topics)

    damaged([valid], check, tests=len(shapes))
