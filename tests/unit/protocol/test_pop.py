"""Handles of popped messages, and the texts of which clients make them: what brokers write, clients read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq.base.errors import ProtocolError
from rockmq.protocol import pop
from rockmq.protocol.pop import ReceiptHandle

TOPICS = {"T": "0", "%RETRY%g_T": "1", "%RETRY%g+T": "2"}
OFFSETS = st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=32, unique=True).map(sorted)
POPPED = st.dictionaries(st.tuples(st.sampled_from(sorted(TOPICS)), st.integers(0, 100)), OFFSETS, max_size=5)


@given(POPPED)
def test_offsets_are_read_as_they_were_written(popped: dict[tuple[str, int], list[int]]) -> None:
    starts = pop.start_offsets((topic, queue_id, offsets[0]) for (topic, queue_id), offsets in popped.items())
    offsets = pop.message_offsets((topic, queue_id, offsets) for (topic, queue_id), offsets in popped.items())
    wanted = {(TOPICS[topic], queue_id): found for (topic, queue_id), found in popped.items()}
    assert pop.parse_message_offsets(offsets) == wanted
    assert pop.parse_start_offsets(starts) == {place: found[0] for place, found in wanted.items()}


@given(st.dictionaries(st.integers(0, 3), st.dictionaries(st.integers(0, 99), st.integers(0, 20), min_size=1), max_size=3))
def test_counts_are_read_as_they_were_written(popped: dict[int, dict[int, int]]) -> None:
    text = pop.order_counts(("T", queue_id, counts) for queue_id, counts in popped.items())
    counts = pop.parse_order_counts(text)
    for queue_id, wanted in popped.items():
        assert {offset: pop.order_count(counts, ("0", queue_id), offset) for offset in wanted} == wanted
    assert pop.order_count(counts, ("1", 0), 0) == 0


def test_a_handle_is_eight_words() -> None:
    handle = ReceiptHandle(5, 1700000000000, 60000, 7, "1", "broker-a", 3, 9)
    assert handle.text == "5 1700000000000 60000 7 1 broker-a 3 9"
    assert ReceiptHandle.parse(handle.text) == handle
    assert pop.parse_handle(handle.text) == (5, 1700000000000, 60000, 7)


@pytest.mark.parametrize("text", ["", "5 17 60 7 0 b 3", "5 17 60 7 0 b 3 9 1", "a 17 60 7 0 b 3 9", "5 17 60 7 0 b x 9"])
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="eight words"):
        ReceiptHandle.parse(text)


@pytest.mark.parametrize("text", ["0 1", "0 1 x", "0 x 1", "0 1 2,", "0 1 2 3", "0  2"])
def test_what_are_no_offsets_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        pop.parse_message_offsets(text)
    with pytest.raises(ProtocolError):
        pop.parse_start_offsets(text)


def test_no_text_is_no_offsets() -> None:
    assert pop.parse_message_offsets(None) == pop.parse_start_offsets("") == {}
    with pytest.raises(ProtocolError, match="counts"):
        pop.parse_order_counts("0 1 2,3")
