"""How a header is declared, read and written.

A header is one `msgspec.Struct`. Its fields are the wire's `extFields`: attribute names in snake case, wire names in camel
case unless the field says otherwise, values as text. A field without a default is required. `EXCHANGES` maps each
request code to its header and the header of its response; codecs, tests and documents are derived from it.
Five wire types exist: text, 32- and 64-bit integers, booleans, enums by name (protocol spec, section 2.1).
"""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from rockmq.base.errors import HeaderError
from rockmq.protocol.codes import RequestCode

Int = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Topic = Annotated[str, Meta(extra={"acl": "topic"})]
Group = Annotated[str, Meta(extra={"acl": "group"})]
Cluster = Annotated[str, Meta(extra={"acl": "cluster"})]


class Header(Struct, rename="camel"):
    """Base of all headers; as it stands, the header of a request or response without fields."""


class TopicHeader(Header, kw_only=True):
    """Fields that 4.9 and later clients add to most requests (TopicRequestHeader.java, RpcRequestHeader.java)."""

    lo: bool | None = None
    ns: str | None = None
    nsd: bool | None = None
    bname: str | None = None
    oway: bool | None = None


class Exchange(NamedTuple):
    request: type[Header]
    response: type[Header]


EXCHANGES: dict[int, Exchange] = {}

H = TypeVar("H", bound=Header)


def request(code: RequestCode, response: type[Header] = Header) -> Callable[[type[H]], type[H]]:
    """Declare the header of a request code and that of its response."""

    def declare(header: type[H]) -> type[H]:
        assert code not in EXCHANGES, f"{code!r} is declared twice"
        EXCHANGES[code] = Exchange(header, response)
        return header

    return declare


def respelled(code: RequestCode, original: type[H], spelling: dict[str, str], name: str) -> type[H]:
    """The same header under other wire names (SEND_MESSAGE_V2's letters): same attributes, so one handler serves both."""
    fields = []
    for field in msgspec.structs.fields(original):
        wire = msgspec.field(name=spelling.get(field.name, field.encode_name))
        if not field.required:
            wire = msgspec.field(default=field.default, name=spelling.get(field.name, field.encode_name))
        fields.append((field.name, field.type, wire))
    struct: Any = msgspec.defstruct(name, fields, bases=(Header,), kw_only=True, module=__name__)
    EXCHANGES[code] = Exchange(struct, EXCHANGES[next(k for k, e in EXCHANGES.items() if e.request is original)].response)
    declared: type[H] = struct
    return declared


def decode(header: type[H], fields: dict[str, str]) -> H:
    """The header in `fields`; unknown keys pass. Raises HeaderError naming the field and what was expected."""
    try:
        return msgspec.convert(fields, header, strict=False)
    except msgspec.ValidationError as error:
        raise HeaderError(f"{header.__name__}: {error}") from None


def encode(header: Header) -> dict[str, str]:
    """The header as `extFields`: fields without a value are left out, everything is text (Go refuses numbers)."""
    get, names = _reader(type(header))
    return {
        key: value if type(value) is str else str(value) if type(value) is int else text(value)
        for key, value in zip(names, get(header), strict=True)
        if value is not None
    }


@cache
def _reader(header: type[Header]) -> tuple[Callable[[Header], tuple[object, ...]], list[str]]:
    """What takes all values out of a header in one call, and the wire names they go under."""
    attributes = [name for name, _ in keys(header)]
    if len(attributes) > 1:
        return attrgetter(*attributes), [key for _, key in keys(header)]
    return lambda value: tuple(getattr(value, name) for name in attributes), [key for _, key in keys(header)]


def text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


@cache
def keys(header: type[Header]) -> list[tuple[str, str]]:
    """(attribute, wire name) of each field."""
    return [(field.name, field.encode_name) for field in msgspec.structs.fields(header)]
