import json as plain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq.base.errors import ProtocolError
from rockmq.protocol import json
from rockmq.protocol.bodies.common import MessageQueue


def test_bare_numbers_as_keys() -> None:
    text = '{"offsetTable":{"T@g":{0:10,1:7},"a{0:1}b":{-1:2}}}'
    assert plain.loads(json.standard(text)) == {"offsetTable": {"T@g": {"0": 10, "1": 7}, "a{0:1}b": {"-1": 2}}}


def test_objects_as_keys() -> None:
    text = b'{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"T"}:7}}'
    decoded = json.decode(text, dict[str, dict[str, int]], "offsets")
    ((key, offset),) = decoded["offsetTable"].items()
    assert (MessageQueue.parse(key), offset) == (MessageQueue("T", "b", 3), 7)
    assert b'{"offsetTable":' + json.object_map({MessageQueue("T", "b", 3).key(): 7}) + b"}" == text


def test_bytes_that_are_no_text_are_refused() -> None:
    """In a string of a value that is otherwise right, which the quick decoder finds out late."""
    with pytest.raises(ProtocolError, match=r"names: .*utf-8"):
        json.decode(b'{"a":"\xff"}', dict[str, str], "names")


trees = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(trees, st.sampled_from([None, 1, "\t"]))
def test_standard_json_stays_what_it_is(tree: object, indent: int | str | None) -> None:
    assert plain.loads(json.standard(plain.dumps(tree, indent=indent, ensure_ascii=False))) == tree


@given(st.text("{}[]:,\"'\\01ax \n", max_size=60))
def test_any_text_is_json_or_an_error(text: str) -> None:
    try:
        json.decode(text.encode(), dict[str, int], "thing")
    except ProtocolError as error:
        assert str(error).startswith("thing: ")


@pytest.mark.parametrize("text", ["[" * 10_000, '{"a":' * 10_000, "{" * 10_000, "{1:" * 10_000])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        json.decode(text.encode(), dict[str, int], "thing")
