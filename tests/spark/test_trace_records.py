"""Bodies of message trace as columns: those of Java's client, of ours, of older clients, and damaged ones."""

from typing import Any

import pyarrow as pa
import pytest

from rockmq.client.trace import FIELD_END, RECORD_END, record
from rockmq.pipeline.trace_records import DDL, SCHEMA, decode
from tests.golden import traces

JAVAS = traces.RECORDS.replace("|", FIELD_END).replace("\n", RECORD_END)
"""What Java's client tells, with numbers in the places of those that differ."""
for word, number in {"<time>": "1800000000000", "<cost>": "12"}.items():
    JAVAS = JAVAS.replace(word, number)


def decoded(*bodies: bytes) -> list[dict[str, Any]]:
    return list(decode(pa.array(bodies, pa.binary())).to_pylist())


def said(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def test_records_of_javas_client() -> None:
    rows = decoded(JAVAS.encode())

    assert [row["kind"] for row in rows] == [line.split("|")[0] for line in traces.RECORDS.splitlines()]
    assert [row["reason"] for row in rows] == [None] * len(rows)
    by_kind = {row["kind"]: said(row) for row in rows if row["keys"] in ("k3", "k6")}
    common = {"time_ms": 1_800_000_000_000, "region": "DefaultRegion", "msg_id": "<id>"}
    assert by_kind["EndTransaction"] == common | {
        "kind": "EndTransaction", "group": "<producers>", "topic": "<topic>", "tags": "paid", "keys": "k6",
        "host": "<broker>", "message_kind": 2, "state": "COMMIT_MESSAGE",
    }  # fmt: skip
    assert by_kind["Pub"] == common | {
        "kind": "Pub", "group": "<producers>", "topic": "<topic>", "tags": "paid", "keys": "k6", "host": "<broker>",
        "size": 9, "cost_ms": 12, "message_kind": 1, "success": True,
    }  # fmt: skip
    assert by_kind["SubBefore"] == common | {
        "kind": "SubBefore",
        "group": "<consumers>",
        "request_id": "<request>",
        "retries": 0,
        "keys": "k6",
    }
    after = {"kind": "SubAfter", "request_id": "<request>", "msg_id": "<id>", "cost_ms": 12, "time_ms": 1_800_000_000_000}
    assert by_kind["SubAfter"] == after | {"success": True, "keys": "k6", "code": 0, "group": "<consumers>"}
    failed = [(row["keys"], row["success"], row["code"]) for row in rows if row["kind"] == "SubAfter" and not row["success"]]
    assert failed == [("k3", False, 4), ("k4", False, 2)]


PUB = ("Pub", 1, "r", "g", "t", "id", None, None, "host", 3, 4, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (record(*PUB, True), {"success": True}),  # before there were offset ids
        (record(*PUB, "offset id", True), {"success": True}),
        (record(*PUB, "offset id", False, "10.0.0.1"), {"success": False}),
        (record("SubAfter", "q", "id", 5, True, "k"), {"success": True, "code": None, "time_ms": None}),
        ("\x01".join(["SubAfter", "q", "id", "5", "false", "k", "2", ""]) + RECORD_END, {"code": 2, "group": None}),
        (record("Recall", 1, "r", "g", "t", "id", False), {"topic": "t", "success": False}),
    ],
)
def test_records_of_all_ages(text: str, expected: dict[str, Any]) -> None:
    (row,) = decoded(text.encode())
    assert row["reason"] is None
    assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"hello", "no kind of record"),
        (b"Pub\x01\xff\xfe\x02", "it has too few fields"),
        (record(*PUB).encode(), "it has too few fields"),
        (record("Pub", "soon", *PUB[2:], True).encode(), "its time_ms is none"),
        (record("Pub", 253_370_764_800_000, *PUB[2:], True).encode(), "its time_ms is none"),
        (record("Pub", -1, *PUB[2:], True).encode(), "its time_ms is none"),
        (record("SubAfter", "q", "id", 2**31, True, "k").encode(), "its cost_ms is none"),
        (record("SubBefore", 1, "r", "g", "q", "id", "9" * 40, "k").encode(), "its retries is none"),
        (record("SubAfter", "q", None, 5, True, "k").encode(), "its msg_id is none"),
    ],
)
def test_what_is_no_record_says_why(text: bytes, reason: str) -> None:
    good = record(*PUB, True).encode()
    rows = decoded(good + text, b"", good)
    assert [row["reason"] for row in rows] == [None, reason, None]
    assert rows[1]["text"] == text.decode("utf-8", "replace").rstrip(RECORD_END)


def test_no_bodies_give_no_rows() -> None:
    assert decode(pa.array([], pa.binary())).num_rows == 0
    assert decode(pa.array([None, b""], pa.binary())).num_rows == 0


def test_spark_has_the_same_columns() -> None:
    assert [part.split()[0].strip("`") for part in DDL.split(", ")] == SCHEMA.names
