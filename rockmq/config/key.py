"""How a configuration key is declared, read, changed and shown.

A role's options are one frozen struct of frozen sections; in a file the keys of all sections lie side by side. A key
is declared once, as a field: its Java spelling is the field's name in camel case unless the field says otherwise, its
type and bounds are the annotation, its words are the `Key`. `declare` proves at import that no key has two owners.

`load` is loud: a key nobody knows, a value of the wrong type or out of its bounds, and a key that switches on what
RockMQ hasn't got are ConfigErrors that name key, value and what would be right. Keys of Apache's that have no effect
here load with one warning that says why (`rockmq.config.inert`), so that an existing broker.conf starts.
"""

import difflib
import logging
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, cast, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from rockmq.base.errors import ConfigError
from rockmq.config.inert import PREFIXES, SYSTEM_PROPERTY, Foreign

log = logging.getLogger(__name__)

MASK = "******"
INT_MAX = 2**31 - 1
"""A bound from which on there is none that a person would meet."""
SAME = "the same"
"""What is said of Apache's default where it is ours."""
WIRE_SIZE_MAX = 100
"""Characters of a key; none has so many."""


class Options(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all sections."""

    is_apaches: ClassVar[bool] = True
    """False where Apache's role has no such keys, whoever else has them."""


class Role(Options, frozen=True, kw_only=True):
    """Base of a role's options: one field per section; `foreign` are Apache's keys that the role doesn't own."""

    foreign: ClassVar[Foreign] = Foreign({}, {})


def Key(
    doc: str,
    *,
    unit: str = "",
    reload: bool = False,
    secret: bool = False,
    path: bool = False,
    default: str = "",
    apache: str | None = SAME,
    ge: int | None = None,
    le: int | None = None,
) -> Meta:
    """What a key means.

    `reload`: may change while running. `secret`: never shown. `path`: `~` and `$HOME` are expanded. `default`: in words,
    when it isn't the same everywhere. `apache`: Apache's default where it is another one, None where it has no such key.
    """
    extra = {"unit": unit, "reload": reload, "secret": secret, "path": path, "default": default, "apache": apache}
    return Meta(description=doc, ge=ge, le=le, extra=extra)


class Declared(NamedTuple):
    """A key where it is declared: `options.<section>.<attribute>`."""

    wire: str
    section: str
    attribute: str
    kind: Any
    doc: str
    unit: str
    reload: bool
    secret: bool
    path: bool
    default: str
    apache: str | None


R = TypeVar("R", bound=Role)


@cache
def keys(role: type[Role]) -> dict[str, Declared]:
    """Every key of a role's options by its wire spelling, in order of declaration."""
    found: dict[str, Declared] = {}
    for section in msgspec.structs.fields(role):
        for field in msgspec.structs.fields(section.type):
            each = _declared(section, field)
            assert each.wire not in found, f"key {each.wire!r} has two owners"
            found[each.wire] = each
    return found


def declare(role: type[R]) -> type[R]:
    """Check, at import, that each key of a role has one owner and isn't called inert or unsupported as well."""
    both = keys(role).keys() & (role.foreign.inert.keys() | role.foreign.refused.keys())
    assert not both, f"keys of {role.__name__} are also listed in rockmq.config.inert: {sorted(both)}"
    return role


def load(role: type[R], properties: Mapping[str, str]) -> R:
    """The options in these properties; a key that isn't there has its default. Raises ConfigError."""
    values: dict[str, dict[str, object]] = {section.name: {} for section in msgspec.structs.fields(role)}
    without_effect: dict[str, list[str]] = {}
    for wire, text in properties.items():
        each = keys(role).get(wire)
        if each is not None:
            values[each.section][each.attribute] = _value(each, text)
        elif (why := _without_effect(role, wire, text.strip())) is not None:
            without_effect.setdefault(why, []).append(wire)
    if without_effect:
        said = [f"{', '.join(sorted(keys))} ({why})" for why, keys in sorted(without_effect.items())]
        log.warning("these keys have no effect in RockMQ: %s", "; ".join(said))
    sections = {field.name: field.type(**values[field.name]) for field in msgspec.structs.fields(role)}
    return role(**sections)


def changed(options: R, changes: Mapping[str, str]) -> R:
    """The options with some keys changed while running. Raises ConfigError, also for keys that need a restart."""
    role = type(options)
    for wire in changes:
        each = keys(role).get(wire)
        if each is not None and not each.reload:
            raise ConfigError(f"{wire} can't change while running: set it in the configuration and start again")
    loaded = load(role, changes)
    without_effect = sorted(changes.keys() - keys(role).keys())
    if without_effect:
        raise ConfigError(f"these keys have no effect in RockMQ: {', '.join(without_effect)}")
    sections: dict[str, Options] = {}
    for each in (keys(role)[wire] for wire in changes):
        section = sections.get(each.section, getattr(options, each.section))
        value = getattr(getattr(loaded, each.section), each.attribute)
        sections[each.section] = msgspec.structs.replace(section, **{each.attribute: value})
    return msgspec.structs.replace(options, **sections)


def adopt(options: R, newer: R) -> None:
    """Let everybody who holds these options, or sections of them, see what `changed` made of them. Nothing else may change
    what is frozen."""
    for each in keys(type(options)).values():
        if each.reload:
            value = getattr(getattr(newer, each.section), each.attribute)
            force_setattr(getattr(options, each.section), each.attribute, value)


def dump(options: Role) -> dict[str, str]:
    """The options in wire spelling, as text; what is None is left out, secrets are masked."""
    found = {}
    for each in _keys_of(options).values():
        value = getattr(getattr(options, each.section), each.attribute)
        if value is not None:
            found[each.wire] = MASK if each.secret and value else _text(value)
    return found


def masked(role: type[Role], properties: Mapping[str, str]) -> dict[str, str]:
    """Properties as they may be logged."""
    declared = keys(role)
    return {wire: MASK if wire in declared and declared[wire].secret else text for wire, text in properties.items()}


def values(each: Declared) -> str:
    """What a key may be set to, in words."""
    bare = next(kind for kind in _alternatives(each.kind) if kind is not type(None))
    if bare is str:
        return "a path" if each.path else "text"
    if bare is not int:
        return _wanted(each.kind, "")
    note = _meta(each.kind)
    assert note is not None
    return f"{_bounds(note)} {each.unit}".rstrip()


def _bounds(note: Meta) -> str:
    if note.ge is None:
        return "a whole number"
    return f"{note.ge} or more" if note.le is None or note.le >= INT_MAX else f"{note.ge} to {note.le}"


def _keys_of(options: Role) -> dict[str, Declared]:
    role: type[Role] = type(options)
    return keys(role)


def _declared(section: msgspec.structs.FieldInfo, field: msgspec.structs.FieldInfo) -> Declared:
    meta = _meta(field.type)
    assert meta is not None, f"{section.name}.{field.name} has no Key"
    extra = cast("dict[str, Any]", meta.extra)
    return Declared(
        field.encode_name,
        section.name,
        field.name,
        field.type,
        meta.description or "",
        extra["unit"],
        extra["reload"],
        extra["secret"],
        extra["path"],
        extra["default"],
        extra["apache"] if section.type.is_apaches else None,
    )


def _meta(kind: Any) -> Meta | None:
    if get_origin(kind) is not Annotated:
        return next(filter(None, map(_meta, get_args(kind))), None)
    return next((note for note in get_args(kind)[1:] if isinstance(note, Meta) and note.extra is not None), None)


def _value(each: Declared, text: str) -> object:
    text = text.strip()
    if each.path:
        if "\0" in text:
            raise ConfigError(f"{each.wire}={text!r}: expected a path, in which there is no zero byte")
        text = _expanded(each.wire, text)
    if not text and type(None) in _alternatives(each.kind):
        return None
    try:
        return msgspec.convert(text, each.kind, strict=False)
    except msgspec.ValidationError as error:
        shown = MASK if each.secret else text
        unit = f" ({each.unit})" if each.unit else ""
        raise ConfigError(f"{each.wire}={shown}: expected {_wanted(each.kind, str(error))}{unit}") from None


def _wanted(kind: Any, error: str) -> str:
    """What would be right, in a person's words; `error` is msgspec's."""
    for alternative in _alternatives(kind):
        if alternative is bool:
            return "true or false"
        if hasattr(alternative, "__members__"):
            return "one of " + ", ".join(alternative.__members__)
    bound = error.removeprefix("Expected ").replace("`", "").partition(", got")[0]
    return bound.replace("int", "a whole number", 1)


def _alternatives(kind: Any) -> list[Any]:
    """The bare types of an annotation: `Annotated[int, …] | None` has int and NoneType."""
    if get_origin(kind) is Annotated:
        return _alternatives(get_args(kind)[0])
    return [bare for part in get_args(kind) for bare in _alternatives(part)] or [kind]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _without_effect(role: type[Role], wire: str, value: str) -> str | None:
    """Why a key that isn't ours has no effect; None for one that asks for nothing. Raises ConfigError for one that asks for
    what isn't here, and for one that nobody knows."""
    refusal = role.foreign.refused.get(wire)
    if refusal is not None:
        if value.lower() not in refusal.accepted:
            raise ConfigError(f"{wire}={value}: {refusal.why}")
        return None
    why = role.foreign.inert.get(wire)
    if why is not None:
        return why
    if wire.startswith(PREFIXES):
        return SYSTEM_PROPERTY
    if len(wire) > WIRE_SIZE_MAX:
        raise ConfigError(f"unknown key, of {len(wire)} characters: {wire[:WIRE_SIZE_MAX]!r}")
    known = [*role.foreign.inert, *role.foreign.refused, *keys(role)]
    raise ConfigError(f"unknown key {wire!r}{_nearest(wire, known)}")


def _nearest(wire: str, known: Iterable[str]) -> str:
    by_lower = {key.lower(): key for key in known}
    close = difflib.get_close_matches(wire.lower(), by_lower, n=1, cutoff=0.75)
    return f"; did you mean {by_lower[close[0]]!r}?" if close else ""


_VARIABLE = re.compile(r"\$\{([^}]*)\}|\$(\w+)")


def _expanded(wire: str, text: str) -> str:
    def found(match: re.Match[str]) -> str:
        name = match[1] if match[1] is not None else match[2]
        value = os.path.expanduser("~") if name in ("HOME", "user.home") else os.environ.get(name)
        if value is None:
            raise ConfigError(f"{wire}={text}: the environment has no variable {name!r}")
        return value

    return os.path.expanduser(_VARIABLE.sub(found, text))
