"""Filters as the core runs them; what they come to is in `tests/unit/filter/test_sql.py`."""

from pathlib import Path

import pytest

from rockmq._core import Filter
from rockmq.filter import sql
from tests.support import model
from tests.support.model import Record
from tests.unit.core import stores
from tests.unit.core.stores import HOST, HOST_V6, PEER, PEER_V6

LONG = "n" * 128


@pytest.mark.parametrize(
    ("program", "fault"),
    [
        ([], "0 values are left"),
        ([("constant", 1), ("constant", 2)], "2 values are left"),
        ([("=", None)], "instruction 0 finds 0 of 2"),
        ([("constant", 1), ("=", None)], "instruction 1 finds 1 of 2"),
        ([("constant", 1), ("constant", 2), ("between", None)], "finds 2 of 3"),
        ([("not", None)], "finds 0 of 1"),
        ([("property", "a")], "a value is left, not a condition"),
        ([("property", "a"), ("not", None)], "instruction 1 finds a value"),
        ([("constant", True), ("constant", 5), ("and", None)], "instruction 2 finds a value"),
        ([("constant", True), ("and skip", 1)], "jumps out"),
        ([("constant", True), ("or skip", 2**40)], "jumps out"),
        ([("like", "x")], 'no instruction "like"'),
    ],
)
def test_a_program_that_cannot_run_is_refused(program: list[sql.Instruction], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Filter(program)


@pytest.mark.parametrize(
    "program",
    [[("property", 5)], [("constant", b"x")], [("in", "x")], [("contains", None)], [("and skip", -1)]],
)
def test_an_operand_of_another_type_is_refused(program: list[sql.Instruction]) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        Filter([("constant", True), *program])


@pytest.mark.parametrize("skip", range(9))
@pytest.mark.parametrize("first", [True, False])
def test_a_jump_to_anywhere_does_no_harm(skip: int, first: bool) -> None:
    program: list[sql.Instruction] = [("constant", first), ("and skip", skip), ("constant", True), ("constant", True)]
    program += [("constant", True), ("and", None), ("and", None), ("and", None), ("not", None), ("not", None)]

    Filter(program).matches(b"")

    # It jumps only when it is false, which then decides, where the stack is as without it.
    assert Filter(program).matches(b"") is first or skip not in (0, 6)


def test_all_kinds_of_records_are_filtered_by_their_properties(tmp_path: Path) -> None:
    """V1 and V2, addresses of both kinds, with and without body; and tags come before the expression."""
    store = stores.fresh(tmp_path)
    try:
        wanted = Filter(sql.program("a = 1"))
        for topic in ("T", LONG):
            for host in (PEER, PEER_V6):
                for number, body in enumerate([b"", b"x", b"y" * 5_000]):
                    for value in ("1", "2"):
                        text = model.text({"TAGS": f"t{number}", "a": value})
                        stores.append(store, Record(topic, 0, body, text, 0, 0, 5, host, 1000, HOST, 0, 0))
            end = store.max_position
            got = store.get(topic, 0, 0, 100, 1 << 20, end, None, wanted)
            assert (got[0], got[1], got[4]) == (0, 12, 6)
            tagged = store.get(topic, 0, 0, 100, 1 << 20, end, [model.java_hash("t1")], wanted)
            assert (tagged[1], tagged[4]) == (12, 2)
            assert store.get(topic, 0, 1, 1, 1 << 20, end, None, wanted)[1] == 3, "behind the last one looked at"
            none = store.get(topic, 0, 0, 100, 1 << 20, end, None, Filter(sql.program("a = 3")))
            assert (none[0], none[1], none[4]) == (1, 12, 0)
    finally:
        store.close()


def test_a_store_of_long_addresses(tmp_path: Path) -> None:
    store = stores.opened(tmp_path, store_host=HOST_V6)
    store.recover(0, True)
    try:
        for value in ("1", "2"):
            stores.append(store, Record("T", 0, b"x", model.text({"a": value}), 0, 0, 5, PEER_V6, 1000, HOST_V6, 0, 0))
        assert store.get("T", 0, 0, 9, 1 << 20, store.max_position, None, Filter(sql.program("a = 2")))[4] == 1
    finally:
        store.close()


def test_what_reads_long_values_looks_at_fewer_messages(tmp_path: Path) -> None:
    """The store is held while a pull filters."""
    store = stores.fresh(tmp_path)
    try:
        text = model.text({"a": "a" * 30_000})
        for _ in range(50):
            stores.append(store, Record("T", 0, b"x", text, 0, 0, 5, PEER, 1000, HOST, 0, 0))
        end = store.max_position
        cheap = Filter(sql.program("b IS NOT NULL"))
        slow = Filter(sql.program(" OR ".join(["a CONTAINS 'aab'"] * 300)))
        assert store.get("T", 0, 0, 100, 1 << 20, end, None, cheap)[1] == 50
        assert 1 <= store.get("T", 0, 0, 100, 1 << 20, end, None, slow)[1] < 5
    finally:
        store.close()
