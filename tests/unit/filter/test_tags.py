"""Tag expressions (clients' spec, 3.11)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockmq.base.errors import FilterError
from rockmq.filter import is_tag, tags
from rockmq.protocol import properties
from tests.support import model


@pytest.mark.parametrize(
    ("expression", "codes"),
    [
        ("*", None),
        ("", None),
        (" * ", None),
        ("||", None),
        ("TagA", (2598919,)),
        (" TagA ||TagB|| ", (2598919, 2598920)),
        ("polygenelubricants", (-(2**31),)),
        ("Zürich", (-1482116162,)),
        ("😀", (1772899,)),
        ("*||a", (42, 97)),
        (".*|a+", (model.java_hash(".*|a+"),)),
        ("\u3000a\t", (model.java_hash("\u3000a"),)),
    ],
)
def test_codes_are_javas(expression: str, codes: tuple[int, ...] | None) -> None:
    assert tags.codes(expression) == codes


@given(
    st.lists(st.text(st.characters(exclude_characters="|", exclude_categories=["Cs", "Z", "Cc"]), min_size=1), max_size=5)
)
def test_each_tag_has_its_hash(names: list[str]) -> None:
    expected = None if names in ([], ["*"]) else tuple(map(model.java_hash, names))
    assert tags.codes(" || ".join(names)) == expected


def test_a_tag_code_is_that_of_all_tags_of_a_message() -> None:
    assert properties.tag_code("a||b") == model.java_hash("a||b")


@pytest.mark.parametrize("expression", ["a" * 16_385, "a||" * 1_000_000])
def test_one_over_its_bound_is_refused(expression: str) -> None:
    with pytest.raises(FilterError, match="the bound is 16384"):
        tags.codes(expression)
    assert tags.codes("a||" * 5_000) == (97,) * 5_000


def test_what_names_tags() -> None:
    assert [is_tag(kind) for kind in (None, "", "TAG", "SQL92", "tag")] == [True, True, True, False, False]
