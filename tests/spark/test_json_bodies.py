"""Bodies that say what a schema asks for, and bodies that don't."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rockmq.base.errors import ConfigError
from rockmq.spark.json_bodies import arrow_type, decoded


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


ORDER = struct(
    id=LongType(), name=StringType(), price=DoubleType(), items=ArrayType(struct(sku=StringType(), count=IntegerType()))
)
EVERY = struct(
    a=BooleanType(), b=ByteType(), c=ShortType(), d=IntegerType(), e=LongType(), f=FloatType(), g=DoubleType(),
    h=StringType(), i=TimestampType(), j=ArrayType(LongType()), k=struct(l=StringType()),
)  # fmt: skip


def read(*bodies: bytes, kind: StructType = ORDER) -> list[object]:
    found = decoded(pa.array(bodies, pa.binary()), arrow_type(kind))
    found.validate(full=True)
    assert len(found) == len(bodies)
    rows: list[object] = found.to_pylist()
    return rows


def test_types_are_those_that_spark_makes_of_its_own() -> None:
    theirs = to_arrow_schema(struct(json=EVERY), timezone="UTC")

    assert pa.schema([("json", arrow_type(EVERY))]).equals(theirs)


def test_a_value_of_each_type() -> None:
    said = {"a": True, "b": 1, "c": -2, "d": 3, "e": 2**62, "f": 0.5, "g": 1e300, "h": "grüß", "j": [1, 2], "k": {"l": "x"}}

    assert read(json.dumps(said | {"i": "2026-11-22T01:02:03Z"}).encode(), kind=EVERY) == [
        said | {"i": datetime(2026, 11, 22, 1, 2, 3, tzinfo=UTC)}
    ]


def test_what_a_body_does_not_say_is_null_and_what_nobody_asked_for_is_left_out() -> None:
    assert read(b'{"id": 7, "more": {"a": [1]}, "items": [{"sku": "s", "colour": 1}]}') == [
        {"id": 7, "name": None, "price": None, "items": [{"sku": "s", "count": None}]}
    ]


@pytest.mark.parametrize(
    "bad",
    [
        b"", b" ", b"hello", b"1", b"[1]", b"null", b'"text"', b"{", b"{}}", b'{"id": "seven"}', b'{"id": 1.5}',
        b'{"id": 1} {}', b'{"id": 1}\n{"id": 2}', b'{"id": 1}}\n{"n": 1, "v": {"id": 2}', b'{"name": "\xff"}',
        b'{"items": {}}', b'{"name": "a\nb"}', b'{"id": 1},"x":2', b'{"id": 1} ,\n"x":{}',
    ],
)  # fmt: skip
def test_a_body_that_does_not_fit_is_null_and_leaves_the_others_alone(bad: bytes) -> None:
    good = [b'{"id": %d}' % number for number in range(5)]

    rows = read(*good[:2], bad, *good[2:], bad)

    assert rows[2] is rows[6] is None
    assert [row and row["id"] for row in rows] == [0, 1, None, 2, 3, 4, None]  # type: ignore[index]


def test_members_may_come_behind_an_object() -> None:
    rows = read(b'{"more": {"a": {}}, "id": 1}', b'{"id": 2, "name": "},\\""}', b'[{"id": 3}, "x"]')

    assert [row and row["id"] for row in rows] == [1, 2, None]  # type: ignore[index]


def test_white_space_may_be_anywhere() -> None:
    assert read(b'\n {\n "id":\t1\r\n}\n', b'{"id":2}') == [
        {"id": number, "name": None, "price": None, "items": None} for number in (1, 2)
    ]


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=12), st.just(b'{"id": {}}')), max_size=30))
def test_each_row_is_its_own_body_s(sent: "list[int | bytes]") -> None:
    bodies = [json.dumps({"id": each}).encode() if isinstance(each, int) else each for each in sent]

    rows = read(*bodies)

    for each, row in zip(sent, rows, strict=True):
        if isinstance(each, int):
            assert isinstance(row, dict)
            assert row["id"] == each
        elif not each.strip().startswith(b"{"):
            assert row is None


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (struct(a=BinaryType()), "'jsonSchema': json.a is binary; allowed are boolean, "),
        (struct(a=struct(b=ArrayType(BinaryType()))), "json.a.b is binary"),
        (StructType([StructField("a", LongType(), nullable=False)]), "json.a is NOT NULL"),
    ],
)
def test_other_types_are_refused(kind: StructType, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        arrow_type(kind)
