"""Signatures, as brokers check them."""

import pytest

from rockmq.auth.signature import is_signed, signature

SECRET = b"12345678"
FIELDS = {"b": "T", "AccessKey": "RocketMQ", "i": "ä\x01b\x02", "a": "g"}


def test_a_signature_of_javas() -> None:
    """What AclSigner.calSignature("RocketMQ", "12345678") gives: values in the order of their names, then the body."""
    expected = "IUc8rrO/0gDch8CjObLQsW2rsiA="
    assert signature({}, b"RocketMQ", SECRET) == expected
    assert signature({"b": "ck", "a": "Ro", "Signature": "x"}, b"etMQ", SECRET) == expected


@pytest.mark.parametrize("body", [b"", b"body"])
def test_whoever_signed_with_the_secret_is_believed(body: bytes) -> None:
    signed = FIELDS | {"Signature": signature(FIELDS, body, SECRET)}
    assert is_signed(signed, body, SECRET)
    assert not is_signed(signed, body, b"12345679")
    assert not is_signed(signed, body + b"x", SECRET)
    assert not is_signed(signed | {"b": "U"}, body, SECRET)
    assert not is_signed(signed | {"more": "x"}, body, SECRET)
    assert not is_signed(FIELDS, body, SECRET)
    assert not is_signed(FIELDS | {"Signature": "ä"}, body, SECRET)


def test_a_field_that_old_clients_add_afterwards() -> None:
    signed = FIELDS | {"Signature": signature(FIELDS, b"", SECRET), "_UNIQUE_KEY_QUERY": "false"}
    assert is_signed(signed, b"", SECRET)
    newer = FIELDS | {"_UNIQUE_KEY_QUERY": "true"}
    assert is_signed(newer | {"Signature": signature(newer, b"", SECRET)}, b"", SECRET)
    assert not is_signed(signed | {"b": "U"}, b"", SECRET)
