"""Java's properties text; the cases follow the javadoc of java.util.Properties.load."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rockmq.base.errors import ConfigError
from rockmq.config import properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=b", {"a": "b"}),
        ("  a  =  b ", {"a": "b "}),
        ("a:b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("a\t=\tb", {"a": "b"}),
        ("a==b", {"a": "=b"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\ b", {"a": " b"}),
        ("a=C:\\\\x", {"a": "C:\\x"}),
        ("a=\\t\\n\\r\\f\\q", {"a": "\t\n\r\fq"}),
        ("a=gr\\u00fc\\u00DF", {"a": "grüß"}),
        ("a=\\ud83d\\ude00", {"a": "😀"}),
        ("a=\\uu", None),
        ("a=\\ud83d", None),
        ("a=1\nb=2\r\nc=3\rd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a=1\na=2", {"a": "2"}),
        ("\ufeffa=1", {"a": "1"}),
    ],
)
def test_one_line(text: str, found: dict[str, str] | None) -> None:
    if found is None:
        with pytest.raises(ConfigError, match="line 1"):
            properties.read(text)
    else:
        assert properties.read(text) == found


def test_comments_and_blank_lines_are_passed_over() -> None:
    text = "# a=1\n   ! b=2\n\n \t\nc=3 # not a comment\n# no continuation \\\nd=4\n"
    assert properties.read(text) == {"c": "3 # not a comment", "d": "4"}


def test_a_backslash_joins_lines() -> None:
    text = "fruits = apple, banana, \\\n    pear, \\\n\t# kiwi\nnext=\\\\\nlast=\\"
    assert properties.read(text) == {"fruits": "apple, banana, pear, # kiwi", "next": "\\", "last": ""}


def test_an_error_names_the_line_where_the_property_begins() -> None:
    with pytest.raises(ConfigError, match=r"line 3: .*four hex digits"):
        properties.read("a=1\n\nb=x\\\n\\u12")


def test_bytes_are_utf8_or_else_latin1() -> None:
    assert properties.read_bytes("a=ü".encode()) == {"a": "ü"}
    assert properties.read_bytes("a=ü".encode("iso-8859-1")) == {"a": "ü"}


def test_a_missing_file_is_a_config_error_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.conf"):
        properties.read_file(tmp_path / "gone.conf")


def test_arguments() -> None:
    assert properties.arguments(["a=1", "b=x=y", "c="]) == {"a": "1", "b": "x=y", "c": ""}
    for bad in ("a", "=1"):
        with pytest.raises(ConfigError, match="expected key=value"):
            properties.arguments([bad])


plain = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.dictionaries(plain, plain))
def test_what_was_written_is_read_again(values: dict[str, str]) -> None:
    text = properties.write(values)
    assert text.isascii()
    assert properties.read(text) == values


some_text = st.text(st.sampled_from("ab=: \t\f\n\r\\u0#!") | st.characters(exclude_categories=["Cs"]))


@given(some_text)
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = properties.read(text)
    except ConfigError:
        return
    assert properties.read(properties.write(found)) == found


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        properties.read_bytes(data)


def test_other_values_leave_all_else_as_it_is() -> None:
    text = "# a comment\nfirst = 1\n\n! another\nsecond:2 \\\n   goes on\nthird 3\nfirst=again\n"
    found = properties.rewritten(text.encode(), {"second": "two\nlines", "first": "11", "new": " 4"})
    assert found == "# a comment\nfirst=11\n\n! another\nsecond=two\\nlines\nthird 3\nnew=\\ 4\n"


@example("\\", {})
@example(" \\\n \\", {"new": "1"})
@given(some_text, st.dictionaries(st.sampled_from(["a", "b", "", "ab"]) | plain, plain, max_size=4))
def test_what_is_rewritten_says_what_it_said_and_the_changes(text: str, changes: dict[str, str]) -> None:
    try:
        before = properties.read(text)
    except ConfigError:
        return
    assert properties.read(properties.rewritten(text.encode(), changes)) == before | changes
