"""A lane without a store: cutting frames and reading headers, as a client does."""

import itertools
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq._core import Lane, encode_frame
from tests.support import model
from tests.support.model import Header

FRAME_SIZE_MAX = 1 << 16

texts = st.text(st.characters(codec="utf-8"), max_size=12)
headers = st.builds(
    Header,
    code=st.integers(-(2**15), 2**15 - 1),
    language=st.sampled_from(model.LANGUAGES),
    version=st.integers(0, 2**15 - 1),
    opaque=st.integers(-(2**31), 2**31 - 1),
    flag=st.integers(0, 3),
    remark=st.none() | texts.filter(bool),
    fields=st.dictionaries(texts.filter(bool), texts.filter(bool), max_size=6),
)
frames = st.lists(st.tuples(headers, st.binary(max_size=20), st.integers(0, 1)), max_size=5)


def lane() -> Lane:
    return Lane(None, bytes(8), FRAME_SIZE_MAX)


def command(header: Header, body: bytes = b"", serializer: int = 0) -> tuple[object, ...]:
    return (
        header.code,
        header.language,
        header.version,
        header.opaque,
        header.flag,
        serializer,
        header.remark,
        header.fields,
        body,
    )


def feed_all(lane: Lane, data: bytes, cuts: list[int]) -> tuple[list[object], str | None]:
    commands: list[object] = []
    reason = None
    edges = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for start, end in itertools.pairwise(edges):
        replies, position, more, watched, reason = lane.feed(data[start:end], 1)
        assert (replies, position, watched) == (b"", 0, [])
        commands += more
    return commands, reason


def read(header: bytes, body: bytes = b"", serializer: int = 0) -> tuple[list[object], str | None]:
    return feed_all(lane(), model.frame(header, body, serializer), [])


@given(frames, st.lists(st.integers(0, 600)), st.booleans(), st.booleans())
def test_any_chunking_gives_the_same_commands(
    sent: list[tuple[Header, bytes, int]], cuts: list[int], ascii_only: bool, spaces: bool
) -> None:
    data = b"".join(
        model.frame(
            model.binary_header(header) if serializer else model.json_header(header, ascii_only=ascii_only, spaces=spaces),
            body,
            serializer,
        )
        for header, body, serializer in sent
    )
    commands, reason = feed_all(lane(), data, cuts)
    assert reason is None
    assert commands == [command(*one) for one in sent]


@given(headers, st.binary(max_size=20), st.integers(0, 1))
def test_our_frames_read_back(header: Header, body: bytes, serializer: int) -> None:
    arguments = (serializer, header.code, header.opaque, header.flag, header.remark, header.fields)
    data = encode_frame(*arguments, body)
    [(ours, read_body, read_serializer)] = model.decode(data)
    expected = Header(header.code, "PYTHON", 479, header.opaque, header.flag, header.remark, header.fields)
    assert (ours, read_body, read_serializer) == (expected, body, serializer)
    assert feed_all(lane(), data, [])[0] == [command(expected, body, serializer)]


@pytest.mark.parametrize("chunk", [bytes, bytearray, memoryview, lambda data: memoryview(b"x" + data)[1:]])
def test_any_buffer_is_taken(chunk: type) -> None:
    [got] = lane().feed(chunk(model.encode(Header(code=5), b"body")), 1)[2]
    assert got == command(Header(code=5), b"body")


def test_a_lane_holds_only_what_has_arrived() -> None:
    one = lane()
    data = model.encode(Header(code=5), bytes(5000))
    assert one.buffered == 0
    one.feed(data + data[:3], 1)
    assert one.buffered == 3
    one.feed(data[3:100], 1)
    assert one.buffered == 100
    assert len(one.feed(data[100:], 1)[2]) == 1
    assert one.buffered == 0
    assert one.feed(b"", 1) == (b"", 0, [], [], None)


def test_json_values_of_all_kinds() -> None:
    header = (
        rb'{"code":"11","extFields":{"i":-12,"f":1.5e3,"t":true,"n":null,"o":{"a":[1,{}]},"e":"","twice":"a",'
        rb'"u":"\u0001\"\\\/\b\f\n\r\t\ud83d\ude00\ud800x\udc00","twice":"b","gone":"x","gone":null},'
        rb'"language":9,"other":[[],{"x":[true,false,null]}],"version":317,"flag":1,"opaque":-7}'
    )
    [got], reason = read(header)
    assert reason is None
    fields = {"i": "-12", "f": "1.5e3", "t": "true", "e": "", "twice": "b", "u": '\x01"\\/\b\f\n\r\t😀�x�'}
    assert got == (11, "GO", 317, -7, 1, 0, None, fields, b"")


@pytest.mark.parametrize(
    ("header", "fields"),
    [
        (b"{}", {}),
        (b' \t\r\n{ "extFields" : null } ', {}),
        (b'{"extFields":[1]}', {}),
        (b'{"extFields":{"a":"b"},"extFields":{"c":"d"}}', {"c": "d"}),
        (b'{"extFields":{"a":"\x01\xff"}}', {"a": "\x01\ufffd"}),
    ],
)
def test_odd_json_is_read_as_java_does(header: bytes, fields: dict[str, str]) -> None:
    [got], reason = read(header)
    assert reason is None
    assert got == (0, "OTHER", 0, 0, 0, 0, None, fields, b"")


@pytest.mark.parametrize("language", [b'"KLINGON"', b"99", b"-1", b"null", b"{}", b"1e5"])
def test_unknown_languages_are_other(language: bytes) -> None:
    [got], _ = read(b'{"language":' + language + b"}")
    assert isinstance(got, tuple)
    assert got[1] == "OTHER"


def test_binary_keys_may_come_twice_and_empty_is_null() -> None:
    entries = b"".join(
        struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value
        for key, value in [(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"b", b""), (b"", b"x"), (b"c", b"")]
    )
    header = struct.pack(">hBhiiii", -5, 200, 1, 2, 3, 0, len(entries)) + entries
    [got], reason = read(header, b"", 1)
    assert reason is None
    assert got == (-5, "OTHER", 1, 2, 3, 1, None, {"a": "2"}, b"")


BINARY = model.binary_header(Header(code=1, remark="r", fields={"key": "value"}))
BAD_FRAMES = {
    "length 3": (struct.pack(">i", 3), "frame length 3 is not within 4 … 65532"),
    "negative length": (struct.pack(">i", -1), "frame length -1"),
    "least length": (struct.pack(">i", -(2**31)), "frame length -2147483648"),
    "over the bound": (struct.pack(">i", FRAME_SIZE_MAX - 3), "frame length 65533"),
    "header over frame": (struct.pack(">iI", 10, 7), "header length 7 is over 6"),
    "serializer 2": (struct.pack(">iI", 10, 2 << 24), "serializer 2"),
    "serializer 255": (struct.pack(">iI", 10, 255 << 24 | 2), "serializer 255"),
    "no JSON": (model.frame(b"hello"), "'h' at byte 0"),
    "empty header": (model.frame(b""), "ends at byte 0"),
    "cut JSON": (model.frame(b'{"code":1'), "ends at byte 9"),
    "array": (model.frame(b"[]"), "'{' should be"),
    "rest behind": (model.frame(b"{}x"), "the end should be"),
    "bad escape": (model.frame(rb'{"a":"\x"}'), "an escape"),
    "code over 32 bits": (model.frame(b'{"code":2147483648}'), "code '2147483648' is not a 32-bit integer"),
    "opaque text": (model.frame(b'{"opaque":"abc"}'), "opaque 'abc'"),
    "deep": (model.frame(b'{"a":' + b"[" * 10_000), "nests deeper than 32"),
    "deep in fields": (model.frame(b'{"extFields":{"a":' + b'{"a":' * 10_000), "nests deeper than 32"),
    "binary cut": (model.frame(BINARY[:20], b"", 1), "extFields takes 4 bytes"),
    "binary empty": (model.frame(b"", b"", 1), "code takes 2 bytes, over 0"),
    "binary rest": (model.frame(BINARY + b"x", b"", 1), "extFields length"),
    "binary remark": (model.frame(BINARY[:13] + struct.pack(">i", 99) + BINARY[17:], b"", 1), "remark takes 99 bytes"),
    "negative remark": (model.frame(BINARY[:13] + struct.pack(">i", -1) + BINARY[17:], b"", 1), "remark length -1"),
    "binary value": (
        model.frame(BINARY[:-9] + struct.pack(">i", 2**31 - 1) + b"value", b"", 1),
        "extFields value takes 2147483647 bytes",
    ),
    "negative key": (model.frame(BINARY[:22] + struct.pack(">h", -2) + BINARY[24:], b"", 1), "key length -2"),
}


@pytest.mark.parametrize("case", BAD_FRAMES)
@pytest.mark.parametrize("step", [1, 3, 100_000])
def test_a_frame_that_cannot_be_trusted_ends_the_lane(case: str, step: int) -> None:
    data, words = BAD_FRAMES[case]
    good = model.encode(Header(code=7), b"x")
    one = lane()
    commands, reason = feed_all(one, good + data, list(range(0, len(good + data), step)))
    assert commands == [command(Header(code=7), b"x")]
    assert reason is not None
    assert words in reason
    assert one.feed(good, 1) == (b"", 0, [], [], reason)
    assert one.buffered == 0


@given(st.binary(max_size=300), st.integers(0, 1))
def test_hostile_headers_do_no_harm(header: bytes, serializer: int) -> None:
    commands, reason = read(header, b"", serializer)
    assert len(commands) == (reason is None)


@given(headers, st.integers(0, 1), st.data())
def test_damaged_headers_do_no_harm(header: Header, serializer: int, data: st.DataObject) -> None:
    head = bytearray((model.json_header, model.binary_header)[serializer](header))
    for _ in range(data.draw(st.integers(1, 3))):
        head[data.draw(st.integers(0, len(head) - 1))] = data.draw(st.integers(0, 255))
    commands, reason = read(bytes(head), b"", serializer)
    assert len(commands) == (reason is None)
    if serializer == 0 and reason is None:
        json.loads(head.decode(errors="replace"), strict=False)


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="peer has 5 bytes"):
        Lane(None, bytes(5), 1 << 20)
    with pytest.raises(ValueError, match="frame_size_max 7"):
        Lane(None, bytes(8), 7)
    with pytest.raises(ValueError, match="serializer 2"):
        encode_frame(2, 0, 0, 0, None, {}, b"")
    with pytest.raises(ValueError, match="key of 40000 bytes"):
        encode_frame(1, 0, 0, 0, None, {"k" * 40_000: ""}, b"")
    with pytest.raises(ValueError, match="over what a frame can hold"):
        encode_frame(0, 0, 0, 0, "x" * (1 << 24), {}, b"")
    with pytest.raises(TypeError):
        encode_frame(0, 0, 0, 0, None, {"a": 1}, b"")  # type: ignore[dict-item]
    with pytest.raises(UnicodeEncodeError):
        encode_frame(0, 0, 0, 0, None, {"a": "\ud800"}, b"")
    with pytest.raises(TypeError):
        lane().feed("text", 1)  # type: ignore[arg-type]
