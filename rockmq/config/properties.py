"""Java's properties text (java.util.Properties, load and store).

A line is `key=value`; `:` or white space separates as well. `#` or `!` begins a comment line. A backslash at the end of
a line joins the next one, whose leading white space is dropped. Escapes: \\t \\n \\r \\f \\uXXXX (UTF-16 units);
before anything else the backslash falls away. Where a key comes twice, the last one holds. White space is space, tab,
form feed.

Java reads the bytes as ISO-8859-1; people write UTF-8. So UTF-8 is tried first, and what is written here is ASCII.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from rockmq.base.errors import ConfigError

CHANGES_SIZE_MAX = 65_536
"""Bytes of changes in one request: they are read in the server's loop."""

_BLANK = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile("\r\n|\r|\n")
_UNIT = re.compile("[0-9a-fA-F]{4}")


def read(text: str) -> dict[str, str]:
    """The properties in a text. Raises ConfigError naming the line of a broken escape."""
    found = {}
    for number, line in _logical_lines(text.removeprefix("\ufeff")):
        key, value = _split(line)
        found[_unescaped(key, number)] = _unescaped(value, number)
    return found


def read_bytes(data: bytes) -> dict[str, str]:
    """As `read`, from UTF-8 or else ISO-8859-1."""
    try:
        return read(data.decode())
    except UnicodeDecodeError:
        return read(data.decode("iso-8859-1"))


def read_changes(data: bytes) -> dict[str, str]:
    """As `read_bytes`, of a request. Raises ConfigError also when it is over `CHANGES_SIZE_MAX`."""
    if len(data) > CHANGES_SIZE_MAX:
        raise ConfigError(f"{len(data)} bytes of changes: expected {CHANGES_SIZE_MAX} at most")
    return read_bytes(data)


def read_file(path: Path) -> dict[str, str]:
    """As `read_bytes`. Raises ConfigError, also when the file can't be read; its text begins with the path."""
    try:
        return read_bytes(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def arguments(words: Iterable[str]) -> dict[str, str]:
    """Properties from command-line words `key=value`. Raises ConfigError."""
    found = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{word!r} is not an option: expected key=value")
        found[key.strip()] = value.strip()
    return found


def write(properties: Mapping[str, str]) -> str:
    """One line `key=value` each, in the mapping's order; what both this reader and Java's give back unchanged."""
    return "".join(f"{_escaped(key, is_key=True)}={_escaped(value)}\n" for key, value in properties.items())


def rewritten(data: bytes, changes: Mapping[str, str]) -> str:
    """A text with other values of some keys: their lines are replaced, what is new comes behind, and all else stays as it
    is. Raises ConfigError."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    lines = _LINE_END.split(text.removeprefix("\ufeff"))
    if lines and not lines[-1]:
        lines.pop()
    starts = list(_logical_lines("\n".join(lines)))
    kept, left = [], dict(changes)
    at = 0
    for number, line in starts:
        kept += lines[at : number - 1]
        at = number - 1
        while at < len(lines) and _goes_on(lines[at]):
            at += 1
        if at == len(lines):  # the last line goes on, and nothing follows
            lines[-1] = lines[-1][:-1] if line else "="  # an empty key, which a blank line is not
        at = min(at + 1, len(lines))
        name = _unescaped(_split(line)[0], number)
        if name not in changes:
            kept += lines[number - 1 : at]
        elif name in left:
            kept.append(write({name: left.pop(name)}).rstrip("\n"))
    kept += lines[at:]
    return "\n".join([*kept, write(left).rstrip("\n")] if left else kept) + "\n"


def _goes_on(line: str) -> bool:
    """Whether the next line belongs to this one."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _logical_lines(text: str) -> Iterable[tuple[int, str]]:
    """(number of its first line, line with its continuations) of each line that is neither blank nor a comment."""
    joined = ""
    start = 0
    for number, line in enumerate(_LINE_END.split(text), 1):
        line = line.lstrip(_BLANK)
        if not start:
            if not line or line[0] in "#!":
                continue
            start = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield start, joined + line
        joined, start = "", 0
    if start:
        yield start, joined


def _split(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in _BLANK + "=:":
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(_BLANK)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANK)
    return key, rest


def _unescaped(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    parts = []
    at = 0
    while (backslash := text.find("\\", at)) >= 0:
        parts.append(text[at:backslash])
        letter = text[backslash + 1 : backslash + 2]
        at = backslash + 2
        if letter == "u":
            unit = _UNIT.match(text, at)
            if unit is None:
                raise ConfigError(f"line {line}: \\u wants four hex digits, found {text[at : at + 4]!r}")
            parts.append(chr(int(unit[0], 16)))
            at += 4
        else:
            parts.append(_ESCAPES.get(letter, letter))
    parts.append(text[at:])
    try:
        # Two \u escapes can be the UTF-16 halves of one character.
        return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ConfigError(f"line {line}: a \\u escape stands for half a character") from None


def _escaped(text: str, *, is_key: bool = False) -> str:
    parts = []
    for at, letter in enumerate(text):
        if letter == "\\":
            parts.append("\\\\")
        elif letter in "\t\n\r\f":
            parts.append("\\" + "tnrf"["\t\n\r\f".index(letter)])
        elif (letter == " " and (is_key or at == 0)) or (is_key and letter in "=:#!"):
            parts.append("\\" + letter)
        elif letter < " " or letter > "~":
            units = letter.encode("utf-16-be", "surrogatepass")
            parts.extend(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
        else:
            parts.append(letter)
    return "".join(parts)
