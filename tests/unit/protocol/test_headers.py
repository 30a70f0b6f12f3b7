"""Every declared header: what it writes it reads, and what it can't read it says."""

import typing

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockmq.base.errors import HeaderError
from rockmq.protocol import headers
from rockmq.protocol.codes import RequestCode
from rockmq.protocol.header import EXCHANGES, Header, decode, encode, keys
from rockmq.protocol.headers.send import SendBatchMessage, SendMessage, SendMessageV2

assert headers.__all__, "importing the package declares all of them"
DECLARED = sorted({kind for exchange in EXCHANGES.values() for kind in exchange}, key=lambda kind: kind.__name__)


def values(kind: type[Header]) -> st.SearchStrategy[Header]:
    fields = {}
    for field in msgspec.structs.fields(kind):
        plain = typing.get_args(field.type)
        optional = type(None) in plain
        names = str(field.type)
        value: st.SearchStrategy[object]
        if "bool" in names:
            value = st.booleans()
        elif "int" in names:
            bits = 63 if "9223372036854775807" in names else 31
            value = st.integers(-(2**bits), 2**bits - 1)
        else:
            value = st.text(st.characters(exclude_categories=["Cs"]))
        fields[field.name] = st.none() | value if optional else value
    return st.builds(kind, **fields)


@pytest.mark.parametrize("kind", DECLARED, ids=lambda kind: kind.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_round_trip(kind: type[Header], data: st.DataObject) -> None:
    header = data.draw(values(kind))
    fields = encode(header)
    assert all(isinstance(value, str) for value in fields.values()), "Go refuses anything but text"
    assert decode(kind, fields | {"unknownToUs": "passes"}) == header


@pytest.mark.parametrize("kind", DECLARED, ids=lambda kind: kind.__name__)
def test_required_fields_are_asked_for_by_their_wire_names(kind: type[Header]) -> None:
    required = [field.encode_name for field in msgspec.structs.fields(kind) if field.required]
    for name in required:
        fields = dict.fromkeys((other for other in required if other != name), "1")
        with pytest.raises(HeaderError, match=f"`{name}`"):
            decode(kind, fields)


def test_codes_are_declared() -> None:
    assert set(EXCHANGES) <= set(RequestCode)


@pytest.mark.parametrize("kind", [SendMessageV2, SendBatchMessage])
def test_letters_stand_for_the_same_attributes(kind: type[SendMessage]) -> None:
    assert [name for name, _ in keys(kind)] == [name for name, _ in keys(SendMessage)]
    assert "".join(key for _, key in keys(kind)) == "abcdefghijklmn"


@pytest.mark.parametrize(("text", "value"), [("true", True), ("TRUE", True), ("false", False), ("1", True)])
def test_booleans_as_java_and_others_write_them(text: str, value: bool) -> None:
    fields = encode(
        SendMessage(
            producer_group="g",
            topic="T",
            default_topic="D",
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=0,
            flag=0,
        )
    )
    assert decode(SendMessage, fields | {"batch": text}).batch is value


@pytest.mark.parametrize("number", ["2147483648", "-2147483649", "", " 1", "0x10"])
def test_bad_numbers_are_named(number: str) -> None:
    fields = dict.fromkeys(("a", "b", "c"), "t") | dict.fromkeys(("d", "f", "g", "h"), "0") | {"e": number}
    with pytest.raises(HeaderError, match=r"\$\.e"):
        decode(SendMessageV2, fields)
