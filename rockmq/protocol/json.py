"""JSON as fastjson 1.x writes it, and as every peer can read it (protocol spec, 2.2).

Java writes maps with keys that aren't text: `{0:"a:1"}` and `{{"brokerName":"b","queueId":0,"topic":"T"}:7}`. Standard
parsers refuse both. `decode` first tries the text as it is and rewrites it only when that fails: a bare number becomes a
quoted key, and an object key becomes its compact JSON text in quotes, which `MessageQueue.parse` takes apart again.
"""

import json as plain_json
from typing import Any, TypeVar

import msgspec

from rockmq.base.errors import ProtocolError

T = TypeVar("T")

NESTING_MAX = 64


def decode(text: bytes, kind: type[T], what: str) -> T:
    """`kind` from JSON text, lenient about map keys. Raises ProtocolError that begins with `what`."""
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"{what}: {error}") from None
    except (UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"{what}: {error}") from None
    except msgspec.DecodeError:
        pass
    try:
        return msgspec.json.decode(standard(text.decode()), type=kind, strict=False)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"{what}: {error}") from None


def encode(value: object) -> bytes:
    """Compact standard JSON; Go cuts addresses out of the text by hand and trips over white space (spec, pitfall 1)."""
    return msgspec.json.encode(value)


def encode_sorted(value: object) -> bytes:
    """Compact JSON with sorted keys and non-ASCII escaped: byte for byte what fastjson writes with browser features."""
    return plain_json.dumps(msgspec.to_builtins(value), separators=(",", ":"), sort_keys=True).encode()


def standard(text: str) -> str:
    """Fastjson's text with every map key quoted. Raises ValueError where the text isn't even that."""
    reader = _Reader(text)
    value = reader.value(0)
    reader.space()
    if reader.at != len(text):
        raise ValueError(f"text behind the value at character {reader.at}")
    return value


def object_map(entries: dict[str, Any]) -> bytes:
    """A map whose keys are JSON objects in text: written as Java writes it, `{{…}:value}` (spec, pitfall 23)."""
    parts = (key.encode() + b":" + msgspec.json.encode(value) for key, value in entries.items())
    return b"{" + b",".join(parts) + b"}"


class _Reader:
    """Walks the text once and gives it back as standard JSON."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t\r\n":
            self.at += 1

    def peek(self) -> str:
        self.space()
        if self.at == len(self.text):
            raise ValueError("text ends early")
        return self.text[self.at]

    def take(self, wanted: str) -> None:
        if self.peek() != wanted:
            raise ValueError(f"expected {wanted!r} at character {self.at}, found {self.text[self.at]!r}")
        self.at += 1

    def value(self, depth: int) -> str:
        if depth > NESTING_MAX:
            raise ValueError(f"nested deeper than {NESTING_MAX}")
        first = self.peek()
        if first == "{":
            return self.members(depth)
        if first == "[":
            return self.items(depth)
        if first in "\"'":
            return self.string()
        return self.word()

    def members(self, depth: int) -> str:
        self.take("{")
        parts: list[str] = []
        while self.peek() != "}":
            if parts:
                self.take(",")
                if self.peek() == "}":
                    break
            key = self.value(depth + 1)
            self.take(":")
            parts.append(f"{key if key.startswith(chr(34)) else plain_json.dumps(key)}:{self.value(depth + 1)}")
        self.take("}")
        return "{" + ",".join(parts) + "}"

    def items(self, depth: int) -> str:
        self.take("[")
        parts: list[str] = []
        while self.peek() != "]":
            if parts:
                self.take(",")
                if self.peek() == "]":
                    break
            parts.append(self.value(depth + 1))
        self.take("]")
        return "[" + ",".join(parts) + "]"

    def string(self) -> str:
        quote = self.text[self.at]
        end = self.at + 1
        while end < len(self.text) and self.text[end] != quote:
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise ValueError("string without end")
        raw = self.text[self.at + 1 : end]
        self.at = end + 1
        if quote == '"':
            return f'"{raw}"'
        return plain_json.dumps(raw.replace("\\'", "'"))

    def word(self) -> str:
        end = self.at
        while end < len(self.text) and self.text[end] not in ",:]} \t\r\n":
            end += 1
        word = self.text[self.at : end]
        if not word:
            raise ValueError(f"unexpected {self.text[self.at]!r} at character {self.at}")
        self.at = end
        return word
